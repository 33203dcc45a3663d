-- What a store is: one row. A backup, and a store that was restored from one, are copies: while they are held no run is claimed.
CREATE TABLE identity (
  id          TEXT   NOT NULL PRIMARY KEY,    -- random; never that of another store
  made_at     BIGINT NOT NULL,
  backup_of   TEXT,                           -- the store it is a copy of
  backup_at   BIGINT,
  restored_at BIGINT,
  held_at     BIGINT,                         -- since then nothing is carried here, until somebody says that it may be
  checksum    TEXT                            -- of a backup: of all its rows
);
