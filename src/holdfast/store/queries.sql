-- Every statement of the store, by name. The store's Python decides which to run; what is safe is decided here.
--
-- What exists. A run is a row of `runs`; what it did is its journal in `events`; what came to it from outside lies in
-- `signals`, its inbox, until its owner takes it into the journal. `approvals` are questions to people, `chunks` what
-- it writes to streams, `blobs` large values by digest, `parts` those of inputs, `workers` the incarnations that can hold leases.
--
-- When a worker should look. `runs.due_at` says it: new = now (or later, if it was created with a delay); waiting for a
-- timer = its time; waiting for a signal = null; running = the end of the lease; paused and finished = null. So new
-- work, fired timers, woken runs and the runs of dead workers are all found by `due` on one index. Time is always the
-- parameter :now, and it decides liveness only, never safety: a wrong clock makes a run start late or twice as often
-- as needed, and the fence below keeps its journal whole.
--
-- Who may run now. `priority` leads the index of due times. A run whose `limit_key` has no slot is held: 'ready', not due,
-- `waits_for` = 'slot', until one that had a slot wakes it (`wake`) or a worker finds that there is room (`held_keys`). A run
-- whose `rate_key` has no turn is due at its turn. `limits.py` says in which order keys are locked and counted.
--
-- Fencing. Each `claim` adds one to `lease_epoch`. The first statement of every append is `reserve` (or `leave`, which
-- also ends the lease): it changes the run's row only where id, status, epoch and next_seq are the writer's own. One
-- statement thus locks the row, refuses a stale owner and makes a repeated append change nothing. That
-- (run_id, seq) is unique is the second fence: a place in the journal is taken once.
--
-- Lost wake-ups. A sender adds one to `inbox_count` in the statement that looks at the status (`notify`); a parking
-- owner names the count it has seen in the statement that changes the status (`leave`). Both change the same row, so
-- one of them comes first and the other sees it.
--
-- Lock order. The run's row first, then its events, signals and approvals. Of several runs the one above before those
-- below it: the end of a child touches its parent too, and a run that was cancelled ends with all below it (`below`).
--
-- Crash points. Before COMMIT nothing happened. After COMMIT and before the acknowledgement everything happened and
-- nobody knows: an append is then found by its own rows (`written`), a claim by its name (`held`), a signal by its id,
-- a run by its uid. Between the commit and the wake-up of other processes they look late, at their next poll. Between
-- a worker's death and `orphan` its runs stay leased, at the longest until due_at.

-- name: reserve
-- First statement of an append that goes on: fences, and moves next_seq past the events to come.
UPDATE runs
SET next_seq = :next_seq, updated_at = :now, steps = steps + :steps,
    crash_count = CASE WHEN :progress = 1 THEN 0 ELSE crash_count END,
    checkpoint_seq = coalesce(:checkpoint_seq, checkpoint_seq), inbox_seen = coalesce(:inbox_seen, inbox_seen)
WHERE id = :run AND lease_epoch = :epoch AND next_seq = :expected AND status = 'running'

-- name: stood
-- Part of others: how a run stood before this statement changes it, as a letter of its life (words/life.py).
CASE runs.status WHEN 'running' THEN 'w' WHEN 'ready' THEN 'r'
WHEN 'waiting' THEN CASE runs.waits_for WHEN 'person' THEN 'p' WHEN 'retry' THEN 't' WHEN 'worker' THEN 'r' ELSE 'i' END
ELSE 's' END

-- name: pieces
-- Part of others: the life of a run so far. Of 24 pieces the oldest three become one, of the kind of the longest.
CASE WHEN runs.life IS NULL THEN '' WHEN length(runs.life) < 312 THEN runs.life
ELSE substr(CAST(1000000000000 + CAST(substr(runs.life, 1, 12) AS BIGINT) + CAST(substr(runs.life, 14, 12) AS BIGINT)
                 + CAST(substr(runs.life, 27, 12) AS BIGINT) AS TEXT), 2)
     || substr(max(substr(runs.life, 1, 13), substr(runs.life, 14, 13), substr(runs.life, 27, 13)), 13, 1)
     || substr(runs.life, 40) END

-- name: since
-- Part of others: when the last piece of a run's life began.
coalesce(runs.life_at, runs.updated_at)

-- name: last_sign
-- Part of others: when the owner of a running run was last heard of, by a record, a stream, a word of open calls or a heartbeat.
-- The last heartbeat of an owner that was buried is in the row of the run (`orphan`).
max(runs.updated_at, coalesce((SELECT told.at FROM open_calls AS told WHERE told.run_id = runs.id AND told.epoch = runs.lease_epoch), 0),
    coalesce((SELECT seen_at FROM workers WHERE workers.id = runs.lease_owner), 0))

-- name: lived
-- Part of others: the life of a run with the piece that ends now. 12 digits have room for 31 years.
{pieces} || substr(CAST(1000000000000 + max(0, :now - {since}) AS TEXT), 2) || {stood}

-- name: worked
-- Part of others: for how long a run's owner has worked on it.
worked_ms + CASE WHEN runs.status = 'running' THEN max(0, :now - {since}) ELSE 0 END

-- name: leave
-- First statement of an append that ends the lease: fences, refuses when a signal came that was not seen.
UPDATE runs
SET next_seq = :next_seq, updated_at = :now, steps = steps + :steps,
    crash_count = CASE WHEN :progress = 1 THEN 0 ELSE crash_count END,
    checkpoint_seq = coalesce(:checkpoint_seq, checkpoint_seq), inbox_seen = coalesce(:inbox_seen, inbox_seen),
    status = :status, due_at = :due_at, waits_for = :waits_for, awaits = :awaits, result = :result, error = :error,
    reason = :reason, finished_at = :finished_at, lease_owner = NULL,
    life = {lived}, life_at = :now, worked_ms = {worked}
WHERE id = :run AND lease_epoch = :epoch AND next_seq = :expected AND status = 'running'
  AND (:unseen_after IS NULL OR inbox_count <= :unseen_after)
RETURNING id, parent_id, limit_key

-- name: record
-- Insert one event of the journal.
INSERT INTO events (run_id, seq, kind, key, data, value, blob, epoch, at)
VALUES (:run, :seq, :kind, :key, :data, :value, :blob, :epoch, :now)

-- name: fence
-- What a refused append is judged by.
SELECT status, lease_epoch, next_seq, inbox_count, lease_owner, result, error FROM runs WHERE id = :run

-- name: last_seq
-- The last event of a run that is here; what a retry took out counts.
SELECT max(seq) FROM events WHERE run_id = :run

-- name: written
-- The events at these places: a repeated append recognises its own.
SELECT seq, kind, key, data, value, blob, at FROM events
WHERE run_id = :run AND seq >= :first AND seq < :end AND epoch = :epoch ORDER BY seq

-- name: insert_run
-- Create a run unless one with this id exists, or an unfinished one of this singleton; due when its delay is over.
INSERT INTO runs (id, uid, agent, status, input, version, queue, due_at, parent_id, parent_key, root_id, labels,
                  created_at, updated_at, priority, limit_key, limit_n, rate_key, rate_n, rate_ms, singleton_key, budget,
                  identity)
VALUES (:id, :uid, :agent, 'ready', :input, :version, :queue, :due_at, :parent_id, :parent_key, :root_id, :labels,
        :now, :now, :priority, :limit_key, :limit_n, :rate_key, :rate_n, :rate_ms, :singleton_key, :budget,
        :identity)
ON CONFLICT DO NOTHING
RETURNING {run}

-- name: insert_runs
-- Create a run in the same way, one of many; its id, if it was created.
INSERT INTO runs (id, uid, agent, status, input, version, queue, due_at, parent_id, parent_key, root_id, labels,
                  created_at, updated_at, priority, limit_key, limit_n, rate_key, rate_n, rate_ms, singleton_key, budget,
                  identity)
VALUES (:id, :uid, :agent, 'ready', :input, :version, :queue, :due_at, :parent_id, :parent_key, :root_id, :labels,
        :now, :now, :priority, :limit_key, :limit_n, :rate_key, :rate_n, :rate_ms, :singleton_key, :budget,
        :identity)
ON CONFLICT DO NOTHING
RETURNING id

-- name: statuses_of
-- Which of these runs are there, and their statuses.
SELECT id, status FROM runs WHERE id IN (SELECT value FROM json_each(:ids))

-- name: insert_blob
-- Keep a large value once.
INSERT INTO blobs (digest, content) VALUES (:digest, :content) ON CONFLICT (digest) DO NOTHING

-- name: insert_part
-- Keep a part of an input once.
INSERT INTO parts (digest, content) VALUES (:digest, :value) ON CONFLICT (digest) DO NOTHING

-- name: hold_parts
-- Which of these parts are there, locked where the database locks rows: nobody deletes them now.
SELECT digest FROM parts WHERE digest IN (SELECT value FROM json_each(:ids)) ORDER BY digest

-- name: use_part
-- Note that a run names a part.
INSERT INTO part_uses (run_id, digest) VALUES (:run, :digest) ON CONFLICT DO NOTHING

-- name: parts
-- The texts of these parts.
SELECT digest, content FROM parts WHERE digest IN (SELECT value FROM json_each(:ids))

-- name: parts_used
-- The parts that these runs name.
SELECT DISTINCT digest FROM part_uses WHERE run_id IN (SELECT value FROM json_each(:ids)) ORDER BY digest

-- name: forget_uses
-- Forget what these runs name.
DELETE FROM part_uses WHERE run_id IN (SELECT value FROM json_each(:ids))

-- name: lock_parts
-- Lock parts before they are deleted: no other transaction may begin to name them now.
SELECT digest FROM parts WHERE digest IN (SELECT value FROM json_each(:ids)) ORDER BY digest

-- name: delete_parts
-- Delete those of these parts that no run names any more.
DELETE FROM parts WHERE digest IN (SELECT value FROM json_each(:ids))
  AND NOT EXISTS (SELECT 1 FROM part_uses WHERE part_uses.digest = parts.digest)

-- name: insert_chunk
-- What a run has written to a stream. Its owner counts the positions, so one that is taken is this very row.
INSERT INTO chunks (run_id, stream, position, kind, data, key, attempt, began, reason, epoch, at)
VALUES (:run, :stream, :position, :kind, :content, :key, :attempt, :began, :reason, :epoch, :now)
ON CONFLICT DO NOTHING

-- name: chunk_written
-- When this epoch wrote the row at a position: a repeated append without events recognises its own.
SELECT at FROM chunks WHERE run_id = :run AND stream = :stream AND position = :position AND epoch = :epoch

-- name: chunks
-- A stream behind a position.
SELECT data, stream, position, kind, key, attempt, began, reason FROM chunks
WHERE run_id = :run AND stream = :stream AND position > :position ORDER BY position LIMIT :limit

-- name: streams
-- The last row of each stream of a run. It jumps from name to name, and reads no more of a stream than that row.
WITH RECURSIVE named (stream) AS (
  SELECT min(stream) FROM chunks WHERE run_id = :run
  UNION ALL
  SELECT (SELECT min(chunks.stream) FROM chunks WHERE run_id = :run AND chunks.stream > named.stream)
  FROM named WHERE named.stream IS NOT NULL)
SELECT chunks.stream, position, kind, key, attempt, began, reason
FROM named CROSS JOIN chunks
WHERE run_id = :run AND chunks.stream = named.stream
  AND position = (SELECT max(position) FROM chunks WHERE run_id = :run AND chunks.stream = named.stream)
ORDER BY chunks.stream

-- name: stream_sizes
-- Count the bytes of text of each stream.
SELECT stream, sum(length(data)) FROM chunks WHERE run_id = :run GROUP BY stream ORDER BY stream

-- name: ancestry
-- A run and those that started it, the run itself first.
WITH RECURSIVE line (id, parent_id, root_id, agent, depth) AS (
  SELECT id, parent_id, root_id, agent, 0 FROM runs WHERE id = :run
  UNION ALL SELECT runs.id, runs.parent_id, runs.root_id, runs.agent, line.depth + 1
  FROM line CROSS JOIN runs WHERE runs.id = line.parent_id)
SELECT agent, root_id FROM line ORDER BY depth

-- name: insert_approval
-- Keep a question to a person; asked again under the same id, it is the same question.
INSERT INTO approvals (id, run_id, root_id, path, key, kind, question, shown, digest, schema, recipients, needs, votes,
                       delegations, expires_at, fallback, remind_ms, status, asked_at, not_by)
VALUES (:id, :run, :root, :path, :key, :kind, :question, :shown, :digest, :schema, :recipients, :needs, '[]', '[]',
        :expires_at, :fallback, :remind_ms, 'open', :now, :not_by)
ON CONFLICT (id) DO NOTHING

-- name: join_question
-- Let one more run wait for the answer to a question that is about another run.
INSERT INTO askers (approval, run_id) VALUES (:approval, :run) ON CONFLICT DO NOTHING

-- name: leave_question
-- Let a run wait for that answer no longer.
DELETE FROM askers WHERE approval = :approval AND run_id = :run

-- name: askers
-- The runs that wait for the answer to a question.
SELECT run_id FROM askers WHERE approval = :approval ORDER BY run_id

-- name: withdraw_one
-- Withdraw a question for which the agent waits no longer, and no other run either.
UPDATE approvals SET status = 'withdrawn', decided_at = :now
WHERE id = :approval AND status = 'open'
  AND NOT EXISTS (SELECT 1 FROM askers CROSS JOIN runs
                  WHERE askers.approval = :approval AND runs.id = askers.run_id AND runs.finished_at IS NULL)

-- name: withdraw_unasked
-- Withdraw a question about a run that lives elsewhere, when no run waits for it any more.
UPDATE approvals SET status = 'withdrawn', decided_at = :now
WHERE id = :approval AND status = 'open' AND NOT EXISTS (SELECT 1 FROM askers WHERE askers.approval = :approval)

-- name: withdraw
-- Withdraw the questions of runs that ended; what another run asks too stays.
UPDATE approvals SET status = 'withdrawn', decided_at = :now
WHERE status = 'open'
  AND id IN (SELECT own.id FROM approvals AS own WHERE own.run_id IN (SELECT value FROM json_each(:ids))
             UNION ALL SELECT approval FROM askers WHERE run_id IN (SELECT value FROM json_each(:ids)))
  AND NOT EXISTS (SELECT 1 FROM askers CROSS JOIN runs
                  WHERE askers.approval = approvals.id AND askers.run_id NOT IN (SELECT value FROM json_each(:ids))
                    AND runs.id = askers.run_id AND runs.finished_at IS NULL)

-- name: reconsider
-- Forget, for a run that is tried again, that its budget was denied more.
UPDATE approvals SET status = 'withdrawn'
WHERE run_id = :run AND key = 'budget' AND status = 'decided' AND decision = 'denied'

-- name: rebudget
-- Set what a run may spend from now on, in all. Runs below it that go on, or may be retried, look at it if they looked at none.
WITH RECURSIVE tree (member) AS (
  SELECT id FROM runs WHERE parent_id = :run
  UNION ALL SELECT runs.id FROM tree CROSS JOIN runs WHERE runs.parent_id = tree.member)
UPDATE runs SET budget = CASE WHEN id = :run THEN :budget ELSE '{}' END
WHERE id = :run
   OR (id IN (SELECT member FROM tree) AND budget IS NULL AND (finished_at IS NULL OR status = 'failed'))

-- name: fund
-- Let a run that lives elsewhere have its budget, and the time since which that holds; one that has a budget keeps it.
UPDATE runs SET budget = :budget, started_at = :started_at WHERE id = :run AND budget IS NULL

-- name: lines
-- Each of these runs, with itself and with each one above it.
WITH RECURSIVE line (run, member) AS (
  SELECT id, id FROM runs WHERE id IN (SELECT value FROM json_each(:ids))
  UNION ALL SELECT line.run, runs.parent_id
  FROM line CROSS JOIN runs WHERE runs.id = line.member AND runs.parent_id IS NOT NULL)
SELECT run, member FROM line

-- name: spend
-- Add to what was spent.
INSERT INTO spending (run_id, what, usd, input_tokens, output_tokens, model_calls, unpriced, steps)
VALUES (:run, :what, :usd, :input_tokens, :output_tokens, :model_calls, :unpriced, :steps)
ON CONFLICT (run_id, what) DO UPDATE
SET usd = spending.usd + excluded.usd, input_tokens = spending.input_tokens + excluded.input_tokens,
    output_tokens = spending.output_tokens + excluded.output_tokens,
    model_calls = spending.model_calls + excluded.model_calls, unpriced = spending.unpriced + excluded.unpriced,
    steps = spending.steps + excluded.steps

-- name: spent
-- What these runs and all below them have spent.
SELECT run_id, CAST(sum(usd) AS BIGINT), CAST(sum(input_tokens) AS BIGINT), CAST(sum(output_tokens) AS BIGINT),
       CAST(sum(model_calls) AS BIGINT), CAST(sum(unpriced) AS BIGINT), CAST(sum(steps) AS BIGINT)
FROM spending WHERE run_id IN (SELECT value FROM json_each(:ids)) GROUP BY run_id

-- name: steps_below
-- How many steps these runs and all below them have completed; of those without a budget, which counts bodies instead.
WITH RECURSIVE tree (top, member) AS (
  SELECT id, id FROM runs WHERE id IN (SELECT value FROM json_each(:ids)) AND budget IS NULL
  UNION ALL SELECT tree.top, runs.id FROM tree CROSS JOIN runs WHERE runs.parent_id = tree.member)
