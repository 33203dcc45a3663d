-- Sessions: browsers that have shown who they are. The cookie is nowhere, only its digest; every server of the store knows them.
CREATE TABLE sessions (
  digest     TEXT   NOT NULL PRIMARY KEY,
  whose      TEXT   NOT NULL,                  -- "token ID", "link ID", or "person NAME" of whom a provider knows
  member_of  TEXT   NOT NULL,                  -- JSON list of groups of such a person; of a token it is the token's own
  scopes     TEXT   NOT NULL,                  -- JSON list, in the same way
  account    BIGINT,                           -- the user of the computer whose connections alone may use it; null: any
  created_at BIGINT NOT NULL,
  expires_at BIGINT NOT NULL
);
CREATE INDEX sessions_whose ON sessions (whose, created_at);
CREATE INDEX sessions_expired ON sessions (expires_at);

-- Links by which one person may see one question as it was, and decide it once.
CREATE TABLE links (
  id         TEXT   NOT NULL PRIMARY KEY,
  digest     TEXT   NOT NULL,                  -- of the secret in the link
  question   TEXT   NOT NULL,
  shown      TEXT   NOT NULL,                  -- the digest of what the question showed
  name       TEXT   NOT NULL,                  -- who decides with it
  member_of  TEXT   NOT NULL,                  -- JSON list of groups
  created_at BIGINT NOT NULL,
  expires_at BIGINT NOT NULL,
  used_at    BIGINT                            -- when it was decided with it
);
CREATE INDEX links_expired ON links (expires_at);

-- The labels of the runs that are there for a token, as JSON; null: all runs are.
ALTER TABLE tokens ADD COLUMN only_labels TEXT;
