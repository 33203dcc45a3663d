-- What people are shown of runs and workers while they go on. Nothing here decides anything: it may be lost, and is told as it is known.

-- The life of a run: what it did since it was made, in pieces of 12 digits and a letter (words/life.py), the oldest first. The piece
-- that lasts began at `life_at`; null: when the row last changed. Written by the statements that change the state.
ALTER TABLE runs ADD COLUMN life TEXT;
ALTER TABLE runs ADD COLUMN life_at BIGINT;
ALTER TABLE runs ADD COLUMN worked_ms BIGINT NOT NULL DEFAULT 0;
ALTER TABLE runs ADD COLUMN interruptions BIGINT NOT NULL DEFAULT 0;

-- Calls whose bodies have run for a while, as the owner of the run last said. A row counts while its run is running under that epoch.
CREATE TABLE open_calls (
  run_id TEXT   NOT NULL PRIMARY KEY REFERENCES runs (id) ON DELETE CASCADE,
  worker TEXT   NOT NULL,
  epoch  BIGINT NOT NULL,
  many   BIGINT NOT NULL,                     -- there are so many; the oldest of them are told
  calls  TEXT   NOT NULL,                     -- JSON list of lists: key, name, input in short, attempt, when it began
  at     BIGINT NOT NULL
);
CREATE INDEX open_calls_worker ON open_calls (worker);

-- Requests to stop or to pause: lists look for those that are under way.
CREATE INDEX signals_stops ON signals (run_id) WHERE kind IN ('run.cancelling', 'run.pausing');

-- What a worker said with its last heartbeat: JSON of how many runs it carries, and of how many it may.
ALTER TABLE workers ADD COLUMN load TEXT;

-- Incarnations that are gone, or that stood still for longer than their leases; a day long.
CREATE TABLE lost_workers (
  id       TEXT   NOT NULL PRIMARY KEY,
  version  TEXT,
  how      TEXT   NOT NULL,                   -- dead: its lock was free; lease: it lost runs by time; drained: it stopped by itself
  at       BIGINT NOT NULL,                   -- when that was noticed
  moved    BIGINT NOT NULL,                   -- runs that went on elsewhere, or that it gave back
  after_ms BIGINT                             -- the longest time from the last record of one of these to its next claim
);

-- What an incarnation did in each minute of the last hour.
CREATE TABLE worker_minutes (
  at     BIGINT NOT NULL,                     -- when the minute began
  worker TEXT   NOT NULL,
  steps  BIGINT NOT NULL,
  ended  BIGINT NOT NULL,                     -- runs
  failed BIGINT NOT NULL,                     -- of these
  PRIMARY KEY (at, worker)
);

-- Who said that a rate is paused: the error of the body that was refused.
ALTER TABLE rates ADD COLUMN because TEXT;
