-- Messages without a key that have left the inbox, because a checkpoint is behind them and the journal has them: what the inbox said of
-- each but for its text. A row is a stretch of positions with one topic (store/remnants.py).
CREATE TABLE remnants (
  run_id   TEXT   NOT NULL REFERENCES runs (id) ON DELETE CASCADE,
  position BIGINT NOT NULL,                   -- of the first
  topic    TEXT   NOT NULL,
  ids      BLOB   NOT NULL,                   -- eight bytes for each
  sent_at  BIGINT NOT NULL,                   -- of the first
  times    TEXT   NOT NULL,                   -- JSON list: of each other one the milliseconds since the one before it
  PRIMARY KEY (run_id, position)
);
