-- Statements that PostgreSQL needs in other words than SQLite, by the same names. The head of the other queries.sql says
-- what they mean; here is only what differs.
--
-- Rows are locked, not the file. A transaction that locks several runs locks them in the order of their ids (`lock_runs`,
-- `append`, `heartbeat`), so that two cannot wait for each other; a claim passes over locked rows. Where it happens all the
-- same (two batches that create the same runs in another order), PostgreSQL ends one of them, and it is tried again.
--
-- Positions. The feed must be in the order in which events become visible, and a sequence is not: the transaction that took
-- the lower number may commit later, when a reader has passed it. So a position is the number of the transaction and a count
-- within it, and the feed is read only up to the oldest transaction that may still commit.

-- name: appending
-- A batch of appends that go on, in one round trip: fences all runs and writes the events of those that are ours.
WITH locked AS MATERIALIZED (
  SELECT id FROM runs WHERE id = ANY (:run[]) ORDER BY id FOR NO KEY UPDATE),
reserved AS (
  UPDATE runs
  SET next_seq = f.next_seq, updated_at = :now, steps = runs.steps + f.steps,
      crash_count = CASE WHEN f.progress = 1 THEN 0 ELSE crash_count END,
      checkpoint_seq = coalesce(f.checkpoint_seq, runs.checkpoint_seq),
      inbox_seen = coalesce(f.inbox_seen, runs.inbox_seen)
  FROM unnest(:run[], :epoch[], :expected[], :next_seq[], :steps[], :progress[], :checkpoint_seq[], :inbox_seen[])
       AS f (run, epoch, expected, next_seq, steps, progress, checkpoint_seq, inbox_seen)
  JOIN locked ON locked.id = f.run
  WHERE runs.id = f.run AND lease_epoch = f.epoch AND runs.next_seq = f.expected AND status = 'running'
  RETURNING runs.id),
recorded AS (
  INSERT INTO events (position, run_id, seq, kind, key, data, value, blob, epoch, at)
  SELECT ((pg_current_xact_id()::text::bigint + (SELECT base FROM positions)) << 20) + e.place,
         e.run, e.seq, e.kind, e.key, e.data, e.value, e.blob, e.of_epoch, :now
  FROM unnest(:event_run[], :seq[], :kind[], :key[], :data[], :value[], :blob[], :event_epoch[])
       WITH ORDINALITY AS e (run, seq, kind, key, data, value, blob, of_epoch, place)
  JOIN reserved ON reserved.id = e.run)

-- name: append
-- The whole of it.
{appending}
SELECT id FROM reserved

-- name: append_text
-- The same with what runs have written to streams.
{appending},
streamed AS (
  INSERT INTO chunks (run_id, stream, position, kind, data, key, attempt, began, reason, epoch, at)
  SELECT c.run, c.stream, c.position, c.kind, c.content, c.key, c.attempt, c.began, c.reason, c.of_epoch, :now
  FROM unnest(:chunk_run[], :stream[], :position[], :chunk_kind[], :content[], :chunk_key[], :attempt[], :began[],
              :reason[], :chunk_epoch[])
       AS c (run, stream, position, kind, content, key, attempt, began, reason, of_epoch)
  JOIN reserved ON reserved.id = c.run
  ON CONFLICT DO NOTHING)
SELECT id FROM reserved

-- name: insert_chunk
INSERT INTO chunks (run_id, stream, position, kind, data, key, attempt, began, reason, epoch, at)
SELECT * FROM unnest(:run[], :stream[], :position[], :kind[], :content[], :key[], :attempt[], :began[], :reason[], :epoch[],
                     :now[])
ON CONFLICT DO NOTHING

-- name: lock_runs
-- First statement of a transaction that changes several runs: these, the parents of those that leave (above one that has
-- ended the next one too, because it may be told), and those that get the conversations that these have.
WITH RECURSIVE named (member) AS (SELECT unnest(:run[])),
line (member, above) AS (
  SELECT parents.id, CASE WHEN parents.finished_at IS NOT NULL THEN parents.parent_id END
  FROM runs JOIN runs AS parents ON parents.id = runs.parent_id WHERE runs.id = ANY (:leaving[])
  UNION SELECT runs.id, CASE WHEN runs.finished_at IS NOT NULL THEN runs.parent_id END
  FROM line JOIN runs ON runs.id = line.above)
SELECT id FROM runs
WHERE id IN (SELECT member FROM named UNION SELECT member FROM line
             UNION SELECT (SELECT line.run_id FROM conversation_line AS line WHERE line.conversation = conversations.id
                           ORDER BY place LIMIT 1)
                   FROM conversations WHERE conversations.run_id = ANY (:leaving[]))
ORDER BY id FOR NO KEY UPDATE