SELECT top, CAST(sum(steps) AS BIGINT) FROM tree CROSS JOIN runs WHERE runs.id = tree.member GROUP BY top

-- name: spent_by
-- Which steps have spent it, the dearest first.
SELECT what, usd, input_tokens, output_tokens, model_calls, unpriced, steps FROM spending WHERE run_id = :run
ORDER BY usd DESC, input_tokens + output_tokens DESC, steps DESC, what LIMIT :limit

-- name: granted
-- What people have given to the budgets of these runs.
SELECT run_id, id, status, decision, decided_at, decided_by, note, coalesce(data, shown), 0 FROM approvals
WHERE key = 'budget' AND decision = 'approved' AND run_id IN (SELECT value FROM json_each(:ids)) ORDER BY asked_at, id

-- name: purses
-- The budgets that hold for a run, its own first, with what people were asked about them.
WITH RECURSIVE line (id, parent_id, uid, budget, began, depth) AS (
  SELECT id, parent_id, uid, budget, coalesce(started_at, created_at), 0 FROM runs WHERE id = :run
  UNION ALL SELECT runs.id, runs.parent_id, runs.uid, runs.budget, coalesce(runs.started_at, runs.created_at), line.depth + 1
  FROM line CROSS JOIN runs WHERE runs.id = line.parent_id)
SELECT line.id, line.uid, line.budget, line.began, asked.id, asked.status, asked.decision, asked.decided_at,
       asked.decided_by, asked.note, coalesce(asked.data, asked.shown),
       (SELECT count(*) FROM askers WHERE askers.approval = asked.id AND askers.run_id = :run)
FROM line LEFT JOIN approvals AS asked ON asked.run_id = line.id AND asked.key = 'budget'
WHERE line.budget IS NOT NULL AND line.budget <> '{}'
ORDER BY line.depth, asked.asked_at, asked.id

-- name: woken
-- When a run is due that a signal came to: now, if it waits for this token or for any.
CASE WHEN runs.status = 'waiting' AND (due_at IS NULL OR due_at > :now)
      AND (awaits IS NULL OR :token IN (SELECT value FROM json_each(awaits)))
THEN :now ELSE due_at END

-- name: notify
-- A sender's first statement: counts the signal, and makes a waiting run due if it waits for this token or for any.
UPDATE runs
SET inbox_count = inbox_count + 1, due_at = {woken}
WHERE id = :run AND status IN ('ready', 'running', 'waiting', 'paused')
RETURNING inbox_count

-- name: release_messages
-- Take messages without a key out of the inbox that the journal has; what is not like theirs, or has a remnant already, stays.
DELETE FROM signals
WHERE run_id = :run AND position > :position AND position <= :end AND kind = 'message.received' AND data IS NULL
  AND substr(signal_id, 1, 3) = 'id:' AND length(signal_id) = 19 AND ltrim(substr(signal_id, 4), '0123456789abcdef') = ''
  AND NOT EXISTS (SELECT 1 FROM remnants WHERE remnants.run_id = :run AND remnants.position = signals.position)
RETURNING position, signal_id, topic, sent_at

-- name: empty_messages
-- Drop the second copies of the other messages. What a fork was given instead of others stays: forks of it look there.
-- New rows take the place of the old ones, because SQLite gives back the room of rows, and not that of values.
INSERT OR REPLACE INTO signals (run_id, position, signal_id, kind, topic, value, data, sent_at)
SELECT run_id, position, signal_id, kind, topic, NULL, data, sent_at FROM signals
WHERE run_id = :run AND position > :position AND position <= :end AND kind = 'message.received' AND value IS NOT NULL
  AND substr(signal_id, 1, 5) <> 'fork:'

-- name: insert_remnant
-- Keep what the inbox said of a stretch of messages.
INSERT INTO remnants (run_id, position, topic, ids, sent_at, times) VALUES (:run, :position, :topic, :content, :since, :times)

-- name: remnants
-- What the inbox said of messages that may have left it.
SELECT position, topic, ids, sent_at, times FROM remnants WHERE run_id = :run ORDER BY position

-- name: count_messages
-- How many messages ever came to a run: those in its inbox, and those that have left it.
SELECT (SELECT count(*) FROM signals WHERE run_id = :run AND kind = 'message.received')
  + (SELECT CAST(coalesce(sum(length(ids) / 8), 0) AS BIGINT) FROM remnants WHERE run_id = :run
     AND NOT EXISTS (SELECT 1 FROM signals WHERE signals.run_id = :run AND signals.position = remnants.position))

-- name: count_signals
-- How many signals of a kind ever came to a run.
SELECT count(*) FROM signals WHERE run_id = :run AND kind = :kind

-- name: reasons_to_stop
-- What was said with each request to stop, the last one first.
SELECT data FROM signals WHERE run_id = :run AND kind = 'run.cancelling' AND data IS NOT NULL ORDER BY position DESC

-- name: rouse
-- Wake a run for what it may not sleep through: a waiting one is due now, and a paused one goes on.
UPDATE runs
SET due_at = :now, status = CASE WHEN status = 'paused' THEN 'ready' ELSE status END,
    reason = CASE WHEN status = 'paused' THEN NULL ELSE reason END, updated_at = :now,
    life = CASE WHEN status = 'paused' THEN {lived} ELSE life END,
    life_at = CASE WHEN status = 'paused' THEN :now ELSE {since} END
WHERE id = :run AND status IN ('ready', 'waiting', 'paused')

-- name: halt
-- Stop a run from outside, in the state that was looked at; if it has an owner, that can write no more.
UPDATE runs
SET status = :status, due_at = NULL, waits_for = NULL, awaits = NULL, reason = :reason, finished_at = :finished_at,
    lease_epoch = lease_epoch + CASE WHEN status = 'running' THEN 1 ELSE 0 END, lease_owner = NULL,
    next_seq = next_seq + 1, updated_at = :now, life = {lived}, life_at = :now, worked_ms = {worked}
WHERE id = :run AND finished_at IS NULL AND lease_epoch = :epoch AND next_seq = :seq
RETURNING id

-- name: forgive
-- Void the requests to pause that no owner has seen: the run was paused without one, and goes on.
UPDATE signals SET data = NULL
WHERE run_id = :run AND kind = 'run.pausing' AND position > (SELECT inbox_seen FROM runs WHERE id = :run)

-- name: forgive_one
-- Void one of these requests.
UPDATE signals SET data = NULL WHERE run_id = :run AND position = :position

-- name: unseen_pauses
-- Requests to pause that the owner has not taken from the inbox.
SELECT position, data FROM signals
WHERE run_id = :run AND position > (SELECT inbox_seen FROM runs WHERE id = :run) AND kind = 'run.pausing' AND data IS NOT NULL

-- name: void_end
-- Void the end of a child that the run has not taken in: the child is tried again.
UPDATE signals SET data = NULL
WHERE run_id = :run AND kind = 'child.ended' AND topic = :topic
  AND position > (SELECT inbox_seen FROM runs WHERE id = :run)

-- name: rename_ends
-- Have the ends of a child that is deleted not be taken for those of the next one with its id.
UPDATE signals SET signal_id = signal_id || :mark WHERE run_id = :run AND kind = 'child.ended' AND topic = :topic

-- name: void_turns
-- Void the word that conversations are a run's which has not taken it in: the run has ended since, and left them.
UPDATE signals SET data = NULL
WHERE run_id = :run AND kind = 'conversation.entered' AND position > (SELECT inbox_seen FROM runs WHERE id = :run)

-- name: paused_by
-- What the event says with which a run was paused, if this is one.
SELECT data FROM events WHERE run_id = :run AND seq = :seq AND kind = 'run.paused'

-- name: pauses
-- What the journal says of requests to pause, the newest first.
SELECT kind, data FROM events
WHERE run_id = :run AND kind IN ('run.pausing', 'run.paused', 'run.resumed', 'run.retried', 'run.cancelling')
  AND dropped IS NULL
ORDER BY seq DESC LIMIT 20

-- name: insert_signal
-- A sender's second statement: the signal at the place that `notify` returned.
INSERT INTO signals (run_id, position, signal_id, kind, topic, value, data, sent_at)
VALUES (:run, :position, :signal_id, :kind, :topic, :value, :data, :now)

-- name: signal_position
-- Where a signal with this id lies, if it came before.
SELECT position FROM signals WHERE run_id = :run AND signal_id = :signal_id

-- name: ours
-- What a worker may take: runs of its agents, in the versions it has, of its queues and its tree, and not running here.
-- After two crashes only what is claimed apart from others. None that it has refused.
agent IN (SELECT value FROM json_each(:agents))
  AND (version IS NULL OR agent || ' ' || version IN (SELECT value FROM json_each(:agents)))
  AND (status <> 'running' OR lease_owner <> :worker)
  AND (:root IS NULL OR root_id = :root)
  AND (:queues IS NULL OR queue IN (SELECT value FROM json_each(:queues)))
  AND NOT EXISTS (SELECT 1 FROM identity WHERE held_at IS NOT NULL)
  AND (refused IS NULL OR instr(refused, '"' || :worker || '"') = 0)
  AND (:alone = 1 OR crash_count + CASE WHEN status = 'running' THEN 1 ELSE 0 END < 2)

-- name: takeable
-- What a claim may take now.
-- All levels are named, so that of each only what is due is looked at. What waits may be taken a little before its time: it
-- is brought into memory, and waits there for the rest.
priority IN (9, 8, 7, 6, 5, 4, 3, 2, 1, 0) AND due_at <= :soon AND (status = 'waiting' OR due_at <= :now) AND {ours}

-- name: due
-- The runs a claim takes: those of the highest level first, of one level the longest due first.
SELECT id, status, lease_owner, lease_epoch, next_seq, due_at, waits_for, started_at, limit_key, limit_n, rate_key, rate_n,
       rate_ms, turn, (SELECT paused FROM rates WHERE key = rate_key),
       (SELECT max(began) FROM late_turns WHERE key = rate_key AND place <= turn - rate_ms * 1020),
       crash_count + CASE WHEN status = 'running' THEN 1 ELSE 0 END, coalesce(company, 1)
FROM runs
WHERE {takeable}
ORDER BY priority DESC, due_at LIMIT :limit

-- name: pick
-- The runs a claim takes, locked where the database locks rows.
{due}

-- name: claim
-- Take the lease of these runs; one that was running lost its owner, and gets one place for `run.interrupted`.
-- From the last sign of that owner on its life was torn.
UPDATE runs
SET crash_count = crash_count + CASE WHEN status = 'running' THEN 1 ELSE 0 END,
    next_seq = next_seq + CASE WHEN status = 'running' THEN 1 ELSE 0 END,
    status = 'running', lease_owner = :worker, lease_epoch = lease_epoch + 1, due_at = :now + :ttl,
    started_at = coalesce(started_at, :now), waits_for = NULL, awaits = NULL, updated_at = :now, lease_claim = :claim,
    life = CASE WHEN status = 'running'
           THEN {pieces} || substr(CAST(1000000000000 + max(0, {last_sign} - {since}) AS TEXT), 2) || 'w'
                || substr(CAST(1000000000000 + max(0, :now - {last_sign}) AS TEXT), 2) || 'x'
           ELSE {lived} END,
    life_at = :now, interruptions = interruptions + CASE WHEN status = 'running' THEN 1 ELSE 0 END,
    worked_ms = worked_ms + CASE WHEN status = 'running' THEN max(0, {last_sign} - {since}) ELSE 0 END
WHERE id IN (SELECT value FROM json_each(:ids))
RETURNING {run}

-- name: lock_counts
-- Lock the counting of slots and turns until the transaction ends. SQLite's one writer needs no such lock.
SELECT 1

-- name: occupied
-- How many slots of these limits are taken. A run that lost its owner keeps its slot: it is claimed in it.
SELECT limit_key, count(*) FROM runs WHERE status = 'running' AND limit_key IN (SELECT value FROM json_each(:keys))
GROUP BY limit_key

-- name: hold_back
-- Hold runs back until a slot is free (due_at is null), or until their turn, whose place they keep.
UPDATE runs SET status = 'ready', due_at = :due_at, waits_for = :waits_for, turn = :turn, awaits = NULL, updated_at = :now,
                life = CASE WHEN status = 'ready' THEN life ELSE {lived} END,
                life_at = CASE WHEN status = 'ready' THEN {since} ELSE :now END
WHERE id IN (SELECT value FROM json_each(:ids))

-- name: wake
-- A slot is free: the run that waited for it longest is due, ahead of those that came later.
UPDATE runs SET due_at = created_at, updated_at = :now
WHERE id IN (SELECT id FROM runs WHERE limit_key = :key AND waits_for = 'slot' AND due_at IS NULL
             ORDER BY created_at, id LIMIT :limit)
RETURNING id

-- name: wake_ours
-- A slot is free: wake the longest held of the runs that this worker may take.
UPDATE runs SET due_at = created_at, updated_at = :now
WHERE id IN (SELECT id FROM runs WHERE limit_key = :key AND waits_for = 'slot' AND due_at IS NULL AND {ours}
             ORDER BY created_at, id LIMIT :limit)
RETURNING id

-- name: held_keys
-- The limits after a key, in order, for which runs wait: how many slots are taken, and how many there are.
WITH RECURSIVE held (key, depth) AS (
  SELECT min(limit_key), 1 FROM runs WHERE waits_for = 'slot' AND due_at IS NULL AND limit_key > :after
  UNION ALL
  SELECT (SELECT min(limit_key) FROM runs WHERE waits_for = 'slot' AND due_at IS NULL AND limit_key > held.key), depth + 1
  FROM held WHERE held.key IS NOT NULL AND depth < :limit)
SELECT held.key, (SELECT count(*) FROM runs WHERE status = 'running' AND limit_key = held.key),
       (SELECT limit_n FROM runs WHERE limit_key = held.key AND waits_for = 'slot' AND due_at IS NULL
        ORDER BY created_at, id LIMIT 1)
FROM held WHERE held.key IS NOT NULL

-- name: room
-- How many slots of a limit are taken, and how many there are for the run that was held longest.
SELECT (SELECT count(*) FROM runs WHERE status = 'running' AND limit_key = :key),
       (SELECT limit_n FROM runs WHERE limit_key = :key AND waits_for = 'slot' AND due_at IS NULL
        ORDER BY created_at, id LIMIT 1)

-- name: spacing
-- The time between two turns: by their number, or by the tokens that they use if that is longer.
max(:interval, rates.mean * :tokens_us / 1000)

-- name: take_turns
-- Reserve turns of a rate; returns the first's place, the end of a pause, and when those began that were late a window before.
INSERT INTO rates (key, next) VALUES (:key, :micros + :turns * :interval)
ON CONFLICT (key) DO UPDATE
SET next = max(rates.next, rates.paused, rates.owed, :micros) + :turns * {spacing}
RETURNING next - :turns * {spacing}, paused, coalesce((
  SELECT max(began) FROM late_turns WHERE late_turns.key = rates.key AND place <= rates.next - {spacing} - :span), 0)

-- name: use_late
-- Write down that turns of a stretch are used late: those that come a window later wait for them.
INSERT INTO late_turns (key, place, began) VALUES (:key, :place, :micros)
ON CONFLICT (key, place) DO UPDATE SET began = max(late_turns.began, excluded.began)

-- name: forget_late
-- Forget late turns that began a window ago: they delay no turn.
DELETE FROM late_turns WHERE key = :key AND began <= :micros

-- name: pause_rate
-- Pause a rate: no turn comes before this time.
INSERT INTO rates (key, paused, because) VALUES (:key, :until, :reason)
ON CONFLICT (key) DO UPDATE
SET because = CASE WHEN :until > rates.paused THEN :reason ELSE rates.because END, paused = max(rates.paused, :until)
RETURNING paused

-- name: charge
-- Charge tokens that a body has used: from its turn on they take their time, and later turns come after it.
INSERT INTO rates (key, owed, mean) VALUES (:key, :since + :cost, :tokens)
ON CONFLICT (key) DO UPDATE
SET owed = max(rates.owed, :since) + :cost,
    mean = CASE WHEN rates.mean = 0 THEN :tokens ELSE (rates.mean * 7 + :tokens) / 8 END

-- name: rate
-- Until when a rate is paused and until when it owes, and when the last began of those that were late up to a place.
SELECT paused, owed, coalesce((SELECT max(began) FROM late_turns WHERE key = :key AND place <= :place), 0) FROM rates
WHERE key = :key

-- name: paused_rates
-- The rates that are paused, the longest first.
SELECT key, paused FROM rates WHERE paused > :micros ORDER BY paused DESC, key LIMIT :limit

-- name: forget_rates
-- Forget rates whose last turn has long passed.
DELETE FROM rates WHERE next < :micros - 86400000000 AND paused < :micros AND owed < :micros

-- name: forget_late_turns
-- Forget late turns of rates that are forgotten.
DELETE FROM late_turns WHERE NOT EXISTS (SELECT 1 FROM rates WHERE rates.key = late_turns.key)

-- name: clear_slots
-- Free the slots of this limit that no living owner has, and those that this call had in this epoch or before.
DELETE FROM slots
WHERE (run_id = :run AND call = :call AND epoch <= :epoch) OR (key = :key AND NOT EXISTS (
  SELECT 1 FROM runs WHERE id = run_id AND status = 'running' AND lease_epoch = slots.epoch AND due_at > :now))

