-- Files that triggers have found: a path with a content is found once. Kept as long as the file is there, and for a while.
CREATE TABLE files (
  trigger TEXT   NOT NULL,
  path    TEXT   NOT NULL,                     -- below the folder that is watched
  digest  TEXT   NOT NULL,                     -- of the content
  mark    TEXT   NOT NULL,                     -- size and times as they were: while they are so, the content is not read again
  seen_at BIGINT NOT NULL,
  PRIMARY KEY (trigger, path, digest)
);
CREATE INDEX files_seen ON files (trigger, seen_at);
-- What workers have taken for a trigger from a broker, which keeps the messages itself, and what they heard of the rest.
ALTER TABLE triggers ADD COLUMN taken BIGINT NOT NULL DEFAULT 0;
ALTER TABLE triggers ADD COLUMN taken_at BIGINT;
ALTER TABLE triggers ADD COLUMN lag BIGINT;