-- name: reserve
UPDATE runs
SET next_seq = f.next_seq, updated_at = f.now, steps = runs.steps + f.steps,
    crash_count = CASE WHEN f.progress = 1 THEN 0 ELSE crash_count END,
    checkpoint_seq = coalesce(f.checkpoint_seq, runs.checkpoint_seq),
    inbox_seen = coalesce(f.inbox_seen, runs.inbox_seen)
FROM unnest(:next_seq[], :now[], :steps[], :progress[], :checkpoint_seq[], :inbox_seen[], :run[], :epoch[], :expected[])
     AS f (next_seq, now, steps, progress, checkpoint_seq, inbox_seen, run, epoch, expected)
WHERE id = f.run AND lease_epoch = f.epoch AND runs.next_seq = f.expected AND status = 'running'

-- name: pieces
CASE WHEN runs.life IS NULL THEN '' WHEN length(runs.life) < 312 THEN runs.life
ELSE substr(CAST(1000000000000 + CAST(substr(runs.life, 1, 12) AS BIGINT) + CAST(substr(runs.life, 14, 12) AS BIGINT)
                 + CAST(substr(runs.life, 27, 12) AS BIGINT) AS TEXT), 2)
     || substr(greatest(substr(runs.life, 1, 13), substr(runs.life, 14, 13), substr(runs.life, 27, 13)), 13, 1)
     || substr(runs.life, 40) END

-- name: in_states
SELECT runs.id FROM runs WHERE runs.status IN (SELECT value FROM json_each(:statuses))

-- name: tried
(EXISTS (SELECT 1 FROM events WHERE events.run_id = runs.id AND seq >= next_seq - 40 AND kind = 'step.retrying' AND dropped IS NULL
           AND (data::json ->> 'attempt')::bigint >= :attempt
           AND NOT EXISTS (SELECT 1 FROM events AS over WHERE over.run_id = runs.id AND over.seq > events.seq
                             AND over.key = events.key AND over.kind IN ('step.completed', 'step.failed', 'step.cancelled')))
 OR EXISTS (SELECT 1 FROM open_calls CROSS JOIN json_array_elements(calls::json) AS call
            WHERE open_calls.run_id = runs.id AND epoch = lease_epoch AND (call ->> 3)::bigint >= :attempt))

-- name: publish_calls
-- In the order of runs, as all that changes several.
INSERT INTO open_calls (run_id, worker, epoch, many, calls, at)
SELECT c.run, c.worker, c.epoch, c.many, c.calls, c.now
FROM unnest(:run[], :worker[], :epoch[], :many[], :calls[], :now[]) AS c (run, worker, epoch, many, calls, now)
JOIN runs ON runs.id = c.run AND status = 'running' AND lease_epoch = c.epoch
ORDER BY c.run
ON CONFLICT (run_id) DO UPDATE
SET worker = excluded.worker, epoch = excluded.epoch, many = excluded.many, calls = excluded.calls, at = excluded.at

-- name: leave
UPDATE runs
SET next_seq = f.next_seq, updated_at = f.now, steps = runs.steps + f.steps,
    crash_count = CASE WHEN f.progress = 1 THEN 0 ELSE crash_count END,
    checkpoint_seq = coalesce(f.checkpoint_seq, runs.checkpoint_seq),
    inbox_seen = coalesce(f.inbox_seen, runs.inbox_seen),
    status = f.status, due_at = f.due_at, waits_for = f.waits_for, awaits = f.awaits, result = f.result, error = f.error,
    reason = f.reason, finished_at = f.finished_at, lease_owner = NULL,
    life = {pieces} || substr(CAST(1000000000000 + greatest(0, f.now - {since}) AS TEXT), 2) || 'w', life_at = f.now,
    worked_ms = worked_ms + greatest(0, f.now - {since})
FROM unnest(:next_seq[], :now[], :steps[], :progress[], :checkpoint_seq[], :inbox_seen[], :status[], :due_at[],
            :waits_for[], :awaits[], :result[], :error[], :reason[], :finished_at[], :run[], :epoch[], :expected[],
            :unseen_after[])
     AS f (next_seq, now, steps, progress, checkpoint_seq, inbox_seen, status, due_at, waits_for, awaits, result, error,
           reason, finished_at, run, epoch, expected, unseen_after)
WHERE id = f.run AND lease_epoch = f.epoch AND runs.next_seq = f.expected AND runs.status = 'running'
  AND (f.unseen_after IS NULL OR inbox_count <= f.unseen_after)
RETURNING id, parent_id, limit_key

-- name: spend
INSERT INTO spending (run_id, what, usd, input_tokens, output_tokens, model_calls, unpriced, steps)
SELECT * FROM unnest(:run[], :what[], :usd[], :input_tokens[], :output_tokens[], :model_calls[], :unpriced[], :steps[])
ON CONFLICT (run_id, what) DO UPDATE
SET usd = spending.usd + excluded.usd, input_tokens = spending.input_tokens + excluded.input_tokens,
    output_tokens = spending.output_tokens + excluded.output_tokens,
    model_calls = spending.model_calls + excluded.model_calls, unpriced = spending.unpriced + excluded.unpriced,
    steps = spending.steps + excluded.steps