-- name: take_slot
-- Take one of so many slots; no row means that none is free.
-- An owner that has given the run back takes none: what it asked for may come late, when the next has one for the same call.
INSERT INTO slots (key, run_id, call, epoch)
SELECT :key, :run, :call, :epoch WHERE (SELECT count(*) FROM slots WHERE key = :key) < :limit
  AND EXISTS (SELECT 1 FROM runs WHERE id = :run AND status = 'running' AND lease_epoch = :epoch)
RETURNING key

-- name: leave_slot
-- Free the slot of a body that has ended.
DELETE FROM slots WHERE run_id = :run AND call = :call AND epoch = :epoch

-- name: singleton
-- The unfinished run of a singleton.
SELECT {run} FROM runs WHERE singleton_key = :key AND status IN ('ready', 'running', 'waiting', 'paused')

-- name: held
-- What a claim took, if it is still ours: one whose commit was unknown finds it.
SELECT {run} FROM runs WHERE lease_owner = :worker AND status = 'running' AND lease_claim = :claim

-- name: release
-- Give back a run that was claimed and never begun.
UPDATE runs SET status = 'ready', due_at = :now, lease_owner = NULL, updated_at = :now,
                life = {lived}, life_at = :now, worked_ms = {worked}
WHERE id = :run AND lease_owner = :worker AND lease_epoch = :epoch AND status = 'running'
RETURNING id, limit_key

-- name: refused
-- The workers that have refused a run of which this incarnation has the lease.
SELECT refused FROM runs WHERE id = :run AND lease_owner = :worker AND lease_epoch = :epoch AND status = 'running'

-- name: refused_due
-- Runs that are due and that workers have refused, with these workers: nearly always there are none.
SELECT id, agent, version, queue, refused FROM runs WHERE refused IS NOT NULL AND due_at <= :now ORDER BY due_at LIMIT 100

-- name: forget_refused
-- No worker is left that has not refused these: let any worker take them again; it will find that and pause them.
UPDATE runs SET refused = NULL, updated_at = :now
WHERE id IN (SELECT value FROM json_each(:ids)) AND refused IS NOT NULL AND due_at <= :now RETURNING id

-- name: refuse
-- Give back a run whose records do not fit our code: it waits for a worker that has other code, or is paused if there is none.
UPDATE runs SET status = :status, due_at = :due_at, waits_for = :waits_for, awaits = NULL, reason = :reason,
                refused = :refused, lease_owner = NULL, updated_at = :now,
                life = {lived}, life_at = :now, worked_ms = {worked}
WHERE id = :run AND lease_owner = :worker AND lease_epoch = :epoch AND status = 'running'
RETURNING id, limit_key

-- name: heartbeat
-- Prolong every lease of one incarnation.
UPDATE runs SET due_at = :now + :ttl WHERE lease_owner = :worker AND status = 'running'
RETURNING id, lease_epoch, inbox_count

-- name: orphan
-- Make the runs of an incarnation that is gone due now. Its last heartbeat was the last sign of it in each of them: it is forgotten.
-- Any of them may have ended it: from the second time on each of them has at most half the company it had, so that what ends
-- processes is soon alone in one.
UPDATE runs
SET due_at = CASE WHEN due_at > :now THEN :now ELSE due_at END, updated_at = {last_sign},
    company = CASE WHEN :crowd = 1 THEN 0 WHEN crash_count = 0 THEN :crowd
              WHEN company < :crowd THEN max(1, company / 2) ELSE max(1, :crowd / 2) END
WHERE lease_owner = :worker AND status = 'running' RETURNING id

-- name: crowd
-- How many runs an incarnation carries.
SELECT count(*) FROM runs WHERE lease_owner = :worker AND status = 'running'

-- name: release_all
-- Give back what an incarnation that closes still holds: that is no crash.
UPDATE runs SET status = 'ready', due_at = :now, lease_owner = NULL, updated_at = :now,
                life = {lived}, life_at = :now, worked_ms = {worked}
WHERE lease_owner = :worker AND status = 'running' RETURNING id, limit_key

-- name: publish_calls
-- Tell which calls of a run are open, for as long as it is ours.
INSERT INTO open_calls (run_id, worker, epoch, many, calls, at)
SELECT :run, :worker, :epoch, :many, :calls, :now FROM runs WHERE id = :run AND status = 'running' AND lease_epoch = :epoch
ON CONFLICT (run_id) DO UPDATE
SET worker = excluded.worker, epoch = excluded.epoch, many = excluded.many, calls = excluded.calls, at = excluded.at

-- name: withdraw_calls
-- Forget what this incarnation told of these runs.
DELETE FROM open_calls WHERE worker = :worker AND run_id IN (SELECT value FROM json_each(:ids))

-- name: forget_calls
-- Forget all that an incarnation told: it is gone.
DELETE FROM open_calls WHERE worker = :worker

-- name: left_calls
-- What was last told of the open calls of runs whose owner is gone.
SELECT run_id, epoch, calls FROM open_calls WHERE run_id IN (SELECT value FROM json_each(:ids))

-- name: end_calls
-- Forget what the owners of these runs told of them.
DELETE FROM open_calls WHERE run_id IN (SELECT value FROM json_each(:ids))

-- name: open_calls
-- What is known of open calls of these runs, if it is of those that have them now.
SELECT run_id, epoch, many, calls FROM open_calls CROSS JOIN runs
WHERE run_id IN (SELECT value FROM json_each(:ids)) AND runs.id = run_id AND status = 'running' AND lease_epoch = epoch
  AND due_at > :now

-- name: present
-- What lists say of runs beyond their rows: the last sign of an owner that is gone, open calls, the last events that matter, requests to stop, where forks come from.
SELECT 0, runs.id, 0, '', CAST(NULL AS TEXT), CAST(NULL AS TEXT), {last_sign} FROM runs
WHERE runs.id IN (SELECT value FROM json_each(:ids)) AND status = 'running' AND due_at <= :now
UNION ALL
SELECT 1, run_id, many, '', CAST(NULL AS TEXT), calls, epoch FROM open_calls CROSS JOIN runs
WHERE run_id IN (SELECT value FROM json_each(:ids)) AND runs.id = run_id AND status = 'running' AND lease_epoch = epoch
  AND due_at > :now
UNION ALL
SELECT 2, events.run_id, seq, kind, key,
       CASE WHEN kind IN ('step.completed', 'step.failed', 'step.cancelled') THEN NULL ELSE data END, at
FROM runs CROSS JOIN events
WHERE runs.id IN (SELECT value FROM json_each(:ids)) AND finished_at IS NULL AND events.run_id = runs.id
  AND seq >= runs.next_seq - 40 AND dropped IS NULL AND kind IN (SELECT value FROM json_each(:kinds))
UNION ALL
SELECT 3, run_id, position, kind, CAST(NULL AS TEXT), CAST(NULL AS TEXT), sent_at FROM runs CROSS JOIN signals
WHERE runs.id IN (SELECT value FROM json_each(:ids)) AND finished_at IS NULL AND run_id = runs.id
  AND kind IN ('run.cancelling', 'run.pausing') AND data IS NOT NULL
UNION ALL
SELECT 4, run_id, at, name, CAST(NULL AS TEXT),
       (SELECT data FROM events WHERE events.run_id = forks.run_id AND seq = forks.at AND kind = 'run.forked'), 0
FROM forks WHERE run_id IN (SELECT value FROM json_each(:ids))
ORDER BY 1, 2, 3

-- name: register_worker
-- Note that an incarnation holds its lock, and what it serves.
INSERT INTO workers (id, agents, queues, version, started_at, seen_at, load)
VALUES (:worker, :agents, :queues, :version, :now, :now, :load)
ON CONFLICT (id) DO UPDATE
SET agents = excluded.agents, seen_at = excluded.seen_at, load = coalesce(excluded.load, workers.load)

-- name: seen_worker
-- Note that an incarnation is alive; for people to read.
UPDATE workers SET seen_at = :now, load = coalesce(:load, load) WHERE id = :worker

-- name: lose_worker
-- Keep for a day that an incarnation is gone, or lost runs by time, and how many of its runs went on after how long at most.
INSERT INTO lost_workers (id, version, how, at, moved, after_ms)
SELECT :whose, (SELECT version FROM workers WHERE id = :whose), :how, :now, :moved, :after_ms
WHERE EXISTS (SELECT 1 FROM workers WHERE id = :whose) OR EXISTS (SELECT 1 FROM lost_workers WHERE id = :whose)
ON CONFLICT (id) DO UPDATE
SET how = excluded.how, at = CASE WHEN lost_workers.how = excluded.how THEN lost_workers.at ELSE excluded.at END,
    moved = lost_workers.moved + excluded.moved,
    after_ms = CASE WHEN coalesce(excluded.after_ms, -1) > coalesce(lost_workers.after_ms, -1) THEN excluded.after_ms
               ELSE lost_workers.after_ms END

-- name: forget_lost
-- Forget incarnations that were lost long ago.
DELETE FROM lost_workers WHERE at < :before

-- name: lost_workers
-- Incarnations that were lost lately, the last one first.
SELECT id, version, how, at, moved, after_ms FROM lost_workers WHERE at >= :since ORDER BY at DESC, id LIMIT :limit

-- name: fleet
-- All incarnations, with what they said last.
SELECT id, version, agents, queues, started_at, seen_at, load FROM workers ORDER BY started_at, id

-- name: count_minute
-- Say what an incarnation did in a minute; said again it is the same.
INSERT INTO worker_minutes (at, worker, steps, ended, failed) VALUES (:place, :worker, :steps, :ended, :failed)
ON CONFLICT (at, worker) DO UPDATE SET steps = excluded.steps, ended = excluded.ended, failed = excluded.failed

-- name: forget_minutes
-- Forget minutes of long ago.
DELETE FROM worker_minutes WHERE at < :before

-- name: minutes
-- What all did in each minute since a time.
SELECT at, CAST(sum(steps) AS BIGINT), CAST(sum(ended) AS BIGINT), CAST(sum(failed) AS BIGINT) FROM worker_minutes
WHERE at >= :since GROUP BY at ORDER BY at

-- name: unserved
-- Runs that are due, by agent and version, where no live worker has that code.
SELECT agent, version, count(*), min(due_at) FROM runs
WHERE priority IN (0, 1, 2, 3, 4, 5, 6, 7, 8, 9) AND due_at <= :now AND NOT {served}
GROUP BY agent, version ORDER BY 4 LIMIT :limit

-- name: waiting_rates
-- How many runs wait for their turns, by rate.
SELECT rate_key, count(*) FROM runs WHERE finished_at IS NULL AND status = 'ready' AND waits_for = 'rate' GROUP BY rate_key

-- name: busy_rates
-- The rates that are paused, with why, and those of a list.
SELECT key, paused, because FROM rates
WHERE paused > :micros OR key IN (SELECT value FROM json_each(:keys)) ORDER BY paused DESC, key LIMIT :limit

-- name: size
-- How large the store is, in bytes, and about how many events it has.
SELECT (SELECT page_count FROM pragma_page_count) * (SELECT page_size FROM pragma_page_size),
       (SELECT coalesce(max(position), 0) FROM events)

-- name: forget_worker
-- Forget an incarnation that is gone.
DELETE FROM workers WHERE id = :worker

-- name: workers
-- All incarnations that said they are there.
SELECT id, agents, queues, started_at, seen_at FROM workers ORDER BY started_at, id

-- name: count_workers
-- How many incarnations said they are there.
SELECT count(*) FROM workers

-- name: known_workers
-- Which of these incarnations nobody has buried.
SELECT id FROM workers WHERE id IN (SELECT value FROM json_each(:ids))

-- name: queues
-- Which queues workers take; null: all of them.
SELECT DISTINCT queues FROM workers

-- name: code_versions
-- The versions of the code that workers run.
SELECT version, count(*) FROM workers GROUP BY version ORDER BY version

-- name: publish_agent
-- Record what the name of an agent means now.
INSERT INTO agents (name, version, schema, published_at) VALUES (:name, :version, :schema, :now)
ON CONFLICT (name) DO UPDATE
SET version = excluded.version, schema = excluded.schema, published_at = excluded.published_at

-- name: agents
-- All names ever published.
SELECT name, version, schema FROM agents ORDER BY name

-- name: hold_run
-- First statement of a transaction that changes a question: with the run's row it has the question to itself.
UPDATE runs SET updated_at = updated_at WHERE id = :run

-- name: asked_to_stop
-- The run, or the one above it, that was asked to stop and has not taken that up: what is open there now is withdrawn then.
WITH RECURSIVE line (member, above, seen) AS (
  SELECT id, parent_id, inbox_seen FROM runs WHERE id = :run
  UNION ALL SELECT runs.id, runs.parent_id, runs.inbox_seen FROM line CROSS JOIN runs
  WHERE runs.id = line.above AND runs.finished_at IS NULL)
SELECT member FROM line WHERE EXISTS (
  SELECT 1 FROM signals WHERE run_id = member AND kind = 'run.cancelling' AND position > seen)
LIMIT 1

-- name: decide
-- Keep what is new about an open question.
UPDATE approvals
SET status = :status, digest = :digest, data = :data, needs = :needs, votes = :votes, delegations = :delegations,
    decided_at = :decided_at, decided_by = :by, decision = :decision, note = :note
WHERE id = :approval AND status = 'open'
RETURNING {approval}

-- name: approval
-- One question.
SELECT {approval} FROM approvals WHERE id = :approval

-- name: approvals
-- Questions, the newest first.
SELECT {approval} FROM approvals
WHERE status IN (SELECT value FROM json_each(:statuses)) AND {asked_before} AND {of_seen} ORDER BY asked_at DESC, id DESC LIMIT :limit

-- name: budget_questions
-- Questions about the budgets of runs that live elsewhere, the newest first.
SELECT {approval} FROM approvals
WHERE key = 'budget' AND status IN (SELECT value FROM json_each(:statuses))
  AND EXISTS (SELECT 1 FROM runs WHERE runs.id = approvals.run_id AND runs.status = 'moved')
ORDER BY asked_at DESC, id DESC LIMIT :limit

-- name: forget_questions
-- Take questions about budgets out of a mirror: all that are open there, and these.
DELETE FROM approvals WHERE key = 'budget' AND (status = 'open' OR id IN (SELECT value FROM json_each(:ids)))

-- name: asked_before
-- Part of others: questions that were asked before one, if one is named.
asked_at <= coalesce(:asked_at, 9223372036854775807) AND (:after IS NULL OR asked_at < :asked_at OR id < :after)

-- name: open_approvals
-- Open questions, which are few among many decided, in the order they were asked, from after a given one on.
SELECT {approval} FROM approvals
WHERE status = 'open' AND asked_at >= coalesce(:asked_at, 0) AND (:after IS NULL OR asked_at > :asked_at OR id > :after)
  AND {of_seen}
ORDER BY asked_at, id LIMIT :limit

-- name: asked_at
-- When a question was asked: where the next page begins.
SELECT asked_at FROM approvals WHERE id = :approval

-- name: approvals_below
-- Questions of a run and all its descendants, the newest first.
WITH RECURSIVE tree (tree_id) AS (SELECT id FROM runs WHERE id = :run
                                  UNION SELECT runs.id FROM tree CROSS JOIN runs WHERE runs.parent_id = tree.tree_id)
SELECT {approval} FROM approvals
WHERE run_id IN (SELECT tree_id FROM tree) AND status IN (SELECT value FROM json_each(:statuses)) AND {asked_before}
  AND {of_seen}
ORDER BY asked_at DESC, id DESC LIMIT :limit

-- name: voted_below
-- Questions of a run and all its descendants whose votes hold a text, such as the id of a ballot; the newest first.
WITH RECURSIVE tree (tree_id) AS (SELECT id FROM runs WHERE id = :run
                                  UNION SELECT runs.id FROM tree CROSS JOIN runs WHERE runs.parent_id = tree.tree_id)
SELECT {approval} FROM approvals
WHERE run_id IN (SELECT tree_id FROM tree) AND instr(votes, :key) > 0
ORDER BY asked_at DESC, id DESC

-- name: enter_conversation
-- Take a conversation that no run has, or see which run has it. This locks its row. A run that has it has it by its last request.
INSERT INTO conversations (id, length, run_id, request, created_at, updated_at)
VALUES (:conversation, 0, :run, :request, :now, :now)
ON CONFLICT (id) DO UPDATE
SET run_id = coalesce(conversations.run_id, excluded.run_id),
    request = CASE WHEN coalesce(conversations.run_id, excluded.run_id) = excluded.run_id
              THEN excluded.request ELSE conversations.request END
RETURNING run_id, length

-- name: conversations_above
-- A conversation that a run has, or that one of those that started it has or waits for.
WITH RECURSIVE line (id, parent_id) AS (
  SELECT id, parent_id FROM runs WHERE id = :run
  UNION ALL SELECT runs.id, runs.parent_id FROM line CROSS JOIN runs WHERE runs.id = line.parent_id)
SELECT conversations.id FROM line CROSS JOIN conversations WHERE conversations.run_id = line.id
UNION ALL
SELECT conversation FROM line CROSS JOIN conversation_line WHERE conversation_line.run_id = line.id AND line.id <> :run
ORDER BY 1 LIMIT 1

-- name: stand_in_line
-- Wait for a conversation behind all runs that do; one that stands there already keeps its place.
INSERT INTO conversation_line (conversation, place, run_id, request, key)
SELECT :conversation, coalesce(max(place), 0) + 1, :run, :request, :key
FROM conversation_line WHERE conversation = :conversation
ON CONFLICT (conversation, run_id) DO UPDATE SET request = excluded.request, key = excluded.key

-- name: hold_conversation
-- First statement of a transaction that passes a conversation on or deletes it: its line is seen as it is then.
UPDATE conversations SET length = length WHERE id = :conversation RETURNING request, length, run_id

