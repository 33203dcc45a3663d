-- Triggers: what may come from outside, as workers declare it. An edge that has no code of them reads here how to take it.
CREATE TABLE triggers (
  name       TEXT   NOT NULL PRIMARY KEY,
  kind       TEXT   NOT NULL,
  config     TEXT   NOT NULL,                  -- JSON; secrets are named by where they are
  digest     TEXT   NOT NULL,                  -- of what is declared
  created_at BIGINT NOT NULL,
  updated_at BIGINT NOT NULL
);
-- Deliveries: what came, kept until a worker has mapped it, and for a while so that it is taken once.
CREATE TABLE deliveries (
  trigger     TEXT   NOT NULL,
  key         TEXT   NOT NULL,                 -- its id, as the sender says it
  kind        TEXT   NOT NULL,
  headers     TEXT   NOT NULL,                 -- JSON
  status      TEXT   NOT NULL,                 -- new, done, or dead: a person must look at it
  attempts    BIGINT NOT NULL DEFAULT 0,       -- that failed
  claims      BIGINT NOT NULL DEFAULT 0,       -- how often a worker took it; the fence of its owner
  due_at      BIGINT,                          -- when a worker may take it: while one has it, when that one counts as gone
  owner       TEXT,
  error       TEXT,                            -- of the last attempt
  outcome     TEXT,                            -- JSON: what was done
  received_at BIGINT NOT NULL,
  settled_at  BIGINT,                          -- when it was done or died
  size        BIGINT NOT NULL,                 -- of the body, in bytes
  body        BLOB   NOT NULL,
  PRIMARY KEY (trigger, key)
);
CREATE INDEX deliveries_due ON deliveries (trigger, due_at) WHERE status = 'new';
CREATE INDEX deliveries_owner ON deliveries (owner) WHERE owner IS NOT NULL;
CREATE INDEX deliveries_recent ON deliveries (status, trigger, received_at);
CREATE INDEX deliveries_settled ON deliveries (settled_at) WHERE settled_at IS NOT NULL;