-- name: record
INSERT INTO events (position, run_id, seq, kind, key, data, value, blob, epoch, at)
SELECT ((pg_current_xact_id()::text::bigint + (SELECT base FROM positions)) << 20) + :number + e.place,
       e.run, e.seq, e.kind, e.key, e.data, e.value, e.blob, e.epoch, e.now
FROM unnest(:run[], :seq[], :kind[], :key[], :data[], :value[], :blob[], :epoch[], :now[])
     WITH ORDINALITY AS e (run, seq, kind, key, data, value, blob, epoch, now, place)

-- name: insert_message
INSERT INTO conversation_messages (conversation, position, value, run_id, at)
SELECT * FROM unnest(:conversation[], :position[], :value[], :run[], :now[])

-- name: pick
-- What another worker is taking is passed over, not waited for.
{due} FOR NO KEY UPDATE SKIP LOCKED

-- name: simple
-- What may go from the inbox into the journal without its owner: it is for the agent, and not large.
(kind IN ('message.received', 'approval.decided') AND (value IS NULL OR strpos(value, '$blob') = 0))

-- name: arrival
-- What its event says, as the owner would write it.
CASE WHEN arrived.data IS NULL THEN '{' ELSE left(arrived.data, -1) || ',' END
|| CASE arrived.kind WHEN 'approval.decided' THEN '"approval":' || to_json(arrived.topic)
   ELSE '"topic":' || to_json(arrived.topic) || ',"position":' || arrived.position END || '}'

-- name: claim_plain
-- A claim in one round trip: looks, and takes what is due if none of it needs a slot, a turn or the event that it was
-- interrupted. The first columns say how many were due and how many of them need more; there is one row at least.
-- What woke a waiting run goes into its journal with the claim, as its owner would do next: then that commit is spared. Not
-- if a timer was due before it came, because that comes first, nor what is large, nor what is not for the agent. A short journal
-- comes with the run, which spares its owner a read, and so does the word that no life of it wrote to a stream. All this is
-- as it was when the statement began: a run that changed before it was locked needs more, too.
WITH picked AS MATERIALIZED (
  SELECT id AS picked_id, due_at AS was_due, next_seq AS first, inbox_seen AS seen,
         status = 'running' OR limit_key IS NOT NULL OR rate_key IS NOT NULL
         OR ctid <> (SELECT ctid FROM runs AS before WHERE before.id = runs.id) AS needs_more,
         CASE WHEN status = 'waiting' AND inbox_count - inbox_seen BETWEEN 1 AND 10
         THEN (SELECT count(*) FROM signals WHERE run_id = runs.id AND position > inbox_seen
               HAVING count(*) = inbox_count - inbox_seen AND bool_and({simple} AND sent_at <= due_at)) END AS arrivals
  FROM runs
  WHERE {takeable}
  ORDER BY priority DESC, due_at LIMIT :limit FOR NO KEY UPDATE SKIP LOCKED),
found AS (SELECT count(*) AS due, count(*) FILTER (WHERE needs_more) AS needing FROM picked),
claimed AS (
  UPDATE runs
  SET status = 'running', lease_owner = :worker, lease_epoch = lease_epoch + 1, due_at = :now + :ttl,
      started_at = coalesce(started_at, :now), waits_for = NULL, awaits = NULL, updated_at = :now, lease_claim = :claim,
      life = {lived}, life_at = :now, next_seq = next_seq + coalesce(arrivals, 0), inbox_seen = inbox_seen + coalesce(arrivals, 0)
  FROM found, picked WHERE id = picked_id AND needing = 0
  RETURNING was_due, first, seen, {run}),
recorded AS (
  INSERT INTO events (position, run_id, seq, kind, key, data, value, blob, epoch, at)
  SELECT ((pg_current_xact_id()::text::bigint + (SELECT base FROM positions)) << 20)
         + row_number() OVER (ORDER BY arrived.run_id, arrived.position),
         run_id, first + arrived.position - seen - 1, arrived.kind, NULL,
         {arrival}, value, NULL, lease_epoch, :now
  FROM claimed JOIN signals AS arrived ON run_id = claimed.id AND position > seen AND position <= inbox_seen
  RETURNING run_id, seq, kind, data, value)
SELECT due, needing, claimed.*, claimed.id IS NOT NULL AND NOT EXISTS (SELECT 1 FROM chunks WHERE run_id = claimed.id),
       CASE WHEN next_seq - coalesce(checkpoint_seq, 0) <= :short THEN
         (SELECT json_agg(json_build_array(seq, kind, key, data, value, blob, at, epoch) ORDER BY seq)
          FROM (SELECT seq, kind, key, data, value, blob, at, epoch FROM events
                WHERE run_id = claimed.id AND seq >= coalesce(checkpoint_seq, 0) AND dropped IS NULL
                UNION ALL
                SELECT seq, kind, NULL, data, value, NULL, :now, lease_epoch FROM recorded
                WHERE run_id = claimed.id) AS known) END
