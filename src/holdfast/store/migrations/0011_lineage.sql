-- Forks: runs whose history begins in another run. `base_id` is the run they were made from; once that is deleted, the name
-- under which its events are kept.
CREATE TABLE forks (
  run_id   TEXT   NOT NULL PRIMARY KEY REFERENCES runs (id) ON DELETE CASCADE,
  base_id  TEXT   NOT NULL,
  name     TEXT   NOT NULL,                   -- of that run, as it was called
  at       BIGINT NOT NULL,                   -- the first event that is not shared
  starters TEXT   NOT NULL                    -- JSON list of who started the runs that it comes from
);
CREATE INDEX forks_base ON forks (base_id);
-- Events of other runs that count for a fork: those up to where it began ('shared'), those behind that point ('behind'), and
-- those of runs below ('below'). Of a run that was retried those count that were not dropped when the fork was made.
CREATE TABLE lineage (
  run_id  TEXT   NOT NULL REFERENCES runs (id) ON DELETE CASCADE,
  part    TEXT   NOT NULL,
  base_id TEXT   NOT NULL,
  first   BIGINT NOT NULL,
  until   BIGINT NOT NULL,                    -- the first that does not count
  seen    BIGINT NOT NULL,                    -- what was dropped at this place or later was not when the fork was made
  name    TEXT   NOT NULL,                    -- of the run, as it was called
  PRIMARY KEY (run_id, part, base_id, first)
);
CREATE INDEX lineage_base ON lineage (base_id);
