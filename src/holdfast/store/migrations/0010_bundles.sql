-- Runs that were moved to another store have a state of their own. The list of states is in a CHECK, which SQLite can change only
-- in the text of its schema, as its documentation of ALTER TABLE says; the table that is created behind it makes every connection
-- read that text anew. PostgreSQL has no such CHECK.
PRAGMA writable_schema = ON;
UPDATE sqlite_schema SET sql = replace(sql, '''cancelled'')', '''cancelled'', ''moved'')') WHERE type = 'table' AND name = 'runs';
PRAGMA writable_schema = RESET;
-- Families of runs that left this store. No foreign key: a row outlives its run.
CREATE TABLE exports (
  bundle       TEXT   NOT NULL PRIMARY KEY,
  run_id       TEXT   NOT NULL,                -- the run above all
  destination  TEXT   NOT NULL,                -- the id of the store that may go on with it
  made_at      BIGINT NOT NULL,
  before       TEXT   NOT NULL,                -- JSON of what the move changed, as it was
  content      BLOB,                           -- the file, to be written again; null: it is not needed any more
  confirmed_at BIGINT,                         -- since then the destination is known to have it
  undone_at    BIGINT                          -- since then it is here again, because somebody said so
);
CREATE INDEX exports_run ON exports (run_id);
-- Bundles that came into this store, for ever: no move is taken twice.
CREATE TABLE imports (
  bundle TEXT   NOT NULL,
  run_id TEXT   NOT NULL,
  kind   TEXT   NOT NULL,
  source TEXT   NOT NULL,                      -- the id of the store it is from
  at     BIGINT NOT NULL,
  PRIMARY KEY (bundle, run_id)
);