FROM found LEFT JOIN claimed ON true ORDER BY priority DESC, was_due

-- name: take_plain
-- What came to a run that a worker carries goes into its journal, in one round trip: read, fenced and recorded. Nothing of it
-- if any of it is not simple, or much. Who sends has the run's row to himself, so what is seen here has no gaps. There is one
-- row at least: how much came.
WITH arrived AS MATERIALIZED (
  SELECT position, kind, topic, value, data, row_number() OVER (ORDER BY position) AS nth
  FROM signals WHERE run_id = :run AND position > :inbox_seen ORDER BY position LIMIT :limit),
found AS (
  SELECT count(*) AS came, count(*) < :limit AND max(position) = :inbox_seen + count(*) AND bool_and({simple}) AS fit
  FROM arrived),
reserved AS (
  UPDATE runs
  SET next_seq = next_seq + came, inbox_seen = :inbox_seen + came, crash_count = 0, updated_at = :now
  FROM found
  WHERE id = :run AND fit AND status = 'running' AND lease_epoch = :epoch AND next_seq = :expected
    AND runs.inbox_seen <= :inbox_seen
  RETURNING id),
recorded AS (
  INSERT INTO events (position, run_id, seq, kind, key, data, value, blob, epoch, at)
  SELECT ((pg_current_xact_id()::text::bigint + (SELECT base FROM positions)) << 20) + nth,
         reserved.id, :expected + nth - 1, arrived.kind, NULL, {arrival}, value, NULL, :epoch, :now
  FROM arrived, reserved
  RETURNING seq, kind, data, value)
SELECT came, seq, kind, data, value FROM found LEFT JOIN recorded ON true ORDER BY seq

-- name: send_plain
-- A signal in one round trip, if its run takes any and this one did not come before.
WITH told AS (
  UPDATE runs
  SET inbox_count = inbox_count + 1, due_at = {woken}
  WHERE id = :run AND status IN ('ready', 'running', 'waiting', 'paused')
    AND NOT EXISTS (SELECT 1 FROM signals WHERE run_id = :run AND signal_id = :signal_id)
  RETURNING inbox_count),
noted AS (
  INSERT INTO audit (at, run_id, actor, action, data, via)
  SELECT :now, :run, :actor, 'send', '{"topic":' || to_json(:topic) || ',"position":' || inbox_count || '}', :via
  FROM told WHERE :actor <> '')
INSERT INTO signals (run_id, position, signal_id, kind, topic, value, data, sent_at)
SELECT :run, inbox_count, :signal_id, :kind, :topic, :value, :data, :now FROM told
RETURNING position

-- name: send_many
-- Signals that are sent at once, each as by `send_plain`, in one round trip and with one change of each run's row: its versions of one
-- transaction could not be pruned before that ends. The rows are locked already, so what is seen here has no gaps. Looks for each id
-- by itself, because a join that was planned when the table was empty would read all of it.
WITH sent AS MATERIALIZED (
  SELECT DISTINCT ON (run, signal_id) *
  FROM unnest(:run[], :signal_id[], :kind[], :topic[], :value[], :data[], :token[], :actor[], :via[])
       WITH ORDINALITY AS s (run, signal_id, kind, topic, value, data, token, actor, via, nth)
  WHERE (SELECT before.position FROM signals AS before WHERE before.run_id = s.run AND before.signal_id = s.signal_id) IS NULL
  ORDER BY run, signal_id, nth),
told AS (
  UPDATE runs
  SET inbox_count = inbox_count + many,
      due_at = CASE WHEN runs.status = 'waiting' AND (due_at IS NULL OR due_at > :now)
                     AND (awaits IS NULL OR tokens && ARRAY(SELECT json_array_elements_text(awaits::json)))
               THEN :now ELSE due_at END
  FROM (SELECT run, count(*) AS many, array_agg(token) AS tokens FROM sent GROUP BY run) AS each
  WHERE id = ANY (:run[]) AND id = each.run AND status IN ('ready', 'running', 'waiting', 'paused')
  RETURNING id, inbox_count - many AS before),
placed AS MATERIALIZED (
  SELECT sent.*, before + row_number() OVER (PARTITION BY run ORDER BY nth) AS position FROM sent JOIN told ON id = run),
noted AS (
  INSERT INTO audit (at, run_id, actor, action, data, via)
  SELECT :now, run, actor, 'send', '{"topic":' || to_json(topic) || ',"position":' || position || '}', via
  FROM placed WHERE actor <> '' ORDER BY nth)
INSERT INTO signals (run_id, position, signal_id, kind, topic, value, data, sent_at)
SELECT run, position, signal_id, kind, topic, value, data, :now FROM placed ORDER BY nth
RETURNING run_id, signal_id, position

