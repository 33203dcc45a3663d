-- Announcements: what was published, in order. One waits until a worker has passed it on; then its id is known for a while.
CREATE TABLE announcements (
  position     INTEGER PRIMARY KEY AUTOINCREMENT,
  id           TEXT   NOT NULL,
  name         TEXT   NOT NULL,
  value        TEXT,                           -- null once it was passed on
  run          TEXT,                           -- that published it; null: a program did
  reached_run  TEXT   NOT NULL DEFAULT '',     -- the last subscription it was passed on to, while others are left
  reached      TEXT   NOT NULL DEFAULT '',
  published_at BIGINT NOT NULL,
  passed_at    BIGINT,                         -- null while it waits
  xact         BIGINT                          -- the transaction that wrote it; null where one writes at a time
);
CREATE UNIQUE INDEX announcements_id ON announcements (id);
CREATE INDEX announcements_waiting ON announcements (position) WHERE passed_at IS NULL;
CREATE INDEX announcements_passed ON announcements (passed_at) WHERE passed_at IS NOT NULL;
-- Subscriptions: who waits for what. A run hears of it on a topic; a trigger, where run is '', by a delivery.
CREATE TABLE subscriptions (
  run    TEXT   NOT NULL,
  topic  TEXT   NOT NULL,                      -- or the name of the trigger
  name   TEXT   NOT NULL,                      -- of the announcements
  fields TEXT   NOT NULL,                      -- JSON: fields of the value that are compared; '': none
  wanted TEXT   NOT NULL,                      -- the digest of what they must have
  since  BIGINT NOT NULL,                      -- announcements up to this position were made before,
  seen   TEXT,                                 -- but for those of transactions that this snapshot does not see
  PRIMARY KEY (run, topic)
);
CREATE INDEX subscriptions_fields ON subscriptions (name, fields);
CREATE INDEX subscriptions_wanted ON subscriptions (name, wanted, run, topic);
-- Gatherings: deliveries of a trigger that become one, and when.
CREATE TABLE gatherings (
  trigger  TEXT   NOT NULL,
  bucket   TEXT   NOT NULL,                    -- what they have in common; '': all of them
  key      TEXT   NOT NULL,                    -- of the delivery that they become
  began_at BIGINT NOT NULL,
  due_at   BIGINT NOT NULL,
  count    BIGINT NOT NULL,
  size     BIGINT NOT NULL,                    -- of all values, in characters
  most     BIGINT NOT NULL,                    -- so many are a list; 0: the last one is kept
  PRIMARY KEY (trigger, bucket)
);
CREATE INDEX gatherings_due ON gatherings (due_at);
CREATE TABLE gathered (
  trigger  TEXT   NOT NULL,
  bucket   TEXT   NOT NULL,
  position BIGINT NOT NULL,                    -- their order
  value    TEXT   NOT NULL,
  PRIMARY KEY (trigger, bucket, position)
);
-- Which announcement a run was last started with, where the last one is kept: an older one that comes late starts nothing.
CREATE TABLE debounced (
  trigger    TEXT   NOT NULL,
  bucket     TEXT   NOT NULL,
  position   BIGINT NOT NULL,
  started_at BIGINT NOT NULL,
  PRIMARY KEY (trigger, bucket)
);
CREATE INDEX debounced_started ON debounced (started_at);
