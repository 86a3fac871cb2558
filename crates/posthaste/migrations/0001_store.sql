-- The store: append-only generations (docs/architecture.md, "The store"); in one file because every other one builds on all of it.
--
-- Eight physical slots, all partitions of one insert surface, posthaste.store:
--   0..3  the ring of ready jobs        (generation g lives in slot g % 4)
--   4..5  aside: jobs that waited so long that they would pin the ring
--   6..7  parked: jobs that are not due yet, retries among them
-- No row of a slot is ever updated or deleted: a job moves by being written again elsewhere and acknowledged here, and space comes
-- back by TRUNCATE, which no snapshot can hold up. Autovacuum is off on them because there is nothing for it to do.
--
-- Locks: creates objects only; safe beside old code because nothing else uses this schema.

CREATE SCHEMA IF NOT EXISTS posthaste;

-- What exists once per slot is written once, with @k@ for the slot's number. each_slot() runs a text once per slot; by_slot() runs it once,
-- and in it each line with an @k@ stands once per slot, as the branches of a CASE do.
CREATE PROCEDURE posthaste.each_slot(p_first integer, p_last integer, p_text text) LANGUAGE plpgsql AS $f$
BEGIN
  FOR k IN p_first .. p_last LOOP
    EXECUTE replace(p_text, '@k@', k::text);
  END LOOP;
END $f$;
CREATE PROCEDURE posthaste.by_slot(p_first integer, p_last integer, p_text text) LANGUAGE plpgsql AS $f$
BEGIN
  EXECUTE (
    SELECT string_agg(replace(l.line, '@k@', k::text), E'\n' ORDER BY l.n, k)
      FROM string_to_table(p_text, E'\n') WITH ORDINALITY l(line, n),
           generate_series(p_first, CASE WHEN strpos(l.line, '@k@') > 0 THEN p_last ELSE p_first END) k);
END $f$;

-- Non-MVCC cells: read by everybody at once, in any isolation level, and without dead tuples. Only setval() moves the cursors among
-- them (setval logs the value itself, nextval logs ahead), and CACHE stays 1: a batch number must be drawn in the order of the lane lock.
CREATE SEQUENCE posthaste.job_id;
CREATE SEQUENCE posthaste.worker_id;
CREATE SEQUENCE posthaste.batch_id;
CREATE SEQUENCE posthaste.turn;
CREATE SEQUENCE posthaste.paces;
CREATE SEQUENCE posthaste.turns_kept MINVALUE 0 START 0;
SELECT setval('posthaste.turns_kept', 0);
CREATE SEQUENCE posthaste.ready_current  MINVALUE 0 START 0;  -- where enqueue writes
CREATE SEQUENCE posthaste.ready_scan     MINVALUE 0 START 0;  -- oldest generation that may hold undispatched jobs
CREATE SEQUENCE posthaste.ready_low      MINVALUE 0 START 0;  -- oldest generation that is not truncated
CREATE SEQUENCE posthaste.aside_current  MINVALUE 0 START 0;
CREATE SEQUENCE posthaste.aside_scan     MINVALUE 0 START 0;  -- current + 1 while nothing lies aside
CREATE SEQUENCE posthaste.aside_low      MINVALUE 0 START 0;
CREATE SEQUENCE posthaste.parked_current MINVALUE 0 START 0;
CREATE SEQUENCE posthaste.parked_low     MINVALUE 0 START 0;
CREATE SEQUENCE posthaste.parked_until   MINVALUE 0 START 0;  -- microseconds since 1970: the promoter has looked at everything due by then
SELECT setval('posthaste.ready_current', 0), setval('posthaste.ready_scan', 0), setval('posthaste.ready_low', 0),
       setval('posthaste.aside_current', 0), setval('posthaste.aside_scan', 1), setval('posthaste.aside_low', 0),
       setval('posthaste.parked_current', 0), setval('posthaste.parked_low', 0),
       setval('posthaste.parked_until', 0);

-- What a job may be. SQL functions of one expression, which the planner inlines into the rule of posthaste.job: a prepared INSERT pays no
-- call for them. Every step of such an expression is set up anew by every statement, so it says as much as it can with few. (As a CHECK
-- constraint the same expression is parsed anew by every statement, which cost a single INSERT more than the insert itself.)