-- name: start_plain
-- A run and the row of the audit for it in one round trip; nothing of both if it is there.
WITH started AS ({insert_run}),
noted AS (
  INSERT INTO audit (at, run_id, actor, action, data, via) SELECT :now, id, :actor, 'start', :told, :via FROM started)
SELECT {run} FROM started

-- name: decide_plain
-- What a person said in one round trip, if the question is still as it was known: the run's row is locked first, as always.
WITH held AS (
  SELECT id FROM runs WHERE id = :run AND status IN ('ready', 'running', 'waiting', 'paused')
    AND NOT EXISTS ({asked_to_stop}) FOR NO KEY UPDATE),
decided AS (
  UPDATE approvals
  SET status = :status, digest = :digest, data = :data, needs = :needs, votes = :votes, delegations = :delegations,
      decided_at = :decided_at, decided_by = :by, decision = :decision, note = :note
  FROM held
  WHERE approvals.id = :approval AND run_id = held.id AND status = :status_before AND votes = :votes_before
    AND delegations = :passed_before AND digest = :digest_before AND needs = :needs_before
  RETURNING run_id),
told AS (
  UPDATE runs
  SET inbox_count = inbox_count + 1, due_at = {woken}
  FROM decided WHERE runs.id = decided.run_id
  RETURNING inbox_count),
signalled AS (
  INSERT INTO signals (run_id, position, signal_id, kind, topic, value, data, sent_at)
  SELECT :run, inbox_count, :signal_id, :kind, :approval, :value, :told, :now FROM told),
noted AS (
  INSERT INTO audit (at, run_id, actor, action, data, via, value)
  SELECT :now, :run, :actor, :action, :told, :via, :about FROM decided)
SELECT run_id FROM decided

-- name: lock_counts
-- One lock for all keys: many pieces of work share a transaction, and with a lock for each key two transactions could wait
-- for each other.
SELECT pg_advisory_xact_lock(hashtextextended(current_schema() || ': counts', 0))

-- name: wake
UPDATE runs SET due_at = created_at, updated_at = :now
WHERE id IN (SELECT id FROM runs WHERE limit_key = :key AND waits_for = 'slot' AND due_at IS NULL
             ORDER BY created_at, id LIMIT :limit FOR NO KEY UPDATE SKIP LOCKED)
RETURNING id

-- name: wake_ours
UPDATE runs SET due_at = created_at, updated_at = :now
WHERE id IN (SELECT id FROM runs WHERE limit_key = :key AND waits_for = 'slot' AND due_at IS NULL AND {ours}
             ORDER BY created_at, id LIMIT :limit FOR NO KEY UPDATE SKIP LOCKED)
RETURNING id

-- name: heartbeat
-- Rows that are locked just now are left for `heartbeat_rest`: one that stays locked must not keep the others waiting.
WITH mine AS MATERIALIZED (
  SELECT id FROM runs WHERE lease_owner = :worker AND status = 'running' ORDER BY id FOR NO KEY UPDATE SKIP LOCKED)
UPDATE runs SET due_at = :now + :ttl FROM mine WHERE runs.id = mine.id
RETURNING runs.id, lease_epoch, inbox_count

-- name: heartbeat_rest
-- The leases that were not prolonged by this heartbeat.
WITH mine AS MATERIALIZED (
  SELECT id FROM runs WHERE lease_owner = :worker AND status = 'running'
    AND id NOT IN (SELECT value FROM json_each(:ids))
  ORDER BY id FOR NO KEY UPDATE)
UPDATE runs SET due_at = :now + :ttl FROM mine WHERE runs.id = mine.id
RETURNING runs.id, lease_epoch, inbox_count

-- name: insert_blob
-- A large value that is there already is locked, so that a transaction that deletes it looks again when our event names it.
INSERT INTO blobs (digest, content) VALUES (:digest, :content) ON CONFLICT (digest) DO UPDATE SET digest = excluded.digest

-- name: lock_blob
SELECT digest FROM blobs WHERE digest = :digest FOR UPDATE

-- name: insert_part
INSERT INTO parts (digest, content) SELECT * FROM unnest(:digest[], :value[]) ON CONFLICT (digest) DO NOTHING

-- name: use_part
INSERT INTO part_uses (run_id, digest) SELECT * FROM unnest(:run[], :digest[]) ON CONFLICT DO NOTHING

-- name: hold_parts
-- Any number of writers share this lock; only a transaction that deletes waits for it.
SELECT digest FROM parts WHERE digest IN (SELECT value FROM json_each(:ids)) ORDER BY digest FOR KEY SHARE

-- name: lock_parts
SELECT digest FROM parts WHERE digest IN (SELECT value FROM json_each(:ids)) ORDER BY digest FOR UPDATE

