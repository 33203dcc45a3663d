-- The first schema. Times are milliseconds since 1970, written by the process that commits. JSON is kept as text.
-- Words that PostgreSQL spells differently: INTEGER PRIMARY KEY (identity column), WITHOUT ROWID (nothing), instr (strpos),
-- BLOB (bytea).

-- A run: one row, the columns of model.RunRow in the same order, and the store's own after them. While it runs, only its
-- owner changes more than inbox_count.
CREATE TABLE runs (
  id             TEXT   NOT NULL PRIMARY KEY,
  uid            TEXT   NOT NULL,
  agent          TEXT   NOT NULL,
  status         TEXT   NOT NULL CHECK (status IN
                   ('ready', 'running', 'waiting', 'paused', 'completed', 'failed', 'cancelled')),
  input          TEXT   NOT NULL,
  version        TEXT,
  queue          TEXT   NOT NULL,
  due_at         BIGINT,                      -- when someone should look; the end of the lease while it runs
  lease_owner    TEXT,                        -- the incarnation that holds or lost the lease
  lease_epoch    BIGINT NOT NULL DEFAULT 0,   -- the fence: one more at each claim
  next_seq       BIGINT NOT NULL DEFAULT 0,
  checkpoint_seq BIGINT,
  inbox_count    BIGINT NOT NULL DEFAULT 0,   -- signals ever sent
  inbox_seen     BIGINT NOT NULL DEFAULT 0,   -- signals taken into the journal
  awaits         TEXT,                        -- JSON list of the tokens that may wake it; null: any
  waits_for      TEXT,
  crash_count    BIGINT NOT NULL DEFAULT 0,   -- claims from a dead owner since the last outcome
  parent_id      TEXT,
  parent_key     TEXT,
  root_id        TEXT   NOT NULL,
  labels         TEXT   NOT NULL,
  result         TEXT,
  error          TEXT,
  reason         TEXT,
  steps          BIGINT NOT NULL DEFAULT 0,
  created_at     BIGINT NOT NULL,
  started_at     BIGINT,
  finished_at    BIGINT,
  updated_at     BIGINT NOT NULL,
  priority       BIGINT NOT NULL DEFAULT 5,   -- 9 is claimed first
  limit_key      TEXT,                        -- at most limit_n runs with this key are running
  limit_n        BIGINT,
  rate_key       TEXT,                        -- at most rate_n runs with this key begin in rate_ms
  rate_n         BIGINT,
  rate_ms        BIGINT,
  singleton_key  TEXT,                        -- one unfinished run has this key
  budget         TEXT,                        -- JSON of what it and all below it may spend; an empty one: one above it has one
  lease_claim    TEXT                         -- the claim that took it last: one whose commit is unknown finds its runs
);
-- The claim walks each level of this one from its start, the highest first; the agent is in it so that other workers' runs
-- are passed over without reading their rows.
CREATE INDEX runs_due ON runs (priority DESC, due_at, agent) WHERE due_at IS NOT NULL;
-- Who has a slot of a limit, and who waits for one, the oldest first.
CREATE INDEX runs_slots ON runs (limit_key) WHERE status = 'running' AND limit_key IS NOT NULL;
CREATE INDEX runs_held ON runs (limit_key, created_at, id) WHERE waits_for = 'slot' AND due_at IS NULL;
CREATE UNIQUE INDEX runs_singleton ON runs (singleton_key)
  WHERE singleton_key IS NOT NULL AND status IN ('ready', 'running', 'waiting', 'paused');
CREATE INDEX runs_lease ON runs (lease_owner) WHERE lease_owner IS NOT NULL;
CREATE INDEX runs_parent ON runs (parent_id) WHERE parent_id IS NOT NULL;
CREATE INDEX runs_root ON runs (root_id);
CREATE INDEX runs_recent ON runs (created_at DESC, id);
CREATE INDEX runs_finished ON runs (status, finished_at) WHERE finished_at IS NOT NULL;
-- What has not ended, counted for metrics and looked through for runs that are stuck. No column of it changes when a step
-- is recorded, so a step costs nothing more. The last column lets SQLite count without reading rows.
CREATE INDEX runs_unfinished ON runs (status, queue, due_at, finished_at) WHERE finished_at IS NULL;
CREATE INDEX runs_with_blob ON runs (id) WHERE instr(input, '"$blob"') > 0 OR instr(result, '"$blob"') > 0;