-- Length of the arguments as text. A number such as 1e131071 takes a few bytes as jsonb and 128 KiB as text, so a document that could
-- hide many of them is searched for such numbers before it is printed: nobody pays a gigabyte to learn that it is refused.
CREATE FUNCTION posthaste.text_bytes(kwargs jsonb) RETURNS integer LANGUAGE sql STABLE PARALLEL SAFE AS $f$
  SELECT CASE
    WHEN (pg_column_size(kwargs) > 8192 OR pg_column_compression(kwargs) IS NOT NULL) AND jsonb_path_exists(kwargs,
         'strict $.** ? (@.type() == "number" && (@ > 1e400 || @ < -1e400 || (@ != 0 && @ < 1e-400 && @ > -1e-400)))') THEN 2147483647
    ELSE octet_length(kwargs::text) END
$f$;

-- The depth test hides behind a size: 65 levels of nesting need more than 512 bytes of jsonb. What comes from a table may be compressed,
-- and its size says nothing then.
CREATE FUNCTION posthaste.is_valid(name text, queue text, tag text, unique_key text, ordering_key text, kwargs jsonb, kwargs_bytes integer,
                                   attempt integer, max_attempts integer, scheduled_at timestamptz, expires_at timestamptz,
                                   enqueued_at timestamptz)
RETURNS boolean LANGUAGE sql STABLE PARALLEL SAFE AS $f$
  SELECT name <> '' AND queue <> '' AND tag IS NOT NULL
    AND greatest(octet_length(name), octet_length(queue), octet_length(tag)) <= 255
    AND (unique_key IS NULL OR octet_length(unique_key) BETWEEN 1 AND 1024)
    AND (ordering_key IS NULL OR octet_length(ordering_key) BETWEEN 1 AND 1024)
    AND jsonb_typeof(kwargs) = 'object'
    AND kwargs_bytes <= 1048576
    AND (pg_column_size(kwargs) < 512 AND pg_column_compression(kwargs) IS NULL
         OR NOT jsonb_path_exists(kwargs, 'strict $.**{64} ? (@.type() == "object" || @.type() == "array")'))
    AND attempt >= 0
    AND (max_attempts < 1) IS NOT TRUE
    AND least(scheduled_at, expires_at, enqueued_at) >= '0001-01-01 00:00Z'
    AND greatest(scheduled_at, expires_at, enqueued_at) < '9999-01-01 00:00Z'
$f$;

-- Says which argument is wrong: 22023 with the field's name. Called only for a job that is not valid; returns nothing ever.
CREATE FUNCTION posthaste.refuse(name text, queue text, tag text, unique_key text, ordering_key text, kwargs jsonb, kwargs_bytes integer,
                                 attempt integer, max_attempts integer, scheduled_at timestamptz, expires_at timestamptz, enqueued_at timestamptz)
RETURNS smallint LANGUAGE plpgsql AS $f$
DECLARE problem text := CASE
  WHEN octet_length(name) NOT BETWEEN 1 AND 255 THEN 'name: must have 1 to 255 bytes'
  WHEN octet_length(queue) NOT BETWEEN 1 AND 255 THEN 'queue: must have 1 to 255 bytes'
  WHEN octet_length(tag) > 255 THEN 'tag: must have at most 255 bytes'
  WHEN octet_length(unique_key) NOT BETWEEN 1 AND 1024 THEN 'unique_key: must have 1 to 1024 bytes'
  WHEN octet_length(ordering_key) NOT BETWEEN 1 AND 1024 THEN 'ordering_key: must have 1 to 1024 bytes'
  WHEN jsonb_typeof(kwargs) <> 'object' THEN 'kwargs: must be a JSON object, not ' || jsonb_typeof(kwargs)
  WHEN kwargs_bytes > 1048576 THEN 'kwargs: must be at most 1 MiB as text'
  WHEN attempt < 0 THEN 'attempt: must not be negative'
  WHEN max_attempts < 1 THEN 'max_attempts: must be at least 1, or NULL for no limit'
  WHEN scheduled_at < '0001-01-01 00:00Z' OR scheduled_at >= '9999-01-01 00:00Z' THEN 'scheduled_at: must lie in the years 1 to 9998'
  WHEN expires_at < '0001-01-01 00:00Z' OR expires_at >= '9999-01-01 00:00Z' THEN 'expires_at: must lie in the years 1 to 9998'
  WHEN enqueued_at < '0001-01-01 00:00Z' OR enqueued_at >= '9999-01-01 00:00Z' THEN 'enqueued_at: must lie in the years 1 to 9998'
  ELSE 'kwargs: must not be nested deeper than 64 levels'