-- name: outline_of
-- As a subquery the keys are hashed; as an array every row would be compared with each of them.
SELECT seq, kind, key, data, NULL::text, blob, at, epoch, position, dropped FROM events
WHERE run_id = :run AND seq >= :from_seq
  AND (key IN (SELECT json_array_elements_text(:keys::json)) OR kind IN (SELECT json_array_elements_text(:kinds::json)))
  AND (:with_dropped = 1 OR dropped IS NULL)
UNION ALL
SELECT seq, kind, events.key, data, NULL::text, blob, at, epoch, position, NULL FROM {shared}
  AND seq >= :from_seq
  AND (events.key IN (SELECT json_array_elements_text(:keys::json))
       OR kind IN (SELECT json_array_elements_text(:kinds::json)))
ORDER BY seq

-- name: begun_before
SELECT key, dropped FROM events
WHERE run_id = :run AND seq < :end AND kind IN (SELECT value FROM json_each(:kinds))
  AND key IN (SELECT json_array_elements_text(:keys::json))
UNION
SELECT events.key, CASE WHEN dropped < seen THEN dropped END FROM {shares}
  AND seq < :end AND kind IN (SELECT value FROM json_each(:kinds))
  AND events.key IN (SELECT json_array_elements_text(:keys::json))

-- name: events_at
SELECT seq, kind, key, data, value, blob, at, epoch, position, dropped FROM events
WHERE run_id = :run AND seq = ANY (ARRAY(SELECT json_array_elements_text(:ids::json)::bigint))
UNION ALL
SELECT seq, kind, events.key, data, value, blob, at, epoch, position, CASE WHEN dropped < seen THEN dropped END FROM {shares}
  AND seq = ANY (ARRAY(SELECT json_array_elements_text(:ids::json)::bigint))
ORDER BY seq

-- name: event_lines_at
SELECT {line}, dropped, length(value) FROM events
WHERE run_id = :run AND seq = ANY (ARRAY(SELECT json_array_elements_text(:ids::json)::bigint))
UNION ALL
SELECT {line}, CASE WHEN dropped < seen THEN dropped END, length(value) FROM {shares}
  AND seq = ANY (ARRAY(SELECT json_array_elements_text(:ids::json)::bigint))
ORDER BY seq

-- name: family
-- Locked: none of them may be resumed while it is deleted.
WITH RECURSIVE tree (id) AS (SELECT id FROM runs WHERE id = :run
                             UNION SELECT runs.id FROM tree JOIN runs ON runs.parent_id = tree.id)
SELECT runs.id, runs.status FROM tree JOIN runs ON runs.id = tree.id ORDER BY runs.id FOR UPDATE OF runs

-- name: below
WITH RECURSIVE tree (member, depth) AS (
  SELECT id, 1 FROM runs WHERE parent_id = :run
  UNION ALL SELECT runs.id, tree.depth + 1 FROM tree JOIN runs ON runs.parent_id = tree.member)
SELECT depth, {run} FROM tree JOIN runs ON runs.id = tree.member WHERE finished_at IS NULL
ORDER BY id FOR NO KEY UPDATE OF runs

-- name: failed_below
WITH RECURSIVE tree (member) AS (
  SELECT id FROM runs WHERE parent_id = :run AND status = 'failed'
  UNION ALL SELECT runs.id FROM tree JOIN runs ON runs.parent_id = tree.member WHERE runs.status = 'failed')
SELECT {run} FROM tree JOIN runs ON runs.id = tree.member WHERE status = 'failed'
ORDER BY id FOR NO KEY UPDATE OF runs

-- name: above
WITH RECURSIVE line (member, above) AS (
  SELECT id, parent_id FROM runs WHERE id = :run
  UNION ALL SELECT runs.id, runs.parent_id FROM line JOIN runs ON runs.id = line.above)
SELECT id, status FROM line JOIN runs ON runs.id = line.member ORDER BY id FOR NO KEY UPDATE OF runs

-- name: last_position
-- A transaction's number is never given again: no mark is needed.
SELECT NULL::bigint

-- name: feed
SELECT seq, kind, key, data, value, blob, at, epoch, position, dropped, run_id FROM events
WHERE position > :position AND left(run_id, 1) <> '#'
  AND position < (SELECT (pg_snapshot_xmin(pg_current_snapshot())::text::bigint + base) << 20 FROM positions)
  AND (:kinds IS NULL OR kind = ANY (ARRAY(SELECT json_array_elements_text(:kinds::json))))
ORDER BY position LIMIT :limit

-- name: visible
-- A transaction in flight may still take a place before those that were committed already.
left(run_id, 1) <> '#'
  AND position < (SELECT (pg_snapshot_xmin(pg_current_snapshot())::text::bigint + base) << 20 FROM positions)

-- name: feed_reach
-- A transaction in flight may still take a place before those that were committed already.
SELECT (pg_snapshot_xmin(pg_current_snapshot())::text::bigint + base) << 20,
       (pg_snapshot_xmax(pg_current_snapshot())::text::bigint + base) << 20 FROM positions

