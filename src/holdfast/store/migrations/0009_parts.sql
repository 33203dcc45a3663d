-- Parts of inputs that are kept whole (values/parts.py says what they are): each once under its digest, whoever wrote it.
CREATE TABLE parts (
  digest  TEXT NOT NULL PRIMARY KEY,
  content TEXT NOT NULL
);
-- Which runs name a part: one row, however often. A part that no run names goes with the last one that did. No foreign key: the
-- journal of a run may outlive its row.
CREATE TABLE part_uses (
  run_id TEXT NOT NULL,
  digest TEXT NOT NULL,
  PRIMARY KEY (run_id, digest)
) WITHOUT ROWID;
CREATE INDEX part_uses_digest ON part_uses (digest);