-- The journal: inserted by the owner, never changed but for `dropped`. A position that was deleted must not be given
-- again, or a reader of the feed would pass it over; so deleting leaves a mark at the last one (run_id ''). AUTOINCREMENT
-- would write one more page in every commit instead. No foreign key, for it would look the run up for every event.
CREATE TABLE events (
  position INTEGER PRIMARY KEY,
  run_id   TEXT   NOT NULL,
  seq      BIGINT NOT NULL,
  kind     TEXT   NOT NULL,
  key      TEXT,
  data     TEXT,                              -- JSON object; null: an empty one
  value    TEXT,
  blob     TEXT,
  at       BIGINT NOT NULL,
  epoch    BIGINT NOT NULL,
  dropped  BIGINT,
  UNIQUE (run_id, seq)
);
-- There is no index on (run_id, key), although a call has one outcome only: it would be a quarter of what a step writes.
-- The fence on the run's row sees to it that the owner knows the whole journal, and the owner numbers a call's outcome once;
-- a journal with two of them would stop the run at its next replay, before any effect.
-- What lists show of a run's progress: the last of these.
CREATE INDEX events_progress ON events (run_id, seq) WHERE kind IN ('progress', 'plan');
CREATE INDEX events_blob ON events (blob) WHERE blob IS NOT NULL;
CREATE INDEX events_with_blob ON events (run_id) WHERE instr(value, '"$blob"') > 0;

-- The inbox. `position` is inbox_count after the sender's + 1: no gaps, no sequence object.
CREATE TABLE signals (
  run_id    TEXT   NOT NULL,
  position  BIGINT NOT NULL,
  signal_id TEXT   NOT NULL,
  kind      TEXT   NOT NULL,
  topic     TEXT   NOT NULL,
  value     TEXT,
  data      TEXT,
  sent_at   BIGINT NOT NULL,
  PRIMARY KEY (run_id, position),
  UNIQUE (run_id, signal_id)
);
CREATE INDEX signals_with_blob ON signals (run_id) WHERE instr(value, '"$blob"') > 0;

-- Questions to people. The columns are those of model.ApprovalRow.
CREATE TABLE approvals (
  id          TEXT   NOT NULL PRIMARY KEY,
  run_id      TEXT   NOT NULL REFERENCES runs (id) ON DELETE CASCADE,
  root_id     TEXT   NOT NULL,
  path        TEXT   NOT NULL,                  -- JSON list of agents, the root's first
  key         TEXT   NOT NULL,
  kind        TEXT   NOT NULL,
  question    TEXT   NOT NULL,
  shown       TEXT,                             -- exactly what was shown; a large value as the event that asks names it
  digest      TEXT   NOT NULL,                  -- of the value as it is now
  schema      TEXT,
  recipients  TEXT   NOT NULL,
  needs       TEXT   NOT NULL,
  votes       TEXT   NOT NULL,
  delegations TEXT   NOT NULL,
  expires_at  BIGINT,
  fallback    TEXT,
  remind_ms   BIGINT,
  status      TEXT   NOT NULL CHECK (status IN ('open', 'decided', 'expired', 'withdrawn')),
  asked_at    BIGINT NOT NULL,
  data        TEXT,                             -- the value as last edited; a large one as the signal names it
  decided_at  BIGINT,
  decided_by  TEXT,
  decision    TEXT,
  note        TEXT
);
CREATE INDEX approvals_run ON approvals (run_id);
CREATE INDEX approvals_open ON approvals (asked_at, id) WHERE status = 'open';
CREATE INDEX approvals_asked ON approvals (asked_at, id);
CREATE INDEX approvals_budget ON approvals (run_id) WHERE key = 'budget';

-- A question about a budget is about the run that has it, and is asked by any run below: these wait for the answer.
CREATE TABLE askers (
  approval TEXT NOT NULL REFERENCES approvals (id) ON DELETE CASCADE,
  run_id   TEXT NOT NULL REFERENCES runs (id) ON DELETE CASCADE,
  PRIMARY KEY (approval, run_id)
);
CREATE INDEX askers_run ON askers (run_id);

-- What a run and all below it have spent, by the step that did: sums of what their events say, written with these.
CREATE TABLE spending (
  run_id        TEXT   NOT NULL REFERENCES runs (id) ON DELETE CASCADE,
  what          TEXT   NOT NULL,              -- the name of the step
  usd           BIGINT NOT NULL,              -- billionths of a dollar
  input_tokens  BIGINT NOT NULL,
  output_tokens BIGINT NOT NULL,
  model_calls   BIGINT NOT NULL,
  unpriced      BIGINT NOT NULL,              -- of these, those whose price is not known
  steps         BIGINT NOT NULL,              -- bodies that ran, where there is a budget
  PRIMARY KEY (run_id, what)
);