END;
BEGIN
  RAISE EXCEPTION USING ERRCODE = 'invalid_parameter_value', MESSAGE = 'posthaste: ' || problem;
END $f$;

-- One job, wherever it lies. Eight-byte columns come first so that nothing is padded.
--   xid          the transaction that wrote the row: (xid, id) names a row, id names a job
--   attempt      attempts burnt so far; crashes: workers that died while they had it
--   kwargs_bytes length as text: bounds a claim without printing anything
CREATE TABLE posthaste.store (
  xid          xid8        NOT NULL DEFAULT pg_current_xact_id(),
  id           bigint      NOT NULL DEFAULT nextval('posthaste.job_id'),
  enqueued_at  timestamptz NOT NULL DEFAULT clock_timestamp(),
  scheduled_at timestamptz NOT NULL DEFAULT clock_timestamp(),
  expires_at   timestamptz NOT NULL,
  priority     integer     NOT NULL DEFAULT 0,
  attempt      integer     NOT NULL DEFAULT 0,
  max_attempts integer              DEFAULT 25,
  kwargs_bytes integer     NOT NULL,
  slot         smallint    NOT NULL,
  crashes      smallint    NOT NULL DEFAULT 0,
  queue        text COLLATE "C" NOT NULL,
  name         text COLLATE "C" NOT NULL,
  tag          text        NOT NULL DEFAULT '',
  unique_key   text,
  ordering_key text COLLATE "C",      -- these four: 0012_order.sql
  turn         bigint,
  own_queue    text COLLATE "C",
  own_priority integer,
  last_error   text,
  kwargs       jsonb       NOT NULL DEFAULT '{}'
) PARTITION BY LIST (slot);

