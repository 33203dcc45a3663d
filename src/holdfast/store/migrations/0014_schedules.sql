-- Schedules: when runs begin by themselves. `due_at` is when a worker should look, null while it is paused, retired or has no time left.
CREATE TABLE schedules (
  name       TEXT   NOT NULL PRIMARY KEY,
  agent      TEXT   NOT NULL,
  times      TEXT   NOT NULL,                  -- JSON: the schedule without its arguments (words/schedules.py)
  run        TEXT   NOT NULL,                  -- JSON: what each run is created with
  digest     TEXT   NOT NULL,                  -- of what an agent declares; '' if a person made it
  state      TEXT   NOT NULL,                  -- active, paused by a person, or retired: no agent declares it any more
  since      BIGINT,                           -- the first time that was not dealt with
  due_at     BIGINT,
  last_at    BIGINT,                           -- the time of the run that was begun last
  last_run   TEXT,
  begun      BIGINT NOT NULL DEFAULT 0,        -- how many runs
  missed     BIGINT NOT NULL DEFAULT 0,        -- how many times were passed over
  made_by    TEXT   NOT NULL,
  created_at BIGINT NOT NULL,
  updated_at BIGINT NOT NULL
);
CREATE INDEX schedules_due ON schedules (due_at) WHERE due_at IS NOT NULL;
CREATE INDEX schedules_updated ON schedules (updated_at);  -- finds those that a clock wrote which was ahead
-- What workers declare ('': they serve the agent, and declare no schedule), and what was ever declared.
CREATE TABLE schedules_declared (
  worker TEXT NOT NULL,
  name   TEXT NOT NULL,
  digest TEXT NOT NULL,
  PRIMARY KEY (worker, name)
);
CREATE INDEX schedules_declared_name ON schedules_declared (name);
CREATE TABLE schedules_seen (
  name   TEXT NOT NULL,
  digest TEXT NOT NULL,
  PRIMARY KEY (name, digest)
);
