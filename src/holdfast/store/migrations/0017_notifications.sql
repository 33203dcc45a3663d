-- Notifications: who is told of which events. What goes out is kept among the deliveries, under the name with 'to ' before it.
CREATE TABLE notifications (
  name       TEXT   NOT NULL PRIMARY KEY,
  config     TEXT   NOT NULL,                  -- JSON; secrets are named by where they are
  state      TEXT   NOT NULL,                  -- active, or paused by a person
  position   BIGINT NOT NULL,                  -- in the feed: all up to here that it is told of is among the deliveries
  made_by    TEXT   NOT NULL,
  created_at BIGINT NOT NULL,
  updated_at BIGINT NOT NULL
);