-- name: next_in_line
-- The run that has waited longest for a conversation.
SELECT run_id, request, key FROM conversation_line WHERE conversation = :conversation ORDER BY place LIMIT 1

-- name: pass_on
-- Give a conversation to a run, or to none.
UPDATE conversations SET run_id = :run, request = :request WHERE id = :conversation

-- name: leave_line
-- Take a request out of the line for a conversation.
DELETE FROM conversation_line WHERE conversation = :conversation AND request = :request

-- name: conversations_of
-- What these runs have or wait for.
SELECT id, request FROM conversations WHERE run_id IN (SELECT value FROM json_each(:ids))
UNION ALL
SELECT conversation, request FROM conversation_line WHERE run_id IN (SELECT value FROM json_each(:ids))
ORDER BY 1

-- name: lengthen
-- First statement of a run that adds messages: it has the conversation, and knows how long that is.
UPDATE conversations SET length = :end, updated_at = :now
WHERE id = :conversation AND request = :request AND length = :first RETURNING id

-- name: insert_message
-- Keep what is said.
INSERT INTO conversation_messages (conversation, position, value, run_id, at)
VALUES (:conversation, :position, :value, :run, :now)

-- name: said_by
-- How many messages of a conversation were said up to a time.
SELECT count(*) FROM conversation_messages WHERE conversation = :conversation AND at <= :before

-- name: insert_conversation
-- Make a conversation that no run has.
INSERT INTO conversations (id, length, created_at, updated_at) VALUES (:conversation, :end, :now, :now)
ON CONFLICT (id) DO NOTHING

-- name: copy_messages
-- Copy the beginning of another conversation into one.
INSERT INTO conversation_messages (conversation, position, value, run_id, at)
SELECT :conversation, position, value, run_id, at FROM conversation_messages
WHERE conversation = :name AND position < :end
ON CONFLICT DO NOTHING

-- name: said
-- What was said from one position to before another.
SELECT position, value, run_id, at FROM conversation_messages
WHERE conversation = :conversation AND position >= :first AND position < :end ORDER BY position

-- name: conversations_held
-- The conversations that a run has.
SELECT id FROM conversations WHERE run_id = :run ORDER BY id

-- name: conversation
-- One conversation.
SELECT id, length, run_id, (SELECT count(*) FROM conversation_line WHERE conversation = conversations.id), created_at,
       updated_at
FROM conversations WHERE id = :conversation

-- name: conversations
-- Conversations in the order of their ids, after one.
SELECT id, length, run_id, (SELECT count(*) FROM conversation_line WHERE conversation = conversations.id), created_at,
       updated_at
FROM conversations WHERE id > :after ORDER BY id LIMIT :limit

-- name: blobs_said
-- The texts of a conversation in which a large value is named.
SELECT value FROM conversation_messages WHERE conversation = :conversation AND instr(value, '"$blob"') > 0

-- name: delete_messages
-- Forget all that was said in a conversation.
DELETE FROM conversation_messages WHERE conversation = :conversation

-- name: delete_conversation
-- Forget a conversation.
DELETE FROM conversations WHERE id = :conversation

-- name: resume
-- Make a stopped run ready; only from the status and place that were looked at.
UPDATE runs
SET status = 'ready', due_at = :now, crash_count = 0, next_seq = next_seq + 1, finished_at = NULL, result = NULL,
    error = NULL, reason = NULL, waits_for = NULL, awaits = NULL, updated_at = :now, life = {lived}, life_at = :now
WHERE id = :run AND status = :status AND next_seq = :seq

-- name: history
-- What the rule of the cut looks at: every event that still counts.
SELECT seq, kind, key, data FROM events WHERE run_id = :run AND dropped IS NULL
UNION ALL
SELECT seq, kind, key, data FROM {shared}
ORDER BY seq

-- name: drop_event
-- Take an event out of the history; it stays in the journal.
UPDATE events SET dropped = :dropped WHERE run_id = :run AND seq = :seq AND dropped IS NULL

-- name: recount
-- After a cut: the last checkpoint and the number of steps are those of what is left.
UPDATE runs
SET checkpoint_seq = (SELECT max(seq) FROM (SELECT seq FROM events WHERE run_id = :run AND kind = 'checkpoint' AND dropped IS NULL
                                            UNION ALL SELECT seq FROM {shared} AND kind = 'checkpoint') AS taken),
    steps = (SELECT count(*) FROM events WHERE run_id = :run AND kind = 'step.completed' AND dropped IS NULL)
          + (SELECT count(*) FROM {shared} AND kind = 'step.completed')
WHERE id = :run

-- name: shares
-- Part of others: the events that a fork has from the runs it comes from, and those that were dropped there before.
lineage CROSS JOIN events
WHERE lineage.run_id = :run AND part = 'shared' AND events.run_id = base_id AND seq >= first AND seq < until

-- name: shared
-- Part of others: the events that a fork has from the runs it comes from.
{shares} AND (dropped IS NULL OR dropped >= seen)

-- name: shared_journal
-- The events of a fork that it has from others, in order.
SELECT seq, kind, events.key, data, value, blob, at, epoch, position, CASE WHEN dropped < seen THEN dropped END FROM {shares}
  AND seq >= :from_seq AND (:with_dropped = 1 OR dropped IS NULL OR dropped >= seen)
ORDER BY seq LIMIT :limit

-- name: shared_outline
-- The same events without their values.
SELECT seq, kind, events.key, data, NULL, blob, at, epoch, position, CASE WHEN dropped < seen THEN dropped END FROM {shares}
  AND seq >= :from_seq AND (:with_dropped = 1 OR dropped IS NULL OR dropped >= seen)
ORDER BY seq LIMIT :limit

-- name: former
-- What was done behind the point where a fork began, and what retries have dropped, in order.
SELECT kind, events.key, data, CASE WHEN blob IS NULL THEN substr(value, 1, 400) END, name, seq, NULL, lineage.first, at
FROM lineage CROSS JOIN events
WHERE lineage.run_id = :run AND part = 'behind' AND events.run_id = base_id AND seq >= first AND seq < until AND kind IN
  ('step.completed', 'step.started', 'step.failed', 'step.cancelled', 'child.started', 'child.spawned', 'conversation.added')
UNION ALL
SELECT kind, events.key, data, CASE WHEN blob IS NULL THEN substr(value, 1, 400) END, run_id, seq, dropped, seq, at FROM events
WHERE run_id = :run AND dropped IS NOT NULL AND kind IN
  ('step.completed', 'step.started', 'step.failed', 'step.cancelled', 'child.started', 'child.spawned')
ORDER BY 8, 6

-- name: former_result
-- What a step came to there, the last at the end.
SELECT value, blob, lineage.first, seq FROM lineage CROSS JOIN events
WHERE lineage.run_id = :run AND part = 'behind' AND events.run_id = base_id AND seq >= first AND seq < until
  AND events.key = :key AND kind = 'step.completed'
UNION ALL
SELECT value, blob, seq, seq FROM events
WHERE run_id = :run AND dropped IS NOT NULL AND events.key = :key AND kind = 'step.completed'
ORDER BY 3, 4

-- name: segments
-- Which events of others count for a run.
SELECT part, base_id, first, until, seen, name FROM lineage WHERE run_id = :run ORDER BY part, first, base_id

-- name: insert_segment
-- Have events of another run count for a fork.
INSERT INTO lineage (run_id, part, base_id, first, until, seen, name)
VALUES (:run, :part, :base, :first, :until, :seen, :name) ON CONFLICT DO NOTHING

-- name: insert_segments_below
-- Have what runs below another have done count for a fork.
WITH RECURSIVE tree (member) AS (
  SELECT id FROM runs WHERE parent_id = :base
  UNION ALL SELECT runs.id FROM tree CROSS JOIN runs WHERE runs.parent_id = tree.member)
INSERT INTO lineage (run_id, part, base_id, first, until, seen, name)
SELECT :run, 'below', id, 0, next_seq, next_seq, id FROM tree CROSS JOIN runs WHERE runs.id = tree.member

-- name: hold_below
-- Keep the runs below another from being deleted, until the transaction ends.
SELECT 1

-- name: inherit_segments
-- Have what runs below another fork's origin have done count for a fork of it.
INSERT INTO lineage (run_id, part, base_id, first, until, seen, name)
SELECT :run, part, base_id, first, until, seen, name FROM lineage WHERE run_id = :base AND part = 'below'
ON CONFLICT DO NOTHING

-- name: segment_below
-- The events of a run below the origin of a fork, by the name of that run.
SELECT base_id, until, seen FROM lineage WHERE run_id = :run AND part = 'below' AND name = :name

-- name: runs_below
-- The runs below the origin of a fork that are there still, with which of their events count for it.
SELECT lineage.name, lineage.until, {run} FROM lineage CROSS JOIN runs
WHERE lineage.run_id = :run AND part = 'below' AND runs.id = base_id ORDER BY created_at, runs.id

-- name: archived_below
-- What is kept of the runs below the other run that were deleted.
SELECT lineage.name, lineage.until, archived.name, input, archived.data FROM lineage CROSS JOIN archived
WHERE lineage.run_id = :run AND part = 'below' AND archived.name = base_id ORDER BY archived.name

-- name: bulk_of
-- How many events a run and all below it have, and how many bytes of values, large ones and text in streams.
SELECT count(*), coalesce(sum(length(value)), 0) + coalesce(sum(length(data)), 0)
       + coalesce(sum((SELECT length(content) FROM blobs WHERE digest = events.blob)), 0)
       + coalesce((SELECT sum(length(data)) FROM chunks WHERE run_id IN (SELECT id FROM runs WHERE root_id = :root)), 0)
FROM events WHERE run_id IN (SELECT id FROM runs WHERE root_id = :root)

-- name: journal_below
-- The events of a run below the origin of a fork, as they were when the fork was made.
SELECT seq, kind, events.key, events.data, value, blob, at, epoch, position, CASE WHEN dropped < seen THEN dropped END
FROM lineage CROSS JOIN events
WHERE lineage.run_id = :run AND part = 'below' AND name = :name AND events.run_id = base_id AND seq >= first AND seq < until
ORDER BY seq

-- name: shorten_segments
-- Have a fork share less of its past: only what stands before a place.
UPDATE lineage SET until = :until WHERE run_id = :run AND part = 'shared' AND until > :until

-- name: drop_segments
-- Forget shares of a fork's past in which nothing is left.
DELETE FROM lineage WHERE run_id = :run AND part = 'shared' AND until <= first

-- name: insert_fork
-- Note where a run comes from.
INSERT INTO forks (run_id, base_id, name, at, starters) VALUES (:run, :base, :base, :seq, :names)

-- name: fork
-- Where a run comes from.
SELECT name, at, starters, base_id FROM forks WHERE run_id = :run

-- name: forks_of
-- The forks made from these runs, the oldest first.
SELECT forks.run_id, base_id, forks.at, created_at, agent, status,
       (SELECT data FROM events WHERE events.run_id = forks.run_id AND seq = forks.at AND kind = 'run.forked')
FROM forks CROSS JOIN runs
WHERE runs.id = forks.run_id AND base_id IN (SELECT value FROM json_each(:ids)) ORDER BY created_at, forks.run_id

-- name: become_fork
-- Have a run that was just made go on behind what it shares.
UPDATE runs
SET next_seq = :next_seq, lease_epoch = :epoch, checkpoint_seq = :checkpoint_seq, steps = :steps
WHERE id = :run

-- name: shared_counts
-- The last checkpoint of a fork's past, how many steps it has completed there, and when its last event was written.
SELECT max(CASE WHEN kind = 'checkpoint' THEN seq END), count(CASE WHEN kind = 'step.completed' THEN 1 END), max(at)
FROM {shared}

-- name: left_children
-- Children in the history of a run that were spawned, and those that have ended.
SELECT kind, key, data FROM events
WHERE run_id = :run AND dropped IS NULL AND seq < :until AND kind IN ('child.spawned', 'child.ended')
UNION ALL
SELECT kind, events.key, data FROM {shared} AND seq < :until AND kind IN ('child.spawned', 'child.ended')

-- name: ends_of_children
-- Where a run heard of the ends of its children.
SELECT kind, seq, data FROM events WHERE run_id = :run AND dropped IS NULL AND kind = 'child.ended'
UNION ALL
SELECT kind, seq, data FROM {shared} AND kind = 'child.ended'
ORDER BY seq

-- name: copied_streams
-- Where each call's text ends in each stream of a run.
SELECT stream, key, max(position) FROM chunks WHERE run_id = :run GROUP BY stream, key

-- name: copy_chunks
-- Copy the beginning of a stream for a fork.
INSERT INTO chunks (run_id, stream, position, kind, data, key, attempt, began, reason, epoch, at)
SELECT :run, stream, position, kind, data, key, attempt, began, reason, epoch, at FROM chunks
WHERE run_id = :base AND stream = :stream AND position <= :position

-- name: closed_keys
-- The calls of a run that had an outcome before a place.
SELECT key FROM events
WHERE run_id = :run AND dropped IS NULL AND seq < :until AND key IS NOT NULL AND kind IN (SELECT value FROM json_each(:kinds))
UNION ALL
SELECT events.key FROM {shared} AND seq < :until AND events.key IS NOT NULL AND kind IN (SELECT value FROM json_each(:kinds))

-- name: places_of
-- Where a call stands in the history of a run: its own events, and arrivals that may end it.
SELECT seq, kind, key, data FROM events
WHERE run_id = :run AND dropped IS NULL
  AND (key = :key OR kind IN ('approval.decided', 'approval.expired', 'child.ended', 'conversation.entered',
                              'conversation.refused'))
UNION ALL
SELECT seq, kind, events.key, data FROM {shared}
  AND (events.key = :key OR kind IN ('approval.decided', 'approval.expired', 'child.ended', 'conversation.entered',
                                     'conversation.refused'))
ORDER BY 1

-- name: keys_like
-- Calls of a run whose key has this in it.
SELECT DISTINCT key FROM events WHERE run_id = :run AND dropped IS NULL AND instr(key, :key) > 0
UNION
SELECT DISTINCT events.key FROM {shared} AND instr(events.key, :key) > 0
ORDER BY 1 LIMIT :limit

-- name: replaced_arrivals
-- What a fork was given instead of messages and ends of children, by how the ids of these begin.
SELECT position, kind, topic, value, data, sent_at FROM signals
WHERE run_id = :run AND substr(signal_id, 1, length(:signal_id)) = :signal_id ORDER BY position

-- name: arrivals
-- What events of these kinds say that are a run's own, between two places.
SELECT data FROM events
WHERE run_id = :run AND dropped IS NULL AND seq >= :first AND seq < :until AND kind IN (SELECT value FROM json_each(:kinds))

-- name: event_at
-- One event of a run's history.
SELECT kind, data FROM events WHERE run_id = :run AND seq = :seq AND dropped IS NULL
UNION ALL
SELECT kind, data FROM {shared} AND seq = :seq

-- name: calls_below
-- Calls of runs below one that a text names, and the calls of that one that these runs came from.
WITH RECURSIVE tree (member, top) AS (
  SELECT id, parent_key FROM runs WHERE parent_id = :run
  UNION ALL SELECT runs.id, tree.top FROM tree CROSS JOIN runs WHERE runs.parent_id = tree.member)
SELECT events.run_id, events.key, min(tree.top) FROM tree CROSS JOIN events
WHERE events.run_id = tree.member AND dropped IS NULL AND events.key IS NOT NULL
  AND (events.key = :key OR substr(events.key, 1, length(:key) + 1) = :key || '#')
GROUP BY events.run_id, events.key ORDER BY events.run_id, events.key LIMIT 1

-- name: last_of_kinds
-- Where the last event of these kinds stands in a run's history, before a place.
SELECT max(seq) FROM (
  SELECT seq FROM events
  WHERE run_id = :run AND dropped IS NULL AND seq < :until AND kind IN (SELECT value FROM json_each(:kinds))
  UNION ALL
  SELECT seq FROM {shared} AND seq < :until AND kind IN (SELECT value FROM json_each(:kinds))) AS found

-- name: take_over
-- The shared events of a fork from a place on, whole.
SELECT seq, kind, events.key, data, value, blob, epoch, at, CASE WHEN dropped < seen THEN dropped END FROM {shares}
  AND seq >= :from_seq ORDER BY seq

-- name: hold_lineage
-- Lock which forks have events of these runs, until the transaction ends.
SELECT base_id, max(until) FROM lineage WHERE base_id IN (SELECT value FROM json_each(:ids)) GROUP BY base_id

-- name: archived_for
-- Under which names events of deleted runs are kept for these forks.
SELECT DISTINCT base_id FROM lineage
WHERE run_id IN (SELECT value FROM json_each(:ids)) AND substr(base_id, 1, 1) = '#' ORDER BY base_id

-- name: forget_lineage
-- Forget what counts for runs that are deleted.
DELETE FROM lineage WHERE run_id IN (SELECT value FROM json_each(:ids))

-- name: archive_events
-- Keep events of a run that is deleted under another name, for its forks.
UPDATE events SET run_id = :name WHERE run_id = :run AND seq < :until

-- name: archive_lineage
-- Have forks find events of a deleted run under that name.
UPDATE lineage SET base_id = :name WHERE base_id = :run

-- name: archive_run
-- Keep what is shown of a run that is deleted, for its forks.
INSERT INTO archived (name, input, data) VALUES (:name, :input, :data) ON CONFLICT DO NOTHING

