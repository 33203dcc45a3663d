-- The workers that gave a run back because its records do not fit their code, as a JSON list: they do not take it again.
ALTER TABLE runs ADD COLUMN refused TEXT;
CREATE INDEX runs_refused ON runs (due_at) WHERE refused IS NOT NULL AND due_at IS NOT NULL;