-- name: hold
-- Hold our incarnation's lock until this session ends.
SELECT pg_advisory_lock(hashtextextended(current_schema() || ':' || :worker, 0))

-- name: seize
-- Take a dead incarnation's lock for this transaction; false when it is alive, or another process buries it.
SELECT pg_try_advisory_xact_lock(hashtextextended(current_schema() || ':' || :worker, 0))

-- name: workers
-- All incarnations that said they are there, and whether their session holds their lock.
SELECT id, agents, queues, started_at, seen_at, EXISTS (
  SELECT 1 FROM pg_locks
  WHERE locktype = 'advisory' AND granted AND objsubid = 1
    AND database = (SELECT oid FROM pg_database WHERE datname = current_database())
    AND ((classid::bigint << 32) | objid::bigint) = hashtextextended(current_schema() || ':' || workers.id, 0))
FROM workers ORDER BY started_at, id

-- name: raise_base
-- A restored dump has positions beyond the transactions of its new home: the next ones come after them.
UPDATE positions SET base = highest - pg_snapshot_xmax(pg_current_snapshot())::text::bigint + 1
FROM (SELECT max(position) >> 20 AS highest FROM events) AS newest
WHERE highest >= pg_snapshot_xmax(pg_current_snapshot())::text::bigint + base

-- name: raise_base_to
-- The positions to come are beyond this one.
UPDATE positions SET base = greatest(base, (:position >> 20) - pg_snapshot_xmax(pg_current_snapshot())::text::bigint + 1)

-- name: time
-- The time of the database, which all its workers share. Cut off and not rounded: it is never ahead.
SELECT floor(extract(epoch FROM clock_timestamp()) * 1000)::bigint

-- name: newest_transaction
-- Changes with every transaction of any session that wrote something. The time comes with it.
SELECT pg_snapshot_xmax(pg_current_snapshot())::text::bigint, floor(extract(epoch FROM clock_timestamp()) * 1000)::bigint

-- name: notify_others
SELECT pg_notify(:channel, :payload)

-- name: gaps
-- How many runs have another number of events than their row says; a fork shares the first. Reads all of them.
-- The journal of a run on Temporal lies there: what is here of it are copies, and a moment behind.
SELECT count(*) FROM runs LEFT JOIN (SELECT run_id, count(*) AS events FROM events GROUP BY run_id) AS counted
  ON counted.run_id = runs.id
WHERE NOT (status = 'moved' AND reason = :reason)
  AND runs.next_seq <> coalesce(counted.events, 0)
      + coalesce((SELECT max(until) FROM lineage WHERE lineage.run_id = runs.id AND part = 'shared'), 0)

-- name: hold_lineage
SELECT base_id, max(until) FROM (
  SELECT base_id, until FROM lineage WHERE base_id IN (SELECT value FROM json_each(:ids))
  ORDER BY run_id, part, base_id, first FOR UPDATE) AS held
GROUP BY base_id

-- name: hold_below
-- Their owners may write meanwhile, and end them.
WITH RECURSIVE tree (id) AS (SELECT id FROM runs WHERE parent_id = :run
                             UNION SELECT runs.id FROM tree JOIN runs ON runs.parent_id = tree.id)
SELECT runs.id FROM tree JOIN runs ON runs.id = tree.id ORDER BY runs.id FOR KEY SHARE OF runs

-- name: size
-- The number of events is the server's own estimate, if it has one.
SELECT (SELECT sum(pg_total_relation_size(oid))::bigint FROM pg_class
        WHERE relnamespace = current_schema()::regnamespace AND relkind = 'r'),
       (SELECT CASE WHEN reltuples > 0 THEN reltuples::bigint
               ELSE (SELECT count(*) FROM (SELECT 1 FROM events LIMIT 100000) AS first_ones) END
        FROM pg_class WHERE relnamespace = current_schema()::regnamespace AND relname = 'events')

-- name: about
-- What `doctor` shows of the server.
SELECT version(), current_database(), current_schema(), current_setting('synchronous_commit'),
       (SELECT sum(pg_total_relation_size(oid))::bigint FROM pg_class
        WHERE relnamespace = current_schema()::regnamespace AND relkind = 'r')

-- name: lock_schedule
SELECT {schedule} FROM schedules WHERE name = :name FOR UPDATE

-- name: due_schedules
SELECT {schedule} FROM schedules WHERE due_at <= :now AND NOT EXISTS (SELECT 1 FROM identity WHERE held_at IS NOT NULL)
  AND times NOT IN (SELECT value FROM json_each(:ids))
ORDER BY due_at LIMIT :limit FOR UPDATE SKIP LOCKED

-- name: freed_schedules
SELECT {schedule} FROM schedules WHERE name IN (SELECT value FROM json_each(:ids)) AND due_at IS NOT NULL
  AND NOT EXISTS (SELECT 1 FROM identity WHERE held_at IS NOT NULL)