-- name: archived
-- What is shown of a deleted run.
SELECT input, data FROM archived WHERE name = :name

-- name: forget_archived
-- Forget what is shown of runs that no fork counts on any more.
DELETE FROM archived WHERE name IN (SELECT value FROM json_each(:ids))

-- name: archive_uses
-- Have parts of inputs kept for events of a deleted run.
UPDATE part_uses SET run_id = :name WHERE run_id = :run

-- name: share_uses
-- Have the parts of inputs that another run names named by this one too.
INSERT INTO part_uses (run_id, digest) SELECT :run, digest FROM part_uses WHERE run_id = :base ON CONFLICT DO NOTHING

-- name: archive_forks
-- Have forks of a deleted run name it so.
UPDATE forks SET base_id = :name WHERE base_id = :run

-- name: insert_audit
-- Note what was done from outside, and what it was about.
INSERT INTO audit (at, run_id, actor, action, data, via, value) VALUES (:now, :run, :actor, :action, :data, :via, :value)

-- name: insert_audits
-- The same for each of many.
INSERT INTO audit (at, run_id, actor, action, data, via, value) VALUES (:now, :run, :actor, :action, :data, :via, :value)

-- name: audit
-- What was done, to all runs or to one and those below it, before a row, the newest first.
SELECT id, at, run_id, actor, action, via, value, erased_at, data FROM audit
WHERE id < :before
  AND (:run IS NULL OR run_id = :run OR run_id IN (SELECT id FROM runs WHERE root_id = :run))
  AND (:actor IS NULL OR actor = :actor) AND (:kinds IS NULL OR action IN (SELECT value FROM json_each(:kinds))) AND {of_seen}
ORDER BY id DESC LIMIT :limit

-- name: starter
-- The actor that started a run, the door, and what is told; the last time, because an id may be used again once its run is deleted.
SELECT actor, via, data FROM audit WHERE run_id = :run AND action = 'start' ORDER BY id DESC LIMIT 1

-- name: erasable
-- Rows behind an id, from before a time, whose values and texts are still there.
SELECT id, data, value FROM audit
WHERE id > :position AND at < :before AND erased_at IS NULL
  AND (:run IS NULL OR run_id = :run OR run_id IN (SELECT id FROM runs WHERE root_id = :run))
  AND (:actor IS NULL OR actor = :actor)
ORDER BY id LIMIT :limit

-- name: erase
-- Take the value out of a row, and put what is left of its data.
UPDATE audit SET value = NULL, data = :data, erased_at = :now WHERE id = :position

-- name: insert_token
-- Keep a new token.
INSERT INTO tokens (id, name, member_of, scopes, digest, created_at, expires_at, only_labels)
VALUES (:token, :name, :member_of, :scopes, :digest, :now, :expires_at, :only_labels) ON CONFLICT (id) DO NOTHING

-- name: good_tokens
-- The tokens with this id or name that are not revoked yet.
SELECT id FROM tokens WHERE (id = :token OR name = :token) AND revoked_at IS NULL

-- name: revoke_tokens
-- Revoke the token with this id, or all with this name.
UPDATE tokens SET revoked_at = coalesce(revoked_at, :now) WHERE id = :token OR name = :token
RETURNING {token}

-- name: token
-- One token.
SELECT {token} FROM tokens WHERE id = :token

-- name: use_token
-- Note that a token was shown. An operator wants to know about when: of many servers one writes, and not for every request.
UPDATE tokens SET used_at = :now WHERE id = :token AND (used_at IS NULL OR used_at < :before)

-- name: tokens
-- All tokens, the oldest first.
SELECT {token} FROM tokens ORDER BY created_at, id LIMIT :limit

-- name: insert_session
-- Keep a new session.
INSERT INTO sessions (digest, whose, member_of, scopes, account, created_at, expires_at)
VALUES (:digest, :whose, :member_of, :scopes, :account, :now, :expires_at) ON CONFLICT (digest) DO NOTHING

-- name: session
-- One session.
SELECT {session} FROM sessions WHERE digest = :digest

-- name: end_sessions
-- Forget a session, those whose time is over, and of one whose owner has many the oldest.
DELETE FROM sessions WHERE digest = :digest OR expires_at <= :now OR digest IN (
  SELECT digest FROM sessions WHERE whose = :whose ORDER BY created_at DESC, digest LIMIT 1000 OFFSET :most)

-- name: end_sessions_of
-- Forget all sessions of one owner.
DELETE FROM sessions WHERE whose = :whose RETURNING digest

-- name: insert_link
-- Keep a new link.
INSERT INTO links (id, digest, question, shown, name, member_of, created_at, expires_at)
VALUES (:link, :digest, :question, :shown, :name, :member_of, :now, :expires_at) ON CONFLICT (id) DO NOTHING

-- name: prune_links
-- Forget links whose time has long been over.
DELETE FROM links WHERE expires_at < :before

-- name: link
-- One link.
SELECT {link} FROM links WHERE id = :link

-- name: use_link
-- Note that a question was decided with a link that is good.
UPDATE links SET used_at = :now WHERE id = :link AND used_at IS NULL AND expires_at > :now RETURNING id

-- name: family
-- A run and all its descendants, with their states.
WITH RECURSIVE tree (id) AS (SELECT id FROM runs WHERE id = :run
                             UNION SELECT runs.id FROM tree CROSS JOIN runs WHERE runs.parent_id = tree.id)
SELECT runs.id, runs.status FROM tree CROSS JOIN runs WHERE runs.id = tree.id

-- name: has_children
-- Whether a run has started any other.
SELECT id FROM runs WHERE parent_id = :run LIMIT 1

-- name: below
-- All unfinished runs below one, with how far below; PostgreSQL locks them in the order of their ids.
WITH RECURSIVE tree (member, depth) AS (
  SELECT id, 1 FROM runs WHERE parent_id = :run
  UNION ALL SELECT runs.id, tree.depth + 1 FROM tree CROSS JOIN runs WHERE runs.parent_id = tree.member)
SELECT depth, {run} FROM tree CROSS JOIN runs WHERE runs.id = tree.member AND finished_at IS NULL ORDER BY id

-- name: failed_below
-- The failed runs below one, as far as all between have failed too; PostgreSQL locks them in the order of their ids.
WITH RECURSIVE tree (member) AS (
  SELECT id FROM runs WHERE parent_id = :run AND status = 'failed'
  UNION ALL SELECT runs.id FROM tree CROSS JOIN runs WHERE runs.parent_id = tree.member AND runs.status = 'failed')
SELECT {run} FROM tree CROSS JOIN runs WHERE runs.id = tree.member ORDER BY id

-- name: above
-- A run and all above it, with their states; PostgreSQL locks them in the order of their ids.
WITH RECURSIVE line (member, above) AS (
  SELECT id, parent_id FROM runs WHERE id = :run
  UNION ALL SELECT runs.id, runs.parent_id FROM line CROSS JOIN runs WHERE runs.id = line.above)
SELECT id, status FROM line CROSS JOIN runs WHERE runs.id = line.member ORDER BY id

-- name: open_below
-- The nearest unfinished runs below one: children, and in place of a child that has ended those below it.
WITH RECURSIVE tree (member, ended) AS (
  SELECT id, finished_at FROM runs WHERE parent_id = :run
  UNION ALL SELECT runs.id, runs.finished_at FROM tree CROSS JOIN runs
  WHERE runs.parent_id = tree.member AND tree.ended IS NOT NULL)
SELECT member FROM tree WHERE ended IS NULL ORDER BY member

-- name: stopping_above
-- The nearest run of a line, from this one up, that has not ended, if it was asked to stop: it waits for all below it.
WITH RECURSIVE line (member, above, ended) AS (
  SELECT id, parent_id, finished_at FROM runs WHERE id = :run
  UNION ALL SELECT runs.id, runs.parent_id, runs.finished_at FROM line CROSS JOIN runs
  WHERE runs.id = line.above AND line.ended IS NOT NULL)
SELECT member FROM line
WHERE ended IS NULL AND EXISTS (SELECT 1 FROM signals WHERE run_id = member AND kind = 'run.cancelling')

-- name: chosen
-- Part of others: runs of this agent and with these labels, if any are named.
(:agent IS NULL OR agent = :agent)
  AND (:labels IS NULL OR NOT EXISTS (
        SELECT 1 FROM json_each(:labels) AS wanted WHERE NOT EXISTS (
          SELECT 1 FROM json_each(runs.labels) AS own WHERE own.key = wanted.key AND own.value = wanted.value)))

-- name: seen
-- Part of others: runs that are there for a caller: by their own labels, or those of the run above all.
(:only IS NULL OR EXISTS (
  SELECT 1 FROM runs AS known WHERE known.id IN (runs.id, runs.root_id) AND NOT EXISTS (
    SELECT 1 FROM json_each(:only) AS wanted WHERE NOT EXISTS (
      SELECT 1 FROM json_each(known.labels) AS own WHERE own.key = wanted.key AND own.value = wanted.value))))

-- name: of_seen
-- Part of others: rows of runs that are there for a caller.
(:only IS NULL OR EXISTS (SELECT 1 FROM runs WHERE runs.id = run_id AND {seen}))

-- name: sees_run
-- One run, if it is there for a caller.
SELECT 1 FROM runs WHERE id = :run AND {seen}

-- name: prunable
-- Root runs that finished long ago, the oldest first.
SELECT id FROM runs
WHERE finished_at < :before AND status IN (SELECT value FROM json_each(:statuses)) AND parent_id IS NULL
  AND {chosen}
  AND id NOT IN (SELECT value FROM json_each(:spared))
ORDER BY finished_at LIMIT :limit

-- name: would_prune
-- Root runs that finished long ago and whose descendants have all ended: what pruning would delete.
SELECT id FROM runs
WHERE finished_at < :before AND status IN (SELECT value FROM json_each(:statuses)) AND parent_id IS NULL
  AND {chosen}
  AND NOT EXISTS (SELECT 1 FROM runs AS below WHERE below.root_id = runs.id AND below.finished_at IS NULL)
ORDER BY finished_at

-- name: blobs_used
-- The large values these runs' events name.
SELECT DISTINCT blob FROM events WHERE run_id IN (SELECT value FROM json_each(:ids)) AND blob IS NOT NULL

-- name: blobs_named
-- The texts of these runs in which a large value may be named.
SELECT value FROM events WHERE instr(value, '"$blob"') > 0 AND run_id IN (SELECT value FROM json_each(:ids))
UNION ALL
SELECT value FROM signals WHERE instr(value, '"$blob"') > 0 AND run_id IN (SELECT value FROM json_each(:ids))
UNION ALL
SELECT input || coalesce(result, '') FROM runs
WHERE (instr(input, '"$blob"') > 0 OR instr(result, '"$blob"') > 0) AND id IN (SELECT value FROM json_each(:ids))
UNION ALL
SELECT input FROM archived WHERE instr(input, '"$blob"') > 0 AND name IN (SELECT value FROM json_each(:ids))

-- name: delete_run
-- Delete a run; its questions and slots go with it.
DELETE FROM runs WHERE id = :run

-- name: delete_signals
-- Delete the inbox of a run.
DELETE FROM signals WHERE run_id = :run

-- name: delete_events
-- Delete the journal of a run.
DELETE FROM events WHERE run_id = :run

-- name: last_position
-- Where the feed ends.
SELECT max(position) FROM events

-- name: mark_position
-- Keep the last position taken although its event is gone.
INSERT INTO events (position, run_id, seq, kind, at, epoch) VALUES (:position, '', :position, 'deleted', :now, 0)

-- name: unmark_positions
-- Delete all marks of positions but the last.
DELETE FROM events WHERE run_id = '' AND seq < :position

-- name: lock_blob
-- Lock a large value before it is deleted: no other transaction may begin to name it now.
SELECT digest FROM blobs WHERE digest = :digest

-- name: delete_blob
-- Delete a large value that nothing names any more.
DELETE FROM blobs WHERE digest = :digest
  AND NOT EXISTS (SELECT 1 FROM events WHERE blob = :digest)
  AND NOT EXISTS (SELECT 1 FROM events WHERE instr(value, '"$blob"') > 0 AND instr(value, :digest) > 0)
  AND NOT EXISTS (SELECT 1 FROM signals WHERE instr(value, '"$blob"') > 0 AND instr(value, :digest) > 0)
  AND NOT EXISTS (SELECT 1 FROM conversation_messages WHERE instr(value, '"$blob"') > 0 AND instr(value, :digest) > 0)
  AND NOT EXISTS (SELECT 1 FROM audit WHERE instr(value, '"$blob"') > 0 AND instr(value, :digest) > 0)
  AND NOT EXISTS (SELECT 1 FROM runs WHERE (instr(input, '"$blob"') > 0 OR instr(result, '"$blob"') > 0)
                                       AND (instr(input, :digest) > 0 OR instr(result, :digest) > 0))
  AND NOT EXISTS (SELECT 1 FROM archived WHERE instr(input, '"$blob"') > 0 AND instr(input, :digest) > 0)

-- name: run
-- One run.
SELECT {run} FROM runs WHERE id = :run

-- name: wanted
-- Part of others: it is for a worker to go on with the run (`wants_worker` in client/info.py).
((status = 'ready' AND (waits_for IS NOT NULL OR coalesce(due_at, 0) <= :now))
 OR (status IN ('waiting', 'running') AND due_at <= :now))

-- name: crashed
-- Part of others: its process has ended twice or more since it last made progress.
crash_count + CASE WHEN status = 'running' AND due_at <= :now THEN 1 ELSE 0 END >= 2

-- name: served
-- Part of others: a live worker has its code.
agent || ' ' || coalesce(version, '') IN (SELECT value FROM json_each(:served))

-- name: waits_told
-- Part of others: what a run is told to wait for (`RunInfo.waits_for`).
CASE WHEN {wanted} AND {crashed} AND {served} THEN 'group'
     WHEN (status = 'running' AND due_at <= :now) OR ({wanted} AND NOT {served}) THEN 'worker'
     WHEN status = 'ready' AND waits_for IS NULL AND due_at > :now THEN 'timer'
     WHEN status IN ('waiting', 'ready') THEN waits_for END

-- name: stalled
-- Part of others: a run does not go on by itself (`kept_by` in client/needs.py says why).
(status = 'paused'
 OR ({wanted} AND ({crashed} OR NOT {served}
                   OR (:taken_queues IS NOT NULL AND queue NOT IN (SELECT value FROM json_each(:taken_queues)))
                   OR due_at < :now - CASE WHEN status = 'running' THEN 5000 ELSE 60000 END)))

-- name: asks
-- Part of others: a run has an open question.
EXISTS (SELECT 1 FROM approvals WHERE approvals.run_id = runs.id AND approvals.status = 'open')

-- name: tried
-- Part of others: a step of the run is at this attempt or a later one, as far as its last events and its owner tell.
(EXISTS (SELECT 1 FROM events WHERE events.run_id = runs.id AND seq >= next_seq - 40 AND kind = 'step.retrying' AND dropped IS NULL
           AND json_extract(data, '$.attempt') >= :attempt
           AND NOT EXISTS (SELECT 1 FROM events AS over WHERE over.run_id = runs.id AND over.seq > events.seq
                             AND over.key = events.key AND over.kind IN ('step.completed', 'step.failed', 'step.cancelled')))
 OR EXISTS (SELECT 1 FROM open_calls JOIN json_each(open_calls.calls) AS call
            WHERE open_calls.run_id = runs.id AND epoch = lease_epoch AND json_extract(call.value, '$[3]') >= :attempt))

-- name: besides
-- Part of others: runs that fit a filter, whenever they were created.
(:statuses IS NULL OR status IN (SELECT value FROM json_each(:statuses)))
  AND {chosen} AND {seen}
  AND (:agents IS NULL OR agent IN (SELECT value FROM json_each(:agents)))
  AND (:queues IS NULL OR queue IN (SELECT value FROM json_each(:queues)))
  AND (:version IS NULL OR version = :version)
  AND (:top IS NULL OR CASE WHEN parent_id IS NULL THEN 1 ELSE 0 END = :top)
  AND (:waits IS NULL OR {waits_told} IN (SELECT value FROM json_each(:waits)))
  AND (:stalled IS NULL OR CASE WHEN finished_at IS NULL AND {stalled} THEN 1 ELSE 0 END = :stalled)
  AND (:needing IS NULL OR CASE WHEN finished_at IS NULL AND ({stalled} OR {asks}) THEN 1 ELSE 0 END = :needing)
  AND (:usd IS NULL OR (SELECT sum(usd) FROM spending WHERE spending.run_id = runs.id) >= :usd)
  AND (:attempt IS NULL OR (finished_at IS NULL AND {tried}))
  AND (:parent IS NULL OR parent_id = :parent)
  AND (:search IS NULL OR instr(lower(id || ' ' || agent || ' ' || labels || ' ' || input || ' ' || coalesce(reason, '')
        || ' ' || coalesce(error, '')), :search) > 0)

-- name: fitting
-- Part of others: runs that fit a filter.
created_at <= coalesce(:created_at, 9223372036854775807) AND created_at >= coalesce(:since, 0) AND {besides}

-- name: runs
-- Runs that fit, the newest first, from after a given one on.
SELECT {run} FROM runs
WHERE {fitting}
  AND (:after IS NULL OR created_at < :place OR (created_at = :place AND id > :after))
  AND created_at <= coalesce(:place, 9223372036854775807)
ORDER BY created_at DESC, id LIMIT :limit

