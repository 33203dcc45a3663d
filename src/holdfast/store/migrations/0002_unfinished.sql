-- What has not ended, by state and queue: counted for metrics and looked through for runs that are stuck. No column of it
-- changes when a step is recorded, so a step costs nothing more. The last column lets SQLite count without reading rows.
CREATE INDEX runs_unfinished ON runs (status, queue, due_at, finished_at) WHERE finished_at IS NULL;