-- Slots. Each of the six slots that are claimed from is a set of tables:
--   ready_k   the jobs; the index serves "the next job of a lane after a cursor" and nothing else
--   claim_k   one row per claimed batch; the newest row of a lane IS the lane's cursor
--   whole_k   one row per batch that was closed as a whole, which is how nearly all jobs end: acknowledging a thousand costs one row
--   split_k   batches that may not be closed as a whole any more, because a job of theirs was closed by itself
--   ack_k     one row per job row that was closed by itself; the key makes the first closer the only one
--   early_k   rows that were closed before they were claimed (expired without a consumer); nearly always empty, and then free to ask
-- A parked slot has parked_k with an index by due time and one by transaction (for late commits), pass_k, whose newest row is the promoter's
-- cursor, early_k, and turn_k.
CALL posthaste.each_slot(0, 5, $sql$
CREATE TABLE posthaste.ready_@k@ PARTITION OF posthaste.store FOR VALUES IN (@k@) WITH (autovacuum_enabled = off);
CREATE INDEX ready_@k@_lane ON posthaste.ready_@k@ (queue, priority, xid, id);
CREATE TABLE posthaste.claim_@k@ (
  batch      bigint      NOT NULL PRIMARY KEY,
  worker     bigint      NOT NULL,
  claimed_at timestamptz NOT NULL DEFAULT clock_timestamp(),
  from_xid   xid8        NOT NULL,  -- the batch is the part of the window (lo, hi) after this row ...
  from_id    bigint      NOT NULL,
  to_xid     xid8        NOT NULL,  -- ... up to and with this one
  to_id      bigint      NOT NULL,
  priority   integer     NOT NULL,
  n          integer     NOT NULL,
  exhausted  boolean     NOT NULL,  -- nothing of the window is left
  token      uuid        NOT NULL,  -- the fence
  queue      text COLLATE "C" NOT NULL,
  lo         pg_snapshot NOT NULL,
  hi         pg_snapshot NOT NULL
) WITH (autovacuum_enabled = off);
CREATE INDEX claim_@k@_lane ON posthaste.claim_@k@ (queue, priority, batch);
CREATE TABLE posthaste.ack_@k@ (
  xid     xid8     NOT NULL,
  id      bigint   NOT NULL,
  outcome smallint NOT NULL,
  PRIMARY KEY (xid, id)
) WITH (autovacuum_enabled = off);
CREATE TABLE posthaste.early_@k@ (xid xid8 NOT NULL, id bigint NOT NULL, PRIMARY KEY (xid, id)) WITH (autovacuum_enabled = off);
CREATE TABLE posthaste.whole_@k@ (batch bigint NOT NULL PRIMARY KEY, outcome smallint NOT NULL) WITH (autovacuum_enabled = off);
CREATE TABLE posthaste.split_@k@ (batch bigint NOT NULL) WITH (autovacuum_enabled = off);
CREATE INDEX split_@k@_batch ON posthaste.split_@k@ (batch);

-- The rows of a batch: its window cut by its edges. Deterministic, however often it is asked. Each part is one exact index range: a row
-- comparison as upper bound does not stop a btree scan inside one transaction's rows, and would walk the rest of a bulk insert.
-- OFFSET 0 keeps each part a parameterised look-up whatever the planner thinks of an empty table.
CREATE FUNCTION posthaste.batch_rows_@k@(p_batch bigint, p_token uuid) RETURNS SETOF posthaste.store LANGUAGE sql STABLE AS $f$
  SELECT r.* FROM (
    SELECT c.queue, c.priority, c.lo, c.hi, c.from_xid, c.from_id, c.to_xid, c.to_id,
           CASE WHEN c.from_xid >= pg_snapshot_xmax(c.lo) THEN c.from_xid ELSE pg_snapshot_xmax(c.lo) END AS low_xid,
           CASE WHEN c.from_xid >= pg_snapshot_xmax(c.lo) THEN c.from_id ELSE -1 END AS low_id
      FROM posthaste.claim_@k@ c WHERE c.batch = p_batch AND c.token = p_token OFFSET 0) c,
  LATERAL (
    SELECT late.* FROM pg_snapshot_xip(c.lo) p, LATERAL (
      SELECT r.* FROM posthaste.ready_@k@ r WHERE r.queue = c.queue AND r.priority = c.priority AND r.xid = p
         AND r.id >  CASE WHEN p > c.from_xid THEN -1 WHEN p = c.from_xid THEN c.from_id ELSE 9223372036854775807 END
         AND r.id <= CASE WHEN p < c.to_xid THEN 9223372036854775807 WHEN p = c.to_xid THEN c.to_id ELSE -1 END OFFSET 0) late
     WHERE pg_visible_in_snapshot(p, c.hi)
    UNION ALL
    (SELECT r.* FROM posthaste.ready_@k@ r WHERE r.queue = c.queue AND r.priority = c.priority AND r.xid = c.low_xid AND r.id > c.low_id
        AND r.id <= CASE WHEN c.low_xid < c.to_xid THEN 9223372036854775807 WHEN c.low_xid = c.to_xid THEN c.to_id ELSE -1 END
        AND pg_visible_in_snapshot(r.xid, c.hi) OFFSET 0)
    UNION ALL
    (SELECT r.* FROM posthaste.ready_@k@ r WHERE r.queue = c.queue AND r.priority = c.priority AND r.xid > c.low_xid AND r.xid < c.to_xid
        AND pg_visible_in_snapshot(r.xid, c.hi) OFFSET 0)
    UNION ALL
    (SELECT r.* FROM posthaste.ready_@k@ r WHERE r.queue = c.queue AND r.priority = c.priority AND r.xid = c.to_xid
        AND c.to_xid > c.low_xid AND r.id <= c.to_id
        AND pg_visible_in_snapshot(r.xid, c.hi) OFFSET 0)
  ) r
$f$;

-- Jobs of this slot that a worker has now. A function, because the plan of six such searches inlined into a view costs more than its rows.
CREATE FUNCTION posthaste.running_@k@() RETURNS SETOF posthaste.store LANGUAGE plpgsql STABLE COST 10 ROWS 100 SET jit = off AS $f$
BEGIN
  RETURN QUERY
    SELECT r.*
      FROM (SELECT c.batch, c.token FROM posthaste.claim_@k@ c
             WHERE NOT EXISTS (SELECT FROM posthaste.whole_@k@ w WHERE w.batch = c.batch) OFFSET 0) c,
           LATERAL posthaste.batch_rows_@k@(c.batch, c.token) r
     WHERE NOT EXISTS (SELECT FROM posthaste.ack_@k@ a WHERE a.xid = r.xid AND a.id = r.id);
END $f$
$sql$);