-- Conversations: what runs say to each other's successors. One run has it, by the request it made, or nobody.
CREATE TABLE conversations (
  id         TEXT   NOT NULL PRIMARY KEY,
  length     BIGINT NOT NULL,                 -- messages
  run_id     TEXT,
  request    TEXT,
  created_at BIGINT NOT NULL,
  updated_at BIGINT NOT NULL                  -- when something was said last
);
CREATE INDEX conversations_run ON conversations (run_id) WHERE run_id IS NOT NULL;
-- Who waits for a conversation that another run has; the lowest place comes next.
CREATE TABLE conversation_line (
  conversation TEXT   NOT NULL,
  place        BIGINT NOT NULL,
  run_id       TEXT   NOT NULL,
  request      TEXT   NOT NULL,
  key          TEXT,                          -- of the call that asked
  PRIMARY KEY (conversation, place),
  UNIQUE (conversation, run_id)
);
CREATE INDEX conversation_line_run ON conversation_line (run_id);
-- What was said, inserted once and never changed. `run_id` is no foreign key: messages outlive their runs.
CREATE TABLE conversation_messages (
  conversation TEXT   NOT NULL,
  position     BIGINT NOT NULL,
  value        TEXT   NOT NULL,
  run_id       TEXT   NOT NULL,
  at           BIGINT NOT NULL,
  PRIMARY KEY (conversation, position)
);
CREATE INDEX conversation_messages_with_blob ON conversation_messages (conversation) WHERE instr(value, '"$blob"') > 0;

-- When the next turn of a rate is, in microseconds. A row whose times have passed says nothing: it may be deleted.
CREATE TABLE rates (
  key    TEXT   NOT NULL PRIMARY KEY,
  next   BIGINT NOT NULL DEFAULT 0,
  paused BIGINT NOT NULL DEFAULT 0,           -- nobody has a turn before: who is asked said when to come again
  owed   BIGINT NOT NULL DEFAULT 0,           -- the tokens that were used are paid for by then
  mean   BIGINT NOT NULL DEFAULT 0            -- tokens of a turn, of the last few
);

-- Who has a slot of a step's limit. It counts while its run is running under that epoch, with a lease that is not over.
CREATE TABLE slots (
  key    TEXT   NOT NULL,
  run_id TEXT   NOT NULL REFERENCES runs (id) ON DELETE CASCADE,
  call   TEXT   NOT NULL,                     -- the key of the call
  epoch  BIGINT NOT NULL,
  PRIMARY KEY (run_id, call)
);
CREATE INDEX slots_key ON slots (key);

-- What runs write while it is made: text, and marks between. The owner inserts it with its appends. `position` is where it
-- ends: a character counts one, and so does a mark. The text is UTF-8, with what no text of a database may have as well.
CREATE TABLE chunks (
  run_id   TEXT   NOT NULL REFERENCES runs (id) ON DELETE CASCADE,
  stream   TEXT   NOT NULL,
  position BIGINT NOT NULL,
  kind     TEXT   NOT NULL CHECK (kind IN ('data', 'restart', 'break', 'end')),
  data     BLOB   NOT NULL,
  key      TEXT   NOT NULL,                   -- of the call that wrote it
  attempt  BIGINT NOT NULL,
  began    BIGINT NOT NULL,                   -- where the text that it belongs to begins
  reason   TEXT,
  epoch    BIGINT NOT NULL,
  at       BIGINT NOT NULL,
  PRIMARY KEY (run_id, stream, position)
);

-- Large values by digest: the same content is stored once, whoever wrote it.
CREATE TABLE blobs (
  digest  TEXT NOT NULL PRIMARY KEY,
  content BLOB NOT NULL
);

-- What was ever published under a name; the newest wins.
CREATE TABLE agents (
  name         TEXT   NOT NULL PRIMARY KEY,
  version      TEXT,
  schema       TEXT   NOT NULL,
  published_at BIGINT NOT NULL
) WITHOUT ROWID;

-- Incarnations that hold a lock that others can try. `agents` is the JSON list of what they serve: names, and names with
-- a version after a space. `queues` is the JSON list of the queues they take, null: all. `version` is that of their code,
-- for people.
CREATE TABLE workers (
  id         TEXT   NOT NULL PRIMARY KEY,
  agents     TEXT   NOT NULL,
  queues     TEXT,
  version    TEXT,
  started_at BIGINT NOT NULL,
  seen_at    BIGINT NOT NULL
) WITHOUT ROWID;

-- Who may ask a server. Of the token itself only the digest of its secret is kept. A revoked one stays, so that its name is known.
CREATE TABLE tokens (
  id         TEXT   NOT NULL PRIMARY KEY,
  name       TEXT   NOT NULL,                 -- of the person or program that acts with it
  member_of  TEXT   NOT NULL,                 -- JSON list of groups
  scopes     TEXT   NOT NULL,                 -- JSON list
  digest     TEXT   NOT NULL,
  created_at BIGINT NOT NULL,
  revoked_at BIGINT
);

-- What people did to runs. No foreign key: it outlives the run.
CREATE TABLE audit (
  id     INTEGER PRIMARY KEY AUTOINCREMENT,
  at     BIGINT NOT NULL,
  run_id TEXT   NOT NULL,
  actor  TEXT   NOT NULL,
  action TEXT   NOT NULL,
  data   TEXT
);
CREATE INDEX audit_run ON audit (run_id);