-- name: runs_oldest
-- Runs that fit, the oldest first, from after a given one on.
SELECT {run} FROM runs
WHERE {fitting}
  AND (:after IS NULL OR created_at > :place OR (created_at = :place AND id < :after))
  AND created_at >= coalesce(:place, 0)
ORDER BY created_at, id DESC LIMIT :limit

-- name: updated
-- Part of another: runs that fit and have ended in this way, those that ended last first.
SELECT id FROM runs
WHERE finished_at IS NOT NULL AND finished_at <= coalesce(:place, 9223372036854775807)
  AND (:after IS NULL OR finished_at < :place OR id > :after) AND {fitting}

-- name: runs_updated
-- Runs that fit, those first that changed last; one that has ended changed at its end. Of each end only as many are looked at as fit.
SELECT {run} FROM runs
WHERE id IN (
  SELECT id FROM (SELECT id FROM runs
    WHERE finished_at IS NULL AND status IN ('ready', 'running', 'waiting', 'paused')
      AND (:after IS NULL OR updated_at < :place OR (updated_at = :place AND id > :after)) AND {fitting}
    ORDER BY updated_at DESC, id LIMIT :limit) AS going
  UNION ALL SELECT id FROM ({updated} AND status = 'completed' ORDER BY finished_at DESC, id LIMIT :limit) AS completed
  UNION ALL SELECT id FROM ({updated} AND status = 'failed' ORDER BY finished_at DESC, id LIMIT :limit) AS failed
  UNION ALL SELECT id FROM ({updated} AND status = 'cancelled' ORDER BY finished_at DESC, id LIMIT :limit) AS cancelled
  UNION ALL SELECT id FROM ({updated} AND status = 'moved' ORDER BY finished_at DESC, id LIMIT :limit) AS moved)
ORDER BY coalesce(finished_at, updated_at) DESC, id LIMIT :limit

-- name: rank
-- Part of others: where a run stands in an order, the lowest first.
CASE :order WHEN 'oldest' THEN created_at WHEN 'updated' THEN -coalesce(finished_at, updated_at) ELSE -created_at END

-- name: in_states
-- Part of others: runs in these states, found by an index that begins with the state.
SELECT runs.id FROM json_each(:statuses) AS state CROSS JOIN runs WHERE runs.status = state.value

-- name: runs_in
-- Runs in some states that fit, in any order: of few, whatever else there is.
SELECT {run} FROM runs
WHERE id IN ({in_states} AND finished_at IS NULL UNION ALL {in_states} AND finished_at IS NOT NULL)
  AND {fitting}
  AND (:after IS NULL OR {rank} > :place OR ({rank} = :place AND id > :after))
ORDER BY {rank}, id LIMIT :limit

-- name: counted_runs
-- How many runs fit, by agent and state.
SELECT agent, status, count(*) FROM runs
WHERE {fitting}
GROUP BY agent, status ORDER BY agent, status

-- name: relatives
-- Runs that fit, among the children of one run or the members of one tree.
SELECT {run} FROM runs
WHERE id IN (SELECT id FROM runs WHERE parent_id = :parent UNION ALL SELECT id FROM runs WHERE root_id = :root)
  AND (:root IS NULL OR root_id = :root)
  AND {fitting}
  AND (:after IS NULL OR {rank} > :place OR ({rank} = :place AND id > :after))
ORDER BY {rank}, id LIMIT :limit

-- name: recent_runs
-- What the newest runs are called.
SELECT id, agent, status, labels FROM runs WHERE {seen} ORDER BY created_at DESC, id LIMIT :limit

-- name: runs_beginning
-- Runs whose ids begin with a text; they are ASCII.
SELECT id, agent, status FROM runs WHERE id >= :search AND id < :search || '~' AND {seen} ORDER BY id LIMIT :limit

-- name: these_runs
-- The runs among these that are there.
SELECT {run} FROM runs WHERE id IN (SELECT value FROM json_each(:ids))

-- name: count_going
-- How many runs have not ended, by state; from an index.
SELECT status, count(*) FROM runs
WHERE finished_at IS NULL AND status IN ('ready', 'running', 'waiting', 'paused') GROUP BY status

-- name: count_going_that_fit
-- The same of those that fit.
SELECT status, count(*) FROM runs
WHERE finished_at IS NULL AND status IN ('ready', 'running', 'waiting', 'paused') AND {fitting} GROUP BY status

-- name: count_ended
-- How many runs have ended, by how, up to a number; from an index.
SELECT 'completed', count(*), 0 FROM (SELECT 1 FROM runs WHERE finished_at IS NOT NULL AND status = 'completed' LIMIT :limit) AS a
UNION ALL
SELECT 'failed', count(*), 0 FROM (SELECT 1 FROM runs WHERE finished_at IS NOT NULL AND status = 'failed' LIMIT :limit) AS b
UNION ALL
SELECT 'cancelled', count(*), 0 FROM (SELECT 1 FROM runs WHERE finished_at IS NOT NULL AND status = 'cancelled' LIMIT :limit) AS c
UNION ALL
SELECT 'moved', count(*), 0 FROM (SELECT 1 FROM runs WHERE finished_at IS NOT NULL AND status = 'moved' LIMIT :limit) AS d

-- name: ended_that_fit
-- How many of those that ended in one way last were looked at, and fit.
SELECT count(*), count(CASE WHEN {fitting} THEN 1 END)
FROM (SELECT * FROM runs WHERE finished_at IS NOT NULL AND status = :status ORDER BY finished_at DESC LIMIT :limit) AS runs

-- name: count_needs
-- How many runs that fit need a person. Only those that are due, ready or paused, or have asked, can.
SELECT count(*) FROM runs
WHERE id IN (SELECT id FROM runs WHERE priority IN (0, 1, 2, 3, 4, 5, 6, 7, 8, 9) AND due_at <= :now
             UNION SELECT id FROM runs WHERE finished_at IS NULL AND status = 'ready'
             UNION SELECT id FROM runs WHERE finished_at IS NULL AND status = 'paused'
             UNION SELECT run_id FROM approvals WHERE status = 'open')
  AND finished_at IS NULL AND ({stalled} OR {asks}) AND {fitting}

-- name: place_of
-- Where a run stands in an order of lists: the next page begins behind it.
SELECT created_at, coalesce(finished_at, updated_at) FROM runs WHERE id = :run

-- name: journal
-- The events of a run in order.
SELECT seq, kind, key, data, value, blob, at, epoch, position, dropped FROM events
WHERE run_id = :run AND seq >= :from_seq AND (:with_dropped = 1 OR dropped IS NULL)
ORDER BY seq LIMIT :limit

-- name: outline
-- The events of a run in order, without their values: these are large, and a list shows none of them.
SELECT seq, kind, key, data, NULL, blob, at, epoch, position, dropped FROM events
WHERE run_id = :run AND seq >= :from_seq AND (:with_dropped = 1 OR dropped IS NULL)
ORDER BY seq LIMIT :limit

-- name: line
-- Part of others: the columns of an event as lists show it, with the beginning of its value and how long that is.
seq, kind, events.key, data, substr(value, 1, 1000), blob, at, epoch, position

-- name: picked
-- Part of others: events that fit what a reader looks for.
(:with_dropped = 1 OR dropped IS NULL) AND {sought}

-- name: sought
-- Part of others: events of these kinds, of this call, with this text.
(:kinds IS NULL OR kind IN (SELECT value FROM json_each(:kinds)))
  AND (:key IS NULL OR events.key = :key OR (events.key IS NULL AND instr(data, :mark) > 0))
  AND (:search IS NULL OR instr(lower(kind || ' ' || coalesce(events.key, '') || ' ' || coalesce(data, '') || ' '
                                      || coalesce(substr(value, 1, 1000), '')), :search) > 0)

-- name: event_lines
-- The events of a run from a place on that fit, in order, with the beginnings of their values.
SELECT {line}, dropped, length(value) FROM events
WHERE run_id = :run AND seq >= :from_seq AND {picked}
ORDER BY seq LIMIT :limit

-- name: shared_event_lines
-- The same events of a fork that it has from others.
SELECT {line}, CASE WHEN dropped < seen THEN dropped END, length(value) FROM {shares}
  AND seq >= :from_seq AND (:with_dropped = 1 OR dropped IS NULL OR dropped >= seen) AND {sought}
ORDER BY seq LIMIT :limit

-- name: event_lines_before
-- The last events of a run before a place that fit, the last first, with the beginnings of their values.
SELECT {line}, dropped, length(value) FROM events
WHERE run_id = :run AND seq >= :from_seq AND seq < :before AND {picked}
ORDER BY seq DESC LIMIT :limit

-- name: shared_event_lines_before
-- The same events of a fork that it has from others.
SELECT {line}, CASE WHEN dropped < seen THEN dropped END, length(value) FROM {shares}
  AND seq >= :from_seq AND seq < :before AND (:with_dropped = 1 OR dropped IS NULL OR dropped >= seen) AND {sought}
ORDER BY seq DESC LIMIT :limit

-- name: event_lines_at
-- The events of a run at these places, with the beginnings of their values; those that a retry took out too.
SELECT {line}, dropped, length(value) FROM events WHERE run_id = :run AND seq IN (SELECT value FROM json_each(:ids))
UNION ALL
SELECT {line}, CASE WHEN dropped < seen THEN dropped END, length(value) FROM {shares}
  AND seq IN (SELECT value FROM json_each(:ids))
ORDER BY seq

-- name: blob_heads
-- The beginnings of these large values, and how long they are.
SELECT digest, substr(content, 1, 1000), length(content) FROM blobs WHERE digest IN (SELECT value FROM json_each(:ids))

-- name: outline_of
-- The events of a run from a place on that belong to these calls or are of these kinds; without their values.
SELECT seq, kind, key, data, NULL, blob, at, epoch, position, dropped FROM events
WHERE run_id = :run AND seq >= :from_seq
  AND (key IN (SELECT value FROM json_each(:keys)) OR kind IN (SELECT value FROM json_each(:kinds)))
  AND (:with_dropped = 1 OR dropped IS NULL)
UNION ALL
SELECT seq, kind, events.key, data, NULL, blob, at, epoch, position, NULL FROM {shared}
  AND seq >= :from_seq
  AND (events.key IN (SELECT value FROM json_each(:keys)) OR kind IN (SELECT value FROM json_each(:kinds)))
ORDER BY seq

-- name: begun_before
-- Which of these calls a run had begun before a place, and by which retry that was taken out.
SELECT key, dropped FROM events
WHERE run_id = :run AND seq < :end AND kind IN (SELECT value FROM json_each(:kinds))
  AND key IN (SELECT value FROM json_each(:keys))
UNION
SELECT events.key, CASE WHEN dropped < seen THEN dropped END FROM {shares}
  AND seq < :end AND kind IN (SELECT value FROM json_each(:kinds)) AND events.key IN (SELECT value FROM json_each(:keys))

-- name: epoch_between
-- Part of another: the epoch in the middle between two places.
(SELECT epoch FROM events WHERE run_id = :run AND seq <= (low + high) / 2 ORDER BY seq DESC LIMIT 1)

-- name: worker_at
-- The event in which the worker that wrote at a place names itself: one of the first with its epoch.
-- Epochs only grow, so the first of one is found by halving.
WITH RECURSIVE search (low, high) AS (
  SELECT CAST(0 AS BIGINT), CAST(:seq AS BIGINT)
  UNION ALL
  SELECT CASE WHEN {epoch_between} < :epoch THEN (low + high) / 2 + 1 ELSE low END,
         CASE WHEN {epoch_between} < :epoch THEN high ELSE (low + high) / 2 END
  FROM search WHERE low < high)
SELECT data FROM events
WHERE run_id = :run AND seq >= (SELECT low FROM search WHERE low >= high LIMIT 1) AND seq <= :seq AND epoch = :epoch
  AND instr(data, '"worker":') > 0
ORDER BY seq LIMIT 1

-- name: shared_worker_at
-- The same for an event that a fork has from another run.
SELECT data FROM {shares} AND seq <= :seq AND epoch = :epoch AND instr(data, '"worker":') > 0 ORDER BY seq DESC LIMIT 1

-- name: events_at
-- The events of a run at these places; those that a retry took out too.
SELECT seq, kind, key, data, value, blob, at, epoch, position, dropped FROM events
WHERE run_id = :run AND seq IN (SELECT value FROM json_each(:ids))
UNION ALL
SELECT seq, kind, events.key, data, value, blob, at, epoch, position, CASE WHEN dropped < seen THEN dropped END FROM {shares}
  AND seq IN (SELECT value FROM json_each(:ids))
ORDER BY seq

-- name: inputs_between
-- The events of a stretch that have a whole input, without their values; those that a retry took out too.
SELECT seq, kind, key, data, NULL, blob, at, epoch, position, dropped FROM events
WHERE run_id = :run AND seq >= :first AND seq < :end AND instr(data, '"inputs":') > 0
UNION ALL
SELECT seq, kind, events.key, data, NULL, blob, at, epoch, position, CASE WHEN dropped < seen THEN dropped END FROM {shares}
  AND seq >= :first AND seq < :end AND instr(data, '"inputs":') > 0
ORDER BY seq

-- name: last_of_kind
-- The last event of a kind up to a place.
SELECT max(seq) FROM (
  SELECT seq FROM events WHERE run_id = :run AND kind = :kind AND seq <= :end AND dropped IS NULL
  UNION ALL
  SELECT seq FROM {shared} AND kind = :kind AND seq <= :end) AS found

-- name: last_request
-- The last request to a model that was answered.
SELECT seq FROM events
WHERE run_id = :run AND kind = 'step.completed' AND dropped IS NULL AND instr(data, '"model_calls":') > 0
UNION ALL
SELECT seq FROM {shared} AND kind = 'step.completed' AND instr(data, '"model_calls":') > 0
ORDER BY seq DESC LIMIT 1

-- name: progress
-- How far these runs have come: the last that each has said of it, its last plan, and what bodies said lately.
SELECT run_id, kind, data, seq FROM events
WHERE kind IN ('progress', 'plan') AND dropped IS NULL AND run_id IN (SELECT value FROM json_each(:ids))
  AND seq = (SELECT max(seq) FROM events AS said WHERE said.run_id = events.run_id AND said.kind IN ('progress', 'plan')
                                                   AND said.kind = events.kind AND said.dropped IS NULL)
UNION ALL
SELECT events.run_id, events.kind, events.data, events.seq FROM runs
JOIN events ON events.run_id = runs.id AND events.seq >= runs.next_seq - 100
WHERE runs.id IN (SELECT value FROM json_each(:ids)) AND events.kind = 'step.progress' AND events.dropped IS NULL
UNION ALL
SELECT lineage.run_id, kind, data, seq FROM lineage CROSS JOIN events
WHERE lineage.run_id IN (SELECT value FROM json_each(:ids)) AND part = 'shared' AND events.run_id = base_id
  AND kind IN ('progress', 'plan')
  AND seq = (SELECT max(seq) FROM events AS said WHERE said.run_id = base_id AND said.kind IN ('progress', 'plan')
                                                   AND said.kind = events.kind AND said.seq >= first AND said.seq < until
                                                   AND (said.dropped IS NULL OR said.dropped >= seen))
UNION ALL
SELECT lineage.run_id, kind, data, seq FROM lineage CROSS JOIN events
WHERE lineage.run_id IN (SELECT value FROM json_each(:ids)) AND part = 'shared' AND events.run_id = base_id
  AND kind = 'step.progress' AND seq >= first AND seq >= until - 100 AND seq < until AND (dropped IS NULL OR dropped >= seen)
ORDER BY 1, 4

-- name: feed
-- The events of all runs in the order of their commits.
SELECT seq, kind, key, data, value, blob, at, epoch, position, dropped, run_id FROM events
WHERE position > :position AND run_id <> '' AND substr(run_id, 1, 1) <> '#' AND (:kinds IS NULL OR kind IN (SELECT value FROM json_each(:kinds)))
ORDER BY position LIMIT :limit

-- name: visible
-- Part of others: events that the feed shows. Events of runs that are gone stay in the journal of their forks.
run_id <> '' AND substr(run_id, 1, 1) <> '#'

-- name: feed_lines
-- The events of all runs in the order of their commits, with the beginnings of their values.
SELECT {line}, dropped, length(value), run_id FROM events
WHERE position > :position AND {visible} AND (:kinds IS NULL OR kind IN (SELECT value FROM json_each(:kinds))) AND {of_seen}
ORDER BY position LIMIT :limit

-- name: feed_lines_of
-- The events of one run in the order of their commits, with the beginnings of their values.
SELECT {line}, dropped, length(value), run_id FROM events
WHERE run_id = :run AND position > :position AND {visible}
  AND (:kinds IS NULL OR kind IN (SELECT value FROM json_each(:kinds))) AND {of_seen}
ORDER BY position LIMIT :limit

-- name: feed_reach
-- Before which position the feed has all there will ever be, and before which one it has all that is committed now.
SELECT coalesce(max(position), 0) + 1, coalesce(max(position), 0) + 1 FROM events

-- name: inbox
-- What came to a run after a position.
SELECT position, kind, topic, value, data, sent_at FROM signals
WHERE run_id = :run AND position > :position ORDER BY position LIMIT :limit

-- name: last_messages
-- The last messages that were sent to a run, the newest first.
SELECT position, kind, topic, value, data, sent_at FROM signals
WHERE run_id = :run AND kind = 'message.received' ORDER BY position DESC LIMIT :limit

-- name: blob
-- One large value.
SELECT content FROM blobs WHERE digest = :digest

