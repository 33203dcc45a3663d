-- The place of the turn that a run waits for, in microseconds; null: it has none, or its time is `due_at`.
ALTER TABLE runs ADD COLUMN turn BIGINT;
-- Where turns of rates were used late: those a window behind wait for them. A row that is older than a window says nothing.
CREATE TABLE late_turns (
  key   TEXT   NOT NULL,
  place BIGINT NOT NULL,                      -- of the first of a stretch of turns
  began BIGINT NOT NULL,                      -- when the last of them was used
  PRIMARY KEY (key, place)
);