CALL posthaste.each_slot(6, 7, $sql$
CREATE TABLE posthaste.parked_@k@ PARTITION OF posthaste.store FOR VALUES IN (@k@) WITH (autovacuum_enabled = off);
CREATE INDEX parked_@k@_due ON posthaste.parked_@k@ (scheduled_at, id);
CREATE INDEX parked_@k@_xid ON posthaste.parked_@k@ (xid, scheduled_at, id);
CREATE INDEX parked_@k@_turn ON posthaste.parked_@k@ (ordering_key, turn) WHERE turn IS NOT NULL;
CREATE TABLE posthaste.pass_@k@ (
  page      bigint      NOT NULL PRIMARY KEY,
  t_lo      timestamptz NOT NULL,  -- everything due by t_lo and visible in lo was promoted by earlier passes
  t_hi      timestamptz NOT NULL,  -- this pass: what is due by t_hi and visible in hi
  at_xid    xid8        NOT NULL,  -- last late row promoted
  at_due    timestamptz NOT NULL,  -- last row promoted
  at_id     bigint      NOT NULL,
  promoted  bigint      NOT NULL,  -- rows promoted from this slot since it was truncated
  late_done boolean     NOT NULL,  -- the late rows come first; this page finished them
  exhausted boolean     NOT NULL,
  lo_bound  xid8        NOT NULL,  -- transactions from this one on had read t_lo before they parked anything
  hi_bound  xid8        NOT NULL,  -- the same for t_hi
  lo        pg_snapshot NOT NULL,
  hi        pg_snapshot NOT NULL
) WITH (autovacuum_enabled = off);
-- outcome, as in ack_k: 1 sent on to work (its turn came, or somebody let it run now), 3 expired, 9 cancelled.
CREATE TABLE posthaste.early_@k@ (xid xid8 NOT NULL, id bigint NOT NULL, outcome smallint NOT NULL, PRIMARY KEY (xid, id)) WITH (autovacuum_enabled = off);
-- How ordering keys stand (0012_order.sql): a row per change.
CREATE TABLE posthaste.turn_@k@ (
  n            bigint  NOT NULL,
  turn         bigint  NOT NULL,  -- who has its turn, or had it last
  is_free      boolean NOT NULL,  -- it has ended, and nobody waits
  ordering_key text COLLATE "C" NOT NULL
) WITH (autovacuum_enabled = off);
CREATE INDEX turn_@k@_key ON posthaste.turn_@k@ (ordering_key, n)
$sql$);

-- Where a session is: the cluster, the database, the tables, and the history of the write-ahead log. It costs a few microseconds, so each
-- claim asks: that is how a worker notices that its connection leads elsewhere, or to a server that was promoted.
CREATE FUNCTION posthaste.whereabouts() RETURNS text LANGUAGE plpgsql STABLE AS $f$
BEGIN
  RETURN concat_ws('/', (pg_control_system()).system_identifier, 'posthaste.store'::regclass::oid,
                   left(pg_walfile_name(pg_current_wal_insert_lsn()), 8), current_database());
END $f$;

-- Who works here. A worker's row is updated at each heartbeat; under a pinned horizon its versions grow by one per beat, which is
-- why the beat is per worker and not per job.
CREATE TABLE posthaste.worker (
  id         bigint      PRIMARY KEY DEFAULT nextval('posthaste.worker_id'),
  beat       bigint      NOT NULL DEFAULT 0,
  started_at timestamptz NOT NULL DEFAULT clock_timestamp(),
  seen_at    timestamptz NOT NULL DEFAULT clock_timestamp(),
  stopped_at timestamptz,             -- stopped, or declared dead; it never beats again
  clean      boolean     NOT NULL DEFAULT false,  -- stopped in good order: it has nothing that could be rescued
  name       text        NOT NULL,
  home       text        NOT NULL DEFAULT posthaste.whereabouts()  -- it may claim there and nowhere else
) WITH (fillfactor = 50);