-- name: next_due
-- When a run that `due` would take is due next.
WITH level (n) AS (VALUES (9), (8), (7), (6), (5), (4), (3), (2), (1), (0))
SELECT min((SELECT due_at FROM runs WHERE priority = n AND due_at IS NOT NULL AND {ours} ORDER BY due_at LIMIT 1)) FROM level

-- name: count_runs
-- How many runs there are in each state.
SELECT status, count(*) FROM runs GROUP BY status ORDER BY status

-- name: count_rows
-- How much there is of the rest.
SELECT (SELECT count(*) FROM events WHERE run_id <> ''), (SELECT count(*) FROM signals), (SELECT count(*) FROM blobs),
       (SELECT count(*) FROM approvals WHERE status = 'open'), (SELECT count(*) FROM workers)

-- name: census
-- How many unfinished runs each queue has in each state, how many are due and how many late, and when the first is or was due.
SELECT queue, status, count(*), sum(CASE WHEN due_at <= :now THEN 1 ELSE 0 END),
       sum(CASE WHEN due_at <= :late THEN 1 ELSE 0 END), min(due_at)
FROM runs WHERE finished_at IS NULL GROUP BY status, queue ORDER BY status, queue

-- name: question_ages
-- Open questions: when the oldest was asked, and how many were up to 5 minutes, an hour, a day, a week ago, and earlier.
SELECT min(asked_at), sum(CASE WHEN asked_at > :now - 300000 THEN 1 ELSE 0 END),
       sum(CASE WHEN asked_at <= :now - 300000 AND asked_at > :now - 3600000 THEN 1 ELSE 0 END),
       sum(CASE WHEN asked_at <= :now - 3600000 AND asked_at > :now - 86400000 THEN 1 ELSE 0 END),
       sum(CASE WHEN asked_at <= :now - 86400000 AND asked_at > :now - 604800000 THEN 1 ELSE 0 END),
       sum(CASE WHEN asked_at <= :now - 604800000 THEN 1 ELSE 0 END)
FROM approvals WHERE status = 'open' AND (expires_at IS NULL OR expires_at > :now)

-- name: stuck
-- Unfinished runs that do not go on: due for long and not taken, begun and nobody's, paused, or ending one process after another.
SELECT {run} FROM runs
WHERE id IN (SELECT id FROM runs WHERE priority IN (0, 1, 2, 3, 4, 5, 6, 7, 8, 9) AND due_at <= :late
             UNION ALL
             SELECT id FROM runs
             WHERE priority IN (0, 1, 2, 3, 4, 5, 6, 7, 8, 9) AND due_at <= :now AND status = 'running'
             UNION ALL
             SELECT id FROM runs
             WHERE finished_at IS NULL AND status IN ('ready', 'running', 'paused') AND (crash_count >= 2 OR status = 'paused'))
ORDER BY coalesce(due_at, updated_at), id LIMIT :limit

-- name: halted
-- A page of the same, behind one, without those that a person has paused.
SELECT {run} FROM runs
WHERE id IN (SELECT id FROM runs WHERE priority IN (0, 1, 2, 3, 4, 5, 6, 7, 8, 9) AND due_at <= :late
             UNION ALL
             SELECT id FROM runs
             WHERE finished_at IS NULL AND status = 'paused' AND instr(coalesce(reason, ''), 'paused by ') <> 1)
  AND (coalesce(due_at, updated_at), id) > (:since, :after)
ORDER BY coalesce(due_at, updated_at), id LIMIT :limit

-- name: members
-- A root run and all below it.
SELECT {run} FROM runs WHERE root_id = :root ORDER BY id

-- name: whole_inbox
-- All that ever came to a run.
SELECT position, signal_id, kind, topic, value, data, sent_at FROM signals WHERE run_id = :run ORDER BY position

-- name: whole_streams
-- All that a run has written to streams.
SELECT stream, position, kind, data, key, attempt, began, reason, epoch, at FROM chunks
WHERE run_id = :run ORDER BY stream, position

-- name: approvals_of
-- The questions of these runs.
SELECT {approval} FROM approvals WHERE run_id IN (SELECT value FROM json_each(:ids)) ORDER BY asked_at, id

-- name: asked_by
-- The questions about budgets for whose answers these runs wait.
SELECT approval, run_id FROM askers WHERE run_id IN (SELECT value FROM json_each(:ids)) ORDER BY approval, run_id

-- name: spending_of
-- What these runs have spent, by step.
SELECT run_id, what, usd, input_tokens, output_tokens, model_calls, unpriced, steps FROM spending
WHERE run_id IN (SELECT value FROM json_each(:ids)) ORDER BY run_id, what

-- name: waiting_for
-- The conversations that these runs wait for.
SELECT conversation, run_id, request, key FROM conversation_line
WHERE run_id IN (SELECT value FROM json_each(:ids)) ORDER BY conversation, place

-- name: whole_conversation
-- One conversation, and the run that has it.
SELECT id, length, created_at, updated_at, run_id, request FROM conversations WHERE id = :conversation

-- name: make_moved
-- Give these runs up: another store has them. If one has an owner, that can write no more.
UPDATE runs
SET status = 'moved', reason = :reason, due_at = NULL, waits_for = NULL, awaits = NULL, lease_owner = NULL,
    lease_epoch = lease_epoch + 1, finished_at = coalesce(finished_at, :now), updated_at = :now,
    life = CASE WHEN finished_at IS NULL THEN {lived} ELSE life END,
    life_at = CASE WHEN finished_at IS NULL THEN :now ELSE {since} END, worked_ms = {worked}
WHERE id IN (SELECT value FROM json_each(:ids))

-- name: close_questions
-- Close the questions of runs that were moved: they are asked there.
UPDATE approvals SET status = 'withdrawn', decided_at = :now, note = :note
WHERE status = 'open' AND run_id IN (SELECT value FROM json_each(:ids))
RETURNING id

-- name: reopen_questions
-- Ask again what was closed because its run was moved.
UPDATE approvals SET status = 'open', decided_at = NULL, note = NULL WHERE id IN (SELECT value FROM json_each(:ids))

-- name: take_back
-- Make a run what it was before it was moved; no owner from before can write.
UPDATE runs
SET status = :status, due_at = :due_at, waits_for = :waits_for, awaits = :awaits, reason = :reason, finished_at = :finished_at,
    lease_epoch = lease_epoch + 1, updated_at = :now, life = {lived}, life_at = :now
WHERE id = :id AND status = 'moved'

-- name: holding
-- The conversations that these runs have.
SELECT id, run_id, request, CAST(NULL AS TEXT) FROM conversations WHERE run_id IN (SELECT value FROM json_each(:ids)) ORDER BY id

-- name: insert_export
-- Keep the file of a move until its destination has it.
INSERT INTO exports (bundle, run_id, destination, made_at, before, content)
VALUES (:bundle, :run, :destination, :now, :data, :content)

-- name: export
-- The last move of a run.
SELECT bundle, run_id, destination, made_at, confirmed_at, undone_at FROM exports
WHERE run_id = :run ORDER BY made_at DESC, bundle LIMIT 1

-- name: export_content
-- The file of a move, and what it changed here.
SELECT content, before FROM exports WHERE bundle = :bundle

-- name: confirm_export
-- Keep the file of a move no longer: its destination has it.
UPDATE exports SET confirmed_at = coalesce(confirmed_at, :now), content = NULL WHERE bundle = :bundle RETURNING run_id

-- name: settle_exports
-- Keep no file of a run that is here again.
UPDATE exports SET confirmed_at = coalesce(confirmed_at, :now), content = NULL WHERE run_id = :run

-- name: undo_export
-- Note that a run was taken back without its destination.
UPDATE exports SET undone_at = :now, content = NULL WHERE bundle = :bundle

-- name: imported
-- The run that came in a bundle, and when.
SELECT run_id, at FROM imports WHERE bundle = :bundle ORDER BY at LIMIT 1

-- name: came
-- The last move by which a run came here.
SELECT bundle, source, at FROM imports WHERE run_id = :run AND kind = 'move' ORDER BY at DESC, bundle LIMIT 1

-- name: imported_from
-- The store that a run came from last.
SELECT source FROM imports WHERE run_id = :run ORDER BY at DESC, bundle LIMIT 1

-- name: insert_import
-- Remember a bundle.
INSERT INTO imports (bundle, run_id, kind, source, at) VALUES (:bundle, :run, :kind, :source, :now)

-- name: import_run
-- Put a run into the store as it was in another.
INSERT INTO runs (id, uid, agent, status, input, version, queue, due_at, lease_epoch, next_seq, checkpoint_seq, inbox_count,
                  inbox_seen, awaits, waits_for, crash_count, parent_id, parent_key, root_id, labels, result, error, reason,
                  steps, created_at, started_at, finished_at, updated_at, priority, limit_key, limit_n, rate_key, rate_n,
                  rate_ms, singleton_key, budget, identity, life_at)
VALUES (:id, :uid, :agent, :status, :input, :version, :queue, :due_at, :epoch, :next_seq, :checkpoint_seq, :inbox_count,
        :inbox_seen, :awaits, :waits_for, :crash_count, :parent_id, :parent_key, :root_id, :labels, :result, :error, :reason,
        :steps, :created_at, :started_at, :finished_at, :updated_at, :priority, :limit_key, :limit_n, :rate_key, :rate_n,
        :rate_ms, :singleton_key, :budget, :identity, :now)

-- name: shadow
-- Let a run that lives elsewhere have a row, for what belongs to it; one that is here stays as it is.
INSERT INTO runs (id, uid, agent, status, input, queue, parent_id, root_id, labels, reason, created_at, updated_at, finished_at,
                  life_at)
VALUES (:id, :uid, :agent, 'moved', '{}', 'default', :parent_id, :root_id, :labels, :reason, :now, :now, :now, :now)
ON CONFLICT DO NOTHING

-- name: copied
-- A run that lives elsewhere, and may have gone there from here, has so many events: they were copied from there.
UPDATE runs SET next_seq = :next_seq WHERE id = :run AND status = 'moved' AND next_seq < :next_seq

-- name: count_interruptions
-- Count how often a run was interrupted where it comes from: its history says it.
UPDATE runs SET interruptions = (SELECT count(*) FROM events WHERE run_id = :run AND kind = 'run.interrupted') WHERE id = :run

-- name: import_approval
-- Put a question into the store as it was in another.
INSERT INTO approvals (id, run_id, root_id, path, key, kind, question, shown, digest, schema, recipients, needs, votes,
                       delegations, expires_at, fallback, remind_ms, status, asked_at, data, decided_at, decided_by, decision,
                       note, not_by)
VALUES (:id, :run, :root, :path, :key, :kind, :question, :shown, :digest, :schema, :recipients, :needs, :votes, :delegations,
        :expires_at, :fallback, :remind_ms, :status, :asked_at, :data, :decided_at, :by, :decision, :note, :not_by)

-- name: import_fork
-- Note where a run comes from that was a fork in another store.
INSERT INTO forks (run_id, base_id, name, at, starters) VALUES (:run, :base, :name, :seq, :names)

-- name: import_conversation
-- Begin a conversation that is not here yet.
INSERT INTO conversations (id, length, created_at, updated_at) VALUES (:conversation, 0, :since, :now) ON CONFLICT DO NOTHING

-- name: extend_conversation
-- Note how long a conversation is with messages that came from another store.
UPDATE conversations SET length = :end WHERE id = :conversation

-- name: identity
-- What this store is.
SELECT id, made_at, backup_of, backup_at, restored_at, held_at FROM identity

-- name: let_go
-- Let a held store go on.
UPDATE identity SET held_at = NULL

-- name: orphan_all
-- Make runs due that were copied in the middle: they have no owner here.
UPDATE runs SET due_at = :now WHERE status = 'running' AND due_at > :now

-- name: count_unfinished
-- How many runs have not ended.
SELECT count(*) FROM runs WHERE finished_at IS NULL

-- name: newest_migration
-- The schema this database has.
SELECT max(number) FROM migrations

-- name: lock_schedule
-- One schedule, locked where the database locks rows.
SELECT {schedule} FROM schedules WHERE name = :name

-- name: schedule
-- One schedule.
SELECT {schedule} FROM schedules WHERE name = :name

-- name: schedules
-- Schedules in the order of their names.
SELECT {schedule} FROM schedules WHERE name > :after ORDER BY name LIMIT :limit

-- name: put_schedule
-- Write a schedule, a new one or another in its place.
INSERT INTO schedules (name, agent, times, run, digest, state, since, due_at, missed, made_by, created_at, updated_at)
VALUES (:name, :agent, :times, :run, :digest, :state, :since, :due_at, :missed, :made_by, :now, :now)
ON CONFLICT (name) DO UPDATE SET
  agent = excluded.agent, times = excluded.times, run = excluded.run, digest = excluded.digest, state = excluded.state,
  since = excluded.since, due_at = excluded.due_at, missed = schedules.missed + excluded.missed, made_by = excluded.made_by,
  updated_at = excluded.updated_at

-- name: set_schedule
-- Pause a schedule, let it go on, or retire it.
UPDATE schedules SET state = :state, since = :since, due_at = :due_at, digest = :digest, missed = missed + :missed, updated_at = :now
WHERE name = :name

-- name: begun_schedules
-- Move schedules on behind the times that were dealt with.
UPDATE schedules SET since = :since, due_at = :due_at, last_at = :last_at, last_run = :last_run, begun = begun + :begun,
                     missed = missed + :missed, updated_at = :now
WHERE name = :name

-- name: delete_schedule
-- Delete a schedule.
DELETE FROM schedules WHERE name = :name

-- name: forget_schedule
-- And what was declared under its name.
DELETE FROM schedules_seen WHERE name = :name

-- name: due_schedules
-- Schedules whose time has come, the longest due first; another worker's are passed over where the database locks rows.
-- None in a copy that is held, and none whose times the asker cannot read.
SELECT {schedule} FROM schedules WHERE due_at <= :now AND NOT EXISTS (SELECT 1 FROM identity WHERE held_at IS NOT NULL)
  AND times NOT IN (SELECT value FROM json_each(:ids))
ORDER BY due_at LIMIT :limit

-- name: freed_schedules
-- Schedules by name whose run before has ended, whether or not it is time to look at them; the rest as above.
SELECT {schedule} FROM schedules WHERE name IN (SELECT value FROM json_each(:ids)) AND due_at IS NOT NULL
  AND NOT EXISTS (SELECT 1 FROM identity WHERE held_at IS NOT NULL)

-- name: next_schedule
-- When the next schedule is due; never in a copy that is held.
SELECT min(due_at) FROM schedules WHERE due_at IS NOT NULL AND NOT EXISTS (SELECT 1 FROM identity WHERE held_at IS NOT NULL)

-- name: next_read_schedule
-- The same, of those whose times the asker can read. Few askers cannot read all: the other has a plan that needs one row.
SELECT min(due_at) FROM schedules WHERE due_at IS NOT NULL AND NOT EXISTS (SELECT 1 FROM identity WHERE held_at IS NOT NULL)
  AND times NOT IN (SELECT value FROM json_each(:ids))

-- name: declare_schedule
-- Note what this worker declares.
INSERT INTO schedules_declared (worker, name, digest) VALUES (:worker, :name, :digest)
ON CONFLICT (worker, name) DO UPDATE SET digest = excluded.digest WHERE schedules_declared.digest <> excluded.digest

-- name: undeclare_schedules
-- Forget what workers declared that are gone, but not the messages that they have counted.
DELETE FROM schedules_declared WHERE worker <> :worker AND worker NOT IN (SELECT id FROM workers) AND substr(name, 1, 6) <> 'taken '

-- name: count_taken
-- Count messages that this worker has applied; a number is kept as text, as all is that workers say in this table.
INSERT INTO schedules_declared (worker, name, digest) VALUES (:worker, :name, CAST(:taken AS TEXT))
ON CONFLICT (worker, name) DO UPDATE SET digest = CAST(CAST(schedules_declared.digest AS BIGINT) + :taken AS TEXT)

-- name: end_taken
-- What workers that are gone have counted of a queue: to be added to its row by the worker that deletes it.
DELETE FROM schedules_declared WHERE name = :name AND worker <> :worker AND worker NOT IN (SELECT id FROM workers)
RETURNING digest

-- name: taken
-- How many messages workers have counted, by queue.
SELECT substr(name, length(:mark) + 1), CAST(sum(CAST(digest AS BIGINT)) AS BIGINT) FROM schedules_declared
WHERE substr(name, 1, length(:mark)) = :mark GROUP BY name

-- name: undeclare
-- This worker declares it no more.
DELETE FROM schedules_declared WHERE worker = :worker AND name = :name

-- name: absences
-- What workers that are there say under names that begin with a mark; there are few rows of this table for each worker.
SELECT d.name, d.digest FROM schedules_declared AS d JOIN workers ON workers.id = d.worker
WHERE substr(d.name, 1, length(:mark)) = :mark ORDER BY d.name, d.worker

-- name: schedule_declared
-- How many other workers that are there declare this.
SELECT count(*) FROM schedules_declared AS d JOIN workers ON workers.id = d.worker
WHERE d.name = :name AND d.digest = :digest AND d.worker <> :worker

-- name: schedule_seen
-- Whether this was ever declared.
SELECT 1 FROM schedules_seen WHERE name = :name AND digest = :digest

-- name: see_schedule
-- Note that it was.
INSERT INTO schedules_seen (name, digest) VALUES (:name, :digest) ON CONFLICT DO NOTHING

-- name: ahead_schedules
-- Schedules that a clock wrote which was ahead of this one.
SELECT {schedule} FROM schedules WHERE updated_at > :before ORDER BY updated_at LIMIT :limit