FOR UPDATE SKIP LOCKED

-- name: insert_runs
INSERT INTO runs (id, uid, agent, status, input, version, queue, due_at, parent_id, parent_key, root_id, labels,
                  created_at, updated_at, priority, limit_key, limit_n, rate_key, rate_n, rate_ms, singleton_key, budget,
                  identity)
SELECT n.id, n.uid, n.agent, 'ready', n.input, n.version, n.queue, n.due_at, n.parent_id, n.parent_key, n.root_id, n.labels,
       n.now, n.now, n.priority, n.limit_key, n.limit_n, n.rate_key, n.rate_n, n.rate_ms, n.singleton_key, n.budget, n.identity
FROM unnest(:id[], :uid[], :agent[], :input[], :version[], :queue[], :due_at[], :parent_id[], :parent_key[], :root_id[],
            :labels[], :now[], :priority[], :limit_key[], :limit_n[], :rate_key[], :rate_n[], :rate_ms[], :singleton_key[],
            :budget[], :identity[])
     AS n (id, uid, agent, input, version, queue, due_at, parent_id, parent_key, root_id, labels, now, priority, limit_key,
           limit_n, rate_key, rate_n, rate_ms, singleton_key, budget, identity)
ON CONFLICT DO NOTHING
RETURNING id

-- name: insert_audits
INSERT INTO audit (at, run_id, actor, action, data, via, value)
SELECT * FROM unnest(:now[], :run[], :actor[], :action[], :data[], :via[], :value[])

-- name: begun_schedules
UPDATE schedules SET since = b.since, due_at = b.due_at, last_at = b.last_at, last_run = b.last_run,
                     begun = schedules.begun + b.begun, missed = schedules.missed + b.missed, updated_at = b.now
FROM unnest(:since[], :due_at[], :last_at[], :last_run[], :begun[], :missed[], :now[], :name[])
     AS b (since, due_at, last_at, last_run, begun, missed, now, name)
WHERE schedules.name = b.name

-- name: lock_trigger
SELECT {trigger} FROM triggers WHERE name = :name FOR UPDATE

-- name: due_deliveries
SELECT {delivery}, body FROM deliveries WHERE trigger = :trigger AND status = 'new' AND due_at <= :now
  AND (:kind = '' OR kind = :kind)
  AND NOT EXISTS (SELECT 1 FROM identity WHERE held_at IS NOT NULL)
ORDER BY due_at LIMIT :limit FOR UPDATE SKIP LOCKED

-- name: announce
INSERT INTO announcements (id, name, value, run, published_at, xact)
VALUES (:id, :name, :value, :run, :now, pg_current_xact_id()::text::bigint)
ON CONFLICT (id) DO NOTHING RETURNING position

-- name: subscribe
-- A position is taken before its commit: the snapshot tells which announcements were there.
INSERT INTO subscriptions (run, topic, name, fields, wanted, since, seen)
VALUES (:run, :topic, :name, :fields, :wanted, (SELECT coalesce(max(position), 0) FROM announcements), pg_current_snapshot()::text)
ON CONFLICT (run, topic) DO UPDATE SET name = excluded.name, since = excluded.since, seen = excluded.seen
WHERE subscriptions.name <> excluded.name

-- name: subscribers
SELECT run, topic FROM subscriptions
WHERE name = :name AND wanted IN (SELECT value FROM json_each(:keys)) AND (run, topic) > (:run, :topic)
  AND (since < :position OR NOT coalesce(pg_visible_in_snapshot(:xact::text::xid8, seen::pg_snapshot), true))
ORDER BY run, topic LIMIT :limit

-- name: lock_announcements
SELECT 1 WHERE pg_try_advisory_xact_lock(hashtextextended(current_schema() || ': announcements', 0))

-- name: due_gatherings
SELECT trigger, bucket FROM gatherings WHERE due_at <= :now AND NOT EXISTS (SELECT 1 FROM identity WHERE held_at IS NOT NULL)
ORDER BY due_at LIMIT :limit FOR UPDATE SKIP LOCKED

-- name: lock_notification
SELECT {notification} FROM notifications WHERE name = :name FOR UPDATE

-- name: lock_notifications
SELECT {notification} FROM notifications
WHERE state = 'active' AND NOT EXISTS (SELECT 1 FROM identity WHERE held_at IS NOT NULL) ORDER BY name FOR UPDATE

-- name: insert_remnant
INSERT INTO remnants (run_id, position, topic, ids, sent_at, times)
SELECT * FROM unnest(:run[], :position[], :topic[], :content[], :since[], :times[])

-- name: empty_messages
UPDATE signals SET value = NULL
WHERE run_id = :run AND position > :position AND position <= :end AND kind = 'message.received' AND value IS NOT NULL
  AND substr(signal_id, 1, 5) <> 'fork:'