-- The elected leader of maintenance. A lease by the server's clock spares idle work; each duty has a lock of its own, so two
-- leaders at once do no harm.
CREATE TABLE posthaste.leader (
  only_row boolean     PRIMARY KEY DEFAULT true CHECK (only_row),
  worker   bigint      NOT NULL,
  until    timestamptz NOT NULL
) WITH (fillfactor = 50);

-- Lanes that were ever seen by a worker, so that a claim probes lanes instead of searching for them. Enqueue never writes here.
CREATE TABLE posthaste.lane (
  queue    text COLLATE "C" NOT NULL,
  priority integer NOT NULL,
  PRIMARY KEY (queue, priority)
);

-- Jobs that left the append-only road for a while, one row each:
--   running   still being worked when its generation wanted to be truncated
--   awaiting  its effect happens elsewhere; held until posthaste.done(delivery_id), else tried again
--   suspect   its worker died while it had the job; to be run alone once
-- (worker, token) is the fence of whoever has it now; until says when a suspect may be run, or an awaited job is tried again.
CREATE TABLE posthaste.held (
  id           bigint      PRIMARY KEY,
  until        timestamptz,
  enqueued_at  timestamptz NOT NULL,
  scheduled_at timestamptz NOT NULL,
  expires_at   timestamptz NOT NULL,
  worker       bigint,
  token        uuid,
  priority     integer     NOT NULL,
  attempt      integer     NOT NULL,
  max_attempts integer,
  kwargs_bytes integer     NOT NULL,
  crashes      smallint    NOT NULL,
  state        text        NOT NULL CHECK (state IN ('running', 'awaiting', 'suspect')),
  queue        text COLLATE "C" NOT NULL,
  name         text COLLATE "C" NOT NULL,
  tag          text        NOT NULL,
  unique_key   text,
  ordering_key text COLLATE "C",
  turn         bigint,
  last_error   text,
  kwargs       jsonb       NOT NULL
);
CREATE INDEX held_suspect ON posthaste.held (queue, until, id) WHERE state = 'suspect';
CREATE INDEX held_until ON posthaste.held (until) WHERE state = 'awaiting';

-- Jobs that will not be run again unless somebody redrives them; kept for inspection.
CREATE TABLE posthaste.dead (
  id           bigint      PRIMARY KEY,
  died_at      timestamptz NOT NULL DEFAULT clock_timestamp(),
  enqueued_at  timestamptz NOT NULL,
  scheduled_at timestamptz NOT NULL,
  expires_at   timestamptz NOT NULL,
  priority     integer     NOT NULL,
  attempt      integer     NOT NULL,
  max_attempts integer,
  kwargs_bytes integer     NOT NULL,
  crashes      smallint    NOT NULL,
  state        text        NOT NULL CHECK (state IN ('dead', 'expired', 'discarded', 'cancelled')),
  queue        text COLLATE "C" NOT NULL,
  name         text COLLATE "C" NOT NULL,
  tag          text        NOT NULL,
  unique_key   text,
  ordering_key text COLLATE "C",
  turn         bigint,
  last_error   text,
  kwargs       jsonb       NOT NULL
);
CREATE INDEX dead_state ON posthaste.dead (state, died_at);

-- Jobs that were running when somebody cancelled them. Their workers look here, and the leader cancels them again until they have ended:
-- one that is given back or tried again is met where it waits.
CREATE TABLE posthaste.cancelling (
  id       bigint      PRIMARY KEY,
  asked_at timestamptz NOT NULL DEFAULT clock_timestamp()
);