-- name: lock_trigger
-- One trigger, locked where the database locks rows.
SELECT {trigger} FROM triggers WHERE name = :name

-- name: trigger
-- One trigger.
SELECT {trigger} FROM triggers WHERE name = :name

-- name: triggers
-- All triggers, with how many workers that are there declare each.
SELECT {trigger}, (SELECT count(*) FROM schedules_declared AS d JOIN workers ON workers.id = d.worker
                   WHERE d.name = :mark || triggers.name)
FROM triggers ORDER BY name

-- name: put_trigger
-- Write a trigger, a new one or another in its place.
INSERT INTO triggers (name, kind, config, digest, created_at, updated_at) VALUES (:name, :kind, :config, :digest, :now, :now)
ON CONFLICT (name) DO UPDATE SET
  kind = excluded.kind, config = excluded.config, digest = excluded.digest, updated_at = excluded.updated_at

-- name: note_taken
-- Add messages that a worker took from the broker of a trigger.
UPDATE triggers SET taken = taken + :taken, lag = :lag, taken_at = coalesce(:taken_at, taken_at) WHERE name = :name

-- name: delete_trigger
-- Delete a trigger.
DELETE FROM triggers WHERE name = :name

-- name: receive_delivery
-- Keep a delivery, unless it is there.
INSERT INTO deliveries (trigger, key, kind, headers, status, attempts, due_at, error, received_at, settled_at, size, body)
VALUES (:trigger, :key, :kind, :headers, :status, :attempts, :due_at, :error, :now, :settled_at, :size, :content)
ON CONFLICT (trigger, key) DO NOTHING RETURNING key

-- name: due_deliveries
-- Deliveries of a trigger that are due, the longest first; another worker's are passed over where the database locks rows.
-- None in a copy that is held.
SELECT {delivery}, body FROM deliveries WHERE trigger = :trigger AND status = 'new' AND due_at <= :now
  AND (:kind = '' OR kind = :kind)
  AND NOT EXISTS (SELECT 1 FROM identity WHERE held_at IS NOT NULL)
ORDER BY due_at LIMIT :limit

-- name: next_delivery
-- When the first delivery of each of these triggers is due; never in a copy that is held.
SELECT (SELECT min(due_at) FROM deliveries AS d WHERE d.trigger = named.key AND d.status = 'new'
        AND (named.value = '' OR d.kind = named.value))
FROM json_each(:names) AS named WHERE NOT EXISTS (SELECT 1 FROM identity WHERE held_at IS NOT NULL)

-- name: due_triggers
-- The triggers among these of which some delivery is due.
SELECT named.key FROM json_each(:names) AS named
WHERE EXISTS (SELECT 1 FROM deliveries AS d WHERE d.trigger = named.key AND d.status = 'new' AND d.due_at <= :now
              AND (named.value = '' OR d.kind = named.value))

-- name: take_delivery
-- Give a delivery to this worker for a while, or none any more.
UPDATE deliveries SET owner = CASE WHEN :status = 'new' THEN :worker END, claims = claims + 1, due_at = :due_at, status = :status,
                      settled_at = :settled_at, error = :error
WHERE trigger = :trigger AND key = :key RETURNING {delivery}

-- name: end_delivery
-- End the turn of the worker that has a delivery.
UPDATE deliveries SET owner = NULL, status = :status, due_at = :due_at, settled_at = :settled_at, attempts = :attempts, error = :error,
                      outcome = :outcome
WHERE trigger = :trigger AND key = :key AND owner = :worker AND claims = :claims RETURNING key

-- name: leave_delivery
-- Give back a delivery that another worker should try: it is due since when it was, and counts as not taken.
UPDATE deliveries SET owner = NULL, due_at = :due_at, claims = claims - 1, error = :error
WHERE trigger = :trigger AND key = :key AND owner = :worker AND claims = :claims RETURNING key

-- name: recall_deliveries
-- Make some due that are due later than any wait is long, because a clock that was ahead wrote it. Who has one keeps it for its time.
UPDATE deliveries SET due_at = CASE WHEN owner IS NULL THEN :now ELSE :now + :ttl END
WHERE (trigger, key) IN
  (SELECT trigger, key FROM deliveries WHERE trigger = :trigger AND status = 'new' AND due_at > :until
   ORDER BY due_at DESC LIMIT :limit)
RETURNING key

-- name: recall_received
-- The same for some that a clock received that was ahead.
UPDATE deliveries SET received_at = :now, due_at = CASE WHEN owner IS NULL AND due_at > :now THEN :now ELSE due_at END
WHERE (trigger, key) IN
  (SELECT trigger, key FROM deliveries WHERE status = 'new' AND trigger = :trigger AND received_at > :until
   ORDER BY received_at DESC LIMIT :limit)
RETURNING key

-- name: release_deliveries
-- Give back what this worker has.
UPDATE deliveries SET owner = NULL, due_at = :now, claims = claims - 1 WHERE owner = :worker RETURNING key

-- name: orphan_deliveries
-- Make due what a worker had that is gone.
UPDATE deliveries SET owner = NULL, due_at = :now WHERE owner = :worker RETURNING key

-- name: replay_delivery
-- Let a delivery that is dead, or waits for its next attempt, be tried from the beginning.
UPDATE deliveries SET status = 'new', due_at = :now, attempts = 0, claims = 0, settled_at = NULL
WHERE trigger = :trigger AND key = :key AND status <> 'done' AND owner IS NULL RETURNING {delivery}

-- name: replay_dead_deliveries
-- Let deliveries that were dead at a time be tried from the beginning, the oldest first.
-- Deliveries that died much later are meant too, because a clock that was ahead wrote it.
-- The plus keeps SQLite from an index in which done deliveries stand too.
UPDATE deliveries SET status = 'new', due_at = :now, attempts = 0, claims = 0, settled_at = NULL
WHERE (trigger, key) IN (SELECT trigger, key FROM deliveries WHERE status = 'dead' AND trigger = :trigger
                           AND (+settled_at <= :until OR +settled_at > :until + 3600000)
                         ORDER BY received_at LIMIT :limit)
RETURNING key

-- name: dismiss_delivery
-- Let a delivery be that is dead, or waits for its next attempt: it ends, and nothing is done about it.
UPDATE deliveries SET status = 'done', due_at = NULL, settled_at = :now, outcome = '[]'
WHERE trigger = :trigger AND key = :key AND status <> 'done' AND owner IS NULL RETURNING {delivery}

-- name: deliveries
-- Deliveries of a trigger in a state, those that came last first.
SELECT {delivery} FROM deliveries WHERE status = :status AND trigger = :trigger AND received_at < :before
ORDER BY received_at DESC LIMIT :limit

-- name: delivery
-- One delivery with its body.
SELECT {delivery}, body FROM deliveries WHERE trigger = :trigger AND key = :key

-- name: tally_deliveries
-- How many deliveries there are, by trigger and state.
SELECT trigger, status, count(*), min(received_at), max(received_at) FROM deliveries
WHERE status IN (SELECT value FROM json_each(:statuses)) GROUP BY status, trigger

-- name: prune_deliveries
-- Delete deliveries that ended long ago.
DELETE FROM deliveries WHERE (trigger, key) IN
  (SELECT trigger, key FROM deliveries WHERE settled_at < :before ORDER BY settled_at LIMIT :limit)
RETURNING key

-- name: prune_undeclared
-- Delete deliveries that came long ago for a trigger that is not there any more, or is of another kind. What goes out has no trigger.
DELETE FROM deliveries WHERE (trigger, key) IN
  (SELECT trigger, key FROM deliveries AS d WHERE status = 'new' AND received_at < :before AND owner IS NULL
     AND substr(trigger, 1, length(:mark)) <> :mark
     AND NOT EXISTS (SELECT 1 FROM triggers AS t WHERE t.name = d.trigger AND t.kind = d.kind)
   LIMIT :limit)
RETURNING key

-- name: give_up_deliveries
-- Let some deliveries be dead that have been due since before a time, and that no worker has; of names that begin so.
UPDATE deliveries SET status = 'dead', due_at = NULL, settled_at = :now, error = :error
WHERE (trigger, key) IN
  (SELECT trigger, key FROM deliveries
   WHERE status = 'new' AND owner IS NULL AND due_at < :before AND instr(trigger, :mark) = 1
   ORDER BY due_at LIMIT :limit)
RETURNING {delivery}

-- name: announce
-- Publish, unless an announcement has this id.
INSERT INTO announcements (id, name, value, run, published_at) VALUES (:id, :name, :value, :run, :now)
ON CONFLICT (id) DO NOTHING RETURNING position

-- name: announced
-- When the announcement with this id was published, and its value or what is kept of it.
SELECT published_at, value FROM announcements WHERE id = :id

-- name: last_announcement
-- The position of the last announcement.
SELECT coalesce(max(position), 0) FROM announcements

-- name: next_announcement
-- The first announcement that waits, and when the next gathering is due; none in a copy that is held.
SELECT (SELECT min(position) FROM announcements WHERE passed_at IS NULL), (SELECT min(due_at) FROM gatherings)
WHERE NOT EXISTS (SELECT 1 FROM identity WHERE held_at IS NOT NULL)

-- name: lock_announcements
-- Be the only one that passes announcements on, until the transaction is over: each waiting run hears of them in their order.
SELECT 1

-- name: waiting_announcements
-- Announcements that wait, the first ones first; none in a copy that is held.
SELECT {announcement} FROM announcements
WHERE passed_at IS NULL AND NOT EXISTS (SELECT 1 FROM identity WHERE held_at IS NOT NULL)
ORDER BY position LIMIT :limit

-- name: compared_fields
-- The next fields that subscriptions to these announcements compare.
SELECT min(fields) FROM subscriptions WHERE name = :name AND fields > :after

-- name: subscribers
-- The waiters for an announcement whose fields have these digests, behind the last one that was told.
SELECT run, topic FROM subscriptions
WHERE name = :name AND wanted IN (SELECT value FROM json_each(:keys)) AND since < :position AND (run, topic) > (:run, :topic)
ORDER BY run, topic LIMIT :limit

-- name: reach
-- Note how far an announcement was passed on.
UPDATE announcements SET reached_run = :run, reached = :topic WHERE position = :position

-- name: passed
-- An announcement was passed on to all; its id stays for a while, and the digest of its value if others may have the same id.
UPDATE announcements SET passed_at = :now, value = :value WHERE position = :position

-- name: set_aside
-- An announcement could not be passed on: it waits no more, and its value stays to be looked at as long as its id is known.
UPDATE announcements SET passed_at = :now WHERE position = :position AND passed_at IS NULL RETURNING position

-- name: prune_announcements
-- Forget announcements of long ago, but for the last one: positions count on from it.
DELETE FROM announcements WHERE position IN
  (SELECT position FROM announcements WHERE passed_at < :before ORDER BY passed_at LIMIT :limit)
  AND position < (SELECT max(position) FROM announcements)
RETURNING position

-- name: subscribe
-- Wait for announcements from now on; one that waits already goes on.
INSERT INTO subscriptions (run, topic, name, fields, wanted, since)
VALUES (:run, :topic, :name, :fields, :wanted, (SELECT coalesce(max(position), 0) FROM announcements))
ON CONFLICT (run, topic) DO UPDATE SET name = excluded.name, since = excluded.since
WHERE subscriptions.name <> excluded.name

-- name: unsubscribe
-- Wait for it no more.
DELETE FROM subscriptions WHERE run = :run AND topic = :topic

-- name: unsubscribe_runs
-- Forget what these runs waited for.
DELETE FROM subscriptions WHERE run <> '' AND run IN (SELECT value FROM json_each(:ids))

-- name: awaited
-- The announcements that a run waits for, as its history tells.
SELECT data FROM events WHERE run_id = :run AND kind = 'announcement.awaited' AND dropped IS NULL
UNION ALL
SELECT data FROM {shared} AND kind = 'announcement.awaited'

-- name: gather
-- Add to a gathering, or begin one.
INSERT INTO gatherings (trigger, bucket, key, began_at, due_at, count, size, most)
VALUES (:trigger, :bucket, :key, :now, :due_at, 1, :size, :most)
ON CONFLICT (trigger, bucket) DO UPDATE SET
  most = excluded.most, count = gatherings.count + 1, size = gatherings.size + excluded.size,
  due_at = CASE WHEN :quiet IS NULL OR gatherings.began_at + coalesce(:within, 1000000000000) < :now + :quiet
                THEN gatherings.began_at + coalesce(:within, 1000000000000) ELSE :now + :quiet END
RETURNING count, size

-- name: put_gathered
-- Keep what was gathered.
INSERT INTO gathered (trigger, bucket, position, value) VALUES (:trigger, :bucket, :position, :value)
ON CONFLICT (trigger, bucket, position) DO NOTHING

-- name: keep_last
-- Keep the last of what was gathered, and no other.
DELETE FROM gathered WHERE trigger = :trigger AND bucket = :bucket
  AND position < (SELECT max(position) FROM gathered WHERE trigger = :trigger AND bucket = :bucket)

-- name: due_gatherings
-- Gatherings that are due; another worker's are passed over where the database locks rows. None in a copy that is held.
SELECT trigger, bucket FROM gatherings WHERE due_at <= :now AND NOT EXISTS (SELECT 1 FROM identity WHERE held_at IS NOT NULL)
ORDER BY due_at LIMIT :limit

-- name: gathering_triggers
-- What is declared for triggers of this kind.
SELECT name, config FROM triggers WHERE kind = :kind

-- name: recall_gatherings
-- Make gatherings of a trigger due that are due later than their wait is long, because a clock that was ahead wrote it.
UPDATE gatherings SET due_at = :now WHERE trigger = :trigger AND due_at > :until RETURNING bucket

-- name: gathered
-- What was gathered, in order.
SELECT value, position FROM gathered WHERE trigger = :trigger AND bucket = :bucket ORDER BY position

-- name: end_gathering
-- End a gathering; the key of the delivery that it becomes, and how many it was to have.
DELETE FROM gatherings WHERE trigger = :trigger AND bucket = :bucket RETURNING key, most

-- name: note_debounced
-- Note which one is started, unless a later one was.
INSERT INTO debounced (trigger, bucket, position, started_at) VALUES (:trigger, :bucket, :position, :now)
ON CONFLICT (trigger, bucket) DO UPDATE SET position = excluded.position, started_at = excluded.started_at
WHERE debounced.position < excluded.position RETURNING position

-- name: prune_debounced
-- Forget which ones were started long ago.
DELETE FROM debounced WHERE (trigger, bucket) IN
  (SELECT trigger, bucket FROM debounced WHERE started_at < :before ORDER BY started_at LIMIT :limit)
RETURNING position

-- name: delete_gathered
-- And what was gathered.
DELETE FROM gathered WHERE trigger = :trigger AND bucket = :bucket

-- name: files
-- Files that a trigger has found, a page of them.
SELECT path, digest, mark FROM files WHERE trigger = :trigger AND (path, digest) > (:path, :digest) ORDER BY path, digest LIMIT :limit

-- name: put_file
-- Note that a file was found, or that it looks otherwise and is the same.
INSERT INTO files (trigger, path, digest, mark, seen_at) VALUES (:trigger, :path, :digest, :mark, :now)
ON CONFLICT (trigger, path, digest) DO UPDATE SET mark = excluded.mark, seen_at = excluded.seen_at

-- name: file_found
-- Tell whether this was found before.
SELECT 1 FROM files WHERE trigger = :trigger AND path = :path AND digest = :digest

-- name: see_files
-- Files that are still there.
UPDATE files SET seen_at = :now WHERE trigger = :trigger AND path IN (SELECT value FROM json_each(:names))

-- name: prune_files
-- Forget files that are gone for long.
DELETE FROM files WHERE trigger = :trigger AND seen_at < :before

-- name: notification
-- One notification.
SELECT {notification} FROM notifications WHERE name = :name

-- name: notifications
-- All notifications.
SELECT {notification} FROM notifications ORDER BY name

-- name: lock_notification
-- One notification, locked where the database locks rows.
SELECT {notification} FROM notifications WHERE name = :name

-- name: lock_notifications
-- The notifications that are active, locked where the database locks rows; none in a copy that is held.
SELECT {notification} FROM notifications
WHERE state = 'active' AND NOT EXISTS (SELECT 1 FROM identity WHERE held_at IS NOT NULL) ORDER BY name

-- name: put_notification
-- Write a notification: a new one at a place in the feed, or another in its place, which keeps its own.
INSERT INTO notifications (name, config, state, position, made_by, created_at, updated_at)
VALUES (:name, :config, 'active', :position, :made_by, :now, :now)
ON CONFLICT (name) DO UPDATE SET config = excluded.config, made_by = excluded.made_by, updated_at = excluded.updated_at
RETURNING {notification}

-- name: steer_notification
-- Pause a notification or let it go on, from a place in the feed.
UPDATE notifications SET state = :state, position = :position, updated_at = :now WHERE name = :name RETURNING {notification}

-- name: move_notifications
-- Move the active notifications on in the feed.
UPDATE notifications SET position = :position WHERE state = 'active' AND position < :position

-- name: delete_notification
-- Delete a notification.
DELETE FROM notifications WHERE name = :name

-- name: drop_deliveries
-- Delete what is not done of a trigger.
DELETE FROM deliveries WHERE trigger = :trigger AND status IN ('new', 'dead')

-- name: runs_named
-- These runs, as far as they are there.
SELECT {run} FROM runs WHERE id IN (SELECT value FROM json_each(:ids))