-- What is set for a queue. One without a row here has the defaults.
CREATE TABLE posthaste.queue (
  name      text COLLATE "C" PRIMARY KEY CHECK (octet_length(name) BETWEEN 1 AND 255),
  paused_at timestamptz, -- since when nothing of it is claimed
  rate      integer CHECK (rate > 0),               -- so many of its jobs are claimed
  per       interval CHECK (per > interval '0'),    -- in such a time, by all workers together
  burst     integer CHECK (burst > 0),              -- after a lull so many at once
  pace      regclass,    -- the cell that says up to when its rate is used up
  keep      interval CHECK (keep > interval '0' AND keep <= interval '3660 days')  -- for how long, at least, a done job of it is kept
);
CREATE INDEX queue_keep ON posthaste.queue (name) WHERE keep IS NOT NULL;

-- One row per unique key that is held; released when its job is done, dead, expired, discarded or cancelled.
CREATE TABLE posthaste.unique_key (
  key text   PRIMARY KEY,
  id  bigint NOT NULL
);

-- Who is kept as dead holds no key any more and has no turn, and is not to be cancelled any more, whoever buried it.
CREATE FUNCTION posthaste.let_buried_go() RETURNS trigger LANGUAGE plpgsql SET enable_seqscan = off SET enable_hashjoin = off AS $f$
BEGIN
  DELETE FROM posthaste.unique_key u USING buried b WHERE u.key = b.unique_key AND u.id = b.id;
  PERFORM posthaste.end_turns(array_agg(b.ordering_key), array_agg(b.turn)) FROM buried b WHERE b.turn IS NOT NULL HAVING count(*) > 0;
  IF EXISTS (SELECT FROM posthaste.cancelling) THEN
    DELETE FROM posthaste.cancelling c USING buried b WHERE c.id = b.id;
  END IF;
  RETURN NULL;
END $f$;
CREATE TRIGGER let_buried_go AFTER INSERT ON posthaste.dead REFERENCING NEW TABLE AS buried
  FOR EACH STATEMENT EXECUTE FUNCTION posthaste.let_buried_go();

-- A job in the shapes of the tables that it moves through: here, and nowhere else, their columns are listed. The planner inlines these
-- functions where they stand in FROM, so they cost nothing; none of their arguments may hold a sub-select there.
--
-- For a slot that it is written into once more, as it is or with something of it changed. One with a key and without a turn is on its way to the lines.
CREATE FUNCTION posthaste.again(job posthaste.store, slot smallint, due timestamptz DEFAULT NULL, attempt integer DEFAULT NULL,
                                crashes smallint DEFAULT NULL, error text DEFAULT NULL, turn bigint DEFAULT NULL)
RETURNS SETOF posthaste.store LANGUAGE sql STABLE AS $f$
  SELECT pg_current_xact_id(), job.id, job.enqueued_at, coalesce(due, job.scheduled_at), job.expires_at,
         CASE WHEN w.lines_up THEN 0 ELSE coalesce(job.own_priority, job.priority) END,
         coalesce(attempt, job.attempt), job.max_attempts, job.kwargs_bytes, slot, coalesce(crashes, job.crashes),
         CASE WHEN w.lines_up THEN '' ELSE coalesce(job.own_queue, job.queue) END, job.name, job.tag,
         job.unique_key, job.ordering_key, coalesce(turn, job.turn),
         CASE WHEN w.lines_up THEN coalesce(job.own_queue, job.queue) END, CASE WHEN w.lines_up THEN coalesce(job.own_priority, job.priority) END,
         coalesce(error, job.last_error), job.kwargs
    FROM (SELECT job.ordering_key IS NOT NULL AND coalesce(turn, job.turn) IS NULL AS lines_up) w
$f$;
-- For posthaste.dead: kept as dead, expired, discarded or cancelled.
CREATE FUNCTION posthaste.to_keep(job posthaste.store, state text) RETURNS SETOF posthaste.dead LANGUAGE sql STABLE AS $f$
  SELECT job.id, clock_timestamp(), job.enqueued_at, job.scheduled_at, job.expires_at, coalesce(job.own_priority, job.priority), job.attempt,
         job.max_attempts, job.kwargs_bytes, job.crashes, state, coalesce(job.own_queue, job.queue), job.name, job.tag, job.unique_key,
         job.ordering_key, job.turn, job.last_error, job.kwargs
$f$;
-- For posthaste.held.
CREATE FUNCTION posthaste.to_hold(job posthaste.store, state text, until timestamptz DEFAULT NULL, worker bigint DEFAULT NULL,
                                  token uuid DEFAULT NULL)
RETURNS SETOF posthaste.held LANGUAGE sql STABLE AS $f$
  SELECT job.id, until, job.enqueued_at, job.scheduled_at, job.expires_at, worker, token, job.priority, job.attempt, job.max_attempts,
         job.kwargs_bytes, job.crashes, state, job.queue, job.name, job.tag, job.unique_key, job.ordering_key, job.turn, job.last_error, job.kwargs
$f$;
-- When a suspect may be run. Those of one death each are due since ever, so that held_suspect has them by their ids: that is the order of their lane,
-- which a drain must keep wherever they were found, in a batch, among what ran for long, or given back. Whoever killed more often stands behind them.
CREATE FUNCTION posthaste.suspect_until(crashes smallint) RETURNS timestamptz LANGUAGE sql VOLATILE AS $f$
  SELECT CASE WHEN crashes > 1 THEN clock_timestamp() ELSE 'epoch' END
$f$;
-- Out of posthaste.held: in no slot yet, written by nobody.
CREATE FUNCTION posthaste.let_go(h posthaste.held) RETURNS posthaste.store LANGUAGE sql IMMUTABLE AS $f$
  SELECT ROW(NULL::xid8, h.id, h.enqueued_at, h.scheduled_at, h.expires_at, h.priority, h.attempt, h.max_attempts, h.kwargs_bytes,
             -1::smallint, h.crashes, h.queue, h.name, h.tag, h.unique_key, h.ordering_key, h.turn, NULL::text, NULL::integer, h.last_error,
             h.kwargs)::posthaste.store
$f$;

-- Confirmations that came before the job was held for them: the receiver was faster than our acknowledgement.
CREATE TABLE posthaste.confirmed (
  id           bigint      PRIMARY KEY,
  confirmed_at timestamptz NOT NULL DEFAULT clock_timestamp()
);

-- Queue of a job that was enqueued without one: the exact name, else the longest prefix (a pattern that ends in '*'), else 'default'.
CREATE TABLE posthaste.route (
  pattern text COLLATE "C" PRIMARY KEY CHECK (pattern <> '' AND position('*' IN rtrim(pattern, '*')) = 0 AND pattern !~ '\*\*$'),
  queue   text COLLATE "C" NOT NULL CHECK (octet_length(queue) BETWEEN 1 AND 255)
);

-- What an enqueue may have to know, in one cell, so that one which nothing concerns looks once and asks no table. Bits: 1 there ever was a
-- route; the others are bells (posthaste.bell_of): 2 the leader sleeps, who promotes and keeps lines, from 4 on somebody who works on such a queue. Whoever changes a
-- bit holds the lock (1885893480, 0), because the others are written back with it.
CREATE SEQUENCE posthaste.flags MINVALUE 0 START 0;
CREATE SEQUENCE posthaste.bell_until MINVALUE 0 START 0;  -- seconds since 1970: workers that died asleep are not rung for longer than that
SELECT setval('posthaste.flags', 0), setval('posthaste.bell_until', 0);
CREATE FUNCTION posthaste.note_routes() RETURNS trigger LANGUAGE plpgsql AS $f$
BEGIN
  IF pg_sequence_last_value('posthaste.flags'::regclass) & 1 = 0 THEN
    PERFORM pg_advisory_xact_lock(1885893480, 0);
    PERFORM setval('posthaste.flags', pg_sequence_last_value('posthaste.flags'::regclass) | 1);
  END IF;
  RETURN NULL;
END $f$;
CREATE TRIGGER note_routes AFTER INSERT ON posthaste.route FOR EACH STATEMENT EXECUTE FUNCTION posthaste.note_routes();

-- What makes delivery ids differ from those of other databases and other pasts of this one: 60 random bits as 15 hexadecimal digits, from job id
-- first_id on, until a newer row says otherwise. Migrated, restored and promoted databases begin a new one (0016_restore.sql).
CREATE TABLE posthaste.incarnation (
  n          integer     PRIMARY KEY,
  first_id   bigint      NOT NULL,
  value      text        NOT NULL CHECK (value ~ '^[0-9a-f]{15}$'),
  started_at timestamptz NOT NULL DEFAULT clock_timestamp()
);
