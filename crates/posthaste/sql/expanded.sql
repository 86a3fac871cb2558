-- posthaste: one script because it is one transaction: psql -v ON_ERROR_STOP=1 --single-transaction
SET LOCAL posthaste.migrates = 'on';
DO $do$ DECLARE
  v_local pg_catalog.bool := pg_catalog.texteq(
    coalesce(pg_catalog.current_setting('posthaste.migrates', true), ''), 'on');
BEGIN
  PERFORM pg_catalog.set_config('posthaste.found', pg_catalog.json_build_array(
      pg_catalog.current_setting('search_path'),
      pg_catalog.current_setting('standard_conforming_strings'),
      pg_catalog.current_setting('check_function_bodies'))::pg_catalog.text, v_local);
  PERFORM pg_catalog.set_config('search_path', 'pg_catalog, pg_temp', v_local);
  PERFORM pg_catalog.set_config('standard_conforming_strings', 'on', v_local);
  PERFORM pg_catalog.set_config('check_function_bodies', 'off', v_local);
END $do$;
SELECT pg_advisory_xact_lock(1885893472, 0);
DO $do$ BEGIN
  IF pg_catalog.to_regnamespace('posthaste') IS NULL THEN
    CREATE SCHEMA posthaste;
  END IF;
END $do$;
CREATE TABLE IF NOT EXISTS posthaste.migration (
  name text PRIMARY KEY, checksum text NOT NULL, version text NOT NULL,
  applied_at timestamptz NOT NULL DEFAULT clock_timestamp());

-- The store: append-only segments (docs/why/architecture.md); in one file because all functions
-- refer to this state.
--
-- Eight physical slots, all partitions of one insert surface, posthaste.store:
--   0..3  the ready log (segment g lives in slot g % 4)
--   4..5  overflow: jobs that waited so long that they would pin the ready log
--   6..7  scheduled: jobs that are not due yet, retries among them
-- No row of a slot is ever updated or deleted: a job moves by being written again elsewhere and
-- acknowledged here, and TRUNCATE, which does not wait for snapshots, frees the space. Autovacuum
-- is off because these tables have no dead rows.
--
-- 0001_initial_after.sql has what calls functions: views, rules, triggers and some defaults.

-- The owner of the schema may lack the right to create schemas.
DO $do$ BEGIN
  IF pg_catalog.to_regnamespace('posthaste') IS NULL THEN
    CREATE SCHEMA posthaste;
  END IF;
END $do$;

-- Sequences as cells outside of MVCC: every session reads the newest value in any isolation level,
-- and they leave no dead rows. Only setval() moves cursors (it logs the value, nextval logs ahead).
-- CACHE stays 1: batch numbers must be drawn in the order of the lane lock.
CREATE SEQUENCE posthaste.job_id;
CREATE SEQUENCE posthaste.worker_id;
CREATE SEQUENCE posthaste.batch_id;
CREATE SEQUENCE posthaste.turn;
CREATE SEQUENCE posthaste.turns_kept MINVALUE 0 START 0;
-- Segments: current is written by enqueues, scan is the oldest that may have unclaimed jobs, low is
-- the oldest that is not truncated. overflow_scan is overflow_current + 1 if the overflow is empty.
CREATE SEQUENCE posthaste.ready_current MINVALUE 0 START 0;
CREATE SEQUENCE posthaste.ready_scan MINVALUE 0 START 0;
CREATE SEQUENCE posthaste.ready_low MINVALUE 0 START 0;
CREATE SEQUENCE posthaste.overflow_current MINVALUE 0 START 0;
CREATE SEQUENCE posthaste.overflow_scan MINVALUE 0 START 0;
CREATE SEQUENCE posthaste.overflow_low MINVALUE 0 START 0;
CREATE SEQUENCE posthaste.scheduled_current MINVALUE 0 START 0;
CREATE SEQUENCE posthaste.scheduled_low MINVALUE 0 START 0;
-- The promoter has read all jobs due by this time, in microseconds since 1970.
CREATE SEQUENCE posthaste.promote_horizon MINVALUE 0 START 0;
SELECT setval('posthaste.turns_kept', 0),
       setval('posthaste.ready_current', 0), setval('posthaste.ready_scan', 0),
       setval('posthaste.ready_low', 0), setval('posthaste.overflow_current', 0),
       setval('posthaste.overflow_scan', 1), setval('posthaste.overflow_low', 0),
       setval('posthaste.scheduled_current', 0), setval('posthaste.scheduled_low', 0),
       setval('posthaste.promote_horizon', 0);

-- Jobs in all slots. Eight-byte columns come first to avoid padding.
--   xid          the transaction that wrote the row: (xid, id) identifies a row, id a job
--   attempt      counted attempts; crashes: workers that died while they had the job
--   kwargs_bytes the length as text: limits a claim without printing the arguments
--   trace        W3C Trace Context: traceparent, or traceparent, a space and tracestate
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
  ordering_key text COLLATE "C",      -- this and the next three: functions/ordering.sql
  turn         bigint,
  own_queue    text COLLATE "C",
  own_priority integer,
  last_error   text,
  trace        text,
  kwargs       jsonb       NOT NULL DEFAULT '{}'
) PARTITION BY LIST (slot);

-- Slots. Each of the six slots that are claimed from is a set of tables:
--   ready_k             the jobs; the index only serves "the next job of a lane after a cursor"
--   claim_k             one row per claimed batch; the newest row of a lane is the lane's cursor
--   batch_done_k        one row per batch that was closed as a whole, as nearly all are:
--                       acknowledging a thousand jobs costs one row
--   batch_split_k       batches that must be closed job by job, because one of their jobs was
--   job_done_k          one row per job row that was closed singly; its key admits only the first
--                       session that closes the job
--   closed_unclaimed_k  rows that were closed before they were claimed (expired or cancelled);
--                       nearly always empty, and then cheap to check
-- A scheduled slot has scheduled_k, with an index by due time and one by transaction (for late
-- commits), promote_cursor_k, whose newest row is the promoter's cursor, closed_unclaimed_k, and
-- turn_k.
CREATE TABLE posthaste.ready_0 PARTITION OF posthaste.store
  FOR VALUES IN (0) WITH (autovacuum_enabled = off);
CREATE INDEX ready_0_lane ON posthaste.ready_0 (queue, priority, xid, id);
CREATE TABLE posthaste.claim_0 (
  batch      bigint      NOT NULL PRIMARY KEY,
  worker     bigint      NOT NULL,
  claimed_at timestamptz NOT NULL DEFAULT clock_timestamp(),
  -- The batch is the part of the window (lo, hi) after this row,
  from_xid   xid8        NOT NULL,
  from_id    bigint      NOT NULL,
  to_xid     xid8        NOT NULL,  -- up to and including this one.
  to_id      bigint      NOT NULL,
  priority   integer     NOT NULL,
  n          integer     NOT NULL,
  exhausted  boolean     NOT NULL,  -- it reaches the end of the window
  token      uuid        NOT NULL,  -- the fence
  queue      text COLLATE "C" NOT NULL,
  lo         pg_snapshot NOT NULL,
  hi         pg_snapshot NOT NULL
) WITH (autovacuum_enabled = off);
CREATE INDEX claim_0_lane ON posthaste.claim_0 (queue, priority, batch);
CREATE TABLE posthaste.job_done_0 (
  xid     xid8     NOT NULL,
  id      bigint   NOT NULL,
  outcome smallint NOT NULL,
  PRIMARY KEY (xid, id)
) WITH (autovacuum_enabled = off);
CREATE TABLE posthaste.closed_unclaimed_0 (xid xid8 NOT NULL, id bigint NOT NULL,
    PRIMARY KEY (xid, id)) WITH (autovacuum_enabled = off);
CREATE TABLE posthaste.batch_done_0 (batch bigint NOT NULL PRIMARY KEY,
    outcome smallint NOT NULL) WITH (autovacuum_enabled = off);
CREATE TABLE posthaste.batch_split_0 (batch bigint NOT NULL) WITH (autovacuum_enabled = off);
CREATE INDEX batch_split_0_batch ON posthaste.batch_split_0 (batch);
CREATE TABLE posthaste.ready_1 PARTITION OF posthaste.store
  FOR VALUES IN (1) WITH (autovacuum_enabled = off);
CREATE INDEX ready_1_lane ON posthaste.ready_1 (queue, priority, xid, id);
CREATE TABLE posthaste.claim_1 (
  batch      bigint      NOT NULL PRIMARY KEY,
  worker     bigint      NOT NULL,
  claimed_at timestamptz NOT NULL DEFAULT clock_timestamp(),
  -- The batch is the part of the window (lo, hi) after this row,
  from_xid   xid8        NOT NULL,
  from_id    bigint      NOT NULL,
  to_xid     xid8        NOT NULL,  -- up to and including this one.
  to_id      bigint      NOT NULL,
  priority   integer     NOT NULL,
  n          integer     NOT NULL,
  exhausted  boolean     NOT NULL,  -- it reaches the end of the window
  token      uuid        NOT NULL,  -- the fence
  queue      text COLLATE "C" NOT NULL,
  lo         pg_snapshot NOT NULL,
  hi         pg_snapshot NOT NULL
) WITH (autovacuum_enabled = off);
CREATE INDEX claim_1_lane ON posthaste.claim_1 (queue, priority, batch);
CREATE TABLE posthaste.job_done_1 (
  xid     xid8     NOT NULL,
  id      bigint   NOT NULL,
  outcome smallint NOT NULL,
  PRIMARY KEY (xid, id)
) WITH (autovacuum_enabled = off);
CREATE TABLE posthaste.closed_unclaimed_1 (xid xid8 NOT NULL, id bigint NOT NULL,
    PRIMARY KEY (xid, id)) WITH (autovacuum_enabled = off);
CREATE TABLE posthaste.batch_done_1 (batch bigint NOT NULL PRIMARY KEY,
    outcome smallint NOT NULL) WITH (autovacuum_enabled = off);
CREATE TABLE posthaste.batch_split_1 (batch bigint NOT NULL) WITH (autovacuum_enabled = off);
CREATE INDEX batch_split_1_batch ON posthaste.batch_split_1 (batch);
CREATE TABLE posthaste.ready_2 PARTITION OF posthaste.store
  FOR VALUES IN (2) WITH (autovacuum_enabled = off);
CREATE INDEX ready_2_lane ON posthaste.ready_2 (queue, priority, xid, id);
CREATE TABLE posthaste.claim_2 (
  batch      bigint      NOT NULL PRIMARY KEY,
  worker     bigint      NOT NULL,
  claimed_at timestamptz NOT NULL DEFAULT clock_timestamp(),
  -- The batch is the part of the window (lo, hi) after this row,
  from_xid   xid8        NOT NULL,
  from_id    bigint      NOT NULL,
  to_xid     xid8        NOT NULL,  -- up to and including this one.
  to_id      bigint      NOT NULL,
  priority   integer     NOT NULL,
  n          integer     NOT NULL,
  exhausted  boolean     NOT NULL,  -- it reaches the end of the window
  token      uuid        NOT NULL,  -- the fence
  queue      text COLLATE "C" NOT NULL,
  lo         pg_snapshot NOT NULL,
  hi         pg_snapshot NOT NULL
) WITH (autovacuum_enabled = off);
CREATE INDEX claim_2_lane ON posthaste.claim_2 (queue, priority, batch);
CREATE TABLE posthaste.job_done_2 (
  xid     xid8     NOT NULL,
  id      bigint   NOT NULL,
  outcome smallint NOT NULL,
  PRIMARY KEY (xid, id)
) WITH (autovacuum_enabled = off);
CREATE TABLE posthaste.closed_unclaimed_2 (xid xid8 NOT NULL, id bigint NOT NULL,
    PRIMARY KEY (xid, id)) WITH (autovacuum_enabled = off);
CREATE TABLE posthaste.batch_done_2 (batch bigint NOT NULL PRIMARY KEY,
    outcome smallint NOT NULL) WITH (autovacuum_enabled = off);
CREATE TABLE posthaste.batch_split_2 (batch bigint NOT NULL) WITH (autovacuum_enabled = off);
CREATE INDEX batch_split_2_batch ON posthaste.batch_split_2 (batch);
CREATE TABLE posthaste.ready_3 PARTITION OF posthaste.store
  FOR VALUES IN (3) WITH (autovacuum_enabled = off);
CREATE INDEX ready_3_lane ON posthaste.ready_3 (queue, priority, xid, id);
CREATE TABLE posthaste.claim_3 (
  batch      bigint      NOT NULL PRIMARY KEY,
  worker     bigint      NOT NULL,
  claimed_at timestamptz NOT NULL DEFAULT clock_timestamp(),
  -- The batch is the part of the window (lo, hi) after this row,
  from_xid   xid8        NOT NULL,
  from_id    bigint      NOT NULL,
  to_xid     xid8        NOT NULL,  -- up to and including this one.
  to_id      bigint      NOT NULL,
  priority   integer     NOT NULL,
  n          integer     NOT NULL,
  exhausted  boolean     NOT NULL,  -- it reaches the end of the window
  token      uuid        NOT NULL,  -- the fence
  queue      text COLLATE "C" NOT NULL,
  lo         pg_snapshot NOT NULL,
  hi         pg_snapshot NOT NULL
) WITH (autovacuum_enabled = off);
CREATE INDEX claim_3_lane ON posthaste.claim_3 (queue, priority, batch);
CREATE TABLE posthaste.job_done_3 (
  xid     xid8     NOT NULL,
  id      bigint   NOT NULL,
  outcome smallint NOT NULL,
  PRIMARY KEY (xid, id)
) WITH (autovacuum_enabled = off);
CREATE TABLE posthaste.closed_unclaimed_3 (xid xid8 NOT NULL, id bigint NOT NULL,
    PRIMARY KEY (xid, id)) WITH (autovacuum_enabled = off);
CREATE TABLE posthaste.batch_done_3 (batch bigint NOT NULL PRIMARY KEY,
    outcome smallint NOT NULL) WITH (autovacuum_enabled = off);
CREATE TABLE posthaste.batch_split_3 (batch bigint NOT NULL) WITH (autovacuum_enabled = off);
CREATE INDEX batch_split_3_batch ON posthaste.batch_split_3 (batch);
CREATE TABLE posthaste.ready_4 PARTITION OF posthaste.store
  FOR VALUES IN (4) WITH (autovacuum_enabled = off);
CREATE INDEX ready_4_lane ON posthaste.ready_4 (queue, priority, xid, id);
CREATE TABLE posthaste.claim_4 (
  batch      bigint      NOT NULL PRIMARY KEY,
  worker     bigint      NOT NULL,
  claimed_at timestamptz NOT NULL DEFAULT clock_timestamp(),
  -- The batch is the part of the window (lo, hi) after this row,
  from_xid   xid8        NOT NULL,
  from_id    bigint      NOT NULL,
  to_xid     xid8        NOT NULL,  -- up to and including this one.
  to_id      bigint      NOT NULL,
  priority   integer     NOT NULL,
  n          integer     NOT NULL,
  exhausted  boolean     NOT NULL,  -- it reaches the end of the window
  token      uuid        NOT NULL,  -- the fence
  queue      text COLLATE "C" NOT NULL,
  lo         pg_snapshot NOT NULL,
  hi         pg_snapshot NOT NULL
) WITH (autovacuum_enabled = off);
CREATE INDEX claim_4_lane ON posthaste.claim_4 (queue, priority, batch);
CREATE TABLE posthaste.job_done_4 (
  xid     xid8     NOT NULL,
  id      bigint   NOT NULL,
  outcome smallint NOT NULL,
  PRIMARY KEY (xid, id)
) WITH (autovacuum_enabled = off);
CREATE TABLE posthaste.closed_unclaimed_4 (xid xid8 NOT NULL, id bigint NOT NULL,
    PRIMARY KEY (xid, id)) WITH (autovacuum_enabled = off);
CREATE TABLE posthaste.batch_done_4 (batch bigint NOT NULL PRIMARY KEY,
    outcome smallint NOT NULL) WITH (autovacuum_enabled = off);
CREATE TABLE posthaste.batch_split_4 (batch bigint NOT NULL) WITH (autovacuum_enabled = off);
CREATE INDEX batch_split_4_batch ON posthaste.batch_split_4 (batch);
CREATE TABLE posthaste.ready_5 PARTITION OF posthaste.store
  FOR VALUES IN (5) WITH (autovacuum_enabled = off);
CREATE INDEX ready_5_lane ON posthaste.ready_5 (queue, priority, xid, id);
CREATE TABLE posthaste.claim_5 (
  batch      bigint      NOT NULL PRIMARY KEY,
  worker     bigint      NOT NULL,
  claimed_at timestamptz NOT NULL DEFAULT clock_timestamp(),
  -- The batch is the part of the window (lo, hi) after this row,
  from_xid   xid8        NOT NULL,
  from_id    bigint      NOT NULL,
  to_xid     xid8        NOT NULL,  -- up to and including this one.
  to_id      bigint      NOT NULL,
  priority   integer     NOT NULL,
  n          integer     NOT NULL,
  exhausted  boolean     NOT NULL,  -- it reaches the end of the window
  token      uuid        NOT NULL,  -- the fence
  queue      text COLLATE "C" NOT NULL,
  lo         pg_snapshot NOT NULL,
  hi         pg_snapshot NOT NULL
) WITH (autovacuum_enabled = off);
CREATE INDEX claim_5_lane ON posthaste.claim_5 (queue, priority, batch);
CREATE TABLE posthaste.job_done_5 (
  xid     xid8     NOT NULL,
  id      bigint   NOT NULL,
  outcome smallint NOT NULL,
  PRIMARY KEY (xid, id)
) WITH (autovacuum_enabled = off);
CREATE TABLE posthaste.closed_unclaimed_5 (xid xid8 NOT NULL, id bigint NOT NULL,
    PRIMARY KEY (xid, id)) WITH (autovacuum_enabled = off);
CREATE TABLE posthaste.batch_done_5 (batch bigint NOT NULL PRIMARY KEY,
    outcome smallint NOT NULL) WITH (autovacuum_enabled = off);
CREATE TABLE posthaste.batch_split_5 (batch bigint NOT NULL) WITH (autovacuum_enabled = off);
CREATE INDEX batch_split_5_batch ON posthaste.batch_split_5 (batch);

CREATE TABLE posthaste.scheduled_6 PARTITION OF posthaste.store
  FOR VALUES IN (6) WITH (autovacuum_enabled = off);
CREATE INDEX scheduled_6_due ON posthaste.scheduled_6 (scheduled_at, id);
CREATE INDEX scheduled_6_xid ON posthaste.scheduled_6 (xid, scheduled_at, id);
CREATE INDEX scheduled_6_turn ON posthaste.scheduled_6 (ordering_key, turn) WHERE turn IS NOT NULL;
CREATE TABLE posthaste.promote_cursor_6 (
  page      bigint      NOT NULL PRIMARY KEY,
  -- everything due by t_lo and visible in lo was promoted by earlier windows
  t_lo      timestamptz NOT NULL,
  t_hi      timestamptz NOT NULL,  -- this window: rows due by t_hi and visible in hi
  at_xid    xid8        NOT NULL,  -- last late row promoted
  at_due    timestamptz NOT NULL,  -- last row promoted
  at_id     bigint      NOT NULL,
  promoted  bigint      NOT NULL,  -- rows promoted from this slot since it was truncated
  late_done boolean     NOT NULL,  -- the late rows come first; this page finished them
  exhausted boolean     NOT NULL,
  -- transactions from this one on had read t_lo before they wrote anything here
  lo_bound  xid8        NOT NULL,
  hi_bound  xid8        NOT NULL,  -- the same for t_hi
  lo        pg_snapshot NOT NULL,
  hi        pg_snapshot NOT NULL
) WITH (autovacuum_enabled = off);

-- outcome, as in job_done_k: 1 moved to the ready log (its turn began, or posthaste.retry), 3
-- expired, 9 cancelled.
CREATE TABLE posthaste.closed_unclaimed_6 (xid xid8 NOT NULL, id bigint NOT NULL,
    outcome smallint NOT NULL, PRIMARY KEY (xid, id)) WITH (autovacuum_enabled = off);

-- Positions of ordering keys (functions/ordering.sql): one row per change.
CREATE TABLE posthaste.turn_6 (
  n            bigint  NOT NULL,
  turn         bigint  NOT NULL,  -- the current turn, or the last one
  is_free      boolean NOT NULL,  -- the turn has ended, and no job waits
  ordering_key text COLLATE "C" NOT NULL
) WITH (autovacuum_enabled = off);
CREATE INDEX turn_6_key ON posthaste.turn_6 (ordering_key, n);
CREATE TABLE posthaste.scheduled_7 PARTITION OF posthaste.store
  FOR VALUES IN (7) WITH (autovacuum_enabled = off);
CREATE INDEX scheduled_7_due ON posthaste.scheduled_7 (scheduled_at, id);
CREATE INDEX scheduled_7_xid ON posthaste.scheduled_7 (xid, scheduled_at, id);
CREATE INDEX scheduled_7_turn ON posthaste.scheduled_7 (ordering_key, turn) WHERE turn IS NOT NULL;
CREATE TABLE posthaste.promote_cursor_7 (
  page      bigint      NOT NULL PRIMARY KEY,
  -- everything due by t_lo and visible in lo was promoted by earlier windows
  t_lo      timestamptz NOT NULL,
  t_hi      timestamptz NOT NULL,  -- this window: rows due by t_hi and visible in hi
  at_xid    xid8        NOT NULL,  -- last late row promoted
  at_due    timestamptz NOT NULL,  -- last row promoted
  at_id     bigint      NOT NULL,
  promoted  bigint      NOT NULL,  -- rows promoted from this slot since it was truncated
  late_done boolean     NOT NULL,  -- the late rows come first; this page finished them
  exhausted boolean     NOT NULL,
  -- transactions from this one on had read t_lo before they wrote anything here
  lo_bound  xid8        NOT NULL,
  hi_bound  xid8        NOT NULL,  -- the same for t_hi
  lo        pg_snapshot NOT NULL,
  hi        pg_snapshot NOT NULL
) WITH (autovacuum_enabled = off);

-- outcome, as in job_done_k: 1 moved to the ready log (its turn began, or posthaste.retry), 3
-- expired, 9 cancelled.
CREATE TABLE posthaste.closed_unclaimed_7 (xid xid8 NOT NULL, id bigint NOT NULL,
    outcome smallint NOT NULL, PRIMARY KEY (xid, id)) WITH (autovacuum_enabled = off);

-- Positions of ordering keys (functions/ordering.sql): one row per change.
CREATE TABLE posthaste.turn_7 (
  n            bigint  NOT NULL,
  turn         bigint  NOT NULL,  -- the current turn, or the last one
  is_free      boolean NOT NULL,  -- the turn has ended, and no job waits
  ordering_key text COLLATE "C" NOT NULL
) WITH (autovacuum_enabled = off);
CREATE INDEX turn_7_key ON posthaste.turn_7 (ordering_key, n);

-- Workers. A worker's row is updated at each heartbeat. Under a pinned horizon each beat adds a row
-- version, so the beat is per worker and not per job.
CREATE TABLE posthaste.worker (
  id         bigint      PRIMARY KEY DEFAULT nextval('posthaste.worker_id'),
  beat       bigint      NOT NULL DEFAULT 0,
  started_at timestamptz NOT NULL DEFAULT clock_timestamp(),
  seen_at    timestamptz NOT NULL DEFAULT clock_timestamp(),
  stopped_at timestamptz,             -- stopped, or declared dead; it does not beat any more
  -- It stopped without jobs that would have to be rescued.
  clean      boolean     NOT NULL DEFAULT false,
  name       text        NOT NULL,
  -- The only store in which it may claim.
  identity   text        NOT NULL,
  queues     text[]      NOT NULL DEFAULT '{}', -- the queues that it works; empty: not known
  -- Since when one of its endpoints has accepted no jobs, and why.
  failing_since timestamptz,
  last_error text
) WITH (fillfactor = 50);

-- The elected leader of maintenance. A lease by the server's clock saves idle work; each duty takes
-- a lock, so two leaders at once do no harm. A clock outside the lease ends it, also one before it.
CREATE TABLE posthaste.leader (
  only_row        boolean     PRIMARY KEY DEFAULT true CHECK (only_row),
  worker          bigint      NOT NULL,
  since           timestamptz NOT NULL DEFAULT clock_timestamp(),  -- when it was last renewed
  until           timestamptz NOT NULL,
  -- See posthaste.retention_clock().
  retention_clock timestamptz NOT NULL DEFAULT clock_timestamp(),
  -- The server process of the last renewal. It belongs to the worker if the previous renewal came
  -- from it too; through a pooler in transaction mode, any client may use it.
  pid             integer     NOT NULL DEFAULT 0,
  is_own          boolean     NOT NULL DEFAULT false
) WITH (fillfactor = 50);

-- Lanes that workers have found, so that a claim probes known lanes instead of searching for them.
-- Enqueue does not write here.
CREATE TABLE posthaste.lane (
  queue    text COLLATE "C" NOT NULL,
  priority integer NOT NULL,
  PRIMARY KEY (queue, priority)
);

-- Jobs outside of the slots, one row each:
--   running      still running when its segment was to be truncated
--   awaiting     its effect happens elsewhere; waits for posthaste.confirm(delivery_id), and is
--                retried without it
--   quarantined  its worker died while it had the job; runs alone once
-- (worker, token) is the fence of its current worker. until: when a quarantined job may run, or an
-- awaiting job is retried.
CREATE TABLE posthaste.in_flight (
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
  state        text        NOT NULL CHECK (state IN ('running', 'awaiting', 'quarantined')),
  queue        text COLLATE "C" NOT NULL,
  name         text COLLATE "C" NOT NULL,
  tag          text        NOT NULL,
  unique_key   text,
  ordering_key text COLLATE "C",
  turn         bigint,
  last_error   text,
  trace        text,
  kwargs       jsonb       NOT NULL
);
CREATE INDEX in_flight_quarantined ON posthaste.in_flight (queue, until, id)
  WHERE state = 'quarantined';
CREATE INDEX in_flight_until ON posthaste.in_flight (until) WHERE state = 'awaiting';
CREATE INDEX in_flight_running ON posthaste.in_flight (worker, token) WHERE state = 'running';

-- Jobs that do not run again unless posthaste.redrive() is called.
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
  trace        text,
  kwargs       jsonb       NOT NULL
);
CREATE INDEX dead_state ON posthaste.dead (state, died_at);

-- Jobs that were running when they were cancelled. Their workers poll this table, and the leader
-- cancels them again until they have ended, in case they were returned or are retried.
CREATE TABLE posthaste.cancelling (
  id       bigint      PRIMARY KEY,
  asked_at timestamptz NOT NULL DEFAULT clock_timestamp()
);

-- Settings of queues. A queue without a row has the defaults.
CREATE TABLE posthaste.queue (
  name      text COLLATE "C" PRIMARY KEY CHECK (octet_length(name) BETWEEN 1 AND 255),
  paused_at timestamptz, -- since when its jobs are not claimed
  rate      integer CHECK (rate > 0),               -- all workers together claim this many jobs
  per       interval CHECK (per > interval '0'),    -- in this period,
  burst     integer CHECK (burst > 0),              -- after a pause this many at once
  pace      regclass,    -- the cell of its rate (functions/rate.sql)
  -- How long a completed job is retained at least.
  keep      interval CHECK (keep > interval '0' AND keep <= interval '3660 days')
);
CREATE INDEX queue_keep ON posthaste.queue (name) WHERE keep IS NOT NULL;

-- The cells of rates (functions/rate.sql). They are created here and not with each rate, so that
-- every replica of a store has them.
CREATE SEQUENCE posthaste.pace_1 MINVALUE 0 START 0;
SELECT setval('posthaste.pace_1', 0);
CREATE SEQUENCE posthaste.pace_2 MINVALUE 0 START 0;
SELECT setval('posthaste.pace_2', 0);
CREATE SEQUENCE posthaste.pace_3 MINVALUE 0 START 0;
SELECT setval('posthaste.pace_3', 0);
CREATE SEQUENCE posthaste.pace_4 MINVALUE 0 START 0;
SELECT setval('posthaste.pace_4', 0);
CREATE SEQUENCE posthaste.pace_5 MINVALUE 0 START 0;
SELECT setval('posthaste.pace_5', 0);
CREATE SEQUENCE posthaste.pace_6 MINVALUE 0 START 0;
SELECT setval('posthaste.pace_6', 0);
CREATE SEQUENCE posthaste.pace_7 MINVALUE 0 START 0;
SELECT setval('posthaste.pace_7', 0);
CREATE SEQUENCE posthaste.pace_8 MINVALUE 0 START 0;
SELECT setval('posthaste.pace_8', 0);
CREATE SEQUENCE posthaste.pace_9 MINVALUE 0 START 0;
SELECT setval('posthaste.pace_9', 0);
CREATE SEQUENCE posthaste.pace_10 MINVALUE 0 START 0;
SELECT setval('posthaste.pace_10', 0);
CREATE SEQUENCE posthaste.pace_11 MINVALUE 0 START 0;
SELECT setval('posthaste.pace_11', 0);
CREATE SEQUENCE posthaste.pace_12 MINVALUE 0 START 0;
SELECT setval('posthaste.pace_12', 0);
CREATE SEQUENCE posthaste.pace_13 MINVALUE 0 START 0;
SELECT setval('posthaste.pace_13', 0);
CREATE SEQUENCE posthaste.pace_14 MINVALUE 0 START 0;
SELECT setval('posthaste.pace_14', 0);
CREATE SEQUENCE posthaste.pace_15 MINVALUE 0 START 0;
SELECT setval('posthaste.pace_15', 0);
CREATE SEQUENCE posthaste.pace_16 MINVALUE 0 START 0;
SELECT setval('posthaste.pace_16', 0);
CREATE SEQUENCE posthaste.pace_17 MINVALUE 0 START 0;
SELECT setval('posthaste.pace_17', 0);
CREATE SEQUENCE posthaste.pace_18 MINVALUE 0 START 0;
SELECT setval('posthaste.pace_18', 0);
CREATE SEQUENCE posthaste.pace_19 MINVALUE 0 START 0;
SELECT setval('posthaste.pace_19', 0);
CREATE SEQUENCE posthaste.pace_20 MINVALUE 0 START 0;
SELECT setval('posthaste.pace_20', 0);
CREATE SEQUENCE posthaste.pace_21 MINVALUE 0 START 0;
SELECT setval('posthaste.pace_21', 0);
CREATE SEQUENCE posthaste.pace_22 MINVALUE 0 START 0;
SELECT setval('posthaste.pace_22', 0);
CREATE SEQUENCE posthaste.pace_23 MINVALUE 0 START 0;
SELECT setval('posthaste.pace_23', 0);
CREATE SEQUENCE posthaste.pace_24 MINVALUE 0 START 0;
SELECT setval('posthaste.pace_24', 0);
CREATE SEQUENCE posthaste.pace_25 MINVALUE 0 START 0;
SELECT setval('posthaste.pace_25', 0);
CREATE SEQUENCE posthaste.pace_26 MINVALUE 0 START 0;
SELECT setval('posthaste.pace_26', 0);
CREATE SEQUENCE posthaste.pace_27 MINVALUE 0 START 0;
SELECT setval('posthaste.pace_27', 0);
CREATE SEQUENCE posthaste.pace_28 MINVALUE 0 START 0;
SELECT setval('posthaste.pace_28', 0);
CREATE SEQUENCE posthaste.pace_29 MINVALUE 0 START 0;
SELECT setval('posthaste.pace_29', 0);
CREATE SEQUENCE posthaste.pace_30 MINVALUE 0 START 0;
SELECT setval('posthaste.pace_30', 0);
CREATE SEQUENCE posthaste.pace_31 MINVALUE 0 START 0;
SELECT setval('posthaste.pace_31', 0);
CREATE SEQUENCE posthaste.pace_32 MINVALUE 0 START 0;
SELECT setval('posthaste.pace_32', 0);
CREATE SEQUENCE posthaste.pace_33 MINVALUE 0 START 0;
SELECT setval('posthaste.pace_33', 0);
CREATE SEQUENCE posthaste.pace_34 MINVALUE 0 START 0;
SELECT setval('posthaste.pace_34', 0);
CREATE SEQUENCE posthaste.pace_35 MINVALUE 0 START 0;
SELECT setval('posthaste.pace_35', 0);
CREATE SEQUENCE posthaste.pace_36 MINVALUE 0 START 0;
SELECT setval('posthaste.pace_36', 0);
CREATE SEQUENCE posthaste.pace_37 MINVALUE 0 START 0;
SELECT setval('posthaste.pace_37', 0);
CREATE SEQUENCE posthaste.pace_38 MINVALUE 0 START 0;
SELECT setval('posthaste.pace_38', 0);
CREATE SEQUENCE posthaste.pace_39 MINVALUE 0 START 0;
SELECT setval('posthaste.pace_39', 0);
CREATE SEQUENCE posthaste.pace_40 MINVALUE 0 START 0;
SELECT setval('posthaste.pace_40', 0);
CREATE SEQUENCE posthaste.pace_41 MINVALUE 0 START 0;
SELECT setval('posthaste.pace_41', 0);
CREATE SEQUENCE posthaste.pace_42 MINVALUE 0 START 0;
SELECT setval('posthaste.pace_42', 0);
CREATE SEQUENCE posthaste.pace_43 MINVALUE 0 START 0;
SELECT setval('posthaste.pace_43', 0);
CREATE SEQUENCE posthaste.pace_44 MINVALUE 0 START 0;
SELECT setval('posthaste.pace_44', 0);
CREATE SEQUENCE posthaste.pace_45 MINVALUE 0 START 0;
SELECT setval('posthaste.pace_45', 0);
CREATE SEQUENCE posthaste.pace_46 MINVALUE 0 START 0;
SELECT setval('posthaste.pace_46', 0);
CREATE SEQUENCE posthaste.pace_47 MINVALUE 0 START 0;
SELECT setval('posthaste.pace_47', 0);
CREATE SEQUENCE posthaste.pace_48 MINVALUE 0 START 0;
SELECT setval('posthaste.pace_48', 0);
CREATE SEQUENCE posthaste.pace_49 MINVALUE 0 START 0;
SELECT setval('posthaste.pace_49', 0);
CREATE SEQUENCE posthaste.pace_50 MINVALUE 0 START 0;
SELECT setval('posthaste.pace_50', 0);
CREATE SEQUENCE posthaste.pace_51 MINVALUE 0 START 0;
SELECT setval('posthaste.pace_51', 0);
CREATE SEQUENCE posthaste.pace_52 MINVALUE 0 START 0;
SELECT setval('posthaste.pace_52', 0);
CREATE SEQUENCE posthaste.pace_53 MINVALUE 0 START 0;
SELECT setval('posthaste.pace_53', 0);
CREATE SEQUENCE posthaste.pace_54 MINVALUE 0 START 0;
SELECT setval('posthaste.pace_54', 0);
CREATE SEQUENCE posthaste.pace_55 MINVALUE 0 START 0;
SELECT setval('posthaste.pace_55', 0);
CREATE SEQUENCE posthaste.pace_56 MINVALUE 0 START 0;
SELECT setval('posthaste.pace_56', 0);
CREATE SEQUENCE posthaste.pace_57 MINVALUE 0 START 0;
SELECT setval('posthaste.pace_57', 0);
CREATE SEQUENCE posthaste.pace_58 MINVALUE 0 START 0;
SELECT setval('posthaste.pace_58', 0);
CREATE SEQUENCE posthaste.pace_59 MINVALUE 0 START 0;
SELECT setval('posthaste.pace_59', 0);
CREATE SEQUENCE posthaste.pace_60 MINVALUE 0 START 0;
SELECT setval('posthaste.pace_60', 0);
CREATE SEQUENCE posthaste.pace_61 MINVALUE 0 START 0;
SELECT setval('posthaste.pace_61', 0);
CREATE SEQUENCE posthaste.pace_62 MINVALUE 0 START 0;
SELECT setval('posthaste.pace_62', 0);
CREATE SEQUENCE posthaste.pace_63 MINVALUE 0 START 0;
SELECT setval('posthaste.pace_63', 0);
CREATE SEQUENCE posthaste.pace_64 MINVALUE 0 START 0;
SELECT setval('posthaste.pace_64', 0);

-- One row per unique key that is held; released when its job is done, dead, expired, discarded or
-- cancelled.
CREATE TABLE posthaste.unique_key (
  -- An index with a collation of the system may break when the system is updated.
  key text   COLLATE "C" PRIMARY KEY,
  id  bigint NOT NULL
  -- Truncating its empty end would take an exclusive lock.
) WITH (vacuum_truncate = off);

-- Confirmations that arrived before the acknowledgement with which the job began to await them.
CREATE TABLE posthaste.confirmed (
  id           bigint      PRIMARY KEY,
  confirmed_at timestamptz NOT NULL DEFAULT clock_timestamp()
);

-- Queue of a job that was enqueued without one: the exact name, else the longest prefix (a pattern
-- that ends in '*'), else 'default'.
CREATE TABLE posthaste.route (
  pattern text COLLATE "C" PRIMARY KEY CHECK (pattern <> ''
      AND position('*' IN rtrim(pattern, '*')) = 0 AND pattern !~ '\*\*$'),
  queue   text COLLATE "C" NOT NULL CHECK (octet_length(queue) BETWEEN 1 AND 255)
);

-- Flags for enqueues in one cell, so that most enqueues read only this. Bit 1: a route was ever
-- defined. The other bits are listeners (posthaste.listener_bit): 2 the leader sleeps, which
-- promotes and orders jobs; from 4 on workers of these queues sleep. A session that changes a bit
-- holds the lock (1885893480, 0), because it writes all bits. Unlogged: after a crash it has no
-- value, and the first enqueue calls posthaste.recover().
CREATE UNLOGGED SEQUENCE posthaste.flags MINVALUE 0 START 0;

-- A random number that changes after each crash or promotion of the server; part of
-- posthaste.session_identity().
CREATE UNLOGGED SEQUENCE posthaste.life MINVALUE 0 START 0;

-- Until when sleeping workers are notified, in seconds since 1970: some may have died asleep.
CREATE SEQUENCE posthaste.listeners_until MINVALUE 0 START 0;
SELECT setval('posthaste.flags', 0),
       setval('posthaste.life', floor(random() * 9007199254740992)::bigint),
       setval('posthaste.listeners_until', 0);

-- Epochs make delivery ids differ from those of other databases and of other histories of this one:
-- 60 random bits as 15 hexadecimal digits, for job ids from first_id to that of the next row.
-- Restored, copied and promoted databases begin a new one (functions/restored.sql).
CREATE TABLE posthaste.epoch (
  n          integer     PRIMARY KEY,
  first_id   bigint      NOT NULL,
  value      text        NOT NULL CHECK (value ~ '^[0-9a-f]{15}$'),
  started_at timestamptz NOT NULL DEFAULT clock_timestamp()
);

CREATE TYPE posthaste.claimed AS (
  slot smallint, batch bigint, id bigint, enqueued_at timestamptz, scheduled_at timestamptz,
  expires_at timestamptz, priority integer, attempt integer, max_attempts integer,
  crashes smallint, name text, tag text, unique_key text, ordering_key text, trace text,
  kwargs jsonb
);

-- The next rows of a lane to be claimed: those that are visible in hi and not in lo, after the row
-- (at_xid, at_id).
CREATE TYPE posthaste.lane_window AS (
  -- the newest claim row of the lane, from which this was read; 0 if there is none
  batch    bigint,
  lo       pg_snapshot,
  hi       pg_snapshot,
  at_xid   xid8,
  at_id    bigint,
  -- The lower bound of the range. Only one: with two, a btree scan starts at the lower one, and
  -- reads all claimed rows.
  from_xid xid8,
  from_id  bigint,
  -- Transactions that ran when lo was taken and have ended since: read one by one.
  late     xid8[],
  is_fresh boolean       -- no claim has begun it: it ends now
);

-- Periodic jobs: one row each. The leader enqueues a tick and advances next_at in one transaction,
-- so only one leader can enqueue it.
CREATE TABLE posthaste.periodic (
  name         text COLLATE "C" PRIMARY KEY CHECK (octet_length(name) BETWEEN 1 AND 255),
  schedule     text        NOT NULL,  -- five fields of cron
  time_zone    text        NOT NULL DEFAULT 'UTC',
  -- Which ticks are enqueued later if there was no leader.
  missed       text        NOT NULL DEFAULT 'last' CHECK (missed IN ('all', 'last', 'none')),
  job          text        NOT NULL,
  kwargs       jsonb       NOT NULL DEFAULT '{}',
  queue        text,
  priority     integer     NOT NULL DEFAULT 0,
  tag          text        NOT NULL DEFAULT '',
  max_attempts integer              DEFAULT 25,
  next_at      timestamptz,           -- the next tick; NULL until a leader has seen the row
  looked_at    timestamptz,           -- when next_at was set: an earlier clock recomputes it
  error        text,                  -- why it could not be enqueued at looked_at
  -- Ticks in these ranges were enqueued: they are not repeated when the clock steps back.
  made         tstzmultirange NOT NULL DEFAULT '{}'
);

CREATE TYPE posthaste.place AS (slot smallint, turn bigint, xid xid8, id bigint);

-- History: failed attempts, and completed jobs that are retained for a while.
--
-- History is written to volumes: tables that are filled for a while and truncated as a whole. Each
-- shelf has four, which always exist: no write can miss its table, whatever the leader or the clock
-- does. A volume that a session reads is not truncated, and the current one is filled for longer.

-- The shelves: failed attempts; completed jobs of queues that retain them for up to a day; those of
-- queues that retain them for longer; reports of relays.
CREATE TABLE posthaste.volume (
  shelf    text     NOT NULL CHECK (shelf IN ('attempt', 'day', 'long', 'relay')),
  slot     smallint NOT NULL,
  -- The newest volume of a shelf is being filled. NULL: the volume is empty.
  began_at timestamptz,
  PRIMARY KEY (shelf, slot)
);
INSERT INTO posthaste.volume (shelf, slot, began_at)
SELECT s.shelf, s.first + n, CASE WHEN n = 0 THEN clock_timestamp() END
  FROM (VALUES ('attempt', 0), ('day', 0), ('long', 4), ('relay', 0)) s(shelf, first),
    generate_series(0, 3) n;

-- Settings of the whole database.
CREATE TABLE posthaste.setting (
  only_row      boolean  PRIMARY KEY DEFAULT true CHECK (only_row),
  keep_attempts interval NOT NULL DEFAULT '7 days'
    CHECK (keep_attempts BETWEEN interval '0' AND interval '3660 days'),
  keep_inbox    interval NOT NULL DEFAULT '30 days'
    CHECK (keep_inbox BETWEEN interval '0' AND interval '3660 days')
);
INSERT INTO posthaste.setting DEFAULT VALUES;

-- Figures of queues for charts: every minute for an hour, every ten minutes for a day, hourly for a
-- week (functions/sample.sql); the queue '' is the sum of all. Totals since the beginning, whose
-- differences are rates, and maxima since the previous sample.
CREATE TABLE posthaste.sample (
  at        timestamptz NOT NULL,
  come      bigint   NOT NULL,   -- jobs that were enqueued, or redriven
  done      bigint   NOT NULL,
  failed    bigint   NOT NULL,   -- attempts
  started   bigint   NOT NULL,   -- runs; waited: the milliseconds that their jobs had waited
  waited    bigint   NOT NULL,
  available bigint   NOT NULL,
  running   bigint   NOT NULL,
  oldest    double precision,    -- seconds that the next job had waited; NULL: none waited
  span      smallint NOT NULL,   -- 1, 10 or 60 minutes
  queue     text COLLATE "C" NOT NULL,
  PRIMARY KEY (span, at, queue)
);

-- Failed attempts and those whose worker died, one row each. outcome: 'retried' (another follows),
-- 'dead' (it was the last), 'discarded', 'cancelled', 'crashed' (its worker died). The worker's
-- name is copied because its row is deleted a day after its end.
CREATE TABLE posthaste.attempt (
  at          timestamptz NOT NULL DEFAULT clock_timestamp(),
  job         bigint      NOT NULL,
  worker      bigint,      -- NULL: none, it awaited its confirmation
  attempt     integer     NOT NULL,  -- 1 for the first
  slot        smallint    NOT NULL,
  outcome     text        NOT NULL,
  queue       text COLLATE "C" NOT NULL,
  name        text COLLATE "C" NOT NULL,
  worker_name text,
  error       text
) PARTITION BY LIST (slot);
CREATE INDEX attempt_job ON posthaste.attempt (job);

-- Completed jobs of queues that retain them.
CREATE TABLE posthaste.finished (
  id           bigint      NOT NULL,
  ended_at     timestamptz NOT NULL DEFAULT clock_timestamp(),
  enqueued_at  timestamptz NOT NULL,
  scheduled_at timestamptz NOT NULL,
  expires_at   timestamptz NOT NULL,
  worker       bigint,
  priority     integer     NOT NULL,
  attempt      integer     NOT NULL,
  max_attempts integer,
  slot         smallint    NOT NULL,
  queue        text COLLATE "C" NOT NULL,
  name         text COLLATE "C" NOT NULL,
  tag          text        NOT NULL,
  unique_key   text,
  ordering_key text COLLATE "C",
  last_error   text,
  worker_name  text,
  trace        text,
  kwargs       jsonb       NOT NULL
) PARTITION BY LIST (slot);
CREATE INDEX finished_id ON posthaste.finished (id);

CREATE TABLE posthaste.attempt_0 PARTITION OF posthaste.attempt
  FOR VALUES IN (0) WITH (autovacuum_enabled = off);
CREATE TABLE posthaste.attempt_1 PARTITION OF posthaste.attempt
  FOR VALUES IN (1) WITH (autovacuum_enabled = off);
CREATE TABLE posthaste.attempt_2 PARTITION OF posthaste.attempt
  FOR VALUES IN (2) WITH (autovacuum_enabled = off);
CREATE TABLE posthaste.attempt_3 PARTITION OF posthaste.attempt
  FOR VALUES IN (3) WITH (autovacuum_enabled = off);

CREATE TABLE posthaste.finished_0 PARTITION OF posthaste.finished
  FOR VALUES IN (0) WITH (autovacuum_enabled = off);
CREATE TABLE posthaste.finished_1 PARTITION OF posthaste.finished
  FOR VALUES IN (1) WITH (autovacuum_enabled = off);
CREATE TABLE posthaste.finished_2 PARTITION OF posthaste.finished
  FOR VALUES IN (2) WITH (autovacuum_enabled = off);
CREATE TABLE posthaste.finished_3 PARTITION OF posthaste.finished
  FOR VALUES IN (3) WITH (autovacuum_enabled = off);
CREATE TABLE posthaste.finished_4 PARTITION OF posthaste.finished
  FOR VALUES IN (4) WITH (autovacuum_enabled = off);
CREATE TABLE posthaste.finished_5 PARTITION OF posthaste.finished
  FOR VALUES IN (5) WITH (autovacuum_enabled = off);
CREATE TABLE posthaste.finished_6 PARTITION OF posthaste.finished
  FOR VALUES IN (6) WITH (autovacuum_enabled = off);
CREATE TABLE posthaste.finished_7 PARTITION OF posthaste.finished
  FOR VALUES IN (7) WITH (autovacuum_enabled = off);

-- A row of a job in a slot. state is NULL if the row is finished; outcome is then that of the job.
CREATE TYPE posthaste.slot_row AS (
  job posthaste.store, state text, outcome smallint, worker bigint, claimed_at timestamptz
);

-- The result of a search for a job. claimed_at and worker: its current or last run. ended_at: when
-- it was completed or dead-lettered; not known for a completed job that its queue does not retain.
CREATE TYPE posthaste.found AS (
  id bigint, name text, queue text, priority integer, scheduled_at timestamptz,
  expires_at timestamptz, enqueued_at timestamptz, tag text, kwargs jsonb, unique_key text,
  ordering_key text, attempt integer, max_attempts integer, state text, last_error text,
  worker bigint, worker_name text, claimed_at timestamptz, ended_at timestamptz, trace text
);

-- The identity of the store when workers last used it: one row. Data of another store that is
-- loaded into this one adds its row, which the key admits. '{}': a rebase is running; '{copied}',
-- '{copied,mixed}': rows were loaded into a slot directly, the second if there had been jobs
-- before.
CREATE TABLE posthaste.store_identity (
  identity text[]      PRIMARY KEY,
  since    timestamptz NOT NULL DEFAULT clock_timestamp()
);

-- The site that works the store, and what identified its server last
-- (functions/copied_database.sql). No row: no worker has registered yet. Refused sites are noted.
CREATE TABLE posthaste.site (
  only_row  boolean     PRIMARY KEY DEFAULT true CHECK (only_row),
  name      text,                    -- as configured; NULL: known by its addresses only
  addresses text[]      NOT NULL,    -- by which its processes connect, the newest first
  started   timestamptz NOT NULL,    -- the server's start
  life      bigint      NOT NULL,    -- posthaste.life
  endpoint  text,                    -- the server's own address and port, unless loopback
  since     timestamptz NOT NULL DEFAULT clock_timestamp(),
  refused   text[]      NOT NULL DEFAULT '{}',  -- other sites whose processes wait here
  refused_at timestamptz[] NOT NULL DEFAULT '{}'
);

-- All job ids up to this one were drawn, as the write-ahead log shows: a promoted or restored
-- server begins new delivery ids above it (functions/restored.sql). The leader advances it.
CREATE SEQUENCE posthaste.known_id MINVALUE 0 START 0;
SELECT setval('posthaste.known_id', 0);
-- Each slot that is claimed from has three more tables, for counters (functions/marks.sql):
--   counted_k  marks in a lane's backlog, one every few hundred jobs: a cursor like that of a
--              claim, and the number of jobs from the first mark of its run to it, by name and tag.
--              The difference of two marks is the number of jobs between them, so that claims write
--              nothing here.
--   opened_k   marks in a lane's claims: the batches up to this one that were open
--   left_k     jobs that ended before they were claimed
CREATE TABLE posthaste.counted_0 (
  -- The number of the run's first mark, which counts no jobs and has the cursor of the claims.
  run       bigint      NOT NULL,
  number    bigint      NOT NULL,
  max_xid   xid8        NOT NULL,  -- the last row that the run has counted
  max_id    bigint      NOT NULL,
  at_xid    xid8        NOT NULL,
  at_id     bigint      NOT NULL,
  priority  integer     NOT NULL,
  exhausted boolean     NOT NULL,
  queue     text COLLATE "C" NOT NULL,
  lo        pg_snapshot NOT NULL,
  hi        pg_snapshot NOT NULL,
  names     text[] COLLATE "C" NOT NULL,
  tags      text[]      NOT NULL,
  jobs      bigint[]    NOT NULL
) WITH (autovacuum_enabled = off);

-- Within a run the counted rows only grow, so this is the order of the marks and of their last
-- rows. The only index, so that the planner has no choice.
CREATE INDEX counted_0_lane ON posthaste.counted_0 (queue, priority, run, max_xid, max_id, number);
CREATE TABLE posthaste.opened_0 (
  number   bigint   NOT NULL,
  batch    bigint   NOT NULL,
  priority integer  NOT NULL,
  queue    text COLLATE "C" NOT NULL,
  open     bigint[] NOT NULL,
  PRIMARY KEY (queue, priority, number)
) WITH (autovacuum_enabled = off);
CREATE TABLE posthaste.left_0 (
  xid      xid8    NOT NULL,
  id       bigint  NOT NULL,
  priority integer NOT NULL,
  queue    text COLLATE "C" NOT NULL,
  name     text COLLATE "C" NOT NULL,
  tag      text    NOT NULL
) WITH (autovacuum_enabled = off);
CREATE INDEX left_0_lane ON posthaste.left_0 (queue, priority);
CREATE TABLE posthaste.counted_1 (
  -- The number of the run's first mark, which counts no jobs and has the cursor of the claims.
  run       bigint      NOT NULL,
  number    bigint      NOT NULL,
  max_xid   xid8        NOT NULL,  -- the last row that the run has counted
  max_id    bigint      NOT NULL,
  at_xid    xid8        NOT NULL,
  at_id     bigint      NOT NULL,
  priority  integer     NOT NULL,
  exhausted boolean     NOT NULL,
  queue     text COLLATE "C" NOT NULL,
  lo        pg_snapshot NOT NULL,
  hi        pg_snapshot NOT NULL,
  names     text[] COLLATE "C" NOT NULL,
  tags      text[]      NOT NULL,
  jobs      bigint[]    NOT NULL
) WITH (autovacuum_enabled = off);

-- Within a run the counted rows only grow, so this is the order of the marks and of their last
-- rows. The only index, so that the planner has no choice.
CREATE INDEX counted_1_lane ON posthaste.counted_1 (queue, priority, run, max_xid, max_id, number);
CREATE TABLE posthaste.opened_1 (
  number   bigint   NOT NULL,
  batch    bigint   NOT NULL,
  priority integer  NOT NULL,
  queue    text COLLATE "C" NOT NULL,
  open     bigint[] NOT NULL,
  PRIMARY KEY (queue, priority, number)
) WITH (autovacuum_enabled = off);
CREATE TABLE posthaste.left_1 (
  xid      xid8    NOT NULL,
  id       bigint  NOT NULL,
  priority integer NOT NULL,
  queue    text COLLATE "C" NOT NULL,
  name     text COLLATE "C" NOT NULL,
  tag      text    NOT NULL
) WITH (autovacuum_enabled = off);
CREATE INDEX left_1_lane ON posthaste.left_1 (queue, priority);
CREATE TABLE posthaste.counted_2 (
  -- The number of the run's first mark, which counts no jobs and has the cursor of the claims.
  run       bigint      NOT NULL,
  number    bigint      NOT NULL,
  max_xid   xid8        NOT NULL,  -- the last row that the run has counted
  max_id    bigint      NOT NULL,
  at_xid    xid8        NOT NULL,
  at_id     bigint      NOT NULL,
  priority  integer     NOT NULL,
  exhausted boolean     NOT NULL,
  queue     text COLLATE "C" NOT NULL,
  lo        pg_snapshot NOT NULL,
  hi        pg_snapshot NOT NULL,
  names     text[] COLLATE "C" NOT NULL,
  tags      text[]      NOT NULL,
  jobs      bigint[]    NOT NULL
) WITH (autovacuum_enabled = off);

-- Within a run the counted rows only grow, so this is the order of the marks and of their last
-- rows. The only index, so that the planner has no choice.
CREATE INDEX counted_2_lane ON posthaste.counted_2 (queue, priority, run, max_xid, max_id, number);
CREATE TABLE posthaste.opened_2 (
  number   bigint   NOT NULL,
  batch    bigint   NOT NULL,
  priority integer  NOT NULL,
  queue    text COLLATE "C" NOT NULL,
  open     bigint[] NOT NULL,
  PRIMARY KEY (queue, priority, number)
) WITH (autovacuum_enabled = off);
CREATE TABLE posthaste.left_2 (
  xid      xid8    NOT NULL,
  id       bigint  NOT NULL,
  priority integer NOT NULL,
  queue    text COLLATE "C" NOT NULL,
  name     text COLLATE "C" NOT NULL,
  tag      text    NOT NULL
) WITH (autovacuum_enabled = off);
CREATE INDEX left_2_lane ON posthaste.left_2 (queue, priority);
CREATE TABLE posthaste.counted_3 (
  -- The number of the run's first mark, which counts no jobs and has the cursor of the claims.
  run       bigint      NOT NULL,
  number    bigint      NOT NULL,
  max_xid   xid8        NOT NULL,  -- the last row that the run has counted
  max_id    bigint      NOT NULL,
  at_xid    xid8        NOT NULL,
  at_id     bigint      NOT NULL,
  priority  integer     NOT NULL,
  exhausted boolean     NOT NULL,
  queue     text COLLATE "C" NOT NULL,
  lo        pg_snapshot NOT NULL,
  hi        pg_snapshot NOT NULL,
  names     text[] COLLATE "C" NOT NULL,
  tags      text[]      NOT NULL,
  jobs      bigint[]    NOT NULL
) WITH (autovacuum_enabled = off);

-- Within a run the counted rows only grow, so this is the order of the marks and of their last
-- rows. The only index, so that the planner has no choice.
CREATE INDEX counted_3_lane ON posthaste.counted_3 (queue, priority, run, max_xid, max_id, number);
CREATE TABLE posthaste.opened_3 (
  number   bigint   NOT NULL,
  batch    bigint   NOT NULL,
  priority integer  NOT NULL,
  queue    text COLLATE "C" NOT NULL,
  open     bigint[] NOT NULL,
  PRIMARY KEY (queue, priority, number)
) WITH (autovacuum_enabled = off);
CREATE TABLE posthaste.left_3 (
  xid      xid8    NOT NULL,
  id       bigint  NOT NULL,
  priority integer NOT NULL,
  queue    text COLLATE "C" NOT NULL,
  name     text COLLATE "C" NOT NULL,
  tag      text    NOT NULL
) WITH (autovacuum_enabled = off);
CREATE INDEX left_3_lane ON posthaste.left_3 (queue, priority);
CREATE TABLE posthaste.counted_4 (
  -- The number of the run's first mark, which counts no jobs and has the cursor of the claims.
  run       bigint      NOT NULL,
  number    bigint      NOT NULL,
  max_xid   xid8        NOT NULL,  -- the last row that the run has counted
  max_id    bigint      NOT NULL,
  at_xid    xid8        NOT NULL,
  at_id     bigint      NOT NULL,
  priority  integer     NOT NULL,
  exhausted boolean     NOT NULL,
  queue     text COLLATE "C" NOT NULL,
  lo        pg_snapshot NOT NULL,
  hi        pg_snapshot NOT NULL,
  names     text[] COLLATE "C" NOT NULL,
  tags      text[]      NOT NULL,
  jobs      bigint[]    NOT NULL
) WITH (autovacuum_enabled = off);

-- Within a run the counted rows only grow, so this is the order of the marks and of their last
-- rows. The only index, so that the planner has no choice.
CREATE INDEX counted_4_lane ON posthaste.counted_4 (queue, priority, run, max_xid, max_id, number);
CREATE TABLE posthaste.opened_4 (
  number   bigint   NOT NULL,
  batch    bigint   NOT NULL,
  priority integer  NOT NULL,
  queue    text COLLATE "C" NOT NULL,
  open     bigint[] NOT NULL,
  PRIMARY KEY (queue, priority, number)
) WITH (autovacuum_enabled = off);
CREATE TABLE posthaste.left_4 (
  xid      xid8    NOT NULL,
  id       bigint  NOT NULL,
  priority integer NOT NULL,
  queue    text COLLATE "C" NOT NULL,
  name     text COLLATE "C" NOT NULL,
  tag      text    NOT NULL
) WITH (autovacuum_enabled = off);
CREATE INDEX left_4_lane ON posthaste.left_4 (queue, priority);
CREATE TABLE posthaste.counted_5 (
  -- The number of the run's first mark, which counts no jobs and has the cursor of the claims.
  run       bigint      NOT NULL,
  number    bigint      NOT NULL,
  max_xid   xid8        NOT NULL,  -- the last row that the run has counted
  max_id    bigint      NOT NULL,
  at_xid    xid8        NOT NULL,
  at_id     bigint      NOT NULL,
  priority  integer     NOT NULL,
  exhausted boolean     NOT NULL,
  queue     text COLLATE "C" NOT NULL,
  lo        pg_snapshot NOT NULL,
  hi        pg_snapshot NOT NULL,
  names     text[] COLLATE "C" NOT NULL,
  tags      text[]      NOT NULL,
  jobs      bigint[]    NOT NULL
) WITH (autovacuum_enabled = off);

-- Within a run the counted rows only grow, so this is the order of the marks and of their last
-- rows. The only index, so that the planner has no choice.
CREATE INDEX counted_5_lane ON posthaste.counted_5 (queue, priority, run, max_xid, max_id, number);
CREATE TABLE posthaste.opened_5 (
  number   bigint   NOT NULL,
  batch    bigint   NOT NULL,
  priority integer  NOT NULL,
  queue    text COLLATE "C" NOT NULL,
  open     bigint[] NOT NULL,
  PRIMARY KEY (queue, priority, number)
) WITH (autovacuum_enabled = off);
CREATE TABLE posthaste.left_5 (
  xid      xid8    NOT NULL,
  id       bigint  NOT NULL,
  priority integer NOT NULL,
  queue    text COLLATE "C" NOT NULL,
  name     text COLLATE "C" NOT NULL,
  tag      text    NOT NULL
) WITH (autovacuum_enabled = off);
CREATE INDEX left_5_lane ON posthaste.left_5 (queue, priority);

-- A scheduled slot has two: jobs that left it, and marks, each with the jobs that had entered and
-- not left.
CREATE TABLE posthaste.left_6 (
  xid      xid8    NOT NULL DEFAULT pg_current_xact_id(),
  jobs     bigint  NOT NULL,
  priority integer NOT NULL,
  what     text    NOT NULL,
  queue    text COLLATE "C" NOT NULL,
  name     text COLLATE "C" NOT NULL,
  tag      text    NOT NULL
) WITH (autovacuum_enabled = off);
CREATE INDEX left_6_xid ON posthaste.left_6 (xid);
CREATE TABLE posthaste.counted_6 (
  number     bigint      NOT NULL PRIMARY KEY,
  -- the last job counted, in the order of the index by transaction
  at_xid     xid8        NOT NULL,
  at_due     timestamptz NOT NULL,
  at_id      bigint      NOT NULL,
  exhausted  boolean     NOT NULL,
  lo         pg_snapshot NOT NULL,
  hi         pg_snapshot NOT NULL,
  left_hi    pg_snapshot NOT NULL,  -- jobs that had left by then are subtracted
  queues     text[] COLLATE "C" NOT NULL,
  priorities integer[]   NOT NULL,
  names      text[] COLLATE "C" NOT NULL,
  tags       text[]      NOT NULL,
  whats      text[]      NOT NULL,
  jobs       bigint[]    NOT NULL
) WITH (autovacuum_enabled = off);
CREATE TABLE posthaste.left_7 (
  xid      xid8    NOT NULL DEFAULT pg_current_xact_id(),
  jobs     bigint  NOT NULL,
  priority integer NOT NULL,
  what     text    NOT NULL,
  queue    text COLLATE "C" NOT NULL,
  name     text COLLATE "C" NOT NULL,
  tag      text    NOT NULL
) WITH (autovacuum_enabled = off);
CREATE INDEX left_7_xid ON posthaste.left_7 (xid);
CREATE TABLE posthaste.counted_7 (
  number     bigint      NOT NULL PRIMARY KEY,
  -- the last job counted, in the order of the index by transaction
  at_xid     xid8        NOT NULL,
  at_due     timestamptz NOT NULL,
  at_id      bigint      NOT NULL,
  exhausted  boolean     NOT NULL,
  lo         pg_snapshot NOT NULL,
  hi         pg_snapshot NOT NULL,
  left_hi    pg_snapshot NOT NULL,  -- jobs that had left by then are subtracted
  queues     text[] COLLATE "C" NOT NULL,
  priorities integer[]   NOT NULL,
  names      text[] COLLATE "C" NOT NULL,
  tags       text[]      NOT NULL,
  whats      text[]      NOT NULL,
  jobs       bigint[]    NOT NULL
) WITH (autovacuum_enabled = off);

-- Statistics: deltas of counters outside of the slots: jobs in posthaste.in_flight and
-- posthaste.dead, and totals since the beginning, which workers flush about once a second. Two
-- segments alternate, so that the older is truncated once the newest sums include it. A delta may
-- be in either.
CREATE SEQUENCE posthaste.stats_current MINVALUE 0 START 0;

CREATE SEQUENCE posthaste.stats_low     MINVALUE 0 START 0;
SELECT setval('posthaste.stats_current', 0), setval('posthaste.stats_low', 0);
CREATE TABLE posthaste.stats_delta (
  xid      xid8     NOT NULL DEFAULT pg_current_xact_id(),
  jobs     bigint   NOT NULL,
  priority integer  NOT NULL,
  slot     smallint NOT NULL DEFAULT pg_sequence_last_value('posthaste.stats_current') % 2,
  what     text     NOT NULL,
  queue    text COLLATE "C" NOT NULL,
  name     text COLLATE "C" NOT NULL,
  tag      text     NOT NULL
) PARTITION BY LIST (slot);

CREATE TABLE posthaste.stats_sum (
  number     bigint      NOT NULL,
  slot       smallint    NOT NULL DEFAULT pg_sequence_last_value('posthaste.stats_current') % 2,
  hi         pg_snapshot NOT NULL,  -- the sums include every delta that is visible in it
  queues     text[] COLLATE "C" NOT NULL,
  priorities integer[]   NOT NULL,
  names      text[] COLLATE "C" NOT NULL,
  tags       text[]      NOT NULL,
  whats      text[]      NOT NULL,
  jobs       bigint[]    NOT NULL
) PARTITION BY LIST (slot);

CREATE TABLE posthaste.stats_delta_0 PARTITION OF posthaste.stats_delta
  FOR VALUES IN (0) WITH (autovacuum_enabled = off);
CREATE INDEX stats_delta_0_xid ON posthaste.stats_delta_0 (xid);
CREATE TABLE posthaste.stats_sum_0 PARTITION OF posthaste.stats_sum
  FOR VALUES IN (0) WITH (autovacuum_enabled = off);
CREATE INDEX stats_sum_0_number ON posthaste.stats_sum_0 (number);
CREATE TABLE posthaste.stats_delta_1 PARTITION OF posthaste.stats_delta
  FOR VALUES IN (1) WITH (autovacuum_enabled = off);
CREATE INDEX stats_delta_1_xid ON posthaste.stats_delta_1 (xid);
CREATE TABLE posthaste.stats_sum_1 PARTITION OF posthaste.stats_sum
  FOR VALUES IN (1) WITH (autovacuum_enabled = off);
CREATE INDEX stats_sum_1_number ON posthaste.stats_sum_1 (number);

-- Jobs of one kind in one state, or one sum of them.
CREATE TYPE posthaste.kind AS (
  queue text COLLATE "C", priority integer, name text COLLATE "C", tag text, what text, jobs bigint
);

CREATE TYPE posthaste.counts AS (
  queue text, priority integer, name text, tag text,
  available bigint, blocked bigint, scheduled bigint, retrying bigint, running bigint,
  awaiting bigint, quarantined bigint, dead bigint, discarded bigint, expired bigint,
  cancelled bigint,
  completed_total bigint, failed_total bigint, retried_total bigint, dead_total bigint,
  discarded_total bigint, expired_total bigint, cancelled_total bigint
);

-- Leases of ordered relays: one worker at a time sends a queue. A row is updated a few times a
-- minute, when the lease is renewed (ordered_relay.sql of posthaste-relay).
CREATE TABLE posthaste.ordered_relay (
  queue  text COLLATE "C" PRIMARY KEY,
  worker bigint      NOT NULL,
  since  timestamptz NOT NULL DEFAULT clock_timestamp(),
  until  timestamptz NOT NULL
) WITH (fillfactor = 50);

-- Reports of relays, in volumes of an hour (functions/history.sql), so that no row is updated. Sums
-- are since the relay was started.
CREATE TABLE posthaste.relay (
  at          timestamptz NOT NULL DEFAULT clock_timestamp(),
  worker      bigint      NOT NULL,
  accepted    bigint      NOT NULL,
  rejected     bigint      NOT NULL,
  retried       bigint      NOT NULL,
  unavailable  bigint      NOT NULL,
  down_since  timestamptz,            -- by the relay's clock
  failing_since timestamptz,          -- by the relay's clock: no job was accepted since
  slot        smallint    NOT NULL,
  state       text        NOT NULL,   -- up, down, or standby: another one has the lease
  queue       text COLLATE "C" NOT NULL,
  route       text        NOT NULL,
  destination text        NOT NULL,
  last_error  text,
  rejections    jsonb       NOT NULL,   -- rejected jobs by reason
  failures      jsonb       NOT NULL    -- jobs that were not accepted, by kind of failure
) PARTITION BY LIST (slot);
CREATE INDEX relay_queue ON posthaste.relay (queue, worker, at);

CREATE TABLE posthaste.relay_0 PARTITION OF posthaste.relay
  FOR VALUES IN (0) WITH (autovacuum_enabled = off);
CREATE TABLE posthaste.relay_1 PARTITION OF posthaste.relay
  FOR VALUES IN (1) WITH (autovacuum_enabled = off);
CREATE TABLE posthaste.relay_2 PARTITION OF posthaste.relay
  FOR VALUES IN (2) WITH (autovacuum_enabled = off);
CREATE TABLE posthaste.relay_3 PARTITION OF posthaste.relay
  FOR VALUES IN (3) WITH (autovacuum_enabled = off);

-- Deliveries that receivers have applied, for those that cannot detect duplicates themselves. It
-- may be in another database than the jobs.
CREATE TABLE posthaste.inbox (
  delivery_id uuid        PRIMARY KEY,
  received_at timestamptz NOT NULL DEFAULT clock_timestamp()
);
CREATE INDEX inbox_received_at ON posthaste.inbox (received_at);

-- Alerts whose beginning `posthaste alerts --notify` has reported, and whose end it has not, so
-- that the next process reports the end.
CREATE TABLE posthaste.alert (
  notify   text COLLATE "C"  NOT NULL,    -- the queue of its jobs
  alert    text COLLATE "C"  NOT NULL,
  queue    text COLLATE "C"  NOT NULL,
  value    double precision  NOT NULL,    -- at the beginning
  "limit"  double precision  NOT NULL,
  begun_at timestamptz       NOT NULL DEFAULT clock_timestamp(),
  -- Several processes may notify one queue of different limits.
  PRIMARY KEY (notify, alert, queue, "limit")
);

-- Actions on all jobs that match a filter. A console executes them in batches. Each batch is one
-- transaction, which also advances place and jobs here, so each job counts once. During a batch the
-- console holds the lock (1885893481, id); between batches, driver and driven_until keep other
-- consoles away.
CREATE TABLE posthaste.bulk_action (
  id           integer     PRIMARY KEY,   -- one more than the last
  started_at   timestamptz NOT NULL DEFAULT clock_timestamp(),
  ended_at     timestamptz,
  driven_until timestamptz NOT NULL,
  driver       uuid,                      -- NULL: it rests until driven_until
  at_most      bigint      NOT NULL CHECK (at_most > 0),
  expected     bigint,                    -- matching jobs at the start; NULL: not counted
  jobs         bigint      NOT NULL DEFAULT 0,  -- done so far
  pass_jobs    bigint      NOT NULL DEFAULT 0,  -- done in the current pass
  passes       integer     NOT NULL DEFAULT 0,  -- complete passes over all places
  failures     integer     NOT NULL DEFAULT 0,  -- consecutive batches that failed
  action       text        NOT NULL CHECK (action IN ('retry', 'cancel', 'redrive', 'delete')),
  state        text        NOT NULL DEFAULT 'running'
    CHECK (state IN ('running', 'finished', 'stopped', 'failed')),
  filter       text        NOT NULL,      -- as typed, with resolved times
  place        text,                      -- where the pass continues; NULL: at the beginning
  who          text        NOT NULL,
  stopped_by   text,                      -- the user who stopped it; the next batch reads it
  last_error   text,
  -- The store of the jobs: a copy of the database does not continue the action.
  identity     text[]      NOT NULL
) WITH (fillfactor = 50);

-- Actions of `posthaste txwatch`: a row is committed before the statement that acts, and gets its
-- result afterwards. A row without a result: the process ended in between.
CREATE TABLE posthaste.txwatch_action (
  id                bigint      GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
  at                timestamptz NOT NULL DEFAULT clock_timestamp(),
  server            text        NOT NULL,  -- 'primary', or the name of a follower
  kind              text        NOT NULL CHECK (kind IN ('session', 'prepared', 'slot', 'replica')),
  pid               integer,
  backend_start     timestamptz,
  transaction_start timestamptz,
  name              text,                  -- of a prepared transaction or a slot
  role              text,
  application       text,
  address           text,
  database          text,
  state             text,
  seconds           double precision,      -- how long it had been open
  action            text        NOT NULL CHECK (action IN ('warn', 'cancel', 'terminate')),
  rule              integer     NOT NULL,  -- the rule that decided, 1 for the first
  query             text,                  -- without literals
  result            text,                  -- 'done', 'gone' (it had ended), or an error
  finished_at       timestamptz
);
CREATE INDEX txwatch_action_at ON posthaste.txwatch_action (at);

CREATE TABLE posthaste.synced (
  name     text COLLATE "C" PRIMARY KEY CHECK (name ~ '^[a-z_][a-z0-9_]{0,39}$'),
  relation regclass NOT NULL,
  key      name     NOT NULL,
  version  name     NOT NULL,
  -- a boolean column that marks rows as deleted
  deleted  name,
  -- The time from a change until its job is due, in which the program may index the row itself.
  delay    interval NOT NULL DEFAULT '60 s' CHECK (delay >= '0'),
  draws    boolean  NOT NULL,                      -- triggers draw the version
  enqueues boolean  NOT NULL,                      -- triggers enqueue the jobs of changes
  always   boolean  NOT NULL,                      -- also under session_replication_role = replica
  -- The sync whose sequences are used: syncs that draw for one column share them.
  drawn_by text COLLATE "C" NOT NULL,
  -- A digest of how documents are made of rows, if given at installation: a program with another
  -- digest writes no documents.
  documents text COLLATE "C"
);

-- Results of the last audit of each synced table.
CREATE TABLE posthaste.audited (
  audited_at timestamptz NOT NULL,
  rows       bigint  NOT NULL,
  documents  bigint  NOT NULL,
  differed   bigint  NOT NULL,
  repaired   bigint  NOT NULL,               -- of those that differed
  contents   boolean NOT NULL,               -- whether contents were compared too
  name       text COLLATE "C" PRIMARY KEY
);

-- Postgres as the index, in the same database as the tables or in another. The valid write of a
-- document is the one with the largest (version, pass), whatever arrived last. A deletion stays as
-- a row without words, so that a late write of the deleted document finds a larger version.
CREATE TABLE posthaste.search (
  version    bigint      NOT NULL,
  token      bigint      NOT NULL,   -- identifies the write, for passes that must find their own
  deleted_at timestamptz,
  pass       integer     NOT NULL,
  index      text COLLATE "C" NOT NULL,
  id         text COLLATE "C" NOT NULL,
  words      tsvector    NOT NULL,
  PRIMARY KEY (index, id)
) WITH (fillfactor = 80);

CREATE INDEX search_words ON posthaste.search USING gin (words);
CREATE INDEX search_deleted_at ON posthaste.search (index, deleted_at) WHERE deleted_at IS NOT NULL;

-- Captures (posthaste-capture): turn commits to other tables of the database into jobs. A row
-- changes when a process starts the capture, when its path changes, and when it stops for good.
CREATE TABLE posthaste.capture (
  installed_at timestamptz NOT NULL DEFAULT clock_timestamp(),
  started_at   timestamptz,
  paused_at    timestamptz,            -- it reads no events, and the server keeps its log
  indirect_since timestamptz,          -- since when its path is not direct
  epoch  uuid        NOT NULL,   -- in each delivery id; another one after a gap
  runner       uuid,                   -- the process whose marks are accepted
  published    oid         NOT NULL,   -- the publication's oid: one that was created again lacks
                                       -- earlier changes
  slot         text        NOT NULL,
  publication  text        NOT NULL,
  name         text COLLATE "C" PRIMARY KEY CHECK (name ~ '^[a-z_][a-z0-9_]{0,39}$'),
  stopped      text,                   -- why it does not continue without intervention
  path         text,                   -- of one that sends without jobs: direct, waiting,
                                       -- spilling, full, draining
  path_problem text,                   -- why it is not direct
  -- Cluster, store and database: positions mean nothing in a copy.
  identity     text[]      NOT NULL
) WITH (fillfactor = 50);

-- The positions of captures, each written in the transaction of its jobs; the largest is the
-- newest. No row is updated, so that a pinned snapshot leaves no dead rows: the newest marks are
-- copied to the other table, and the old one is truncated. The parity of capture_turn selects the
-- table that is written.
--   done                 everything before it is done: the slot may be confirmed up to here
--   commit, record, row  the last change that is done, of a transaction that may continue
--   ended                where the server's log ended at that time, which gives the lag in time
--   events, bytes        captured in this epoch
CREATE SEQUENCE posthaste.capture_turn MINVALUE 0 START 0;
SELECT setval('posthaste.capture_turn', 0);
CREATE TABLE posthaste.capture_mark_0 (
  at          timestamptz NOT NULL DEFAULT clock_timestamp(),
  done        pg_lsn      NOT NULL,
  commit      pg_lsn      NOT NULL,
  record      pg_lsn      NOT NULL,
  ended       pg_lsn      NOT NULL DEFAULT pg_current_wal_lsn(),
  events      bigint      NOT NULL DEFAULT 0,
  bytes       bigint      NOT NULL DEFAULT 0,
  row         integer     NOT NULL,
  epoch uuid        NOT NULL
) WITH (autovacuum_enabled = off);
CREATE TABLE posthaste.capture_mark_1 (
  at          timestamptz NOT NULL DEFAULT clock_timestamp(),
  done        pg_lsn      NOT NULL,
  commit      pg_lsn      NOT NULL,
  record      pg_lsn      NOT NULL,
  ended       pg_lsn      NOT NULL DEFAULT pg_current_wal_lsn(),
  events      bigint      NOT NULL DEFAULT 0,
  bytes       bigint      NOT NULL DEFAULT 0,
  row         integer     NOT NULL,
  epoch uuid        NOT NULL
) WITH (autovacuum_enabled = off);

-- Changes that were not captured.
CREATE TABLE posthaste.capture_gap (
  id          bigint      GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
  seen_at     timestamptz NOT NULL DEFAULT clock_timestamp(),
  accepted_at timestamptz,
  epoch uuid        NOT NULL,
  begins      pg_lsn      NOT NULL,
  ends        pg_lsn,                  -- NULL: the capture has not started again
  capture     text COLLATE "C" NOT NULL,
  reason      text        NOT NULL,
  accepted_by text,
  tables      text[]      NOT NULL
);

-- Copies of rows that existed before their capture, or are sent again. A row changes with each
-- chunk, in the transaction of its jobs.
CREATE TABLE posthaste.capture_copy (
  id          bigint      GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
  begun_at    timestamptz NOT NULL DEFAULT clock_timestamp(),
  ended_at    timestamptz,
  rows        bigint      NOT NULL DEFAULT 0,
  expected    bigint      NOT NULL,    -- the estimated number of rows
  is_cancelled boolean    NOT NULL DEFAULT false,
  capture     text COLLATE "C" NOT NULL,
  schema_name text        NOT NULL,
  table_name  text        NOT NULL,
  filter      text,                    -- rows for which this SQL expression is true
  problem     text,                    -- why it does not continue
  after       text[]                   -- the key of the last row; NULL: it has copied none
) WITH (fillfactor = 50);
CREATE UNIQUE INDEX capture_copy_open ON posthaste.capture_copy (capture, schema_name, table_name)
 WHERE ended_at IS NULL;

-- Cancel: ends waiting jobs, and has workers end running ones.

-- Those of these jobs that wait unclaimed in this slot, with their lanes.
CREATE OR REPLACE FUNCTION posthaste.unclaimed_in_0(p_ids bigint[])
RETURNS TABLE (id bigint, queue text, priority integer) LANGUAGE sql STABLE AS $f$
  SELECT r.id, r.queue, r.priority FROM posthaste.ready_0 r
    LEFT JOIN LATERAL (SELECT * FROM posthaste.claim_0 n
        WHERE n.queue = r.queue AND n.priority = r.priority
                        ORDER BY n.queue DESC, n.priority DESC, n.batch DESC LIMIT 1) c ON true
   -- ends of turns have ids too
   WHERE r.id = ANY (p_ids) AND NOT (r.queue = '' AND r.priority = 1)
     AND NOT EXISTS (SELECT FROM posthaste.job_done_0 a WHERE a.xid = r.xid AND a.id = r.id)
     AND posthaste.is_claimed(r.xid, r.id, c.lo, c.hi, c.to_xid, c.to_id, c.exhausted) IS NOT TRUE
$f$;
CREATE OR REPLACE FUNCTION posthaste.unclaimed_in_1(p_ids bigint[])
RETURNS TABLE (id bigint, queue text, priority integer) LANGUAGE sql STABLE AS $f$
  SELECT r.id, r.queue, r.priority FROM posthaste.ready_1 r
    LEFT JOIN LATERAL (SELECT * FROM posthaste.claim_1 n
        WHERE n.queue = r.queue AND n.priority = r.priority
                        ORDER BY n.queue DESC, n.priority DESC, n.batch DESC LIMIT 1) c ON true
   -- ends of turns have ids too
   WHERE r.id = ANY (p_ids) AND NOT (r.queue = '' AND r.priority = 1)
     AND NOT EXISTS (SELECT FROM posthaste.job_done_1 a WHERE a.xid = r.xid AND a.id = r.id)
     AND posthaste.is_claimed(r.xid, r.id, c.lo, c.hi, c.to_xid, c.to_id, c.exhausted) IS NOT TRUE
$f$;
CREATE OR REPLACE FUNCTION posthaste.unclaimed_in_2(p_ids bigint[])
RETURNS TABLE (id bigint, queue text, priority integer) LANGUAGE sql STABLE AS $f$
  SELECT r.id, r.queue, r.priority FROM posthaste.ready_2 r
    LEFT JOIN LATERAL (SELECT * FROM posthaste.claim_2 n
        WHERE n.queue = r.queue AND n.priority = r.priority
                        ORDER BY n.queue DESC, n.priority DESC, n.batch DESC LIMIT 1) c ON true
   -- ends of turns have ids too
   WHERE r.id = ANY (p_ids) AND NOT (r.queue = '' AND r.priority = 1)
     AND NOT EXISTS (SELECT FROM posthaste.job_done_2 a WHERE a.xid = r.xid AND a.id = r.id)
     AND posthaste.is_claimed(r.xid, r.id, c.lo, c.hi, c.to_xid, c.to_id, c.exhausted) IS NOT TRUE
$f$;
CREATE OR REPLACE FUNCTION posthaste.unclaimed_in_3(p_ids bigint[])
RETURNS TABLE (id bigint, queue text, priority integer) LANGUAGE sql STABLE AS $f$
  SELECT r.id, r.queue, r.priority FROM posthaste.ready_3 r
    LEFT JOIN LATERAL (SELECT * FROM posthaste.claim_3 n
        WHERE n.queue = r.queue AND n.priority = r.priority
                        ORDER BY n.queue DESC, n.priority DESC, n.batch DESC LIMIT 1) c ON true
   -- ends of turns have ids too
   WHERE r.id = ANY (p_ids) AND NOT (r.queue = '' AND r.priority = 1)
     AND NOT EXISTS (SELECT FROM posthaste.job_done_3 a WHERE a.xid = r.xid AND a.id = r.id)
     AND posthaste.is_claimed(r.xid, r.id, c.lo, c.hi, c.to_xid, c.to_id, c.exhausted) IS NOT TRUE
$f$;
CREATE OR REPLACE FUNCTION posthaste.unclaimed_in_4(p_ids bigint[])
RETURNS TABLE (id bigint, queue text, priority integer) LANGUAGE sql STABLE AS $f$
  SELECT r.id, r.queue, r.priority FROM posthaste.ready_4 r
    LEFT JOIN LATERAL (SELECT * FROM posthaste.claim_4 n
        WHERE n.queue = r.queue AND n.priority = r.priority
                        ORDER BY n.queue DESC, n.priority DESC, n.batch DESC LIMIT 1) c ON true
   -- ends of turns have ids too
   WHERE r.id = ANY (p_ids) AND NOT (r.queue = '' AND r.priority = 1)
     AND NOT EXISTS (SELECT FROM posthaste.job_done_4 a WHERE a.xid = r.xid AND a.id = r.id)
     AND posthaste.is_claimed(r.xid, r.id, c.lo, c.hi, c.to_xid, c.to_id, c.exhausted) IS NOT TRUE
$f$;
CREATE OR REPLACE FUNCTION posthaste.unclaimed_in_5(p_ids bigint[])
RETURNS TABLE (id bigint, queue text, priority integer) LANGUAGE sql STABLE AS $f$
  SELECT r.id, r.queue, r.priority FROM posthaste.ready_5 r
    LEFT JOIN LATERAL (SELECT * FROM posthaste.claim_5 n
        WHERE n.queue = r.queue AND n.priority = r.priority
                        ORDER BY n.queue DESC, n.priority DESC, n.batch DESC LIMIT 1) c ON true
   -- ends of turns have ids too
   WHERE r.id = ANY (p_ids) AND NOT (r.queue = '' AND r.priority = 1)
     AND NOT EXISTS (SELECT FROM posthaste.job_done_5 a WHERE a.xid = r.xid AND a.id = r.id)
     AND posthaste.is_claimed(r.xid, r.id, c.lo, c.hi, c.to_xid, c.to_id, c.exhausted) IS NOT TRUE
$f$;

-- Those of these jobs that a worker is running.
CREATE OR REPLACE FUNCTION posthaste.running_among_0(p_ids bigint[])
RETURNS SETOF bigint LANGUAGE sql STABLE AS $f$
  SELECT r.id FROM posthaste.running_0() r WHERE r.id = ANY (p_ids)
$f$;
CREATE OR REPLACE FUNCTION posthaste.running_among_1(p_ids bigint[])
RETURNS SETOF bigint LANGUAGE sql STABLE AS $f$
  SELECT r.id FROM posthaste.running_1() r WHERE r.id = ANY (p_ids)
$f$;
CREATE OR REPLACE FUNCTION posthaste.running_among_2(p_ids bigint[])
RETURNS SETOF bigint LANGUAGE sql STABLE AS $f$
  SELECT r.id FROM posthaste.running_2() r WHERE r.id = ANY (p_ids)
$f$;
CREATE OR REPLACE FUNCTION posthaste.running_among_3(p_ids bigint[])
RETURNS SETOF bigint LANGUAGE sql STABLE AS $f$
  SELECT r.id FROM posthaste.running_3() r WHERE r.id = ANY (p_ids)
$f$;
CREATE OR REPLACE FUNCTION posthaste.running_among_4(p_ids bigint[])
RETURNS SETOF bigint LANGUAGE sql STABLE AS $f$
  SELECT r.id FROM posthaste.running_4() r WHERE r.id = ANY (p_ids)
$f$;
CREATE OR REPLACE FUNCTION posthaste.running_among_5(p_ids bigint[])
RETURNS SETOF bigint LANGUAGE sql STABLE AS $f$
  SELECT r.id FROM posthaste.running_5() r WHERE r.id = ANY (p_ids)
$f$;

-- Locks the promoter only if something was found. Returns jobs that may still be here because
-- another session holds the lock and the caller does not wait for it.
CREATE OR REPLACE FUNCTION posthaste.cancel_scheduled_6(p_ids bigint[], p_waits boolean)
RETURNS bigint[] LANGUAGE plpgsql AS $f$
DECLARE
  v_found tid[] := ARRAY(SELECT r.ctid FROM posthaste.scheduled_6 r WHERE r.id = ANY (p_ids));
BEGIN
  IF cardinality(v_found) > 0 THEN
    IF p_waits THEN
      PERFORM pg_advisory_xact_lock(1885893476, 2);
    ELSIF NOT pg_try_advisory_xact_lock(1885893476, 2) THEN
      RETURN ARRAY(SELECT r.id FROM posthaste.scheduled_6 r WHERE r.ctid = ANY (v_found));
    END IF;
    PERFORM posthaste.close_scheduled_6(v_found, 'cancelled');
  END IF;
  RETURN '{}';
END $f$;
CREATE OR REPLACE FUNCTION posthaste.cancel_scheduled_7(p_ids bigint[], p_waits boolean)
RETURNS bigint[] LANGUAGE plpgsql AS $f$
DECLARE
  v_found tid[] := ARRAY(SELECT r.ctid FROM posthaste.scheduled_7 r WHERE r.id = ANY (p_ids));
BEGIN
  IF cardinality(v_found) > 0 THEN
    IF p_waits THEN
      PERFORM pg_advisory_xact_lock(1885893476, 2);
    ELSIF NOT pg_try_advisory_xact_lock(1885893476, 2) THEN
      RETURN ARRAY(SELECT r.id FROM posthaste.scheduled_7 r WHERE r.ctid = ANY (v_found));
    END IF;
    PERFORM posthaste.close_scheduled_7(v_found, 'cancelled');
  END IF;
  RETURN '{}';
END $f$;

-- Those of these jobs that a worker is running, or that are still in posthaste.in_flight.
CREATE OR REPLACE FUNCTION posthaste.in_flight_among(p_ids bigint[])
RETURNS SETOF bigint LANGUAGE sql STABLE AS $f$
  SELECT * FROM posthaste.running_among_0(p_ids) UNION ALL
  SELECT * FROM posthaste.running_among_1(p_ids) UNION ALL
  SELECT * FROM posthaste.running_among_2(p_ids) UNION ALL
  SELECT * FROM posthaste.running_among_3(p_ids) UNION ALL
  SELECT * FROM posthaste.running_among_4(p_ids) UNION ALL
  SELECT * FROM posthaste.running_among_5(p_ids) UNION ALL
  SELECT h.id FROM posthaste.in_flight h WHERE h.id = ANY (p_ids)
$f$;

-- All running jobs.
CREATE OR REPLACE FUNCTION posthaste.all_running() RETURNS SETOF bigint LANGUAGE sql STABLE AS $f$
  SELECT r.id FROM posthaste.running_0() r UNION ALL
  SELECT r.id FROM posthaste.running_1() r UNION ALL
  SELECT r.id FROM posthaste.running_2() r UNION ALL
  SELECT r.id FROM posthaste.running_3() r UNION ALL
  SELECT r.id FROM posthaste.running_4() r UNION ALL
  SELECT r.id FROM posthaste.running_5() r UNION ALL
  SELECT h.id FROM posthaste.in_flight h WHERE h.state = 'running'
$f$;

-- Cancels jobs. Waiting ones are stored as cancelled and never run; running ones are ended by their
-- workers. Returns a row for each unfinished job: 'cancelled', 'running' (being cancelled), or the
-- state in which it had ended before. 'available' means that it still waits and must be passed
-- again: each lane costs a lock, so one call cancels in a hundred lanes, twice. Needs a separate
-- READ COMMITTED transaction, because its locks (lanes and the promoter's) block others until it
-- ends.
CREATE OR REPLACE FUNCTION posthaste.cancel_many(ids bigint[])
RETURNS TABLE (id bigint, state text) LANGUAGE plpgsql
SET jit = off SET plan_cache_mode = force_custom_plan SET search_path = pg_catalog, pg_temp AS $f$
#variable_conflict use_column
DECLARE
  v_left bigint[] := ids;
  v_slots integer[];     -- where some of them wait, in the first hundred lanes
  v_queues text[];
  v_priorities integer[];
  v_scheduled bigint[];
  v_waiting bigint[];    -- those that waited at the last attempt, anywhere
  v_lane record;
BEGIN
  PERFORM posthaste.require_own_store();
  IF current_setting('transaction_isolation') <> 'read committed' THEN
    RAISE EXCEPTION 'posthaste: cancel needs READ COMMITTED, not %',
      current_setting('transaction_isolation')
      USING ERRCODE = 'invalid_transaction_state';
  END IF;
  PERFORM posthaste.limit_send_time();
  -- A job that moves between two attempts is found by the second. Only the first waits for locks:
  -- the promoter's, then lanes in the order in which claims take them. The second already holds
  -- some and would wait in another order.
  FOR v_try IN 1 .. 2 LOOP
    -- Jobs that are being confirmed or handed out are skipped.
    WITH free AS (
      SELECT h.id FROM posthaste.in_flight h
        WHERE h.id = ANY (v_left) AND h.state IN ('awaiting', 'quarantined')
        FOR UPDATE SKIP LOCKED),
    gone AS (
      DELETE FROM posthaste.in_flight h USING free
        WHERE h.id = free.id RETURNING posthaste.from_in_flight(h) AS job)
    INSERT INTO posthaste.dead SELECT d.* FROM gone, posthaste.to_dead(gone.job, 'cancelled') d
      ON CONFLICT DO NOTHING;
    v_scheduled := posthaste.cancel_scheduled_6(v_left, v_try = 1)
      || posthaste.cancel_scheduled_7(v_left, v_try = 1);
    SELECT array_agg(w.slot) FILTER (WHERE w.lane <= 100),
           array_agg(w.queue) FILTER (WHERE w.lane <= 100),
           array_agg(w.priority) FILTER (WHERE w.lane <= 100), v_scheduled || array_agg(w.id)
      INTO v_slots, v_queues, v_priorities, v_waiting
      FROM (SELECT a.*, dense_rank() OVER (ORDER BY a.queue, a.priority) AS lane FROM (
        SELECT 0 AS slot, w.* FROM posthaste.unclaimed_in_0(v_left) w UNION ALL
        SELECT 1 AS slot, w.* FROM posthaste.unclaimed_in_1(v_left) w UNION ALL
        SELECT 2 AS slot, w.* FROM posthaste.unclaimed_in_2(v_left) w UNION ALL
        SELECT 3 AS slot, w.* FROM posthaste.unclaimed_in_3(v_left) w UNION ALL
        SELECT 4 AS slot, w.* FROM posthaste.unclaimed_in_4(v_left) w UNION ALL
        SELECT 5 AS slot, w.* FROM posthaste.unclaimed_in_5(v_left) w UNION ALL
        SELECT 0, 0, '', 0 WHERE false) a) w;
    IF v_try = 1 THEN
      FOR v_lane IN SELECT DISTINCT o.queue COLLATE "C", o.priority
        FROM unnest(v_queues, v_priorities) o(queue, priority) ORDER BY 1, 2 LOOP
        PERFORM posthaste.hold_lane(v_lane.queue, v_lane.priority);
      END LOOP;
    END IF;
    PERFORM posthaste.close_unclaimed_0(o.queue, o.priority, NULL, v_left)
      FROM (SELECT DISTINCT u.queue, u.priority
        FROM unnest(v_slots, v_queues, v_priorities) u(slot, queue, priority)
        WHERE u.slot = 0) o;
    PERFORM posthaste.close_unclaimed_1(o.queue, o.priority, NULL, v_left)
      FROM (SELECT DISTINCT u.queue, u.priority
        FROM unnest(v_slots, v_queues, v_priorities) u(slot, queue, priority)
        WHERE u.slot = 1) o;
    PERFORM posthaste.close_unclaimed_2(o.queue, o.priority, NULL, v_left)
      FROM (SELECT DISTINCT u.queue, u.priority
        FROM unnest(v_slots, v_queues, v_priorities) u(slot, queue, priority)
        WHERE u.slot = 2) o;
    PERFORM posthaste.close_unclaimed_3(o.queue, o.priority, NULL, v_left)
      FROM (SELECT DISTINCT u.queue, u.priority
        FROM unnest(v_slots, v_queues, v_priorities) u(slot, queue, priority)
        WHERE u.slot = 3) o;
    PERFORM posthaste.close_unclaimed_4(o.queue, o.priority, NULL, v_left)
      FROM (SELECT DISTINCT u.queue, u.priority
        FROM unnest(v_slots, v_queues, v_priorities) u(slot, queue, priority)
        WHERE u.slot = 4) o;
    PERFORM posthaste.close_unclaimed_5(o.queue, o.priority, NULL, v_left)
      FROM (SELECT DISTINCT u.queue, u.priority
        FROM unnest(v_slots, v_queues, v_priorities) u(slot, queue, priority)
        WHERE u.slot = 5) o;
    INSERT INTO posthaste.cancelling (id) SELECT r FROM posthaste.in_flight_among(v_left) r
      ORDER BY r ON CONFLICT DO NOTHING;
    v_left := ARRAY(SELECT u FROM unnest(v_left) u
                     WHERE NOT EXISTS (SELECT FROM posthaste.dead d WHERE d.id = u)
                       AND u NOT IN (SELECT r FROM posthaste.in_flight_among(v_left) r));
    EXIT WHEN cardinality(v_left) = 0;
  END LOOP;
  -- Removes requests for ended jobs, including those seen running by this call. A job found nowhere
  -- for ten seconds is done; for a shorter time it may be a move that both attempts missed.
  DELETE FROM posthaste.cancelling c
   WHERE c.id = ANY (ids) AND (EXISTS (SELECT FROM posthaste.dead d WHERE d.id = c.id)
                               OR (c.id = ANY (v_left) AND c.id <> ALL (v_waiting)
                                   AND c.asked_at < clock_timestamp() - interval '10 s'));
  RETURN QUERY
    SELECT u.id, coalesce(d.state, CASE WHEN c.id IS NULL THEN 'available' ELSE 'running' END)
      FROM (SELECT DISTINCT i FROM unnest(ids) i) u(id) LEFT JOIN posthaste.dead d ON d.id = u.id
        LEFT JOIN posthaste.cancelling c ON c.id = u.id
     WHERE d.id IS NOT NULL OR c.id IS NOT NULL OR u.id = ANY (v_waiting);
END $f$;

-- Run by the leader: cancels jobs that were running when they were cancelled and wait again,
-- because they were released or are retried. Running jobs are left alone, however many there are.
CREATE OR REPLACE FUNCTION posthaste.cancel_again() RETURNS bigint LANGUAGE plpgsql
SET jit = off SET search_path = pg_catalog, pg_temp AS $f$
DECLARE
  v_ids bigint[] := '{}';
BEGIN
  IF EXISTS (SELECT FROM posthaste.cancelling) THEN
    v_ids := ARRAY(SELECT c.id FROM posthaste.cancelling c
                    WHERE c.id NOT IN (SELECT r FROM posthaste.all_running() r)
                    ORDER BY c.asked_at LIMIT 1000);
  END IF;
  IF cardinality(v_ids) = 0 OR NOT pg_try_advisory_xact_lock(1885893476, 2) THEN
    RETURN 0;
  END IF;
  RETURN (SELECT count(*) FROM posthaste.cancel_many(v_ids) c WHERE c.state <> 'running');
END $f$;

CREATE OR REPLACE FUNCTION posthaste.cancel(job_id bigint) RETURNS text LANGUAGE sql
SET search_path = pg_catalog, pg_temp AS $f$
  SELECT c.state FROM posthaste.cancel_many(ARRAY[job_id]) c
$f$;
-- Validation of a job: SQL functions of one expression, which the planner inlines into the rule of
-- posthaste.job, so that a prepared INSERT makes no function call. They run under the caller's
-- search_path, so each call and operator is exact or qualified (sql/README.md). Every statement
-- initialises each step of the expression, so it is kept short. (A CHECK constraint would parse the
-- expression in every statement, which cost a single INSERT more than the insert itself.)

-- Length of the arguments as text. A number such as 1e131071 takes a few bytes as jsonb and 128 KiB
-- as text. Documents that may contain many of them are searched for such numbers before they are
-- printed, so that rejecting them does not take a gigabyte of memory.
CREATE OR REPLACE FUNCTION posthaste.text_bytes(kwargs jsonb)
RETURNS integer LANGUAGE sql STABLE PARALLEL SAFE AS $f$
  SELECT CASE
    WHEN (pg_catalog.pg_column_size(kwargs) > 8192
          OR pg_catalog.pg_column_compression(kwargs) IS NOT NULL)
         AND pg_catalog.jsonb_path_exists(kwargs,
         'strict $.** ? (@.type() == "number" && (@ > 1e400 || @ < -1e400
            || (@ != 0 && @ < 1e-400 && @ > -1e-400)))')
           THEN 2147483647
    ELSE octet_length(kwargs::text) END
$f$;

-- Whether this is a trace context: a traceparent of version 00 (W3C Trace Context), and after a
-- space the optional tracestate. The planner does not inline it: most jobs have none, and each
-- statement would pay for its steps. Regular expressions with counts and translate() take five
-- times as long.
CREATE OR REPLACE FUNCTION posthaste.is_trace(trace text)
RETURNS boolean LANGUAGE plpgsql IMMUTABLE STRICT PARALLEL SAFE AS $f$
DECLARE
  digits text := replace(left(trace, 55), '-'::text, ''::text);
BEGIN
  RETURN octet_length(trace) <= 600
    AND trace COLLATE pg_catalog."C" LIKE '00-________________________________-________________-__%'
    AND octet_length(digits) = 52 AND digits COLLATE pg_catalog."C" ~ '^[0-9a-f]+$'
    AND (octet_length(trace) = 55
         OR substr(trace, 56) COLLATE pg_catalog."C" ~ '^ [!-~]([ -~]*[!-~])?$');
END $f$;

-- Nesting is tested only above a size: 65 levels need more than 512 bytes of jsonb. Values from a
-- table may be compressed, and then their size is meaningless.
CREATE OR REPLACE FUNCTION posthaste.is_valid(
  name text, queue text, tag text, unique_key text, ordering_key text, kwargs jsonb,
  kwargs_bytes integer, attempt integer, max_attempts integer, scheduled_at timestamptz,
  expires_at timestamptz, enqueued_at timestamptz, trace text)
RETURNS boolean LANGUAGE sql STABLE PARALLEL SAFE AS $f$
  SELECT name <> '' AND queue <> '' AND tag IS NOT NULL
    AND greatest(octet_length(name), octet_length(queue), octet_length(tag)) <= 255
    AND (unique_key IS NULL OR octet_length(unique_key) BETWEEN 1 AND 1024)
    AND (ordering_key IS NULL OR octet_length(ordering_key) BETWEEN 1 AND 1024)
    AND jsonb_typeof(kwargs) = 'object'
    AND kwargs_bytes <= 1048576
    AND (pg_catalog.pg_column_size(kwargs) < 512
         AND pg_catalog.pg_column_compression(kwargs) IS NULL
         OR NOT pg_catalog.jsonb_path_exists(kwargs,
           'strict $.**{64} ? (@.type() == "object" || @.type() == "array")'))
    AND attempt >= 0
    AND (max_attempts < 1) IS NOT TRUE
    AND least(scheduled_at, expires_at, enqueued_at) >= '0001-01-01 00:00Z'
    AND greatest(scheduled_at, expires_at, enqueued_at) < '9999-01-01 00:00Z'
    AND posthaste.is_trace(trace) IS NOT FALSE
$f$;

-- Raises 22023 naming the invalid field. Called only for invalid jobs; never returns.
CREATE OR REPLACE FUNCTION posthaste.refuse(
  name text, queue text, tag text, unique_key text, ordering_key text, kwargs jsonb,
  kwargs_bytes integer, attempt integer, max_attempts integer, scheduled_at timestamptz,
  expires_at timestamptz, enqueued_at timestamptz, trace text)
RETURNS smallint LANGUAGE plpgsql
SET search_path = pg_catalog, pg_temp AS $f$
DECLARE problem text := CASE
  WHEN octet_length(name) NOT BETWEEN 1 AND 255 THEN 'name: must have 1 to 255 bytes'
  WHEN octet_length(queue) NOT BETWEEN 1 AND 255 THEN 'queue: must have 1 to 255 bytes'
  WHEN octet_length(tag) > 255 THEN 'tag: must have at most 255 bytes'
  WHEN octet_length(unique_key) NOT BETWEEN 1 AND 1024 THEN 'unique_key: must have 1 to 1024 bytes'
  WHEN octet_length(ordering_key) NOT BETWEEN 1 AND 1024
    THEN 'ordering_key: must have 1 to 1024 bytes'
  WHEN jsonb_typeof(kwargs) <> 'object' THEN 'kwargs: must be a JSON object, not '
    || jsonb_typeof(kwargs)
  WHEN kwargs_bytes > 1048576 THEN 'kwargs: must be at most 1 MiB as text'
  WHEN attempt < 0 THEN 'attempt: must not be negative'
  WHEN max_attempts < 1 THEN 'max_attempts: must be at least 1, or NULL for no limit'
  WHEN scheduled_at < '0001-01-01 00:00Z' OR scheduled_at >= '9999-01-01 00:00Z'
    THEN 'scheduled_at: must be in the years 1 to 9998'
  WHEN expires_at >= '9999-01-01 00:00Z' AND expires_at = scheduled_at + interval '30 days' THEN
    'scheduled_at: must be 30 days before the year 9999, unless expires_at is given'
  WHEN expires_at < '0001-01-01 00:00Z' OR expires_at >= '9999-01-01 00:00Z'
    THEN 'expires_at: must be in the years 1 to 9998'
  WHEN enqueued_at < '0001-01-01 00:00Z' OR enqueued_at >= '9999-01-01 00:00Z'
    THEN 'enqueued_at: must be in the years 1 to 9998'
  WHEN NOT posthaste.is_trace(trace) THEN
    'trace: must be a traceparent of version 00, with a space and a tracestate or without, '
    'of at most 600 bytes'
  ELSE 'kwargs: must not be nested deeper than 64 levels'
END;
BEGIN
  RAISE EXCEPTION USING ERRCODE = 'invalid_parameter_value', MESSAGE = 'posthaste: ' || problem;
END $f$;

-- Columns that the view shows but does not accept: a unique key needs a lookup before the row is
-- written, which a rule cannot do; the others are set by the store.
CREATE OR REPLACE FUNCTION posthaste.refuse_field(field text)
RETURNS smallint LANGUAGE plpgsql
SET search_path = pg_catalog, pg_temp AS $f$
BEGIN
  RAISE EXCEPTION USING ERRCODE = 'invalid_parameter_value',
    MESSAGE = 'posthaste: ' || field || ': the view posthaste.job does not accept it'
              || CASE WHEN field = 'unique_key' THEN '; call posthaste.enqueue()' ELSE '' END;
END $f$;
-- Claim: hands out the jobs of a lane in batches, which functions/window.sql selects.

-- Claims up to p_limit jobs and p_bytes of arguments (but at least one job) of one lane of this
-- slot, among those visible at p_now, and returns the batch; NULL if there is none. The caller has
-- held the lane's lock since before p_now. Expired jobs are closed here and stored as expired; with
-- p_expired the batch has only such jobs, up to the first that has not expired. o_mixed: some jobs
-- of the batch are already closed and must not be handed out; there may be no others. o_last: no
-- unclaimed job of the lane is left in this slot. It is false if the batch ended before its window,
-- or if an earlier claim began that window: jobs that have arrived since are in the next window,
-- and come before those of newer slots. o_first_id is NULL unless all jobs of the batch are of one
-- transaction, o_xid: then they are its rows from o_first_id to o_id.
CREATE OR REPLACE FUNCTION posthaste.claim_0(
  p_queue text, p_priority integer, p_worker bigint, p_token uuid, p_limit integer, p_bytes bigint,
  p_expired boolean, p_now pg_snapshot, OUT o_batch bigint, OUT o_n integer, OUT o_bytes bigint,
  OUT o_mixed boolean, OUT o_last boolean, OUT o_xid xid8, OUT o_first_id bigint, OUT o_id bigint)
LANGUAGE plpgsql AS $f$
DECLARE
  w posthaste.lane_window := posthaste.window_0(p_queue, p_priority, p_now);
  v_extent record;
BEGIN
  LOOP
    v_extent := posthaste.batch_extent_0(p_queue, p_priority, w, p_limit, p_bytes, p_expired);
    EXIT WHEN v_extent.o_n > 0;
    -- No job is left, or the next one has not expired.
    IF w.is_fresh OR v_extent.o_xid IS NOT NULL THEN
      RETURN;
    END IF;
    w := posthaste.next_window(w, p_now);
  END LOOP;
  o_n := v_extent.o_n; o_bytes := v_extent.o_bytes; o_mixed := v_extent.o_mixed;
  o_xid := v_extent.o_xid; o_first_id := v_extent.o_first_id; o_id := v_extent.o_id;
  INSERT INTO posthaste.claim_0 (batch, worker, queue, priority, token, lo, hi, from_xid, from_id,
      to_xid, to_id, n, exhausted)
  VALUES (nextval('posthaste.batch_id'), p_worker, p_queue, p_priority, p_token, w.lo, w.hi,
          w.at_xid, w.at_id, v_extent.o_xid, v_extent.o_id, o_n,
          o_n < p_limit AND o_bytes < p_bytes AND NOT p_expired)
  RETURNING batch, exhausted AND w.is_fresh INTO o_batch, o_last;
  IF NOT o_mixed AND EXISTS (SELECT FROM posthaste.closed_unclaimed_0) THEN
    o_mixed := EXISTS (SELECT FROM posthaste.closed_unclaimed_0 e
        JOIN posthaste.batch_rows_0(o_batch, p_token) r ON (r.xid, r.id) = (e.xid, e.id));
  END IF;
  IF o_mixed THEN
    PERFORM posthaste.expire_claimed_0(o_batch, p_token);
  END IF;
END $f$;
CREATE OR REPLACE FUNCTION posthaste.claim_1(
  p_queue text, p_priority integer, p_worker bigint, p_token uuid, p_limit integer, p_bytes bigint,
  p_expired boolean, p_now pg_snapshot, OUT o_batch bigint, OUT o_n integer, OUT o_bytes bigint,
  OUT o_mixed boolean, OUT o_last boolean, OUT o_xid xid8, OUT o_first_id bigint, OUT o_id bigint)
LANGUAGE plpgsql AS $f$
DECLARE
  w posthaste.lane_window := posthaste.window_1(p_queue, p_priority, p_now);
  v_extent record;
BEGIN
  LOOP
    v_extent := posthaste.batch_extent_1(p_queue, p_priority, w, p_limit, p_bytes, p_expired);
    EXIT WHEN v_extent.o_n > 0;
    -- No job is left, or the next one has not expired.
    IF w.is_fresh OR v_extent.o_xid IS NOT NULL THEN
      RETURN;
    END IF;
    w := posthaste.next_window(w, p_now);
  END LOOP;
  o_n := v_extent.o_n; o_bytes := v_extent.o_bytes; o_mixed := v_extent.o_mixed;
  o_xid := v_extent.o_xid; o_first_id := v_extent.o_first_id; o_id := v_extent.o_id;
  INSERT INTO posthaste.claim_1 (batch, worker, queue, priority, token, lo, hi, from_xid, from_id,
      to_xid, to_id, n, exhausted)
  VALUES (nextval('posthaste.batch_id'), p_worker, p_queue, p_priority, p_token, w.lo, w.hi,
          w.at_xid, w.at_id, v_extent.o_xid, v_extent.o_id, o_n,
          o_n < p_limit AND o_bytes < p_bytes AND NOT p_expired)
  RETURNING batch, exhausted AND w.is_fresh INTO o_batch, o_last;
  IF NOT o_mixed AND EXISTS (SELECT FROM posthaste.closed_unclaimed_1) THEN
    o_mixed := EXISTS (SELECT FROM posthaste.closed_unclaimed_1 e
        JOIN posthaste.batch_rows_1(o_batch, p_token) r ON (r.xid, r.id) = (e.xid, e.id));
  END IF;
  IF o_mixed THEN
    PERFORM posthaste.expire_claimed_1(o_batch, p_token);
  END IF;
END $f$;
CREATE OR REPLACE FUNCTION posthaste.claim_2(
  p_queue text, p_priority integer, p_worker bigint, p_token uuid, p_limit integer, p_bytes bigint,
  p_expired boolean, p_now pg_snapshot, OUT o_batch bigint, OUT o_n integer, OUT o_bytes bigint,
  OUT o_mixed boolean, OUT o_last boolean, OUT o_xid xid8, OUT o_first_id bigint, OUT o_id bigint)
LANGUAGE plpgsql AS $f$
DECLARE
  w posthaste.lane_window := posthaste.window_2(p_queue, p_priority, p_now);
  v_extent record;
BEGIN
  LOOP
    v_extent := posthaste.batch_extent_2(p_queue, p_priority, w, p_limit, p_bytes, p_expired);
    EXIT WHEN v_extent.o_n > 0;
    -- No job is left, or the next one has not expired.
    IF w.is_fresh OR v_extent.o_xid IS NOT NULL THEN
      RETURN;
    END IF;
    w := posthaste.next_window(w, p_now);
  END LOOP;
  o_n := v_extent.o_n; o_bytes := v_extent.o_bytes; o_mixed := v_extent.o_mixed;
  o_xid := v_extent.o_xid; o_first_id := v_extent.o_first_id; o_id := v_extent.o_id;
  INSERT INTO posthaste.claim_2 (batch, worker, queue, priority, token, lo, hi, from_xid, from_id,
      to_xid, to_id, n, exhausted)
  VALUES (nextval('posthaste.batch_id'), p_worker, p_queue, p_priority, p_token, w.lo, w.hi,
          w.at_xid, w.at_id, v_extent.o_xid, v_extent.o_id, o_n,
          o_n < p_limit AND o_bytes < p_bytes AND NOT p_expired)
  RETURNING batch, exhausted AND w.is_fresh INTO o_batch, o_last;
  IF NOT o_mixed AND EXISTS (SELECT FROM posthaste.closed_unclaimed_2) THEN
    o_mixed := EXISTS (SELECT FROM posthaste.closed_unclaimed_2 e
        JOIN posthaste.batch_rows_2(o_batch, p_token) r ON (r.xid, r.id) = (e.xid, e.id));
  END IF;
  IF o_mixed THEN
    PERFORM posthaste.expire_claimed_2(o_batch, p_token);
  END IF;
END $f$;
CREATE OR REPLACE FUNCTION posthaste.claim_3(
  p_queue text, p_priority integer, p_worker bigint, p_token uuid, p_limit integer, p_bytes bigint,
  p_expired boolean, p_now pg_snapshot, OUT o_batch bigint, OUT o_n integer, OUT o_bytes bigint,
  OUT o_mixed boolean, OUT o_last boolean, OUT o_xid xid8, OUT o_first_id bigint, OUT o_id bigint)
LANGUAGE plpgsql AS $f$
DECLARE
  w posthaste.lane_window := posthaste.window_3(p_queue, p_priority, p_now);
  v_extent record;
BEGIN
  LOOP
    v_extent := posthaste.batch_extent_3(p_queue, p_priority, w, p_limit, p_bytes, p_expired);
    EXIT WHEN v_extent.o_n > 0;
    -- No job is left, or the next one has not expired.
    IF w.is_fresh OR v_extent.o_xid IS NOT NULL THEN
      RETURN;
    END IF;
    w := posthaste.next_window(w, p_now);
  END LOOP;
  o_n := v_extent.o_n; o_bytes := v_extent.o_bytes; o_mixed := v_extent.o_mixed;
  o_xid := v_extent.o_xid; o_first_id := v_extent.o_first_id; o_id := v_extent.o_id;
  INSERT INTO posthaste.claim_3 (batch, worker, queue, priority, token, lo, hi, from_xid, from_id,
      to_xid, to_id, n, exhausted)
  VALUES (nextval('posthaste.batch_id'), p_worker, p_queue, p_priority, p_token, w.lo, w.hi,
          w.at_xid, w.at_id, v_extent.o_xid, v_extent.o_id, o_n,
          o_n < p_limit AND o_bytes < p_bytes AND NOT p_expired)
  RETURNING batch, exhausted AND w.is_fresh INTO o_batch, o_last;
  IF NOT o_mixed AND EXISTS (SELECT FROM posthaste.closed_unclaimed_3) THEN
    o_mixed := EXISTS (SELECT FROM posthaste.closed_unclaimed_3 e
        JOIN posthaste.batch_rows_3(o_batch, p_token) r ON (r.xid, r.id) = (e.xid, e.id));
  END IF;
  IF o_mixed THEN
    PERFORM posthaste.expire_claimed_3(o_batch, p_token);
  END IF;
END $f$;
CREATE OR REPLACE FUNCTION posthaste.claim_4(
  p_queue text, p_priority integer, p_worker bigint, p_token uuid, p_limit integer, p_bytes bigint,
  p_expired boolean, p_now pg_snapshot, OUT o_batch bigint, OUT o_n integer, OUT o_bytes bigint,
  OUT o_mixed boolean, OUT o_last boolean, OUT o_xid xid8, OUT o_first_id bigint, OUT o_id bigint)
LANGUAGE plpgsql AS $f$
DECLARE
  w posthaste.lane_window := posthaste.window_4(p_queue, p_priority, p_now);
  v_extent record;
BEGIN
  LOOP
    v_extent := posthaste.batch_extent_4(p_queue, p_priority, w, p_limit, p_bytes, p_expired);
    EXIT WHEN v_extent.o_n > 0;
    -- No job is left, or the next one has not expired.
    IF w.is_fresh OR v_extent.o_xid IS NOT NULL THEN
      RETURN;
    END IF;
    w := posthaste.next_window(w, p_now);
  END LOOP;
  o_n := v_extent.o_n; o_bytes := v_extent.o_bytes; o_mixed := v_extent.o_mixed;
  o_xid := v_extent.o_xid; o_first_id := v_extent.o_first_id; o_id := v_extent.o_id;
  INSERT INTO posthaste.claim_4 (batch, worker, queue, priority, token, lo, hi, from_xid, from_id,
      to_xid, to_id, n, exhausted)
  VALUES (nextval('posthaste.batch_id'), p_worker, p_queue, p_priority, p_token, w.lo, w.hi,
          w.at_xid, w.at_id, v_extent.o_xid, v_extent.o_id, o_n,
          o_n < p_limit AND o_bytes < p_bytes AND NOT p_expired)
  RETURNING batch, exhausted AND w.is_fresh INTO o_batch, o_last;
  IF NOT o_mixed AND EXISTS (SELECT FROM posthaste.closed_unclaimed_4) THEN
    o_mixed := EXISTS (SELECT FROM posthaste.closed_unclaimed_4 e
        JOIN posthaste.batch_rows_4(o_batch, p_token) r ON (r.xid, r.id) = (e.xid, e.id));
  END IF;
  IF o_mixed THEN
    PERFORM posthaste.expire_claimed_4(o_batch, p_token);
  END IF;
END $f$;
CREATE OR REPLACE FUNCTION posthaste.claim_5(
  p_queue text, p_priority integer, p_worker bigint, p_token uuid, p_limit integer, p_bytes bigint,
  p_expired boolean, p_now pg_snapshot, OUT o_batch bigint, OUT o_n integer, OUT o_bytes bigint,
  OUT o_mixed boolean, OUT o_last boolean, OUT o_xid xid8, OUT o_first_id bigint, OUT o_id bigint)
LANGUAGE plpgsql AS $f$
DECLARE
  w posthaste.lane_window := posthaste.window_5(p_queue, p_priority, p_now);
  v_extent record;
BEGIN
  LOOP
    v_extent := posthaste.batch_extent_5(p_queue, p_priority, w, p_limit, p_bytes, p_expired);
    EXIT WHEN v_extent.o_n > 0;
    -- No job is left, or the next one has not expired.
    IF w.is_fresh OR v_extent.o_xid IS NOT NULL THEN
      RETURN;
    END IF;
    w := posthaste.next_window(w, p_now);
  END LOOP;
  o_n := v_extent.o_n; o_bytes := v_extent.o_bytes; o_mixed := v_extent.o_mixed;
  o_xid := v_extent.o_xid; o_first_id := v_extent.o_first_id; o_id := v_extent.o_id;
  INSERT INTO posthaste.claim_5 (batch, worker, queue, priority, token, lo, hi, from_xid, from_id,
      to_xid, to_id, n, exhausted)
  VALUES (nextval('posthaste.batch_id'), p_worker, p_queue, p_priority, p_token, w.lo, w.hi,
          w.at_xid, w.at_id, v_extent.o_xid, v_extent.o_id, o_n,
          o_n < p_limit AND o_bytes < p_bytes AND NOT p_expired)
  RETURNING batch, exhausted AND w.is_fresh INTO o_batch, o_last;
  IF NOT o_mixed AND EXISTS (SELECT FROM posthaste.closed_unclaimed_5) THEN
    o_mixed := EXISTS (SELECT FROM posthaste.closed_unclaimed_5 e
        JOIN posthaste.batch_rows_5(o_batch, p_token) r ON (r.xid, r.id) = (e.xid, e.id));
  END IF;
  IF o_mixed THEN
    PERFORM posthaste.expire_claimed_5(o_batch, p_token);
  END IF;
END $f$;

-- Closes the jobs of a batch that expired before the claim. From then on the batch must be closed
-- job by job.
CREATE OR REPLACE FUNCTION posthaste.expire_claimed_0(p_batch bigint, p_token uuid)
RETURNS void LANGUAGE plpgsql AS $f$
BEGIN
  INSERT INTO posthaste.batch_split_0 (batch) VALUES (p_batch);
  WITH gone AS MATERIALIZED (
    SELECT r.* FROM posthaste.batch_rows_0(p_batch, p_token) r
     WHERE r.expires_at <= clock_timestamp() AND NOT EXISTS (SELECT FROM posthaste.job_done_0 a
         WHERE a.xid = r.xid AND a.id = r.id)),
  closed AS (INSERT INTO posthaste.job_done_0 (xid, id, outcome) SELECT xid, id, 3 FROM gone)
  INSERT INTO posthaste.dead SELECT d.* FROM gone, posthaste.to_dead(gone, 'expired') d
    ON CONFLICT (id) DO NOTHING;
END $f$;
CREATE OR REPLACE FUNCTION posthaste.expire_claimed_1(p_batch bigint, p_token uuid)
RETURNS void LANGUAGE plpgsql AS $f$
BEGIN
  INSERT INTO posthaste.batch_split_1 (batch) VALUES (p_batch);
  WITH gone AS MATERIALIZED (
    SELECT r.* FROM posthaste.batch_rows_1(p_batch, p_token) r
     WHERE r.expires_at <= clock_timestamp() AND NOT EXISTS (SELECT FROM posthaste.job_done_1 a
         WHERE a.xid = r.xid AND a.id = r.id)),
  closed AS (INSERT INTO posthaste.job_done_1 (xid, id, outcome) SELECT xid, id, 3 FROM gone)
  INSERT INTO posthaste.dead SELECT d.* FROM gone, posthaste.to_dead(gone, 'expired') d
    ON CONFLICT (id) DO NOTHING;
END $f$;
CREATE OR REPLACE FUNCTION posthaste.expire_claimed_2(p_batch bigint, p_token uuid)
RETURNS void LANGUAGE plpgsql AS $f$
BEGIN
  INSERT INTO posthaste.batch_split_2 (batch) VALUES (p_batch);
  WITH gone AS MATERIALIZED (
    SELECT r.* FROM posthaste.batch_rows_2(p_batch, p_token) r
     WHERE r.expires_at <= clock_timestamp() AND NOT EXISTS (SELECT FROM posthaste.job_done_2 a
         WHERE a.xid = r.xid AND a.id = r.id)),
  closed AS (INSERT INTO posthaste.job_done_2 (xid, id, outcome) SELECT xid, id, 3 FROM gone)
  INSERT INTO posthaste.dead SELECT d.* FROM gone, posthaste.to_dead(gone, 'expired') d
    ON CONFLICT (id) DO NOTHING;
END $f$;
CREATE OR REPLACE FUNCTION posthaste.expire_claimed_3(p_batch bigint, p_token uuid)
RETURNS void LANGUAGE plpgsql AS $f$
BEGIN
  INSERT INTO posthaste.batch_split_3 (batch) VALUES (p_batch);
  WITH gone AS MATERIALIZED (
    SELECT r.* FROM posthaste.batch_rows_3(p_batch, p_token) r
     WHERE r.expires_at <= clock_timestamp() AND NOT EXISTS (SELECT FROM posthaste.job_done_3 a
         WHERE a.xid = r.xid AND a.id = r.id)),
  closed AS (INSERT INTO posthaste.job_done_3 (xid, id, outcome) SELECT xid, id, 3 FROM gone)
  INSERT INTO posthaste.dead SELECT d.* FROM gone, posthaste.to_dead(gone, 'expired') d
    ON CONFLICT (id) DO NOTHING;
END $f$;
CREATE OR REPLACE FUNCTION posthaste.expire_claimed_4(p_batch bigint, p_token uuid)
RETURNS void LANGUAGE plpgsql AS $f$
BEGIN
  INSERT INTO posthaste.batch_split_4 (batch) VALUES (p_batch);
  WITH gone AS MATERIALIZED (
    SELECT r.* FROM posthaste.batch_rows_4(p_batch, p_token) r
     WHERE r.expires_at <= clock_timestamp() AND NOT EXISTS (SELECT FROM posthaste.job_done_4 a
         WHERE a.xid = r.xid AND a.id = r.id)),
  closed AS (INSERT INTO posthaste.job_done_4 (xid, id, outcome) SELECT xid, id, 3 FROM gone)
  INSERT INTO posthaste.dead SELECT d.* FROM gone, posthaste.to_dead(gone, 'expired') d
    ON CONFLICT (id) DO NOTHING;
END $f$;
CREATE OR REPLACE FUNCTION posthaste.expire_claimed_5(p_batch bigint, p_token uuid)
RETURNS void LANGUAGE plpgsql AS $f$
BEGIN
  INSERT INTO posthaste.batch_split_5 (batch) VALUES (p_batch);
  WITH gone AS MATERIALIZED (
    SELECT r.* FROM posthaste.batch_rows_5(p_batch, p_token) r
     WHERE r.expires_at <= clock_timestamp() AND NOT EXISTS (SELECT FROM posthaste.job_done_5 a
         WHERE a.xid = r.xid AND a.id = r.id)),
  closed AS (INSERT INTO posthaste.job_done_5 (xid, id, outcome) SELECT xid, id, 3 FROM gone)
  INSERT INTO posthaste.dead SELECT d.* FROM gone, posthaste.to_dead(gone, 'expired') d
    ON CONFLICT (id) DO NOTHING;
END $f$;

-- The jobs of a batch as they are handed out; for a mixed batch without its closed jobs.
CREATE OR REPLACE FUNCTION posthaste.batch_jobs_0(p_batch bigint, p_token uuid, p_mixed boolean)
RETURNS SETOF posthaste.claimed LANGUAGE sql STABLE AS $f$
  SELECT r.slot, p_batch, r.id, r.enqueued_at, r.scheduled_at, r.expires_at, r.priority, r.attempt,
         r.max_attempts, r.crashes,
         r.name, r.tag, r.unique_key, r.ordering_key, r.trace, r.kwargs
    FROM posthaste.batch_rows_0(p_batch, p_token) r
   WHERE NOT p_mixed OR NOT EXISTS (SELECT FROM posthaste.job_done_0 a
       WHERE a.xid = r.xid AND a.id = r.id)
$f$;
CREATE OR REPLACE FUNCTION posthaste.batch_jobs_1(p_batch bigint, p_token uuid, p_mixed boolean)
RETURNS SETOF posthaste.claimed LANGUAGE sql STABLE AS $f$
  SELECT r.slot, p_batch, r.id, r.enqueued_at, r.scheduled_at, r.expires_at, r.priority, r.attempt,
         r.max_attempts, r.crashes,
         r.name, r.tag, r.unique_key, r.ordering_key, r.trace, r.kwargs
    FROM posthaste.batch_rows_1(p_batch, p_token) r
   WHERE NOT p_mixed OR NOT EXISTS (SELECT FROM posthaste.job_done_1 a
       WHERE a.xid = r.xid AND a.id = r.id)
$f$;
CREATE OR REPLACE FUNCTION posthaste.batch_jobs_2(p_batch bigint, p_token uuid, p_mixed boolean)
RETURNS SETOF posthaste.claimed LANGUAGE sql STABLE AS $f$
  SELECT r.slot, p_batch, r.id, r.enqueued_at, r.scheduled_at, r.expires_at, r.priority, r.attempt,
         r.max_attempts, r.crashes,
         r.name, r.tag, r.unique_key, r.ordering_key, r.trace, r.kwargs
    FROM posthaste.batch_rows_2(p_batch, p_token) r
   WHERE NOT p_mixed OR NOT EXISTS (SELECT FROM posthaste.job_done_2 a
       WHERE a.xid = r.xid AND a.id = r.id)
$f$;
CREATE OR REPLACE FUNCTION posthaste.batch_jobs_3(p_batch bigint, p_token uuid, p_mixed boolean)
RETURNS SETOF posthaste.claimed LANGUAGE sql STABLE AS $f$
  SELECT r.slot, p_batch, r.id, r.enqueued_at, r.scheduled_at, r.expires_at, r.priority, r.attempt,
         r.max_attempts, r.crashes,
         r.name, r.tag, r.unique_key, r.ordering_key, r.trace, r.kwargs
    FROM posthaste.batch_rows_3(p_batch, p_token) r
   WHERE NOT p_mixed OR NOT EXISTS (SELECT FROM posthaste.job_done_3 a
       WHERE a.xid = r.xid AND a.id = r.id)
$f$;
CREATE OR REPLACE FUNCTION posthaste.batch_jobs_4(p_batch bigint, p_token uuid, p_mixed boolean)
RETURNS SETOF posthaste.claimed LANGUAGE sql STABLE AS $f$
  SELECT r.slot, p_batch, r.id, r.enqueued_at, r.scheduled_at, r.expires_at, r.priority, r.attempt,
         r.max_attempts, r.crashes,
         r.name, r.tag, r.unique_key, r.ordering_key, r.trace, r.kwargs
    FROM posthaste.batch_rows_4(p_batch, p_token) r
   WHERE NOT p_mixed OR NOT EXISTS (SELECT FROM posthaste.job_done_4 a
       WHERE a.xid = r.xid AND a.id = r.id)
$f$;
CREATE OR REPLACE FUNCTION posthaste.batch_jobs_5(p_batch bigint, p_token uuid, p_mixed boolean)
RETURNS SETOF posthaste.claimed LANGUAGE sql STABLE AS $f$
  SELECT r.slot, p_batch, r.id, r.enqueued_at, r.scheduled_at, r.expires_at, r.priority, r.attempt,
         r.max_attempts, r.crashes,
         r.name, r.tag, r.unique_key, r.ordering_key, r.trace, r.kwargs
    FROM posthaste.batch_rows_5(p_batch, p_token) r
   WHERE NOT p_mixed OR NOT EXISTS (SELECT FROM posthaste.job_done_5 a
       WHERE a.xid = r.xid AND a.id = r.id)
$f$;

-- The same for a batch without closed jobs, if its rows have at most p_bytes together; else no row.
CREATE OR REPLACE FUNCTION posthaste.batch_jobs_if_small_0(
  p_batch bigint, p_token uuid, p_bytes integer)
RETURNS SETOF posthaste.claimed LANGUAGE sql STABLE AS $f$
  SELECT r.slot, p_batch, r.id, r.enqueued_at, r.scheduled_at, r.expires_at, r.priority, r.attempt,
         r.max_attempts, r.crashes, r.name, r.tag, r.unique_key, r.ordering_key, r.trace, r.kwargs
    FROM (SELECT r.*, sum(128 + r.kwargs_bytes + octet_length(
                   concat(r.name, r.tag, r.unique_key, r.ordering_key, r.trace))) OVER () AS bytes
            FROM posthaste.batch_rows_0(p_batch, p_token) r) r
   WHERE r.bytes <= p_bytes
$f$;
CREATE OR REPLACE FUNCTION posthaste.batch_jobs_if_small_1(
  p_batch bigint, p_token uuid, p_bytes integer)
RETURNS SETOF posthaste.claimed LANGUAGE sql STABLE AS $f$
  SELECT r.slot, p_batch, r.id, r.enqueued_at, r.scheduled_at, r.expires_at, r.priority, r.attempt,
         r.max_attempts, r.crashes, r.name, r.tag, r.unique_key, r.ordering_key, r.trace, r.kwargs
    FROM (SELECT r.*, sum(128 + r.kwargs_bytes + octet_length(
                   concat(r.name, r.tag, r.unique_key, r.ordering_key, r.trace))) OVER () AS bytes
            FROM posthaste.batch_rows_1(p_batch, p_token) r) r
   WHERE r.bytes <= p_bytes
$f$;
CREATE OR REPLACE FUNCTION posthaste.batch_jobs_if_small_2(
  p_batch bigint, p_token uuid, p_bytes integer)
RETURNS SETOF posthaste.claimed LANGUAGE sql STABLE AS $f$
  SELECT r.slot, p_batch, r.id, r.enqueued_at, r.scheduled_at, r.expires_at, r.priority, r.attempt,
         r.max_attempts, r.crashes, r.name, r.tag, r.unique_key, r.ordering_key, r.trace, r.kwargs
    FROM (SELECT r.*, sum(128 + r.kwargs_bytes + octet_length(
                   concat(r.name, r.tag, r.unique_key, r.ordering_key, r.trace))) OVER () AS bytes
            FROM posthaste.batch_rows_2(p_batch, p_token) r) r
   WHERE r.bytes <= p_bytes
$f$;
CREATE OR REPLACE FUNCTION posthaste.batch_jobs_if_small_3(
  p_batch bigint, p_token uuid, p_bytes integer)
RETURNS SETOF posthaste.claimed LANGUAGE sql STABLE AS $f$
  SELECT r.slot, p_batch, r.id, r.enqueued_at, r.scheduled_at, r.expires_at, r.priority, r.attempt,
         r.max_attempts, r.crashes, r.name, r.tag, r.unique_key, r.ordering_key, r.trace, r.kwargs
    FROM (SELECT r.*, sum(128 + r.kwargs_bytes + octet_length(
                   concat(r.name, r.tag, r.unique_key, r.ordering_key, r.trace))) OVER () AS bytes
            FROM posthaste.batch_rows_3(p_batch, p_token) r) r
   WHERE r.bytes <= p_bytes
$f$;
CREATE OR REPLACE FUNCTION posthaste.batch_jobs_if_small_4(
  p_batch bigint, p_token uuid, p_bytes integer)
RETURNS SETOF posthaste.claimed LANGUAGE sql STABLE AS $f$
  SELECT r.slot, p_batch, r.id, r.enqueued_at, r.scheduled_at, r.expires_at, r.priority, r.attempt,
         r.max_attempts, r.crashes, r.name, r.tag, r.unique_key, r.ordering_key, r.trace, r.kwargs
    FROM (SELECT r.*, sum(128 + r.kwargs_bytes + octet_length(
                   concat(r.name, r.tag, r.unique_key, r.ordering_key, r.trace))) OVER () AS bytes
            FROM posthaste.batch_rows_4(p_batch, p_token) r) r
   WHERE r.bytes <= p_bytes
$f$;
CREATE OR REPLACE FUNCTION posthaste.batch_jobs_if_small_5(
  p_batch bigint, p_token uuid, p_bytes integer)
RETURNS SETOF posthaste.claimed LANGUAGE sql STABLE AS $f$
  SELECT r.slot, p_batch, r.id, r.enqueued_at, r.scheduled_at, r.expires_at, r.priority, r.attempt,
         r.max_attempts, r.crashes, r.name, r.tag, r.unique_key, r.ordering_key, r.trace, r.kwargs
    FROM (SELECT r.*, sum(128 + r.kwargs_bytes + octet_length(
                   concat(r.name, r.tag, r.unique_key, r.ordering_key, r.trace))) OVER () AS bytes
            FROM posthaste.batch_rows_5(p_batch, p_token) r) r
   WHERE r.bytes <= p_bytes
$f$;

-- The same of a batch of one transaction, which is one range of its rows: at half of the cost.
CREATE OR REPLACE FUNCTION posthaste.transaction_jobs_if_small_0(
  p_batch bigint, p_queue text, p_priority integer, p_xid xid8, p_first_id bigint, p_id bigint,
  p_bytes integer)
RETURNS SETOF posthaste.claimed LANGUAGE sql STABLE AS $f$
  SELECT r.slot, p_batch, r.id, r.enqueued_at, r.scheduled_at, r.expires_at, r.priority, r.attempt,
         r.max_attempts, r.crashes, r.name, r.tag, r.unique_key, r.ordering_key, r.trace, r.kwargs
    FROM (SELECT r.*, sum(128 + r.kwargs_bytes + octet_length(
                   concat(r.name, r.tag, r.unique_key, r.ordering_key, r.trace))) OVER () AS bytes
            FROM posthaste.ready_0 r
           WHERE r.queue = p_queue AND r.priority = p_priority AND r.xid = p_xid
             AND r.id >= p_first_id AND r.id <= p_id
           ORDER BY r.queue, r.priority, r.xid, r.id) r
   WHERE r.bytes <= p_bytes
$f$;
CREATE OR REPLACE FUNCTION posthaste.transaction_jobs_if_small_1(
  p_batch bigint, p_queue text, p_priority integer, p_xid xid8, p_first_id bigint, p_id bigint,
  p_bytes integer)
RETURNS SETOF posthaste.claimed LANGUAGE sql STABLE AS $f$
  SELECT r.slot, p_batch, r.id, r.enqueued_at, r.scheduled_at, r.expires_at, r.priority, r.attempt,
         r.max_attempts, r.crashes, r.name, r.tag, r.unique_key, r.ordering_key, r.trace, r.kwargs
    FROM (SELECT r.*, sum(128 + r.kwargs_bytes + octet_length(
                   concat(r.name, r.tag, r.unique_key, r.ordering_key, r.trace))) OVER () AS bytes
            FROM posthaste.ready_1 r
           WHERE r.queue = p_queue AND r.priority = p_priority AND r.xid = p_xid
             AND r.id >= p_first_id AND r.id <= p_id
           ORDER BY r.queue, r.priority, r.xid, r.id) r
   WHERE r.bytes <= p_bytes
$f$;
CREATE OR REPLACE FUNCTION posthaste.transaction_jobs_if_small_2(
  p_batch bigint, p_queue text, p_priority integer, p_xid xid8, p_first_id bigint, p_id bigint,
  p_bytes integer)
RETURNS SETOF posthaste.claimed LANGUAGE sql STABLE AS $f$
  SELECT r.slot, p_batch, r.id, r.enqueued_at, r.scheduled_at, r.expires_at, r.priority, r.attempt,
         r.max_attempts, r.crashes, r.name, r.tag, r.unique_key, r.ordering_key, r.trace, r.kwargs
    FROM (SELECT r.*, sum(128 + r.kwargs_bytes + octet_length(
                   concat(r.name, r.tag, r.unique_key, r.ordering_key, r.trace))) OVER () AS bytes
            FROM posthaste.ready_2 r
           WHERE r.queue = p_queue AND r.priority = p_priority AND r.xid = p_xid
             AND r.id >= p_first_id AND r.id <= p_id
           ORDER BY r.queue, r.priority, r.xid, r.id) r
   WHERE r.bytes <= p_bytes
$f$;
CREATE OR REPLACE FUNCTION posthaste.transaction_jobs_if_small_3(
  p_batch bigint, p_queue text, p_priority integer, p_xid xid8, p_first_id bigint, p_id bigint,
  p_bytes integer)
RETURNS SETOF posthaste.claimed LANGUAGE sql STABLE AS $f$
  SELECT r.slot, p_batch, r.id, r.enqueued_at, r.scheduled_at, r.expires_at, r.priority, r.attempt,
         r.max_attempts, r.crashes, r.name, r.tag, r.unique_key, r.ordering_key, r.trace, r.kwargs
    FROM (SELECT r.*, sum(128 + r.kwargs_bytes + octet_length(
                   concat(r.name, r.tag, r.unique_key, r.ordering_key, r.trace))) OVER () AS bytes
            FROM posthaste.ready_3 r
           WHERE r.queue = p_queue AND r.priority = p_priority AND r.xid = p_xid
             AND r.id >= p_first_id AND r.id <= p_id
           ORDER BY r.queue, r.priority, r.xid, r.id) r
   WHERE r.bytes <= p_bytes
$f$;
CREATE OR REPLACE FUNCTION posthaste.transaction_jobs_if_small_4(
  p_batch bigint, p_queue text, p_priority integer, p_xid xid8, p_first_id bigint, p_id bigint,
  p_bytes integer)
RETURNS SETOF posthaste.claimed LANGUAGE sql STABLE AS $f$
  SELECT r.slot, p_batch, r.id, r.enqueued_at, r.scheduled_at, r.expires_at, r.priority, r.attempt,
         r.max_attempts, r.crashes, r.name, r.tag, r.unique_key, r.ordering_key, r.trace, r.kwargs
    FROM (SELECT r.*, sum(128 + r.kwargs_bytes + octet_length(
                   concat(r.name, r.tag, r.unique_key, r.ordering_key, r.trace))) OVER () AS bytes
            FROM posthaste.ready_4 r
           WHERE r.queue = p_queue AND r.priority = p_priority AND r.xid = p_xid
             AND r.id >= p_first_id AND r.id <= p_id
           ORDER BY r.queue, r.priority, r.xid, r.id) r
   WHERE r.bytes <= p_bytes
$f$;
CREATE OR REPLACE FUNCTION posthaste.transaction_jobs_if_small_5(
  p_batch bigint, p_queue text, p_priority integer, p_xid xid8, p_first_id bigint, p_id bigint,
  p_bytes integer)
RETURNS SETOF posthaste.claimed LANGUAGE sql STABLE AS $f$
  SELECT r.slot, p_batch, r.id, r.enqueued_at, r.scheduled_at, r.expires_at, r.priority, r.attempt,
         r.max_attempts, r.crashes, r.name, r.tag, r.unique_key, r.ordering_key, r.trace, r.kwargs
    FROM (SELECT r.*, sum(128 + r.kwargs_bytes + octet_length(
                   concat(r.name, r.tag, r.unique_key, r.ordering_key, r.trace))) OVER () AS bytes
            FROM posthaste.ready_5 r
           WHERE r.queue = p_queue AND r.priority = p_priority AND r.xid = p_xid
             AND r.id >= p_first_id AND r.id <= p_id
           ORDER BY r.queue, r.priority, r.xid, r.id) r
   WHERE r.bytes <= p_bytes
$f$;

-- Claims up to p_limit jobs and about p_bytes of arguments of a queue, lanes in the order of
-- p_priorities (strict priority: lower first). The jobs belong to p_worker under the fence (slot,
-- batch, p_token) until they are acknowledged or the worker is found dead. Must run READ COMMITTED:
-- the cursor has to be read with a snapshot taken after the lane lock. The transaction's commit
-- becomes asynchronous: a claim that a crash forgets only hands its jobs out again, and an
-- acknowledgement that reached the disk took its claim with it.
--
-- If all jobs of a batch had expired, the claim closes further expired jobs of the lane, a thousand
-- at a time, until it has closed 5,000 or 50 ms have passed. If some had expired, or if the batch
-- ended a window that an earlier claim began, it continues in the lane while there is room, because
-- a newer slot must not come first. Then it returns the jobs that it has, and a last row without an
-- id: the caller claims again after the number of milliseconds in the column batch, here 0. A claim
-- that has locked a hundred lanes, or that p_bytes or the queue's rate has stopped, ends with such
-- a row too. Without it, and with fewer jobs than p_limit, no job was left in these lanes.
--
-- Lanes stay locked while the answer is sent, and a frozen client reads nothing. So with p_answer,
-- the answer contains at most this many bytes of jobs. For each further batch it has a row without
-- an id but with a slot: once the claim has committed, posthaste.claimed_jobs() reads the batch.
-- The session remembers these batches, so that a statement sent right after the claim can read them
-- before the answer has arrived.
CREATE OR REPLACE FUNCTION posthaste.claim(
  p_queue text, p_priorities integer[], p_worker bigint, p_token uuid, p_limit integer,
  p_bytes bigint, p_answer integer DEFAULT NULL)
RETURNS SETOF posthaste.claimed LANGUAGE plpgsql
SET enable_seqscan = off SET enable_bitmapscan = off SET enable_hashjoin = off
SET enable_mergejoin = off SET jit = off SET plan_cache_mode = force_generic_plan
SET search_path = pg_catalog, pg_temp AS $f$
DECLARE
  v_started timestamptz; v_now pg_snapshot;
  v_priority integer; v_slot integer;
  b record;           -- the batch
  v_rows bigint;
  v_expired boolean;  -- the lane's previous batch had expired as a whole
  v_closed bigint := 0; v_left integer := p_limit;
  v_begun timestamptz;
  v_is_held boolean;  -- the lane was locked without a check for work
  v_queue posthaste.queue;
  v_bytes bigint := p_bytes;
  v_most integer;     -- jobs that the next batch may have
  v_more posthaste.claimed;
  v_size bigint; v_lanes integer := 0;
  v_answer integer := p_answer;  -- bytes that further batches may add to the answer
  v_share integer;               -- the part of them for the next batch
  v_is_sent boolean;
  v_taken bigint := 0;
  v_slots integer[] := '{}'; v_batches bigint[] := '{}';
BEGIN
  IF current_setting('transaction_isolation') <> 'read committed' THEN
    RAISE EXCEPTION 'posthaste: claim needs READ COMMITTED, not %',
      current_setting('transaction_isolation')
      USING ERRCODE = 'invalid_transaction_state';
  END IF;
  PERFORM set_config('synchronous_commit', 'off', true);
  -- After a crash of the server, the worker's first claim rejoins, and waits for the disk.
  IF NOT EXISTS (SELECT FROM posthaste.worker
      WHERE id = p_worker AND stopped_at IS NULL AND identity = posthaste.session_identity())
     AND NOT posthaste.rejoin(p_worker) THEN
    RAISE EXCEPTION 'posthaste: worker % is not registered here or was declared dead', p_worker
      USING ERRCODE = 'object_not_in_prerequisite_state';
  END IF;
  SELECT * INTO v_queue FROM posthaste.queue q WHERE q.name = p_queue;
  IF v_queue.paused_at IS NOT NULL THEN
    RETURN;
  END IF;
  IF v_queue.rate IS NOT NULL THEN
    v_left := least(v_left, posthaste.rate_allowance(v_queue));
    IF v_left = 0 THEN
      v_more.batch := posthaste.wait_until_next(v_queue);
      RETURN NEXT v_more;
      RETURN;
    END IF;
  END IF;
  FOREACH v_priority IN ARRAY p_priorities LOOP
    v_begun := clock_timestamp();
    v_is_held := false;
    -- A single lane is locked without a check for work, which would cost as much as the claim. Of
    -- several lanes, the empty ones would stay locked while the others are claimed from.
    IF cardinality(p_priorities) = 1 THEN
      v_is_held := pg_try_advisory_xact_lock(1885893475, posthaste.lane_key(p_queue, v_priority));
    END IF;
    IF NOT v_is_held THEN
      CONTINUE WHEN NOT posthaste.lane_has_work(p_queue, v_priority, p_worker);
      PERFORM posthaste.hold_lane(p_queue, v_priority);
    END IF;
    -- While the lane is locked, no other session moves its jobs. All slots are read with one
    -- snapshot: of jobs committed to two segments between two reads, the newer ones would come
    -- first.
    v_now := posthaste.cursor_snapshot();
    FOREACH v_slot IN ARRAY posthaste.scan_slots() LOOP
      v_expired := false; v_most := v_left; v_size := v_bytes;
      LOOP
        CASE v_slot
          WHEN 0 THEN
            b := posthaste.claim_0(p_queue, v_priority, p_worker, p_token, v_most, v_size,
              v_expired, v_now);
          WHEN 1 THEN
            b := posthaste.claim_1(p_queue, v_priority, p_worker, p_token, v_most, v_size,
              v_expired, v_now);
          WHEN 2 THEN
            b := posthaste.claim_2(p_queue, v_priority, p_worker, p_token, v_most, v_size,
              v_expired, v_now);
          WHEN 3 THEN
            b := posthaste.claim_3(p_queue, v_priority, p_worker, p_token, v_most, v_size,
              v_expired, v_now);
          WHEN 4 THEN
            b := posthaste.claim_4(p_queue, v_priority, p_worker, p_token, v_most, v_size,
              v_expired, v_now);
          WHEN 5 THEN
            b := posthaste.claim_5(p_queue, v_priority, p_worker, p_token, v_most, v_size,
              v_expired, v_now);
        END CASE;
        IF b.o_batch IS NULL THEN
          EXIT WHEN NOT v_expired;
          v_expired := false; v_most := v_left; v_size := v_bytes;
          CONTINUE;
        END IF;
        v_is_sent := p_answer IS NULL OR NOT b.o_mixed AND b.o_bytes + 128 * b.o_n <= v_answer;
        v_rows := b.o_n;
        -- o_bytes excludes names and keys, which are counted when the rows are read. A batch that
        -- needs at most half of v_answer gets half of it, and so has room for them.
        v_share := CASE WHEN 2 * (b.o_bytes + 128 * b.o_n) <= v_answer THEN v_answer / 2
                        ELSE v_answer END;
        IF v_is_sent OR b.o_mixed THEN
          CASE v_slot
            WHEN 0 THEN
              IF p_answer IS NULL THEN
                RETURN QUERY SELECT * FROM posthaste.batch_jobs_0(b.o_batch, p_token, b.o_mixed) h;
              ELSIF v_is_sent AND b.o_first_id IS NOT NULL THEN
                RETURN QUERY
                  SELECT * FROM posthaste.transaction_jobs_if_small_0(b.o_batch, p_queue,
                    v_priority, b.o_xid, b.o_first_id, b.o_id, v_share) h;
              ELSIF v_is_sent THEN
                RETURN QUERY
                  SELECT * FROM posthaste.batch_jobs_if_small_0(b.o_batch, p_token, v_share) h;
              ELSE
                PERFORM FROM posthaste.batch_jobs_0(b.o_batch, p_token, true) h;
              END IF;
            WHEN 1 THEN
              IF p_answer IS NULL THEN
                RETURN QUERY SELECT * FROM posthaste.batch_jobs_1(b.o_batch, p_token, b.o_mixed) h;
              ELSIF v_is_sent AND b.o_first_id IS NOT NULL THEN
                RETURN QUERY
                  SELECT * FROM posthaste.transaction_jobs_if_small_1(b.o_batch, p_queue,
                    v_priority, b.o_xid, b.o_first_id, b.o_id, v_share) h;
              ELSIF v_is_sent THEN
                RETURN QUERY
                  SELECT * FROM posthaste.batch_jobs_if_small_1(b.o_batch, p_token, v_share) h;
              ELSE
                PERFORM FROM posthaste.batch_jobs_1(b.o_batch, p_token, true) h;
              END IF;
            WHEN 2 THEN
              IF p_answer IS NULL THEN
                RETURN QUERY SELECT * FROM posthaste.batch_jobs_2(b.o_batch, p_token, b.o_mixed) h;
              ELSIF v_is_sent AND b.o_first_id IS NOT NULL THEN
                RETURN QUERY
                  SELECT * FROM posthaste.transaction_jobs_if_small_2(b.o_batch, p_queue,
                    v_priority, b.o_xid, b.o_first_id, b.o_id, v_share) h;
              ELSIF v_is_sent THEN
                RETURN QUERY
                  SELECT * FROM posthaste.batch_jobs_if_small_2(b.o_batch, p_token, v_share) h;
              ELSE
                PERFORM FROM posthaste.batch_jobs_2(b.o_batch, p_token, true) h;
              END IF;
            WHEN 3 THEN
              IF p_answer IS NULL THEN
                RETURN QUERY SELECT * FROM posthaste.batch_jobs_3(b.o_batch, p_token, b.o_mixed) h;
              ELSIF v_is_sent AND b.o_first_id IS NOT NULL THEN
                RETURN QUERY
                  SELECT * FROM posthaste.transaction_jobs_if_small_3(b.o_batch, p_queue,
                    v_priority, b.o_xid, b.o_first_id, b.o_id, v_share) h;
              ELSIF v_is_sent THEN
                RETURN QUERY
                  SELECT * FROM posthaste.batch_jobs_if_small_3(b.o_batch, p_token, v_share) h;
              ELSE
                PERFORM FROM posthaste.batch_jobs_3(b.o_batch, p_token, true) h;
              END IF;
            WHEN 4 THEN
              IF p_answer IS NULL THEN
                RETURN QUERY SELECT * FROM posthaste.batch_jobs_4(b.o_batch, p_token, b.o_mixed) h;
              ELSIF v_is_sent AND b.o_first_id IS NOT NULL THEN
                RETURN QUERY
                  SELECT * FROM posthaste.transaction_jobs_if_small_4(b.o_batch, p_queue,
                    v_priority, b.o_xid, b.o_first_id, b.o_id, v_share) h;
              ELSIF v_is_sent THEN
                RETURN QUERY
                  SELECT * FROM posthaste.batch_jobs_if_small_4(b.o_batch, p_token, v_share) h;
              ELSE
                PERFORM FROM posthaste.batch_jobs_4(b.o_batch, p_token, true) h;
              END IF;
            WHEN 5 THEN
              IF p_answer IS NULL THEN
                RETURN QUERY SELECT * FROM posthaste.batch_jobs_5(b.o_batch, p_token, b.o_mixed) h;
              ELSIF v_is_sent AND b.o_first_id IS NOT NULL THEN
                RETURN QUERY
                  SELECT * FROM posthaste.transaction_jobs_if_small_5(b.o_batch, p_queue,
                    v_priority, b.o_xid, b.o_first_id, b.o_id, v_share) h;
              ELSIF v_is_sent THEN
                RETURN QUERY
                  SELECT * FROM posthaste.batch_jobs_if_small_5(b.o_batch, p_token, v_share) h;
              ELSE
                PERFORM FROM posthaste.batch_jobs_5(b.o_batch, p_token, true) h;
              END IF;
          END CASE;
          GET DIAGNOSTICS v_rows = ROW_COUNT;
          IF v_is_sent AND v_rows = 0 AND NOT b.o_mixed THEN
            v_is_sent := false; v_rows := b.o_n;
          ELSIF v_is_sent THEN
            v_answer := v_answer - v_share;
          END IF;
        END IF;
        IF v_rows > 0 AND NOT v_is_sent THEN
          v_more.slot := v_slot; v_more.batch := b.o_batch;
          RETURN NEXT v_more;
          v_slots := v_slots || v_slot; v_batches := v_batches || b.o_batch;
          PERFORM set_config('posthaste.unread',
            p_token || ' ' || v_slots::text || ' ' || v_batches::text, false);
          v_more.slot := NULL;
          v_answer := 0;  -- later batches must be read after this one
        END IF;
        IF v_rows > 0 THEN
          v_left := v_left - v_rows; v_taken := v_taken + v_rows;
          IF v_queue.rate IS NOT NULL THEN
            PERFORM posthaste.consume_rate(v_queue, v_rows);
          END IF;
          v_bytes := v_bytes - b.o_bytes;
          EXIT WHEN b.o_last OR v_left <= 0 OR v_bytes <= 0;
        END IF;
        v_started := coalesce(v_started, clock_timestamp());
        v_closed := v_closed + b.o_n - v_rows;
        IF v_closed >= 5000 OR clock_timestamp() - v_started > interval '50 ms' THEN
          v_more.batch := 0;
          RETURN NEXT v_more;
          RETURN;
        END IF;
        v_expired := v_rows = 0;
        IF v_expired THEN
          v_most := 1000; v_size := 67108864;
        ELSE
          v_most := v_left; v_size := v_bytes;
        END IF;
      END LOOP;
      IF v_left <= 0 OR v_bytes <= 0 THEN
        -- The caller knows only p_limit, and must learn that another limit ended the claim.
        IF v_taken < p_limit THEN
          v_more.batch := 0;
          RETURN NEXT v_more;
        END IF;
        RETURN;
      END IF;
    END LOOP;
    -- A slow scan without a result: moves the cursors past the rows that it read.
    IF v_is_held AND v_taken = 0 AND clock_timestamp() - v_begun > interval '2 ms' THEN
      PERFORM posthaste.lane_has_work(p_queue, v_priority, p_worker);
    END IF;
    v_lanes := v_lanes + 1;
    IF v_lanes = 100 THEN v_more.batch := 0; RETURN NEXT v_more; RETURN; END IF;
  END LOOP;
END $f$;

-- The open batches of a claim, in its order, for a worker that lost the answer. Waits up to 5 s for
-- the locks of its lanes, so that a claim that still runs has ended before its batches are read.
-- Returns no row for more than a hundred lanes.
CREATE OR REPLACE FUNCTION posthaste.claim_batches(
  p_queue text, p_priorities integer[], p_worker bigint, p_token uuid)
RETURNS TABLE (slot smallint, batch bigint) LANGUAGE plpgsql
SET enable_seqscan = off SET enable_bitmapscan = off SET enable_hashjoin = off
SET enable_mergejoin = off SET jit = off SET plan_cache_mode = force_generic_plan
SET lock_timeout = '5s' SET search_path = pg_catalog, pg_temp AS $f$
#variable_conflict use_column
DECLARE
  v_priority integer;
BEGIN
  -- The jobs of a worker that was declared dead are quarantined.
  IF cardinality(p_priorities) > 100
     OR NOT EXISTS (SELECT FROM posthaste.worker WHERE id = p_worker AND stopped_at IS NULL
                       AND posthaste.is_this_store(identity)) THEN
    RETURN;
  END IF;
  FOREACH v_priority IN ARRAY p_priorities LOOP
    PERFORM posthaste.hold_lane(p_queue, v_priority);
  END LOOP;
  RETURN QUERY
    SELECT f.slot, f.batch
      FROM (
        SELECT 0::smallint AS slot, c.batch
          FROM posthaste.claim_0 c
         WHERE c.queue = p_queue AND c.priority = ANY (p_priorities)
           AND c.worker = p_worker AND c.token = p_token
           AND NOT EXISTS (SELECT FROM posthaste.batch_done_0 w WHERE w.batch = c.batch)
        UNION ALL
        SELECT 1::smallint AS slot, c.batch
          FROM posthaste.claim_1 c
         WHERE c.queue = p_queue AND c.priority = ANY (p_priorities)
           AND c.worker = p_worker AND c.token = p_token
           AND NOT EXISTS (SELECT FROM posthaste.batch_done_1 w WHERE w.batch = c.batch)
        UNION ALL
        SELECT 2::smallint AS slot, c.batch
          FROM posthaste.claim_2 c
         WHERE c.queue = p_queue AND c.priority = ANY (p_priorities)
           AND c.worker = p_worker AND c.token = p_token
           AND NOT EXISTS (SELECT FROM posthaste.batch_done_2 w WHERE w.batch = c.batch)
        UNION ALL
        SELECT 3::smallint AS slot, c.batch
          FROM posthaste.claim_3 c
         WHERE c.queue = p_queue AND c.priority = ANY (p_priorities)
           AND c.worker = p_worker AND c.token = p_token
           AND NOT EXISTS (SELECT FROM posthaste.batch_done_3 w WHERE w.batch = c.batch)
        UNION ALL
        SELECT 4::smallint AS slot, c.batch
          FROM posthaste.claim_4 c
         WHERE c.queue = p_queue AND c.priority = ANY (p_priorities)
           AND c.worker = p_worker AND c.token = p_token
           AND NOT EXISTS (SELECT FROM posthaste.batch_done_4 w WHERE w.batch = c.batch)
        UNION ALL
        SELECT 5::smallint AS slot, c.batch
          FROM posthaste.claim_5 c
         WHERE c.queue = p_queue AND c.priority = ANY (p_priorities)
           AND c.worker = p_worker AND c.token = p_token
           AND NOT EXISTS (SELECT FROM posthaste.batch_done_5 w WHERE w.batch = c.batch)
        UNION ALL
        SELECT NULL, NULL WHERE false
      ) f
     ORDER BY f.batch;
END $f$;

-- The jobs of a committed claim: those of its open batches, and those that a leader has moved to
-- posthaste.in_flight because they ran for long; with p_ids only these. No row for a worker that
-- was declared dead, whose jobs are quarantined. No lock is held while they are sent. STABLE, so
-- that everything is read with one snapshot: a job that moves is returned once.
CREATE OR REPLACE FUNCTION posthaste.claimed_jobs(
  p_worker bigint, p_token uuid, p_slots smallint[], p_batches bigint[], p_ids bigint[])
RETURNS SETOF posthaste.claimed LANGUAGE plpgsql STABLE
SET enable_seqscan = off SET enable_bitmapscan = off SET enable_hashjoin = off
SET enable_mergejoin = off SET jit = off SET plan_cache_mode = force_generic_plan
SET search_path = pg_catalog, pg_temp AS $f$
DECLARE
  v_split boolean;  -- some jobs of the batch are closed
BEGIN
  IF NOT EXISTS (SELECT FROM posthaste.worker WHERE id = p_worker AND stopped_at IS NULL
      AND posthaste.is_this_store(identity)) THEN
    RETURN;
  END IF;
  RETURN QUERY
    SELECT (-1)::smallint, 0::bigint, h.id, h.enqueued_at, h.scheduled_at, h.expires_at, h.priority,
           h.attempt, h.max_attempts, h.crashes, h.name, h.tag, h.unique_key, h.ordering_key,
           h.trace, h.kwargs
      FROM posthaste.in_flight h
     WHERE h.worker = p_worker AND h.token = p_token AND h.state = 'running'
       AND (p_ids IS NULL OR h.id = ANY (p_ids))
     ORDER BY h.id;
  FOR i IN 1 .. cardinality(p_batches) LOOP
    CASE p_slots[i]
      WHEN 0 THEN
        CONTINUE WHEN EXISTS (SELECT FROM posthaste.batch_done_0 w WHERE w.batch = p_batches[i]);
        v_split := EXISTS (SELECT FROM posthaste.batch_split_0 s WHERE s.batch = p_batches[i]);
        RETURN QUERY SELECT * FROM posthaste.batch_jobs_0(p_batches[i], p_token, v_split) h
          WHERE p_ids IS NULL OR h.id = ANY (p_ids);
      WHEN 1 THEN
        CONTINUE WHEN EXISTS (SELECT FROM posthaste.batch_done_1 w WHERE w.batch = p_batches[i]);
        v_split := EXISTS (SELECT FROM posthaste.batch_split_1 s WHERE s.batch = p_batches[i]);
        RETURN QUERY SELECT * FROM posthaste.batch_jobs_1(p_batches[i], p_token, v_split) h
          WHERE p_ids IS NULL OR h.id = ANY (p_ids);
      WHEN 2 THEN
        CONTINUE WHEN EXISTS (SELECT FROM posthaste.batch_done_2 w WHERE w.batch = p_batches[i]);
        v_split := EXISTS (SELECT FROM posthaste.batch_split_2 s WHERE s.batch = p_batches[i]);
        RETURN QUERY SELECT * FROM posthaste.batch_jobs_2(p_batches[i], p_token, v_split) h
          WHERE p_ids IS NULL OR h.id = ANY (p_ids);
      WHEN 3 THEN
        CONTINUE WHEN EXISTS (SELECT FROM posthaste.batch_done_3 w WHERE w.batch = p_batches[i]);
        v_split := EXISTS (SELECT FROM posthaste.batch_split_3 s WHERE s.batch = p_batches[i]);
        RETURN QUERY SELECT * FROM posthaste.batch_jobs_3(p_batches[i], p_token, v_split) h
          WHERE p_ids IS NULL OR h.id = ANY (p_ids);
      WHEN 4 THEN
        CONTINUE WHEN EXISTS (SELECT FROM posthaste.batch_done_4 w WHERE w.batch = p_batches[i]);
        v_split := EXISTS (SELECT FROM posthaste.batch_split_4 s WHERE s.batch = p_batches[i]);
        RETURN QUERY SELECT * FROM posthaste.batch_jobs_4(p_batches[i], p_token, v_split) h
          WHERE p_ids IS NULL OR h.id = ANY (p_ids);
      WHEN 5 THEN
        CONTINUE WHEN EXISTS (SELECT FROM posthaste.batch_done_5 w WHERE w.batch = p_batches[i]);
        v_split := EXISTS (SELECT FROM posthaste.batch_split_5 s WHERE s.batch = p_batches[i]);
        RETURN QUERY SELECT * FROM posthaste.batch_jobs_5(p_batches[i], p_token, v_split) h
          WHERE p_ids IS NULL OR h.id = ANY (p_ids);
    END CASE;
  END LOOP;
END $f$;

-- Priorities of a queue that have jobs and are not among the known ones. One index probe per slot
-- and gap between known lanes, so that rows of known lanes are never scanned. Returns only one,
-- because the rows after it may be slow to scan; up to a hundred for a queue with many lanes.
CREATE OR REPLACE FUNCTION posthaste.discover_priorities(p_queue text, p_known integer[])
RETURNS SETOF integer LANGUAGE plpgsql STABLE
SET enable_seqscan = off SET enable_bitmapscan = off SET jit = off
SET plan_cache_mode = force_generic_plan SET search_path = pg_catalog, pg_temp AS $f$
DECLARE
  v_bounds bigint[] := ARRAY[-2147483649]
    || ARRAY(SELECT DISTINCT p::bigint FROM unnest(p_known) p ORDER BY 1) || ARRAY[2147483648];
  v_slot integer; v_found bigint;
  v_left integer := CASE WHEN cardinality(p_known) > 32 THEN 100 ELSE 1 END;
BEGIN
  FOREACH v_slot IN ARRAY posthaste.scan_slots() LOOP
    FOR i IN 1 .. cardinality(v_bounds) - 1 LOOP
      v_found := v_bounds[i];
      WHILE v_found + 1 < v_bounds[i + 1] LOOP
        CASE v_slot
          WHEN 0 THEN
            v_found := posthaste.next_priority_0(p_queue, v_found, v_bounds[i + 1]);
          WHEN 1 THEN
            v_found := posthaste.next_priority_1(p_queue, v_found, v_bounds[i + 1]);
          WHEN 2 THEN
            v_found := posthaste.next_priority_2(p_queue, v_found, v_bounds[i + 1]);
          WHEN 3 THEN
            v_found := posthaste.next_priority_3(p_queue, v_found, v_bounds[i + 1]);
          WHEN 4 THEN
            v_found := posthaste.next_priority_4(p_queue, v_found, v_bounds[i + 1]);
          WHEN 5 THEN
            v_found := posthaste.next_priority_5(p_queue, v_found, v_bounds[i + 1]);
        END CASE;
        EXIT WHEN v_found IS NULL;
        RETURN NEXT v_found; v_left := v_left - 1;
        IF v_left = 0 THEN RETURN; END IF;
      END LOOP;
    END LOOP;
  END LOOP;
END $f$;
-- Acknowledge: a batch is closed as a whole, by one row, or job by job. A job is closed by the
-- session that inserts its row into job_done_k first: workers, rescue, the move of running jobs and
-- expiry compete for that key, and those that lose change nothing. The session must present the
-- fence: the claim row with this batch and this token must exist (after a crash that lost
-- asynchronous claims, batch numbers are drawn again, tokens are not), and the job must belong to
-- that batch.
--
-- Kinds of closing, which are the outcomes stored in job_done_k and batch_done_k:
--   0 done     1 scheduled for later (retry, snooze)   2 dead or discarded   3 expired   4 awaiting
--   5 moved to the overflow   6 moved to in_flight while it runs on   7 rescued from a dead worker
--   8 given back unstarted   9 cancelled

-- Makes the commit of this transaction wait for the disk, whatever the session's setting. A worker
-- forgets a job once its acknowledgement is answered, so a crash must not lose the acknowledgement.
CREATE OR REPLACE FUNCTION posthaste.wait_for_disk() RETURNS void LANGUAGE plpgsql AS $f$
BEGIN
  IF current_setting('synchronous_commit'::text) = 'off'::text THEN
    PERFORM set_config('synchronous_commit'::text, 'local'::text, true);
  END IF;
END $f$;

-- Closes a whole batch by one row. Returns false if the batch does not have this fence, or if one
-- of its jobs was closed singly or is being closed. A session that closes single jobs holds the
-- batch's lock in shared mode until its transaction ends, and writes a row to batch_split_k.
CREATE OR REPLACE FUNCTION posthaste.close_batch_0(
  p_batch bigint, p_token uuid, p_jobs integer, p_outcome smallint)
RETURNS boolean LANGUAGE plpgsql AS $f$
BEGIN
  IF current_setting('transaction_isolation') <> 'read committed' THEN
    RAISE EXCEPTION 'posthaste: close_batches needs READ COMMITTED, not %',
      current_setting('transaction_isolation')
      USING ERRCODE = 'invalid_transaction_state';
  END IF;
  IF NOT pg_try_advisory_xact_lock(1885893477, (p_batch % 2147483648)::integer) THEN
    RETURN false;
  END IF;
  INSERT INTO posthaste.batch_done_0 (batch, outcome)
  SELECT c.batch, p_outcome FROM posthaste.claim_0 c
   WHERE c.batch = p_batch AND c.token = p_token AND c.n = p_jobs
     AND NOT EXISTS (SELECT FROM posthaste.batch_split_0 s WHERE s.batch = p_batch)
     AND NOT EXISTS (SELECT FROM posthaste.batch_done_0 w WHERE w.batch = p_batch);
  RETURN FOUND;
END $f$;
CREATE OR REPLACE FUNCTION posthaste.close_batch_1(
  p_batch bigint, p_token uuid, p_jobs integer, p_outcome smallint)
RETURNS boolean LANGUAGE plpgsql AS $f$
BEGIN
  IF current_setting('transaction_isolation') <> 'read committed' THEN
    RAISE EXCEPTION 'posthaste: close_batches needs READ COMMITTED, not %',
      current_setting('transaction_isolation')
      USING ERRCODE = 'invalid_transaction_state';
  END IF;
  IF NOT pg_try_advisory_xact_lock(1885893477, (p_batch % 2147483648)::integer) THEN
    RETURN false;
  END IF;
  INSERT INTO posthaste.batch_done_1 (batch, outcome)
  SELECT c.batch, p_outcome FROM posthaste.claim_1 c
   WHERE c.batch = p_batch AND c.token = p_token AND c.n = p_jobs
     AND NOT EXISTS (SELECT FROM posthaste.batch_split_1 s WHERE s.batch = p_batch)
     AND NOT EXISTS (SELECT FROM posthaste.batch_done_1 w WHERE w.batch = p_batch);
  RETURN FOUND;
END $f$;
CREATE OR REPLACE FUNCTION posthaste.close_batch_2(
  p_batch bigint, p_token uuid, p_jobs integer, p_outcome smallint)
RETURNS boolean LANGUAGE plpgsql AS $f$
BEGIN
  IF current_setting('transaction_isolation') <> 'read committed' THEN
    RAISE EXCEPTION 'posthaste: close_batches needs READ COMMITTED, not %',
      current_setting('transaction_isolation')
      USING ERRCODE = 'invalid_transaction_state';
  END IF;
  IF NOT pg_try_advisory_xact_lock(1885893477, (p_batch % 2147483648)::integer) THEN
    RETURN false;
  END IF;
  INSERT INTO posthaste.batch_done_2 (batch, outcome)
  SELECT c.batch, p_outcome FROM posthaste.claim_2 c
   WHERE c.batch = p_batch AND c.token = p_token AND c.n = p_jobs
     AND NOT EXISTS (SELECT FROM posthaste.batch_split_2 s WHERE s.batch = p_batch)
     AND NOT EXISTS (SELECT FROM posthaste.batch_done_2 w WHERE w.batch = p_batch);
  RETURN FOUND;
END $f$;
CREATE OR REPLACE FUNCTION posthaste.close_batch_3(
  p_batch bigint, p_token uuid, p_jobs integer, p_outcome smallint)
RETURNS boolean LANGUAGE plpgsql AS $f$
BEGIN
  IF current_setting('transaction_isolation') <> 'read committed' THEN
    RAISE EXCEPTION 'posthaste: close_batches needs READ COMMITTED, not %',
      current_setting('transaction_isolation')
      USING ERRCODE = 'invalid_transaction_state';
  END IF;
  IF NOT pg_try_advisory_xact_lock(1885893477, (p_batch % 2147483648)::integer) THEN
    RETURN false;
  END IF;
  INSERT INTO posthaste.batch_done_3 (batch, outcome)
  SELECT c.batch, p_outcome FROM posthaste.claim_3 c
   WHERE c.batch = p_batch AND c.token = p_token AND c.n = p_jobs
     AND NOT EXISTS (SELECT FROM posthaste.batch_split_3 s WHERE s.batch = p_batch)
     AND NOT EXISTS (SELECT FROM posthaste.batch_done_3 w WHERE w.batch = p_batch);
  RETURN FOUND;
END $f$;
CREATE OR REPLACE FUNCTION posthaste.close_batch_4(
  p_batch bigint, p_token uuid, p_jobs integer, p_outcome smallint)
RETURNS boolean LANGUAGE plpgsql AS $f$
BEGIN
  IF current_setting('transaction_isolation') <> 'read committed' THEN
    RAISE EXCEPTION 'posthaste: close_batches needs READ COMMITTED, not %',
      current_setting('transaction_isolation')
      USING ERRCODE = 'invalid_transaction_state';
  END IF;
  IF NOT pg_try_advisory_xact_lock(1885893477, (p_batch % 2147483648)::integer) THEN
    RETURN false;
  END IF;
  INSERT INTO posthaste.batch_done_4 (batch, outcome)
  SELECT c.batch, p_outcome FROM posthaste.claim_4 c
   WHERE c.batch = p_batch AND c.token = p_token AND c.n = p_jobs
     AND NOT EXISTS (SELECT FROM posthaste.batch_split_4 s WHERE s.batch = p_batch)
     AND NOT EXISTS (SELECT FROM posthaste.batch_done_4 w WHERE w.batch = p_batch);
  RETURN FOUND;
END $f$;
CREATE OR REPLACE FUNCTION posthaste.close_batch_5(
  p_batch bigint, p_token uuid, p_jobs integer, p_outcome smallint)
RETURNS boolean LANGUAGE plpgsql AS $f$
BEGIN
  IF current_setting('transaction_isolation') <> 'read committed' THEN
    RAISE EXCEPTION 'posthaste: close_batches needs READ COMMITTED, not %',
      current_setting('transaction_isolation')
      USING ERRCODE = 'invalid_transaction_state';
  END IF;
  IF NOT pg_try_advisory_xact_lock(1885893477, (p_batch % 2147483648)::integer) THEN
    RETURN false;
  END IF;
  INSERT INTO posthaste.batch_done_5 (batch, outcome)
  SELECT c.batch, p_outcome FROM posthaste.claim_5 c
   WHERE c.batch = p_batch AND c.token = p_token AND c.n = p_jobs
     AND NOT EXISTS (SELECT FROM posthaste.batch_split_5 s WHERE s.batch = p_batch)
     AND NOT EXISTS (SELECT FROM posthaste.batch_done_5 w WHERE w.batch = p_batch);
  RETURN FOUND;
END $f$;

-- Closes a whole batch and schedules all its jobs for one time, without counting an attempt.
-- Returns false as above.
CREATE OR REPLACE FUNCTION posthaste.reschedule_0(
  p_batch bigint, p_token uuid, p_jobs integer, p_due timestamptz, p_error text)
RETURNS boolean LANGUAGE plpgsql AS $f$
DECLARE
  v_slot smallint;
  v_rows bigint;
BEGIN
  IF NOT posthaste.close_batch_0(p_batch, p_token, p_jobs, 1::smallint) THEN
    RETURN false;
  END IF;
  IF p_due > clock_timestamp() AND p_due > posthaste.promote_horizon() THEN
    v_slot := posthaste.enter_scheduled();
  ELSE
    v_slot := posthaste.enter_ready() + posthaste.notify((SELECT c.queue FROM posthaste.claim_0 c
          WHERE c.batch = p_batch), posthaste.listeners());
  END IF;
  INSERT INTO posthaste.store
  SELECT a.* FROM posthaste.batch_rows_0(p_batch, p_token) r,
         posthaste.reschedule_row(r, v_slot, p_due, r.attempt, 0::smallint, p_error) a;
  -- In a restored database, a later job may be within the batch's bounds.
  GET DIAGNOSTICS v_rows = ROW_COUNT;
  IF v_rows <> p_jobs THEN
    RAISE EXCEPTION 'posthaste: batch % has % jobs, but % are within its bounds', p_batch, p_jobs,
      v_rows USING ERRCODE = 'object_not_in_prerequisite_state';
  END IF;
  RETURN true;
END $f$;
CREATE OR REPLACE FUNCTION posthaste.reschedule_1(
  p_batch bigint, p_token uuid, p_jobs integer, p_due timestamptz, p_error text)
RETURNS boolean LANGUAGE plpgsql AS $f$
DECLARE
  v_slot smallint;
  v_rows bigint;
BEGIN
  IF NOT posthaste.close_batch_1(p_batch, p_token, p_jobs, 1::smallint) THEN
    RETURN false;
  END IF;
  IF p_due > clock_timestamp() AND p_due > posthaste.promote_horizon() THEN
    v_slot := posthaste.enter_scheduled();
  ELSE
    v_slot := posthaste.enter_ready() + posthaste.notify((SELECT c.queue FROM posthaste.claim_1 c
          WHERE c.batch = p_batch), posthaste.listeners());
  END IF;
  INSERT INTO posthaste.store
  SELECT a.* FROM posthaste.batch_rows_1(p_batch, p_token) r,
         posthaste.reschedule_row(r, v_slot, p_due, r.attempt, 0::smallint, p_error) a;
  -- In a restored database, a later job may be within the batch's bounds.
  GET DIAGNOSTICS v_rows = ROW_COUNT;
  IF v_rows <> p_jobs THEN
    RAISE EXCEPTION 'posthaste: batch % has % jobs, but % are within its bounds', p_batch, p_jobs,
      v_rows USING ERRCODE = 'object_not_in_prerequisite_state';
  END IF;
  RETURN true;
END $f$;
CREATE OR REPLACE FUNCTION posthaste.reschedule_2(
  p_batch bigint, p_token uuid, p_jobs integer, p_due timestamptz, p_error text)
RETURNS boolean LANGUAGE plpgsql AS $f$
DECLARE
  v_slot smallint;
  v_rows bigint;
BEGIN
  IF NOT posthaste.close_batch_2(p_batch, p_token, p_jobs, 1::smallint) THEN
    RETURN false;
  END IF;
  IF p_due > clock_timestamp() AND p_due > posthaste.promote_horizon() THEN
    v_slot := posthaste.enter_scheduled();
  ELSE
    v_slot := posthaste.enter_ready() + posthaste.notify((SELECT c.queue FROM posthaste.claim_2 c
          WHERE c.batch = p_batch), posthaste.listeners());
  END IF;
  INSERT INTO posthaste.store
  SELECT a.* FROM posthaste.batch_rows_2(p_batch, p_token) r,
         posthaste.reschedule_row(r, v_slot, p_due, r.attempt, 0::smallint, p_error) a;
  -- In a restored database, a later job may be within the batch's bounds.
  GET DIAGNOSTICS v_rows = ROW_COUNT;
  IF v_rows <> p_jobs THEN
    RAISE EXCEPTION 'posthaste: batch % has % jobs, but % are within its bounds', p_batch, p_jobs,
      v_rows USING ERRCODE = 'object_not_in_prerequisite_state';
  END IF;
  RETURN true;
END $f$;
CREATE OR REPLACE FUNCTION posthaste.reschedule_3(
  p_batch bigint, p_token uuid, p_jobs integer, p_due timestamptz, p_error text)
RETURNS boolean LANGUAGE plpgsql AS $f$
DECLARE
  v_slot smallint;
  v_rows bigint;
BEGIN
  IF NOT posthaste.close_batch_3(p_batch, p_token, p_jobs, 1::smallint) THEN
    RETURN false;
  END IF;
  IF p_due > clock_timestamp() AND p_due > posthaste.promote_horizon() THEN
    v_slot := posthaste.enter_scheduled();
  ELSE
    v_slot := posthaste.enter_ready() + posthaste.notify((SELECT c.queue FROM posthaste.claim_3 c
          WHERE c.batch = p_batch), posthaste.listeners());
  END IF;
  INSERT INTO posthaste.store
  SELECT a.* FROM posthaste.batch_rows_3(p_batch, p_token) r,
         posthaste.reschedule_row(r, v_slot, p_due, r.attempt, 0::smallint, p_error) a;
  -- In a restored database, a later job may be within the batch's bounds.
  GET DIAGNOSTICS v_rows = ROW_COUNT;
  IF v_rows <> p_jobs THEN
    RAISE EXCEPTION 'posthaste: batch % has % jobs, but % are within its bounds', p_batch, p_jobs,
      v_rows USING ERRCODE = 'object_not_in_prerequisite_state';
  END IF;
  RETURN true;
END $f$;
CREATE OR REPLACE FUNCTION posthaste.reschedule_4(
  p_batch bigint, p_token uuid, p_jobs integer, p_due timestamptz, p_error text)
RETURNS boolean LANGUAGE plpgsql AS $f$
DECLARE
  v_slot smallint;
  v_rows bigint;
BEGIN
  IF NOT posthaste.close_batch_4(p_batch, p_token, p_jobs, 1::smallint) THEN
    RETURN false;
  END IF;
  IF p_due > clock_timestamp() AND p_due > posthaste.promote_horizon() THEN
    v_slot := posthaste.enter_scheduled();
  ELSE
    v_slot := posthaste.enter_ready() + posthaste.notify((SELECT c.queue FROM posthaste.claim_4 c
          WHERE c.batch = p_batch), posthaste.listeners());
  END IF;
  INSERT INTO posthaste.store
  SELECT a.* FROM posthaste.batch_rows_4(p_batch, p_token) r,
         posthaste.reschedule_row(r, v_slot, p_due, r.attempt, 0::smallint, p_error) a;
  -- In a restored database, a later job may be within the batch's bounds.
  GET DIAGNOSTICS v_rows = ROW_COUNT;
  IF v_rows <> p_jobs THEN
    RAISE EXCEPTION 'posthaste: batch % has % jobs, but % are within its bounds', p_batch, p_jobs,
      v_rows USING ERRCODE = 'object_not_in_prerequisite_state';
  END IF;
  RETURN true;
END $f$;
CREATE OR REPLACE FUNCTION posthaste.reschedule_5(
  p_batch bigint, p_token uuid, p_jobs integer, p_due timestamptz, p_error text)
RETURNS boolean LANGUAGE plpgsql AS $f$
DECLARE
  v_slot smallint;
  v_rows bigint;
BEGIN
  IF NOT posthaste.close_batch_5(p_batch, p_token, p_jobs, 1::smallint) THEN
    RETURN false;
  END IF;
  IF p_due > clock_timestamp() AND p_due > posthaste.promote_horizon() THEN
    v_slot := posthaste.enter_scheduled();
  ELSE
    v_slot := posthaste.enter_ready() + posthaste.notify((SELECT c.queue FROM posthaste.claim_5 c
          WHERE c.batch = p_batch), posthaste.listeners());
  END IF;
  INSERT INTO posthaste.store
  SELECT a.* FROM posthaste.batch_rows_5(p_batch, p_token) r,
         posthaste.reschedule_row(r, v_slot, p_due, r.attempt, 0::smallint, p_error) a;
  -- In a restored database, a later job may be within the batch's bounds.
  GET DIAGNOSTICS v_rows = ROW_COUNT;
  IF v_rows <> p_jobs THEN
    RAISE EXCEPTION 'posthaste: batch % has % jobs, but % are within its bounds', p_batch, p_jobs,
      v_rows USING ERRCODE = 'object_not_in_prerequisite_state';
  END IF;
  RETURN true;
END $f$;

-- Closes some jobs of a batch and returns those rows that this call closed.
CREATE OR REPLACE FUNCTION posthaste.close_0(
  p_batch bigint, p_token uuid, p_ids bigint[], p_kinds smallint[])
RETURNS SETOF posthaste.store LANGUAGE plpgsql AS $f$
BEGIN
  PERFORM pg_advisory_xact_lock_shared(1885893477, (p_batch % 2147483648)::integer);
  IF EXISTS (SELECT FROM posthaste.batch_done_0 w WHERE w.batch = p_batch)
     OR NOT EXISTS (SELECT FROM posthaste.claim_0 c
         WHERE c.batch = p_batch AND c.token = p_token) THEN
    RETURN;
  END IF;
  IF NOT EXISTS (SELECT FROM posthaste.batch_split_0 s WHERE s.batch = p_batch) THEN
    INSERT INTO posthaste.batch_split_0 (batch) VALUES (p_batch);
  END IF;
  RETURN QUERY
    WITH mine AS MATERIALIZED (
      SELECT r AS job, u.kind FROM posthaste.batch_rows_0(p_batch, p_token) r
        JOIN unnest(p_ids, p_kinds) u(id, kind) ON u.id = r.id),
    closed AS (
      INSERT INTO posthaste.job_done_0 AS a (xid, id, outcome) SELECT (m.job).xid, (m.job).id,
        m.kind FROM mine m ON CONFLICT DO NOTHING
      RETURNING a.xid, a.id)
    SELECT (m.job).* FROM mine m JOIN closed c ON c.xid = (m.job).xid AND c.id = (m.job).id;
END $f$;
CREATE OR REPLACE FUNCTION posthaste.close_1(
  p_batch bigint, p_token uuid, p_ids bigint[], p_kinds smallint[])
RETURNS SETOF posthaste.store LANGUAGE plpgsql AS $f$
BEGIN
  PERFORM pg_advisory_xact_lock_shared(1885893477, (p_batch % 2147483648)::integer);
  IF EXISTS (SELECT FROM posthaste.batch_done_1 w WHERE w.batch = p_batch)
     OR NOT EXISTS (SELECT FROM posthaste.claim_1 c
         WHERE c.batch = p_batch AND c.token = p_token) THEN
    RETURN;
  END IF;
  IF NOT EXISTS (SELECT FROM posthaste.batch_split_1 s WHERE s.batch = p_batch) THEN
    INSERT INTO posthaste.batch_split_1 (batch) VALUES (p_batch);
  END IF;
  RETURN QUERY
    WITH mine AS MATERIALIZED (
      SELECT r AS job, u.kind FROM posthaste.batch_rows_1(p_batch, p_token) r
        JOIN unnest(p_ids, p_kinds) u(id, kind) ON u.id = r.id),
    closed AS (
      INSERT INTO posthaste.job_done_1 AS a (xid, id, outcome) SELECT (m.job).xid, (m.job).id,
        m.kind FROM mine m ON CONFLICT DO NOTHING
      RETURNING a.xid, a.id)
    SELECT (m.job).* FROM mine m JOIN closed c ON c.xid = (m.job).xid AND c.id = (m.job).id;
END $f$;
CREATE OR REPLACE FUNCTION posthaste.close_2(
  p_batch bigint, p_token uuid, p_ids bigint[], p_kinds smallint[])
RETURNS SETOF posthaste.store LANGUAGE plpgsql AS $f$
BEGIN
  PERFORM pg_advisory_xact_lock_shared(1885893477, (p_batch % 2147483648)::integer);
  IF EXISTS (SELECT FROM posthaste.batch_done_2 w WHERE w.batch = p_batch)
     OR NOT EXISTS (SELECT FROM posthaste.claim_2 c
         WHERE c.batch = p_batch AND c.token = p_token) THEN
    RETURN;
  END IF;
  IF NOT EXISTS (SELECT FROM posthaste.batch_split_2 s WHERE s.batch = p_batch) THEN
    INSERT INTO posthaste.batch_split_2 (batch) VALUES (p_batch);
  END IF;
  RETURN QUERY
    WITH mine AS MATERIALIZED (
      SELECT r AS job, u.kind FROM posthaste.batch_rows_2(p_batch, p_token) r
        JOIN unnest(p_ids, p_kinds) u(id, kind) ON u.id = r.id),
    closed AS (
      INSERT INTO posthaste.job_done_2 AS a (xid, id, outcome) SELECT (m.job).xid, (m.job).id,
        m.kind FROM mine m ON CONFLICT DO NOTHING
      RETURNING a.xid, a.id)
    SELECT (m.job).* FROM mine m JOIN closed c ON c.xid = (m.job).xid AND c.id = (m.job).id;
END $f$;
CREATE OR REPLACE FUNCTION posthaste.close_3(
  p_batch bigint, p_token uuid, p_ids bigint[], p_kinds smallint[])
RETURNS SETOF posthaste.store LANGUAGE plpgsql AS $f$
BEGIN
  PERFORM pg_advisory_xact_lock_shared(1885893477, (p_batch % 2147483648)::integer);
  IF EXISTS (SELECT FROM posthaste.batch_done_3 w WHERE w.batch = p_batch)
     OR NOT EXISTS (SELECT FROM posthaste.claim_3 c
         WHERE c.batch = p_batch AND c.token = p_token) THEN
    RETURN;
  END IF;
  IF NOT EXISTS (SELECT FROM posthaste.batch_split_3 s WHERE s.batch = p_batch) THEN
    INSERT INTO posthaste.batch_split_3 (batch) VALUES (p_batch);
  END IF;
  RETURN QUERY
    WITH mine AS MATERIALIZED (
      SELECT r AS job, u.kind FROM posthaste.batch_rows_3(p_batch, p_token) r
        JOIN unnest(p_ids, p_kinds) u(id, kind) ON u.id = r.id),
    closed AS (
      INSERT INTO posthaste.job_done_3 AS a (xid, id, outcome) SELECT (m.job).xid, (m.job).id,
        m.kind FROM mine m ON CONFLICT DO NOTHING
      RETURNING a.xid, a.id)
    SELECT (m.job).* FROM mine m JOIN closed c ON c.xid = (m.job).xid AND c.id = (m.job).id;
END $f$;
CREATE OR REPLACE FUNCTION posthaste.close_4(
  p_batch bigint, p_token uuid, p_ids bigint[], p_kinds smallint[])
RETURNS SETOF posthaste.store LANGUAGE plpgsql AS $f$
BEGIN
  PERFORM pg_advisory_xact_lock_shared(1885893477, (p_batch % 2147483648)::integer);
  IF EXISTS (SELECT FROM posthaste.batch_done_4 w WHERE w.batch = p_batch)
     OR NOT EXISTS (SELECT FROM posthaste.claim_4 c
         WHERE c.batch = p_batch AND c.token = p_token) THEN
    RETURN;
  END IF;
  IF NOT EXISTS (SELECT FROM posthaste.batch_split_4 s WHERE s.batch = p_batch) THEN
    INSERT INTO posthaste.batch_split_4 (batch) VALUES (p_batch);
  END IF;
  RETURN QUERY
    WITH mine AS MATERIALIZED (
      SELECT r AS job, u.kind FROM posthaste.batch_rows_4(p_batch, p_token) r
        JOIN unnest(p_ids, p_kinds) u(id, kind) ON u.id = r.id),
    closed AS (
      INSERT INTO posthaste.job_done_4 AS a (xid, id, outcome) SELECT (m.job).xid, (m.job).id,
        m.kind FROM mine m ON CONFLICT DO NOTHING
      RETURNING a.xid, a.id)
    SELECT (m.job).* FROM mine m JOIN closed c ON c.xid = (m.job).xid AND c.id = (m.job).id;
END $f$;
CREATE OR REPLACE FUNCTION posthaste.close_5(
  p_batch bigint, p_token uuid, p_ids bigint[], p_kinds smallint[])
RETURNS SETOF posthaste.store LANGUAGE plpgsql AS $f$
BEGIN
  PERFORM pg_advisory_xact_lock_shared(1885893477, (p_batch % 2147483648)::integer);
  IF EXISTS (SELECT FROM posthaste.batch_done_5 w WHERE w.batch = p_batch)
     OR NOT EXISTS (SELECT FROM posthaste.claim_5 c
         WHERE c.batch = p_batch AND c.token = p_token) THEN
    RETURN;
  END IF;
  IF NOT EXISTS (SELECT FROM posthaste.batch_split_5 s WHERE s.batch = p_batch) THEN
    INSERT INTO posthaste.batch_split_5 (batch) VALUES (p_batch);
  END IF;
  RETURN QUERY
    WITH mine AS MATERIALIZED (
      SELECT r AS job, u.kind FROM posthaste.batch_rows_5(p_batch, p_token) r
        JOIN unnest(p_ids, p_kinds) u(id, kind) ON u.id = r.id),
    closed AS (
      INSERT INTO posthaste.job_done_5 AS a (xid, id, outcome) SELECT (m.job).xid, (m.job).id,
        m.kind FROM mine m ON CONFLICT DO NOTHING
      RETURNING a.xid, a.id)
    SELECT (m.job).* FROM mine m JOIN closed c ON c.xid = (m.job).xid AND c.id = (m.job).id;
END $f$;

-- Open jobs of a worker (or of one of its claims) in this slot, of at most 200 batches at a time,
-- because each batch that is closed job by job costs the transaction a lock.
CREATE OR REPLACE FUNCTION posthaste.open_jobs_0(p_worker bigint, p_token uuid)
RETURNS TABLE (batch bigint, token uuid, ids bigint[]) LANGUAGE sql STABLE AS $f$
  SELECT c.batch, c.token, array_agg(r.id ORDER BY r.id)
    FROM (SELECT c.batch, c.token FROM posthaste.claim_0 c
           WHERE c.worker = p_worker AND (p_token IS NULL OR c.token = p_token)
             AND NOT EXISTS (SELECT FROM posthaste.batch_done_0 w WHERE w.batch = c.batch)
               OFFSET 0) c,
         LATERAL posthaste.batch_rows_0(c.batch, c.token) r
   WHERE NOT EXISTS (SELECT FROM posthaste.job_done_0 a WHERE a.xid = r.xid AND a.id = r.id)
   GROUP BY c.batch, c.token LIMIT 200
$f$;
CREATE OR REPLACE FUNCTION posthaste.open_jobs_1(p_worker bigint, p_token uuid)
RETURNS TABLE (batch bigint, token uuid, ids bigint[]) LANGUAGE sql STABLE AS $f$
  SELECT c.batch, c.token, array_agg(r.id ORDER BY r.id)
    FROM (SELECT c.batch, c.token FROM posthaste.claim_1 c
           WHERE c.worker = p_worker AND (p_token IS NULL OR c.token = p_token)
             AND NOT EXISTS (SELECT FROM posthaste.batch_done_1 w WHERE w.batch = c.batch)
               OFFSET 0) c,
         LATERAL posthaste.batch_rows_1(c.batch, c.token) r
   WHERE NOT EXISTS (SELECT FROM posthaste.job_done_1 a WHERE a.xid = r.xid AND a.id = r.id)
   GROUP BY c.batch, c.token LIMIT 200
$f$;
CREATE OR REPLACE FUNCTION posthaste.open_jobs_2(p_worker bigint, p_token uuid)
RETURNS TABLE (batch bigint, token uuid, ids bigint[]) LANGUAGE sql STABLE AS $f$
  SELECT c.batch, c.token, array_agg(r.id ORDER BY r.id)
    FROM (SELECT c.batch, c.token FROM posthaste.claim_2 c
           WHERE c.worker = p_worker AND (p_token IS NULL OR c.token = p_token)
             AND NOT EXISTS (SELECT FROM posthaste.batch_done_2 w WHERE w.batch = c.batch)
               OFFSET 0) c,
         LATERAL posthaste.batch_rows_2(c.batch, c.token) r
   WHERE NOT EXISTS (SELECT FROM posthaste.job_done_2 a WHERE a.xid = r.xid AND a.id = r.id)
   GROUP BY c.batch, c.token LIMIT 200
$f$;
CREATE OR REPLACE FUNCTION posthaste.open_jobs_3(p_worker bigint, p_token uuid)
RETURNS TABLE (batch bigint, token uuid, ids bigint[]) LANGUAGE sql STABLE AS $f$
  SELECT c.batch, c.token, array_agg(r.id ORDER BY r.id)
    FROM (SELECT c.batch, c.token FROM posthaste.claim_3 c
           WHERE c.worker = p_worker AND (p_token IS NULL OR c.token = p_token)
             AND NOT EXISTS (SELECT FROM posthaste.batch_done_3 w WHERE w.batch = c.batch)
               OFFSET 0) c,
         LATERAL posthaste.batch_rows_3(c.batch, c.token) r
   WHERE NOT EXISTS (SELECT FROM posthaste.job_done_3 a WHERE a.xid = r.xid AND a.id = r.id)
   GROUP BY c.batch, c.token LIMIT 200
$f$;
CREATE OR REPLACE FUNCTION posthaste.open_jobs_4(p_worker bigint, p_token uuid)
RETURNS TABLE (batch bigint, token uuid, ids bigint[]) LANGUAGE sql STABLE AS $f$
  SELECT c.batch, c.token, array_agg(r.id ORDER BY r.id)
    FROM (SELECT c.batch, c.token FROM posthaste.claim_4 c
           WHERE c.worker = p_worker AND (p_token IS NULL OR c.token = p_token)
             AND NOT EXISTS (SELECT FROM posthaste.batch_done_4 w WHERE w.batch = c.batch)
               OFFSET 0) c,
         LATERAL posthaste.batch_rows_4(c.batch, c.token) r
   WHERE NOT EXISTS (SELECT FROM posthaste.job_done_4 a WHERE a.xid = r.xid AND a.id = r.id)
   GROUP BY c.batch, c.token LIMIT 200
$f$;
CREATE OR REPLACE FUNCTION posthaste.open_jobs_5(p_worker bigint, p_token uuid)
RETURNS TABLE (batch bigint, token uuid, ids bigint[]) LANGUAGE sql STABLE AS $f$
  SELECT c.batch, c.token, array_agg(r.id ORDER BY r.id)
    FROM (SELECT c.batch, c.token FROM posthaste.claim_5 c
           WHERE c.worker = p_worker AND (p_token IS NULL OR c.token = p_token)
             AND NOT EXISTS (SELECT FROM posthaste.batch_done_5 w WHERE w.batch = c.batch)
               OFFSET 0) c,
         LATERAL posthaste.batch_rows_5(c.batch, c.token) r
   WHERE NOT EXISTS (SELECT FROM posthaste.job_done_5 a WHERE a.xid = r.xid AND a.id = r.id)
   GROUP BY c.batch, c.token LIMIT 200
$f$;

-- The same in all slots. No hash joins: from PostgreSQL 16 on the planner would read all
-- acknowledgements again for each batch.
CREATE OR REPLACE FUNCTION posthaste.open_jobs(p_worker bigint, p_token uuid)
RETURNS TABLE (slot smallint, batch bigint, token uuid, ids bigint[])
LANGUAGE plpgsql STABLE
SET enable_hashjoin = off SET enable_mergejoin = off SET jit = off
SET search_path = pg_catalog, pg_temp AS $f$
BEGIN
  RETURN QUERY SELECT 0::smallint, o.* FROM posthaste.open_jobs_0(p_worker, p_token) o;
  RETURN QUERY SELECT 1::smallint, o.* FROM posthaste.open_jobs_1(p_worker, p_token) o;
  RETURN QUERY SELECT 2::smallint, o.* FROM posthaste.open_jobs_2(p_worker, p_token) o;
  RETURN QUERY SELECT 3::smallint, o.* FROM posthaste.open_jobs_3(p_worker, p_token) o;
  RETURN QUERY SELECT 4::smallint, o.* FROM posthaste.open_jobs_4(p_worker, p_token) o;
  RETURN QUERY SELECT 5::smallint, o.* FROM posthaste.open_jobs_5(p_worker, p_token) o;
END $f$;

-- Closes whole batches as done. Returns the positions of those that it could not close, which must
-- be settled job by job. It releases no keys: a batch that has a job with a key must be settled.
CREATE OR REPLACE FUNCTION posthaste.close_batches(
  p_slots smallint[], p_batches bigint[], p_tokens uuid[], p_jobs integer[])
RETURNS integer[] LANGUAGE plpgsql
SET enable_seqscan = off SET enable_bitmapscan = off SET enable_hashjoin = off
SET enable_mergejoin = off SET jit = off SET plan_cache_mode = force_generic_plan
SET lock_timeout = '1s' SET search_path = pg_catalog, pg_temp AS $f$
DECLARE
  v_closed boolean;
  v_left integer[] := '{}';
  v_keeps boolean := EXISTS (SELECT FROM posthaste.queue q WHERE q.keep IS NOT NULL);
BEGIN
  PERFORM posthaste.wait_for_disk();
  FOR i IN 1 .. cardinality(p_slots) LOOP
    CASE p_slots[i]
      WHEN 0 THEN
        v_closed := posthaste.close_batch_0(p_batches[i], p_tokens[i], p_jobs[i], 0::smallint);
      WHEN 1 THEN
        v_closed := posthaste.close_batch_1(p_batches[i], p_tokens[i], p_jobs[i], 0::smallint);
      WHEN 2 THEN
        v_closed := posthaste.close_batch_2(p_batches[i], p_tokens[i], p_jobs[i], 0::smallint);
      WHEN 3 THEN
        v_closed := posthaste.close_batch_3(p_batches[i], p_tokens[i], p_jobs[i], 0::smallint);
      WHEN 4 THEN
        v_closed := posthaste.close_batch_4(p_batches[i], p_tokens[i], p_jobs[i], 0::smallint);
      WHEN 5 THEN
        v_closed := posthaste.close_batch_5(p_batches[i], p_tokens[i], p_jobs[i], 0::smallint);
      ELSE v_closed := false;
    END CASE;
    IF v_closed IS NOT TRUE THEN
      v_left := v_left || i;
    ELSIF v_keeps THEN
      CASE p_slots[i]
        WHEN 0 THEN PERFORM posthaste.keep_batch_0(p_batches[i], p_tokens[i]);
        WHEN 1 THEN PERFORM posthaste.keep_batch_1(p_batches[i], p_tokens[i]);
        WHEN 2 THEN PERFORM posthaste.keep_batch_2(p_batches[i], p_tokens[i]);
        WHEN 3 THEN PERFORM posthaste.keep_batch_3(p_batches[i], p_tokens[i]);
        WHEN 4 THEN PERFORM posthaste.keep_batch_4(p_batches[i], p_tokens[i]);
        WHEN 5 THEN PERFORM posthaste.keep_batch_5(p_batches[i], p_tokens[i]);
      END CASE;
    END IF;
  END LOOP;
  RETURN v_left;
END $f$;

-- Reschedules all jobs of a batch without counting an attempt. Returns false if they must be
-- settled job by job.
CREATE OR REPLACE FUNCTION posthaste.reschedule(
  p_slot smallint, p_batch bigint, p_token uuid, p_jobs integer, p_after interval, p_error text)
RETURNS boolean LANGUAGE plpgsql
SET enable_seqscan = off SET enable_bitmapscan = off SET enable_hashjoin = off
SET enable_mergejoin = off SET jit = off SET plan_cache_mode = force_generic_plan
SET search_path = pg_catalog, pg_temp AS $f$
BEGIN
  PERFORM posthaste.wait_for_disk();
  CASE p_slot
    WHEN 0 THEN
      RETURN posthaste.reschedule_0(p_batch, p_token, p_jobs, clock_timestamp() + p_after, p_error);
    WHEN 1 THEN
      RETURN posthaste.reschedule_1(p_batch, p_token, p_jobs, clock_timestamp() + p_after, p_error);
    WHEN 2 THEN
      RETURN posthaste.reschedule_2(p_batch, p_token, p_jobs, clock_timestamp() + p_after, p_error);
    WHEN 3 THEN
      RETURN posthaste.reschedule_3(p_batch, p_token, p_jobs, clock_timestamp() + p_after, p_error);
    WHEN 4 THEN
      RETURN posthaste.reschedule_4(p_batch, p_token, p_jobs, clock_timestamp() + p_after, p_error);
    WHEN 5 THEN
      RETURN posthaste.reschedule_5(p_batch, p_token, p_jobs, clock_timestamp() + p_after, p_error);
  END CASE;
END $f$;

-- Closes jobs in flight, and returns them in the shape of store rows.
CREATE OR REPLACE FUNCTION posthaste.close_in_flight(p_token uuid, p_ids bigint[])
RETURNS SETOF posthaste.store LANGUAGE sql AS $f$
  WITH closed AS (
    DELETE FROM posthaste.in_flight h
      WHERE h.id = ANY (p_ids) AND h.token = p_token AND h.state = 'running'
      RETURNING posthaste.from_in_flight(h) AS job)
  SELECT (c.job).* FROM closed c
$f$;

-- Moves closed jobs by their kind: to the ready log or a scheduled slot, to posthaste.dead or to
-- posthaste.in_flight. Releases the unique keys and the turns of completed jobs.
CREATE OR REPLACE FUNCTION posthaste.route_closed_jobs(
  p_jobs posthaste.store[], p_ids bigint[], p_kinds smallint[], p_attempts integer[],
  p_after interval[], p_until timestamptz[], p_states text[], p_errors text[])
RETURNS void LANGUAGE plpgsql
SET search_path = pg_catalog, pg_temp AS $f$
DECLARE
  v_now timestamptz := clock_timestamp();
BEGIN
  DELETE FROM posthaste.unique_key u USING unnest(p_jobs) j
    JOIN unnest(p_ids, p_kinds) v(id, kind) ON v.id = j.id
   WHERE v.kind = 0 AND u.key = j.unique_key AND u.id = j.id;
  PERFORM posthaste.end_turns(array_agg(j.ordering_key), array_agg(j.turn))
     FROM unnest(p_jobs) j JOIN unnest(p_ids, p_kinds) v(id, kind) ON v.id = j.id
       WHERE v.kind = 0 AND j.turn IS NOT NULL HAVING count(*) > 0;

  INSERT INTO posthaste.store
  SELECT a.*
    FROM unnest(p_jobs) j
    JOIN (SELECT u.id, u.kind, u.attempt, u.error,
        CASE WHEN u.kind = 8 THEN v_now ELSE coalesce(u.until, v_now + u.after) END AS due
            FROM unnest(p_ids, p_kinds, p_attempts, p_after, p_until, p_errors) u(id, kind, attempt,
                after, until, error)) v ON v.id = j.id,
    LATERAL (SELECT CASE WHEN v.due > v_now AND v.due > (SELECT posthaste.promote_horizon())
          THEN (SELECT posthaste.enter_scheduled())
                         ELSE (SELECT posthaste.enter_ready()) + posthaste.notify(j.queue,
                             (SELECT posthaste.listeners())) END) s(slot),
    -- While the clock is earlier than the published horizon, a job cannot wait until it is due. An
    -- attempt without a back-off is not counted.
    LATERAL (SELECT CASE WHEN s.slot < 6 AND v.due > clock_timestamp() THEN j.attempt
                         ELSE v.attempt END) b(attempt),
    posthaste.reschedule_row(j, s.slot, v.due, b.attempt, 0::smallint, v.error) a
   WHERE v.kind = 1 OR (v.kind = 8 AND j.crashes = 0);

  INSERT INTO posthaste.dead
  SELECT d.*
    FROM unnest(p_jobs) j
      JOIN unnest(p_ids, p_kinds, p_attempts, p_states, p_errors) v(id, kind, attempt, state,
        error) ON v.id = j.id,
    posthaste.reschedule_row(j, j.slot, attempt => v.attempt, error => v.error) a,
    posthaste.to_dead(a, v.state) d
   WHERE v.kind = 2 ON CONFLICT (id) DO NOTHING;

  -- A quarantined job that is returned stays quarantined: it has not run alone yet.
  INSERT INTO posthaste.in_flight
  SELECT h.*
    FROM unnest(p_jobs) j JOIN unnest(p_ids, p_kinds) v(id, kind) ON v.id = j.id,
      posthaste.to_in_flight(j, 'quarantined', posthaste.quarantine_until(j.crashes)) h
   WHERE v.kind = 8 AND j.crashes > 0;

  -- A confirmation that has already arrived ends the job at once. One whose transaction is still
  -- open, or whose snapshot is older than the row in posthaste.in_flight, is applied later by
  -- posthaste.confirm_in_flight().
  WITH here AS (
    DELETE FROM posthaste.confirmed c USING unnest(p_jobs) j
      JOIN unnest(p_ids, p_kinds) v(id, kind) ON v.id = j.id
     WHERE v.kind = 4 AND c.id = j.id RETURNING c.id),
  finished AS (
    INSERT INTO posthaste.finished SELECT f.* FROM here JOIN unnest(p_jobs) j ON j.id = here.id,
      posthaste.to_finished(j, NULL) f),
  freed AS (
    DELETE FROM posthaste.unique_key u USING here, unnest(p_jobs) j
      WHERE j.id = here.id AND u.key = j.unique_key AND u.id = j.id),
  ended AS (
    INSERT INTO posthaste.store
    SELECT e.* FROM here JOIN unnest(p_jobs) j ON j.id = here.id AND j.turn IS NOT NULL,
           posthaste.turn_end_rows(ARRAY[j.ordering_key], ARRAY[j.turn]) e),
  noted AS (
    INSERT INTO posthaste.stats_delta (queue, priority, name, tag, what, jobs)
    SELECT j.queue, j.priority, j.name, j.tag, 'completed_total', 1
      FROM here JOIN unnest(p_jobs) j ON j.id = here.id)
  INSERT INTO posthaste.in_flight
  SELECT h.*
    FROM unnest(p_jobs) j
      JOIN unnest(p_ids, p_kinds, p_attempts, p_until, p_errors) v(id, kind, attempt, until,
        error) ON v.id = j.id,
    posthaste.reschedule_row(j, j.slot, attempt => v.attempt, crashes => 0::smallint,
                             error => v.error) a,
    posthaste.to_in_flight(a, 'awaiting', v.until) h
   WHERE v.kind = 4 AND j.id NOT IN (SELECT id FROM here);
END $f$;

-- Settles jobs of one batch, each with its own outcome, and returns the ids of those that it
-- closed. The others were closed by another session, and are not changed. Works in any isolation
-- level, so that a handler can finish its job in its own transaction.
CREATE OR REPLACE FUNCTION posthaste.settle(
  p_slot smallint, p_batch bigint, p_token uuid, p_ids bigint[], p_kinds smallint[],
  p_attempts integer[], p_after interval[], p_until timestamptz[], p_states text[], p_errors text[])
RETURNS bigint[] LANGUAGE plpgsql
SET enable_seqscan = off SET enable_bitmapscan = off SET jit = off
SET plan_cache_mode = force_generic_plan SET search_path = pg_catalog, pg_temp AS $f$
DECLARE
  v_jobs posthaste.store[];
  v_rest bigint[];
  v_fails boolean := p_kinds && '{1,2}';
  v_keeps boolean := EXISTS (SELECT FROM posthaste.queue q WHERE q.keep IS NOT NULL);
  v_worker bigint := CASE WHEN v_fails
      OR v_keeps THEN posthaste.worker_of(p_slot, p_batch, p_token, p_ids) END;
BEGIN
  -- A smaller answer fits into the network buffers even if the client reads nothing.
  IF cardinality(p_ids) > 1000 THEN
    PERFORM posthaste.limit_send_time();
  END IF;
  CASE p_slot
    WHEN 0 THEN
      v_jobs := ARRAY(SELECT j FROM posthaste.close_0(p_batch, p_token, p_ids, p_kinds) j);
    WHEN 1 THEN
      v_jobs := ARRAY(SELECT j FROM posthaste.close_1(p_batch, p_token, p_ids, p_kinds) j);
    WHEN 2 THEN
      v_jobs := ARRAY(SELECT j FROM posthaste.close_2(p_batch, p_token, p_ids, p_kinds) j);
    WHEN 3 THEN
      v_jobs := ARRAY(SELECT j FROM posthaste.close_3(p_batch, p_token, p_ids, p_kinds) j);
    WHEN 4 THEN
      v_jobs := ARRAY(SELECT j FROM posthaste.close_4(p_batch, p_token, p_ids, p_kinds) j);
    WHEN 5 THEN
      v_jobs := ARRAY(SELECT j FROM posthaste.close_5(p_batch, p_token, p_ids, p_kinds) j);
    ELSE v_jobs := '{}';
  END CASE;
  IF cardinality(v_jobs) < cardinality(p_ids) THEN
    v_rest := ARRAY(SELECT unnest(p_ids) EXCEPT SELECT j.id FROM unnest(v_jobs) j);
    v_jobs := v_jobs || ARRAY(SELECT j FROM posthaste.close_in_flight(p_token, v_rest) j);
  END IF;
  IF EXISTS (SELECT FROM unnest(p_kinds) kind WHERE kind <> 0)
    OR EXISTS (SELECT FROM unnest(v_jobs) j WHERE j.unique_key IS NOT NULL OR j.turn IS NOT NULL)
    THEN
    PERFORM posthaste.route_closed_jobs(v_jobs, p_ids, p_kinds, p_attempts, p_after, p_until,
        p_states, p_errors);
  END IF;
  IF v_fails THEN
    PERFORM posthaste.note_attempts(v_jobs, v_worker, p_ids, p_kinds, p_attempts,
        p_states, p_errors);
  END IF;
  IF v_keeps THEN
    INSERT INTO posthaste.finished
    SELECT f.* FROM unnest(v_jobs) j JOIN unnest(p_ids, p_kinds) v(id, kind) ON v.id = j.id,
           posthaste.to_finished(j, v_worker) f WHERE v.kind = 0;
  END IF;
  RETURN ARRAY(SELECT j.id FROM unnest(v_jobs) j);
END $f$;

-- Returns the jobs of a claim whose answer the worker did not receive: they were never started. The
-- worker repeats this for a while, because the claim may still commit after the first call.
CREATE OR REPLACE FUNCTION posthaste.return_claim(p_worker bigint, p_token uuid)
RETURNS bigint LANGUAGE plpgsql
SET enable_bitmapscan = off SET jit = off SET search_path = pg_catalog, pg_temp AS $f$
DECLARE
  v_open record;
  v_jobs bigint := 0;
BEGIN
  PERFORM posthaste.wait_for_disk();
  FOR v_open IN
    SELECT o.* FROM posthaste.open_jobs(p_worker, p_token) o UNION ALL
    -- A leader may have moved them there, as it does with jobs that are open for long.
    SELECT (-1)::smallint, 0, p_token, array_agg(h.id) FROM posthaste.in_flight h
     WHERE h.worker = p_worker AND h.token = p_token AND h.state = 'running' HAVING count(*) > 0
  LOOP
    v_jobs := v_jobs
      + cardinality(posthaste.settle(v_open.slot, v_open.batch, v_open.token, v_open.ids,
      array_fill(8::smallint, ARRAY[cardinality(v_open.ids)]), NULL, NULL, NULL, NULL, NULL));
  END LOOP;
  RETURN v_jobs;
END $f$;

-- Dead-letters the next job of a queue if it cannot be read; called after claims have failed
-- repeatedly, down to a single job. A readable job (after a race with another worker) is returned.
-- Workers read UTF-8, and a database may contain text that cannot be converted to it.
CREATE OR REPLACE FUNCTION posthaste.dead_letter_next(
  p_queue text, p_priorities integer[], p_worker bigint, p_token uuid, p_error text)
RETURNS bigint LANGUAGE plpgsql
SET search_path = pg_catalog, pg_temp AS $f$
DECLARE
  v_queue posthaste.queue;
  r posthaste.claimed;
  v_readable boolean;
  v_dead bigint := 0;
BEGIN
  SELECT * INTO v_queue FROM posthaste.queue q WHERE q.name = p_queue AND q.rate IS NOT NULL;
  IF FOUND AND posthaste.rate_allowance(v_queue) = 0 THEN
    -- The failed claim used up a job of the rate, and handed out none.
    PERFORM posthaste.consume_rate(v_queue, -1);
  END IF;
  FOR r IN SELECT * FROM posthaste.claim(p_queue, p_priorities, p_worker, p_token, 1, 1) LOOP
    CONTINUE WHEN r.id IS NULL;
    BEGIN
      v_readable := octet_length(r.kwargs::text) <= 16777216
        AND convert_to(concat(r.name, r.tag, r.unique_key, r.ordering_key, r.trace, r.kwargs::text),
          'UTF8') IS NOT NULL;
    EXCEPTION WHEN OTHERS THEN
      v_readable := false;
    END;
    PERFORM posthaste.settle(r.slot, r.batch, p_token, ARRAY[r.id],
                             ARRAY[CASE WHEN v_readable THEN 8 ELSE 2 END::smallint],
                             ARRAY[r.attempt], NULL, NULL, ARRAY['dead'],
                             ARRAY[CASE WHEN v_readable THEN NULL ELSE p_error END]);
    v_dead := v_dead + CASE WHEN v_readable THEN 0 ELSE 1 END;
  END LOOP;
  RETURN v_dead;
END $f$;
-- Confirm: jobs whose effect happens elsewhere, and the ids that external receivers see.

-- The id by which external receivers drop duplicates: the epoch of the job's id and the id, as a
-- UUID (version 8).
CREATE OR REPLACE FUNCTION posthaste.delivery_of(epoch text, job_id bigint)
RETURNS uuid LANGUAGE sql IMMUTABLE AS $f$
  SELECT (substr(epoch, 1, 12) || '8' || substr(epoch, 13, 3) || 'a'
      || lpad(to_hex(job_id), 15, '0'))::uuid
$f$;

CREATE OR REPLACE FUNCTION posthaste.delivery_id(job_id bigint)
RETURNS uuid LANGUAGE sql STABLE AS $f$
  SELECT posthaste.delivery_of(i.value, job_id) FROM posthaste.epoch i
    WHERE i.first_id <= job_id ORDER BY i.n DESC LIMIT 1
$f$;

-- The job of a delivery id that a receiver saw: the job's own, or that of a row of
-- posthaste.outbox, which keeps its key until the job is done. NULL: an id of another database, or
-- a forgotten one.
CREATE OR REPLACE FUNCTION posthaste.job_of_delivery(delivery_id uuid)
RETURNS bigint LANGUAGE sql STABLE AS $f$
  SELECT coalesce((SELECT d.id
        FROM (SELECT ('x0'
          || substr(replace(delivery_id::text, '-', ''), 18, 15))::bit(64)::bigint AS id) d
                    WHERE posthaste.delivery_id(d.id) = delivery_id),
                  (SELECT u.id FROM posthaste.unique_key u WHERE u.key = 'outbox:' || delivery_id))
$f$;

-- Confirms the effect of a job that awaits it; usable from any language, best in the transaction of
-- the effect. Returns true if the id belongs to this database (a second confirmation does nothing);
-- false if not, or if it belongs to a row of posthaste.outbox that is done.
CREATE OR REPLACE FUNCTION posthaste.confirm(delivery_id uuid)
RETURNS boolean LANGUAGE plpgsql
SET search_path = pg_catalog, pg_temp AS $f$
DECLARE
  v_id bigint := posthaste.job_of_delivery(delivery_id);
  v_in_flight posthaste.in_flight;
BEGIN
  IF v_id IS NULL THEN
    RETURN false;
  END IF;
  DELETE FROM posthaste.in_flight h WHERE h.id = v_id AND h.state = 'awaiting'
    RETURNING h.* INTO v_in_flight;
  IF FOUND THEN
    DELETE FROM posthaste.unique_key u WHERE u.key = v_in_flight.unique_key AND u.id = v_id;
    IF v_in_flight.turn IS NOT NULL THEN
      PERFORM posthaste.end_turns(ARRAY[v_in_flight.ordering_key], ARRAY[v_in_flight.turn]);
    END IF;
    INSERT INTO posthaste.finished SELECT f.*
      FROM posthaste.to_finished(posthaste.from_in_flight(v_in_flight), NULL) f;
    INSERT INTO posthaste.stats_delta (queue, priority, name, tag, what, jobs)
      VALUES (v_in_flight.queue, v_in_flight.priority, v_in_flight.name, v_in_flight.tag,
        'completed_total', 1);
  ELSE
    INSERT INTO posthaste.confirmed (id) VALUES (v_id) ON CONFLICT DO NOTHING;
  END IF;
  RETURN true;
END $f$;

-- Ends awaited jobs due by p_until that were confirmed, that is, by a transaction that could not
-- see the job in posthaste.in_flight.
CREATE OR REPLACE FUNCTION posthaste.confirm_in_flight(p_until timestamptz, p_limit integer)
RETURNS bigint LANGUAGE plpgsql
SET search_path = pg_catalog, pg_temp AS $f$
DECLARE
  v_jobs bigint;
  v_keys text[];
  v_turns bigint[];
BEGIN
  WITH met AS (
    SELECT h.id FROM posthaste.in_flight h
     WHERE h.state = 'awaiting' AND h.until <= p_until AND EXISTS (SELECT FROM posthaste.confirmed c
         WHERE c.id = h.id)
     LIMIT p_limit FOR UPDATE SKIP LOCKED),
  ended AS (DELETE FROM posthaste.in_flight h USING met
      WHERE h.id = met.id RETURNING h.id, h.unique_key, h.ordering_key, h.turn,
      posthaste.from_in_flight(h) AS job),
  finished AS (INSERT INTO posthaste.finished SELECT f.*
      FROM ended e, posthaste.to_finished(e.job, NULL) f),
  noted AS (
    INSERT INTO posthaste.stats_delta (queue, priority, name, tag, what, jobs)
    SELECT (e.job).queue, (e.job).priority, (e.job).name, (e.job).tag, 'completed_total', 1
      FROM ended e),
  used AS (DELETE FROM posthaste.confirmed c USING met WHERE c.id = met.id),
  freed AS (DELETE FROM posthaste.unique_key u USING ended e
      WHERE u.key = e.unique_key AND u.id = e.id)
  SELECT count(*), array_agg(e.ordering_key) FILTER (WHERE e.turn IS NOT NULL),
         array_agg(e.turn) FILTER (WHERE e.turn IS NOT NULL)
    INTO v_jobs, v_keys, v_turns FROM ended e;
  IF v_keys IS NOT NULL THEN
    PERFORM posthaste.end_turns(v_keys, v_turns);
  END IF;
  RETURN v_jobs;
END $f$;

-- Awaited jobs that were not confirmed in time are retried, which counts as an attempt. Expired
-- jobs in flight are stored as expired.
CREATE OR REPLACE FUNCTION posthaste.retry_overdue(p_limit integer)
RETURNS bigint LANGUAGE plpgsql
SET search_path = pg_catalog, pg_temp AS $f$
DECLARE
  v_now timestamptz := clock_timestamp();
  v_jobs posthaste.store[];
  v_ids bigint[];
  v_kinds smallint[];
  v_attempts integer[];
  v_states text[];
  v_errors text[];
BEGIN
  IF NOT pg_try_advisory_xact_lock(1885893476, 4) THEN
    RETURN 0;
  END IF;
  PERFORM posthaste.confirm_in_flight(clock_timestamp(), p_limit);
  WITH late AS (
    SELECT h.id FROM posthaste.in_flight h
     WHERE (h.state = 'awaiting' AND h.until <= v_now)
       OR (h.state IN ('awaiting', 'quarantined') AND h.expires_at <= v_now)
     LIMIT p_limit FOR UPDATE SKIP LOCKED),
  freed AS (
    DELETE FROM posthaste.in_flight h USING late WHERE h.id = late.id
    RETURNING h.id, posthaste.from_in_flight(h) AS job, h.expires_at <= v_now AS has_expired,
      h.attempt + 1 AS attempt, h.max_attempts)
  SELECT array_agg(f.job), array_agg(f.id),
         array_agg(CASE WHEN f.has_expired OR f.attempt >= f.max_attempts THEN 2
               ELSE 1 END::smallint),
         array_agg(CASE WHEN f.has_expired THEN f.attempt - 1 ELSE f.attempt END),
         array_agg(CASE WHEN f.has_expired THEN 'expired' ELSE 'dead' END),
         array_agg(CASE WHEN NOT f.has_expired THEN 'it was not confirmed in time' END)
    INTO v_jobs, v_ids, v_kinds, v_attempts, v_states, v_errors FROM freed f;
  IF v_ids IS NULL THEN
    RETURN 0;
  END IF;
  PERFORM posthaste.route_closed_jobs(v_jobs, v_ids, v_kinds, v_attempts,
      array_fill(interval '0', ARRAY[cardinality(v_ids)]), NULL, v_states, v_errors);
  PERFORM posthaste.note_attempts(v_jobs, NULL, v_ids, v_kinds, v_attempts, v_states, v_errors);
  RETURN cardinality(v_ids);
END $f$;

-- Called in the transaction of the effect. Returns true the first time: apply the effect. Returns
-- false if it has been applied. A concurrent call waits until the other's transaction ends. Also
-- confirms the job if it awaits that.
CREATE OR REPLACE FUNCTION posthaste.receive(delivery_id uuid)
RETURNS boolean LANGUAGE plpgsql
SET search_path = pg_catalog, pg_temp AS $f$
#variable_conflict use_variable
DECLARE
  v_is_first boolean;
BEGIN
  INSERT INTO posthaste.inbox AS i (delivery_id) VALUES (delivery_id) ON CONFLICT DO NOTHING;
  v_is_first := FOUND;
  PERFORM posthaste.confirm(delivery_id);
  RETURN v_is_first;
END $f$;
-- Counters, read: the newest sums plus the rows added since (functions/marks.sql). The lanes of
-- this slot: the cursor of their claims, and the newest mark unless the claims have passed it.
-- Separate columns: each field of a composite would be fetched again for each row compared with it.
CREATE OR REPLACE FUNCTION posthaste.lanes_0(
  OUT queue text, OUT priority integer, OUT lo pg_snapshot, OUT hi pg_snapshot, OUT at_xid xid8,
  OUT at_id bigint, OUT exhausted boolean, OUT run bigint, OUT m_lo pg_snapshot,
  OUT m_hi pg_snapshot, OUT m_xid xid8, OUT m_id bigint, OUT m_exhausted boolean, OUT names text[],
  OUT tags text[], OUT jobs bigint[])
RETURNS SETOF record LANGUAGE sql STABLE AS $f$
  SELECT c.queue, c.priority, c.lo, c.hi, c.at_xid, c.at_id, c.exhausted, m.run, m.lo, m.hi,
         m.at_xid, m.at_id, m.exhausted, m.names, m.tags, m.jobs
    FROM posthaste.cursors_0() c LEFT JOIN LATERAL (
      SELECT n.*,
             posthaste.mark_passed(n.max_xid, n.max_id, n.hi, c.lo, c.hi, c.at_xid, c.at_id,
          c.exhausted) AS passed
        FROM posthaste.counted_0 n WHERE n.queue = c.queue AND n.priority = c.priority
       ORDER BY n.queue DESC, n.priority DESC, n.run DESC, n.max_xid DESC, n.max_id DESC,
         n.number DESC LIMIT 1) m ON NOT m.passed
$f$;
CREATE OR REPLACE FUNCTION posthaste.lanes_1(
  OUT queue text, OUT priority integer, OUT lo pg_snapshot, OUT hi pg_snapshot, OUT at_xid xid8,
  OUT at_id bigint, OUT exhausted boolean, OUT run bigint, OUT m_lo pg_snapshot,
  OUT m_hi pg_snapshot, OUT m_xid xid8, OUT m_id bigint, OUT m_exhausted boolean, OUT names text[],
  OUT tags text[], OUT jobs bigint[])
RETURNS SETOF record LANGUAGE sql STABLE AS $f$
  SELECT c.queue, c.priority, c.lo, c.hi, c.at_xid, c.at_id, c.exhausted, m.run, m.lo, m.hi,
         m.at_xid, m.at_id, m.exhausted, m.names, m.tags, m.jobs
    FROM posthaste.cursors_1() c LEFT JOIN LATERAL (
      SELECT n.*,
             posthaste.mark_passed(n.max_xid, n.max_id, n.hi, c.lo, c.hi, c.at_xid, c.at_id,
          c.exhausted) AS passed
        FROM posthaste.counted_1 n WHERE n.queue = c.queue AND n.priority = c.priority
       ORDER BY n.queue DESC, n.priority DESC, n.run DESC, n.max_xid DESC, n.max_id DESC,
         n.number DESC LIMIT 1) m ON NOT m.passed
$f$;
CREATE OR REPLACE FUNCTION posthaste.lanes_2(
  OUT queue text, OUT priority integer, OUT lo pg_snapshot, OUT hi pg_snapshot, OUT at_xid xid8,
  OUT at_id bigint, OUT exhausted boolean, OUT run bigint, OUT m_lo pg_snapshot,
  OUT m_hi pg_snapshot, OUT m_xid xid8, OUT m_id bigint, OUT m_exhausted boolean, OUT names text[],
  OUT tags text[], OUT jobs bigint[])
RETURNS SETOF record LANGUAGE sql STABLE AS $f$
  SELECT c.queue, c.priority, c.lo, c.hi, c.at_xid, c.at_id, c.exhausted, m.run, m.lo, m.hi,
         m.at_xid, m.at_id, m.exhausted, m.names, m.tags, m.jobs
    FROM posthaste.cursors_2() c LEFT JOIN LATERAL (
      SELECT n.*,
             posthaste.mark_passed(n.max_xid, n.max_id, n.hi, c.lo, c.hi, c.at_xid, c.at_id,
          c.exhausted) AS passed
        FROM posthaste.counted_2 n WHERE n.queue = c.queue AND n.priority = c.priority
       ORDER BY n.queue DESC, n.priority DESC, n.run DESC, n.max_xid DESC, n.max_id DESC,
         n.number DESC LIMIT 1) m ON NOT m.passed
$f$;
CREATE OR REPLACE FUNCTION posthaste.lanes_3(
  OUT queue text, OUT priority integer, OUT lo pg_snapshot, OUT hi pg_snapshot, OUT at_xid xid8,
  OUT at_id bigint, OUT exhausted boolean, OUT run bigint, OUT m_lo pg_snapshot,
  OUT m_hi pg_snapshot, OUT m_xid xid8, OUT m_id bigint, OUT m_exhausted boolean, OUT names text[],
  OUT tags text[], OUT jobs bigint[])
RETURNS SETOF record LANGUAGE sql STABLE AS $f$
  SELECT c.queue, c.priority, c.lo, c.hi, c.at_xid, c.at_id, c.exhausted, m.run, m.lo, m.hi,
         m.at_xid, m.at_id, m.exhausted, m.names, m.tags, m.jobs
    FROM posthaste.cursors_3() c LEFT JOIN LATERAL (
      SELECT n.*,
             posthaste.mark_passed(n.max_xid, n.max_id, n.hi, c.lo, c.hi, c.at_xid, c.at_id,
          c.exhausted) AS passed
        FROM posthaste.counted_3 n WHERE n.queue = c.queue AND n.priority = c.priority
       ORDER BY n.queue DESC, n.priority DESC, n.run DESC, n.max_xid DESC, n.max_id DESC,
         n.number DESC LIMIT 1) m ON NOT m.passed
$f$;
CREATE OR REPLACE FUNCTION posthaste.lanes_4(
  OUT queue text, OUT priority integer, OUT lo pg_snapshot, OUT hi pg_snapshot, OUT at_xid xid8,
  OUT at_id bigint, OUT exhausted boolean, OUT run bigint, OUT m_lo pg_snapshot,
  OUT m_hi pg_snapshot, OUT m_xid xid8, OUT m_id bigint, OUT m_exhausted boolean, OUT names text[],
  OUT tags text[], OUT jobs bigint[])
RETURNS SETOF record LANGUAGE sql STABLE AS $f$
  SELECT c.queue, c.priority, c.lo, c.hi, c.at_xid, c.at_id, c.exhausted, m.run, m.lo, m.hi,
         m.at_xid, m.at_id, m.exhausted, m.names, m.tags, m.jobs
    FROM posthaste.cursors_4() c LEFT JOIN LATERAL (
      SELECT n.*,
             posthaste.mark_passed(n.max_xid, n.max_id, n.hi, c.lo, c.hi, c.at_xid, c.at_id,
          c.exhausted) AS passed
        FROM posthaste.counted_4 n WHERE n.queue = c.queue AND n.priority = c.priority
       ORDER BY n.queue DESC, n.priority DESC, n.run DESC, n.max_xid DESC, n.max_id DESC,
         n.number DESC LIMIT 1) m ON NOT m.passed
$f$;
CREATE OR REPLACE FUNCTION posthaste.lanes_5(
  OUT queue text, OUT priority integer, OUT lo pg_snapshot, OUT hi pg_snapshot, OUT at_xid xid8,
  OUT at_id bigint, OUT exhausted boolean, OUT run bigint, OUT m_lo pg_snapshot,
  OUT m_hi pg_snapshot, OUT m_xid xid8, OUT m_id bigint, OUT m_exhausted boolean, OUT names text[],
  OUT tags text[], OUT jobs bigint[])
RETURNS SETOF record LANGUAGE sql STABLE AS $f$
  SELECT c.queue, c.priority, c.lo, c.hi, c.at_xid, c.at_id, c.exhausted, m.run, m.lo, m.hi,
         m.at_xid, m.at_id, m.exhausted, m.names, m.tags, m.jobs
    FROM posthaste.cursors_5() c LEFT JOIN LATERAL (
      SELECT n.*,
             posthaste.mark_passed(n.max_xid, n.max_id, n.hi, c.lo, c.hi, c.at_xid, c.at_id,
          c.exhausted) AS passed
        FROM posthaste.counted_5 n WHERE n.queue = c.queue AND n.priority = c.priority
       ORDER BY n.queue DESC, n.priority DESC, n.run DESC, n.max_xid DESC, n.max_id DESC,
         n.number DESC LIMIT 1) m ON NOT m.passed
$f$;

-- Jobs that wait for a worker. If a lane has a mark that its claims have not passed: the difference
-- between that mark and the last one they have passed, minus the jobs claimed since, plus the jobs
-- added since, at most p_most.
CREATE OR REPLACE FUNCTION posthaste.available_0(p_most integer)
RETURNS TABLE (queue text, priority integer, name text, tag text, what text, jobs bigint)
LANGUAGE plpgsql STABLE AS $f$
#variable_conflict use_column
BEGIN
  RETURN QUERY
  WITH cursor AS MATERIALIZED (
    SELECT l.*, CASE WHEN l.exhausted THEN pg_snapshot_xmax(l.hi)
        ELSE greatest(l.at_xid, pg_snapshot_xmax(l.lo)) END AS end_xid,
           CASE WHEN l.exhausted OR l.at_xid < pg_snapshot_xmax(l.lo) THEN -1
               ELSE l.at_id END AS end_id
      FROM posthaste.lanes_0() l),
  lane AS MATERIALIZED (
    SELECT l.*, p.run AS p_run, p.lo AS p_lo, p.hi AS p_hi, p.at_xid AS p_xid, p.at_id AS p_id,
           p.exhausted AS p_exhausted,
           p.names AS p_names, p.tags AS p_tags, p.jobs AS p_jobs
      FROM cursor l LEFT JOIN LATERAL (
        SELECT * FROM posthaste.counted_0 n
         WHERE n.queue = l.queue AND n.priority = l.priority AND n.run = l.run
           AND (n.max_xid, n.max_id) <= (l.end_xid, l.end_id)
           AND (n.number = n.run
               OR posthaste.mark_passed(n.max_xid, n.max_id, n.hi, l.lo, l.hi, l.at_xid, l.at_id,
                 l.exhausted))
         ORDER BY n.queue DESC, n.priority DESC, n.run DESC, n.max_xid DESC, n.max_id DESC,
           n.number DESC LIMIT 1) p ON l.run IS NOT NULL),
  fresh AS MATERIALIZED (
    SELECT f.queue, f.priority, f.name, f.tag, f.what, count(*) AS jobs FROM (
      -- Jobs that are not yet ordered: a lane that the leader keeps short.
      SELECT coalesce(r.own_queue, r.queue) AS queue,
             coalesce(r.own_priority, r.priority) AS priority, r.name, r.tag, 'blocked' AS what
        FROM lane l,
          LATERAL posthaste.rows_after_0(l.queue, l.priority, l.lo, l.hi, l.at_xid, l.at_id,
            l.exhausted, '18446744073709551615', 0) r
       WHERE l.queue = '' AND r.turn IS NULL
         AND NOT EXISTS (SELECT FROM posthaste.closed_unclaimed_0 e
           WHERE e.xid = r.xid AND e.id = r.id)
      UNION ALL
      SELECT l.queue, l.priority, r.name, r.tag, 'available'
        FROM lane l,
          LATERAL posthaste.rows_after_0(l.queue, l.priority, l.lo, l.hi, l.at_xid, l.at_id,
            l.exhausted, '18446744073709551615', 0) r
       WHERE l.queue <> '' AND l.run IS NULL
      UNION ALL
      SELECT l.queue, l.priority, r.name, r.tag, 'available'
        FROM lane l,
          LATERAL posthaste.rows_after_0(l.queue, l.priority, l.m_lo, l.m_hi, l.m_xid, l.m_id,
            l.m_exhausted, '18446744073709551615', 0) r
       WHERE l.run IS NOT NULL
         AND NOT posthaste.is_claimed(r.xid, r.id, l.lo, l.hi, l.at_xid, l.at_id, l.exhausted)
      LIMIT p_most) f
     GROUP BY f.queue, f.priority, f.name, f.tag, f.what)
  SELECT f.queue, f.priority, f.name, f.tag, f.what, f.jobs FROM fresh f WHERE f.what = 'blocked'
  UNION ALL
  SELECT a.queue, a.priority, a.name, a.tag, 'available', sum(a.jobs)::bigint FROM (
    SELECT f.queue, f.priority, f.name, f.tag, f.jobs FROM fresh f WHERE f.what = 'available'
    UNION ALL
    SELECT l.queue, l.priority, u.name, u.tag, u.jobs
      FROM lane l, LATERAL unnest(l.names, l.tags, l.jobs) u(name, tag, jobs)
    UNION ALL
    SELECT l.queue, l.priority, u.name, u.tag, -u.jobs
      FROM lane l, LATERAL unnest(l.p_names, l.p_tags, l.p_jobs) u(name, tag, jobs)
    UNION ALL
    SELECT l.queue, l.priority, r.name, r.tag, -1
      FROM lane l,
        LATERAL posthaste.rows_after_0(l.queue, l.priority, l.p_lo, l.p_hi, l.p_xid, l.p_id,
          l.p_exhausted, l.end_xid, l.end_id) r
     WHERE l.p_run IS NOT NULL
       AND posthaste.is_claimed(r.xid, r.id, l.lo, l.hi, l.at_xid, l.at_id, l.exhausted)
       AND posthaste.is_claimed(r.xid, r.id, l.m_lo, l.m_hi, l.m_xid, l.m_id, l.m_exhausted)
    UNION ALL
    SELECT l.queue, l.priority, e.name, e.tag, -1
      FROM lane l,
        LATERAL (SELECT * FROM posthaste.left_0 n
          WHERE n.queue = l.queue AND n.priority = l.priority OFFSET 0) e
     WHERE NOT posthaste.is_claimed(e.xid, e.id, l.lo, l.hi, l.at_xid, l.at_id, l.exhausted)) a
   GROUP BY a.queue, a.priority, a.name, a.tag HAVING sum(a.jobs) <> 0;
END $f$;
CREATE OR REPLACE FUNCTION posthaste.available_1(p_most integer)
RETURNS TABLE (queue text, priority integer, name text, tag text, what text, jobs bigint)
LANGUAGE plpgsql STABLE AS $f$
#variable_conflict use_column
BEGIN
  RETURN QUERY
  WITH cursor AS MATERIALIZED (
    SELECT l.*, CASE WHEN l.exhausted THEN pg_snapshot_xmax(l.hi)
        ELSE greatest(l.at_xid, pg_snapshot_xmax(l.lo)) END AS end_xid,
           CASE WHEN l.exhausted OR l.at_xid < pg_snapshot_xmax(l.lo) THEN -1
               ELSE l.at_id END AS end_id
      FROM posthaste.lanes_1() l),
  lane AS MATERIALIZED (
    SELECT l.*, p.run AS p_run, p.lo AS p_lo, p.hi AS p_hi, p.at_xid AS p_xid, p.at_id AS p_id,
           p.exhausted AS p_exhausted,
           p.names AS p_names, p.tags AS p_tags, p.jobs AS p_jobs
      FROM cursor l LEFT JOIN LATERAL (
        SELECT * FROM posthaste.counted_1 n
         WHERE n.queue = l.queue AND n.priority = l.priority AND n.run = l.run
           AND (n.max_xid, n.max_id) <= (l.end_xid, l.end_id)
           AND (n.number = n.run
               OR posthaste.mark_passed(n.max_xid, n.max_id, n.hi, l.lo, l.hi, l.at_xid, l.at_id,
                 l.exhausted))
         ORDER BY n.queue DESC, n.priority DESC, n.run DESC, n.max_xid DESC, n.max_id DESC,
           n.number DESC LIMIT 1) p ON l.run IS NOT NULL),
  fresh AS MATERIALIZED (
    SELECT f.queue, f.priority, f.name, f.tag, f.what, count(*) AS jobs FROM (
      -- Jobs that are not yet ordered: a lane that the leader keeps short.
      SELECT coalesce(r.own_queue, r.queue) AS queue,
             coalesce(r.own_priority, r.priority) AS priority, r.name, r.tag, 'blocked' AS what
        FROM lane l,
          LATERAL posthaste.rows_after_1(l.queue, l.priority, l.lo, l.hi, l.at_xid, l.at_id,
            l.exhausted, '18446744073709551615', 0) r
       WHERE l.queue = '' AND r.turn IS NULL
         AND NOT EXISTS (SELECT FROM posthaste.closed_unclaimed_1 e
           WHERE e.xid = r.xid AND e.id = r.id)
      UNION ALL
      SELECT l.queue, l.priority, r.name, r.tag, 'available'
        FROM lane l,
          LATERAL posthaste.rows_after_1(l.queue, l.priority, l.lo, l.hi, l.at_xid, l.at_id,
            l.exhausted, '18446744073709551615', 0) r
       WHERE l.queue <> '' AND l.run IS NULL
      UNION ALL
      SELECT l.queue, l.priority, r.name, r.tag, 'available'
        FROM lane l,
          LATERAL posthaste.rows_after_1(l.queue, l.priority, l.m_lo, l.m_hi, l.m_xid, l.m_id,
            l.m_exhausted, '18446744073709551615', 0) r
       WHERE l.run IS NOT NULL
         AND NOT posthaste.is_claimed(r.xid, r.id, l.lo, l.hi, l.at_xid, l.at_id, l.exhausted)
      LIMIT p_most) f
     GROUP BY f.queue, f.priority, f.name, f.tag, f.what)
  SELECT f.queue, f.priority, f.name, f.tag, f.what, f.jobs FROM fresh f WHERE f.what = 'blocked'
  UNION ALL
  SELECT a.queue, a.priority, a.name, a.tag, 'available', sum(a.jobs)::bigint FROM (
    SELECT f.queue, f.priority, f.name, f.tag, f.jobs FROM fresh f WHERE f.what = 'available'
    UNION ALL
    SELECT l.queue, l.priority, u.name, u.tag, u.jobs
      FROM lane l, LATERAL unnest(l.names, l.tags, l.jobs) u(name, tag, jobs)
    UNION ALL
    SELECT l.queue, l.priority, u.name, u.tag, -u.jobs
      FROM lane l, LATERAL unnest(l.p_names, l.p_tags, l.p_jobs) u(name, tag, jobs)
    UNION ALL
    SELECT l.queue, l.priority, r.name, r.tag, -1
      FROM lane l,
        LATERAL posthaste.rows_after_1(l.queue, l.priority, l.p_lo, l.p_hi, l.p_xid, l.p_id,
          l.p_exhausted, l.end_xid, l.end_id) r
     WHERE l.p_run IS NOT NULL
       AND posthaste.is_claimed(r.xid, r.id, l.lo, l.hi, l.at_xid, l.at_id, l.exhausted)
       AND posthaste.is_claimed(r.xid, r.id, l.m_lo, l.m_hi, l.m_xid, l.m_id, l.m_exhausted)
    UNION ALL
    SELECT l.queue, l.priority, e.name, e.tag, -1
      FROM lane l,
        LATERAL (SELECT * FROM posthaste.left_1 n
          WHERE n.queue = l.queue AND n.priority = l.priority OFFSET 0) e
     WHERE NOT posthaste.is_claimed(e.xid, e.id, l.lo, l.hi, l.at_xid, l.at_id, l.exhausted)) a
   GROUP BY a.queue, a.priority, a.name, a.tag HAVING sum(a.jobs) <> 0;
END $f$;
CREATE OR REPLACE FUNCTION posthaste.available_2(p_most integer)
RETURNS TABLE (queue text, priority integer, name text, tag text, what text, jobs bigint)
LANGUAGE plpgsql STABLE AS $f$
#variable_conflict use_column
BEGIN
  RETURN QUERY
  WITH cursor AS MATERIALIZED (
    SELECT l.*, CASE WHEN l.exhausted THEN pg_snapshot_xmax(l.hi)
        ELSE greatest(l.at_xid, pg_snapshot_xmax(l.lo)) END AS end_xid,
           CASE WHEN l.exhausted OR l.at_xid < pg_snapshot_xmax(l.lo) THEN -1
               ELSE l.at_id END AS end_id
      FROM posthaste.lanes_2() l),
  lane AS MATERIALIZED (
    SELECT l.*, p.run AS p_run, p.lo AS p_lo, p.hi AS p_hi, p.at_xid AS p_xid, p.at_id AS p_id,
           p.exhausted AS p_exhausted,
           p.names AS p_names, p.tags AS p_tags, p.jobs AS p_jobs
      FROM cursor l LEFT JOIN LATERAL (
        SELECT * FROM posthaste.counted_2 n
         WHERE n.queue = l.queue AND n.priority = l.priority AND n.run = l.run
           AND (n.max_xid, n.max_id) <= (l.end_xid, l.end_id)
           AND (n.number = n.run
               OR posthaste.mark_passed(n.max_xid, n.max_id, n.hi, l.lo, l.hi, l.at_xid, l.at_id,
                 l.exhausted))
         ORDER BY n.queue DESC, n.priority DESC, n.run DESC, n.max_xid DESC, n.max_id DESC,
           n.number DESC LIMIT 1) p ON l.run IS NOT NULL),
  fresh AS MATERIALIZED (
    SELECT f.queue, f.priority, f.name, f.tag, f.what, count(*) AS jobs FROM (
      -- Jobs that are not yet ordered: a lane that the leader keeps short.
      SELECT coalesce(r.own_queue, r.queue) AS queue,
             coalesce(r.own_priority, r.priority) AS priority, r.name, r.tag, 'blocked' AS what
        FROM lane l,
          LATERAL posthaste.rows_after_2(l.queue, l.priority, l.lo, l.hi, l.at_xid, l.at_id,
            l.exhausted, '18446744073709551615', 0) r
       WHERE l.queue = '' AND r.turn IS NULL
         AND NOT EXISTS (SELECT FROM posthaste.closed_unclaimed_2 e
           WHERE e.xid = r.xid AND e.id = r.id)
      UNION ALL
      SELECT l.queue, l.priority, r.name, r.tag, 'available'
        FROM lane l,
          LATERAL posthaste.rows_after_2(l.queue, l.priority, l.lo, l.hi, l.at_xid, l.at_id,
            l.exhausted, '18446744073709551615', 0) r
       WHERE l.queue <> '' AND l.run IS NULL
      UNION ALL
      SELECT l.queue, l.priority, r.name, r.tag, 'available'
        FROM lane l,
          LATERAL posthaste.rows_after_2(l.queue, l.priority, l.m_lo, l.m_hi, l.m_xid, l.m_id,
            l.m_exhausted, '18446744073709551615', 0) r
       WHERE l.run IS NOT NULL
         AND NOT posthaste.is_claimed(r.xid, r.id, l.lo, l.hi, l.at_xid, l.at_id, l.exhausted)
      LIMIT p_most) f
     GROUP BY f.queue, f.priority, f.name, f.tag, f.what)
  SELECT f.queue, f.priority, f.name, f.tag, f.what, f.jobs FROM fresh f WHERE f.what = 'blocked'
  UNION ALL
  SELECT a.queue, a.priority, a.name, a.tag, 'available', sum(a.jobs)::bigint FROM (
    SELECT f.queue, f.priority, f.name, f.tag, f.jobs FROM fresh f WHERE f.what = 'available'
    UNION ALL
    SELECT l.queue, l.priority, u.name, u.tag, u.jobs
      FROM lane l, LATERAL unnest(l.names, l.tags, l.jobs) u(name, tag, jobs)
    UNION ALL
    SELECT l.queue, l.priority, u.name, u.tag, -u.jobs
      FROM lane l, LATERAL unnest(l.p_names, l.p_tags, l.p_jobs) u(name, tag, jobs)
    UNION ALL
    SELECT l.queue, l.priority, r.name, r.tag, -1
      FROM lane l,
        LATERAL posthaste.rows_after_2(l.queue, l.priority, l.p_lo, l.p_hi, l.p_xid, l.p_id,
          l.p_exhausted, l.end_xid, l.end_id) r
     WHERE l.p_run IS NOT NULL
       AND posthaste.is_claimed(r.xid, r.id, l.lo, l.hi, l.at_xid, l.at_id, l.exhausted)
       AND posthaste.is_claimed(r.xid, r.id, l.m_lo, l.m_hi, l.m_xid, l.m_id, l.m_exhausted)
    UNION ALL
    SELECT l.queue, l.priority, e.name, e.tag, -1
      FROM lane l,
        LATERAL (SELECT * FROM posthaste.left_2 n
          WHERE n.queue = l.queue AND n.priority = l.priority OFFSET 0) e
     WHERE NOT posthaste.is_claimed(e.xid, e.id, l.lo, l.hi, l.at_xid, l.at_id, l.exhausted)) a
   GROUP BY a.queue, a.priority, a.name, a.tag HAVING sum(a.jobs) <> 0;
END $f$;
CREATE OR REPLACE FUNCTION posthaste.available_3(p_most integer)
RETURNS TABLE (queue text, priority integer, name text, tag text, what text, jobs bigint)
LANGUAGE plpgsql STABLE AS $f$
#variable_conflict use_column
BEGIN
  RETURN QUERY
  WITH cursor AS MATERIALIZED (
    SELECT l.*, CASE WHEN l.exhausted THEN pg_snapshot_xmax(l.hi)
        ELSE greatest(l.at_xid, pg_snapshot_xmax(l.lo)) END AS end_xid,
           CASE WHEN l.exhausted OR l.at_xid < pg_snapshot_xmax(l.lo) THEN -1
               ELSE l.at_id END AS end_id
      FROM posthaste.lanes_3() l),
  lane AS MATERIALIZED (
    SELECT l.*, p.run AS p_run, p.lo AS p_lo, p.hi AS p_hi, p.at_xid AS p_xid, p.at_id AS p_id,
           p.exhausted AS p_exhausted,
           p.names AS p_names, p.tags AS p_tags, p.jobs AS p_jobs
      FROM cursor l LEFT JOIN LATERAL (
        SELECT * FROM posthaste.counted_3 n
         WHERE n.queue = l.queue AND n.priority = l.priority AND n.run = l.run
           AND (n.max_xid, n.max_id) <= (l.end_xid, l.end_id)
           AND (n.number = n.run
               OR posthaste.mark_passed(n.max_xid, n.max_id, n.hi, l.lo, l.hi, l.at_xid, l.at_id,
                 l.exhausted))
         ORDER BY n.queue DESC, n.priority DESC, n.run DESC, n.max_xid DESC, n.max_id DESC,
           n.number DESC LIMIT 1) p ON l.run IS NOT NULL),
  fresh AS MATERIALIZED (
    SELECT f.queue, f.priority, f.name, f.tag, f.what, count(*) AS jobs FROM (
      -- Jobs that are not yet ordered: a lane that the leader keeps short.
      SELECT coalesce(r.own_queue, r.queue) AS queue,
             coalesce(r.own_priority, r.priority) AS priority, r.name, r.tag, 'blocked' AS what
        FROM lane l,
          LATERAL posthaste.rows_after_3(l.queue, l.priority, l.lo, l.hi, l.at_xid, l.at_id,
            l.exhausted, '18446744073709551615', 0) r
       WHERE l.queue = '' AND r.turn IS NULL
         AND NOT EXISTS (SELECT FROM posthaste.closed_unclaimed_3 e
           WHERE e.xid = r.xid AND e.id = r.id)
      UNION ALL
      SELECT l.queue, l.priority, r.name, r.tag, 'available'
        FROM lane l,
          LATERAL posthaste.rows_after_3(l.queue, l.priority, l.lo, l.hi, l.at_xid, l.at_id,
            l.exhausted, '18446744073709551615', 0) r
       WHERE l.queue <> '' AND l.run IS NULL
      UNION ALL
      SELECT l.queue, l.priority, r.name, r.tag, 'available'
        FROM lane l,
          LATERAL posthaste.rows_after_3(l.queue, l.priority, l.m_lo, l.m_hi, l.m_xid, l.m_id,
            l.m_exhausted, '18446744073709551615', 0) r
       WHERE l.run IS NOT NULL
         AND NOT posthaste.is_claimed(r.xid, r.id, l.lo, l.hi, l.at_xid, l.at_id, l.exhausted)
      LIMIT p_most) f
     GROUP BY f.queue, f.priority, f.name, f.tag, f.what)
  SELECT f.queue, f.priority, f.name, f.tag, f.what, f.jobs FROM fresh f WHERE f.what = 'blocked'
  UNION ALL
  SELECT a.queue, a.priority, a.name, a.tag, 'available', sum(a.jobs)::bigint FROM (
    SELECT f.queue, f.priority, f.name, f.tag, f.jobs FROM fresh f WHERE f.what = 'available'
    UNION ALL
    SELECT l.queue, l.priority, u.name, u.tag, u.jobs
      FROM lane l, LATERAL unnest(l.names, l.tags, l.jobs) u(name, tag, jobs)
    UNION ALL
    SELECT l.queue, l.priority, u.name, u.tag, -u.jobs
      FROM lane l, LATERAL unnest(l.p_names, l.p_tags, l.p_jobs) u(name, tag, jobs)
    UNION ALL
    SELECT l.queue, l.priority, r.name, r.tag, -1
      FROM lane l,
        LATERAL posthaste.rows_after_3(l.queue, l.priority, l.p_lo, l.p_hi, l.p_xid, l.p_id,
          l.p_exhausted, l.end_xid, l.end_id) r
     WHERE l.p_run IS NOT NULL
       AND posthaste.is_claimed(r.xid, r.id, l.lo, l.hi, l.at_xid, l.at_id, l.exhausted)
       AND posthaste.is_claimed(r.xid, r.id, l.m_lo, l.m_hi, l.m_xid, l.m_id, l.m_exhausted)
    UNION ALL
    SELECT l.queue, l.priority, e.name, e.tag, -1
      FROM lane l,
        LATERAL (SELECT * FROM posthaste.left_3 n
          WHERE n.queue = l.queue AND n.priority = l.priority OFFSET 0) e
     WHERE NOT posthaste.is_claimed(e.xid, e.id, l.lo, l.hi, l.at_xid, l.at_id, l.exhausted)) a
   GROUP BY a.queue, a.priority, a.name, a.tag HAVING sum(a.jobs) <> 0;
END $f$;
CREATE OR REPLACE FUNCTION posthaste.available_4(p_most integer)
RETURNS TABLE (queue text, priority integer, name text, tag text, what text, jobs bigint)
LANGUAGE plpgsql STABLE AS $f$
#variable_conflict use_column
BEGIN
  RETURN QUERY
  WITH cursor AS MATERIALIZED (
    SELECT l.*, CASE WHEN l.exhausted THEN pg_snapshot_xmax(l.hi)
        ELSE greatest(l.at_xid, pg_snapshot_xmax(l.lo)) END AS end_xid,
           CASE WHEN l.exhausted OR l.at_xid < pg_snapshot_xmax(l.lo) THEN -1
               ELSE l.at_id END AS end_id
      FROM posthaste.lanes_4() l),
  lane AS MATERIALIZED (
    SELECT l.*, p.run AS p_run, p.lo AS p_lo, p.hi AS p_hi, p.at_xid AS p_xid, p.at_id AS p_id,
           p.exhausted AS p_exhausted,
           p.names AS p_names, p.tags AS p_tags, p.jobs AS p_jobs
      FROM cursor l LEFT JOIN LATERAL (
        SELECT * FROM posthaste.counted_4 n
         WHERE n.queue = l.queue AND n.priority = l.priority AND n.run = l.run
           AND (n.max_xid, n.max_id) <= (l.end_xid, l.end_id)
           AND (n.number = n.run
               OR posthaste.mark_passed(n.max_xid, n.max_id, n.hi, l.lo, l.hi, l.at_xid, l.at_id,
                 l.exhausted))
         ORDER BY n.queue DESC, n.priority DESC, n.run DESC, n.max_xid DESC, n.max_id DESC,
           n.number DESC LIMIT 1) p ON l.run IS NOT NULL),
  fresh AS MATERIALIZED (
    SELECT f.queue, f.priority, f.name, f.tag, f.what, count(*) AS jobs FROM (
      -- Jobs that are not yet ordered: a lane that the leader keeps short.
      SELECT coalesce(r.own_queue, r.queue) AS queue,
             coalesce(r.own_priority, r.priority) AS priority, r.name, r.tag, 'blocked' AS what
        FROM lane l,
          LATERAL posthaste.rows_after_4(l.queue, l.priority, l.lo, l.hi, l.at_xid, l.at_id,
            l.exhausted, '18446744073709551615', 0) r
       WHERE l.queue = '' AND r.turn IS NULL
         AND NOT EXISTS (SELECT FROM posthaste.closed_unclaimed_4 e
           WHERE e.xid = r.xid AND e.id = r.id)
      UNION ALL
      SELECT l.queue, l.priority, r.name, r.tag, 'available'
        FROM lane l,
          LATERAL posthaste.rows_after_4(l.queue, l.priority, l.lo, l.hi, l.at_xid, l.at_id,
            l.exhausted, '18446744073709551615', 0) r
       WHERE l.queue <> '' AND l.run IS NULL
      UNION ALL
      SELECT l.queue, l.priority, r.name, r.tag, 'available'
        FROM lane l,
          LATERAL posthaste.rows_after_4(l.queue, l.priority, l.m_lo, l.m_hi, l.m_xid, l.m_id,
            l.m_exhausted, '18446744073709551615', 0) r
       WHERE l.run IS NOT NULL
         AND NOT posthaste.is_claimed(r.xid, r.id, l.lo, l.hi, l.at_xid, l.at_id, l.exhausted)
      LIMIT p_most) f
     GROUP BY f.queue, f.priority, f.name, f.tag, f.what)
  SELECT f.queue, f.priority, f.name, f.tag, f.what, f.jobs FROM fresh f WHERE f.what = 'blocked'
  UNION ALL
  SELECT a.queue, a.priority, a.name, a.tag, 'available', sum(a.jobs)::bigint FROM (
    SELECT f.queue, f.priority, f.name, f.tag, f.jobs FROM fresh f WHERE f.what = 'available'
    UNION ALL
    SELECT l.queue, l.priority, u.name, u.tag, u.jobs
      FROM lane l, LATERAL unnest(l.names, l.tags, l.jobs) u(name, tag, jobs)
    UNION ALL
    SELECT l.queue, l.priority, u.name, u.tag, -u.jobs
      FROM lane l, LATERAL unnest(l.p_names, l.p_tags, l.p_jobs) u(name, tag, jobs)
    UNION ALL
    SELECT l.queue, l.priority, r.name, r.tag, -1
      FROM lane l,
        LATERAL posthaste.rows_after_4(l.queue, l.priority, l.p_lo, l.p_hi, l.p_xid, l.p_id,
          l.p_exhausted, l.end_xid, l.end_id) r
     WHERE l.p_run IS NOT NULL
       AND posthaste.is_claimed(r.xid, r.id, l.lo, l.hi, l.at_xid, l.at_id, l.exhausted)
       AND posthaste.is_claimed(r.xid, r.id, l.m_lo, l.m_hi, l.m_xid, l.m_id, l.m_exhausted)
    UNION ALL
    SELECT l.queue, l.priority, e.name, e.tag, -1
      FROM lane l,
        LATERAL (SELECT * FROM posthaste.left_4 n
          WHERE n.queue = l.queue AND n.priority = l.priority OFFSET 0) e
     WHERE NOT posthaste.is_claimed(e.xid, e.id, l.lo, l.hi, l.at_xid, l.at_id, l.exhausted)) a
   GROUP BY a.queue, a.priority, a.name, a.tag HAVING sum(a.jobs) <> 0;
END $f$;
CREATE OR REPLACE FUNCTION posthaste.available_5(p_most integer)
RETURNS TABLE (queue text, priority integer, name text, tag text, what text, jobs bigint)
LANGUAGE plpgsql STABLE AS $f$
#variable_conflict use_column
BEGIN
  RETURN QUERY
  WITH cursor AS MATERIALIZED (
    SELECT l.*, CASE WHEN l.exhausted THEN pg_snapshot_xmax(l.hi)
        ELSE greatest(l.at_xid, pg_snapshot_xmax(l.lo)) END AS end_xid,
           CASE WHEN l.exhausted OR l.at_xid < pg_snapshot_xmax(l.lo) THEN -1
               ELSE l.at_id END AS end_id
      FROM posthaste.lanes_5() l),
  lane AS MATERIALIZED (
    SELECT l.*, p.run AS p_run, p.lo AS p_lo, p.hi AS p_hi, p.at_xid AS p_xid, p.at_id AS p_id,
           p.exhausted AS p_exhausted,
           p.names AS p_names, p.tags AS p_tags, p.jobs AS p_jobs
      FROM cursor l LEFT JOIN LATERAL (
        SELECT * FROM posthaste.counted_5 n
         WHERE n.queue = l.queue AND n.priority = l.priority AND n.run = l.run
           AND (n.max_xid, n.max_id) <= (l.end_xid, l.end_id)
           AND (n.number = n.run
               OR posthaste.mark_passed(n.max_xid, n.max_id, n.hi, l.lo, l.hi, l.at_xid, l.at_id,
                 l.exhausted))
         ORDER BY n.queue DESC, n.priority DESC, n.run DESC, n.max_xid DESC, n.max_id DESC,
           n.number DESC LIMIT 1) p ON l.run IS NOT NULL),
  fresh AS MATERIALIZED (
    SELECT f.queue, f.priority, f.name, f.tag, f.what, count(*) AS jobs FROM (
      -- Jobs that are not yet ordered: a lane that the leader keeps short.
      SELECT coalesce(r.own_queue, r.queue) AS queue,
             coalesce(r.own_priority, r.priority) AS priority, r.name, r.tag, 'blocked' AS what
        FROM lane l,
          LATERAL posthaste.rows_after_5(l.queue, l.priority, l.lo, l.hi, l.at_xid, l.at_id,
            l.exhausted, '18446744073709551615', 0) r
       WHERE l.queue = '' AND r.turn IS NULL
         AND NOT EXISTS (SELECT FROM posthaste.closed_unclaimed_5 e
           WHERE e.xid = r.xid AND e.id = r.id)
      UNION ALL
      SELECT l.queue, l.priority, r.name, r.tag, 'available'
        FROM lane l,
          LATERAL posthaste.rows_after_5(l.queue, l.priority, l.lo, l.hi, l.at_xid, l.at_id,
            l.exhausted, '18446744073709551615', 0) r
       WHERE l.queue <> '' AND l.run IS NULL
      UNION ALL
      SELECT l.queue, l.priority, r.name, r.tag, 'available'
        FROM lane l,
          LATERAL posthaste.rows_after_5(l.queue, l.priority, l.m_lo, l.m_hi, l.m_xid, l.m_id,
            l.m_exhausted, '18446744073709551615', 0) r
       WHERE l.run IS NOT NULL
         AND NOT posthaste.is_claimed(r.xid, r.id, l.lo, l.hi, l.at_xid, l.at_id, l.exhausted)
      LIMIT p_most) f
     GROUP BY f.queue, f.priority, f.name, f.tag, f.what)
  SELECT f.queue, f.priority, f.name, f.tag, f.what, f.jobs FROM fresh f WHERE f.what = 'blocked'
  UNION ALL
  SELECT a.queue, a.priority, a.name, a.tag, 'available', sum(a.jobs)::bigint FROM (
    SELECT f.queue, f.priority, f.name, f.tag, f.jobs FROM fresh f WHERE f.what = 'available'
    UNION ALL
    SELECT l.queue, l.priority, u.name, u.tag, u.jobs
      FROM lane l, LATERAL unnest(l.names, l.tags, l.jobs) u(name, tag, jobs)
    UNION ALL
    SELECT l.queue, l.priority, u.name, u.tag, -u.jobs
      FROM lane l, LATERAL unnest(l.p_names, l.p_tags, l.p_jobs) u(name, tag, jobs)
    UNION ALL
    SELECT l.queue, l.priority, r.name, r.tag, -1
      FROM lane l,
        LATERAL posthaste.rows_after_5(l.queue, l.priority, l.p_lo, l.p_hi, l.p_xid, l.p_id,
          l.p_exhausted, l.end_xid, l.end_id) r
     WHERE l.p_run IS NOT NULL
       AND posthaste.is_claimed(r.xid, r.id, l.lo, l.hi, l.at_xid, l.at_id, l.exhausted)
       AND posthaste.is_claimed(r.xid, r.id, l.m_lo, l.m_hi, l.m_xid, l.m_id, l.m_exhausted)
    UNION ALL
    SELECT l.queue, l.priority, e.name, e.tag, -1
      FROM lane l,
        LATERAL (SELECT * FROM posthaste.left_5 n
          WHERE n.queue = l.queue AND n.priority = l.priority OFFSET 0) e
     WHERE NOT posthaste.is_claimed(e.xid, e.id, l.lo, l.hi, l.at_xid, l.at_id, l.exhausted)) a
   GROUP BY a.queue, a.priority, a.name, a.tag HAVING sum(a.jobs) <> 0;
END $f$;

-- Running jobs.
CREATE OR REPLACE FUNCTION posthaste.count_running_0()
RETURNS TABLE (queue text, priority integer, name text, tag text, what text, jobs bigint)
LANGUAGE plpgsql STABLE AS $f$
#variable_conflict use_column
BEGIN
  RETURN QUERY
  SELECT r.queue, r.priority, r.name, r.tag, 'running', count(*)
    FROM posthaste.claimed_lanes_0() l,
         LATERAL posthaste.possibly_open_0(l.queue, l.priority) b(batch),
         LATERAL (SELECT c.token FROM posthaste.claim_0 c WHERE c.batch = b.batch OFFSET 0) c,
         LATERAL posthaste.batch_rows_0(b.batch, c.token) r
   WHERE NOT EXISTS (SELECT FROM posthaste.job_done_0 a WHERE a.xid = r.xid AND a.id = r.id)
   GROUP BY r.queue, r.priority, r.name, r.tag;
END $f$;
CREATE OR REPLACE FUNCTION posthaste.count_running_1()
RETURNS TABLE (queue text, priority integer, name text, tag text, what text, jobs bigint)
LANGUAGE plpgsql STABLE AS $f$
#variable_conflict use_column
BEGIN
  RETURN QUERY
  SELECT r.queue, r.priority, r.name, r.tag, 'running', count(*)
    FROM posthaste.claimed_lanes_1() l,
         LATERAL posthaste.possibly_open_1(l.queue, l.priority) b(batch),
         LATERAL (SELECT c.token FROM posthaste.claim_1 c WHERE c.batch = b.batch OFFSET 0) c,
         LATERAL posthaste.batch_rows_1(b.batch, c.token) r
   WHERE NOT EXISTS (SELECT FROM posthaste.job_done_1 a WHERE a.xid = r.xid AND a.id = r.id)
   GROUP BY r.queue, r.priority, r.name, r.tag;
END $f$;
CREATE OR REPLACE FUNCTION posthaste.count_running_2()
RETURNS TABLE (queue text, priority integer, name text, tag text, what text, jobs bigint)
LANGUAGE plpgsql STABLE AS $f$
#variable_conflict use_column
BEGIN
  RETURN QUERY
  SELECT r.queue, r.priority, r.name, r.tag, 'running', count(*)
    FROM posthaste.claimed_lanes_2() l,
         LATERAL posthaste.possibly_open_2(l.queue, l.priority) b(batch),
         LATERAL (SELECT c.token FROM posthaste.claim_2 c WHERE c.batch = b.batch OFFSET 0) c,
         LATERAL posthaste.batch_rows_2(b.batch, c.token) r
   WHERE NOT EXISTS (SELECT FROM posthaste.job_done_2 a WHERE a.xid = r.xid AND a.id = r.id)
   GROUP BY r.queue, r.priority, r.name, r.tag;
END $f$;
CREATE OR REPLACE FUNCTION posthaste.count_running_3()
RETURNS TABLE (queue text, priority integer, name text, tag text, what text, jobs bigint)
LANGUAGE plpgsql STABLE AS $f$
#variable_conflict use_column
BEGIN
  RETURN QUERY
  SELECT r.queue, r.priority, r.name, r.tag, 'running', count(*)
    FROM posthaste.claimed_lanes_3() l,
         LATERAL posthaste.possibly_open_3(l.queue, l.priority) b(batch),
         LATERAL (SELECT c.token FROM posthaste.claim_3 c WHERE c.batch = b.batch OFFSET 0) c,
         LATERAL posthaste.batch_rows_3(b.batch, c.token) r
   WHERE NOT EXISTS (SELECT FROM posthaste.job_done_3 a WHERE a.xid = r.xid AND a.id = r.id)
   GROUP BY r.queue, r.priority, r.name, r.tag;
END $f$;
CREATE OR REPLACE FUNCTION posthaste.count_running_4()
RETURNS TABLE (queue text, priority integer, name text, tag text, what text, jobs bigint)
LANGUAGE plpgsql STABLE AS $f$
#variable_conflict use_column
BEGIN
  RETURN QUERY
  SELECT r.queue, r.priority, r.name, r.tag, 'running', count(*)
    FROM posthaste.claimed_lanes_4() l,
         LATERAL posthaste.possibly_open_4(l.queue, l.priority) b(batch),
         LATERAL (SELECT c.token FROM posthaste.claim_4 c WHERE c.batch = b.batch OFFSET 0) c,
         LATERAL posthaste.batch_rows_4(b.batch, c.token) r
   WHERE NOT EXISTS (SELECT FROM posthaste.job_done_4 a WHERE a.xid = r.xid AND a.id = r.id)
   GROUP BY r.queue, r.priority, r.name, r.tag;
END $f$;
CREATE OR REPLACE FUNCTION posthaste.count_running_5()
RETURNS TABLE (queue text, priority integer, name text, tag text, what text, jobs bigint)
LANGUAGE plpgsql STABLE AS $f$
#variable_conflict use_column
BEGIN
  RETURN QUERY
  SELECT r.queue, r.priority, r.name, r.tag, 'running', count(*)
    FROM posthaste.claimed_lanes_5() l,
         LATERAL posthaste.possibly_open_5(l.queue, l.priority) b(batch),
         LATERAL (SELECT c.token FROM posthaste.claim_5 c WHERE c.batch = b.batch OFFSET 0) c,
         LATERAL posthaste.batch_rows_5(b.batch, c.token) r
   WHERE NOT EXISTS (SELECT FROM posthaste.job_done_5 a WHERE a.xid = r.xid AND a.id = r.id)
   GROUP BY r.queue, r.priority, r.name, r.tag;
END $f$;

-- Since when the next job of each lane could have been claimed.
CREATE OR REPLACE FUNCTION posthaste.oldest_0()
RETURNS TABLE (queue text, priority integer, since timestamptz) LANGUAGE plpgsql STABLE AS $f$
#variable_conflict use_column
BEGIN
  RETURN QUERY
  SELECT l.queue, l.priority, r.since
    FROM posthaste.cursors_0() l, LATERAL (
      SELECT greatest(r.scheduled_at, r.enqueued_at) AS since
        FROM posthaste.rows_after_0(l.queue, l.priority, l.lo, l.hi, l.at_xid, l.at_id, l.exhausted,
            '18446744073709551615', 0) r
       WHERE NOT EXISTS (SELECT FROM posthaste.closed_unclaimed_0 e
           WHERE e.xid = r.xid AND e.id = r.id) LIMIT 1) r
   WHERE l.queue <> '';
END $f$;
CREATE OR REPLACE FUNCTION posthaste.oldest_1()
RETURNS TABLE (queue text, priority integer, since timestamptz) LANGUAGE plpgsql STABLE AS $f$
#variable_conflict use_column
BEGIN
  RETURN QUERY
  SELECT l.queue, l.priority, r.since
    FROM posthaste.cursors_1() l, LATERAL (
      SELECT greatest(r.scheduled_at, r.enqueued_at) AS since
        FROM posthaste.rows_after_1(l.queue, l.priority, l.lo, l.hi, l.at_xid, l.at_id, l.exhausted,
            '18446744073709551615', 0) r
       WHERE NOT EXISTS (SELECT FROM posthaste.closed_unclaimed_1 e
           WHERE e.xid = r.xid AND e.id = r.id) LIMIT 1) r
   WHERE l.queue <> '';
END $f$;
CREATE OR REPLACE FUNCTION posthaste.oldest_2()
RETURNS TABLE (queue text, priority integer, since timestamptz) LANGUAGE plpgsql STABLE AS $f$
#variable_conflict use_column
BEGIN
  RETURN QUERY
  SELECT l.queue, l.priority, r.since
    FROM posthaste.cursors_2() l, LATERAL (
      SELECT greatest(r.scheduled_at, r.enqueued_at) AS since
        FROM posthaste.rows_after_2(l.queue, l.priority, l.lo, l.hi, l.at_xid, l.at_id, l.exhausted,
            '18446744073709551615', 0) r
       WHERE NOT EXISTS (SELECT FROM posthaste.closed_unclaimed_2 e
           WHERE e.xid = r.xid AND e.id = r.id) LIMIT 1) r
   WHERE l.queue <> '';
END $f$;
CREATE OR REPLACE FUNCTION posthaste.oldest_3()
RETURNS TABLE (queue text, priority integer, since timestamptz) LANGUAGE plpgsql STABLE AS $f$
#variable_conflict use_column
BEGIN
  RETURN QUERY
  SELECT l.queue, l.priority, r.since
    FROM posthaste.cursors_3() l, LATERAL (
      SELECT greatest(r.scheduled_at, r.enqueued_at) AS since
        FROM posthaste.rows_after_3(l.queue, l.priority, l.lo, l.hi, l.at_xid, l.at_id, l.exhausted,
            '18446744073709551615', 0) r
       WHERE NOT EXISTS (SELECT FROM posthaste.closed_unclaimed_3 e
           WHERE e.xid = r.xid AND e.id = r.id) LIMIT 1) r
   WHERE l.queue <> '';
END $f$;
CREATE OR REPLACE FUNCTION posthaste.oldest_4()
RETURNS TABLE (queue text, priority integer, since timestamptz) LANGUAGE plpgsql STABLE AS $f$
#variable_conflict use_column
BEGIN
  RETURN QUERY
  SELECT l.queue, l.priority, r.since
    FROM posthaste.cursors_4() l, LATERAL (
      SELECT greatest(r.scheduled_at, r.enqueued_at) AS since
        FROM posthaste.rows_after_4(l.queue, l.priority, l.lo, l.hi, l.at_xid, l.at_id, l.exhausted,
            '18446744073709551615', 0) r
       WHERE NOT EXISTS (SELECT FROM posthaste.closed_unclaimed_4 e
           WHERE e.xid = r.xid AND e.id = r.id) LIMIT 1) r
   WHERE l.queue <> '';
END $f$;
CREATE OR REPLACE FUNCTION posthaste.oldest_5()
RETURNS TABLE (queue text, priority integer, since timestamptz) LANGUAGE plpgsql STABLE AS $f$
#variable_conflict use_column
BEGIN
  RETURN QUERY
  SELECT l.queue, l.priority, r.since
    FROM posthaste.cursors_5() l, LATERAL (
      SELECT greatest(r.scheduled_at, r.enqueued_at) AS since
        FROM posthaste.rows_after_5(l.queue, l.priority, l.lo, l.hi, l.at_xid, l.at_id, l.exhausted,
            '18446744073709551615', 0) r
       WHERE NOT EXISTS (SELECT FROM posthaste.closed_unclaimed_5 e
           WHERE e.xid = r.xid AND e.id = r.id) LIMIT 1) r
   WHERE l.queue <> '';
END $f$;

-- Jobs that are not due yet; of those added after the newest mark at most p_most.
CREATE OR REPLACE FUNCTION posthaste.not_due_6(p_most integer)
RETURNS TABLE (queue text, priority integer, name text, tag text, what text, jobs bigint)
LANGUAGE plpgsql STABLE AS $f$
#variable_conflict use_column
DECLARE
  m posthaste.counted_6 := posthaste.newest_scheduled_mark_6();
BEGIN
  RETURN QUERY
  SELECT a.queue, a.priority, a.name, a.tag, a.what, sum(a.jobs)::bigint
    FROM (SELECT *
        FROM unnest(m.queues, m.priorities, m.names, m.tags, m.whats, m.jobs) u(queue, priority,
          name, tag, what, jobs) UNION ALL
          (SELECT coalesce(r.own_queue, r.queue), coalesce(r.own_priority, r.priority), r.name,
                  r.tag, posthaste.wait_kind(r.scheduled_at, r.attempt), 1
             FROM posthaste.entered_since_6(m) r LIMIT p_most) UNION ALL
          SELECT r.queue, r.priority, r.name, r.tag, r.what, -r.jobs
            FROM posthaste.left_since_6(m.left_hi) r) a
   GROUP BY a.queue, a.priority, a.name, a.tag, a.what HAVING sum(a.jobs) <> 0;
END $f$;
CREATE OR REPLACE FUNCTION posthaste.not_due_7(p_most integer)
RETURNS TABLE (queue text, priority integer, name text, tag text, what text, jobs bigint)
LANGUAGE plpgsql STABLE AS $f$
#variable_conflict use_column
DECLARE
  m posthaste.counted_7 := posthaste.newest_scheduled_mark_7();
BEGIN
  RETURN QUERY
  SELECT a.queue, a.priority, a.name, a.tag, a.what, sum(a.jobs)::bigint
    FROM (SELECT *
        FROM unnest(m.queues, m.priorities, m.names, m.tags, m.whats, m.jobs) u(queue, priority,
          name, tag, what, jobs) UNION ALL
          (SELECT coalesce(r.own_queue, r.queue), coalesce(r.own_priority, r.priority), r.name,
                  r.tag, posthaste.wait_kind(r.scheduled_at, r.attempt), 1
             FROM posthaste.entered_since_7(m) r LIMIT p_most) UNION ALL
          SELECT r.queue, r.priority, r.name, r.tag, r.what, -r.jobs
            FROM posthaste.left_since_7(m.left_hi) r) a
   GROUP BY a.queue, a.priority, a.name, a.tag, a.what HAVING sum(a.jobs) <> 0;
END $f$;

-- Slots that may hold running jobs: all that are not truncated.
CREATE OR REPLACE FUNCTION posthaste.used_slots() RETURNS integer[] LANGUAGE sql STABLE
SET search_path = pg_catalog, pg_temp AS $f$
  SELECT ARRAY(SELECT 4 + g % 2 FROM generate_series(r.overflow_low, r.overflow_current) g
      WHERE r.overflow_scan <= r.overflow_current OR g < r.overflow_current
                OR pg_relation_size(('posthaste.ready_' || 4 + g % 2)::regclass) > 0
               UNION ALL SELECT g % 4 FROM generate_series(r.ready_low, r.ready_current) g
               UNION ALL SELECT 6 + g % 2
                 FROM generate_series(r.scheduled_low, r.scheduled_current) g)::integer[]
    FROM posthaste.segments() r
$f$;

-- All current counts, one row each; at most p_most rows of each slot are read after the newest
-- marks.
CREATE OR REPLACE FUNCTION posthaste.count_within(p_most integer)
RETURNS TABLE (queue text, priority integer, name text, tag text, what text, jobs bigint)
LANGUAGE plpgsql STABLE
SET enable_seqscan = off SET enable_bitmapscan = off SET enable_sort = off SET enable_hashjoin = off
SET enable_mergejoin = off SET jit = off SET plan_cache_mode = force_generic_plan
SET search_path = pg_catalog, pg_temp AS $f$
DECLARE
  v_scan integer[] := posthaste.scan_slots();
  v_slot integer;
BEGIN
  FOREACH v_slot IN ARRAY posthaste.used_slots() LOOP
    CASE v_slot
      WHEN 6 THEN RETURN QUERY SELECT * FROM posthaste.not_due_6(p_most);
      WHEN 7 THEN RETURN QUERY SELECT * FROM posthaste.not_due_7(p_most);
      WHEN 0 THEN RETURN QUERY SELECT * FROM posthaste.count_running_0();
      WHEN 1 THEN RETURN QUERY SELECT * FROM posthaste.count_running_1();
      WHEN 2 THEN RETURN QUERY SELECT * FROM posthaste.count_running_2();
      WHEN 3 THEN RETURN QUERY SELECT * FROM posthaste.count_running_3();
      WHEN 4 THEN RETURN QUERY SELECT * FROM posthaste.count_running_4();
      WHEN 5 THEN RETURN QUERY SELECT * FROM posthaste.count_running_5();
    END CASE;
    CONTINUE WHEN NOT v_slot = ANY (v_scan);
    CASE v_slot
      WHEN 0 THEN RETURN QUERY SELECT * FROM posthaste.available_0(p_most);
      WHEN 1 THEN RETURN QUERY SELECT * FROM posthaste.available_1(p_most);
      WHEN 2 THEN RETURN QUERY SELECT * FROM posthaste.available_2(p_most);
      WHEN 3 THEN RETURN QUERY SELECT * FROM posthaste.available_3(p_most);
      WHEN 4 THEN RETURN QUERY SELECT * FROM posthaste.available_4(p_most);
      WHEN 5 THEN RETURN QUERY SELECT * FROM posthaste.available_5(p_most);
    END CASE;
  END LOOP;
  RETURN QUERY SELECT * FROM posthaste.stats();
END $f$;
CREATE OR REPLACE FUNCTION posthaste.count_all()
RETURNS TABLE (queue text, priority integer, name text, tag text, what text, jobs bigint)
LANGUAGE sql STABLE SET search_path = pg_catalog, pg_temp AS $f$
  SELECT * FROM posthaste.count_within(NULL)
$f$;

-- The positions of the segments. If one changes during a read, the read may have missed jobs that
-- moved from one segment to another.
CREATE OR REPLACE FUNCTION posthaste.segment_positions() RETURNS text LANGUAGE sql STABLE
SET search_path = pg_catalog, pg_temp AS $f$
  SELECT concat(r, pg_sequence_last_value('posthaste.stats_low'::regclass))
    FROM posthaste.segments() r
$f$;

-- The number of jobs of each kind by state, and totals since the beginning. At most p_most jobs of
-- each slot that no mark includes yet are counted: gauges are too low while posthaste.not_counted
-- finds more.
CREATE OR REPLACE FUNCTION posthaste.counts_within(p_most integer)
RETURNS SETOF posthaste.counts LANGUAGE plpgsql
SET search_path = pg_catalog, pg_temp SET standard_conforming_strings = on AS $f$
DECLARE
  v_at text; v_kinds posthaste.kind[];
BEGIN
  FOR v_try IN 1 .. 3 LOOP
    v_at := posthaste.segment_positions();
    -- Sums come first, so that uncounted jobs do not take their space.
    v_kinds := ARRAY(
      SELECT ROW(c.queue, c.priority, c.name, c.tag, c.what, CASE
               -- An uncounted job may have left as well.
               WHEN p_most IS NOT NULL THEN greatest(sum(c.jobs), 0)
               ELSE sum(c.jobs) END::bigint)::posthaste.kind
        FROM posthaste.count_within(p_most) c GROUP BY c.queue, c.priority, c.name, c.tag, c.what
      HAVING sum(c.jobs) <> 0
       ORDER BY c.what LIKE '%\_total' DESC, c.queue, c.priority, c.name, c.tag);
    EXIT WHEN v_at = posthaste.segment_positions();
  END LOOP;
  IF cardinality(v_kinds) > 1000 OR EXISTS (SELECT FROM unnest(v_kinds) k WHERE k.jobs < 0) THEN
    v_kinds := ARRAY(SELECT k FROM posthaste.limit_kinds(v_kinds, true) k);
  END IF;
  RETURN QUERY SELECT c.queue, c.priority, c.name, c.tag,
         coalesce(sum(c.jobs) FILTER (WHERE c.what = 'available'), 0)::bigint,
         coalesce(sum(c.jobs) FILTER (WHERE c.what = 'blocked'), 0)::bigint,
         coalesce(sum(c.jobs) FILTER (WHERE c.what = 'scheduled'), 0)::bigint,
         coalesce(sum(c.jobs) FILTER (WHERE c.what = 'retrying'), 0)::bigint,
         coalesce(sum(c.jobs) FILTER (WHERE c.what = 'running'), 0)::bigint,
         coalesce(sum(c.jobs) FILTER (WHERE c.what = 'awaiting'), 0)::bigint,
         coalesce(sum(c.jobs) FILTER (WHERE c.what = 'quarantined'), 0)::bigint,
         coalesce(sum(c.jobs) FILTER (WHERE c.what = 'dead'), 0)::bigint,
         coalesce(sum(c.jobs) FILTER (WHERE c.what = 'discarded'), 0)::bigint,
         coalesce(sum(c.jobs) FILTER (WHERE c.what = 'expired'), 0)::bigint,
         coalesce(sum(c.jobs) FILTER (WHERE c.what = 'cancelled'), 0)::bigint,
         coalesce(sum(c.jobs) FILTER (WHERE c.what = 'completed_total'), 0)::bigint,
         coalesce(sum(c.jobs) FILTER (WHERE c.what = 'failed_total'), 0)::bigint,
         coalesce(sum(c.jobs) FILTER (WHERE c.what = 'retried_total'), 0)::bigint,
         coalesce(sum(c.jobs) FILTER (WHERE c.what = 'dead_total'), 0)::bigint,
         coalesce(sum(c.jobs) FILTER (WHERE c.what = 'discarded_total'), 0)::bigint,
         coalesce(sum(c.jobs) FILTER (WHERE c.what = 'expired_total'), 0)::bigint,
         coalesce(sum(c.jobs) FILTER (WHERE c.what = 'cancelled_total'), 0)::bigint
    FROM unnest(v_kinds) c WHERE c.what <> ALL ('{started_total,waited_total}') GROUP BY 1, 2, 3, 4;
END $f$;

-- The same without a limit.
CREATE OR REPLACE FUNCTION posthaste.counts() RETURNS SETOF posthaste.counts LANGUAGE sql
SET search_path = pg_catalog, pg_temp AS $f$
  SELECT * FROM posthaste.counts_within(NULL)
$f$;

-- Since when the next job of each queue and priority could have been claimed: due, enqueued and
-- unclaimed.
CREATE OR REPLACE FUNCTION posthaste.oldest()
RETURNS TABLE (queue text, priority integer, since timestamptz) LANGUAGE plpgsql STABLE
SET enable_seqscan = off SET enable_bitmapscan = off SET enable_hashjoin = off
SET enable_mergejoin = off SET jit = off SET plan_cache_mode = force_generic_plan
SET search_path = pg_catalog, pg_temp AS $f$
BEGIN
  RETURN QUERY SELECT o.queue, o.priority, min(o.since) FROM (
    SELECT x.* FROM posthaste.oldest_0() x WHERE 0 = ANY (posthaste.scan_slots()) UNION ALL
    SELECT x.* FROM posthaste.oldest_1() x WHERE 1 = ANY (posthaste.scan_slots()) UNION ALL
    SELECT x.* FROM posthaste.oldest_2() x WHERE 2 = ANY (posthaste.scan_slots()) UNION ALL
    SELECT x.* FROM posthaste.oldest_3() x WHERE 3 = ANY (posthaste.scan_slots()) UNION ALL
    SELECT x.* FROM posthaste.oldest_4() x WHERE 4 = ANY (posthaste.scan_slots()) UNION ALL
    SELECT x.* FROM posthaste.oldest_5() x WHERE 5 = ANY (posthaste.scan_slots()) UNION ALL
    SELECT NULL, NULL, NULL WHERE false) o GROUP BY o.queue, o.priority;
END $f$;
-- Counters, maintained by the leader: counts the jobs added since the newest marks
-- (functions/marks.sql).

-- Jobs of this slot that no sum includes yet, one row each.
CREATE OR REPLACE FUNCTION posthaste.not_counted_0() RETURNS SETOF bigint LANGUAGE sql STABLE AS $f$
  SELECT r.id
    FROM posthaste.lanes_0() l,
      LATERAL posthaste.rows_after_0(l.queue, l.priority, coalesce(l.m_lo, l.lo),
        coalesce(l.m_hi, l.hi), coalesce(l.m_xid, l.at_xid), coalesce(l.m_id, l.at_id),
        coalesce(l.m_exhausted, l.exhausted), '18446744073709551615', 0) r
   WHERE l.queue <> ''
$f$;
CREATE OR REPLACE FUNCTION posthaste.not_counted_1() RETURNS SETOF bigint LANGUAGE sql STABLE AS $f$
  SELECT r.id
    FROM posthaste.lanes_1() l,
      LATERAL posthaste.rows_after_1(l.queue, l.priority, coalesce(l.m_lo, l.lo),
        coalesce(l.m_hi, l.hi), coalesce(l.m_xid, l.at_xid), coalesce(l.m_id, l.at_id),
        coalesce(l.m_exhausted, l.exhausted), '18446744073709551615', 0) r
   WHERE l.queue <> ''
$f$;
CREATE OR REPLACE FUNCTION posthaste.not_counted_2() RETURNS SETOF bigint LANGUAGE sql STABLE AS $f$
  SELECT r.id
    FROM posthaste.lanes_2() l,
      LATERAL posthaste.rows_after_2(l.queue, l.priority, coalesce(l.m_lo, l.lo),
        coalesce(l.m_hi, l.hi), coalesce(l.m_xid, l.at_xid), coalesce(l.m_id, l.at_id),
        coalesce(l.m_exhausted, l.exhausted), '18446744073709551615', 0) r
   WHERE l.queue <> ''
$f$;
CREATE OR REPLACE FUNCTION posthaste.not_counted_3() RETURNS SETOF bigint LANGUAGE sql STABLE AS $f$
  SELECT r.id
    FROM posthaste.lanes_3() l,
      LATERAL posthaste.rows_after_3(l.queue, l.priority, coalesce(l.m_lo, l.lo),
        coalesce(l.m_hi, l.hi), coalesce(l.m_xid, l.at_xid), coalesce(l.m_id, l.at_id),
        coalesce(l.m_exhausted, l.exhausted), '18446744073709551615', 0) r
   WHERE l.queue <> ''
$f$;
CREATE OR REPLACE FUNCTION posthaste.not_counted_4() RETURNS SETOF bigint LANGUAGE sql STABLE AS $f$
  SELECT r.id
    FROM posthaste.lanes_4() l,
      LATERAL posthaste.rows_after_4(l.queue, l.priority, coalesce(l.m_lo, l.lo),
        coalesce(l.m_hi, l.hi), coalesce(l.m_xid, l.at_xid), coalesce(l.m_id, l.at_id),
        coalesce(l.m_exhausted, l.exhausted), '18446744073709551615', 0) r
   WHERE l.queue <> ''
$f$;
CREATE OR REPLACE FUNCTION posthaste.not_counted_5() RETURNS SETOF bigint LANGUAGE sql STABLE AS $f$
  SELECT r.id
    FROM posthaste.lanes_5() l,
      LATERAL posthaste.rows_after_5(l.queue, l.priority, coalesce(l.m_lo, l.lo),
        coalesce(l.m_hi, l.hi), coalesce(l.m_xid, l.at_xid), coalesce(l.m_id, l.at_id),
        coalesce(l.m_exhausted, l.exhausted), '18446744073709551615', 0) r
   WHERE l.queue <> ''
$f$;
CREATE OR REPLACE FUNCTION posthaste.not_counted_6() RETURNS SETOF bigint LANGUAGE sql STABLE AS $f$
  SELECT r.id FROM posthaste.newest_scheduled_mark_6() m, LATERAL posthaste.entered_since_6(m) r
$f$;
CREATE OR REPLACE FUNCTION posthaste.not_counted_7() RETURNS SETOF bigint LANGUAGE sql STABLE AS $f$
  SELECT r.id FROM posthaste.newest_scheduled_mark_7() m, LATERAL posthaste.entered_since_7(m) r
$f$;

-- The number of jobs added since the newest marks, at most this many.
CREATE OR REPLACE FUNCTION posthaste.not_counted(most integer) RETURNS integer
LANGUAGE plpgsql STABLE
SET enable_seqscan = off SET enable_bitmapscan = off SET enable_sort = off SET enable_hashjoin = off
SET enable_mergejoin = off SET jit = off SET plan_cache_mode = force_generic_plan
SET search_path = pg_catalog, pg_temp AS $f$
DECLARE
  v_scan integer[] := posthaste.scan_slots() || ARRAY[6, 7];
  v_slot integer;
  v_found integer := 0;
BEGIN
  FOREACH v_slot IN ARRAY posthaste.used_slots() LOOP
    EXIT WHEN v_found >= most;
    CONTINUE WHEN NOT v_slot = ANY (v_scan);
    CASE v_slot
      WHEN 0 THEN
        SELECT v_found + count(*) INTO v_found
          FROM (SELECT FROM posthaste.not_counted_0() LIMIT most - v_found) r;
      WHEN 1 THEN
        SELECT v_found + count(*) INTO v_found
          FROM (SELECT FROM posthaste.not_counted_1() LIMIT most - v_found) r;
      WHEN 2 THEN
        SELECT v_found + count(*) INTO v_found
          FROM (SELECT FROM posthaste.not_counted_2() LIMIT most - v_found) r;
      WHEN 3 THEN
        SELECT v_found + count(*) INTO v_found
          FROM (SELECT FROM posthaste.not_counted_3() LIMIT most - v_found) r;
      WHEN 4 THEN
        SELECT v_found + count(*) INTO v_found
          FROM (SELECT FROM posthaste.not_counted_4() LIMIT most - v_found) r;
      WHEN 5 THEN
        SELECT v_found + count(*) INTO v_found
          FROM (SELECT FROM posthaste.not_counted_5() LIMIT most - v_found) r;
      WHEN 6 THEN
        SELECT v_found + count(*) INTO v_found
          FROM (SELECT FROM posthaste.not_counted_6() LIMIT most - v_found) r;
      WHEN 7 THEN
        SELECT v_found + count(*) INTO v_found
          FROM (SELECT FROM posthaste.not_counted_7() LIMIT most - v_found) r;
    END CASE;
  END LOOP;
  RETURN v_found;
END $f$;

-- As not_counted(), but zero without a leader, which would count them. A lane with too few jobs to
-- be worth a mark may keep some uncounted.
CREATE OR REPLACE FUNCTION posthaste.uncounted(most integer) RETURNS integer
LANGUAGE sql STABLE SET search_path = pg_catalog, pg_temp AS $f$
  SELECT CASE WHEN EXISTS (SELECT FROM posthaste.leader l
                            WHERE clock_timestamp() BETWEEN l.since AND l.until)
              THEN posthaste.not_counted(most) ELSE 0 END
$f$;

-- Shows whether there may be something to count: the number of rows written, by the server's
-- statistics. They lag by seconds, which only delays the counting; if they are off, any transaction
-- may have written something.
CREATE OR REPLACE FUNCTION posthaste.rows_written() RETURNS text LANGUAGE sql STABLE
SET search_path = pg_catalog, pg_temp AS $f$
  SELECT concat(posthaste.segment_positions(), ' ', CASE
    WHEN current_setting('track_counts')::boolean THEN
      (SELECT sum(pg_stat_get_tuples_inserted(to_regclass('posthaste.' || t || '_' || k)))
         FROM unnest('{ready,claim,batch_done,job_done,scheduled,left,stats_delta}'::text[]) t,
           generate_series(0, 7) k)::text
    ELSE pg_current_snapshot()::text END)
$f$;

-- Run by the leader: counts new jobs, at most about p_limit. Returns NULL if there are more, else
-- the result of rows_written() before. The leader passes it as p_written next time: if nothing was
-- written since, nothing is read.
CREATE OR REPLACE FUNCTION posthaste.count_new_jobs(
  p_limit integer, p_step integer, p_bytes bigint, p_written text DEFAULT '')
RETURNS text LANGUAGE plpgsql
SET enable_seqscan = off SET enable_bitmapscan = off SET enable_hashjoin = off
SET enable_mergejoin = off SET jit = off SET plan_cache_mode = force_generic_plan
SET search_path = pg_catalog, pg_temp AS $f$
DECLARE
  v_scan integer[] := posthaste.scan_slots();
  v_slot integer;
  v_counted bigint := 0;
  v_written text := posthaste.rows_written();
BEGIN
  IF current_setting('transaction_isolation') <> 'read committed' OR p_written = v_written
    OR NOT pg_try_advisory_xact_lock(1885893476, 6) THEN
    RETURN p_written;
  END IF;
  PERFORM set_config('synchronous_commit', 'off', true);
  FOREACH v_slot IN ARRAY posthaste.used_slots() LOOP
    EXIT WHEN v_counted >= p_limit;
    CASE v_slot
      WHEN 6 THEN
        v_counted := v_counted + posthaste.count_scheduled_6((p_limit - v_counted)::integer,
          p_step);
      WHEN 7 THEN
        v_counted := v_counted + posthaste.count_scheduled_7((p_limit - v_counted)::integer,
          p_step);
      WHEN 0 THEN PERFORM posthaste.mark_open_batches_0(least(p_step, 32));
      WHEN 1 THEN PERFORM posthaste.mark_open_batches_1(least(p_step, 32));
      WHEN 2 THEN PERFORM posthaste.mark_open_batches_2(least(p_step, 32));
      WHEN 3 THEN PERFORM posthaste.mark_open_batches_3(least(p_step, 32));
      WHEN 4 THEN PERFORM posthaste.mark_open_batches_4(least(p_step, 32));
      WHEN 5 THEN PERFORM posthaste.mark_open_batches_5(least(p_step, 32));
    END CASE;
    CONTINUE WHEN NOT v_slot = ANY (v_scan);
    CASE v_slot
      WHEN 0 THEN
        v_counted := v_counted + posthaste.count_slot_0((p_limit - v_counted)::integer, p_step);
      WHEN 1 THEN
        v_counted := v_counted + posthaste.count_slot_1((p_limit - v_counted)::integer, p_step);
      WHEN 2 THEN
        v_counted := v_counted + posthaste.count_slot_2((p_limit - v_counted)::integer, p_step);
      WHEN 3 THEN
        v_counted := v_counted + posthaste.count_slot_3((p_limit - v_counted)::integer, p_step);
      WHEN 4 THEN
        v_counted := v_counted + posthaste.count_slot_4((p_limit - v_counted)::integer, p_step);
      WHEN 5 THEN
        v_counted := v_counted + posthaste.count_slot_5((p_limit - v_counted)::integer, p_step);
    END CASE;
  END LOOP;
  PERFORM posthaste.sum_stats(p_step);
  PERFORM posthaste.rotate_stats(p_bytes);
  RETURN CASE WHEN v_counted < p_limit THEN v_written END;
END $f$;

-- Counts in those lanes of this slot that are worth a mark: lanes with at least p_step jobs after
-- their newest mark, or with rows that are slow to scan.
CREATE OR REPLACE FUNCTION posthaste.count_slot_0(p_limit integer, p_step integer)
RETURNS bigint LANGUAGE plpgsql AS $f$
DECLARE
  l record;
  v_counted bigint := 0;
  v_started timestamptz;
BEGIN
  FOR l IN SELECT c.queue, c.priority, coalesce(c.m_lo, c.lo) AS lo, coalesce(c.m_hi, c.hi) AS hi,
                  coalesce(c.m_xid, c.at_xid) AS xid,
                  coalesce(c.m_id, c.at_id) AS id,
                  coalesce(c.m_exhausted, c.exhausted) AS exhausted,
                  greatest(p_step, 8 * coalesce(cardinality(c.jobs), 0)) AS step
             FROM posthaste.lanes_0() c WHERE c.queue <> ''
  LOOP
    v_started := clock_timestamp();
    PERFORM FROM posthaste.rows_after_0(l.queue, l.priority, l.lo, l.hi, l.xid, l.id, l.exhausted,
        '18446744073709551615', 0) OFFSET l.step - 1 LIMIT 1;
    IF FOUND OR clock_timestamp() - v_started > interval '20 ms' THEN
      v_counted := v_counted + posthaste.count_lane_0(l.queue, l.priority,
          (p_limit - v_counted)::integer, p_step);
    END IF;
    EXIT WHEN v_counted >= p_limit;
  END LOOP;
  RETURN v_counted;
END $f$;
CREATE OR REPLACE FUNCTION posthaste.count_slot_1(p_limit integer, p_step integer)
RETURNS bigint LANGUAGE plpgsql AS $f$
DECLARE
  l record;
  v_counted bigint := 0;
  v_started timestamptz;
BEGIN
  FOR l IN SELECT c.queue, c.priority, coalesce(c.m_lo, c.lo) AS lo, coalesce(c.m_hi, c.hi) AS hi,
                  coalesce(c.m_xid, c.at_xid) AS xid,
                  coalesce(c.m_id, c.at_id) AS id,
                  coalesce(c.m_exhausted, c.exhausted) AS exhausted,
                  greatest(p_step, 8 * coalesce(cardinality(c.jobs), 0)) AS step
             FROM posthaste.lanes_1() c WHERE c.queue <> ''
  LOOP
    v_started := clock_timestamp();
    PERFORM FROM posthaste.rows_after_1(l.queue, l.priority, l.lo, l.hi, l.xid, l.id, l.exhausted,
        '18446744073709551615', 0) OFFSET l.step - 1 LIMIT 1;
    IF FOUND OR clock_timestamp() - v_started > interval '20 ms' THEN
      v_counted := v_counted + posthaste.count_lane_1(l.queue, l.priority,
          (p_limit - v_counted)::integer, p_step);
    END IF;
    EXIT WHEN v_counted >= p_limit;
  END LOOP;
  RETURN v_counted;
END $f$;
CREATE OR REPLACE FUNCTION posthaste.count_slot_2(p_limit integer, p_step integer)
RETURNS bigint LANGUAGE plpgsql AS $f$
DECLARE
  l record;
  v_counted bigint := 0;
  v_started timestamptz;
BEGIN
  FOR l IN SELECT c.queue, c.priority, coalesce(c.m_lo, c.lo) AS lo, coalesce(c.m_hi, c.hi) AS hi,
                  coalesce(c.m_xid, c.at_xid) AS xid,
                  coalesce(c.m_id, c.at_id) AS id,
                  coalesce(c.m_exhausted, c.exhausted) AS exhausted,
                  greatest(p_step, 8 * coalesce(cardinality(c.jobs), 0)) AS step
             FROM posthaste.lanes_2() c WHERE c.queue <> ''
  LOOP
    v_started := clock_timestamp();
    PERFORM FROM posthaste.rows_after_2(l.queue, l.priority, l.lo, l.hi, l.xid, l.id, l.exhausted,
        '18446744073709551615', 0) OFFSET l.step - 1 LIMIT 1;
    IF FOUND OR clock_timestamp() - v_started > interval '20 ms' THEN
      v_counted := v_counted + posthaste.count_lane_2(l.queue, l.priority,
          (p_limit - v_counted)::integer, p_step);
    END IF;
    EXIT WHEN v_counted >= p_limit;
  END LOOP;
  RETURN v_counted;
END $f$;
CREATE OR REPLACE FUNCTION posthaste.count_slot_3(p_limit integer, p_step integer)
RETURNS bigint LANGUAGE plpgsql AS $f$
DECLARE
  l record;
  v_counted bigint := 0;
  v_started timestamptz;
BEGIN
  FOR l IN SELECT c.queue, c.priority, coalesce(c.m_lo, c.lo) AS lo, coalesce(c.m_hi, c.hi) AS hi,
                  coalesce(c.m_xid, c.at_xid) AS xid,
                  coalesce(c.m_id, c.at_id) AS id,
                  coalesce(c.m_exhausted, c.exhausted) AS exhausted,
                  greatest(p_step, 8 * coalesce(cardinality(c.jobs), 0)) AS step
             FROM posthaste.lanes_3() c WHERE c.queue <> ''
  LOOP
    v_started := clock_timestamp();
    PERFORM FROM posthaste.rows_after_3(l.queue, l.priority, l.lo, l.hi, l.xid, l.id, l.exhausted,
        '18446744073709551615', 0) OFFSET l.step - 1 LIMIT 1;
    IF FOUND OR clock_timestamp() - v_started > interval '20 ms' THEN
      v_counted := v_counted + posthaste.count_lane_3(l.queue, l.priority,
          (p_limit - v_counted)::integer, p_step);
    END IF;
    EXIT WHEN v_counted >= p_limit;
  END LOOP;
  RETURN v_counted;
END $f$;
CREATE OR REPLACE FUNCTION posthaste.count_slot_4(p_limit integer, p_step integer)
RETURNS bigint LANGUAGE plpgsql AS $f$
DECLARE
  l record;
  v_counted bigint := 0;
  v_started timestamptz;
BEGIN
  FOR l IN SELECT c.queue, c.priority, coalesce(c.m_lo, c.lo) AS lo, coalesce(c.m_hi, c.hi) AS hi,
                  coalesce(c.m_xid, c.at_xid) AS xid,
                  coalesce(c.m_id, c.at_id) AS id,
                  coalesce(c.m_exhausted, c.exhausted) AS exhausted,
                  greatest(p_step, 8 * coalesce(cardinality(c.jobs), 0)) AS step
             FROM posthaste.lanes_4() c WHERE c.queue <> ''
  LOOP
    v_started := clock_timestamp();
    PERFORM FROM posthaste.rows_after_4(l.queue, l.priority, l.lo, l.hi, l.xid, l.id, l.exhausted,
        '18446744073709551615', 0) OFFSET l.step - 1 LIMIT 1;
    IF FOUND OR clock_timestamp() - v_started > interval '20 ms' THEN
      v_counted := v_counted + posthaste.count_lane_4(l.queue, l.priority,
          (p_limit - v_counted)::integer, p_step);
    END IF;
    EXIT WHEN v_counted >= p_limit;
  END LOOP;
  RETURN v_counted;
END $f$;
CREATE OR REPLACE FUNCTION posthaste.count_slot_5(p_limit integer, p_step integer)
RETURNS bigint LANGUAGE plpgsql AS $f$
DECLARE
  l record;
  v_counted bigint := 0;
  v_started timestamptz;
BEGIN
  FOR l IN SELECT c.queue, c.priority, coalesce(c.m_lo, c.lo) AS lo, coalesce(c.m_hi, c.hi) AS hi,
                  coalesce(c.m_xid, c.at_xid) AS xid,
                  coalesce(c.m_id, c.at_id) AS id,
                  coalesce(c.m_exhausted, c.exhausted) AS exhausted,
                  greatest(p_step, 8 * coalesce(cardinality(c.jobs), 0)) AS step
             FROM posthaste.lanes_5() c WHERE c.queue <> ''
  LOOP
    v_started := clock_timestamp();
    PERFORM FROM posthaste.rows_after_5(l.queue, l.priority, l.lo, l.hi, l.xid, l.id, l.exhausted,
        '18446744073709551615', 0) OFFSET l.step - 1 LIMIT 1;
    IF FOUND OR clock_timestamp() - v_started > interval '20 ms' THEN
      v_counted := v_counted + posthaste.count_lane_5(l.queue, l.priority,
          (p_limit - v_counted)::integer, p_step);
    END IF;
    EXIT WHEN v_counted >= p_limit;
  END LOOP;
  RETURN v_counted;
END $f$;
-- Enqueue: the view posthaste.job takes INSERTs by one unconditional rule, so that INSERT ...
-- SELECT, RETURNING, savepoints, prepared transactions and all isolation levels work as on a table;
-- posthaste.enqueue() is a convenience over the same rows.

-- The position of a log. A role that may not read it gets an error: newer servers return NULL
-- instead, as every server does for a sequence that was never set (a schema without its rows).
-- posthaste.flags also has no value after a crash.
CREATE OR REPLACE FUNCTION posthaste.position(cell regclass) RETURNS bigint LANGUAGE plpgsql AS $f$
DECLARE
  v bigint := pg_sequence_last_value(cell);
BEGIN
  IF v IS NULL AND pg_catalog.has_sequence_privilege(cell::oid, 'USAGE, SELECT'::text) THEN
    IF cell::oid = 'posthaste.flags'::regclass::oid
       AND pg_sequence_last_value('posthaste.ready_scan'::regclass) IS NOT NULL THEN
      RETURN posthaste.recover();
    END IF;
    RAISE EXCEPTION 'posthaste: sequence % was never set: this schema has no rows', cell
      USING ERRCODE = 'object_not_in_prerequisite_state',
            HINT = 'Load its rows too and run `posthaste rebase`, or drop the schema and migrate.';
  ELSIF v IS NULL THEN
    RAISE EXCEPTION 'posthaste: permission denied for sequence %', cell
      USING ERRCODE = 'insufficient_privilege';
  END IF;
  RETURN v;
END $f$;

-- Enters the current segment of the ready log for the rest of the transaction and returns its slot.
-- Sealing conflicts with the shared advisory lock, so a segment cannot be sealed while it is held.
-- The lock is taken before ready_scan is read again: if the segment was sealed in between, the
-- newer one is used, without waiting or failing. A foreign session that holds the key would make
-- the attempt fail forever, hence the waiting call after a while. In a restored database the
-- cursors may come from different moments and the current segment may be sealed; any unsealed one
-- will do.
CREATE OR REPLACE FUNCTION posthaste.enter_ready() RETURNS smallint LANGUAGE plpgsql AS $f$
DECLARE
  g bigint;
  tries integer := 0;
BEGIN
  LOOP
    g := greatest(posthaste.position('posthaste.ready_current'),
        posthaste.position('posthaste.ready_scan'));
    IF pg_try_advisory_xact_lock_shared(1885893473, g::integer) THEN
      IF posthaste.position('posthaste.ready_scan') <= g THEN
        RETURN g % 4::bigint;
      END IF;
    ELSE
      tries := tries + 1;
      IF tries > 100 THEN
        PERFORM pg_advisory_xact_lock_shared(1885893473, g::integer);
      END IF;
    END IF;
  END LOOP;
END $f$;

-- The same for scheduled jobs, but stricter: the transaction gets its xid before it reads the
-- position, and the segment must still be the current one afterwards. So a transaction that got its
-- xid after a segment was closed cannot be in it.
CREATE OR REPLACE FUNCTION posthaste.enter_scheduled() RETURNS smallint LANGUAGE plpgsql AS $f$
DECLARE
  x xid8 := pg_current_xact_id();
  g bigint;
  tries integer := 0;
BEGIN
  LOOP
    g := posthaste.position('posthaste.scheduled_current');
    IF pg_try_advisory_xact_lock_shared(1885893474, g::integer) THEN
      IF posthaste.position('posthaste.scheduled_current') = g THEN
        PERFORM posthaste.notify('', posthaste.listeners());
        RETURN 6::bigint + g % 2::bigint;
      END IF;
    ELSE
      tries := tries + 1;
      IF tries > 100 THEN
        PERFORM pg_advisory_xact_lock_shared(1885893474, g::integer);
      END IF;
    END IF;
  END LOOP;
END $f$;

-- The time up to which the promoter has read. A job due by then must not be scheduled any more: it
-- goes into the ready log. Read after the transaction has its xid, so that each scheduled row is
-- either due after the promoter's last read, or belongs to a transaction that the promoter knows to
-- check. This does not depend on a clock: a clock that steps back makes jobs run early, but loses
-- none. Read before enter_scheduled() reads the current segment:
-- posthaste.return_to_earlier_segment(), which the leader calls once it is notified here, relies on
-- that order.
CREATE OR REPLACE FUNCTION posthaste.promote_horizon() RETURNS timestamptz LANGUAGE plpgsql AS $f$
DECLARE
  x xid8 := pg_current_xact_id();
  v_published bigint := pg_sequence_last_value('posthaste.promote_horizon'::regclass);
  v_until timestamptz := to_timestamp(v_published::double precision / 1000000::double precision);
BEGIN
  IF v_until > clock_timestamp() + interval '1 s' THEN
    PERFORM posthaste.notify('', posthaste.listeners());
  END IF;
  RETURN v_until;
END $f$;

-- The queue of a job that was enqueued without a queue.
CREATE OR REPLACE FUNCTION posthaste.route_of(name text)
RETURNS text LANGUAGE plpgsql STABLE AS $f$
BEGIN
  RETURN coalesce((SELECT t.queue FROM posthaste.route t
                    WHERE t.pattern = name
                      OR (right(t.pattern, 1) = '*' AND starts_with(name, left(t.pattern, -1)))
                    ORDER BY t.pattern = name DESC, length(t.pattern) DESC LIMIT 1), 'default');
END $f$;

CREATE OR REPLACE FUNCTION posthaste.note_routes() RETURNS trigger LANGUAGE plpgsql
SET search_path = pg_catalog, pg_temp AS $f$
BEGIN
  IF posthaste.position('posthaste.flags') & 1 = 0 THEN
    PERFORM pg_advisory_xact_lock(1885893480, 0);
    PERFORM setval('posthaste.flags', pg_sequence_last_value('posthaste.flags'::regclass) | 1);
  END IF;
  RETURN NULL;
END $f$;

-- The queue of one job; notifies its workers if it is due. Called if a flag is set.
CREATE OR REPLACE FUNCTION posthaste.resolve_queue_and_notify(queue text, name text, due boolean)
RETURNS text LANGUAGE plpgsql AS $f$
BEGIN
  queue := coalesce(queue, CASE WHEN posthaste.position('posthaste.flags') & 1::bigint = 0
                                THEN 'default' ELSE posthaste.route_of(name) END);
  IF due THEN
    PERFORM posthaste.notify(queue, posthaste.listeners());
  END IF;
  RETURN queue;
END $f$;

-- Enqueues one job in the caller's transaction and returns its id. If another job holds the
-- unique_key, returns that job's id and enqueues nothing; waits for a transaction that is taking
-- the same key. Under REPEATABLE READ and SERIALIZABLE a key taken after the snapshot raises a
-- serialization failure (40001), as any unique index does.
--
-- A plain job that is due is validated by the statement that inserts it: each expression that
-- PL/pgSQL evaluates separately takes a snapshot, which is expensive under concurrent commits. Only
-- its size is measured before: within the statement, the planner might print a huge number.
-- Volatile values come from the columns' defaults. The guard is enter_ready() inlined, as a CASE
-- because the planner may reorder the parts of an AND. If no row is written, the job is not plain
-- or not valid, or the segment is being sealed: enqueue_slow() handles these. It runs under its
-- caller's search_path, so its calls are exact or qualified (sql/README.md).
CREATE OR REPLACE FUNCTION posthaste.enqueue(
  name text, kwargs jsonb DEFAULT '{}', queue text DEFAULT NULL, priority integer DEFAULT 0,
  scheduled_at timestamptz DEFAULT now(), expires_at timestamptz DEFAULT NULL, tag text DEFAULT '',
  unique_key text DEFAULT NULL, max_attempts integer DEFAULT 25, ordering_key text DEFAULT NULL,
  trace text DEFAULT NULL)
RETURNS bigint LANGUAGE plpgsql AS $f$
#variable_conflict use_variable
DECLARE
  job bigint;
  bytes integer := posthaste.text_bytes(kwargs);
BEGIN
  INSERT INTO posthaste.store AS r (slot, queue, name, priority, scheduled_at, expires_at, tag,
      kwargs, kwargs_bytes, max_attempts, trace)
  SELECT (c.g % 4::bigint)::smallint, c.queue, name, priority, scheduled_at,
         coalesce(expires_at, now() + interval '30 days'), tag, kwargs, bytes, max_attempts,
         trace
    FROM (SELECT pg_sequence_last_value('posthaste.ready_current'::regclass) AS g,
                 CASE WHEN pg_sequence_last_value('posthaste.flags'::regclass) = 0
                     THEN coalesce(queue, 'default')
                     ELSE posthaste.resolve_queue_and_notify(queue, name,
                              scheduled_at <= clock_timestamp()) END AS queue
          OFFSET 0) c
   WHERE unique_key IS NULL AND ordering_key IS NULL AND priority IS NOT NULL
     AND scheduled_at <= clock_timestamp()
     AND posthaste.is_valid(name, c.queue, tag, NULL, NULL, kwargs, bytes, 0, max_attempts,
         scheduled_at, coalesce(expires_at, scheduled_at), scheduled_at, trace)
     AND CASE WHEN pg_try_advisory_xact_lock_shared(1885893473, c.g::integer)
              THEN pg_sequence_last_value('posthaste.ready_scan'::regclass) <= c.g END
  RETURNING r.id INTO job;
  RETURN coalesce(job,
      posthaste.enqueue_slow(name, kwargs, queue, priority, scheduled_at, expires_at, tag,
                                                 unique_key, max_attempts,
                                                 ordering_key, trace));
END $f$;

-- Any job: with arguments left NULL, scheduled, with a key, or invalid. With nowait, returns NULL
-- for a key that another transaction is taking. It runs with its owner's rights, because a job with
-- a key is written with the id under which its key was taken: a caller who may choose ids could
-- reuse another job's, by which receivers drop duplicates. A job without a time is due even if the
-- clock has stepped back since the transaction began: hence now().
CREATE OR REPLACE FUNCTION posthaste.enqueue_slow(
  name text, kwargs jsonb, queue text, priority integer, scheduled_at timestamptz,
  expires_at timestamptz, tag text, unique_key text, max_attempts integer, ordering_key text,
  trace text DEFAULT NULL, nowait boolean DEFAULT false)
RETURNS bigint LANGUAGE plpgsql SECURITY DEFINER
SET search_path = pg_catalog, pg_temp AS $f$
#variable_conflict use_variable
DECLARE
  job bigint;
  holder bigint;
  bytes integer;
  moment timestamptz := clock_timestamp();
BEGIN
  name := coalesce(name, ''); kwargs := coalesce(kwargs, '{}');
  queue := coalesce(queue, CASE WHEN posthaste.position('posthaste.flags') & 1 = 0 THEN 'default'
        ELSE posthaste.route_of(name) END); priority := coalesce(priority, 0);
  scheduled_at := coalesce(scheduled_at, now());
  expires_at := coalesce(expires_at, least(greatest(scheduled_at, moment), '9999-01-01 00:00Z')
                                     + interval '30 days');
  tag := coalesce(tag, ''); bytes := posthaste.text_bytes(kwargs);
  IF posthaste.is_valid(name, queue, tag, unique_key, ordering_key, kwargs, bytes, 0, max_attempts,
      scheduled_at, expires_at, moment, trace) IS NOT TRUE THEN
    PERFORM posthaste.refuse(name, queue, tag, unique_key, ordering_key, kwargs, bytes, 0,
        max_attempts, scheduled_at, expires_at, moment, trace);
  END IF;
  PERFORM posthaste.position('posthaste.flags');
  job := nextval('posthaste.job_id');
  IF unique_key IS NOT NULL AND nowait THEN
    holder := posthaste.take_key_nowait(unique_key, job);
    IF holder IS DISTINCT FROM job THEN
      RETURN holder;
    END IF;
  ELSIF unique_key IS NOT NULL THEN
    LOOP
      INSERT INTO posthaste.unique_key AS u (key, id) VALUES (unique_key, job)
        ON CONFLICT DO NOTHING;
      EXIT WHEN FOUND;
      -- The caller's expression may have another collation.
      SELECT u.id INTO holder FROM posthaste.unique_key u
       WHERE u.key = unique_key COLLATE pg_catalog."C";
      IF FOUND THEN
        RETURN holder;
      END IF;
    END LOOP;
  END IF;
  INSERT INTO posthaste.store (id, slot, queue, name, priority, scheduled_at, expires_at,
                               enqueued_at, tag, unique_key, kwargs, kwargs_bytes, max_attempts,
                               ordering_key, own_queue, own_priority, trace)
  SELECT job,
         CASE WHEN scheduled_at > moment AND scheduled_at > posthaste.promote_horizon()
               AND scheduled_at > now()
      THEN posthaste.enter_scheduled()
                   ELSE posthaste.enter_ready()
                     + posthaste.notify(CASE WHEN ordering_key IS NULL THEN queue ELSE '' END,
                       posthaste.listeners()) END,
         CASE WHEN ordering_key IS NULL THEN queue ELSE '' END, name,
         CASE WHEN ordering_key IS NULL THEN priority ELSE 0 END, scheduled_at, expires_at, moment,
         tag, unique_key, kwargs, bytes, max_attempts, ordering_key,
         CASE WHEN ordering_key IS NOT NULL THEN queue END,
         CASE WHEN ordering_key IS NOT NULL THEN priority END, trace;
  RETURN job;
END $f$;

REVOKE EXECUTE ON FUNCTION
  posthaste.enqueue_slow(text, jsonb, text, integer, timestamptz, timestamptz, text, text, integer,
                          text, text, boolean) FROM PUBLIC;

-- Takes a key for a job. Returns the id of the job that now holds it, this one or another; NULL if
-- another transaction is taking it.
--
-- Waits for a millisecond, because Postgres offers no other way to learn that a row is in another
-- open transaction. An advisory lock per key would, but would fill the lock table for callers that
-- enqueue a hundred thousand of them. The attempt is a sub-transaction: hundreds of them in one
-- transaction slow down other sessions' snapshots more than as many calls of posthaste.enqueue.
CREATE OR REPLACE FUNCTION posthaste.take_key_nowait(p_key text, p_job bigint)
RETURNS bigint LANGUAGE plpgsql
SET lock_timeout = '1ms' SET search_path = pg_catalog, pg_temp AS $f$
DECLARE
  v_holder bigint;
BEGIN
  LOOP
    INSERT INTO posthaste.unique_key AS u (key, id) VALUES (p_key, p_job) ON CONFLICT DO NOTHING;
    IF FOUND THEN
      RETURN p_job;
    END IF;
    SELECT u.id INTO v_holder FROM posthaste.unique_key u
     WHERE u.key = p_key COLLATE pg_catalog."C";
    IF FOUND THEN
      RETURN v_holder;
    END IF;
  END LOOP;
EXCEPTION WHEN lock_not_available THEN
  -- The lock may be that of the key or of the table.
  BEGIN
    RETURN (SELECT u.id FROM posthaste.unique_key u WHERE u.key = p_key COLLATE pg_catalog."C");
  EXCEPTION WHEN lock_not_available THEN
    RETURN NULL;
  END;
END $f$;

-- As posthaste.enqueue, for callers that must not wait for a transaction that is taking the same
-- unique key. Returns NULL if there is one, or if the table of keys was locked: nothing was
-- enqueued, and it is not known whether the other job will exist. A key whose job is ending in an
-- open transaction still counts as held and returns its holder. Jobs without a key are always
-- enqueued.
CREATE OR REPLACE FUNCTION posthaste.enqueue_nowait(
  name text, kwargs jsonb DEFAULT '{}', queue text DEFAULT NULL, priority integer DEFAULT 0,
  scheduled_at timestamptz DEFAULT now(), expires_at timestamptz DEFAULT NULL, tag text DEFAULT '',
  unique_key text DEFAULT NULL, max_attempts integer DEFAULT 25, ordering_key text DEFAULT NULL,
  trace text DEFAULT NULL)
RETURNS bigint LANGUAGE plpgsql AS $f$
#variable_conflict use_variable
BEGIN
  IF unique_key IS NULL THEN
    RETURN posthaste.enqueue(name, kwargs, queue, priority, scheduled_at, expires_at, tag,
        unique_key, max_attempts, ordering_key, trace);
  END IF;
  RETURN posthaste.enqueue_slow(name, kwargs, queue, priority, scheduled_at, expires_at, tag,
      unique_key, max_attempts, ordering_key, trace, nowait => true);
END $f$;
-- Maintenance: waiting jobs that expired or were cancelled.

-- Closes unclaimed jobs of a lane and marks them, so that claims skip them: expired ones, at most
-- p_limit, or, if ids are given, cancelled ones.
CREATE OR REPLACE FUNCTION posthaste.close_unclaimed_0(
  p_queue text, p_priority integer, p_limit bigint, p_ids bigint[])
RETURNS bigint LANGUAGE plpgsql AS $f$
DECLARE
  c posthaste.claim_0;
  v_rows bigint;
BEGIN
  -- Two statements: the cursor must be read with a snapshot taken after the lock.
  IF NOT pg_try_advisory_xact_lock(1885893475, posthaste.lane_key(p_queue, p_priority)) THEN
    RETURN 0;
  END IF;
  SELECT * INTO c FROM posthaste.claim_0 WHERE queue = p_queue AND priority = p_priority
    ORDER BY queue DESC, priority DESC, batch DESC LIMIT 1;
  WITH gone AS MATERIALIZED (
    SELECT r.* FROM posthaste.ready_0 r
     WHERE r.queue = p_queue AND r.priority = p_priority
       AND r.xid >= coalesce(pg_snapshot_xmin(c.lo), '0')
       AND CASE WHEN p_ids IS NULL THEN r.expires_at <= clock_timestamp()
           ELSE r.id = ANY (p_ids) END
       AND NOT EXISTS (SELECT FROM posthaste.job_done_0 a WHERE a.xid = r.xid AND a.id = r.id)
       AND posthaste.is_claimed(r.xid, r.id, c.lo, c.hi, c.to_xid, c.to_id, c.exhausted) IS NOT TRUE
     LIMIT p_limit),
  marked AS (INSERT INTO posthaste.closed_unclaimed_0 (xid, id) SELECT xid, id FROM gone),
  noted AS (INSERT INTO posthaste.left_0 (xid, id, queue, priority, name, tag) SELECT xid, id,
      queue, priority, name, tag FROM gone WHERE queue <> ''),
  closed AS (INSERT INTO posthaste.job_done_0 (xid, id, outcome) SELECT xid, id,
      CASE WHEN p_ids IS NULL THEN 3 ELSE 9 END FROM gone)
  INSERT INTO posthaste.dead
  SELECT d.*
    FROM gone,
         posthaste.to_dead(gone, CASE WHEN p_ids IS NULL THEN 'expired' ELSE 'cancelled' END) d
    ON CONFLICT (id) DO NOTHING;
  GET DIAGNOSTICS v_rows = ROW_COUNT;
  RETURN v_rows;
END $f$;
CREATE OR REPLACE FUNCTION posthaste.close_unclaimed_1(
  p_queue text, p_priority integer, p_limit bigint, p_ids bigint[])
RETURNS bigint LANGUAGE plpgsql AS $f$
DECLARE
  c posthaste.claim_1;
  v_rows bigint;
BEGIN
  -- Two statements: the cursor must be read with a snapshot taken after the lock.
  IF NOT pg_try_advisory_xact_lock(1885893475, posthaste.lane_key(p_queue, p_priority)) THEN
    RETURN 0;
  END IF;
  SELECT * INTO c FROM posthaste.claim_1 WHERE queue = p_queue AND priority = p_priority
    ORDER BY queue DESC, priority DESC, batch DESC LIMIT 1;
  WITH gone AS MATERIALIZED (
    SELECT r.* FROM posthaste.ready_1 r
     WHERE r.queue = p_queue AND r.priority = p_priority
       AND r.xid >= coalesce(pg_snapshot_xmin(c.lo), '0')
       AND CASE WHEN p_ids IS NULL THEN r.expires_at <= clock_timestamp()
           ELSE r.id = ANY (p_ids) END
       AND NOT EXISTS (SELECT FROM posthaste.job_done_1 a WHERE a.xid = r.xid AND a.id = r.id)
       AND posthaste.is_claimed(r.xid, r.id, c.lo, c.hi, c.to_xid, c.to_id, c.exhausted) IS NOT TRUE
     LIMIT p_limit),
  marked AS (INSERT INTO posthaste.closed_unclaimed_1 (xid, id) SELECT xid, id FROM gone),
  noted AS (INSERT INTO posthaste.left_1 (xid, id, queue, priority, name, tag) SELECT xid, id,
      queue, priority, name, tag FROM gone WHERE queue <> ''),
  closed AS (INSERT INTO posthaste.job_done_1 (xid, id, outcome) SELECT xid, id,
      CASE WHEN p_ids IS NULL THEN 3 ELSE 9 END FROM gone)
  INSERT INTO posthaste.dead
  SELECT d.*
    FROM gone,
         posthaste.to_dead(gone, CASE WHEN p_ids IS NULL THEN 'expired' ELSE 'cancelled' END) d
    ON CONFLICT (id) DO NOTHING;
  GET DIAGNOSTICS v_rows = ROW_COUNT;
  RETURN v_rows;
END $f$;
CREATE OR REPLACE FUNCTION posthaste.close_unclaimed_2(
  p_queue text, p_priority integer, p_limit bigint, p_ids bigint[])
RETURNS bigint LANGUAGE plpgsql AS $f$
DECLARE
  c posthaste.claim_2;
  v_rows bigint;
BEGIN
  -- Two statements: the cursor must be read with a snapshot taken after the lock.
  IF NOT pg_try_advisory_xact_lock(1885893475, posthaste.lane_key(p_queue, p_priority)) THEN
    RETURN 0;
  END IF;
  SELECT * INTO c FROM posthaste.claim_2 WHERE queue = p_queue AND priority = p_priority
    ORDER BY queue DESC, priority DESC, batch DESC LIMIT 1;
  WITH gone AS MATERIALIZED (
    SELECT r.* FROM posthaste.ready_2 r
     WHERE r.queue = p_queue AND r.priority = p_priority
       AND r.xid >= coalesce(pg_snapshot_xmin(c.lo), '0')
       AND CASE WHEN p_ids IS NULL THEN r.expires_at <= clock_timestamp()
           ELSE r.id = ANY (p_ids) END
       AND NOT EXISTS (SELECT FROM posthaste.job_done_2 a WHERE a.xid = r.xid AND a.id = r.id)
       AND posthaste.is_claimed(r.xid, r.id, c.lo, c.hi, c.to_xid, c.to_id, c.exhausted) IS NOT TRUE
     LIMIT p_limit),
  marked AS (INSERT INTO posthaste.closed_unclaimed_2 (xid, id) SELECT xid, id FROM gone),
  noted AS (INSERT INTO posthaste.left_2 (xid, id, queue, priority, name, tag) SELECT xid, id,
      queue, priority, name, tag FROM gone WHERE queue <> ''),
  closed AS (INSERT INTO posthaste.job_done_2 (xid, id, outcome) SELECT xid, id,
      CASE WHEN p_ids IS NULL THEN 3 ELSE 9 END FROM gone)
  INSERT INTO posthaste.dead
  SELECT d.*
    FROM gone,
         posthaste.to_dead(gone, CASE WHEN p_ids IS NULL THEN 'expired' ELSE 'cancelled' END) d
    ON CONFLICT (id) DO NOTHING;
  GET DIAGNOSTICS v_rows = ROW_COUNT;
  RETURN v_rows;
END $f$;
CREATE OR REPLACE FUNCTION posthaste.close_unclaimed_3(
  p_queue text, p_priority integer, p_limit bigint, p_ids bigint[])
RETURNS bigint LANGUAGE plpgsql AS $f$
DECLARE
  c posthaste.claim_3;
  v_rows bigint;
BEGIN
  -- Two statements: the cursor must be read with a snapshot taken after the lock.
  IF NOT pg_try_advisory_xact_lock(1885893475, posthaste.lane_key(p_queue, p_priority)) THEN
    RETURN 0;
  END IF;
  SELECT * INTO c FROM posthaste.claim_3 WHERE queue = p_queue AND priority = p_priority
    ORDER BY queue DESC, priority DESC, batch DESC LIMIT 1;
  WITH gone AS MATERIALIZED (
    SELECT r.* FROM posthaste.ready_3 r
     WHERE r.queue = p_queue AND r.priority = p_priority
       AND r.xid >= coalesce(pg_snapshot_xmin(c.lo), '0')
       AND CASE WHEN p_ids IS NULL THEN r.expires_at <= clock_timestamp()
           ELSE r.id = ANY (p_ids) END
       AND NOT EXISTS (SELECT FROM posthaste.job_done_3 a WHERE a.xid = r.xid AND a.id = r.id)
       AND posthaste.is_claimed(r.xid, r.id, c.lo, c.hi, c.to_xid, c.to_id, c.exhausted) IS NOT TRUE
     LIMIT p_limit),
  marked AS (INSERT INTO posthaste.closed_unclaimed_3 (xid, id) SELECT xid, id FROM gone),
  noted AS (INSERT INTO posthaste.left_3 (xid, id, queue, priority, name, tag) SELECT xid, id,
      queue, priority, name, tag FROM gone WHERE queue <> ''),
  closed AS (INSERT INTO posthaste.job_done_3 (xid, id, outcome) SELECT xid, id,
      CASE WHEN p_ids IS NULL THEN 3 ELSE 9 END FROM gone)
  INSERT INTO posthaste.dead
  SELECT d.*
    FROM gone,
         posthaste.to_dead(gone, CASE WHEN p_ids IS NULL THEN 'expired' ELSE 'cancelled' END) d
    ON CONFLICT (id) DO NOTHING;
  GET DIAGNOSTICS v_rows = ROW_COUNT;
  RETURN v_rows;
END $f$;
CREATE OR REPLACE FUNCTION posthaste.close_unclaimed_4(
  p_queue text, p_priority integer, p_limit bigint, p_ids bigint[])
RETURNS bigint LANGUAGE plpgsql AS $f$
DECLARE
  c posthaste.claim_4;
  v_rows bigint;
BEGIN
  -- Two statements: the cursor must be read with a snapshot taken after the lock.
  IF NOT pg_try_advisory_xact_lock(1885893475, posthaste.lane_key(p_queue, p_priority)) THEN
    RETURN 0;
  END IF;
  SELECT * INTO c FROM posthaste.claim_4 WHERE queue = p_queue AND priority = p_priority
    ORDER BY queue DESC, priority DESC, batch DESC LIMIT 1;
  WITH gone AS MATERIALIZED (
    SELECT r.* FROM posthaste.ready_4 r
     WHERE r.queue = p_queue AND r.priority = p_priority
       AND r.xid >= coalesce(pg_snapshot_xmin(c.lo), '0')
       AND CASE WHEN p_ids IS NULL THEN r.expires_at <= clock_timestamp()
           ELSE r.id = ANY (p_ids) END
       AND NOT EXISTS (SELECT FROM posthaste.job_done_4 a WHERE a.xid = r.xid AND a.id = r.id)
       AND posthaste.is_claimed(r.xid, r.id, c.lo, c.hi, c.to_xid, c.to_id, c.exhausted) IS NOT TRUE
     LIMIT p_limit),
  marked AS (INSERT INTO posthaste.closed_unclaimed_4 (xid, id) SELECT xid, id FROM gone),
  noted AS (INSERT INTO posthaste.left_4 (xid, id, queue, priority, name, tag) SELECT xid, id,
      queue, priority, name, tag FROM gone WHERE queue <> ''),
  closed AS (INSERT INTO posthaste.job_done_4 (xid, id, outcome) SELECT xid, id,
      CASE WHEN p_ids IS NULL THEN 3 ELSE 9 END FROM gone)
  INSERT INTO posthaste.dead
  SELECT d.*
    FROM gone,
         posthaste.to_dead(gone, CASE WHEN p_ids IS NULL THEN 'expired' ELSE 'cancelled' END) d
    ON CONFLICT (id) DO NOTHING;
  GET DIAGNOSTICS v_rows = ROW_COUNT;
  RETURN v_rows;
END $f$;
CREATE OR REPLACE FUNCTION posthaste.close_unclaimed_5(
  p_queue text, p_priority integer, p_limit bigint, p_ids bigint[])
RETURNS bigint LANGUAGE plpgsql AS $f$
DECLARE
  c posthaste.claim_5;
  v_rows bigint;
BEGIN
  -- Two statements: the cursor must be read with a snapshot taken after the lock.
  IF NOT pg_try_advisory_xact_lock(1885893475, posthaste.lane_key(p_queue, p_priority)) THEN
    RETURN 0;
  END IF;
  SELECT * INTO c FROM posthaste.claim_5 WHERE queue = p_queue AND priority = p_priority
    ORDER BY queue DESC, priority DESC, batch DESC LIMIT 1;
  WITH gone AS MATERIALIZED (
    SELECT r.* FROM posthaste.ready_5 r
     WHERE r.queue = p_queue AND r.priority = p_priority
       AND r.xid >= coalesce(pg_snapshot_xmin(c.lo), '0')
       AND CASE WHEN p_ids IS NULL THEN r.expires_at <= clock_timestamp()
           ELSE r.id = ANY (p_ids) END
       AND NOT EXISTS (SELECT FROM posthaste.job_done_5 a WHERE a.xid = r.xid AND a.id = r.id)
       AND posthaste.is_claimed(r.xid, r.id, c.lo, c.hi, c.to_xid, c.to_id, c.exhausted) IS NOT TRUE
     LIMIT p_limit),
  marked AS (INSERT INTO posthaste.closed_unclaimed_5 (xid, id) SELECT xid, id FROM gone),
  noted AS (INSERT INTO posthaste.left_5 (xid, id, queue, priority, name, tag) SELECT xid, id,
      queue, priority, name, tag FROM gone WHERE queue <> ''),
  closed AS (INSERT INTO posthaste.job_done_5 (xid, id, outcome) SELECT xid, id,
      CASE WHEN p_ids IS NULL THEN 3 ELSE 9 END FROM gone)
  INSERT INTO posthaste.dead
  SELECT d.*
    FROM gone,
         posthaste.to_dead(gone, CASE WHEN p_ids IS NULL THEN 'expired' ELSE 'cancelled' END) d
    ON CONFLICT (id) DO NOTHING;
  GET DIAGNOSTICS v_rows = ROW_COUNT;
  RETURN v_rows;
END $f$;

-- Finds lanes of this slot with jobs that expired unclaimed, without locking, and closes those
-- jobs. Claimed jobs are left to their workers.
CREATE OR REPLACE FUNCTION posthaste.expire_0(p_limit integer)
RETURNS bigint LANGUAGE plpgsql AS $f$
DECLARE
  v_lane record;
  v_all bigint := 0;
BEGIN
  -- Each lane costs a lock. A random hundred, so that lanes with busy claimers do not crowd out the
  -- others.
  FOR v_lane IN
    SELECT * FROM (
      SELECT DISTINCT r.queue, r.priority FROM posthaste.ready_0 r
        LEFT JOIN (SELECT DISTINCT ON (queue, priority) queue, priority, lo, hi, to_xid,
            to_id, exhausted
                     FROM posthaste.claim_0 ORDER BY queue, priority, batch DESC) c ON (c.queue,
                       c.priority) = (r.queue, r.priority)
       WHERE r.expires_at <= clock_timestamp()
         AND NOT EXISTS (SELECT FROM posthaste.job_done_0 a WHERE a.xid = r.xid AND a.id = r.id)
         AND posthaste.is_claimed(r.xid, r.id, c.lo, c.hi, c.to_xid, c.to_id,
             c.exhausted) IS NOT TRUE) lane
     ORDER BY random() LIMIT 100
  LOOP
    EXIT WHEN v_all >= p_limit;
    v_all := v_all + posthaste.close_unclaimed_0(v_lane.queue, v_lane.priority,
        p_limit - v_all, NULL);
  END LOOP;
  RETURN v_all;
END $f$;
CREATE OR REPLACE FUNCTION posthaste.expire_1(p_limit integer)
RETURNS bigint LANGUAGE plpgsql AS $f$
DECLARE
  v_lane record;
  v_all bigint := 0;
BEGIN
  -- Each lane costs a lock. A random hundred, so that lanes with busy claimers do not crowd out the
  -- others.
  FOR v_lane IN
    SELECT * FROM (
      SELECT DISTINCT r.queue, r.priority FROM posthaste.ready_1 r
        LEFT JOIN (SELECT DISTINCT ON (queue, priority) queue, priority, lo, hi, to_xid,
            to_id, exhausted
                     FROM posthaste.claim_1 ORDER BY queue, priority, batch DESC) c ON (c.queue,
                       c.priority) = (r.queue, r.priority)
       WHERE r.expires_at <= clock_timestamp()
         AND NOT EXISTS (SELECT FROM posthaste.job_done_1 a WHERE a.xid = r.xid AND a.id = r.id)
         AND posthaste.is_claimed(r.xid, r.id, c.lo, c.hi, c.to_xid, c.to_id,
             c.exhausted) IS NOT TRUE) lane
     ORDER BY random() LIMIT 100
  LOOP
    EXIT WHEN v_all >= p_limit;
    v_all := v_all + posthaste.close_unclaimed_1(v_lane.queue, v_lane.priority,
        p_limit - v_all, NULL);
  END LOOP;
  RETURN v_all;
END $f$;
CREATE OR REPLACE FUNCTION posthaste.expire_2(p_limit integer)
RETURNS bigint LANGUAGE plpgsql AS $f$
DECLARE
  v_lane record;
  v_all bigint := 0;
BEGIN
  -- Each lane costs a lock. A random hundred, so that lanes with busy claimers do not crowd out the
  -- others.
  FOR v_lane IN
    SELECT * FROM (
      SELECT DISTINCT r.queue, r.priority FROM posthaste.ready_2 r
        LEFT JOIN (SELECT DISTINCT ON (queue, priority) queue, priority, lo, hi, to_xid,
            to_id, exhausted
                     FROM posthaste.claim_2 ORDER BY queue, priority, batch DESC) c ON (c.queue,
                       c.priority) = (r.queue, r.priority)
       WHERE r.expires_at <= clock_timestamp()
         AND NOT EXISTS (SELECT FROM posthaste.job_done_2 a WHERE a.xid = r.xid AND a.id = r.id)
         AND posthaste.is_claimed(r.xid, r.id, c.lo, c.hi, c.to_xid, c.to_id,
             c.exhausted) IS NOT TRUE) lane
     ORDER BY random() LIMIT 100
  LOOP
    EXIT WHEN v_all >= p_limit;
    v_all := v_all + posthaste.close_unclaimed_2(v_lane.queue, v_lane.priority,
        p_limit - v_all, NULL);
  END LOOP;
  RETURN v_all;
END $f$;
CREATE OR REPLACE FUNCTION posthaste.expire_3(p_limit integer)
RETURNS bigint LANGUAGE plpgsql AS $f$
DECLARE
  v_lane record;
  v_all bigint := 0;
BEGIN
  -- Each lane costs a lock. A random hundred, so that lanes with busy claimers do not crowd out the
  -- others.
  FOR v_lane IN
    SELECT * FROM (
      SELECT DISTINCT r.queue, r.priority FROM posthaste.ready_3 r
        LEFT JOIN (SELECT DISTINCT ON (queue, priority) queue, priority, lo, hi, to_xid,
            to_id, exhausted
                     FROM posthaste.claim_3 ORDER BY queue, priority, batch DESC) c ON (c.queue,
                       c.priority) = (r.queue, r.priority)
       WHERE r.expires_at <= clock_timestamp()
         AND NOT EXISTS (SELECT FROM posthaste.job_done_3 a WHERE a.xid = r.xid AND a.id = r.id)
         AND posthaste.is_claimed(r.xid, r.id, c.lo, c.hi, c.to_xid, c.to_id,
             c.exhausted) IS NOT TRUE) lane
     ORDER BY random() LIMIT 100
  LOOP
    EXIT WHEN v_all >= p_limit;
    v_all := v_all + posthaste.close_unclaimed_3(v_lane.queue, v_lane.priority,
        p_limit - v_all, NULL);
  END LOOP;
  RETURN v_all;
END $f$;
CREATE OR REPLACE FUNCTION posthaste.expire_4(p_limit integer)
RETURNS bigint LANGUAGE plpgsql AS $f$
DECLARE
  v_lane record;
  v_all bigint := 0;
BEGIN
  -- Each lane costs a lock. A random hundred, so that lanes with busy claimers do not crowd out the
  -- others.
  FOR v_lane IN
    SELECT * FROM (
      SELECT DISTINCT r.queue, r.priority FROM posthaste.ready_4 r
        LEFT JOIN (SELECT DISTINCT ON (queue, priority) queue, priority, lo, hi, to_xid,
            to_id, exhausted
                     FROM posthaste.claim_4 ORDER BY queue, priority, batch DESC) c ON (c.queue,
                       c.priority) = (r.queue, r.priority)
       WHERE r.expires_at <= clock_timestamp()
         AND NOT EXISTS (SELECT FROM posthaste.job_done_4 a WHERE a.xid = r.xid AND a.id = r.id)
         AND posthaste.is_claimed(r.xid, r.id, c.lo, c.hi, c.to_xid, c.to_id,
             c.exhausted) IS NOT TRUE) lane
     ORDER BY random() LIMIT 100
  LOOP
    EXIT WHEN v_all >= p_limit;
    v_all := v_all + posthaste.close_unclaimed_4(v_lane.queue, v_lane.priority,
        p_limit - v_all, NULL);
  END LOOP;
  RETURN v_all;
END $f$;
CREATE OR REPLACE FUNCTION posthaste.expire_5(p_limit integer)
RETURNS bigint LANGUAGE plpgsql AS $f$
DECLARE
  v_lane record;
  v_all bigint := 0;
BEGIN
  -- Each lane costs a lock. A random hundred, so that lanes with busy claimers do not crowd out the
  -- others.
  FOR v_lane IN
    SELECT * FROM (
      SELECT DISTINCT r.queue, r.priority FROM posthaste.ready_5 r
        LEFT JOIN (SELECT DISTINCT ON (queue, priority) queue, priority, lo, hi, to_xid,
            to_id, exhausted
                     FROM posthaste.claim_5 ORDER BY queue, priority, batch DESC) c ON (c.queue,
                       c.priority) = (r.queue, r.priority)
       WHERE r.expires_at <= clock_timestamp()
         AND NOT EXISTS (SELECT FROM posthaste.job_done_5 a WHERE a.xid = r.xid AND a.id = r.id)
         AND posthaste.is_claimed(r.xid, r.id, c.lo, c.hi, c.to_xid, c.to_id,
             c.exhausted) IS NOT TRUE) lane
     ORDER BY random() LIMIT 100
  LOOP
    EXIT WHEN v_all >= p_limit;
    v_all := v_all + posthaste.close_unclaimed_5(v_lane.queue, v_lane.priority,
        p_limit - v_all, NULL);
  END LOOP;
  RETURN v_all;
END $f$;

-- Finds scheduled jobs that expired. Reading the slot takes long, so the promoter is locked only
-- while they are closed.
CREATE OR REPLACE FUNCTION posthaste.expire_6(p_limit integer)
RETURNS bigint LANGUAGE plpgsql AS $f$
DECLARE
  v_found tid[] := ARRAY(
    SELECT r.ctid FROM posthaste.scheduled_6 r
      LEFT JOIN (SELECT * FROM posthaste.promote_cursor_6 ORDER BY page DESC LIMIT 1) p ON true
     WHERE r.expires_at <= clock_timestamp()
       AND NOT EXISTS (SELECT FROM posthaste.closed_unclaimed_6 e
         WHERE e.xid = r.xid AND e.id = r.id)
       AND posthaste.promoted(r.xid, r.scheduled_at, r.id, p.t_lo, p.t_hi, p.lo, p.hi, p.at_xid,
           p.at_due, p.at_id, p.late_done, p.exhausted)
           IS NOT TRUE
     LIMIT p_limit);
BEGIN
  IF cardinality(v_found) = 0 OR NOT pg_try_advisory_xact_lock(1885893476, 2) THEN
    RETURN 0;
  END IF;
  RETURN (SELECT count(*) FROM posthaste.close_scheduled_6(v_found, 'expired'));
END $f$;
CREATE OR REPLACE FUNCTION posthaste.expire_7(p_limit integer)
RETURNS bigint LANGUAGE plpgsql AS $f$
DECLARE
  v_found tid[] := ARRAY(
    SELECT r.ctid FROM posthaste.scheduled_7 r
      LEFT JOIN (SELECT * FROM posthaste.promote_cursor_7 ORDER BY page DESC LIMIT 1) p ON true
     WHERE r.expires_at <= clock_timestamp()
       AND NOT EXISTS (SELECT FROM posthaste.closed_unclaimed_7 e
         WHERE e.xid = r.xid AND e.id = r.id)
       AND posthaste.promoted(r.xid, r.scheduled_at, r.id, p.t_lo, p.t_hi, p.lo, p.hi, p.at_xid,
           p.at_due, p.at_id, p.late_done, p.exhausted)
           IS NOT TRUE
     LIMIT p_limit);
BEGIN
  IF cardinality(v_found) = 0 OR NOT pg_try_advisory_xact_lock(1885893476, 2) THEN
    RETURN 0;
  END IF;
  RETURN (SELECT count(*) FROM posthaste.close_scheduled_7(v_found, 'expired'));
END $f$;

-- Closes the scheduled jobs at these tuple ids: stored in this state, or sent to work at once if it
-- is 'available'. Returns them without those promoted meanwhile. The caller holds the promoter's
-- lock.
CREATE OR REPLACE FUNCTION posthaste.close_scheduled_6(p_places tid[], p_state text)
RETURNS SETOF posthaste.store LANGUAGE plpgsql AS $f$
BEGIN
  RETURN QUERY
  WITH gone AS MATERIALIZED (
    SELECT r.* FROM posthaste.scheduled_6 r
      LEFT JOIN (SELECT * FROM posthaste.promote_cursor_6 ORDER BY page DESC LIMIT 1) p ON true
     WHERE r.ctid = ANY (p_places)
       AND NOT EXISTS (SELECT FROM posthaste.closed_unclaimed_6 e
           WHERE e.xid = r.xid AND e.id = r.id)
       AND posthaste.promoted(r.xid, r.scheduled_at, r.id, p.t_lo, p.t_hi, p.lo, p.hi, p.at_xid,
           p.at_due, p.at_id, p.late_done, p.exhausted)
           IS NOT TRUE),
  marked AS (
    INSERT INTO posthaste.closed_unclaimed_6 (xid, id, outcome)
    SELECT xid, id, CASE p_state WHEN 'available' THEN 1 WHEN 'expired' THEN 3 ELSE 9 END
      FROM gone),
  noted AS (
    INSERT INTO posthaste.left_6 (queue, priority, name, tag, what, jobs)
    SELECT coalesce(own_queue, queue), coalesce(own_priority, priority), name, tag, w.what, count(*)
      FROM gone, posthaste.wait_kind(scheduled_at, attempt) w(what) GROUP BY 1, 2, 3, 4, 5),
  sent AS (
    INSERT INTO posthaste.store
    SELECT a.*
      FROM gone,
        LATERAL (SELECT (SELECT posthaste.enter_ready()) + posthaste.notify(gone.queue,
            (SELECT posthaste.listeners())) AS slot,
                                 clock_timestamp() AS now OFFSET 0) e,
                                 posthaste.reschedule_row(gone, e.slot, e.now) a
     WHERE p_state = 'available'),
  kept AS (
    INSERT INTO posthaste.dead SELECT d.* FROM gone, posthaste.to_dead(gone, p_state) d
      WHERE p_state <> 'available' ON CONFLICT (id) DO NOTHING)
  SELECT gone.* FROM gone;
END $f$;
CREATE OR REPLACE FUNCTION posthaste.close_scheduled_7(p_places tid[], p_state text)
RETURNS SETOF posthaste.store LANGUAGE plpgsql AS $f$
BEGIN
  RETURN QUERY
  WITH gone AS MATERIALIZED (
    SELECT r.* FROM posthaste.scheduled_7 r
      LEFT JOIN (SELECT * FROM posthaste.promote_cursor_7 ORDER BY page DESC LIMIT 1) p ON true
     WHERE r.ctid = ANY (p_places)
       AND NOT EXISTS (SELECT FROM posthaste.closed_unclaimed_7 e
           WHERE e.xid = r.xid AND e.id = r.id)
       AND posthaste.promoted(r.xid, r.scheduled_at, r.id, p.t_lo, p.t_hi, p.lo, p.hi, p.at_xid,
           p.at_due, p.at_id, p.late_done, p.exhausted)
           IS NOT TRUE),
  marked AS (
    INSERT INTO posthaste.closed_unclaimed_7 (xid, id, outcome)
    SELECT xid, id, CASE p_state WHEN 'available' THEN 1 WHEN 'expired' THEN 3 ELSE 9 END
      FROM gone),
  noted AS (
    INSERT INTO posthaste.left_7 (queue, priority, name, tag, what, jobs)
    SELECT coalesce(own_queue, queue), coalesce(own_priority, priority), name, tag, w.what, count(*)
      FROM gone, posthaste.wait_kind(scheduled_at, attempt) w(what) GROUP BY 1, 2, 3, 4, 5),
  sent AS (
    INSERT INTO posthaste.store
    SELECT a.*
      FROM gone,
        LATERAL (SELECT (SELECT posthaste.enter_ready()) + posthaste.notify(gone.queue,
            (SELECT posthaste.listeners())) AS slot,
                                 clock_timestamp() AS now OFFSET 0) e,
                                 posthaste.reschedule_row(gone, e.slot, e.now) a
     WHERE p_state = 'available'),
  kept AS (
    INSERT INTO posthaste.dead SELECT d.* FROM gone, posthaste.to_dead(gone, p_state) d
      WHERE p_state <> 'available' ON CONFLICT (id) DO NOTHING)
  SELECT gone.* FROM gone;
END $f$;

-- Finds jobs of one slot that expired without a consumer, and stores them as expired. One slot per
-- transaction, so that locks for one are not held while another is read.
CREATE OR REPLACE FUNCTION posthaste.expire(p_slot integer, p_limit integer)
RETURNS bigint LANGUAGE plpgsql
SET jit = off SET search_path = pg_catalog, pg_temp AS $f$
BEGIN
  IF current_setting('transaction_isolation') <> 'read committed'
    OR NOT pg_try_advisory_xact_lock(1885893476, 4) THEN
    RETURN 0;
  END IF;
  CASE p_slot
    WHEN 0 THEN RETURN posthaste.expire_0(p_limit);
    WHEN 1 THEN RETURN posthaste.expire_1(p_limit);
    WHEN 2 THEN RETURN posthaste.expire_2(p_limit);
    WHEN 3 THEN RETURN posthaste.expire_3(p_limit);
    WHEN 4 THEN RETURN posthaste.expire_4(p_limit);
    WHEN 5 THEN RETURN posthaste.expire_5(p_limit);
    WHEN 6 THEN RETURN posthaste.expire_6(p_limit);
    WHEN 7 THEN RETURN posthaste.expire_7(p_limit);
  END CASE;
END $f$;
-- Finds jobs by id.

-- The claim that contains a row, found by bisection: the first claim of its lane whose cursor is
-- after the row. NULL if the row is unclaimed.
CREATE OR REPLACE FUNCTION posthaste.claim_of_0(r posthaste.store)
RETURNS posthaste.claim_0 LANGUAGE plpgsql STABLE AS $f$
DECLARE
  c posthaste.claim_0;
  v_found posthaste.claim_0;
  v_bottom bigint := 0;  -- no claim below it contains the row
  v_top bigint;          -- nor does one between this and the one found
  v_middle bigint;
BEGIN
  SELECT * INTO c FROM posthaste.claim_0 n WHERE n.queue = r.queue AND n.priority = r.priority
   ORDER BY n.queue DESC, n.priority DESC, n.batch DESC LIMIT 1;
  IF posthaste.is_claimed(r.xid, r.id, c.lo, c.hi, c.to_xid, c.to_id, c.exhausted) IS NOT TRUE THEN
    RETURN NULL;
  END IF;
  v_found := c; v_top := c.batch;
  WHILE v_bottom < v_top LOOP
    v_middle := v_bottom + (v_top - v_bottom) / 2;
    SELECT * INTO c FROM posthaste.claim_0 n
      WHERE n.queue = r.queue AND n.priority = r.priority AND n.batch >= v_middle
     ORDER BY n.queue, n.priority, n.batch LIMIT 1;
    IF posthaste.is_claimed(r.xid, r.id, c.lo, c.hi, c.to_xid, c.to_id, c.exhausted) THEN
      v_found := c; v_top := v_middle;
    ELSE
      v_bottom := c.batch + 1;
    END IF;
  END LOOP;
  RETURN v_found;
END $f$;
CREATE OR REPLACE FUNCTION posthaste.claim_of_1(r posthaste.store)
RETURNS posthaste.claim_1 LANGUAGE plpgsql STABLE AS $f$
DECLARE
  c posthaste.claim_1;
  v_found posthaste.claim_1;
  v_bottom bigint := 0;  -- no claim below it contains the row
  v_top bigint;          -- nor does one between this and the one found
  v_middle bigint;
BEGIN
  SELECT * INTO c FROM posthaste.claim_1 n WHERE n.queue = r.queue AND n.priority = r.priority
   ORDER BY n.queue DESC, n.priority DESC, n.batch DESC LIMIT 1;
  IF posthaste.is_claimed(r.xid, r.id, c.lo, c.hi, c.to_xid, c.to_id, c.exhausted) IS NOT TRUE THEN
    RETURN NULL;
  END IF;
  v_found := c; v_top := c.batch;
  WHILE v_bottom < v_top LOOP
    v_middle := v_bottom + (v_top - v_bottom) / 2;
    SELECT * INTO c FROM posthaste.claim_1 n
      WHERE n.queue = r.queue AND n.priority = r.priority AND n.batch >= v_middle
     ORDER BY n.queue, n.priority, n.batch LIMIT 1;
    IF posthaste.is_claimed(r.xid, r.id, c.lo, c.hi, c.to_xid, c.to_id, c.exhausted) THEN
      v_found := c; v_top := v_middle;
    ELSE
      v_bottom := c.batch + 1;
    END IF;
  END LOOP;
  RETURN v_found;
END $f$;
CREATE OR REPLACE FUNCTION posthaste.claim_of_2(r posthaste.store)
RETURNS posthaste.claim_2 LANGUAGE plpgsql STABLE AS $f$
DECLARE
  c posthaste.claim_2;
  v_found posthaste.claim_2;
  v_bottom bigint := 0;  -- no claim below it contains the row
  v_top bigint;          -- nor does one between this and the one found
  v_middle bigint;
BEGIN
  SELECT * INTO c FROM posthaste.claim_2 n WHERE n.queue = r.queue AND n.priority = r.priority
   ORDER BY n.queue DESC, n.priority DESC, n.batch DESC LIMIT 1;
  IF posthaste.is_claimed(r.xid, r.id, c.lo, c.hi, c.to_xid, c.to_id, c.exhausted) IS NOT TRUE THEN
    RETURN NULL;
  END IF;
  v_found := c; v_top := c.batch;
  WHILE v_bottom < v_top LOOP
    v_middle := v_bottom + (v_top - v_bottom) / 2;
    SELECT * INTO c FROM posthaste.claim_2 n
      WHERE n.queue = r.queue AND n.priority = r.priority AND n.batch >= v_middle
     ORDER BY n.queue, n.priority, n.batch LIMIT 1;
    IF posthaste.is_claimed(r.xid, r.id, c.lo, c.hi, c.to_xid, c.to_id, c.exhausted) THEN
      v_found := c; v_top := v_middle;
    ELSE
      v_bottom := c.batch + 1;
    END IF;
  END LOOP;
  RETURN v_found;
END $f$;
CREATE OR REPLACE FUNCTION posthaste.claim_of_3(r posthaste.store)
RETURNS posthaste.claim_3 LANGUAGE plpgsql STABLE AS $f$
DECLARE
  c posthaste.claim_3;
  v_found posthaste.claim_3;
  v_bottom bigint := 0;  -- no claim below it contains the row
  v_top bigint;          -- nor does one between this and the one found
  v_middle bigint;
BEGIN
  SELECT * INTO c FROM posthaste.claim_3 n WHERE n.queue = r.queue AND n.priority = r.priority
   ORDER BY n.queue DESC, n.priority DESC, n.batch DESC LIMIT 1;
  IF posthaste.is_claimed(r.xid, r.id, c.lo, c.hi, c.to_xid, c.to_id, c.exhausted) IS NOT TRUE THEN
    RETURN NULL;
  END IF;
  v_found := c; v_top := c.batch;
  WHILE v_bottom < v_top LOOP
    v_middle := v_bottom + (v_top - v_bottom) / 2;
    SELECT * INTO c FROM posthaste.claim_3 n
      WHERE n.queue = r.queue AND n.priority = r.priority AND n.batch >= v_middle
     ORDER BY n.queue, n.priority, n.batch LIMIT 1;
    IF posthaste.is_claimed(r.xid, r.id, c.lo, c.hi, c.to_xid, c.to_id, c.exhausted) THEN
      v_found := c; v_top := v_middle;
    ELSE
      v_bottom := c.batch + 1;
    END IF;
  END LOOP;
  RETURN v_found;
END $f$;
CREATE OR REPLACE FUNCTION posthaste.claim_of_4(r posthaste.store)
RETURNS posthaste.claim_4 LANGUAGE plpgsql STABLE AS $f$
DECLARE
  c posthaste.claim_4;
  v_found posthaste.claim_4;
  v_bottom bigint := 0;  -- no claim below it contains the row
  v_top bigint;          -- nor does one between this and the one found
  v_middle bigint;
BEGIN
  SELECT * INTO c FROM posthaste.claim_4 n WHERE n.queue = r.queue AND n.priority = r.priority
   ORDER BY n.queue DESC, n.priority DESC, n.batch DESC LIMIT 1;
  IF posthaste.is_claimed(r.xid, r.id, c.lo, c.hi, c.to_xid, c.to_id, c.exhausted) IS NOT TRUE THEN
    RETURN NULL;
  END IF;
  v_found := c; v_top := c.batch;
  WHILE v_bottom < v_top LOOP
    v_middle := v_bottom + (v_top - v_bottom) / 2;
    SELECT * INTO c FROM posthaste.claim_4 n
      WHERE n.queue = r.queue AND n.priority = r.priority AND n.batch >= v_middle
     ORDER BY n.queue, n.priority, n.batch LIMIT 1;
    IF posthaste.is_claimed(r.xid, r.id, c.lo, c.hi, c.to_xid, c.to_id, c.exhausted) THEN
      v_found := c; v_top := v_middle;
    ELSE
      v_bottom := c.batch + 1;
    END IF;
  END LOOP;
  RETURN v_found;
END $f$;
CREATE OR REPLACE FUNCTION posthaste.claim_of_5(r posthaste.store)
RETURNS posthaste.claim_5 LANGUAGE plpgsql STABLE AS $f$
DECLARE
  c posthaste.claim_5;
  v_found posthaste.claim_5;
  v_bottom bigint := 0;  -- no claim below it contains the row
  v_top bigint;          -- nor does one between this and the one found
  v_middle bigint;
BEGIN
  SELECT * INTO c FROM posthaste.claim_5 n WHERE n.queue = r.queue AND n.priority = r.priority
   ORDER BY n.queue DESC, n.priority DESC, n.batch DESC LIMIT 1;
  IF posthaste.is_claimed(r.xid, r.id, c.lo, c.hi, c.to_xid, c.to_id, c.exhausted) IS NOT TRUE THEN
    RETURN NULL;
  END IF;
  v_found := c; v_top := c.batch;
  WHILE v_bottom < v_top LOOP
    v_middle := v_bottom + (v_top - v_bottom) / 2;
    SELECT * INTO c FROM posthaste.claim_5 n
      WHERE n.queue = r.queue AND n.priority = r.priority AND n.batch >= v_middle
     ORDER BY n.queue, n.priority, n.batch LIMIT 1;
    IF posthaste.is_claimed(r.xid, r.id, c.lo, c.hi, c.to_xid, c.to_id, c.exhausted) THEN
      v_found := c; v_top := v_middle;
    ELSE
      v_bottom := c.batch + 1;
    END IF;
  END LOOP;
  RETURN v_found;
END $f$;

-- State and outcome of these rows.
CREATE OR REPLACE FUNCTION posthaste.slot_row_0(p_rows posthaste.store[])
RETURNS SETOF posthaste.slot_row LANGUAGE plpgsql STABLE AS $f$
DECLARE
  r posthaste.store;
  c posthaste.claim_0;
  v_outcome smallint;
BEGIN
  FOREACH r IN ARRAY p_rows LOOP
    CONTINUE WHEN r.queue = '' AND r.turn IS NOT NULL;  -- the end of a turn
    c := posthaste.claim_of_0(r);
    v_outcome := coalesce((SELECT a.outcome FROM posthaste.job_done_0 a
          WHERE a.xid = r.xid AND a.id = r.id),
                          (SELECT w.outcome FROM posthaste.batch_done_0 w WHERE w.batch = c.batch));
    RETURN NEXT ROW(r, CASE WHEN v_outcome IS NOT NULL THEN NULL
          WHEN c.batch IS NOT NULL THEN 'running'
                            WHEN r.expires_at <= clock_timestamp() THEN 'expired'
                              WHEN r.queue = '' THEN 'blocked' ELSE 'available' END, v_outcome,
                              c.worker, c.claimed_at)::posthaste.slot_row;
  END LOOP;
END $f$;
CREATE OR REPLACE FUNCTION posthaste.slot_row_1(p_rows posthaste.store[])
RETURNS SETOF posthaste.slot_row LANGUAGE plpgsql STABLE AS $f$
DECLARE
  r posthaste.store;
  c posthaste.claim_1;
  v_outcome smallint;
BEGIN
  FOREACH r IN ARRAY p_rows LOOP
    CONTINUE WHEN r.queue = '' AND r.turn IS NOT NULL;  -- the end of a turn
    c := posthaste.claim_of_1(r);
    v_outcome := coalesce((SELECT a.outcome FROM posthaste.job_done_1 a
          WHERE a.xid = r.xid AND a.id = r.id),
                          (SELECT w.outcome FROM posthaste.batch_done_1 w WHERE w.batch = c.batch));
    RETURN NEXT ROW(r, CASE WHEN v_outcome IS NOT NULL THEN NULL
          WHEN c.batch IS NOT NULL THEN 'running'
                            WHEN r.expires_at <= clock_timestamp() THEN 'expired'
                              WHEN r.queue = '' THEN 'blocked' ELSE 'available' END, v_outcome,
                              c.worker, c.claimed_at)::posthaste.slot_row;
  END LOOP;
END $f$;
CREATE OR REPLACE FUNCTION posthaste.slot_row_2(p_rows posthaste.store[])
RETURNS SETOF posthaste.slot_row LANGUAGE plpgsql STABLE AS $f$
DECLARE
  r posthaste.store;
  c posthaste.claim_2;
  v_outcome smallint;
BEGIN
  FOREACH r IN ARRAY p_rows LOOP
    CONTINUE WHEN r.queue = '' AND r.turn IS NOT NULL;  -- the end of a turn
    c := posthaste.claim_of_2(r);
    v_outcome := coalesce((SELECT a.outcome FROM posthaste.job_done_2 a
          WHERE a.xid = r.xid AND a.id = r.id),
                          (SELECT w.outcome FROM posthaste.batch_done_2 w WHERE w.batch = c.batch));
    RETURN NEXT ROW(r, CASE WHEN v_outcome IS NOT NULL THEN NULL
          WHEN c.batch IS NOT NULL THEN 'running'
                            WHEN r.expires_at <= clock_timestamp() THEN 'expired'
                              WHEN r.queue = '' THEN 'blocked' ELSE 'available' END, v_outcome,
                              c.worker, c.claimed_at)::posthaste.slot_row;
  END LOOP;
END $f$;
CREATE OR REPLACE FUNCTION posthaste.slot_row_3(p_rows posthaste.store[])
RETURNS SETOF posthaste.slot_row LANGUAGE plpgsql STABLE AS $f$
DECLARE
  r posthaste.store;
  c posthaste.claim_3;
  v_outcome smallint;
BEGIN
  FOREACH r IN ARRAY p_rows LOOP
    CONTINUE WHEN r.queue = '' AND r.turn IS NOT NULL;  -- the end of a turn
    c := posthaste.claim_of_3(r);
    v_outcome := coalesce((SELECT a.outcome FROM posthaste.job_done_3 a
          WHERE a.xid = r.xid AND a.id = r.id),
                          (SELECT w.outcome FROM posthaste.batch_done_3 w WHERE w.batch = c.batch));
    RETURN NEXT ROW(r, CASE WHEN v_outcome IS NOT NULL THEN NULL
          WHEN c.batch IS NOT NULL THEN 'running'
                            WHEN r.expires_at <= clock_timestamp() THEN 'expired'
                              WHEN r.queue = '' THEN 'blocked' ELSE 'available' END, v_outcome,
                              c.worker, c.claimed_at)::posthaste.slot_row;
  END LOOP;
END $f$;
CREATE OR REPLACE FUNCTION posthaste.slot_row_4(p_rows posthaste.store[])
RETURNS SETOF posthaste.slot_row LANGUAGE plpgsql STABLE AS $f$
DECLARE
  r posthaste.store;
  c posthaste.claim_4;
  v_outcome smallint;
BEGIN
  FOREACH r IN ARRAY p_rows LOOP
    CONTINUE WHEN r.queue = '' AND r.turn IS NOT NULL;  -- the end of a turn
    c := posthaste.claim_of_4(r);
    v_outcome := coalesce((SELECT a.outcome FROM posthaste.job_done_4 a
          WHERE a.xid = r.xid AND a.id = r.id),
                          (SELECT w.outcome FROM posthaste.batch_done_4 w WHERE w.batch = c.batch));
    RETURN NEXT ROW(r, CASE WHEN v_outcome IS NOT NULL THEN NULL
          WHEN c.batch IS NOT NULL THEN 'running'
                            WHEN r.expires_at <= clock_timestamp() THEN 'expired'
                              WHEN r.queue = '' THEN 'blocked' ELSE 'available' END, v_outcome,
                              c.worker, c.claimed_at)::posthaste.slot_row;
  END LOOP;
END $f$;
CREATE OR REPLACE FUNCTION posthaste.slot_row_5(p_rows posthaste.store[])
RETURNS SETOF posthaste.slot_row LANGUAGE plpgsql STABLE AS $f$
DECLARE
  r posthaste.store;
  c posthaste.claim_5;
  v_outcome smallint;
BEGIN
  FOREACH r IN ARRAY p_rows LOOP
    CONTINUE WHEN r.queue = '' AND r.turn IS NOT NULL;  -- the end of a turn
    c := posthaste.claim_of_5(r);
    v_outcome := coalesce((SELECT a.outcome FROM posthaste.job_done_5 a
          WHERE a.xid = r.xid AND a.id = r.id),
                          (SELECT w.outcome FROM posthaste.batch_done_5 w WHERE w.batch = c.batch));
    RETURN NEXT ROW(r, CASE WHEN v_outcome IS NOT NULL THEN NULL
          WHEN c.batch IS NOT NULL THEN 'running'
                            WHEN r.expires_at <= clock_timestamp() THEN 'expired'
                              WHEN r.queue = '' THEN 'blocked' ELSE 'available' END, v_outcome,
                              c.worker, c.claimed_at)::posthaste.slot_row;
  END LOOP;
END $f$;

CREATE OR REPLACE FUNCTION posthaste.slot_row_6(p_rows posthaste.store[])
RETURNS SETOF posthaste.slot_row LANGUAGE sql STABLE AS $f$
  SELECT r, CASE WHEN e.id IS NOT NULL
                   OR posthaste.promoted(r.xid, r.scheduled_at, r.id, p.t_lo, p.t_hi, p.lo, p.hi,
                       p.at_xid, p.at_due, p.at_id, p.late_done, p.exhausted) THEN NULL
                 WHEN r.expires_at <= clock_timestamp() THEN 'expired'
                   WHEN r.scheduled_at = '9999-01-01Z' THEN 'blocked'
                 WHEN r.attempt > 0 THEN 'retrying' ELSE 'scheduled' END,
         coalesce(e.outcome, 1::smallint), NULL::bigint, NULL::timestamptz
    FROM unnest(p_rows) r LEFT JOIN posthaste.closed_unclaimed_6 e ON e.xid = r.xid AND e.id = r.id
    LEFT JOIN (SELECT * FROM posthaste.promote_cursor_6 ORDER BY page DESC LIMIT 1) p ON true
$f$;
CREATE OR REPLACE FUNCTION posthaste.slot_row_7(p_rows posthaste.store[])
RETURNS SETOF posthaste.slot_row LANGUAGE sql STABLE AS $f$
  SELECT r, CASE WHEN e.id IS NOT NULL
                   OR posthaste.promoted(r.xid, r.scheduled_at, r.id, p.t_lo, p.t_hi, p.lo, p.hi,
                       p.at_xid, p.at_due, p.at_id, p.late_done, p.exhausted) THEN NULL
                 WHEN r.expires_at <= clock_timestamp() THEN 'expired'
                   WHEN r.scheduled_at = '9999-01-01Z' THEN 'blocked'
                 WHEN r.attempt > 0 THEN 'retrying' ELSE 'scheduled' END,
         coalesce(e.outcome, 1::smallint), NULL::bigint, NULL::timestamptz
    FROM unnest(p_rows) r LEFT JOIN posthaste.closed_unclaimed_7 e ON e.xid = r.xid AND e.id = r.id
    LEFT JOIN (SELECT * FROM posthaste.promote_cursor_7 ORDER BY page DESC LIMIT 1) p ON true
$f$;

-- Rows of a job at their expected place. Ids are drawn in about the order in which rows are stored,
-- except for promoted and moved jobs: the slot is bisected by the greatest id of a few pages, and
-- the pages around are read.
CREATE OR REPLACE FUNCTION posthaste.rows_near_0(p_id bigint)
RETURNS SETOF posthaste.store LANGUAGE plpgsql STABLE AS $f$
DECLARE
  v_low bigint := 0;
  v_high bigint :=
    pg_relation_size(('posthaste.' || CASE WHEN 0 < 6 THEN 'ready_' ELSE 'scheduled_' END
        || 0)::regclass)
                   / current_setting('block_size')::integer;
  v_middle bigint;
  v_from tid;
  v_to tid;
BEGIN
  WHILE v_high - v_low > 64 LOOP
    v_middle := (v_low + v_high) / 2;
    v_from := format('(%s,0)', v_middle); v_to := format('(%s,0)', v_middle + 8);
    IF (SELECT max(s.id) FROM posthaste.store s
        WHERE s.slot = 0 AND s.ctid >= v_from AND s.ctid < v_to) < p_id THEN
      v_low := v_middle;
    ELSE
      v_high := v_middle;
    END IF;
  END LOOP;
  v_from := format('(%s,0)', greatest(v_low - 64, 0)); v_to := format('(%s,0)', v_high + 64);
  RETURN QUERY SELECT s.* FROM posthaste.store s
    WHERE s.slot = 0 AND s.id = p_id AND s.ctid >= v_from AND s.ctid < v_to;
END $f$;
CREATE OR REPLACE FUNCTION posthaste.rows_near_1(p_id bigint)
RETURNS SETOF posthaste.store LANGUAGE plpgsql STABLE AS $f$
DECLARE
  v_low bigint := 0;
  v_high bigint :=
    pg_relation_size(('posthaste.' || CASE WHEN 1 < 6 THEN 'ready_' ELSE 'scheduled_' END
        || 1)::regclass)
                   / current_setting('block_size')::integer;
  v_middle bigint;
  v_from tid;
  v_to tid;
BEGIN
  WHILE v_high - v_low > 64 LOOP
    v_middle := (v_low + v_high) / 2;
    v_from := format('(%s,0)', v_middle); v_to := format('(%s,0)', v_middle + 8);
    IF (SELECT max(s.id) FROM posthaste.store s
        WHERE s.slot = 1 AND s.ctid >= v_from AND s.ctid < v_to) < p_id THEN
      v_low := v_middle;
    ELSE
      v_high := v_middle;
    END IF;
  END LOOP;
  v_from := format('(%s,0)', greatest(v_low - 64, 0)); v_to := format('(%s,0)', v_high + 64);
  RETURN QUERY SELECT s.* FROM posthaste.store s
    WHERE s.slot = 1 AND s.id = p_id AND s.ctid >= v_from AND s.ctid < v_to;
END $f$;
CREATE OR REPLACE FUNCTION posthaste.rows_near_2(p_id bigint)
RETURNS SETOF posthaste.store LANGUAGE plpgsql STABLE AS $f$
DECLARE
  v_low bigint := 0;
  v_high bigint :=
    pg_relation_size(('posthaste.' || CASE WHEN 2 < 6 THEN 'ready_' ELSE 'scheduled_' END
        || 2)::regclass)
                   / current_setting('block_size')::integer;
  v_middle bigint;
  v_from tid;
  v_to tid;
BEGIN
  WHILE v_high - v_low > 64 LOOP
    v_middle := (v_low + v_high) / 2;
    v_from := format('(%s,0)', v_middle); v_to := format('(%s,0)', v_middle + 8);
    IF (SELECT max(s.id) FROM posthaste.store s
        WHERE s.slot = 2 AND s.ctid >= v_from AND s.ctid < v_to) < p_id THEN
      v_low := v_middle;
    ELSE
      v_high := v_middle;
    END IF;
  END LOOP;
  v_from := format('(%s,0)', greatest(v_low - 64, 0)); v_to := format('(%s,0)', v_high + 64);
  RETURN QUERY SELECT s.* FROM posthaste.store s
    WHERE s.slot = 2 AND s.id = p_id AND s.ctid >= v_from AND s.ctid < v_to;
END $f$;
CREATE OR REPLACE FUNCTION posthaste.rows_near_3(p_id bigint)
RETURNS SETOF posthaste.store LANGUAGE plpgsql STABLE AS $f$
DECLARE
  v_low bigint := 0;
  v_high bigint :=
    pg_relation_size(('posthaste.' || CASE WHEN 3 < 6 THEN 'ready_' ELSE 'scheduled_' END
        || 3)::regclass)
                   / current_setting('block_size')::integer;
  v_middle bigint;
  v_from tid;
  v_to tid;
BEGIN
  WHILE v_high - v_low > 64 LOOP
    v_middle := (v_low + v_high) / 2;
    v_from := format('(%s,0)', v_middle); v_to := format('(%s,0)', v_middle + 8);
    IF (SELECT max(s.id) FROM posthaste.store s
        WHERE s.slot = 3 AND s.ctid >= v_from AND s.ctid < v_to) < p_id THEN
      v_low := v_middle;
    ELSE
      v_high := v_middle;
    END IF;
  END LOOP;
  v_from := format('(%s,0)', greatest(v_low - 64, 0)); v_to := format('(%s,0)', v_high + 64);
  RETURN QUERY SELECT s.* FROM posthaste.store s
    WHERE s.slot = 3 AND s.id = p_id AND s.ctid >= v_from AND s.ctid < v_to;
END $f$;
CREATE OR REPLACE FUNCTION posthaste.rows_near_4(p_id bigint)
RETURNS SETOF posthaste.store LANGUAGE plpgsql STABLE AS $f$
DECLARE
  v_low bigint := 0;
  v_high bigint :=
    pg_relation_size(('posthaste.' || CASE WHEN 4 < 6 THEN 'ready_' ELSE 'scheduled_' END
        || 4)::regclass)
                   / current_setting('block_size')::integer;
  v_middle bigint;
  v_from tid;
  v_to tid;
BEGIN
  WHILE v_high - v_low > 64 LOOP
    v_middle := (v_low + v_high) / 2;
    v_from := format('(%s,0)', v_middle); v_to := format('(%s,0)', v_middle + 8);
    IF (SELECT max(s.id) FROM posthaste.store s
        WHERE s.slot = 4 AND s.ctid >= v_from AND s.ctid < v_to) < p_id THEN
      v_low := v_middle;
    ELSE
      v_high := v_middle;
    END IF;
  END LOOP;
  v_from := format('(%s,0)', greatest(v_low - 64, 0)); v_to := format('(%s,0)', v_high + 64);
  RETURN QUERY SELECT s.* FROM posthaste.store s
    WHERE s.slot = 4 AND s.id = p_id AND s.ctid >= v_from AND s.ctid < v_to;
END $f$;
CREATE OR REPLACE FUNCTION posthaste.rows_near_5(p_id bigint)
RETURNS SETOF posthaste.store LANGUAGE plpgsql STABLE AS $f$
DECLARE
  v_low bigint := 0;
  v_high bigint :=
    pg_relation_size(('posthaste.' || CASE WHEN 5 < 6 THEN 'ready_' ELSE 'scheduled_' END
        || 5)::regclass)
                   / current_setting('block_size')::integer;
  v_middle bigint;
  v_from tid;
  v_to tid;
BEGIN
  WHILE v_high - v_low > 64 LOOP
    v_middle := (v_low + v_high) / 2;
    v_from := format('(%s,0)', v_middle); v_to := format('(%s,0)', v_middle + 8);
    IF (SELECT max(s.id) FROM posthaste.store s
        WHERE s.slot = 5 AND s.ctid >= v_from AND s.ctid < v_to) < p_id THEN
      v_low := v_middle;
    ELSE
      v_high := v_middle;
    END IF;
  END LOOP;
  v_from := format('(%s,0)', greatest(v_low - 64, 0)); v_to := format('(%s,0)', v_high + 64);
  RETURN QUERY SELECT s.* FROM posthaste.store s
    WHERE s.slot = 5 AND s.id = p_id AND s.ctid >= v_from AND s.ctid < v_to;
END $f$;
CREATE OR REPLACE FUNCTION posthaste.rows_near_6(p_id bigint)
RETURNS SETOF posthaste.store LANGUAGE plpgsql STABLE AS $f$
DECLARE
  v_low bigint := 0;
  v_high bigint :=
    pg_relation_size(('posthaste.' || CASE WHEN 6 < 6 THEN 'ready_' ELSE 'scheduled_' END
        || 6)::regclass)
                   / current_setting('block_size')::integer;
  v_middle bigint;
  v_from tid;
  v_to tid;
BEGIN
  WHILE v_high - v_low > 64 LOOP
    v_middle := (v_low + v_high) / 2;
    v_from := format('(%s,0)', v_middle); v_to := format('(%s,0)', v_middle + 8);
    IF (SELECT max(s.id) FROM posthaste.store s
        WHERE s.slot = 6 AND s.ctid >= v_from AND s.ctid < v_to) < p_id THEN
      v_low := v_middle;
    ELSE
      v_high := v_middle;
    END IF;
  END LOOP;
  v_from := format('(%s,0)', greatest(v_low - 64, 0)); v_to := format('(%s,0)', v_high + 64);
  RETURN QUERY SELECT s.* FROM posthaste.store s
    WHERE s.slot = 6 AND s.id = p_id AND s.ctid >= v_from AND s.ctid < v_to;
END $f$;
CREATE OR REPLACE FUNCTION posthaste.rows_near_7(p_id bigint)
RETURNS SETOF posthaste.store LANGUAGE plpgsql STABLE AS $f$
DECLARE
  v_low bigint := 0;
  v_high bigint :=
    pg_relation_size(('posthaste.' || CASE WHEN 7 < 6 THEN 'ready_' ELSE 'scheduled_' END
        || 7)::regclass)
                   / current_setting('block_size')::integer;
  v_middle bigint;
  v_from tid;
  v_to tid;
BEGIN
  WHILE v_high - v_low > 64 LOOP
    v_middle := (v_low + v_high) / 2;
    v_from := format('(%s,0)', v_middle); v_to := format('(%s,0)', v_middle + 8);
    IF (SELECT max(s.id) FROM posthaste.store s
        WHERE s.slot = 7 AND s.ctid >= v_from AND s.ctid < v_to) < p_id THEN
      v_low := v_middle;
    ELSE
      v_high := v_middle;
    END IF;
  END LOOP;
  v_from := format('(%s,0)', greatest(v_low - 64, 0)); v_to := format('(%s,0)', v_high + 64);
  RETURN QUERY SELECT s.* FROM posthaste.store s
    WHERE s.slot = 7 AND s.id = p_id AND s.ctid >= v_from AND s.ctid < v_to;
END $f$;

-- Rows of these jobs in the slots. p_near: only of the first job, at its expected place.
CREATE OR REPLACE FUNCTION posthaste.slot_rows(p_ids bigint[], p_near boolean)
RETURNS SETOF posthaste.slot_row LANGUAGE plpgsql STABLE
SET search_path = pg_catalog, pg_temp AS $f$
BEGIN
  RETURN QUERY SELECT *
    FROM posthaste.slot_row_0(CASE
        WHEN p_near THEN ARRAY(SELECT n FROM posthaste.rows_near_0(p_ids[1]) n)
        ELSE ARRAY(SELECT s FROM posthaste.store s
          WHERE s.slot = 0 AND s.id = ANY (p_ids)) END);
  RETURN QUERY SELECT *
    FROM posthaste.slot_row_1(CASE
        WHEN p_near THEN ARRAY(SELECT n FROM posthaste.rows_near_1(p_ids[1]) n)
        ELSE ARRAY(SELECT s FROM posthaste.store s
          WHERE s.slot = 1 AND s.id = ANY (p_ids)) END);
  RETURN QUERY SELECT *
    FROM posthaste.slot_row_2(CASE
        WHEN p_near THEN ARRAY(SELECT n FROM posthaste.rows_near_2(p_ids[1]) n)
        ELSE ARRAY(SELECT s FROM posthaste.store s
          WHERE s.slot = 2 AND s.id = ANY (p_ids)) END);
  RETURN QUERY SELECT *
    FROM posthaste.slot_row_3(CASE
        WHEN p_near THEN ARRAY(SELECT n FROM posthaste.rows_near_3(p_ids[1]) n)
        ELSE ARRAY(SELECT s FROM posthaste.store s
          WHERE s.slot = 3 AND s.id = ANY (p_ids)) END);
  RETURN QUERY SELECT *
    FROM posthaste.slot_row_4(CASE
        WHEN p_near THEN ARRAY(SELECT n FROM posthaste.rows_near_4(p_ids[1]) n)
        ELSE ARRAY(SELECT s FROM posthaste.store s
          WHERE s.slot = 4 AND s.id = ANY (p_ids)) END);
  RETURN QUERY SELECT *
    FROM posthaste.slot_row_5(CASE
        WHEN p_near THEN ARRAY(SELECT n FROM posthaste.rows_near_5(p_ids[1]) n)
        ELSE ARRAY(SELECT s FROM posthaste.store s
          WHERE s.slot = 5 AND s.id = ANY (p_ids)) END);
  RETURN QUERY SELECT *
    FROM posthaste.slot_row_6(CASE
        WHEN p_near THEN ARRAY(SELECT n FROM posthaste.rows_near_6(p_ids[1]) n)
        ELSE ARRAY(SELECT s FROM posthaste.store s
          WHERE s.slot = 6 AND s.id = ANY (p_ids)) END);
  RETURN QUERY SELECT *
    FROM posthaste.slot_row_7(CASE
        WHEN p_near THEN ARRAY(SELECT n FROM posthaste.rows_near_7(p_ids[1]) n)
        ELSE ARRAY(SELECT s FROM posthaste.store s
          WHERE s.slot = 7 AND s.id = ANY (p_ids)) END);
END $f$;

-- Finds these jobs in one snapshot. Those in flight, dead and retained are found by key. A job that
-- is in none of these tables, and that a slot does not list as dead, is completed.
CREATE OR REPLACE FUNCTION posthaste.find_in_snapshot(p_ids bigint[], p_near boolean)
RETURNS SETOF posthaste.found LANGUAGE plpgsql STABLE
SET search_path = pg_catalog, pg_temp AS $f$
DECLARE
  v_left bigint[] := p_ids;
  v_ids bigint[];
BEGIN
  v_ids := ARRAY(SELECT h.id FROM posthaste.in_flight h WHERE h.id = ANY (v_left));
  RETURN QUERY
    SELECT h.id, h.name, h.queue, h.priority, h.scheduled_at, h.expires_at, h.enqueued_at, h.tag,
           h.kwargs, h.unique_key, h.ordering_key, h.attempt, h.max_attempts,
           h.state, h.last_error, h.worker, w.name, NULL::timestamptz, NULL::timestamptz,
           h.trace
      FROM posthaste.in_flight h LEFT JOIN posthaste.worker w ON w.id = h.worker
        WHERE h.id = ANY (v_ids);
  v_left := ARRAY(SELECT unnest(v_left) EXCEPT SELECT unnest(v_ids));
  v_ids := ARRAY(SELECT d.id FROM posthaste.dead d WHERE d.id = ANY (v_left));
  RETURN QUERY
    SELECT d.id, d.name, d.queue, d.priority, d.scheduled_at, d.expires_at, d.enqueued_at, d.tag,
           d.kwargs, d.unique_key, d.ordering_key, d.attempt, d.max_attempts,
           d.state, d.last_error, NULL::bigint, NULL::text, NULL::timestamptz, d.died_at,
           d.trace
      FROM posthaste.dead d WHERE d.id = ANY (v_ids);
  v_left := ARRAY(SELECT unnest(v_left) EXCEPT SELECT unnest(v_ids));
  v_ids := ARRAY(SELECT f.id FROM posthaste.finished f WHERE f.id = ANY (v_left));
  RETURN QUERY
    SELECT f.id, f.name, f.queue, f.priority, f.scheduled_at, f.expires_at, f.enqueued_at, f.tag,
           f.kwargs, f.unique_key, f.ordering_key, f.attempt, f.max_attempts,
           'completed', f.last_error, f.worker, f.worker_name, NULL::timestamptz, f.ended_at,
           f.trace
      FROM posthaste.finished f WHERE f.id = ANY (v_ids);
  v_left := ARRAY(SELECT unnest(v_left) EXCEPT SELECT unnest(v_ids));
  IF cardinality(v_left) > 0 THEN
    -- The live row, else the one written last. Outcomes 2, 3 and 9 went to posthaste.dead, where
    -- the job was deleted since.
    RETURN QUERY
      SELECT (t.job).id, (t.job).name, coalesce((t.job).own_queue, (t.job).queue),
             coalesce((t.job).own_priority, (t.job).priority),
             CASE WHEN (t.job).scheduled_at = '9999-01-01Z' THEN (t.job).enqueued_at
                 ELSE (t.job).scheduled_at END, (t.job).expires_at, (t.job).enqueued_at,
             (t.job).tag,
             (t.job).kwargs, (t.job).unique_key, (t.job).ordering_key, (t.job).attempt,
             (t.job).max_attempts, coalesce(t.state, 'completed'), (t.job).last_error,
             t.worker, w.name, t.claimed_at, NULL::timestamptz, (t.job).trace
        FROM (SELECT DISTINCT ON ((s.job).id) s.job, s.state, s.outcome,
                     CASE WHEN s.state = 'running' OR s.outcome = 0 THEN s.worker END AS worker,
                     CASE WHEN s.state = 'running'
                         OR s.outcome = 0 THEN s.claimed_at END AS claimed_at
                FROM posthaste.slot_rows(v_left, p_near) s ORDER BY (s.job).id, s.state IS NULL,
                  (s.job).xid DESC) t
        LEFT JOIN posthaste.worker w ON w.id = t.worker
       WHERE t.state IS NOT NULL OR t.outcome NOT IN (2, 3, 9);
  END IF;
END $f$;

-- Finds jobs; no row for a job that is unknown or forgotten. A single job is searched at its
-- expected place first, then everywhere. Jobs that seem to be gone are searched again, because a
-- job that moves while a slot is truncated is invisible in that moment's snapshot.
CREATE OR REPLACE FUNCTION posthaste.find_many(ids bigint[])
RETURNS SETOF posthaste.found LANGUAGE plpgsql
SET jit = off SET plan_cache_mode = force_custom_plan SET search_path = pg_catalog, pg_temp AS $f$
DECLARE
  v_left bigint[] := ids;
  v_found posthaste.found[];
  v_sure bigint[];
BEGIN
  FOR v_try IN CASE WHEN cardinality(ids) = 1 THEN 0 ELSE 1 END .. 2 LOOP
    v_found := ARRAY(SELECT l FROM posthaste.find_in_snapshot(v_left, v_try = 0) l);
    v_sure := ARRAY(SELECT f.id FROM unnest(v_found) f
        WHERE v_try = 2 OR f.state <> 'completed'
        OR coalesce(f.ended_at, f.claimed_at) IS NOT NULL);
    RETURN QUERY SELECT f.* FROM unnest(v_found) f WHERE f.id = ANY (v_sure);
    v_left := ARRAY(SELECT unnest(v_left) EXCEPT SELECT unnest(v_sure));
    EXIT WHEN cardinality(v_left) = 0;
  END LOOP;
END $f$;

-- Finds one job. No index of a slot begins with the id, because every enqueue would pay for it. But
-- each slot has an index that contains it: if the job is not at its expected place, that index is
-- scanned.
CREATE OR REPLACE FUNCTION posthaste.find(job_id bigint)
RETURNS SETOF posthaste.found LANGUAGE sql
SET enable_seqscan = off SET enable_bitmapscan = off SET search_path = pg_catalog, pg_temp AS $f$
  SELECT * FROM posthaste.find_many(ARRAY[job_id])
$f$;
-- History: failed attempts and retained completed jobs, in volumes.

-- The current volume of a shelf.
CREATE OR REPLACE FUNCTION posthaste.volume(shelf text) RETURNS smallint LANGUAGE sql STABLE AS $f$
  SELECT coalesce((SELECT v.slot FROM posthaste.volume v
        WHERE v.shelf = $1 ORDER BY v.began_at DESC NULLS LAST, v.slot LIMIT 1),
                  CASE WHEN $1 = 'long' THEN 4 ELSE 0 END)::smallint
$f$;

-- A completed job as a row of posthaste.finished; no row if its queue retains none.
CREATE OR REPLACE FUNCTION posthaste.to_finished(job posthaste.store, worker bigint)
RETURNS SETOF posthaste.finished LANGUAGE sql STABLE AS $f$
  SELECT job.id, clock_timestamp(), job.enqueued_at, job.scheduled_at, job.expires_at, worker,
         job.priority, job.attempt, job.max_attempts,
         CASE WHEN q.keep <= interval '1 day' THEN (SELECT posthaste.volume('day'))
             ELSE (SELECT posthaste.volume('long')) END,
         job.queue, job.name, job.tag, job.unique_key, job.ordering_key, job.last_error,
         (SELECT w.name FROM posthaste.worker w WHERE w.id = worker), job.trace, job.kwargs
    FROM posthaste.queue q WHERE q.name = job.queue AND q.keep IS NOT NULL
$f$;

-- Retains the jobs of a batch that was closed in one row, if their queue is configured to.
CREATE OR REPLACE FUNCTION posthaste.keep_batch_0(p_batch bigint, p_token uuid)
RETURNS void LANGUAGE sql AS $f$
  INSERT INTO posthaste.finished
  SELECT f.*
    FROM (SELECT c.worker FROM posthaste.claim_0 c JOIN posthaste.queue q ON q.name = c.queue
                    WHERE c.batch = p_batch AND c.token = p_token AND q.keep IS NOT NULL
                      OFFSET 0) c,
                  LATERAL posthaste.batch_rows_0(p_batch, p_token) r,
                  posthaste.to_finished(r, c.worker) f
$f$;
CREATE OR REPLACE FUNCTION posthaste.keep_batch_1(p_batch bigint, p_token uuid)
RETURNS void LANGUAGE sql AS $f$
  INSERT INTO posthaste.finished
  SELECT f.*
    FROM (SELECT c.worker FROM posthaste.claim_1 c JOIN posthaste.queue q ON q.name = c.queue
                    WHERE c.batch = p_batch AND c.token = p_token AND q.keep IS NOT NULL
                      OFFSET 0) c,
                  LATERAL posthaste.batch_rows_1(p_batch, p_token) r,
                  posthaste.to_finished(r, c.worker) f
$f$;
CREATE OR REPLACE FUNCTION posthaste.keep_batch_2(p_batch bigint, p_token uuid)
RETURNS void LANGUAGE sql AS $f$
  INSERT INTO posthaste.finished
  SELECT f.*
    FROM (SELECT c.worker FROM posthaste.claim_2 c JOIN posthaste.queue q ON q.name = c.queue
                    WHERE c.batch = p_batch AND c.token = p_token AND q.keep IS NOT NULL
                      OFFSET 0) c,
                  LATERAL posthaste.batch_rows_2(p_batch, p_token) r,
                  posthaste.to_finished(r, c.worker) f
$f$;
CREATE OR REPLACE FUNCTION posthaste.keep_batch_3(p_batch bigint, p_token uuid)
RETURNS void LANGUAGE sql AS $f$
  INSERT INTO posthaste.finished
  SELECT f.*
    FROM (SELECT c.worker FROM posthaste.claim_3 c JOIN posthaste.queue q ON q.name = c.queue
                    WHERE c.batch = p_batch AND c.token = p_token AND q.keep IS NOT NULL
                      OFFSET 0) c,
                  LATERAL posthaste.batch_rows_3(p_batch, p_token) r,
                  posthaste.to_finished(r, c.worker) f
$f$;
CREATE OR REPLACE FUNCTION posthaste.keep_batch_4(p_batch bigint, p_token uuid)
RETURNS void LANGUAGE sql AS $f$
  INSERT INTO posthaste.finished
  SELECT f.*
    FROM (SELECT c.worker FROM posthaste.claim_4 c JOIN posthaste.queue q ON q.name = c.queue
                    WHERE c.batch = p_batch AND c.token = p_token AND q.keep IS NOT NULL
                      OFFSET 0) c,
                  LATERAL posthaste.batch_rows_4(p_batch, p_token) r,
                  posthaste.to_finished(r, c.worker) f
$f$;
CREATE OR REPLACE FUNCTION posthaste.keep_batch_5(p_batch bigint, p_token uuid)
RETURNS void LANGUAGE sql AS $f$
  INSERT INTO posthaste.finished
  SELECT f.*
    FROM (SELECT c.worker FROM posthaste.claim_5 c JOIN posthaste.queue q ON q.name = c.queue
                    WHERE c.batch = p_batch AND c.token = p_token AND q.keep IS NOT NULL
                      OFFSET 0) c,
                  LATERAL posthaste.batch_rows_5(p_batch, p_token) r,
                  posthaste.to_finished(r, c.worker) f
$f$;

-- Records failed attempts; kinds, attempts, states and errors are those of settle(). Outcomes that
-- count no attempt (a snooze, or a job that expired while waiting) are no failures, except a
-- worker's death (kind 7).
CREATE OR REPLACE FUNCTION posthaste.note_attempts(
  p_jobs posthaste.store[], p_worker bigint, p_ids bigint[], p_kinds smallint[],
  p_attempts integer[], p_states text[], p_errors text[])
RETURNS void LANGUAGE sql AS $f$
  INSERT INTO posthaste.attempt (slot, job, worker, attempt, outcome, queue, name,
      worker_name, error)
  SELECT (SELECT posthaste.volume('attempt')), j.id, p_worker, j.attempt + 1,
         CASE v.kind WHEN 1 THEN 'retried' WHEN 2 THEN v.state ELSE 'crashed' END, j.queue,
         j.name, w.name,
         CASE v.kind WHEN 7 THEN 'its worker died while it had this job' ELSE v.error END
    FROM unnest(p_jobs) j
      JOIN unnest(p_ids, p_kinds, p_attempts, p_states, p_errors) v(id, kind, attempt, state,
        error) ON v.id = j.id
    LEFT JOIN posthaste.worker w ON w.id = p_worker
   WHERE (v.kind = 1 AND v.attempt > j.attempt) OR (v.kind = 2 AND v.state <> 'expired')
     OR v.kind = 7
$f$;

-- The worker of a batch, or of jobs that were moved out of it and are in flight. Called before they
-- are closed.
CREATE OR REPLACE FUNCTION posthaste.worker_of(
  p_slot smallint, p_batch bigint, p_token uuid, p_ids bigint[])
RETURNS bigint LANGUAGE plpgsql STABLE
SET search_path = pg_catalog, pg_temp AS $f$
DECLARE
  v_worker bigint;
BEGIN
  CASE p_slot
    WHEN 0 THEN
      v_worker := (SELECT c.worker FROM posthaste.claim_0 c
        WHERE c.batch = p_batch AND c.token = p_token);
    WHEN 1 THEN
      v_worker := (SELECT c.worker FROM posthaste.claim_1 c
        WHERE c.batch = p_batch AND c.token = p_token);
    WHEN 2 THEN
      v_worker := (SELECT c.worker FROM posthaste.claim_2 c
        WHERE c.batch = p_batch AND c.token = p_token);
    WHEN 3 THEN
      v_worker := (SELECT c.worker FROM posthaste.claim_3 c
        WHERE c.batch = p_batch AND c.token = p_token);
    WHEN 4 THEN
      v_worker := (SELECT c.worker FROM posthaste.claim_4 c
        WHERE c.batch = p_batch AND c.token = p_token);
    WHEN 5 THEN
      v_worker := (SELECT c.worker FROM posthaste.claim_5 c
        WHERE c.batch = p_batch AND c.token = p_token);
    ELSE NULL;
  END CASE;
  RETURN coalesce(v_worker,
      (SELECT h.worker FROM posthaste.in_flight h
        WHERE h.id = ANY (p_ids) AND h.token = p_token LIMIT 1));
END $f$;

-- Truncates volumes older than their shelf's retention, and begins a new one when the current one
-- covers a third of it. A locked volume is kept. o_turned: the number of volumes begun; o_blocker:
-- the holder of a lock for more than a second.
CREATE OR REPLACE FUNCTION posthaste.tidy_history(OUT o_turned integer, OUT o_blocker text)
LANGUAGE plpgsql
SET search_path = pg_catalog, pg_temp AS $f$
DECLARE
  v record;
  v_now timestamptz := clock_timestamp();
  v_retained_until timestamptz := posthaste.retention_clock();
  v_table regclass;
  v_holder text;
  v_has_rows boolean;
BEGIN
  o_turned := 0;
  IF NOT pg_try_advisory_xact_lock(1885893476, 5) THEN
    RETURN;
  END IF;
  -- The clock has stepped back.
  UPDATE posthaste.volume SET began_at = v_now WHERE began_at > v_now;
  -- The oldest of each shelf first: the next can use the space.
  FOR v IN
    SELECT b.shelf, b.slot, k.keep, b.began_at, lead(b.began_at) OVER shelf AS ended_at
      FROM posthaste.volume b, LATERAL (
        SELECT CASE b.shelf WHEN 'attempt' THEN (SELECT s.keep_attempts FROM posthaste.setting s)
            WHEN 'day' THEN interval '1 day'
                            WHEN 'relay' THEN interval '1 hour'
                              ELSE greatest(interval '1 day',
                                (SELECT max(q.keep) FROM posthaste.queue q)) END AS keep) k
     WHERE b.began_at IS NOT NULL WINDOW shelf AS (PARTITION BY b.shelf
         ORDER BY b.began_at, b.slot DESC) ORDER BY b.shelf, b.began_at, b.slot DESC
  LOOP
    v_table := 'posthaste.' || CASE v.shelf WHEN 'attempt' THEN 'attempt_'
        WHEN 'relay' THEN 'relay_' ELSE 'finished_' END || v.slot;
    IF v.ended_at <= v_retained_until - v.keep THEN
      v_holder := posthaste.lock_holder(ARRAY[v_table]);
      IF v_holder IS NULL AND posthaste.empty_volume(v_table) THEN
        UPDATE posthaste.volume SET began_at = NULL WHERE shelf = v.shelf AND slot = v.slot;
      END IF;
      o_blocker := coalesce(o_blocker, v_holder);
    ELSIF v.ended_at IS NULL AND v.began_at <= v_now - v.keep / 3 THEN
      EXECUTE format('SELECT EXISTS (SELECT FROM %s)', v_table) INTO v_has_rows;
      IF v_has_rows THEN
        UPDATE posthaste.volume n SET began_at = v_now
         WHERE (n.shelf, n.slot) = (SELECT f.shelf, f.slot FROM posthaste.volume f
             WHERE f.shelf = v.shelf AND f.began_at IS NULL ORDER BY f.slot LIMIT 1);
        o_turned := o_turned + FOUND::integer;
      END IF;
    END IF;
  END LOOP;
END $f$;

-- Truncates a volume unless it is locked: without waiting, so that no session queues behind this
-- one.
CREATE OR REPLACE FUNCTION posthaste.empty_volume(volume regclass)
RETURNS boolean LANGUAGE plpgsql
SET search_path = pg_catalog, pg_temp AS $f$
BEGIN
  EXECUTE format('LOCK TABLE %s IN ACCESS EXCLUSIVE MODE NOWAIT', volume);
  EXECUTE format('TRUNCATE %s', volume);
  RETURN true;
EXCEPTION WHEN lock_not_available THEN
  RETURN false;
END $f$;
-- Lanes: finds those with unclaimed jobs, and removes unclaimed jobs to move them elsewhere.

-- Whether a lane of this slot has unclaimed jobs.
CREATE OR REPLACE FUNCTION posthaste.pending_0(p_queue text, p_priority integer)
RETURNS boolean LANGUAGE plpgsql AS $f$
DECLARE
  c posthaste.claim_0;
  v_now pg_snapshot := pg_current_snapshot();
BEGIN
  SELECT * INTO c FROM posthaste.claim_0 WHERE queue = p_queue AND priority = p_priority
    ORDER BY queue DESC, priority DESC, batch DESC LIMIT 1;
  IF NOT FOUND THEN
    RETURN true;  -- callers find lanes by their rows, and none of these was claimed
  END IF;
  -- The rest of the last window, then everything that became visible after it.
  RETURN (NOT c.exhausted AND EXISTS (
        SELECT FROM posthaste.ready_0 r WHERE r.queue = p_queue AND r.priority = p_priority
           AND (r.xid, r.id) > (c.to_xid, c.to_id) AND r.xid < pg_snapshot_xmax(c.hi)
           AND NOT pg_visible_in_snapshot(r.xid, c.lo) AND pg_visible_in_snapshot(r.xid, c.hi)))
    OR EXISTS (
        SELECT FROM posthaste.ready_0 r WHERE r.queue = p_queue AND r.priority = p_priority
           AND r.xid >= pg_snapshot_xmax(c.hi) AND pg_visible_in_snapshot(r.xid, v_now))
    OR EXISTS (
        SELECT FROM pg_snapshot_xip(c.hi) p, LATERAL (
          SELECT FROM posthaste.ready_0 r
            WHERE r.queue = p_queue AND r.priority = p_priority AND r.xid = p LIMIT 1) late
         WHERE pg_visible_in_snapshot(p, v_now));
END $f$;
CREATE OR REPLACE FUNCTION posthaste.pending_1(p_queue text, p_priority integer)
RETURNS boolean LANGUAGE plpgsql AS $f$
DECLARE
  c posthaste.claim_1;
  v_now pg_snapshot := pg_current_snapshot();
BEGIN
  SELECT * INTO c FROM posthaste.claim_1 WHERE queue = p_queue AND priority = p_priority
    ORDER BY queue DESC, priority DESC, batch DESC LIMIT 1;
  IF NOT FOUND THEN
    RETURN true;  -- callers find lanes by their rows, and none of these was claimed
  END IF;
  -- The rest of the last window, then everything that became visible after it.
  RETURN (NOT c.exhausted AND EXISTS (
        SELECT FROM posthaste.ready_1 r WHERE r.queue = p_queue AND r.priority = p_priority
           AND (r.xid, r.id) > (c.to_xid, c.to_id) AND r.xid < pg_snapshot_xmax(c.hi)
           AND NOT pg_visible_in_snapshot(r.xid, c.lo) AND pg_visible_in_snapshot(r.xid, c.hi)))
    OR EXISTS (
        SELECT FROM posthaste.ready_1 r WHERE r.queue = p_queue AND r.priority = p_priority
           AND r.xid >= pg_snapshot_xmax(c.hi) AND pg_visible_in_snapshot(r.xid, v_now))
    OR EXISTS (
        SELECT FROM pg_snapshot_xip(c.hi) p, LATERAL (
          SELECT FROM posthaste.ready_1 r
            WHERE r.queue = p_queue AND r.priority = p_priority AND r.xid = p LIMIT 1) late
         WHERE pg_visible_in_snapshot(p, v_now));
END $f$;
CREATE OR REPLACE FUNCTION posthaste.pending_2(p_queue text, p_priority integer)
RETURNS boolean LANGUAGE plpgsql AS $f$
DECLARE
  c posthaste.claim_2;
  v_now pg_snapshot := pg_current_snapshot();
BEGIN
  SELECT * INTO c FROM posthaste.claim_2 WHERE queue = p_queue AND priority = p_priority
    ORDER BY queue DESC, priority DESC, batch DESC LIMIT 1;
  IF NOT FOUND THEN
    RETURN true;  -- callers find lanes by their rows, and none of these was claimed
  END IF;
  -- The rest of the last window, then everything that became visible after it.
  RETURN (NOT c.exhausted AND EXISTS (
        SELECT FROM posthaste.ready_2 r WHERE r.queue = p_queue AND r.priority = p_priority
           AND (r.xid, r.id) > (c.to_xid, c.to_id) AND r.xid < pg_snapshot_xmax(c.hi)
           AND NOT pg_visible_in_snapshot(r.xid, c.lo) AND pg_visible_in_snapshot(r.xid, c.hi)))
    OR EXISTS (
        SELECT FROM posthaste.ready_2 r WHERE r.queue = p_queue AND r.priority = p_priority
           AND r.xid >= pg_snapshot_xmax(c.hi) AND pg_visible_in_snapshot(r.xid, v_now))
    OR EXISTS (
        SELECT FROM pg_snapshot_xip(c.hi) p, LATERAL (
          SELECT FROM posthaste.ready_2 r
            WHERE r.queue = p_queue AND r.priority = p_priority AND r.xid = p LIMIT 1) late
         WHERE pg_visible_in_snapshot(p, v_now));
END $f$;
CREATE OR REPLACE FUNCTION posthaste.pending_3(p_queue text, p_priority integer)
RETURNS boolean LANGUAGE plpgsql AS $f$
DECLARE
  c posthaste.claim_3;
  v_now pg_snapshot := pg_current_snapshot();
BEGIN
  SELECT * INTO c FROM posthaste.claim_3 WHERE queue = p_queue AND priority = p_priority
    ORDER BY queue DESC, priority DESC, batch DESC LIMIT 1;
  IF NOT FOUND THEN
    RETURN true;  -- callers find lanes by their rows, and none of these was claimed
  END IF;
  -- The rest of the last window, then everything that became visible after it.
  RETURN (NOT c.exhausted AND EXISTS (
        SELECT FROM posthaste.ready_3 r WHERE r.queue = p_queue AND r.priority = p_priority
           AND (r.xid, r.id) > (c.to_xid, c.to_id) AND r.xid < pg_snapshot_xmax(c.hi)
           AND NOT pg_visible_in_snapshot(r.xid, c.lo) AND pg_visible_in_snapshot(r.xid, c.hi)))
    OR EXISTS (
        SELECT FROM posthaste.ready_3 r WHERE r.queue = p_queue AND r.priority = p_priority
           AND r.xid >= pg_snapshot_xmax(c.hi) AND pg_visible_in_snapshot(r.xid, v_now))
    OR EXISTS (
        SELECT FROM pg_snapshot_xip(c.hi) p, LATERAL (
          SELECT FROM posthaste.ready_3 r
            WHERE r.queue = p_queue AND r.priority = p_priority AND r.xid = p LIMIT 1) late
         WHERE pg_visible_in_snapshot(p, v_now));
END $f$;
CREATE OR REPLACE FUNCTION posthaste.pending_4(p_queue text, p_priority integer)
RETURNS boolean LANGUAGE plpgsql AS $f$
DECLARE
  c posthaste.claim_4;
  v_now pg_snapshot := pg_current_snapshot();
BEGIN
  SELECT * INTO c FROM posthaste.claim_4 WHERE queue = p_queue AND priority = p_priority
    ORDER BY queue DESC, priority DESC, batch DESC LIMIT 1;
  IF NOT FOUND THEN
    RETURN true;  -- callers find lanes by their rows, and none of these was claimed
  END IF;
  -- The rest of the last window, then everything that became visible after it.
  RETURN (NOT c.exhausted AND EXISTS (
        SELECT FROM posthaste.ready_4 r WHERE r.queue = p_queue AND r.priority = p_priority
           AND (r.xid, r.id) > (c.to_xid, c.to_id) AND r.xid < pg_snapshot_xmax(c.hi)
           AND NOT pg_visible_in_snapshot(r.xid, c.lo) AND pg_visible_in_snapshot(r.xid, c.hi)))
    OR EXISTS (
        SELECT FROM posthaste.ready_4 r WHERE r.queue = p_queue AND r.priority = p_priority
           AND r.xid >= pg_snapshot_xmax(c.hi) AND pg_visible_in_snapshot(r.xid, v_now))
    OR EXISTS (
        SELECT FROM pg_snapshot_xip(c.hi) p, LATERAL (
          SELECT FROM posthaste.ready_4 r
            WHERE r.queue = p_queue AND r.priority = p_priority AND r.xid = p LIMIT 1) late
         WHERE pg_visible_in_snapshot(p, v_now));
END $f$;
CREATE OR REPLACE FUNCTION posthaste.pending_5(p_queue text, p_priority integer)
RETURNS boolean LANGUAGE plpgsql AS $f$
DECLARE
  c posthaste.claim_5;
  v_now pg_snapshot := pg_current_snapshot();
BEGIN
  SELECT * INTO c FROM posthaste.claim_5 WHERE queue = p_queue AND priority = p_priority
    ORDER BY queue DESC, priority DESC, batch DESC LIMIT 1;
  IF NOT FOUND THEN
    RETURN true;  -- callers find lanes by their rows, and none of these was claimed
  END IF;
  -- The rest of the last window, then everything that became visible after it.
  RETURN (NOT c.exhausted AND EXISTS (
        SELECT FROM posthaste.ready_5 r WHERE r.queue = p_queue AND r.priority = p_priority
           AND (r.xid, r.id) > (c.to_xid, c.to_id) AND r.xid < pg_snapshot_xmax(c.hi)
           AND NOT pg_visible_in_snapshot(r.xid, c.lo) AND pg_visible_in_snapshot(r.xid, c.hi)))
    OR EXISTS (
        SELECT FROM posthaste.ready_5 r WHERE r.queue = p_queue AND r.priority = p_priority
           AND r.xid >= pg_snapshot_xmax(c.hi) AND pg_visible_in_snapshot(r.xid, v_now))
    OR EXISTS (
        SELECT FROM pg_snapshot_xip(c.hi) p, LATERAL (
          SELECT FROM posthaste.ready_5 r
            WHERE r.queue = p_queue AND r.priority = p_priority AND r.xid = p LIMIT 1) late
         WHERE pg_visible_in_snapshot(p, v_now));
END $f$;

-- The first lane of this slot with unclaimed jobs, including the internal lanes of queue ''. Costs
-- one index probe per lane.
CREATE OR REPLACE FUNCTION posthaste.pending_lane_0(OUT o_queue text, OUT o_priority integer)
LANGUAGE plpgsql AS $f$
BEGIN
  o_queue := ''; o_priority := -1;
  LOOP
    SELECT r.queue, r.priority INTO o_queue, o_priority FROM posthaste.ready_0 r
     WHERE (r.queue, r.priority) > (o_queue, o_priority) ORDER BY r.queue, r.priority LIMIT 1;
    EXIT WHEN NOT FOUND OR posthaste.pending_0(o_queue, o_priority);
  END LOOP;
END $f$;
CREATE OR REPLACE FUNCTION posthaste.pending_lane_1(OUT o_queue text, OUT o_priority integer)
LANGUAGE plpgsql AS $f$
BEGIN
  o_queue := ''; o_priority := -1;
  LOOP
    SELECT r.queue, r.priority INTO o_queue, o_priority FROM posthaste.ready_1 r
     WHERE (r.queue, r.priority) > (o_queue, o_priority) ORDER BY r.queue, r.priority LIMIT 1;
    EXIT WHEN NOT FOUND OR posthaste.pending_1(o_queue, o_priority);
  END LOOP;
END $f$;
CREATE OR REPLACE FUNCTION posthaste.pending_lane_2(OUT o_queue text, OUT o_priority integer)
LANGUAGE plpgsql AS $f$
BEGIN
  o_queue := ''; o_priority := -1;
  LOOP
    SELECT r.queue, r.priority INTO o_queue, o_priority FROM posthaste.ready_2 r
     WHERE (r.queue, r.priority) > (o_queue, o_priority) ORDER BY r.queue, r.priority LIMIT 1;
    EXIT WHEN NOT FOUND OR posthaste.pending_2(o_queue, o_priority);
  END LOOP;
END $f$;
CREATE OR REPLACE FUNCTION posthaste.pending_lane_3(OUT o_queue text, OUT o_priority integer)
LANGUAGE plpgsql AS $f$
BEGIN
  o_queue := ''; o_priority := -1;
  LOOP
    SELECT r.queue, r.priority INTO o_queue, o_priority FROM posthaste.ready_3 r
     WHERE (r.queue, r.priority) > (o_queue, o_priority) ORDER BY r.queue, r.priority LIMIT 1;
    EXIT WHEN NOT FOUND OR posthaste.pending_3(o_queue, o_priority);
  END LOOP;
END $f$;
CREATE OR REPLACE FUNCTION posthaste.pending_lane_4(OUT o_queue text, OUT o_priority integer)
LANGUAGE plpgsql AS $f$
BEGIN
  o_queue := ''; o_priority := -1;
  LOOP
    SELECT r.queue, r.priority INTO o_queue, o_priority FROM posthaste.ready_4 r
     WHERE (r.queue, r.priority) > (o_queue, o_priority) ORDER BY r.queue, r.priority LIMIT 1;
    EXIT WHEN NOT FOUND OR posthaste.pending_4(o_queue, o_priority);
  END LOOP;
END $f$;
CREATE OR REPLACE FUNCTION posthaste.pending_lane_5(OUT o_queue text, OUT o_priority integer)
LANGUAGE plpgsql AS $f$
BEGIN
  o_queue := ''; o_priority := -1;
  LOOP
    SELECT r.queue, r.priority INTO o_queue, o_priority FROM posthaste.ready_5 r
     WHERE (r.queue, r.priority) > (o_queue, o_priority) ORDER BY r.queue, r.priority LIMIT 1;
    EXIT WHEN NOT FOUND OR posthaste.pending_5(o_queue, o_priority);
  END LOOP;
END $f$;

-- The first lane of a slot with unclaimed jobs.
CREATE OR REPLACE FUNCTION posthaste.pending_lane(
  p_slot integer, OUT o_queue text, OUT o_priority integer)
LANGUAGE plpgsql
SET enable_seqscan = off SET enable_bitmapscan = off SET jit = off
SET search_path = pg_catalog, pg_temp AS $f$
BEGIN
  CASE p_slot
    WHEN 0 THEN SELECT l.* INTO o_queue, o_priority FROM posthaste.pending_lane_0() l;
    WHEN 1 THEN SELECT l.* INTO o_queue, o_priority FROM posthaste.pending_lane_1() l;
    WHEN 2 THEN SELECT l.* INTO o_queue, o_priority FROM posthaste.pending_lane_2() l;
    WHEN 3 THEN SELECT l.* INTO o_queue, o_priority FROM posthaste.pending_lane_3() l;
    WHEN 4 THEN SELECT l.* INTO o_queue, o_priority FROM posthaste.pending_lane_4() l;
    WHEN 5 THEN SELECT l.* INTO o_queue, o_priority FROM posthaste.pending_lane_5() l;
  END CASE;
END $f$;

-- Whether at least this many lanes of a queue have rows in this slot, finished or not. Costs one
-- index probe per lane.
CREATE OR REPLACE FUNCTION posthaste.has_lanes_0(p_queue text, p_lanes integer)
RETURNS boolean LANGUAGE plpgsql AS $f$
DECLARE
  v_priority bigint := -2147483649;
BEGIN
  FOR i IN 1 .. p_lanes LOOP
    v_priority := posthaste.next_priority_0(p_queue, v_priority, 2147483648);
    IF v_priority IS NULL THEN
      RETURN false;
    END IF;
  END LOOP;
  RETURN true;
END $f$;
CREATE OR REPLACE FUNCTION posthaste.has_lanes_1(p_queue text, p_lanes integer)
RETURNS boolean LANGUAGE plpgsql AS $f$
DECLARE
  v_priority bigint := -2147483649;
BEGIN
  FOR i IN 1 .. p_lanes LOOP
    v_priority := posthaste.next_priority_1(p_queue, v_priority, 2147483648);
    IF v_priority IS NULL THEN
      RETURN false;
    END IF;
  END LOOP;
  RETURN true;
END $f$;
CREATE OR REPLACE FUNCTION posthaste.has_lanes_2(p_queue text, p_lanes integer)
RETURNS boolean LANGUAGE plpgsql AS $f$
DECLARE
  v_priority bigint := -2147483649;
BEGIN
  FOR i IN 1 .. p_lanes LOOP
    v_priority := posthaste.next_priority_2(p_queue, v_priority, 2147483648);
    IF v_priority IS NULL THEN
      RETURN false;
    END IF;
  END LOOP;
  RETURN true;
END $f$;
CREATE OR REPLACE FUNCTION posthaste.has_lanes_3(p_queue text, p_lanes integer)
RETURNS boolean LANGUAGE plpgsql AS $f$
DECLARE
  v_priority bigint := -2147483649;
BEGIN
  FOR i IN 1 .. p_lanes LOOP
    v_priority := posthaste.next_priority_3(p_queue, v_priority, 2147483648);
    IF v_priority IS NULL THEN
      RETURN false;
    END IF;
  END LOOP;
  RETURN true;
END $f$;
CREATE OR REPLACE FUNCTION posthaste.has_lanes_4(p_queue text, p_lanes integer)
RETURNS boolean LANGUAGE plpgsql AS $f$
DECLARE
  v_priority bigint := -2147483649;
BEGIN
  FOR i IN 1 .. p_lanes LOOP
    v_priority := posthaste.next_priority_4(p_queue, v_priority, 2147483648);
    IF v_priority IS NULL THEN
      RETURN false;
    END IF;
  END LOOP;
  RETURN true;
END $f$;
CREATE OR REPLACE FUNCTION posthaste.has_lanes_5(p_queue text, p_lanes integer)
RETURNS boolean LANGUAGE plpgsql AS $f$
DECLARE
  v_priority bigint := -2147483649;
BEGIN
  FOR i IN 1 .. p_lanes LOOP
    v_priority := posthaste.next_priority_5(p_queue, v_priority, 2147483648);
    IF v_priority IS NULL THEN
      RETURN false;
    END IF;
  END LOOP;
  RETURN true;
END $f$;

-- Whether some queue has this many lanes in this slot.
CREATE OR REPLACE FUNCTION posthaste.has_lanes(p_slot integer, p_lanes integer)
RETURNS boolean LANGUAGE plpgsql
SET enable_seqscan = off SET enable_bitmapscan = off SET jit = off
SET search_path = pg_catalog, pg_temp AS $f$
DECLARE
  v_queue text;
BEGIN
  FOR v_queue IN
    SELECT l.queue FROM posthaste.lane l GROUP BY l.queue HAVING count(*) >= p_lanes
  LOOP
    CASE p_slot
      WHEN 0 THEN IF posthaste.has_lanes_0(v_queue, p_lanes) THEN RETURN true; END IF;
      WHEN 1 THEN IF posthaste.has_lanes_1(v_queue, p_lanes) THEN RETURN true; END IF;
      WHEN 2 THEN IF posthaste.has_lanes_2(v_queue, p_lanes) THEN RETURN true; END IF;
      WHEN 3 THEN IF posthaste.has_lanes_3(v_queue, p_lanes) THEN RETURN true; END IF;
      WHEN 4 THEN IF posthaste.has_lanes_4(v_queue, p_lanes) THEN RETURN true; END IF;
      WHEN 5 THEN IF posthaste.has_lanes_5(v_queue, p_lanes) THEN RETURN true; END IF;
    END CASE;
  END LOOP;
  RETURN false;
END $f$;

-- Forgets lanes without a row in any slot, of queues with more than 32 known lanes: each known lane
-- costs a probe at each poll.
CREATE OR REPLACE FUNCTION posthaste.forget_lanes() RETURNS void LANGUAGE plpgsql
SET enable_seqscan = off SET enable_hashjoin = off SET jit = off
SET search_path = pg_catalog, pg_temp AS $f$
BEGIN
  DELETE FROM posthaste.lane l
   WHERE l.queue IN (SELECT m.queue FROM posthaste.lane m GROUP BY m.queue HAVING count(*) > 32)
     AND NOT EXISTS (SELECT FROM posthaste.ready_0 r
                      WHERE r.queue = l.queue AND r.priority = l.priority)
     AND NOT EXISTS (SELECT FROM posthaste.ready_1 r
                      WHERE r.queue = l.queue AND r.priority = l.priority)
     AND NOT EXISTS (SELECT FROM posthaste.ready_2 r
                      WHERE r.queue = l.queue AND r.priority = l.priority)
     AND NOT EXISTS (SELECT FROM posthaste.ready_3 r
                      WHERE r.queue = l.queue AND r.priority = l.priority)
     AND NOT EXISTS (SELECT FROM posthaste.ready_4 r
                      WHERE r.queue = l.queue AND r.priority = l.priority)
     AND NOT EXISTS (SELECT FROM posthaste.ready_5 r
                      WHERE r.queue = l.queue AND r.priority = l.priority)
  ;
END $f$;

-- Removes up to p_limit unclaimed jobs of a lane from this slot, in the lane's order, by claiming
-- them as worker 0; the caller's transaction writes them elsewhere. Expired jobs among them are
-- stored as expired and not returned.
CREATE OR REPLACE FUNCTION posthaste.remove_unclaimed_0(
  p_queue text, p_priority integer, p_limit integer)
RETURNS SETOF posthaste.store LANGUAGE plpgsql AS $f$
DECLARE
  v_token uuid := gen_random_uuid();
  v_batch bigint;
BEGIN
  IF NOT posthaste.lane_has_work_0(p_queue, p_priority, 0) THEN
    RETURN;
  END IF;
  PERFORM posthaste.hold_lane(p_queue, p_priority);
  v_batch := (SELECT o_batch
      FROM posthaste.claim_0(p_queue, p_priority, 0, v_token, p_limit, 67108864, false,
        posthaste.cursor_snapshot()));
  IF v_batch IS NOT NULL THEN
    RETURN QUERY SELECT r.* FROM posthaste.batch_rows_0(v_batch, v_token) r
                  WHERE NOT EXISTS (SELECT FROM posthaste.job_done_0 k
                      WHERE k.xid = r.xid AND k.id = r.id);
    INSERT INTO posthaste.batch_done_0 (batch, outcome) VALUES (v_batch, 5);
  END IF;
END $f$;
CREATE OR REPLACE FUNCTION posthaste.remove_unclaimed_1(
  p_queue text, p_priority integer, p_limit integer)
RETURNS SETOF posthaste.store LANGUAGE plpgsql AS $f$
DECLARE
  v_token uuid := gen_random_uuid();
  v_batch bigint;
BEGIN
  IF NOT posthaste.lane_has_work_1(p_queue, p_priority, 0) THEN
    RETURN;
  END IF;
  PERFORM posthaste.hold_lane(p_queue, p_priority);
  v_batch := (SELECT o_batch
      FROM posthaste.claim_1(p_queue, p_priority, 0, v_token, p_limit, 67108864, false,
        posthaste.cursor_snapshot()));
  IF v_batch IS NOT NULL THEN
    RETURN QUERY SELECT r.* FROM posthaste.batch_rows_1(v_batch, v_token) r
                  WHERE NOT EXISTS (SELECT FROM posthaste.job_done_1 k
                      WHERE k.xid = r.xid AND k.id = r.id);
    INSERT INTO posthaste.batch_done_1 (batch, outcome) VALUES (v_batch, 5);
  END IF;
END $f$;
CREATE OR REPLACE FUNCTION posthaste.remove_unclaimed_2(
  p_queue text, p_priority integer, p_limit integer)
RETURNS SETOF posthaste.store LANGUAGE plpgsql AS $f$
DECLARE
  v_token uuid := gen_random_uuid();
  v_batch bigint;
BEGIN
  IF NOT posthaste.lane_has_work_2(p_queue, p_priority, 0) THEN
    RETURN;
  END IF;
  PERFORM posthaste.hold_lane(p_queue, p_priority);
  v_batch := (SELECT o_batch
      FROM posthaste.claim_2(p_queue, p_priority, 0, v_token, p_limit, 67108864, false,
        posthaste.cursor_snapshot()));
  IF v_batch IS NOT NULL THEN
    RETURN QUERY SELECT r.* FROM posthaste.batch_rows_2(v_batch, v_token) r
                  WHERE NOT EXISTS (SELECT FROM posthaste.job_done_2 k
                      WHERE k.xid = r.xid AND k.id = r.id);
    INSERT INTO posthaste.batch_done_2 (batch, outcome) VALUES (v_batch, 5);
  END IF;
END $f$;
CREATE OR REPLACE FUNCTION posthaste.remove_unclaimed_3(
  p_queue text, p_priority integer, p_limit integer)
RETURNS SETOF posthaste.store LANGUAGE plpgsql AS $f$
DECLARE
  v_token uuid := gen_random_uuid();
  v_batch bigint;
BEGIN
  IF NOT posthaste.lane_has_work_3(p_queue, p_priority, 0) THEN
    RETURN;
  END IF;
  PERFORM posthaste.hold_lane(p_queue, p_priority);
  v_batch := (SELECT o_batch
      FROM posthaste.claim_3(p_queue, p_priority, 0, v_token, p_limit, 67108864, false,
        posthaste.cursor_snapshot()));
  IF v_batch IS NOT NULL THEN
    RETURN QUERY SELECT r.* FROM posthaste.batch_rows_3(v_batch, v_token) r
                  WHERE NOT EXISTS (SELECT FROM posthaste.job_done_3 k
                      WHERE k.xid = r.xid AND k.id = r.id);
    INSERT INTO posthaste.batch_done_3 (batch, outcome) VALUES (v_batch, 5);
  END IF;
END $f$;
CREATE OR REPLACE FUNCTION posthaste.remove_unclaimed_4(
  p_queue text, p_priority integer, p_limit integer)
RETURNS SETOF posthaste.store LANGUAGE plpgsql AS $f$
DECLARE
  v_token uuid := gen_random_uuid();
  v_batch bigint;
BEGIN
  IF NOT posthaste.lane_has_work_4(p_queue, p_priority, 0) THEN
    RETURN;
  END IF;
  PERFORM posthaste.hold_lane(p_queue, p_priority);
  v_batch := (SELECT o_batch
      FROM posthaste.claim_4(p_queue, p_priority, 0, v_token, p_limit, 67108864, false,
        posthaste.cursor_snapshot()));
  IF v_batch IS NOT NULL THEN
    RETURN QUERY SELECT r.* FROM posthaste.batch_rows_4(v_batch, v_token) r
                  WHERE NOT EXISTS (SELECT FROM posthaste.job_done_4 k
                      WHERE k.xid = r.xid AND k.id = r.id);
    INSERT INTO posthaste.batch_done_4 (batch, outcome) VALUES (v_batch, 5);
  END IF;
END $f$;
CREATE OR REPLACE FUNCTION posthaste.remove_unclaimed_5(
  p_queue text, p_priority integer, p_limit integer)
RETURNS SETOF posthaste.store LANGUAGE plpgsql AS $f$
DECLARE
  v_token uuid := gen_random_uuid();
  v_batch bigint;
BEGIN
  IF NOT posthaste.lane_has_work_5(p_queue, p_priority, 0) THEN
    RETURN;
  END IF;
  PERFORM posthaste.hold_lane(p_queue, p_priority);
  v_batch := (SELECT o_batch
      FROM posthaste.claim_5(p_queue, p_priority, 0, v_token, p_limit, 67108864, false,
        posthaste.cursor_snapshot()));
  IF v_batch IS NOT NULL THEN
    RETURN QUERY SELECT r.* FROM posthaste.batch_rows_5(v_batch, v_token) r
                  WHERE NOT EXISTS (SELECT FROM posthaste.job_done_5 k
                      WHERE k.xid = r.xid AND k.id = r.id);
    INSERT INTO posthaste.batch_done_5 (batch, outcome) VALUES (v_batch, 5);
  END IF;
END $f$;

-- Removes unclaimed jobs of a lane from a slot.
CREATE OR REPLACE FUNCTION posthaste.remove_unclaimed(
  p_slot integer, p_queue text, p_priority integer, p_limit integer)
RETURNS SETOF posthaste.store LANGUAGE plpgsql
SET enable_seqscan = off SET enable_bitmapscan = off SET enable_hashjoin = off
SET enable_mergejoin = off SET jit = off SET plan_cache_mode = force_generic_plan
SET search_path = pg_catalog, pg_temp AS $f$
BEGIN
  CASE p_slot
    WHEN 0 THEN
      RETURN QUERY SELECT * FROM posthaste.remove_unclaimed_0(p_queue, p_priority, p_limit);
    WHEN 1 THEN
      RETURN QUERY SELECT * FROM posthaste.remove_unclaimed_1(p_queue, p_priority, p_limit);
    WHEN 2 THEN
      RETURN QUERY SELECT * FROM posthaste.remove_unclaimed_2(p_queue, p_priority, p_limit);
    WHEN 3 THEN
      RETURN QUERY SELECT * FROM posthaste.remove_unclaimed_3(p_queue, p_priority, p_limit);
    WHEN 4 THEN
      RETURN QUERY SELECT * FROM posthaste.remove_unclaimed_4(p_queue, p_priority, p_limit);
    WHEN 5 THEN
      RETURN QUERY SELECT * FROM posthaste.remove_unclaimed_5(p_queue, p_priority, p_limit);
  END CASE;
END $f$;
-- Maintenance: functions that its duties share. Each duty is one short transaction under an
-- advisory lock, so that a second leader finds it taken and continues. Nothing here waits for a
-- user's transaction: locks are tried, not awaited, and locked rows are skipped.
--
-- Duty locks (1885893476, n): 1 the ready log (rotate, seal, overflow, reclaim)   2 the scheduled
-- slots   3 rescue   4 expiry   5 history   6 counting   7 samples

-- Applies the settings of a maintenance transaction to a statement that is sent without a block.
-- The isolation level can no longer be changed, so another one is rejected.
CREATE OR REPLACE FUNCTION posthaste.begin_single_statement()
RETURNS boolean LANGUAGE plpgsql STABLE AS $f$
DECLARE
  v_isolation text := current_setting('transaction_isolation'::text);
BEGIN
  IF v_isolation <> 'read committed'::text THEN
    RAISE EXCEPTION 'posthaste: a statement that is sent alone needs READ COMMITTED, not %',
      v_isolation
      USING ERRCODE = 'invalid_transaction_state';
  END IF;
  RETURN set_config('lock_timeout'::text, '1s'::text, true) IS NOT NULL
     AND set_config('jit'::text, 'off'::text, true) IS NOT NULL
     AND set_config('search_path'::text, 'pg_catalog, pg_temp'::text, true) IS NOT NULL;
END $f$;

-- The holder of a lock on one of these tables, or of this advisory lock, whose transaction is older
-- than a second: a session by its pid, a prepared transaction by its gid. NULL if there is none.
CREATE OR REPLACE FUNCTION posthaste.lock_holder(
  p_tables regclass[], p_class bigint DEFAULT NULL, p_number bigint DEFAULT NULL)
RETURNS text LANGUAGE sql STABLE AS $f$
  SELECT coalesce('session ' || l.pid, 'the prepared transaction ' || x.gid,
      'a prepared transaction')
    FROM pg_locks l LEFT JOIN pg_stat_activity a ON a.pid = l.pid
         LEFT JOIN pg_locks t ON l.pid IS NULL AND t.pid IS NULL AND t.locktype = 'transactionid'
           AND t.virtualtransaction = l.virtualtransaction
         LEFT JOIN pg_prepared_xacts x ON x.transaction = t.transactionid
   WHERE l.granted AND l.database = (SELECT oid FROM pg_database WHERE datname = current_database())
     AND l.pid IS DISTINCT FROM pg_backend_pid()
     AND (l.relation = ANY (p_tables) OR l.locktype = 'advisory' AND l.classid::bigint = p_class
         AND l.objid::bigint = p_number)
     AND coalesce(a.xact_start, x.prepared, '-infinity') < clock_timestamp() - interval '1 s'
       LIMIT 1
$f$;

-- The clock for deleting old data: it follows a clock that jumps ahead by only a minute for each
-- renewal of the lease, which is more than twenty times real time, and one that steps back at once.
-- After a week without a leader, old data is deleted within some hours; a clock that is a year
-- ahead for ten minutes costs four hours of history.
CREATE OR REPLACE FUNCTION posthaste.retention_clock()
RETURNS timestamptz LANGUAGE sql STABLE AS $f$
  SELECT least(clock_timestamp(), (SELECT l.retention_clock FROM posthaste.leader l))
$f$;

-- Deletes unused confirmations and workers that stopped long ago.
CREATE OR REPLACE FUNCTION posthaste.prune() RETURNS void LANGUAGE sql
SET search_path = pg_catalog, pg_temp AS $f$
  DELETE FROM posthaste.confirmed c
   WHERE c.confirmed_at < posthaste.retention_clock() - interval '1 day'
     AND NOT EXISTS (SELECT FROM posthaste.in_flight h WHERE h.id = c.id);
  DELETE FROM posthaste.worker w WHERE w.stopped_at < posthaste.retention_clock() - interval '1 day'
     AND NOT EXISTS (SELECT FROM posthaste.in_flight h WHERE h.worker = w.id)
$f$;

-- Corrects future timestamps of past events, left by a clock that was ahead: otherwise something
-- would be awaited, kept or notified for as long as the clock stepped back. Called when a leader
-- begins, and once a minute; returns the number found. Times requested by programs stay.
CREATE OR REPLACE FUNCTION posthaste.correct_future_times() RETURNS bigint LANGUAGE plpgsql
SET search_path = pg_catalog, pg_temp AS $f$
DECLARE
  v_now timestamptz := clock_timestamp();
  v_past timestamptz := v_now + interval '1 s';
  v_found bigint;
BEGIN
  WITH workers AS (
    UPDATE posthaste.worker w SET seen_at = least(w.seen_at, v_now),
           stopped_at = CASE WHEN w.stopped_at IS NOT NULL THEN least(w.stopped_at, v_now) END
     WHERE w.seen_at > v_past OR w.stopped_at > v_past RETURNING 1),
  cancelling AS (
    UPDATE posthaste.cancelling c SET asked_at = v_now WHERE c.asked_at > v_past RETURNING 1),
  confirmed AS (
    UPDATE posthaste.confirmed c SET confirmed_at = v_now
     WHERE c.confirmed_at > v_past RETURNING 1),
  -- A quarantined job waits for at most five minutes (functions/rescue.sql).
  quarantined AS (
    UPDATE posthaste.in_flight h SET until = v_now
     WHERE h.state = 'quarantined' AND h.until > v_now + interval '6 min' RETURNING 1),
  inbox AS (
    UPDATE posthaste.inbox i SET received_at = v_now
     WHERE i.delivery_id IN (SELECT o.delivery_id FROM posthaste.inbox o
                              WHERE o.received_at > v_past LIMIT 10000) RETURNING 1),
  -- A console drives an action, or pauses it, for at most half a minute.
  driven AS (
    UPDATE posthaste.bulk_action b SET driven_until = v_now
     WHERE b.state = 'running' AND b.driven_until > v_now + interval '1 min' RETURNING 1),
  found AS (
    SELECT FROM workers UNION ALL SELECT FROM cancelling UNION ALL SELECT FROM confirmed
    UNION ALL SELECT FROM quarantined UNION ALL SELECT FROM inbox UNION ALL SELECT FROM driven)
  SELECT count(*) INTO v_found FROM found;
  -- A sleeping worker renews its notifications before this time.
  IF pg_sequence_last_value('posthaste.listeners_until'::regclass) > extract(epoch FROM v_now) + 600
     AND pg_try_advisory_xact_lock(1885893480, 0) THEN
    PERFORM setval('posthaste.listeners_until', ceil(extract(epoch FROM v_now))::bigint + 30);
    v_found := v_found + 1;
  END IF;
  RETURN v_found;
END $f$;

-- Deletes old rows of the inbox, up to 10,000; returns their number.
CREATE OR REPLACE FUNCTION posthaste.prune_inbox() RETURNS bigint LANGUAGE sql
SET search_path = pg_catalog, pg_temp AS $f$
  WITH gone AS (
    DELETE FROM posthaste.inbox i USING (
      SELECT o.delivery_id FROM posthaste.inbox o
       WHERE o.received_at < posthaste.retention_clock()
                             - (SELECT s.keep_inbox FROM posthaste.setting s)
       ORDER BY o.received_at LIMIT 10000 FOR UPDATE SKIP LOCKED) o
     WHERE i.delivery_id = o.delivery_id RETURNING 1)
  SELECT count(*) FROM gone
$f$;
-- Counters: how many jobs there are, and of which kind, without reading them all
-- (decision 16 in docs/why/decisions.md).
--
-- The leader counts each job once, after it was enqueued, and writes sums, each with the snapshot
-- or cursor up to which it holds. A reader (functions/counts.sql) takes the newest sum and counts
-- only the rows added since. So the counters are always exact, and fast once the leader has caught
-- up; without a leader they are exact and slow. Nothing is updated or deleted: sums are stored in
-- tables of their slot and truncated with it.

-- Whether everything visible in one snapshot is visible in another.
CREATE OR REPLACE FUNCTION posthaste.is_subset(inner_one pg_snapshot, outer_one pg_snapshot)
RETURNS boolean LANGUAGE plpgsql STABLE
SET search_path = pg_catalog, pg_temp AS $f$
BEGIN
  IF pg_snapshot_xmax(inner_one) > pg_snapshot_xmax(outer_one) THEN
    RETURN false;
  END IF;
  IF pg_snapshot_xmin(outer_one) >= pg_snapshot_xmax(inner_one) THEN
    RETURN true;
  END IF;
  RETURN NOT EXISTS (SELECT FROM pg_snapshot_xip(outer_one) x
      WHERE pg_visible_in_snapshot(x, inner_one));
END $f$;

-- Whether a lane's claims have taken everything that a mark counted: rows up to this one that are
-- visible in hi.
CREATE OR REPLACE FUNCTION posthaste.mark_passed(
  max_xid xid8, max_id bigint, hi pg_snapshot, c_lo pg_snapshot, c_hi pg_snapshot, c_xid xid8,
  c_id bigint, c_exhausted boolean)
RETURNS boolean LANGUAGE sql STABLE AS $f$
  SELECT ((c_exhausted OR (max_xid, max_id) <= (c_xid, c_id)) AND posthaste.is_subset(hi, c_hi))
    OR posthaste.is_subset(hi, c_lo)
$f$;

-- The rows of a lane after a cursor, up to and including (p_to_xid, p_to_id). Each part is one
-- exact index range, as in batch_rows_k. The caller decides about visibility.
CREATE OR REPLACE FUNCTION posthaste.rows_after_0(
  p_queue text, p_priority integer, p_lo pg_snapshot, p_hi pg_snapshot, p_xid xid8, p_id bigint,
  p_exhausted boolean, p_to_xid xid8, p_to_id bigint)
RETURNS SETOF posthaste.store LANGUAGE sql STABLE AS $f$
  SELECT r.* FROM (
    SELECT CASE WHEN p_exhausted THEN pg_snapshot_xmax(p_hi)
        ELSE greatest(p_xid, pg_snapshot_xmax(p_lo)) END AS xid,
           CASE WHEN p_exhausted OR p_xid < pg_snapshot_xmax(p_lo) THEN -1 ELSE p_id END AS id
             OFFSET 0) low,
  LATERAL (
    SELECT late.*
      FROM (SELECT pg_snapshot_xip(p_lo) AS p UNION SELECT pg_snapshot_xip(p_hi)) x, LATERAL (
      SELECT r.* FROM posthaste.ready_0 r
        WHERE r.queue = p_queue AND r.priority = p_priority AND r.xid = x.p
         AND r.id > CASE WHEN x.p = p_xid AND NOT p_exhausted THEN p_id ELSE -1 END
         AND r.id <= CASE WHEN x.p = p_to_xid THEN p_to_id ELSE 9223372036854775807 END
           OFFSET 0) late
     WHERE x.p < low.xid AND x.p <= p_to_xid
       AND NOT posthaste.is_claimed(late.xid, late.id, p_lo, p_hi, p_xid, p_id, p_exhausted)
    UNION ALL
    (SELECT r.* FROM posthaste.ready_0 r
        WHERE r.queue = p_queue AND r.priority = p_priority AND r.xid = low.xid AND r.id > low.id
        AND r.id <= CASE WHEN low.xid < p_to_xid THEN 9223372036854775807
            WHEN low.xid = p_to_xid THEN p_to_id ELSE -1 END OFFSET 0)
    UNION ALL
    (SELECT r.* FROM posthaste.ready_0 r
        WHERE r.queue = p_queue AND r.priority = p_priority AND r.xid > low.xid
        AND r.xid < p_to_xid OFFSET 0)
    UNION ALL
    (SELECT r.* FROM posthaste.ready_0 r
        WHERE r.queue = p_queue AND r.priority = p_priority AND r.xid = p_to_xid
        AND p_to_xid > low.xid AND r.id <= p_to_id OFFSET 0)
  ) r
$f$;
CREATE OR REPLACE FUNCTION posthaste.rows_after_1(
  p_queue text, p_priority integer, p_lo pg_snapshot, p_hi pg_snapshot, p_xid xid8, p_id bigint,
  p_exhausted boolean, p_to_xid xid8, p_to_id bigint)
RETURNS SETOF posthaste.store LANGUAGE sql STABLE AS $f$
  SELECT r.* FROM (
    SELECT CASE WHEN p_exhausted THEN pg_snapshot_xmax(p_hi)
        ELSE greatest(p_xid, pg_snapshot_xmax(p_lo)) END AS xid,
           CASE WHEN p_exhausted OR p_xid < pg_snapshot_xmax(p_lo) THEN -1 ELSE p_id END AS id
             OFFSET 0) low,
  LATERAL (
    SELECT late.*
      FROM (SELECT pg_snapshot_xip(p_lo) AS p UNION SELECT pg_snapshot_xip(p_hi)) x, LATERAL (
      SELECT r.* FROM posthaste.ready_1 r
        WHERE r.queue = p_queue AND r.priority = p_priority AND r.xid = x.p
         AND r.id > CASE WHEN x.p = p_xid AND NOT p_exhausted THEN p_id ELSE -1 END
         AND r.id <= CASE WHEN x.p = p_to_xid THEN p_to_id ELSE 9223372036854775807 END
           OFFSET 0) late
     WHERE x.p < low.xid AND x.p <= p_to_xid
       AND NOT posthaste.is_claimed(late.xid, late.id, p_lo, p_hi, p_xid, p_id, p_exhausted)
    UNION ALL
    (SELECT r.* FROM posthaste.ready_1 r
        WHERE r.queue = p_queue AND r.priority = p_priority AND r.xid = low.xid AND r.id > low.id
        AND r.id <= CASE WHEN low.xid < p_to_xid THEN 9223372036854775807
            WHEN low.xid = p_to_xid THEN p_to_id ELSE -1 END OFFSET 0)
    UNION ALL
    (SELECT r.* FROM posthaste.ready_1 r
        WHERE r.queue = p_queue AND r.priority = p_priority AND r.xid > low.xid
        AND r.xid < p_to_xid OFFSET 0)
    UNION ALL
    (SELECT r.* FROM posthaste.ready_1 r
        WHERE r.queue = p_queue AND r.priority = p_priority AND r.xid = p_to_xid
        AND p_to_xid > low.xid AND r.id <= p_to_id OFFSET 0)
  ) r
$f$;
CREATE OR REPLACE FUNCTION posthaste.rows_after_2(
  p_queue text, p_priority integer, p_lo pg_snapshot, p_hi pg_snapshot, p_xid xid8, p_id bigint,
  p_exhausted boolean, p_to_xid xid8, p_to_id bigint)
RETURNS SETOF posthaste.store LANGUAGE sql STABLE AS $f$
  SELECT r.* FROM (
    SELECT CASE WHEN p_exhausted THEN pg_snapshot_xmax(p_hi)
        ELSE greatest(p_xid, pg_snapshot_xmax(p_lo)) END AS xid,
           CASE WHEN p_exhausted OR p_xid < pg_snapshot_xmax(p_lo) THEN -1 ELSE p_id END AS id
             OFFSET 0) low,
  LATERAL (
    SELECT late.*
      FROM (SELECT pg_snapshot_xip(p_lo) AS p UNION SELECT pg_snapshot_xip(p_hi)) x, LATERAL (
      SELECT r.* FROM posthaste.ready_2 r
        WHERE r.queue = p_queue AND r.priority = p_priority AND r.xid = x.p
         AND r.id > CASE WHEN x.p = p_xid AND NOT p_exhausted THEN p_id ELSE -1 END
         AND r.id <= CASE WHEN x.p = p_to_xid THEN p_to_id ELSE 9223372036854775807 END
           OFFSET 0) late
     WHERE x.p < low.xid AND x.p <= p_to_xid
       AND NOT posthaste.is_claimed(late.xid, late.id, p_lo, p_hi, p_xid, p_id, p_exhausted)
    UNION ALL
    (SELECT r.* FROM posthaste.ready_2 r
        WHERE r.queue = p_queue AND r.priority = p_priority AND r.xid = low.xid AND r.id > low.id
        AND r.id <= CASE WHEN low.xid < p_to_xid THEN 9223372036854775807
            WHEN low.xid = p_to_xid THEN p_to_id ELSE -1 END OFFSET 0)
    UNION ALL
    (SELECT r.* FROM posthaste.ready_2 r
        WHERE r.queue = p_queue AND r.priority = p_priority AND r.xid > low.xid
        AND r.xid < p_to_xid OFFSET 0)
    UNION ALL
    (SELECT r.* FROM posthaste.ready_2 r
        WHERE r.queue = p_queue AND r.priority = p_priority AND r.xid = p_to_xid
        AND p_to_xid > low.xid AND r.id <= p_to_id OFFSET 0)
  ) r
$f$;
CREATE OR REPLACE FUNCTION posthaste.rows_after_3(
  p_queue text, p_priority integer, p_lo pg_snapshot, p_hi pg_snapshot, p_xid xid8, p_id bigint,
  p_exhausted boolean, p_to_xid xid8, p_to_id bigint)
RETURNS SETOF posthaste.store LANGUAGE sql STABLE AS $f$
  SELECT r.* FROM (
    SELECT CASE WHEN p_exhausted THEN pg_snapshot_xmax(p_hi)
        ELSE greatest(p_xid, pg_snapshot_xmax(p_lo)) END AS xid,
           CASE WHEN p_exhausted OR p_xid < pg_snapshot_xmax(p_lo) THEN -1 ELSE p_id END AS id
             OFFSET 0) low,
  LATERAL (
    SELECT late.*
      FROM (SELECT pg_snapshot_xip(p_lo) AS p UNION SELECT pg_snapshot_xip(p_hi)) x, LATERAL (
      SELECT r.* FROM posthaste.ready_3 r
        WHERE r.queue = p_queue AND r.priority = p_priority AND r.xid = x.p
         AND r.id > CASE WHEN x.p = p_xid AND NOT p_exhausted THEN p_id ELSE -1 END
         AND r.id <= CASE WHEN x.p = p_to_xid THEN p_to_id ELSE 9223372036854775807 END
           OFFSET 0) late
     WHERE x.p < low.xid AND x.p <= p_to_xid
       AND NOT posthaste.is_claimed(late.xid, late.id, p_lo, p_hi, p_xid, p_id, p_exhausted)
    UNION ALL
    (SELECT r.* FROM posthaste.ready_3 r
        WHERE r.queue = p_queue AND r.priority = p_priority AND r.xid = low.xid AND r.id > low.id
        AND r.id <= CASE WHEN low.xid < p_to_xid THEN 9223372036854775807
            WHEN low.xid = p_to_xid THEN p_to_id ELSE -1 END OFFSET 0)
    UNION ALL
    (SELECT r.* FROM posthaste.ready_3 r
        WHERE r.queue = p_queue AND r.priority = p_priority AND r.xid > low.xid
        AND r.xid < p_to_xid OFFSET 0)
    UNION ALL
    (SELECT r.* FROM posthaste.ready_3 r
        WHERE r.queue = p_queue AND r.priority = p_priority AND r.xid = p_to_xid
        AND p_to_xid > low.xid AND r.id <= p_to_id OFFSET 0)
  ) r
$f$;
CREATE OR REPLACE FUNCTION posthaste.rows_after_4(
  p_queue text, p_priority integer, p_lo pg_snapshot, p_hi pg_snapshot, p_xid xid8, p_id bigint,
  p_exhausted boolean, p_to_xid xid8, p_to_id bigint)
RETURNS SETOF posthaste.store LANGUAGE sql STABLE AS $f$
  SELECT r.* FROM (
    SELECT CASE WHEN p_exhausted THEN pg_snapshot_xmax(p_hi)
        ELSE greatest(p_xid, pg_snapshot_xmax(p_lo)) END AS xid,
           CASE WHEN p_exhausted OR p_xid < pg_snapshot_xmax(p_lo) THEN -1 ELSE p_id END AS id
             OFFSET 0) low,
  LATERAL (
    SELECT late.*
      FROM (SELECT pg_snapshot_xip(p_lo) AS p UNION SELECT pg_snapshot_xip(p_hi)) x, LATERAL (
      SELECT r.* FROM posthaste.ready_4 r
        WHERE r.queue = p_queue AND r.priority = p_priority AND r.xid = x.p
         AND r.id > CASE WHEN x.p = p_xid AND NOT p_exhausted THEN p_id ELSE -1 END
         AND r.id <= CASE WHEN x.p = p_to_xid THEN p_to_id ELSE 9223372036854775807 END
           OFFSET 0) late
     WHERE x.p < low.xid AND x.p <= p_to_xid
       AND NOT posthaste.is_claimed(late.xid, late.id, p_lo, p_hi, p_xid, p_id, p_exhausted)
    UNION ALL
    (SELECT r.* FROM posthaste.ready_4 r
        WHERE r.queue = p_queue AND r.priority = p_priority AND r.xid = low.xid AND r.id > low.id
        AND r.id <= CASE WHEN low.xid < p_to_xid THEN 9223372036854775807
            WHEN low.xid = p_to_xid THEN p_to_id ELSE -1 END OFFSET 0)
    UNION ALL
    (SELECT r.* FROM posthaste.ready_4 r
        WHERE r.queue = p_queue AND r.priority = p_priority AND r.xid > low.xid
        AND r.xid < p_to_xid OFFSET 0)
    UNION ALL
    (SELECT r.* FROM posthaste.ready_4 r
        WHERE r.queue = p_queue AND r.priority = p_priority AND r.xid = p_to_xid
        AND p_to_xid > low.xid AND r.id <= p_to_id OFFSET 0)
  ) r
$f$;
CREATE OR REPLACE FUNCTION posthaste.rows_after_5(
  p_queue text, p_priority integer, p_lo pg_snapshot, p_hi pg_snapshot, p_xid xid8, p_id bigint,
  p_exhausted boolean, p_to_xid xid8, p_to_id bigint)
RETURNS SETOF posthaste.store LANGUAGE sql STABLE AS $f$
  SELECT r.* FROM (
    SELECT CASE WHEN p_exhausted THEN pg_snapshot_xmax(p_hi)
        ELSE greatest(p_xid, pg_snapshot_xmax(p_lo)) END AS xid,
           CASE WHEN p_exhausted OR p_xid < pg_snapshot_xmax(p_lo) THEN -1 ELSE p_id END AS id
             OFFSET 0) low,
  LATERAL (
    SELECT late.*
      FROM (SELECT pg_snapshot_xip(p_lo) AS p UNION SELECT pg_snapshot_xip(p_hi)) x, LATERAL (
      SELECT r.* FROM posthaste.ready_5 r
        WHERE r.queue = p_queue AND r.priority = p_priority AND r.xid = x.p
         AND r.id > CASE WHEN x.p = p_xid AND NOT p_exhausted THEN p_id ELSE -1 END
         AND r.id <= CASE WHEN x.p = p_to_xid THEN p_to_id ELSE 9223372036854775807 END
           OFFSET 0) late
     WHERE x.p < low.xid AND x.p <= p_to_xid
       AND NOT posthaste.is_claimed(late.xid, late.id, p_lo, p_hi, p_xid, p_id, p_exhausted)
    UNION ALL
    (SELECT r.* FROM posthaste.ready_5 r
        WHERE r.queue = p_queue AND r.priority = p_priority AND r.xid = low.xid AND r.id > low.id
        AND r.id <= CASE WHEN low.xid < p_to_xid THEN 9223372036854775807
            WHEN low.xid = p_to_xid THEN p_to_id ELSE -1 END OFFSET 0)
    UNION ALL
    (SELECT r.* FROM posthaste.ready_5 r
        WHERE r.queue = p_queue AND r.priority = p_priority AND r.xid > low.xid
        AND r.xid < p_to_xid OFFSET 0)
    UNION ALL
    (SELECT r.* FROM posthaste.ready_5 r
        WHERE r.queue = p_queue AND r.priority = p_priority AND r.xid = p_to_xid
        AND p_to_xid > low.xid AND r.id <= p_to_id OFFSET 0)
  ) r
$f$;

-- The lanes of this slot, each with the cursor of its claims.
CREATE OR REPLACE FUNCTION posthaste.cursors_0(
  OUT queue text, OUT priority integer, OUT lo pg_snapshot, OUT hi pg_snapshot, OUT at_xid xid8,
  OUT at_id bigint, OUT exhausted boolean)
RETURNS SETOF record LANGUAGE sql STABLE AS $f$
  WITH RECURSIVE lane AS (
    (SELECT r.queue, r.priority FROM posthaste.ready_0 r ORDER BY r.queue, r.priority LIMIT 1)
    UNION ALL
    SELECT n.queue, n.priority
      FROM lane l, LATERAL (SELECT r.queue, r.priority FROM posthaste.ready_0 r
                             WHERE (r.queue, r.priority) > (l.queue, l.priority)
                               ORDER BY r.queue, r.priority LIMIT 1) n)
  SELECT l.queue, l.priority, coalesce(c.lo, '1:1:'), coalesce(c.hi, '1:1:'),
         coalesce(c.to_xid, '0'), coalesce(c.to_id, 0), coalesce(c.exhausted, true)
    FROM lane l LEFT JOIN LATERAL (
      SELECT * FROM posthaste.claim_0 n WHERE n.queue = l.queue AND n.priority = l.priority
       ORDER BY n.queue DESC, n.priority DESC, n.batch DESC LIMIT 1) c ON true
$f$;
CREATE OR REPLACE FUNCTION posthaste.cursors_1(
  OUT queue text, OUT priority integer, OUT lo pg_snapshot, OUT hi pg_snapshot, OUT at_xid xid8,
  OUT at_id bigint, OUT exhausted boolean)
RETURNS SETOF record LANGUAGE sql STABLE AS $f$
  WITH RECURSIVE lane AS (
    (SELECT r.queue, r.priority FROM posthaste.ready_1 r ORDER BY r.queue, r.priority LIMIT 1)
    UNION ALL
    SELECT n.queue, n.priority
      FROM lane l, LATERAL (SELECT r.queue, r.priority FROM posthaste.ready_1 r
                             WHERE (r.queue, r.priority) > (l.queue, l.priority)
                               ORDER BY r.queue, r.priority LIMIT 1) n)
  SELECT l.queue, l.priority, coalesce(c.lo, '1:1:'), coalesce(c.hi, '1:1:'),
         coalesce(c.to_xid, '0'), coalesce(c.to_id, 0), coalesce(c.exhausted, true)
    FROM lane l LEFT JOIN LATERAL (
      SELECT * FROM posthaste.claim_1 n WHERE n.queue = l.queue AND n.priority = l.priority
       ORDER BY n.queue DESC, n.priority DESC, n.batch DESC LIMIT 1) c ON true
$f$;
CREATE OR REPLACE FUNCTION posthaste.cursors_2(
  OUT queue text, OUT priority integer, OUT lo pg_snapshot, OUT hi pg_snapshot, OUT at_xid xid8,
  OUT at_id bigint, OUT exhausted boolean)
RETURNS SETOF record LANGUAGE sql STABLE AS $f$
  WITH RECURSIVE lane AS (
    (SELECT r.queue, r.priority FROM posthaste.ready_2 r ORDER BY r.queue, r.priority LIMIT 1)
    UNION ALL
    SELECT n.queue, n.priority
      FROM lane l, LATERAL (SELECT r.queue, r.priority FROM posthaste.ready_2 r
                             WHERE (r.queue, r.priority) > (l.queue, l.priority)
                               ORDER BY r.queue, r.priority LIMIT 1) n)
  SELECT l.queue, l.priority, coalesce(c.lo, '1:1:'), coalesce(c.hi, '1:1:'),
         coalesce(c.to_xid, '0'), coalesce(c.to_id, 0), coalesce(c.exhausted, true)
    FROM lane l LEFT JOIN LATERAL (
      SELECT * FROM posthaste.claim_2 n WHERE n.queue = l.queue AND n.priority = l.priority
       ORDER BY n.queue DESC, n.priority DESC, n.batch DESC LIMIT 1) c ON true
$f$;
CREATE OR REPLACE FUNCTION posthaste.cursors_3(
  OUT queue text, OUT priority integer, OUT lo pg_snapshot, OUT hi pg_snapshot, OUT at_xid xid8,
  OUT at_id bigint, OUT exhausted boolean)
RETURNS SETOF record LANGUAGE sql STABLE AS $f$
  WITH RECURSIVE lane AS (
    (SELECT r.queue, r.priority FROM posthaste.ready_3 r ORDER BY r.queue, r.priority LIMIT 1)
    UNION ALL
    SELECT n.queue, n.priority
      FROM lane l, LATERAL (SELECT r.queue, r.priority FROM posthaste.ready_3 r
                             WHERE (r.queue, r.priority) > (l.queue, l.priority)
                               ORDER BY r.queue, r.priority LIMIT 1) n)
  SELECT l.queue, l.priority, coalesce(c.lo, '1:1:'), coalesce(c.hi, '1:1:'),
         coalesce(c.to_xid, '0'), coalesce(c.to_id, 0), coalesce(c.exhausted, true)
    FROM lane l LEFT JOIN LATERAL (
      SELECT * FROM posthaste.claim_3 n WHERE n.queue = l.queue AND n.priority = l.priority
       ORDER BY n.queue DESC, n.priority DESC, n.batch DESC LIMIT 1) c ON true
$f$;
CREATE OR REPLACE FUNCTION posthaste.cursors_4(
  OUT queue text, OUT priority integer, OUT lo pg_snapshot, OUT hi pg_snapshot, OUT at_xid xid8,
  OUT at_id bigint, OUT exhausted boolean)
RETURNS SETOF record LANGUAGE sql STABLE AS $f$
  WITH RECURSIVE lane AS (
    (SELECT r.queue, r.priority FROM posthaste.ready_4 r ORDER BY r.queue, r.priority LIMIT 1)
    UNION ALL
    SELECT n.queue, n.priority
      FROM lane l, LATERAL (SELECT r.queue, r.priority FROM posthaste.ready_4 r
                             WHERE (r.queue, r.priority) > (l.queue, l.priority)
                               ORDER BY r.queue, r.priority LIMIT 1) n)
  SELECT l.queue, l.priority, coalesce(c.lo, '1:1:'), coalesce(c.hi, '1:1:'),
         coalesce(c.to_xid, '0'), coalesce(c.to_id, 0), coalesce(c.exhausted, true)
    FROM lane l LEFT JOIN LATERAL (
      SELECT * FROM posthaste.claim_4 n WHERE n.queue = l.queue AND n.priority = l.priority
       ORDER BY n.queue DESC, n.priority DESC, n.batch DESC LIMIT 1) c ON true
$f$;
CREATE OR REPLACE FUNCTION posthaste.cursors_5(
  OUT queue text, OUT priority integer, OUT lo pg_snapshot, OUT hi pg_snapshot, OUT at_xid xid8,
  OUT at_id bigint, OUT exhausted boolean)
RETURNS SETOF record LANGUAGE sql STABLE AS $f$
  WITH RECURSIVE lane AS (
    (SELECT r.queue, r.priority FROM posthaste.ready_5 r ORDER BY r.queue, r.priority LIMIT 1)
    UNION ALL
    SELECT n.queue, n.priority
      FROM lane l, LATERAL (SELECT r.queue, r.priority FROM posthaste.ready_5 r
                             WHERE (r.queue, r.priority) > (l.queue, l.priority)
                               ORDER BY r.queue, r.priority LIMIT 1) n)
  SELECT l.queue, l.priority, coalesce(c.lo, '1:1:'), coalesce(c.hi, '1:1:'),
         coalesce(c.to_xid, '0'), coalesce(c.to_id, 0), coalesce(c.exhausted, true)
    FROM lane l LEFT JOIN LATERAL (
      SELECT * FROM posthaste.claim_5 n WHERE n.queue = l.queue AND n.priority = l.priority
       ORDER BY n.queue DESC, n.priority DESC, n.batch DESC LIMIT 1) c ON true
$f$;

-- Counts at most p_limit unclaimed jobs of a lane, writing a mark for each p_step of them; returns
-- the number counted. A lane with fewer is not worth a mark: readers count it.
CREATE OR REPLACE FUNCTION posthaste.count_lane_0(
  p_queue text, p_priority integer, p_limit integer, p_step integer)
RETURNS integer LANGUAGE plpgsql AS $f$
DECLARE
  c posthaste.claim_0;
  m posthaste.counted_0;  -- the newest mark
  w posthaste.lane_window;
  v record;
  v_started timestamptz;
  v_step integer;
  v_counted integer := 0;
BEGIN
  SELECT * INTO c FROM posthaste.claim_0 WHERE queue = p_queue AND priority = p_priority
    ORDER BY queue DESC, priority DESC, batch DESC LIMIT 1;
  IF NOT FOUND THEN
    c.lo := '1:1:'; c.hi := '1:1:'; c.to_xid := '0'; c.to_id := 0; c.exhausted := true;
  END IF;
  SELECT * INTO m FROM posthaste.counted_0 WHERE queue = p_queue AND priority = p_priority
   ORDER BY queue DESC, priority DESC, run DESC, max_xid DESC, max_id DESC, number DESC LIMIT 1;
  IF NOT FOUND
    OR posthaste.mark_passed(m.max_xid, m.max_id, m.hi, c.lo, c.hi, c.to_xid, c.to_id, c.exhausted)
    THEN
    m := ROW(coalesce(m.number, 0) + 1, coalesce(m.number, 0) + 1, '0', 0, c.to_xid, c.to_id,
        p_priority, c.exhausted, p_queue, c.lo, c.hi, '{}', '{}', '{}');
  END IF;
  w.lo := m.lo; w.hi := m.hi; w.at_xid := m.at_xid; w.at_id := m.at_id; w.is_fresh := false;
  w := posthaste.with_bounds(w);
  IF m.exhausted THEN
    w := posthaste.next_counting_window(w, c.hi);
  END IF;
  WHILE v_counted < p_limit LOOP
    v_started := clock_timestamp();
    v_step := greatest(p_step, 8 * cardinality(m.jobs));
    WITH next AS MATERIALIZED (
      SELECT * FROM (
        SELECT late.* FROM unnest(w.late) p, LATERAL (
          SELECT r.xid, r.id, r.name, r.tag FROM posthaste.ready_0 r
           WHERE r.queue = p_queue AND r.priority = p_priority AND r.xid = p
             AND r.id > CASE WHEN p = w.at_xid THEN w.at_id ELSE -1 END
           ORDER BY r.queue, r.priority, r.xid, r.id LIMIT v_step) late
        UNION ALL
        (SELECT r.xid, r.id, r.name, r.tag FROM posthaste.ready_0 r
          WHERE r.queue = p_queue AND r.priority = p_priority
            AND (r.xid, r.id) > (w.from_xid, w.from_id) AND r.xid < pg_snapshot_xmax(w.hi)
            AND pg_visible_in_snapshot(r.xid, w.hi)
          ORDER BY r.queue, r.priority, r.xid, r.id LIMIT v_step)
      ) both_parts ORDER BY xid, id LIMIT v_step),
    sums AS (
      SELECT s.name, s.tag, sum(s.n)::bigint AS n
        FROM (SELECT name, tag, count(*) AS n FROM next GROUP BY name, tag
              UNION ALL SELECT * FROM unnest(m.names, m.tags, m.jobs)) s GROUP BY s.name, s.tag)
    SELECT (SELECT count(*)::integer FROM next) AS n, l.xid, l.id, s.*
      INTO v
      FROM (SELECT array_agg(name) AS names, array_agg(tag) AS tags, array_agg(n) AS jobs
          FROM sums) s
      LEFT JOIN (SELECT xid, id FROM next ORDER BY xid DESC, id DESC LIMIT 1) l ON true;
    IF cardinality(v.jobs) > 1000 THEN
      SELECT array_agg(k.name), array_agg(k.tag), array_agg(k.jobs)
        INTO v.names, v.tags, v.jobs
        FROM posthaste.limit_kinds(posthaste.kinds_of('{}', '{}', m.names || v.names,
          m.tags || v.tags, '{}', array_fill(0::bigint, ARRAY[cardinality(m.jobs)]) || v.jobs),
          false) k;
    END IF;
    IF v.n < v_step AND w.is_fresh AND clock_timestamp() - v_started < interval '20 ms' THEN
      RETURN v_counted;
    END IF;
    -- A slow read of few jobs has scanned invisible rows: a mark spares the next read that scan.
    IF v.n > 0 OR w.is_fresh THEN
      IF m.number = m.run AND v_counted = 0 AND m.jobs = '{}' THEN
        INSERT INTO posthaste.counted_0 SELECT m.*;
      END IF;
      m.number := m.number + 1;
      m.lo := w.lo; m.hi := w.hi; m.exhausted := v.n < v_step;
      m.at_xid := coalesce(v.xid, w.at_xid); m.at_id := coalesce(v.id, w.at_id);
      IF v.n > 0 AND (v.xid, v.id) > (m.max_xid, m.max_id) THEN
        m.max_xid := v.xid; m.max_id := v.id;
      END IF;
      m.names := coalesce(v.names, '{}'); m.tags := coalesce(v.tags, '{}');
      m.jobs := coalesce(v.jobs, '{}');
      INSERT INTO posthaste.counted_0 SELECT m.*;
      v_counted := v_counted + v.n;
    END IF;
    IF v.n = v_step THEN
      w.at_xid := v.xid; w.at_id := v.id;
      w := posthaste.with_bounds(w);
    ELSIF w.is_fresh THEN
      RETURN v_counted;
    ELSE
      w := posthaste.next_counting_window(w, c.hi);
    END IF;
  END LOOP;
  RETURN v_counted;
END $f$;
CREATE OR REPLACE FUNCTION posthaste.count_lane_1(
  p_queue text, p_priority integer, p_limit integer, p_step integer)
RETURNS integer LANGUAGE plpgsql AS $f$
DECLARE
  c posthaste.claim_1;
  m posthaste.counted_1;  -- the newest mark
  w posthaste.lane_window;
  v record;
  v_started timestamptz;
  v_step integer;
  v_counted integer := 0;
BEGIN
  SELECT * INTO c FROM posthaste.claim_1 WHERE queue = p_queue AND priority = p_priority
    ORDER BY queue DESC, priority DESC, batch DESC LIMIT 1;
  IF NOT FOUND THEN
    c.lo := '1:1:'; c.hi := '1:1:'; c.to_xid := '0'; c.to_id := 0; c.exhausted := true;
  END IF;
  SELECT * INTO m FROM posthaste.counted_1 WHERE queue = p_queue AND priority = p_priority
   ORDER BY queue DESC, priority DESC, run DESC, max_xid DESC, max_id DESC, number DESC LIMIT 1;
  IF NOT FOUND
    OR posthaste.mark_passed(m.max_xid, m.max_id, m.hi, c.lo, c.hi, c.to_xid, c.to_id, c.exhausted)
    THEN
    m := ROW(coalesce(m.number, 0) + 1, coalesce(m.number, 0) + 1, '0', 0, c.to_xid, c.to_id,
        p_priority, c.exhausted, p_queue, c.lo, c.hi, '{}', '{}', '{}');
  END IF;
  w.lo := m.lo; w.hi := m.hi; w.at_xid := m.at_xid; w.at_id := m.at_id; w.is_fresh := false;
  w := posthaste.with_bounds(w);
  IF m.exhausted THEN
    w := posthaste.next_counting_window(w, c.hi);
  END IF;
  WHILE v_counted < p_limit LOOP
    v_started := clock_timestamp();
    v_step := greatest(p_step, 8 * cardinality(m.jobs));
    WITH next AS MATERIALIZED (
      SELECT * FROM (
        SELECT late.* FROM unnest(w.late) p, LATERAL (
          SELECT r.xid, r.id, r.name, r.tag FROM posthaste.ready_1 r
           WHERE r.queue = p_queue AND r.priority = p_priority AND r.xid = p
             AND r.id > CASE WHEN p = w.at_xid THEN w.at_id ELSE -1 END
           ORDER BY r.queue, r.priority, r.xid, r.id LIMIT v_step) late
        UNION ALL
        (SELECT r.xid, r.id, r.name, r.tag FROM posthaste.ready_1 r
          WHERE r.queue = p_queue AND r.priority = p_priority
            AND (r.xid, r.id) > (w.from_xid, w.from_id) AND r.xid < pg_snapshot_xmax(w.hi)
            AND pg_visible_in_snapshot(r.xid, w.hi)
          ORDER BY r.queue, r.priority, r.xid, r.id LIMIT v_step)
      ) both_parts ORDER BY xid, id LIMIT v_step),
    sums AS (
      SELECT s.name, s.tag, sum(s.n)::bigint AS n
        FROM (SELECT name, tag, count(*) AS n FROM next GROUP BY name, tag
              UNION ALL SELECT * FROM unnest(m.names, m.tags, m.jobs)) s GROUP BY s.name, s.tag)
    SELECT (SELECT count(*)::integer FROM next) AS n, l.xid, l.id, s.*
      INTO v
      FROM (SELECT array_agg(name) AS names, array_agg(tag) AS tags, array_agg(n) AS jobs
          FROM sums) s
      LEFT JOIN (SELECT xid, id FROM next ORDER BY xid DESC, id DESC LIMIT 1) l ON true;
    IF cardinality(v.jobs) > 1000 THEN
      SELECT array_agg(k.name), array_agg(k.tag), array_agg(k.jobs)
        INTO v.names, v.tags, v.jobs
        FROM posthaste.limit_kinds(posthaste.kinds_of('{}', '{}', m.names || v.names,
          m.tags || v.tags, '{}', array_fill(0::bigint, ARRAY[cardinality(m.jobs)]) || v.jobs),
          false) k;
    END IF;
    IF v.n < v_step AND w.is_fresh AND clock_timestamp() - v_started < interval '20 ms' THEN
      RETURN v_counted;
    END IF;
    -- A slow read of few jobs has scanned invisible rows: a mark spares the next read that scan.
    IF v.n > 0 OR w.is_fresh THEN
      IF m.number = m.run AND v_counted = 0 AND m.jobs = '{}' THEN
        INSERT INTO posthaste.counted_1 SELECT m.*;
      END IF;
      m.number := m.number + 1;
      m.lo := w.lo; m.hi := w.hi; m.exhausted := v.n < v_step;
      m.at_xid := coalesce(v.xid, w.at_xid); m.at_id := coalesce(v.id, w.at_id);
      IF v.n > 0 AND (v.xid, v.id) > (m.max_xid, m.max_id) THEN
        m.max_xid := v.xid; m.max_id := v.id;
      END IF;
      m.names := coalesce(v.names, '{}'); m.tags := coalesce(v.tags, '{}');
      m.jobs := coalesce(v.jobs, '{}');
      INSERT INTO posthaste.counted_1 SELECT m.*;
      v_counted := v_counted + v.n;
    END IF;
    IF v.n = v_step THEN
      w.at_xid := v.xid; w.at_id := v.id;
      w := posthaste.with_bounds(w);
    ELSIF w.is_fresh THEN
      RETURN v_counted;
    ELSE
      w := posthaste.next_counting_window(w, c.hi);
    END IF;
  END LOOP;
  RETURN v_counted;
END $f$;
CREATE OR REPLACE FUNCTION posthaste.count_lane_2(
  p_queue text, p_priority integer, p_limit integer, p_step integer)
RETURNS integer LANGUAGE plpgsql AS $f$
DECLARE
  c posthaste.claim_2;
  m posthaste.counted_2;  -- the newest mark
  w posthaste.lane_window;
  v record;
  v_started timestamptz;
  v_step integer;
  v_counted integer := 0;
BEGIN
  SELECT * INTO c FROM posthaste.claim_2 WHERE queue = p_queue AND priority = p_priority
    ORDER BY queue DESC, priority DESC, batch DESC LIMIT 1;
  IF NOT FOUND THEN
    c.lo := '1:1:'; c.hi := '1:1:'; c.to_xid := '0'; c.to_id := 0; c.exhausted := true;
  END IF;
  SELECT * INTO m FROM posthaste.counted_2 WHERE queue = p_queue AND priority = p_priority
   ORDER BY queue DESC, priority DESC, run DESC, max_xid DESC, max_id DESC, number DESC LIMIT 1;
  IF NOT FOUND
    OR posthaste.mark_passed(m.max_xid, m.max_id, m.hi, c.lo, c.hi, c.to_xid, c.to_id, c.exhausted)
    THEN
    m := ROW(coalesce(m.number, 0) + 1, coalesce(m.number, 0) + 1, '0', 0, c.to_xid, c.to_id,
        p_priority, c.exhausted, p_queue, c.lo, c.hi, '{}', '{}', '{}');
  END IF;
  w.lo := m.lo; w.hi := m.hi; w.at_xid := m.at_xid; w.at_id := m.at_id; w.is_fresh := false;
  w := posthaste.with_bounds(w);
  IF m.exhausted THEN
    w := posthaste.next_counting_window(w, c.hi);
  END IF;
  WHILE v_counted < p_limit LOOP
    v_started := clock_timestamp();
    v_step := greatest(p_step, 8 * cardinality(m.jobs));
    WITH next AS MATERIALIZED (
      SELECT * FROM (
        SELECT late.* FROM unnest(w.late) p, LATERAL (
          SELECT r.xid, r.id, r.name, r.tag FROM posthaste.ready_2 r
           WHERE r.queue = p_queue AND r.priority = p_priority AND r.xid = p
             AND r.id > CASE WHEN p = w.at_xid THEN w.at_id ELSE -1 END
           ORDER BY r.queue, r.priority, r.xid, r.id LIMIT v_step) late
        UNION ALL
        (SELECT r.xid, r.id, r.name, r.tag FROM posthaste.ready_2 r
          WHERE r.queue = p_queue AND r.priority = p_priority
            AND (r.xid, r.id) > (w.from_xid, w.from_id) AND r.xid < pg_snapshot_xmax(w.hi)
            AND pg_visible_in_snapshot(r.xid, w.hi)
          ORDER BY r.queue, r.priority, r.xid, r.id LIMIT v_step)
      ) both_parts ORDER BY xid, id LIMIT v_step),
    sums AS (
      SELECT s.name, s.tag, sum(s.n)::bigint AS n
        FROM (SELECT name, tag, count(*) AS n FROM next GROUP BY name, tag
              UNION ALL SELECT * FROM unnest(m.names, m.tags, m.jobs)) s GROUP BY s.name, s.tag)
    SELECT (SELECT count(*)::integer FROM next) AS n, l.xid, l.id, s.*
      INTO v
      FROM (SELECT array_agg(name) AS names, array_agg(tag) AS tags, array_agg(n) AS jobs
          FROM sums) s
      LEFT JOIN (SELECT xid, id FROM next ORDER BY xid DESC, id DESC LIMIT 1) l ON true;
    IF cardinality(v.jobs) > 1000 THEN
      SELECT array_agg(k.name), array_agg(k.tag), array_agg(k.jobs)
        INTO v.names, v.tags, v.jobs
        FROM posthaste.limit_kinds(posthaste.kinds_of('{}', '{}', m.names || v.names,
          m.tags || v.tags, '{}', array_fill(0::bigint, ARRAY[cardinality(m.jobs)]) || v.jobs),
          false) k;
    END IF;
    IF v.n < v_step AND w.is_fresh AND clock_timestamp() - v_started < interval '20 ms' THEN
      RETURN v_counted;
    END IF;
    -- A slow read of few jobs has scanned invisible rows: a mark spares the next read that scan.
    IF v.n > 0 OR w.is_fresh THEN
      IF m.number = m.run AND v_counted = 0 AND m.jobs = '{}' THEN
        INSERT INTO posthaste.counted_2 SELECT m.*;
      END IF;
      m.number := m.number + 1;
      m.lo := w.lo; m.hi := w.hi; m.exhausted := v.n < v_step;
      m.at_xid := coalesce(v.xid, w.at_xid); m.at_id := coalesce(v.id, w.at_id);
      IF v.n > 0 AND (v.xid, v.id) > (m.max_xid, m.max_id) THEN
        m.max_xid := v.xid; m.max_id := v.id;
      END IF;
      m.names := coalesce(v.names, '{}'); m.tags := coalesce(v.tags, '{}');
      m.jobs := coalesce(v.jobs, '{}');
      INSERT INTO posthaste.counted_2 SELECT m.*;
      v_counted := v_counted + v.n;
    END IF;
    IF v.n = v_step THEN
      w.at_xid := v.xid; w.at_id := v.id;
      w := posthaste.with_bounds(w);
    ELSIF w.is_fresh THEN
      RETURN v_counted;
    ELSE
      w := posthaste.next_counting_window(w, c.hi);
    END IF;
  END LOOP;
  RETURN v_counted;
END $f$;
CREATE OR REPLACE FUNCTION posthaste.count_lane_3(
  p_queue text, p_priority integer, p_limit integer, p_step integer)
RETURNS integer LANGUAGE plpgsql AS $f$
DECLARE
  c posthaste.claim_3;
  m posthaste.counted_3;  -- the newest mark
  w posthaste.lane_window;
  v record;
  v_started timestamptz;
  v_step integer;
  v_counted integer := 0;
BEGIN
  SELECT * INTO c FROM posthaste.claim_3 WHERE queue = p_queue AND priority = p_priority
    ORDER BY queue DESC, priority DESC, batch DESC LIMIT 1;
  IF NOT FOUND THEN
    c.lo := '1:1:'; c.hi := '1:1:'; c.to_xid := '0'; c.to_id := 0; c.exhausted := true;
  END IF;
  SELECT * INTO m FROM posthaste.counted_3 WHERE queue = p_queue AND priority = p_priority
   ORDER BY queue DESC, priority DESC, run DESC, max_xid DESC, max_id DESC, number DESC LIMIT 1;
  IF NOT FOUND
    OR posthaste.mark_passed(m.max_xid, m.max_id, m.hi, c.lo, c.hi, c.to_xid, c.to_id, c.exhausted)
    THEN
    m := ROW(coalesce(m.number, 0) + 1, coalesce(m.number, 0) + 1, '0', 0, c.to_xid, c.to_id,
        p_priority, c.exhausted, p_queue, c.lo, c.hi, '{}', '{}', '{}');
  END IF;
  w.lo := m.lo; w.hi := m.hi; w.at_xid := m.at_xid; w.at_id := m.at_id; w.is_fresh := false;
  w := posthaste.with_bounds(w);
  IF m.exhausted THEN
    w := posthaste.next_counting_window(w, c.hi);
  END IF;
  WHILE v_counted < p_limit LOOP
    v_started := clock_timestamp();
    v_step := greatest(p_step, 8 * cardinality(m.jobs));
    WITH next AS MATERIALIZED (
      SELECT * FROM (
        SELECT late.* FROM unnest(w.late) p, LATERAL (
          SELECT r.xid, r.id, r.name, r.tag FROM posthaste.ready_3 r
           WHERE r.queue = p_queue AND r.priority = p_priority AND r.xid = p
             AND r.id > CASE WHEN p = w.at_xid THEN w.at_id ELSE -1 END
           ORDER BY r.queue, r.priority, r.xid, r.id LIMIT v_step) late
        UNION ALL
        (SELECT r.xid, r.id, r.name, r.tag FROM posthaste.ready_3 r
          WHERE r.queue = p_queue AND r.priority = p_priority
            AND (r.xid, r.id) > (w.from_xid, w.from_id) AND r.xid < pg_snapshot_xmax(w.hi)
            AND pg_visible_in_snapshot(r.xid, w.hi)
          ORDER BY r.queue, r.priority, r.xid, r.id LIMIT v_step)
      ) both_parts ORDER BY xid, id LIMIT v_step),
    sums AS (
      SELECT s.name, s.tag, sum(s.n)::bigint AS n
        FROM (SELECT name, tag, count(*) AS n FROM next GROUP BY name, tag
              UNION ALL SELECT * FROM unnest(m.names, m.tags, m.jobs)) s GROUP BY s.name, s.tag)
    SELECT (SELECT count(*)::integer FROM next) AS n, l.xid, l.id, s.*
      INTO v
      FROM (SELECT array_agg(name) AS names, array_agg(tag) AS tags, array_agg(n) AS jobs
          FROM sums) s
      LEFT JOIN (SELECT xid, id FROM next ORDER BY xid DESC, id DESC LIMIT 1) l ON true;
    IF cardinality(v.jobs) > 1000 THEN
      SELECT array_agg(k.name), array_agg(k.tag), array_agg(k.jobs)
        INTO v.names, v.tags, v.jobs
        FROM posthaste.limit_kinds(posthaste.kinds_of('{}', '{}', m.names || v.names,
          m.tags || v.tags, '{}', array_fill(0::bigint, ARRAY[cardinality(m.jobs)]) || v.jobs),
          false) k;
    END IF;
    IF v.n < v_step AND w.is_fresh AND clock_timestamp() - v_started < interval '20 ms' THEN
      RETURN v_counted;
    END IF;
    -- A slow read of few jobs has scanned invisible rows: a mark spares the next read that scan.
    IF v.n > 0 OR w.is_fresh THEN
      IF m.number = m.run AND v_counted = 0 AND m.jobs = '{}' THEN
        INSERT INTO posthaste.counted_3 SELECT m.*;
      END IF;
      m.number := m.number + 1;
      m.lo := w.lo; m.hi := w.hi; m.exhausted := v.n < v_step;
      m.at_xid := coalesce(v.xid, w.at_xid); m.at_id := coalesce(v.id, w.at_id);
      IF v.n > 0 AND (v.xid, v.id) > (m.max_xid, m.max_id) THEN
        m.max_xid := v.xid; m.max_id := v.id;
      END IF;
      m.names := coalesce(v.names, '{}'); m.tags := coalesce(v.tags, '{}');
      m.jobs := coalesce(v.jobs, '{}');
      INSERT INTO posthaste.counted_3 SELECT m.*;
      v_counted := v_counted + v.n;
    END IF;
    IF v.n = v_step THEN
      w.at_xid := v.xid; w.at_id := v.id;
      w := posthaste.with_bounds(w);
    ELSIF w.is_fresh THEN
      RETURN v_counted;
    ELSE
      w := posthaste.next_counting_window(w, c.hi);
    END IF;
  END LOOP;
  RETURN v_counted;
END $f$;
CREATE OR REPLACE FUNCTION posthaste.count_lane_4(
  p_queue text, p_priority integer, p_limit integer, p_step integer)
RETURNS integer LANGUAGE plpgsql AS $f$
DECLARE
  c posthaste.claim_4;
  m posthaste.counted_4;  -- the newest mark
  w posthaste.lane_window;
  v record;
  v_started timestamptz;
  v_step integer;
  v_counted integer := 0;
BEGIN
  SELECT * INTO c FROM posthaste.claim_4 WHERE queue = p_queue AND priority = p_priority
    ORDER BY queue DESC, priority DESC, batch DESC LIMIT 1;
  IF NOT FOUND THEN
    c.lo := '1:1:'; c.hi := '1:1:'; c.to_xid := '0'; c.to_id := 0; c.exhausted := true;
  END IF;
  SELECT * INTO m FROM posthaste.counted_4 WHERE queue = p_queue AND priority = p_priority
   ORDER BY queue DESC, priority DESC, run DESC, max_xid DESC, max_id DESC, number DESC LIMIT 1;
  IF NOT FOUND
    OR posthaste.mark_passed(m.max_xid, m.max_id, m.hi, c.lo, c.hi, c.to_xid, c.to_id, c.exhausted)
    THEN
    m := ROW(coalesce(m.number, 0) + 1, coalesce(m.number, 0) + 1, '0', 0, c.to_xid, c.to_id,
        p_priority, c.exhausted, p_queue, c.lo, c.hi, '{}', '{}', '{}');
  END IF;
  w.lo := m.lo; w.hi := m.hi; w.at_xid := m.at_xid; w.at_id := m.at_id; w.is_fresh := false;
  w := posthaste.with_bounds(w);
  IF m.exhausted THEN
    w := posthaste.next_counting_window(w, c.hi);
  END IF;
  WHILE v_counted < p_limit LOOP
    v_started := clock_timestamp();
    v_step := greatest(p_step, 8 * cardinality(m.jobs));
    WITH next AS MATERIALIZED (
      SELECT * FROM (
        SELECT late.* FROM unnest(w.late) p, LATERAL (
          SELECT r.xid, r.id, r.name, r.tag FROM posthaste.ready_4 r
           WHERE r.queue = p_queue AND r.priority = p_priority AND r.xid = p
             AND r.id > CASE WHEN p = w.at_xid THEN w.at_id ELSE -1 END
           ORDER BY r.queue, r.priority, r.xid, r.id LIMIT v_step) late
        UNION ALL
        (SELECT r.xid, r.id, r.name, r.tag FROM posthaste.ready_4 r
          WHERE r.queue = p_queue AND r.priority = p_priority
            AND (r.xid, r.id) > (w.from_xid, w.from_id) AND r.xid < pg_snapshot_xmax(w.hi)
            AND pg_visible_in_snapshot(r.xid, w.hi)
          ORDER BY r.queue, r.priority, r.xid, r.id LIMIT v_step)
      ) both_parts ORDER BY xid, id LIMIT v_step),
    sums AS (
      SELECT s.name, s.tag, sum(s.n)::bigint AS n
        FROM (SELECT name, tag, count(*) AS n FROM next GROUP BY name, tag
              UNION ALL SELECT * FROM unnest(m.names, m.tags, m.jobs)) s GROUP BY s.name, s.tag)
    SELECT (SELECT count(*)::integer FROM next) AS n, l.xid, l.id, s.*
      INTO v
      FROM (SELECT array_agg(name) AS names, array_agg(tag) AS tags, array_agg(n) AS jobs
          FROM sums) s
      LEFT JOIN (SELECT xid, id FROM next ORDER BY xid DESC, id DESC LIMIT 1) l ON true;
    IF cardinality(v.jobs) > 1000 THEN
      SELECT array_agg(k.name), array_agg(k.tag), array_agg(k.jobs)
        INTO v.names, v.tags, v.jobs
        FROM posthaste.limit_kinds(posthaste.kinds_of('{}', '{}', m.names || v.names,
          m.tags || v.tags, '{}', array_fill(0::bigint, ARRAY[cardinality(m.jobs)]) || v.jobs),
          false) k;
    END IF;
    IF v.n < v_step AND w.is_fresh AND clock_timestamp() - v_started < interval '20 ms' THEN
      RETURN v_counted;
    END IF;
    -- A slow read of few jobs has scanned invisible rows: a mark spares the next read that scan.
    IF v.n > 0 OR w.is_fresh THEN
      IF m.number = m.run AND v_counted = 0 AND m.jobs = '{}' THEN
        INSERT INTO posthaste.counted_4 SELECT m.*;
      END IF;
      m.number := m.number + 1;
      m.lo := w.lo; m.hi := w.hi; m.exhausted := v.n < v_step;
      m.at_xid := coalesce(v.xid, w.at_xid); m.at_id := coalesce(v.id, w.at_id);
      IF v.n > 0 AND (v.xid, v.id) > (m.max_xid, m.max_id) THEN
        m.max_xid := v.xid; m.max_id := v.id;
      END IF;
      m.names := coalesce(v.names, '{}'); m.tags := coalesce(v.tags, '{}');
      m.jobs := coalesce(v.jobs, '{}');
      INSERT INTO posthaste.counted_4 SELECT m.*;
      v_counted := v_counted + v.n;
    END IF;
    IF v.n = v_step THEN
      w.at_xid := v.xid; w.at_id := v.id;
      w := posthaste.with_bounds(w);
    ELSIF w.is_fresh THEN
      RETURN v_counted;
    ELSE
      w := posthaste.next_counting_window(w, c.hi);
    END IF;
  END LOOP;
  RETURN v_counted;
END $f$;
CREATE OR REPLACE FUNCTION posthaste.count_lane_5(
  p_queue text, p_priority integer, p_limit integer, p_step integer)
RETURNS integer LANGUAGE plpgsql AS $f$
DECLARE
  c posthaste.claim_5;
  m posthaste.counted_5;  -- the newest mark
  w posthaste.lane_window;
  v record;
  v_started timestamptz;
  v_step integer;
  v_counted integer := 0;
BEGIN
  SELECT * INTO c FROM posthaste.claim_5 WHERE queue = p_queue AND priority = p_priority
    ORDER BY queue DESC, priority DESC, batch DESC LIMIT 1;
  IF NOT FOUND THEN
    c.lo := '1:1:'; c.hi := '1:1:'; c.to_xid := '0'; c.to_id := 0; c.exhausted := true;
  END IF;
  SELECT * INTO m FROM posthaste.counted_5 WHERE queue = p_queue AND priority = p_priority
   ORDER BY queue DESC, priority DESC, run DESC, max_xid DESC, max_id DESC, number DESC LIMIT 1;
  IF NOT FOUND
    OR posthaste.mark_passed(m.max_xid, m.max_id, m.hi, c.lo, c.hi, c.to_xid, c.to_id, c.exhausted)
    THEN
    m := ROW(coalesce(m.number, 0) + 1, coalesce(m.number, 0) + 1, '0', 0, c.to_xid, c.to_id,
        p_priority, c.exhausted, p_queue, c.lo, c.hi, '{}', '{}', '{}');
  END IF;
  w.lo := m.lo; w.hi := m.hi; w.at_xid := m.at_xid; w.at_id := m.at_id; w.is_fresh := false;
  w := posthaste.with_bounds(w);
  IF m.exhausted THEN
    w := posthaste.next_counting_window(w, c.hi);
  END IF;
  WHILE v_counted < p_limit LOOP
    v_started := clock_timestamp();
    v_step := greatest(p_step, 8 * cardinality(m.jobs));
    WITH next AS MATERIALIZED (
      SELECT * FROM (
        SELECT late.* FROM unnest(w.late) p, LATERAL (
          SELECT r.xid, r.id, r.name, r.tag FROM posthaste.ready_5 r
           WHERE r.queue = p_queue AND r.priority = p_priority AND r.xid = p
             AND r.id > CASE WHEN p = w.at_xid THEN w.at_id ELSE -1 END
           ORDER BY r.queue, r.priority, r.xid, r.id LIMIT v_step) late
        UNION ALL
        (SELECT r.xid, r.id, r.name, r.tag FROM posthaste.ready_5 r
          WHERE r.queue = p_queue AND r.priority = p_priority
            AND (r.xid, r.id) > (w.from_xid, w.from_id) AND r.xid < pg_snapshot_xmax(w.hi)
            AND pg_visible_in_snapshot(r.xid, w.hi)
          ORDER BY r.queue, r.priority, r.xid, r.id LIMIT v_step)
      ) both_parts ORDER BY xid, id LIMIT v_step),
    sums AS (
      SELECT s.name, s.tag, sum(s.n)::bigint AS n
        FROM (SELECT name, tag, count(*) AS n FROM next GROUP BY name, tag
              UNION ALL SELECT * FROM unnest(m.names, m.tags, m.jobs)) s GROUP BY s.name, s.tag)
    SELECT (SELECT count(*)::integer FROM next) AS n, l.xid, l.id, s.*
      INTO v
      FROM (SELECT array_agg(name) AS names, array_agg(tag) AS tags, array_agg(n) AS jobs
          FROM sums) s
      LEFT JOIN (SELECT xid, id FROM next ORDER BY xid DESC, id DESC LIMIT 1) l ON true;
    IF cardinality(v.jobs) > 1000 THEN
      SELECT array_agg(k.name), array_agg(k.tag), array_agg(k.jobs)
        INTO v.names, v.tags, v.jobs
        FROM posthaste.limit_kinds(posthaste.kinds_of('{}', '{}', m.names || v.names,
          m.tags || v.tags, '{}', array_fill(0::bigint, ARRAY[cardinality(m.jobs)]) || v.jobs),
          false) k;
    END IF;
    IF v.n < v_step AND w.is_fresh AND clock_timestamp() - v_started < interval '20 ms' THEN
      RETURN v_counted;
    END IF;
    -- A slow read of few jobs has scanned invisible rows: a mark spares the next read that scan.
    IF v.n > 0 OR w.is_fresh THEN
      IF m.number = m.run AND v_counted = 0 AND m.jobs = '{}' THEN
        INSERT INTO posthaste.counted_5 SELECT m.*;
      END IF;
      m.number := m.number + 1;
      m.lo := w.lo; m.hi := w.hi; m.exhausted := v.n < v_step;
      m.at_xid := coalesce(v.xid, w.at_xid); m.at_id := coalesce(v.id, w.at_id);
      IF v.n > 0 AND (v.xid, v.id) > (m.max_xid, m.max_id) THEN
        m.max_xid := v.xid; m.max_id := v.id;
      END IF;
      m.names := coalesce(v.names, '{}'); m.tags := coalesce(v.tags, '{}');
      m.jobs := coalesce(v.jobs, '{}');
      INSERT INTO posthaste.counted_5 SELECT m.*;
      v_counted := v_counted + v.n;
    END IF;
    IF v.n = v_step THEN
      w.at_xid := v.xid; w.at_id := v.id;
      w := posthaste.with_bounds(w);
    ELSIF w.is_fresh THEN
      RETURN v_counted;
    ELSE
      w := posthaste.next_counting_window(w, c.hi);
    END IF;
  END LOOP;
  RETURN v_counted;
END $f$;

-- Batches of a lane that may be open: those named by the newest mark, and later ones.
CREATE OR REPLACE FUNCTION posthaste.possibly_open_0(p_queue text, p_priority integer)
RETURNS SETOF bigint LANGUAGE sql STABLE AS $f$
  SELECT b.batch
    FROM (SELECT coalesce((SELECT o FROM posthaste.opened_0 o
            WHERE o.queue = p_queue AND o.priority = p_priority
                            ORDER BY o.queue DESC, o.priority DESC, o.number DESC LIMIT 1),
                              NULL) AS mark OFFSET 0) m,
         LATERAL (SELECT unnest((m.mark).open) AS batch UNION ALL
                  SELECT c.batch FROM posthaste.claim_0 c
                    WHERE c.queue = p_queue AND c.priority = p_priority
                     AND c.batch > coalesce((m.mark).batch, 0) AND c.n > 0) b
   WHERE NOT EXISTS (SELECT FROM posthaste.batch_done_0 w WHERE w.batch = b.batch)
$f$;
CREATE OR REPLACE FUNCTION posthaste.possibly_open_1(p_queue text, p_priority integer)
RETURNS SETOF bigint LANGUAGE sql STABLE AS $f$
  SELECT b.batch
    FROM (SELECT coalesce((SELECT o FROM posthaste.opened_1 o
            WHERE o.queue = p_queue AND o.priority = p_priority
                            ORDER BY o.queue DESC, o.priority DESC, o.number DESC LIMIT 1),
                              NULL) AS mark OFFSET 0) m,
         LATERAL (SELECT unnest((m.mark).open) AS batch UNION ALL
                  SELECT c.batch FROM posthaste.claim_1 c
                    WHERE c.queue = p_queue AND c.priority = p_priority
                     AND c.batch > coalesce((m.mark).batch, 0) AND c.n > 0) b
   WHERE NOT EXISTS (SELECT FROM posthaste.batch_done_1 w WHERE w.batch = b.batch)
$f$;
CREATE OR REPLACE FUNCTION posthaste.possibly_open_2(p_queue text, p_priority integer)
RETURNS SETOF bigint LANGUAGE sql STABLE AS $f$
  SELECT b.batch
    FROM (SELECT coalesce((SELECT o FROM posthaste.opened_2 o
            WHERE o.queue = p_queue AND o.priority = p_priority
                            ORDER BY o.queue DESC, o.priority DESC, o.number DESC LIMIT 1),
                              NULL) AS mark OFFSET 0) m,
         LATERAL (SELECT unnest((m.mark).open) AS batch UNION ALL
                  SELECT c.batch FROM posthaste.claim_2 c
                    WHERE c.queue = p_queue AND c.priority = p_priority
                     AND c.batch > coalesce((m.mark).batch, 0) AND c.n > 0) b
   WHERE NOT EXISTS (SELECT FROM posthaste.batch_done_2 w WHERE w.batch = b.batch)
$f$;
CREATE OR REPLACE FUNCTION posthaste.possibly_open_3(p_queue text, p_priority integer)
RETURNS SETOF bigint LANGUAGE sql STABLE AS $f$
  SELECT b.batch
    FROM (SELECT coalesce((SELECT o FROM posthaste.opened_3 o
            WHERE o.queue = p_queue AND o.priority = p_priority
                            ORDER BY o.queue DESC, o.priority DESC, o.number DESC LIMIT 1),
                              NULL) AS mark OFFSET 0) m,
         LATERAL (SELECT unnest((m.mark).open) AS batch UNION ALL
                  SELECT c.batch FROM posthaste.claim_3 c
                    WHERE c.queue = p_queue AND c.priority = p_priority
                     AND c.batch > coalesce((m.mark).batch, 0) AND c.n > 0) b
   WHERE NOT EXISTS (SELECT FROM posthaste.batch_done_3 w WHERE w.batch = b.batch)
$f$;
CREATE OR REPLACE FUNCTION posthaste.possibly_open_4(p_queue text, p_priority integer)
RETURNS SETOF bigint LANGUAGE sql STABLE AS $f$
  SELECT b.batch
    FROM (SELECT coalesce((SELECT o FROM posthaste.opened_4 o
            WHERE o.queue = p_queue AND o.priority = p_priority
                            ORDER BY o.queue DESC, o.priority DESC, o.number DESC LIMIT 1),
                              NULL) AS mark OFFSET 0) m,
         LATERAL (SELECT unnest((m.mark).open) AS batch UNION ALL
                  SELECT c.batch FROM posthaste.claim_4 c
                    WHERE c.queue = p_queue AND c.priority = p_priority
                     AND c.batch > coalesce((m.mark).batch, 0) AND c.n > 0) b
   WHERE NOT EXISTS (SELECT FROM posthaste.batch_done_4 w WHERE w.batch = b.batch)
$f$;
CREATE OR REPLACE FUNCTION posthaste.possibly_open_5(p_queue text, p_priority integer)
RETURNS SETOF bigint LANGUAGE sql STABLE AS $f$
  SELECT b.batch
    FROM (SELECT coalesce((SELECT o FROM posthaste.opened_5 o
            WHERE o.queue = p_queue AND o.priority = p_priority
                            ORDER BY o.queue DESC, o.priority DESC, o.number DESC LIMIT 1),
                              NULL) AS mark OFFSET 0) m,
         LATERAL (SELECT unnest((m.mark).open) AS batch UNION ALL
                  SELECT c.batch FROM posthaste.claim_5 c
                    WHERE c.queue = p_queue AND c.priority = p_priority
                     AND c.batch > coalesce((m.mark).batch, 0) AND c.n > 0) b
   WHERE NOT EXISTS (SELECT FROM posthaste.batch_done_5 w WHERE w.batch = b.batch)
$f$;

-- Lanes with claims.
CREATE OR REPLACE FUNCTION posthaste.claimed_lanes_0(OUT queue text, OUT priority integer)
RETURNS SETOF record LANGUAGE sql STABLE AS $f$
  WITH RECURSIVE lane AS (
    (SELECT c.queue, c.priority FROM posthaste.claim_0 c ORDER BY c.queue, c.priority LIMIT 1)
    UNION ALL
    SELECT n.queue, n.priority
      FROM lane l, LATERAL (SELECT c.queue, c.priority FROM posthaste.claim_0 c
                             WHERE (c.queue, c.priority) > (l.queue, l.priority)
                               ORDER BY c.queue, c.priority LIMIT 1) n)
  SELECT l.queue, l.priority FROM lane l
$f$;
CREATE OR REPLACE FUNCTION posthaste.claimed_lanes_1(OUT queue text, OUT priority integer)
RETURNS SETOF record LANGUAGE sql STABLE AS $f$
  WITH RECURSIVE lane AS (
    (SELECT c.queue, c.priority FROM posthaste.claim_1 c ORDER BY c.queue, c.priority LIMIT 1)
    UNION ALL
    SELECT n.queue, n.priority
      FROM lane l, LATERAL (SELECT c.queue, c.priority FROM posthaste.claim_1 c
                             WHERE (c.queue, c.priority) > (l.queue, l.priority)
                               ORDER BY c.queue, c.priority LIMIT 1) n)
  SELECT l.queue, l.priority FROM lane l
$f$;
CREATE OR REPLACE FUNCTION posthaste.claimed_lanes_2(OUT queue text, OUT priority integer)
RETURNS SETOF record LANGUAGE sql STABLE AS $f$
  WITH RECURSIVE lane AS (
    (SELECT c.queue, c.priority FROM posthaste.claim_2 c ORDER BY c.queue, c.priority LIMIT 1)
    UNION ALL
    SELECT n.queue, n.priority
      FROM lane l, LATERAL (SELECT c.queue, c.priority FROM posthaste.claim_2 c
                             WHERE (c.queue, c.priority) > (l.queue, l.priority)
                               ORDER BY c.queue, c.priority LIMIT 1) n)
  SELECT l.queue, l.priority FROM lane l
$f$;
CREATE OR REPLACE FUNCTION posthaste.claimed_lanes_3(OUT queue text, OUT priority integer)
RETURNS SETOF record LANGUAGE sql STABLE AS $f$
  WITH RECURSIVE lane AS (
    (SELECT c.queue, c.priority FROM posthaste.claim_3 c ORDER BY c.queue, c.priority LIMIT 1)
    UNION ALL
    SELECT n.queue, n.priority
      FROM lane l, LATERAL (SELECT c.queue, c.priority FROM posthaste.claim_3 c
                             WHERE (c.queue, c.priority) > (l.queue, l.priority)
                               ORDER BY c.queue, c.priority LIMIT 1) n)
  SELECT l.queue, l.priority FROM lane l
$f$;
CREATE OR REPLACE FUNCTION posthaste.claimed_lanes_4(OUT queue text, OUT priority integer)
RETURNS SETOF record LANGUAGE sql STABLE AS $f$
  WITH RECURSIVE lane AS (
    (SELECT c.queue, c.priority FROM posthaste.claim_4 c ORDER BY c.queue, c.priority LIMIT 1)
    UNION ALL
    SELECT n.queue, n.priority
      FROM lane l, LATERAL (SELECT c.queue, c.priority FROM posthaste.claim_4 c
                             WHERE (c.queue, c.priority) > (l.queue, l.priority)
                               ORDER BY c.queue, c.priority LIMIT 1) n)
  SELECT l.queue, l.priority FROM lane l
$f$;
CREATE OR REPLACE FUNCTION posthaste.claimed_lanes_5(OUT queue text, OUT priority integer)
RETURNS SETOF record LANGUAGE sql STABLE AS $f$
  WITH RECURSIVE lane AS (
    (SELECT c.queue, c.priority FROM posthaste.claim_5 c ORDER BY c.queue, c.priority LIMIT 1)
    UNION ALL
    SELECT n.queue, n.priority
      FROM lane l, LATERAL (SELECT c.queue, c.priority FROM posthaste.claim_5 c
                             WHERE (c.queue, c.priority) > (l.queue, l.priority)
                               ORDER BY c.queue, c.priority LIMIT 1) n)
  SELECT l.queue, l.priority FROM lane l
$f$;

-- Records which batches of each lane are open if that spares readers at least p_step probes. A
-- lane's batches become visible in order, because its lock is held until a claim's commit.
CREATE OR REPLACE FUNCTION posthaste.mark_open_batches_0(p_step integer)
RETURNS void LANGUAGE sql AS $f$
  INSERT INTO posthaste.opened_0 (queue, priority, number, batch, open)
  SELECT l.queue, l.priority, coalesce(mark.number, 0) + 1, coalesce(last.batch, mark.batch), o.open
    FROM posthaste.claimed_lanes_0() l
    LEFT JOIN LATERAL (SELECT m.number, m.batch, cardinality(m.open) AS n FROM posthaste.opened_0 m
        WHERE m.queue = l.queue AND m.priority = l.priority
                        ORDER BY m.queue DESC, m.priority DESC, m.number DESC LIMIT 1) mark ON true,
    LATERAL (SELECT max(c.batch) AS batch, count(*) AS n FROM posthaste.claim_0 c
              WHERE c.queue = l.queue AND c.priority = l.priority
                AND c.batch > coalesce(mark.batch, 0) OFFSET 0) last,
    LATERAL (SELECT coalesce(array_agg(b.batch), '{}') AS open
               FROM posthaste.possibly_open_0(l.queue, l.priority) b(batch)
              WHERE EXISTS (SELECT FROM posthaste.claim_0 c,
                  LATERAL posthaste.batch_rows_0(c.batch, c.token) r
                             WHERE c.batch = b.batch
                               AND NOT EXISTS (SELECT FROM posthaste.job_done_0 a
                                 WHERE a.xid = r.xid AND a.id = r.id))
             OFFSET 0) o
   WHERE coalesce(mark.n, 0) + last.n - cardinality(o.open) >= p_step
$f$;
CREATE OR REPLACE FUNCTION posthaste.mark_open_batches_1(p_step integer)
RETURNS void LANGUAGE sql AS $f$
  INSERT INTO posthaste.opened_1 (queue, priority, number, batch, open)
  SELECT l.queue, l.priority, coalesce(mark.number, 0) + 1, coalesce(last.batch, mark.batch), o.open
    FROM posthaste.claimed_lanes_1() l
    LEFT JOIN LATERAL (SELECT m.number, m.batch, cardinality(m.open) AS n FROM posthaste.opened_1 m
        WHERE m.queue = l.queue AND m.priority = l.priority
                        ORDER BY m.queue DESC, m.priority DESC, m.number DESC LIMIT 1) mark ON true,
    LATERAL (SELECT max(c.batch) AS batch, count(*) AS n FROM posthaste.claim_1 c
              WHERE c.queue = l.queue AND c.priority = l.priority
                AND c.batch > coalesce(mark.batch, 0) OFFSET 0) last,
    LATERAL (SELECT coalesce(array_agg(b.batch), '{}') AS open
               FROM posthaste.possibly_open_1(l.queue, l.priority) b(batch)
              WHERE EXISTS (SELECT FROM posthaste.claim_1 c,
                  LATERAL posthaste.batch_rows_1(c.batch, c.token) r
                             WHERE c.batch = b.batch
                               AND NOT EXISTS (SELECT FROM posthaste.job_done_1 a
                                 WHERE a.xid = r.xid AND a.id = r.id))
             OFFSET 0) o
   WHERE coalesce(mark.n, 0) + last.n - cardinality(o.open) >= p_step
$f$;
CREATE OR REPLACE FUNCTION posthaste.mark_open_batches_2(p_step integer)
RETURNS void LANGUAGE sql AS $f$
  INSERT INTO posthaste.opened_2 (queue, priority, number, batch, open)
  SELECT l.queue, l.priority, coalesce(mark.number, 0) + 1, coalesce(last.batch, mark.batch), o.open
    FROM posthaste.claimed_lanes_2() l
    LEFT JOIN LATERAL (SELECT m.number, m.batch, cardinality(m.open) AS n FROM posthaste.opened_2 m
        WHERE m.queue = l.queue AND m.priority = l.priority
                        ORDER BY m.queue DESC, m.priority DESC, m.number DESC LIMIT 1) mark ON true,
    LATERAL (SELECT max(c.batch) AS batch, count(*) AS n FROM posthaste.claim_2 c
              WHERE c.queue = l.queue AND c.priority = l.priority
                AND c.batch > coalesce(mark.batch, 0) OFFSET 0) last,
    LATERAL (SELECT coalesce(array_agg(b.batch), '{}') AS open
               FROM posthaste.possibly_open_2(l.queue, l.priority) b(batch)
              WHERE EXISTS (SELECT FROM posthaste.claim_2 c,
                  LATERAL posthaste.batch_rows_2(c.batch, c.token) r
                             WHERE c.batch = b.batch
                               AND NOT EXISTS (SELECT FROM posthaste.job_done_2 a
                                 WHERE a.xid = r.xid AND a.id = r.id))
             OFFSET 0) o
   WHERE coalesce(mark.n, 0) + last.n - cardinality(o.open) >= p_step
$f$;
CREATE OR REPLACE FUNCTION posthaste.mark_open_batches_3(p_step integer)
RETURNS void LANGUAGE sql AS $f$
  INSERT INTO posthaste.opened_3 (queue, priority, number, batch, open)
  SELECT l.queue, l.priority, coalesce(mark.number, 0) + 1, coalesce(last.batch, mark.batch), o.open
    FROM posthaste.claimed_lanes_3() l
    LEFT JOIN LATERAL (SELECT m.number, m.batch, cardinality(m.open) AS n FROM posthaste.opened_3 m
        WHERE m.queue = l.queue AND m.priority = l.priority
                        ORDER BY m.queue DESC, m.priority DESC, m.number DESC LIMIT 1) mark ON true,
    LATERAL (SELECT max(c.batch) AS batch, count(*) AS n FROM posthaste.claim_3 c
              WHERE c.queue = l.queue AND c.priority = l.priority
                AND c.batch > coalesce(mark.batch, 0) OFFSET 0) last,
    LATERAL (SELECT coalesce(array_agg(b.batch), '{}') AS open
               FROM posthaste.possibly_open_3(l.queue, l.priority) b(batch)
              WHERE EXISTS (SELECT FROM posthaste.claim_3 c,
                  LATERAL posthaste.batch_rows_3(c.batch, c.token) r
                             WHERE c.batch = b.batch
                               AND NOT EXISTS (SELECT FROM posthaste.job_done_3 a
                                 WHERE a.xid = r.xid AND a.id = r.id))
             OFFSET 0) o
   WHERE coalesce(mark.n, 0) + last.n - cardinality(o.open) >= p_step
$f$;
CREATE OR REPLACE FUNCTION posthaste.mark_open_batches_4(p_step integer)
RETURNS void LANGUAGE sql AS $f$
  INSERT INTO posthaste.opened_4 (queue, priority, number, batch, open)
  SELECT l.queue, l.priority, coalesce(mark.number, 0) + 1, coalesce(last.batch, mark.batch), o.open
    FROM posthaste.claimed_lanes_4() l
    LEFT JOIN LATERAL (SELECT m.number, m.batch, cardinality(m.open) AS n FROM posthaste.opened_4 m
        WHERE m.queue = l.queue AND m.priority = l.priority
                        ORDER BY m.queue DESC, m.priority DESC, m.number DESC LIMIT 1) mark ON true,
    LATERAL (SELECT max(c.batch) AS batch, count(*) AS n FROM posthaste.claim_4 c
              WHERE c.queue = l.queue AND c.priority = l.priority
                AND c.batch > coalesce(mark.batch, 0) OFFSET 0) last,
    LATERAL (SELECT coalesce(array_agg(b.batch), '{}') AS open
               FROM posthaste.possibly_open_4(l.queue, l.priority) b(batch)
              WHERE EXISTS (SELECT FROM posthaste.claim_4 c,
                  LATERAL posthaste.batch_rows_4(c.batch, c.token) r
                             WHERE c.batch = b.batch
                               AND NOT EXISTS (SELECT FROM posthaste.job_done_4 a
                                 WHERE a.xid = r.xid AND a.id = r.id))
             OFFSET 0) o
   WHERE coalesce(mark.n, 0) + last.n - cardinality(o.open) >= p_step
$f$;
CREATE OR REPLACE FUNCTION posthaste.mark_open_batches_5(p_step integer)
RETURNS void LANGUAGE sql AS $f$
  INSERT INTO posthaste.opened_5 (queue, priority, number, batch, open)
  SELECT l.queue, l.priority, coalesce(mark.number, 0) + 1, coalesce(last.batch, mark.batch), o.open
    FROM posthaste.claimed_lanes_5() l
    LEFT JOIN LATERAL (SELECT m.number, m.batch, cardinality(m.open) AS n FROM posthaste.opened_5 m
        WHERE m.queue = l.queue AND m.priority = l.priority
                        ORDER BY m.queue DESC, m.priority DESC, m.number DESC LIMIT 1) mark ON true,
    LATERAL (SELECT max(c.batch) AS batch, count(*) AS n FROM posthaste.claim_5 c
              WHERE c.queue = l.queue AND c.priority = l.priority
                AND c.batch > coalesce(mark.batch, 0) OFFSET 0) last,
    LATERAL (SELECT coalesce(array_agg(b.batch), '{}') AS open
               FROM posthaste.possibly_open_5(l.queue, l.priority) b(batch)
              WHERE EXISTS (SELECT FROM posthaste.claim_5 c,
                  LATERAL posthaste.batch_rows_5(c.batch, c.token) r
                             WHERE c.batch = b.batch
                               AND NOT EXISTS (SELECT FROM posthaste.job_done_5 a
                                 WHERE a.xid = r.xid AND a.id = r.id))
             OFFSET 0) o
   WHERE coalesce(mark.n, 0) + last.n - cardinality(o.open) >= p_step
$f$;

-- The next window to count: up to the end of the claims' window if that is later, so that jobs are
-- counted in the order of their claims; else up to now.
CREATE OR REPLACE FUNCTION posthaste.next_counting_window(w posthaste.lane_window, c_hi pg_snapshot)
RETURNS posthaste.lane_window LANGUAGE plpgsql
SET search_path = pg_catalog, pg_temp AS $f$
BEGIN
  w := posthaste.next_window(w, posthaste.cursor_snapshot());
  IF posthaste.is_subset(w.lo, c_hi) AND NOT posthaste.is_subset(c_hi, w.lo) THEN
    w.hi := c_hi; w.is_fresh := false;
    w := posthaste.with_bounds(w);
  END IF;
  RETURN w;
END $f$;

-- The state as which a scheduled job is counted: one that waits for its turn is never due
-- (functions/ordering.sql).
CREATE OR REPLACE FUNCTION posthaste.wait_kind(due timestamptz, attempt integer)
RETURNS text LANGUAGE sql IMMUTABLE PARALLEL SAFE AS $f$
  SELECT CASE WHEN due = '9999-01-01Z' THEN 'blocked' WHEN attempt > 0 THEN 'retrying'
      ELSE 'scheduled' END
$f$;
-- Counters of the scheduled slots: marks as functions/marks.sql has them for lanes.

-- The newest mark, or an empty one.
CREATE OR REPLACE FUNCTION posthaste.newest_scheduled_mark_6()
RETURNS posthaste.counted_6 LANGUAGE sql STABLE AS $f$
  SELECT n FROM (SELECT c AS n, c.number FROM posthaste.counted_6 c UNION ALL
                 SELECT ROW(0, '0', '-infinity', 0, true, '1:1:', '1:1:', '1:1:', '{}', '{}', '{}',
                     '{}', '{}', '{}')::posthaste.counted_6, 0) all_of_them
   ORDER BY number DESC LIMIT 1
$f$;
CREATE OR REPLACE FUNCTION posthaste.newest_scheduled_mark_7()
RETURNS posthaste.counted_7 LANGUAGE sql STABLE AS $f$
  SELECT n FROM (SELECT c AS n, c.number FROM posthaste.counted_7 c UNION ALL
                 SELECT ROW(0, '0', '-infinity', 0, true, '1:1:', '1:1:', '1:1:', '{}', '{}', '{}',
                     '{}', '{}', '{}')::posthaste.counted_7, 0) all_of_them
   ORDER BY number DESC LIMIT 1
$f$;

-- Jobs that left this slot and were not visible in that snapshot.
CREATE OR REPLACE FUNCTION posthaste.left_since_6(p_hi pg_snapshot)
RETURNS SETOF posthaste.left_6 LANGUAGE sql STABLE AS $f$
  SELECT late.*
    FROM pg_snapshot_xip(p_hi) p,
         LATERAL (SELECT l.* FROM posthaste.left_6 l WHERE l.xid = p OFFSET 0) late
  UNION ALL
  SELECT l.* FROM posthaste.left_6 l WHERE l.xid >= pg_snapshot_xmax(p_hi)
$f$;
CREATE OR REPLACE FUNCTION posthaste.left_since_7(p_hi pg_snapshot)
RETURNS SETOF posthaste.left_7 LANGUAGE sql STABLE AS $f$
  SELECT late.*
    FROM pg_snapshot_xip(p_hi) p,
         LATERAL (SELECT l.* FROM posthaste.left_7 l WHERE l.xid = p OFFSET 0) late
  UNION ALL
  SELECT l.* FROM posthaste.left_7 l WHERE l.xid >= pg_snapshot_xmax(p_hi)
$f$;

-- Jobs that entered this slot and are in no mark.
CREATE OR REPLACE FUNCTION posthaste.entered_since_6(m posthaste.counted_6)
RETURNS SETOF posthaste.store LANGUAGE sql STABLE AS $f$
  SELECT r.* FROM (
    SELECT CASE WHEN m.exhausted THEN pg_snapshot_xmax(m.hi)
        ELSE greatest(m.at_xid, pg_snapshot_xmax(m.lo)) END AS xid,
           CASE WHEN m.exhausted OR m.at_xid < pg_snapshot_xmax(m.lo) THEN '-infinity'
               ELSE m.at_due END AS due,
           CASE WHEN m.exhausted OR m.at_xid < pg_snapshot_xmax(m.lo) THEN 0 ELSE m.at_id END AS id
             OFFSET 0) low,
  LATERAL (
    SELECT late.* FROM (SELECT pg_snapshot_xip(m.lo) AS p UNION SELECT pg_snapshot_xip(m.hi)) x,
                       LATERAL (SELECT r.* FROM posthaste.scheduled_6 r
                           WHERE r.xid = x.p OFFSET 0) late
     WHERE x.p < low.xid
       AND NOT (pg_visible_in_snapshot(late.xid, m.lo) OR (pg_visible_in_snapshot(late.xid, m.hi)
           AND (m.exhausted
               OR (late.xid, late.scheduled_at, late.id) <= (m.at_xid, m.at_due, m.at_id))))
    UNION ALL
    (SELECT r.* FROM posthaste.scheduled_6 r
        WHERE (r.xid, r.scheduled_at, r.id) > (low.xid, low.due, low.id) OFFSET 0)
  ) r
$f$;
CREATE OR REPLACE FUNCTION posthaste.entered_since_7(m posthaste.counted_7)
RETURNS SETOF posthaste.store LANGUAGE sql STABLE AS $f$
  SELECT r.* FROM (
    SELECT CASE WHEN m.exhausted THEN pg_snapshot_xmax(m.hi)
        ELSE greatest(m.at_xid, pg_snapshot_xmax(m.lo)) END AS xid,
           CASE WHEN m.exhausted OR m.at_xid < pg_snapshot_xmax(m.lo) THEN '-infinity'
               ELSE m.at_due END AS due,
           CASE WHEN m.exhausted OR m.at_xid < pg_snapshot_xmax(m.lo) THEN 0 ELSE m.at_id END AS id
             OFFSET 0) low,
  LATERAL (
    SELECT late.* FROM (SELECT pg_snapshot_xip(m.lo) AS p UNION SELECT pg_snapshot_xip(m.hi)) x,
                       LATERAL (SELECT r.* FROM posthaste.scheduled_7 r
                           WHERE r.xid = x.p OFFSET 0) late
     WHERE x.p < low.xid
       AND NOT (pg_visible_in_snapshot(late.xid, m.lo) OR (pg_visible_in_snapshot(late.xid, m.hi)
           AND (m.exhausted
               OR (late.xid, late.scheduled_at, late.id) <= (m.at_xid, m.at_due, m.at_id))))
    UNION ALL
    (SELECT r.* FROM posthaste.scheduled_7 r
        WHERE (r.xid, r.scheduled_at, r.id) > (low.xid, low.due, low.id) OFFSET 0)
  ) r
$f$;

-- Counts jobs that entered and left this slot, at most p_limit or p_step, and writes a mark if
-- there are at least p_step; returns the number counted.
CREATE OR REPLACE FUNCTION posthaste.count_scheduled_6(p_limit integer, p_step integer)
RETURNS integer LANGUAGE plpgsql AS $f$
DECLARE
  m posthaste.counted_6 := posthaste.newest_scheduled_mark_6();
  n posthaste.counted_6;
  v_entered integer;
  v_left integer;
BEGIN
  n := m;
  -- With a smaller limit it could not tell whether there are more.
  p_limit := greatest(p_limit, p_step);
  n.number := m.number + 1;
  n.left_hi := posthaste.cursor_snapshot();
  IF m.exhausted THEN
    n.lo := m.hi; n.hi := n.left_hi; n.at_xid := '0'; n.at_due := '-infinity'; n.at_id := 0;
  END IF;
  WITH entered AS MATERIALIZED (
    SELECT r.xid, r.scheduled_at, r.id, coalesce(r.own_queue, r.queue) AS queue,
           coalesce(r.own_priority, r.priority) AS priority, r.name, r.tag,
           posthaste.wait_kind(r.scheduled_at, r.attempt) AS what FROM (
      SELECT late.* FROM pg_snapshot_xip(n.lo) p, LATERAL (
        SELECT r.* FROM posthaste.scheduled_6 r WHERE r.xid = p AND pg_visible_in_snapshot(p, n.hi)
           AND (r.xid, r.scheduled_at, r.id) > (n.at_xid, n.at_due, n.at_id)
             ORDER BY r.xid, r.scheduled_at, r.id LIMIT p_limit) late
      UNION ALL
      (SELECT r.* FROM posthaste.scheduled_6 r
        WHERE (r.xid, r.scheduled_at, r.id) > (greatest(n.at_xid, pg_snapshot_xmax(n.lo)),
                CASE WHEN n.at_xid < pg_snapshot_xmax(n.lo) THEN '-infinity' ELSE n.at_due END,
                CASE WHEN n.at_xid < pg_snapshot_xmax(n.lo) THEN 0 ELSE n.at_id END)
          AND r.xid < pg_snapshot_xmax(n.hi) AND pg_visible_in_snapshot(r.xid, n.hi)
        ORDER BY r.xid, r.scheduled_at, r.id LIMIT p_limit)) r
     ORDER BY r.xid, r.scheduled_at, r.id LIMIT p_limit),
  gone AS MATERIALIZED (SELECT * FROM posthaste.left_since_6(m.left_hi) l
      WHERE pg_visible_in_snapshot(l.xid, n.left_hi)),
  sums AS (
    SELECT s.queue, s.priority, s.name, s.tag, s.what, sum(s.jobs)::bigint AS jobs FROM (
      SELECT e.queue, e.priority, e.name, e.tag, e.what, 1 AS jobs FROM entered e UNION ALL
      SELECT g.queue, g.priority, g.name, g.tag, g.what, -g.jobs FROM gone g UNION ALL
      SELECT * FROM unnest(m.queues, m.priorities, m.names, m.tags, m.whats, m.jobs)) s
     GROUP BY s.queue, s.priority, s.name, s.tag, s.what HAVING sum(s.jobs) <> 0)
  SELECT (SELECT count(*) FROM entered), (SELECT count(*) FROM gone), coalesce(l.xid, n.at_xid),
         coalesce(l.scheduled_at, n.at_due), coalesce(l.id, n.at_id),
         coalesce(s.queues, '{}'), coalesce(s.priorities, '{}'), coalesce(s.names, '{}'),
         coalesce(s.tags, '{}'), coalesce(s.whats, '{}'), coalesce(s.jobs, '{}')
    INTO v_entered, v_left, n.at_xid, n.at_due, n.at_id, n.queues, n.priorities, n.names, n.tags,
      n.whats, n.jobs
    FROM (SELECT array_agg(queue) AS queues, array_agg(priority) AS priorities,
                 array_agg(name) AS names, array_agg(tag) AS tags,
                 array_agg(what) AS whats, array_agg(jobs) AS jobs FROM sums) s
    LEFT JOIN (SELECT xid, scheduled_at, id FROM entered ORDER BY xid DESC, scheduled_at DESC,
        id DESC LIMIT 1) l ON true;
  n.exhausted := v_entered < p_limit;
  IF cardinality(n.jobs) > 1000 THEN
    SELECT array_agg(k.queue), array_agg(k.priority), array_agg(k.name), array_agg(k.tag),
           array_agg(k.what), array_agg(k.jobs)
      INTO n.queues, n.priorities, n.names, n.tags, n.whats, n.jobs
      FROM posthaste.limit_kinds(posthaste.kinds_of(m.queues || n.queues,
        m.priorities || n.priorities, m.names || n.names, m.tags || n.tags, m.whats || n.whats,
        array_fill(0::bigint, ARRAY[cardinality(m.jobs)]) || n.jobs), n.exhausted) k;
  END IF;
  IF v_entered + v_left >= greatest(p_step, cardinality(n.jobs))
    OR (NOT m.exhausted AND n.exhausted) THEN
    INSERT INTO posthaste.counted_6 SELECT n.*;
    RETURN v_entered;
  END IF;
  RETURN 0;
END $f$;
CREATE OR REPLACE FUNCTION posthaste.count_scheduled_7(p_limit integer, p_step integer)
RETURNS integer LANGUAGE plpgsql AS $f$
DECLARE
  m posthaste.counted_7 := posthaste.newest_scheduled_mark_7();
  n posthaste.counted_7;
  v_entered integer;
  v_left integer;
BEGIN
  n := m;
  -- With a smaller limit it could not tell whether there are more.
  p_limit := greatest(p_limit, p_step);
  n.number := m.number + 1;
  n.left_hi := posthaste.cursor_snapshot();
  IF m.exhausted THEN
    n.lo := m.hi; n.hi := n.left_hi; n.at_xid := '0'; n.at_due := '-infinity'; n.at_id := 0;
  END IF;
  WITH entered AS MATERIALIZED (
    SELECT r.xid, r.scheduled_at, r.id, coalesce(r.own_queue, r.queue) AS queue,
           coalesce(r.own_priority, r.priority) AS priority, r.name, r.tag,
           posthaste.wait_kind(r.scheduled_at, r.attempt) AS what FROM (
      SELECT late.* FROM pg_snapshot_xip(n.lo) p, LATERAL (
        SELECT r.* FROM posthaste.scheduled_7 r WHERE r.xid = p AND pg_visible_in_snapshot(p, n.hi)
           AND (r.xid, r.scheduled_at, r.id) > (n.at_xid, n.at_due, n.at_id)
             ORDER BY r.xid, r.scheduled_at, r.id LIMIT p_limit) late
      UNION ALL
      (SELECT r.* FROM posthaste.scheduled_7 r
        WHERE (r.xid, r.scheduled_at, r.id) > (greatest(n.at_xid, pg_snapshot_xmax(n.lo)),
                CASE WHEN n.at_xid < pg_snapshot_xmax(n.lo) THEN '-infinity' ELSE n.at_due END,
                CASE WHEN n.at_xid < pg_snapshot_xmax(n.lo) THEN 0 ELSE n.at_id END)
          AND r.xid < pg_snapshot_xmax(n.hi) AND pg_visible_in_snapshot(r.xid, n.hi)
        ORDER BY r.xid, r.scheduled_at, r.id LIMIT p_limit)) r
     ORDER BY r.xid, r.scheduled_at, r.id LIMIT p_limit),
  gone AS MATERIALIZED (SELECT * FROM posthaste.left_since_7(m.left_hi) l
      WHERE pg_visible_in_snapshot(l.xid, n.left_hi)),
  sums AS (
    SELECT s.queue, s.priority, s.name, s.tag, s.what, sum(s.jobs)::bigint AS jobs FROM (
      SELECT e.queue, e.priority, e.name, e.tag, e.what, 1 AS jobs FROM entered e UNION ALL
      SELECT g.queue, g.priority, g.name, g.tag, g.what, -g.jobs FROM gone g UNION ALL
      SELECT * FROM unnest(m.queues, m.priorities, m.names, m.tags, m.whats, m.jobs)) s
     GROUP BY s.queue, s.priority, s.name, s.tag, s.what HAVING sum(s.jobs) <> 0)
  SELECT (SELECT count(*) FROM entered), (SELECT count(*) FROM gone), coalesce(l.xid, n.at_xid),
         coalesce(l.scheduled_at, n.at_due), coalesce(l.id, n.at_id),
         coalesce(s.queues, '{}'), coalesce(s.priorities, '{}'), coalesce(s.names, '{}'),
         coalesce(s.tags, '{}'), coalesce(s.whats, '{}'), coalesce(s.jobs, '{}')
    INTO v_entered, v_left, n.at_xid, n.at_due, n.at_id, n.queues, n.priorities, n.names, n.tags,
      n.whats, n.jobs
    FROM (SELECT array_agg(queue) AS queues, array_agg(priority) AS priorities,
                 array_agg(name) AS names, array_agg(tag) AS tags,
                 array_agg(what) AS whats, array_agg(jobs) AS jobs FROM sums) s
    LEFT JOIN (SELECT xid, scheduled_at, id FROM entered ORDER BY xid DESC, scheduled_at DESC,
        id DESC LIMIT 1) l ON true;
  n.exhausted := v_entered < p_limit;
  IF cardinality(n.jobs) > 1000 THEN
    SELECT array_agg(k.queue), array_agg(k.priority), array_agg(k.name), array_agg(k.tag),
           array_agg(k.what), array_agg(k.jobs)
      INTO n.queues, n.priorities, n.names, n.tags, n.whats, n.jobs
      FROM posthaste.limit_kinds(posthaste.kinds_of(m.queues || n.queues,
        m.priorities || n.priorities, m.names || n.names, m.tags || n.tags, m.whats || n.whats,
        array_fill(0::bigint, ARRAY[cardinality(m.jobs)]) || n.jobs), n.exhausted) k;
  END IF;
  IF v_entered + v_left >= greatest(p_step, cardinality(n.jobs))
    OR (NOT m.exhausted AND n.exhausted) THEN
    INSERT INTO posthaste.counted_7 SELECT n.*;
    RETURN v_entered;
  END IF;
  RETURN 0;
END $f$;

-- Records jobs that leave a scheduled slot because it is their turn.
CREATE OR REPLACE FUNCTION posthaste.count_left(p_places posthaste.place[])
RETURNS void LANGUAGE plpgsql
SET search_path = pg_catalog, pg_temp AS $f$
BEGIN
  INSERT INTO posthaste.left_6 (queue, priority, name, tag, what, jobs)
    SELECT coalesce(r.own_queue, r.queue), coalesce(r.own_priority, r.priority), r.name, r.tag,
    'blocked', 1 FROM unnest(p_places) u
    JOIN posthaste.scheduled_6 r ON r.xid = u.xid AND r.scheduled_at = '9999-01-01Z' AND r.id = u.id
    WHERE u.slot = 6;
  INSERT INTO posthaste.left_7 (queue, priority, name, tag, what, jobs)
    SELECT coalesce(r.own_queue, r.queue), coalesce(r.own_priority, r.priority), r.name, r.tag,
    'blocked', 1 FROM unnest(p_places) u
    JOIN posthaste.scheduled_7 r ON r.xid = u.xid AND r.scheduled_at = '9999-01-01Z' AND r.id = u.id
    WHERE u.slot = 7;
END $f$;
-- Notifications. A worker that goes to sleep sets the bit of its queue in posthaste.flags, polls
-- once more, and is woken by NOTIFY when a transaction that has seen the bit commits. A commit with
-- NOTIFY excludes other such commits, so it is paid once per sleep and not once per job. An
-- enqueuer never clears a bit: if it rolled back or stayed open, workers would not be woken.

-- The bit of a queue. Queues share 61 bits: a queue that shares one is notified more often than
-- needed. The leader's queue is ''.
CREATE OR REPLACE FUNCTION posthaste.listener_bit(queue text)
RETURNS bigint LANGUAGE sql IMMUTABLE PARALLEL SAFE AS $f$
  SELECT CASE WHEN queue = '' THEN 2::bigint
      ELSE 4::bigint << ((hashtext(queue) & 2147483647) % 61) END
$f$;

-- The bits of the queues that this transaction must notify. None after SET posthaste.notify = off:
-- PREPARE TRANSACTION rejects transactions that have notified.
CREATE OR REPLACE FUNCTION posthaste.listeners() RETURNS bigint LANGUAGE plpgsql AS $f$
DECLARE
  v_flags bigint := posthaste.position('posthaste.flags');
BEGIN
  IF v_flags < 2 OR lower(current_setting('posthaste.notify', true)) IN ('off', 'false', 'no', '0')
     OR posthaste.position('posthaste.listeners_until')::numeric
        < extract(epoch FROM clock_timestamp()) THEN
    RETURN 0;
  END IF;
  RETURN v_flags;
END $f$;

-- Notifies the workers of a queue if its bit is among the listeners. Returns 0, to be added to the
-- slot of a row. One of the inner branches is never reached; it exists because a void result can
-- only be tested. The planner inlines it.
CREATE OR REPLACE FUNCTION posthaste.notify(queue text, listeners bigint)
RETURNS smallint LANGUAGE sql AS $f$
  SELECT CASE WHEN listeners & posthaste.listener_bit(queue) <> 0
              THEN CASE WHEN pg_notify('posthaste', left(queue, 255)) IS NULL
                        THEN 0::smallint ELSE 0::smallint END
              ELSE 0::smallint END
$f$;

-- Notifications, the worker's side: a worker that goes to sleep turns them on and polls once more.
-- They are only an optimisation: each worker also polls from time to time, so a missed notification
-- only costs time.

-- Turns the notifications of these bits of posthaste.flags on until p_for from now. Returns false
-- while another open transaction writes the first route. Returns NULL, and turns all notifications
-- off, while the server's notification queue is half full: once it is full, because a listening
-- session of any database stays in a transaction, each transaction that has notified fails at
-- COMMIT. Enqueuers do not check this: workers call it every few seconds, and the queue has room
-- for gigabytes. The commit is asynchronous: a crash that loses it also ends the sleepers'
-- connections.
CREATE OR REPLACE FUNCTION posthaste.notify_on(p_bits bigint, p_for interval)
RETURNS boolean LANGUAGE plpgsql
SET search_path = pg_catalog, pg_temp AS $f$
DECLARE
  v_bits bigint := p_bits & -2;
  v_flags bigint;
  v_until bigint := floor(extract(epoch FROM clock_timestamp() + p_for));
BEGIN
  PERFORM set_config('synchronous_commit', 'off', true), set_config('lock_timeout', '50ms', true);
  PERFORM pg_advisory_xact_lock(1885893480, 0);
  v_flags := posthaste.position('posthaste.flags');
  IF v_bits <> 0 AND pg_notification_queue_usage() > 0.5 THEN
    PERFORM setval('posthaste.flags', v_flags & 1);
    RETURN NULL;
  END IF;
  IF v_flags & v_bits <> v_bits THEN
    PERFORM setval('posthaste.flags', v_flags | v_bits);
  END IF;
  -- Not at each renewal, since it is set ahead. A time further ahead than any sleep was written
  -- before the clock stepped back: workers that died asleep would be notified until then.
  IF v_bits <> 0 AND pg_sequence_last_value('posthaste.listeners_until'::regclass)
                     NOT BETWEEN v_until - extract(epoch FROM p_for) / 3 AND v_until + 600 THEN
    PERFORM setval('posthaste.listeners_until', v_until);
  END IF;
  RETURN true;
EXCEPTION WHEN lock_not_available THEN
  RETURN false;
END $f$;

-- Turns the notifications of these bits off and informs the workers that rely on them: they poll,
-- or turn them on again. Returns false as above.
CREATE OR REPLACE FUNCTION posthaste.notify_off(p_bits bigint)
RETURNS boolean LANGUAGE plpgsql
SET search_path = pg_catalog, pg_temp AS $f$
DECLARE
  v_on bigint;
BEGIN
  PERFORM set_config('synchronous_commit', 'off', true), set_config('lock_timeout', '50ms', true);
  PERFORM pg_advisory_xact_lock(1885893480, 0);
  v_on := posthaste.position('posthaste.flags') & p_bits & -2;
  IF v_on <> 0 THEN
    PERFORM setval('posthaste.flags', pg_sequence_last_value('posthaste.flags'::regclass) & ~v_on);
    PERFORM pg_notify('posthaste_rest', v_on::text);
  END IF;
  RETURN true;
EXCEPTION WHEN lock_not_available THEN
  RETURN false;
END $f$;

-- Lanes of these queues in this slot that have something to claim. Lanes are found by their rows,
-- known or not: one index probe leads from each to the next.
CREATE OR REPLACE FUNCTION posthaste.queues_with_work_0(p_queues text[])
RETURNS TABLE (queue text, priority integer) LANGUAGE plpgsql AS $f$
#variable_conflict use_column
DECLARE
  v_now pg_snapshot := pg_current_snapshot();
BEGIN
  RETURN QUERY
    WITH RECURSIVE lane AS (
      SELECT q.queue COLLATE "C" AS queue, f.priority
        FROM unnest(p_queues) q(queue), LATERAL (
             SELECT r.priority FROM posthaste.ready_0 r
               WHERE r.queue = q.queue ORDER BY r.queue, r.priority LIMIT 1) f
      UNION ALL
      SELECT l.queue, f.priority
        FROM lane l, LATERAL (
             SELECT r.priority FROM posthaste.ready_0 r
               WHERE r.queue = l.queue AND r.priority > l.priority
              ORDER BY r.queue, r.priority LIMIT 1) f)
    SELECT l.queue::text, l.priority
      FROM lane l LEFT JOIN LATERAL (
           SELECT * FROM posthaste.claim_0 n WHERE n.queue = l.queue AND n.priority = l.priority
            ORDER BY n.queue DESC, n.priority DESC, n.batch DESC LIMIT 1) c ON true
     -- As posthaste.pending_0, for one lane.
     WHERE c.batch IS NULL
        OR (NOT c.exhausted AND EXISTS (
             SELECT FROM posthaste.ready_0 r WHERE r.queue = l.queue AND r.priority = l.priority
                AND (r.xid, r.id) > (c.to_xid, c.to_id) AND r.xid < pg_snapshot_xmax(c.hi)
                AND NOT pg_visible_in_snapshot(r.xid, c.lo)
                  AND pg_visible_in_snapshot(r.xid, c.hi)))
        OR EXISTS (
             SELECT FROM posthaste.ready_0 r WHERE r.queue = l.queue AND r.priority = l.priority
                AND r.xid >= pg_snapshot_xmax(c.hi) AND pg_visible_in_snapshot(r.xid, v_now))
        OR EXISTS (
             SELECT FROM pg_snapshot_xip(c.hi) p, LATERAL (
               SELECT FROM posthaste.ready_0 r
                 WHERE r.queue = l.queue AND r.priority = l.priority AND r.xid = p LIMIT 1) late
              WHERE pg_visible_in_snapshot(p, v_now));
END $f$;
CREATE OR REPLACE FUNCTION posthaste.queues_with_work_1(p_queues text[])
RETURNS TABLE (queue text, priority integer) LANGUAGE plpgsql AS $f$
#variable_conflict use_column
DECLARE
  v_now pg_snapshot := pg_current_snapshot();
BEGIN
  RETURN QUERY
    WITH RECURSIVE lane AS (
      SELECT q.queue COLLATE "C" AS queue, f.priority
        FROM unnest(p_queues) q(queue), LATERAL (
             SELECT r.priority FROM posthaste.ready_1 r
               WHERE r.queue = q.queue ORDER BY r.queue, r.priority LIMIT 1) f
      UNION ALL
      SELECT l.queue, f.priority
        FROM lane l, LATERAL (
             SELECT r.priority FROM posthaste.ready_1 r
               WHERE r.queue = l.queue AND r.priority > l.priority
              ORDER BY r.queue, r.priority LIMIT 1) f)
    SELECT l.queue::text, l.priority
      FROM lane l LEFT JOIN LATERAL (
           SELECT * FROM posthaste.claim_1 n WHERE n.queue = l.queue AND n.priority = l.priority
            ORDER BY n.queue DESC, n.priority DESC, n.batch DESC LIMIT 1) c ON true
     -- As posthaste.pending_1, for one lane.
     WHERE c.batch IS NULL
        OR (NOT c.exhausted AND EXISTS (
             SELECT FROM posthaste.ready_1 r WHERE r.queue = l.queue AND r.priority = l.priority
                AND (r.xid, r.id) > (c.to_xid, c.to_id) AND r.xid < pg_snapshot_xmax(c.hi)
                AND NOT pg_visible_in_snapshot(r.xid, c.lo)
                  AND pg_visible_in_snapshot(r.xid, c.hi)))
        OR EXISTS (
             SELECT FROM posthaste.ready_1 r WHERE r.queue = l.queue AND r.priority = l.priority
                AND r.xid >= pg_snapshot_xmax(c.hi) AND pg_visible_in_snapshot(r.xid, v_now))
        OR EXISTS (
             SELECT FROM pg_snapshot_xip(c.hi) p, LATERAL (
               SELECT FROM posthaste.ready_1 r
                 WHERE r.queue = l.queue AND r.priority = l.priority AND r.xid = p LIMIT 1) late
              WHERE pg_visible_in_snapshot(p, v_now));
END $f$;
CREATE OR REPLACE FUNCTION posthaste.queues_with_work_2(p_queues text[])
RETURNS TABLE (queue text, priority integer) LANGUAGE plpgsql AS $f$
#variable_conflict use_column
DECLARE
  v_now pg_snapshot := pg_current_snapshot();
BEGIN
  RETURN QUERY
    WITH RECURSIVE lane AS (
      SELECT q.queue COLLATE "C" AS queue, f.priority
        FROM unnest(p_queues) q(queue), LATERAL (
             SELECT r.priority FROM posthaste.ready_2 r
               WHERE r.queue = q.queue ORDER BY r.queue, r.priority LIMIT 1) f
      UNION ALL
      SELECT l.queue, f.priority
        FROM lane l, LATERAL (
             SELECT r.priority FROM posthaste.ready_2 r
               WHERE r.queue = l.queue AND r.priority > l.priority
              ORDER BY r.queue, r.priority LIMIT 1) f)
    SELECT l.queue::text, l.priority
      FROM lane l LEFT JOIN LATERAL (
           SELECT * FROM posthaste.claim_2 n WHERE n.queue = l.queue AND n.priority = l.priority
            ORDER BY n.queue DESC, n.priority DESC, n.batch DESC LIMIT 1) c ON true
     -- As posthaste.pending_2, for one lane.
     WHERE c.batch IS NULL
        OR (NOT c.exhausted AND EXISTS (
             SELECT FROM posthaste.ready_2 r WHERE r.queue = l.queue AND r.priority = l.priority
                AND (r.xid, r.id) > (c.to_xid, c.to_id) AND r.xid < pg_snapshot_xmax(c.hi)
                AND NOT pg_visible_in_snapshot(r.xid, c.lo)
                  AND pg_visible_in_snapshot(r.xid, c.hi)))
        OR EXISTS (
             SELECT FROM posthaste.ready_2 r WHERE r.queue = l.queue AND r.priority = l.priority
                AND r.xid >= pg_snapshot_xmax(c.hi) AND pg_visible_in_snapshot(r.xid, v_now))
        OR EXISTS (
             SELECT FROM pg_snapshot_xip(c.hi) p, LATERAL (
               SELECT FROM posthaste.ready_2 r
                 WHERE r.queue = l.queue AND r.priority = l.priority AND r.xid = p LIMIT 1) late
              WHERE pg_visible_in_snapshot(p, v_now));
END $f$;
CREATE OR REPLACE FUNCTION posthaste.queues_with_work_3(p_queues text[])
RETURNS TABLE (queue text, priority integer) LANGUAGE plpgsql AS $f$
#variable_conflict use_column
DECLARE
  v_now pg_snapshot := pg_current_snapshot();
BEGIN
  RETURN QUERY
    WITH RECURSIVE lane AS (
      SELECT q.queue COLLATE "C" AS queue, f.priority
        FROM unnest(p_queues) q(queue), LATERAL (
             SELECT r.priority FROM posthaste.ready_3 r
               WHERE r.queue = q.queue ORDER BY r.queue, r.priority LIMIT 1) f
      UNION ALL
      SELECT l.queue, f.priority
        FROM lane l, LATERAL (
             SELECT r.priority FROM posthaste.ready_3 r
               WHERE r.queue = l.queue AND r.priority > l.priority
              ORDER BY r.queue, r.priority LIMIT 1) f)
    SELECT l.queue::text, l.priority
      FROM lane l LEFT JOIN LATERAL (
           SELECT * FROM posthaste.claim_3 n WHERE n.queue = l.queue AND n.priority = l.priority
            ORDER BY n.queue DESC, n.priority DESC, n.batch DESC LIMIT 1) c ON true
     -- As posthaste.pending_3, for one lane.
     WHERE c.batch IS NULL
        OR (NOT c.exhausted AND EXISTS (
             SELECT FROM posthaste.ready_3 r WHERE r.queue = l.queue AND r.priority = l.priority
                AND (r.xid, r.id) > (c.to_xid, c.to_id) AND r.xid < pg_snapshot_xmax(c.hi)
                AND NOT pg_visible_in_snapshot(r.xid, c.lo)
                  AND pg_visible_in_snapshot(r.xid, c.hi)))
        OR EXISTS (
             SELECT FROM posthaste.ready_3 r WHERE r.queue = l.queue AND r.priority = l.priority
                AND r.xid >= pg_snapshot_xmax(c.hi) AND pg_visible_in_snapshot(r.xid, v_now))
        OR EXISTS (
             SELECT FROM pg_snapshot_xip(c.hi) p, LATERAL (
               SELECT FROM posthaste.ready_3 r
                 WHERE r.queue = l.queue AND r.priority = l.priority AND r.xid = p LIMIT 1) late
              WHERE pg_visible_in_snapshot(p, v_now));
END $f$;
CREATE OR REPLACE FUNCTION posthaste.queues_with_work_4(p_queues text[])
RETURNS TABLE (queue text, priority integer) LANGUAGE plpgsql AS $f$
#variable_conflict use_column
DECLARE
  v_now pg_snapshot := pg_current_snapshot();
BEGIN
  RETURN QUERY
    WITH RECURSIVE lane AS (
      SELECT q.queue COLLATE "C" AS queue, f.priority
        FROM unnest(p_queues) q(queue), LATERAL (
             SELECT r.priority FROM posthaste.ready_4 r
               WHERE r.queue = q.queue ORDER BY r.queue, r.priority LIMIT 1) f
      UNION ALL
      SELECT l.queue, f.priority
        FROM lane l, LATERAL (
             SELECT r.priority FROM posthaste.ready_4 r
               WHERE r.queue = l.queue AND r.priority > l.priority
              ORDER BY r.queue, r.priority LIMIT 1) f)
    SELECT l.queue::text, l.priority
      FROM lane l LEFT JOIN LATERAL (
           SELECT * FROM posthaste.claim_4 n WHERE n.queue = l.queue AND n.priority = l.priority
            ORDER BY n.queue DESC, n.priority DESC, n.batch DESC LIMIT 1) c ON true
     -- As posthaste.pending_4, for one lane.
     WHERE c.batch IS NULL
        OR (NOT c.exhausted AND EXISTS (
             SELECT FROM posthaste.ready_4 r WHERE r.queue = l.queue AND r.priority = l.priority
                AND (r.xid, r.id) > (c.to_xid, c.to_id) AND r.xid < pg_snapshot_xmax(c.hi)
                AND NOT pg_visible_in_snapshot(r.xid, c.lo)
                  AND pg_visible_in_snapshot(r.xid, c.hi)))
        OR EXISTS (
             SELECT FROM posthaste.ready_4 r WHERE r.queue = l.queue AND r.priority = l.priority
                AND r.xid >= pg_snapshot_xmax(c.hi) AND pg_visible_in_snapshot(r.xid, v_now))
        OR EXISTS (
             SELECT FROM pg_snapshot_xip(c.hi) p, LATERAL (
               SELECT FROM posthaste.ready_4 r
                 WHERE r.queue = l.queue AND r.priority = l.priority AND r.xid = p LIMIT 1) late
              WHERE pg_visible_in_snapshot(p, v_now));
END $f$;
CREATE OR REPLACE FUNCTION posthaste.queues_with_work_5(p_queues text[])
RETURNS TABLE (queue text, priority integer) LANGUAGE plpgsql AS $f$
#variable_conflict use_column
DECLARE
  v_now pg_snapshot := pg_current_snapshot();
BEGIN
  RETURN QUERY
    WITH RECURSIVE lane AS (
      SELECT q.queue COLLATE "C" AS queue, f.priority
        FROM unnest(p_queues) q(queue), LATERAL (
             SELECT r.priority FROM posthaste.ready_5 r
               WHERE r.queue = q.queue ORDER BY r.queue, r.priority LIMIT 1) f
      UNION ALL
      SELECT l.queue, f.priority
        FROM lane l, LATERAL (
             SELECT r.priority FROM posthaste.ready_5 r
               WHERE r.queue = l.queue AND r.priority > l.priority
              ORDER BY r.queue, r.priority LIMIT 1) f)
    SELECT l.queue::text, l.priority
      FROM lane l LEFT JOIN LATERAL (
           SELECT * FROM posthaste.claim_5 n WHERE n.queue = l.queue AND n.priority = l.priority
            ORDER BY n.queue DESC, n.priority DESC, n.batch DESC LIMIT 1) c ON true
     -- As posthaste.pending_5, for one lane.
     WHERE c.batch IS NULL
        OR (NOT c.exhausted AND EXISTS (
             SELECT FROM posthaste.ready_5 r WHERE r.queue = l.queue AND r.priority = l.priority
                AND (r.xid, r.id) > (c.to_xid, c.to_id) AND r.xid < pg_snapshot_xmax(c.hi)
                AND NOT pg_visible_in_snapshot(r.xid, c.lo)
                  AND pg_visible_in_snapshot(r.xid, c.hi)))
        OR EXISTS (
             SELECT FROM posthaste.ready_5 r WHERE r.queue = l.queue AND r.priority = l.priority
                AND r.xid >= pg_snapshot_xmax(c.hi) AND pg_visible_in_snapshot(r.xid, v_now))
        OR EXISTS (
             SELECT FROM pg_snapshot_xip(c.hi) p, LATERAL (
               SELECT FROM posthaste.ready_5 r
                 WHERE r.queue = l.queue AND r.priority = l.priority AND r.xid = p LIMIT 1) late
              WHERE pg_visible_in_snapshot(p, v_now));
END $f$;

-- Lanes of these queues that seem to have something to claim: one poll for all sleeping queues.
CREATE OR REPLACE FUNCTION posthaste.queues_with_work(p_queues text[])
RETURNS TABLE (queue text, priority integer) LANGUAGE plpgsql
SET enable_seqscan = off SET enable_bitmapscan = off SET enable_hashjoin = off
SET enable_mergejoin = off SET jit = off SET plan_cache_mode = force_generic_plan
SET search_path = pg_catalog, pg_temp AS $f$
DECLARE
  v_slot integer;
BEGIN
  FOREACH v_slot IN ARRAY posthaste.scan_slots() LOOP
    CASE v_slot
      WHEN 0 THEN RETURN QUERY SELECT s.* FROM posthaste.queues_with_work_0(p_queues) s;
      WHEN 1 THEN RETURN QUERY SELECT s.* FROM posthaste.queues_with_work_1(p_queues) s;
      WHEN 2 THEN RETURN QUERY SELECT s.* FROM posthaste.queues_with_work_2(p_queues) s;
      WHEN 3 THEN RETURN QUERY SELECT s.* FROM posthaste.queues_with_work_3(p_queues) s;
      WHEN 4 THEN RETURN QUERY SELECT s.* FROM posthaste.queues_with_work_4(p_queues) s;
      WHEN 5 THEN RETURN QUERY SELECT s.* FROM posthaste.queues_with_work_5(p_queues) s;
    END CASE;
  END LOOP;
END $f$;

-- How long the promoter may sleep: until the next scheduled job is due; NULL if that is longer than
-- p_ahead. Zero while something may be due: jobs left in an old segment, another active leader, or
-- a clock that stepped back.
CREATE OR REPLACE FUNCTION posthaste.time_until_due(p_ahead interval)
RETURNS interval LANGUAGE plpgsql
SET enable_seqscan = off SET enable_bitmapscan = off SET jit = off
SET search_path = pg_catalog, pg_temp AS $f$
DECLARE
  v_now timestamptz := clock_timestamp();
  v_until timestamptz :=
    to_timestamp(pg_sequence_last_value('posthaste.promote_horizon'::regclass) / 1000000.0);
  v_current bigint := pg_sequence_last_value('posthaste.scheduled_current'::regclass);
  v_next timestamptz;
BEGIN
  IF v_until >= v_now OR pg_sequence_last_value('posthaste.scheduled_low'::regclass) < v_current
    OR NOT pg_try_advisory_xact_lock(1885893476, 2) THEN
    RETURN interval '0';
  END IF;
  CASE 6 + v_current % 2
    WHEN 6 THEN
      SELECT r.scheduled_at INTO v_next FROM posthaste.scheduled_6 r
      WHERE r.scheduled_at > v_until AND r.scheduled_at <= v_now + p_ahead
      ORDER BY r.scheduled_at, r.id LIMIT 1;
    WHEN 7 THEN
      SELECT r.scheduled_at INTO v_next FROM posthaste.scheduled_7 r
      WHERE r.scheduled_at > v_until AND r.scheduled_at <= v_now + p_ahead
      ORDER BY r.scheduled_at, r.id LIMIT 1;
  END CASE;
  -- greatest() ignores NULL
  RETURN CASE WHEN v_next IS NOT NULL THEN greatest(v_next - v_now, interval '0') END;
END $f$;
-- Operations on queues and jobs: pause, resume, retention, run now, redrive.

-- Pauses a queue: from its commit on nothing is claimed; running jobs continue, and enqueuing
-- works. Returns false if it is already paused.
CREATE OR REPLACE FUNCTION posthaste.pause(queue text) RETURNS boolean LANGUAGE plpgsql
SET search_path = pg_catalog, pg_temp AS $f$
BEGIN
  INSERT INTO posthaste.queue AS q (name, paused_at) VALUES (queue, clock_timestamp())
  ON CONFLICT (name) DO UPDATE SET paused_at = excluded.paused_at WHERE q.paused_at IS NULL;
  RETURN FOUND;
END $f$;

-- Resumes a queue. Returns false if it was not paused.
CREATE OR REPLACE FUNCTION posthaste.resume(queue text) RETURNS boolean LANGUAGE plpgsql
SET search_path = pg_catalog, pg_temp AS $f$
BEGIN
  UPDATE posthaste.queue q SET paused_at = NULL WHERE q.name = queue AND q.paused_at IS NOT NULL;
  IF NOT FOUND THEN
    RETURN false;
  END IF;
  PERFORM posthaste.notify(queue, posthaste.listeners());
  RETURN true;
END $f$;

-- Retains completed jobs of a queue for at least this long; NULL: only as long as their segment.
-- Returns false if it was set so before.
CREATE OR REPLACE FUNCTION posthaste.keep(queue text, keep interval)
RETURNS boolean LANGUAGE plpgsql
SET search_path = pg_catalog, pg_temp AS $f$
#variable_conflict use_variable
BEGIN
  IF keep IS NULL THEN
    UPDATE posthaste.queue q SET keep = NULL WHERE q.name = queue AND q.keep IS NOT NULL;
  ELSE
    INSERT INTO posthaste.queue AS q (name, keep) VALUES (queue, keep)
    ON CONFLICT (name) DO UPDATE SET keep = excluded.keep
      WHERE q.keep IS DISTINCT FROM excluded.keep;
  END IF;
  RETURN FOUND;
END $f$;

-- Sends matching scheduled jobs to work, at most this many, those due first; not those that wait
-- for their turn. Reading the slot takes long, so the promoter is locked only while they are
-- closed.
CREATE OR REPLACE FUNCTION posthaste.retry_6(
  p_ids bigint[], p_queue text, p_name text, p_tag text, p_state text, p_error text, p_limit bigint)
RETURNS SETOF posthaste.store LANGUAGE plpgsql AS $f$
DECLARE
  v_found tid[] := ARRAY(
    SELECT r.ctid FROM posthaste.scheduled_6 r
      LEFT JOIN (SELECT * FROM posthaste.promote_cursor_6 ORDER BY page DESC LIMIT 1) p ON true
     WHERE (p_ids IS NULL OR r.id = ANY (p_ids))
       AND (p_queue IS NULL OR coalesce(r.own_queue, r.queue) = p_queue)
       AND (p_name IS NULL OR r.name = p_name)
       AND (p_tag IS NULL OR r.tag = p_tag)
         AND (p_state IS NULL OR p_state = CASE WHEN r.attempt > 0 THEN 'retrying'
             ELSE 'scheduled' END)
       AND (p_error IS NULL OR r.last_error LIKE p_error) AND r.expires_at > clock_timestamp()
         AND r.scheduled_at < '9999-01-01Z'
       AND NOT EXISTS (SELECT FROM posthaste.closed_unclaimed_6 e
           WHERE e.xid = r.xid AND e.id = r.id)
       AND posthaste.promoted(r.xid, r.scheduled_at, r.id, p.t_lo, p.t_hi, p.lo, p.hi, p.at_xid,
           p.at_due, p.at_id, p.late_done, p.exhausted)
           IS NOT TRUE
     ORDER BY r.scheduled_at, r.id LIMIT p_limit);
BEGIN
  IF cardinality(v_found) > 0 THEN
    PERFORM pg_advisory_xact_lock(1885893476, 2);
    RETURN QUERY SELECT * FROM posthaste.close_scheduled_6(v_found, 'available');
  END IF;
END $f$;
CREATE OR REPLACE FUNCTION posthaste.retry_7(
  p_ids bigint[], p_queue text, p_name text, p_tag text, p_state text, p_error text, p_limit bigint)
RETURNS SETOF posthaste.store LANGUAGE plpgsql AS $f$
DECLARE
  v_found tid[] := ARRAY(
    SELECT r.ctid FROM posthaste.scheduled_7 r
      LEFT JOIN (SELECT * FROM posthaste.promote_cursor_7 ORDER BY page DESC LIMIT 1) p ON true
     WHERE (p_ids IS NULL OR r.id = ANY (p_ids))
       AND (p_queue IS NULL OR coalesce(r.own_queue, r.queue) = p_queue)
       AND (p_name IS NULL OR r.name = p_name)
       AND (p_tag IS NULL OR r.tag = p_tag)
         AND (p_state IS NULL OR p_state = CASE WHEN r.attempt > 0 THEN 'retrying'
             ELSE 'scheduled' END)
       AND (p_error IS NULL OR r.last_error LIKE p_error) AND r.expires_at > clock_timestamp()
         AND r.scheduled_at < '9999-01-01Z'
       AND NOT EXISTS (SELECT FROM posthaste.closed_unclaimed_7 e
           WHERE e.xid = r.xid AND e.id = r.id)
       AND posthaste.promoted(r.xid, r.scheduled_at, r.id, p.t_lo, p.t_hi, p.lo, p.hi, p.at_xid,
           p.at_due, p.at_id, p.late_done, p.exhausted)
           IS NOT TRUE
     ORDER BY r.scheduled_at, r.id LIMIT p_limit);
BEGIN
  IF cardinality(v_found) > 0 THEN
    PERFORM pg_advisory_xact_lock(1885893476, 2);
    RETURN QUERY SELECT * FROM posthaste.close_scheduled_7(v_found, 'available');
  END IF;
END $f$;

-- Locks of a transaction are held while its results are sent, and a frozen client reads none. From
-- here to the end of the transaction the server closes the connection of a client that reads
-- nothing for ten seconds. A Unix socket has no such timeout.
CREATE OR REPLACE FUNCTION posthaste.limit_send_time() RETURNS void LANGUAGE plpgsql AS $f$
BEGIN
  IF current_setting('tcp_user_timeout') = '0' THEN
    PERFORM set_config('tcp_user_timeout', '10s', true);
  END IF;
END $f$;

-- Runs jobs that wait for their time (scheduled, retrying) now, those due first; they keep their
-- counted attempts. All conditions that are not NULL must hold; error is a LIKE pattern. A
-- quarantined job's wait ends too, but it still runs alone. Returns a row for each matching job and
-- each id given: 'available' (waits for a worker), 'blocked' (for its turn), or its unchanged
-- state: 'running', 'awaiting', 'quarantined', 'completed', or the terminal state that redrive()
-- can undo. No row: an unknown job. Needs a separate READ COMMITTED transaction, because the
-- promoter waits until it ends.
CREATE OR REPLACE FUNCTION posthaste.retry(
  ids bigint[] DEFAULT NULL, queue text DEFAULT NULL, name text DEFAULT NULL, tag text DEFAULT NULL,
  state text DEFAULT NULL, error text DEFAULT NULL, at_most integer DEFAULT 1000)
RETURNS TABLE (job_id bigint, is_now text) LANGUAGE plpgsql
SET jit = off SET plan_cache_mode = force_custom_plan SET search_path = pg_catalog, pg_temp AS $f$
#variable_conflict use_variable
DECLARE
  v_met posthaste.store[];
  v_roused bigint[];
BEGIN
  PERFORM posthaste.require_own_store();
  IF current_setting('transaction_isolation') <> 'read committed' THEN
    RAISE EXCEPTION 'posthaste: retry needs READ COMMITTED, not %',
      current_setting('transaction_isolation')
      USING ERRCODE = 'invalid_transaction_state';
  END IF;
  PERFORM posthaste.limit_send_time();
  v_met := ARRAY(SELECT r FROM posthaste.retry_6(ids, queue, name, tag, state, error, at_most) r);
  v_met := v_met
    || ARRAY(SELECT r
      FROM posthaste.retry_7(ids, queue, name, tag, state, error, at_most - cardinality(v_met)) r);
  RETURN QUERY SELECT j.id, CASE WHEN j.ordering_key IS NOT NULL AND j.turn IS NULL THEN 'blocked'
      ELSE 'available' END FROM unnest(v_met) j;
  WITH found AS (
    SELECT h.id FROM posthaste.in_flight h
     WHERE h.state = 'quarantined' AND (ids IS NULL OR h.id = ANY (ids))
       AND (queue IS NULL OR h.queue = queue) AND (name IS NULL OR h.name = name)
       AND (tag IS NULL OR h.tag = tag) AND (state IS NULL OR state = 'quarantined')
         AND (error IS NULL OR h.last_error LIKE error)
       AND h.until > clock_timestamp() LIMIT at_most - cardinality(v_met) FOR UPDATE SKIP LOCKED),
  roused AS (UPDATE posthaste.in_flight h SET until = clock_timestamp() FROM found f
      WHERE h.id = f.id RETURNING h.id)
  SELECT array_agg(r.id) INTO v_roused FROM roused r;
  RETURN QUERY SELECT u, 'quarantined' FROM unnest(v_roused) u;
  RETURN QUERY SELECT f.id, f.state
    FROM posthaste.find_many(
      ARRAY(SELECT unnest(ids) EXCEPT SELECT unnest(v_roused) EXCEPT SELECT j.id
        FROM unnest(v_met) j)) f;
END $f$;

-- A job of posthaste.dead as if enqueued again under the same id, with all its attempts, after all
-- others of its key.
CREATE OR REPLACE FUNCTION posthaste.redriven_job(d posthaste.dead, slot smallint)
RETURNS SETOF posthaste.store LANGUAGE sql STABLE AS $f$
  SELECT pg_current_xact_id(), d.id, d.enqueued_at, clock_timestamp(),
         greatest(d.expires_at, clock_timestamp() + interval '30 days'),
         CASE WHEN d.ordering_key IS NULL THEN d.priority ELSE 0 END, 0, d.max_attempts,
         d.kwargs_bytes, slot, 0::smallint,
         CASE WHEN d.ordering_key IS NULL THEN d.queue ELSE '' END, d.name, d.tag, d.unique_key,
         d.ordering_key, NULL::bigint,
         CASE WHEN d.ordering_key IS NOT NULL THEN d.queue END,
         CASE WHEN d.ordering_key IS NOT NULL THEN d.priority END, d.last_error, d.trace, d.kwargs
$f$;

-- Runs dead, discarded, expired and cancelled jobs again, oldest first, in the caller's
-- transaction, and returns their ids. All conditions that are not NULL must hold; error is a LIKE
-- pattern. A job whose unique key another job holds stays where it is.
CREATE OR REPLACE FUNCTION posthaste.redrive(
  ids bigint[] DEFAULT NULL, queue text DEFAULT NULL, name text DEFAULT NULL, tag text DEFAULT NULL,
  state text DEFAULT NULL, error text DEFAULT NULL, at_most integer DEFAULT 1000)
RETURNS SETOF bigint LANGUAGE plpgsql
SET search_path = pg_catalog, pg_temp AS $f$
#variable_conflict use_variable
BEGIN
  PERFORM posthaste.require_own_store();
  PERFORM posthaste.limit_send_time();
  RETURN QUERY
    WITH found AS MATERIALIZED (
      SELECT d.id, d.unique_key FROM posthaste.dead d
       WHERE (ids IS NULL OR d.id = ANY (ids)) AND (queue IS NULL OR d.queue = queue)
         AND (name IS NULL OR d.name = name)
         AND (tag IS NULL OR d.tag = tag) AND (state IS NULL OR d.state = state)
           AND (error IS NULL OR d.last_error LIKE error)
         AND NOT EXISTS (SELECT FROM posthaste.unique_key u WHERE u.key = d.unique_key)
       ORDER BY d.died_at, d.id LIMIT at_most FOR UPDATE SKIP LOCKED),
    keyed AS (
      INSERT INTO posthaste.unique_key AS u (key, id) SELECT f.unique_key, f.id FROM found f
        WHERE f.unique_key IS NOT NULL
       ORDER BY f.unique_key COLLATE "C"
      ON CONFLICT DO NOTHING RETURNING u.id),
    risen AS (
      DELETE FROM posthaste.dead d USING found f
       WHERE d.id = f.id AND (f.unique_key IS NULL OR f.id IN (SELECT k.id FROM keyed k))
         RETURNING d AS job),
    unmarked AS (DELETE FROM posthaste.cancelling c USING risen r WHERE c.id = (r.job).id),
    sent AS (
      INSERT INTO posthaste.store SELECT s.*
        FROM risen r, LATERAL (SELECT (SELECT posthaste.enter_ready()) + posthaste.notify(
               CASE WHEN (r.job).ordering_key IS NULL THEN (r.job).queue ELSE '' END,
                 (SELECT posthaste.listeners())) AS slot OFFSET 0) e,
                 posthaste.redriven_job(r.job, e.slot) s
      RETURNING store.id)
    SELECT sent.id FROM sent;
END $f$;
-- Ordering: jobs with the same ordering key run one at a time, in the order in which they were
-- enqueued, each after the previous one has ended for good.
--
-- Only the leader orders jobs. It claims two internal lanes of the ready log as a worker claims
-- jobs, so that it misses no late commit and handles no row twice. Their queue is '', which no job
-- may have:
--   ('', 0) jobs without a turn; own_queue and own_priority are their lane
--   ('', 1) ends of turns: the row contains the key and the turn of a job that has ended
-- Each job gets a turn, a growing number. If its key is free, it goes to its own lane at once. Else
-- it waits in a scheduled slot with the due time '9999-01-01', which no job may have. There it
-- expires, is cancelled or is carried over like any scheduled job. At the end of a turn, the next
-- job of the key leaves its scheduled slot. A job that is retried, snoozed, awaiting or rescued
-- keeps its turn, and its key stays taken.
--
-- The newest row (by n) of a key in turn_6 and turn_7 is the key's position; each table is
-- truncated with its scheduled slot. No row is updated, and each query reads one end of one index
-- range, so a pinned horizon does not matter.

-- The position of a key in this table.
CREATE OR REPLACE FUNCTION posthaste.ordering_position_6(p_key text)
RETURNS SETOF posthaste.turn_6 LANGUAGE sql STABLE AS $f$
  SELECT * FROM posthaste.turn_6 t
    WHERE t.ordering_key = p_key ORDER BY t.ordering_key DESC, t.n DESC LIMIT 1
$f$;
CREATE OR REPLACE FUNCTION posthaste.ordering_position_7(p_key text)
RETURNS SETOF posthaste.turn_7 LANGUAGE sql STABLE AS $f$
  SELECT * FROM posthaste.turn_7 t
    WHERE t.ordering_key = p_key ORDER BY t.ordering_key DESC, t.n DESC LIMIT 1
$f$;

-- The place of the first job in this slot that waits after this turn of the key. Only its place,
-- because the arguments of a thousand jobs may fill a gigabyte.
CREATE OR REPLACE FUNCTION posthaste.next_blocked_6(p_key text, p_turn bigint)
RETURNS SETOF posthaste.place LANGUAGE sql STABLE AS $f$
  SELECT r.slot, r.turn, r.xid, r.id FROM posthaste.scheduled_6 r
    LEFT JOIN (SELECT * FROM posthaste.promote_cursor_6 ORDER BY page DESC LIMIT 1) p ON true
   WHERE r.ordering_key = p_key AND r.turn > p_turn AND r.scheduled_at = '9999-01-01Z'
     AND NOT EXISTS (SELECT FROM posthaste.closed_unclaimed_6 e WHERE e.xid = r.xid AND e.id = r.id)
     AND posthaste.promoted(r.xid, r.scheduled_at, r.id, p.t_lo, p.t_hi, p.lo, p.hi, p.at_xid,
         p.at_due, p.at_id, p.late_done, p.exhausted)
         IS NOT TRUE
   ORDER BY r.ordering_key, r.turn LIMIT 1
$f$;
CREATE OR REPLACE FUNCTION posthaste.next_blocked_7(p_key text, p_turn bigint)
RETURNS SETOF posthaste.place LANGUAGE sql STABLE AS $f$
  SELECT r.slot, r.turn, r.xid, r.id FROM posthaste.scheduled_7 r
    LEFT JOIN (SELECT * FROM posthaste.promote_cursor_7 ORDER BY page DESC LIMIT 1) p ON true
   WHERE r.ordering_key = p_key AND r.turn > p_turn AND r.scheduled_at = '9999-01-01Z'
     AND NOT EXISTS (SELECT FROM posthaste.closed_unclaimed_7 e WHERE e.xid = r.xid AND e.id = r.id)
     AND posthaste.promoted(r.xid, r.scheduled_at, r.id, p.t_lo, p.t_hi, p.lo, p.hi, p.at_xid,
         p.at_due, p.at_id, p.late_done, p.exhausted)
         IS NOT TRUE
   ORDER BY r.ordering_key, r.turn LIMIT 1
$f$;

-- Closes these jobs in this slot, where they wait, and writes them to their lanes.
CREATE OR REPLACE FUNCTION posthaste.begin_6(p_places posthaste.place[])
RETURNS void LANGUAGE sql AS $f$
  INSERT INTO posthaste.closed_unclaimed_6 (xid, id, outcome) SELECT u.xid, u.id, 1
    FROM unnest(p_places) u WHERE u.slot = 6;
  INSERT INTO posthaste.store
  SELECT a.*
    FROM unnest(p_places) u
      JOIN posthaste.scheduled_6 r ON r.xid = u.xid AND r.scheduled_at = '9999-01-01Z'
      AND r.id = u.id,
         LATERAL (SELECT (SELECT posthaste.enter_ready()) + posthaste.notify(
           coalesce(r.own_queue, r.queue), (SELECT posthaste.listeners()))) s(slot),
         posthaste.reschedule_row(r, s.slot, due => clock_timestamp()) a
   WHERE u.slot = 6
$f$;
CREATE OR REPLACE FUNCTION posthaste.begin_7(p_places posthaste.place[])
RETURNS void LANGUAGE sql AS $f$
  INSERT INTO posthaste.closed_unclaimed_7 (xid, id, outcome) SELECT u.xid, u.id, 1
    FROM unnest(p_places) u WHERE u.slot = 7;
  INSERT INTO posthaste.store
  SELECT a.*
    FROM unnest(p_places) u
      JOIN posthaste.scheduled_7 r ON r.xid = u.xid AND r.scheduled_at = '9999-01-01Z'
      AND r.id = u.id,
         LATERAL (SELECT (SELECT posthaste.enter_ready()) + posthaste.notify(
           coalesce(r.own_queue, r.queue), (SELECT posthaste.listeners()))) s(slot),
         posthaste.reschedule_row(r, s.slot, due => clock_timestamp()) a
   WHERE u.slot = 7
$f$;

-- The rows that record the ends of these turns.
CREATE OR REPLACE FUNCTION posthaste.turn_end_rows(keys text[], turns bigint[])
RETURNS SETOF posthaste.store LANGUAGE sql AS $f$
  SELECT pg_current_xact_id(), nextval('posthaste.job_id'), clock_timestamp(), clock_timestamp(),
         'infinity'::timestamptz, 1, 0, NULL::integer, 2,
         e.slot + posthaste.notify('', e.listeners),
         0::smallint, '', 'end of turn', '', NULL::text, u.ordering_key, u.turn, NULL::text,
         NULL::integer, NULL::text, NULL::text, '{}'::jsonb
    FROM (SELECT posthaste.enter_ready() AS slot, posthaste.listeners() AS listeners OFFSET 0) e,
      unnest(keys, turns) u(ordering_key, turn)
$f$;

-- Ends turns, in the transaction that ends their jobs.
CREATE OR REPLACE FUNCTION posthaste.end_turns(keys text[], turns bigint[])
RETURNS void LANGUAGE sql AS $f$
  INSERT INTO posthaste.store SELECT * FROM posthaste.turn_end_rows(keys, turns)
$f$;

-- The position of a key; no row if it has been free for long.
CREATE OR REPLACE FUNCTION posthaste.ordering_position(p_key text)
RETURNS TABLE (n bigint, turn bigint, is_free boolean) LANGUAGE sql STABLE AS $f$
  SELECT s.n, s.turn, s.is_free
    FROM (SELECT * FROM posthaste.ordering_position_6(p_key)
          UNION ALL SELECT * FROM posthaste.ordering_position_7(p_key)) s
    ORDER BY s.n DESC LIMIT 1
$f$;

-- Records new positions of keys.
CREATE OR REPLACE FUNCTION posthaste.note_turns(p_keys text[], p_turns bigint[], p_free boolean[])
RETURNS void LANGUAGE plpgsql
SET search_path = pg_catalog, pg_temp AS $f$
BEGIN
  CASE 6 + pg_sequence_last_value('posthaste.scheduled_current'::regclass) % 2
    WHEN 6 THEN
      INSERT INTO posthaste.turn_6 SELECT nextval('posthaste.turn'), u.*
      FROM unnest(p_turns, p_free, p_keys) u;
    WHEN 7 THEN
      INSERT INTO posthaste.turn_7 SELECT nextval('posthaste.turn'), u.*
      FROM unnest(p_turns, p_free, p_keys) u;
  END CASE;
END $f$;

-- Copies the positions of taken keys out of a table before its truncation, and records their
-- number. A free key needs no row.
CREATE OR REPLACE FUNCTION posthaste.carry_over_turns(p_slot integer)
RETURNS void LANGUAGE plpgsql
SET jit = off SET search_path = pg_catalog, pg_temp AS $f$
DECLARE
  v_kept bigint;
BEGIN
  IF p_slot = 6 THEN
    INSERT INTO posthaste.turn_7 SELECT (k.t).* FROM posthaste.taken_keys() k WHERE k.slot = 6;
  ELSE
    INSERT INTO posthaste.turn_6 SELECT (k.t).* FROM posthaste.taken_keys() k WHERE k.slot = 7;
  END IF;
  GET DIAGNOSTICS v_kept = ROW_COUNT;
  PERFORM setval('posthaste.turns_kept', v_kept);
END $f$;

-- The positions of taken keys, with the slots of their tables.
CREATE OR REPLACE FUNCTION posthaste.taken_keys()
RETURNS TABLE (slot integer, t posthaste.turn_6) LANGUAGE sql STABLE AS $f$
  SELECT b.slot, b.t
    FROM (SELECT DISTINCT ON ((a.t).ordering_key) a.slot, a.t
            FROM (SELECT 6 AS slot, x AS t FROM posthaste.turn_6 x UNION ALL
                  SELECT 7, (y.n, y.turn, y.is_free, y.ordering_key)::posthaste.turn_6
                    FROM posthaste.turn_7 y) a
           ORDER BY (a.t).ordering_key, (a.t).n DESC) b
   WHERE NOT (b.t).is_free
$f$;

-- Assigns turns to jobs in this order: the first job of a free key begins, the others wait.
CREATE OR REPLACE FUNCTION posthaste.assign_turns(p_jobs posthaste.store[])
RETURNS void LANGUAGE plpgsql
SET search_path = pg_catalog, pg_temp AS $f$
DECLARE
  v_keys text[];
  v_turns bigint[];
BEGIN
  WITH numbered AS MATERIALIZED (
    SELECT o.j AS job, (o.j).ordering_key AS key, nextval('posthaste.turn') AS turn
      FROM (SELECT u.j FROM (SELECT j, row_number() OVER () AS n FROM unnest(p_jobs) j) u
          ORDER BY u.n) o),
  free AS MATERIALIZED (
    SELECT k.key FROM (SELECT DISTINCT n.key FROM numbered n) k
     WHERE NOT EXISTS (SELECT FROM posthaste.ordering_position(k.key) s WHERE NOT s.is_free)),
  placed AS MATERIALIZED (
    SELECT n.*, n.key IN (SELECT f.key FROM free f)
      AND row_number() OVER (PARTITION BY n.key ORDER BY n.turn) = 1 AS begins FROM numbered n),
  written AS (
    INSERT INTO posthaste.store
    SELECT a.*
      FROM placed p,
        LATERAL (
          SELECT CASE WHEN p.begins
            THEN (SELECT posthaste.enter_ready()) + posthaste.notify((p.job).own_queue,
              (SELECT posthaste.listeners()))
                                             ELSE (SELECT posthaste.enter_scheduled()) END) s(slot),
           posthaste.reschedule_row(p.job, s.slot, due => CASE WHEN p.begins THEN clock_timestamp()
                 ELSE '9999-01-01Z' END, turn => p.turn) a)
  SELECT array_agg(p.key), array_agg(p.turn) INTO v_keys, v_turns FROM placed p WHERE p.begins;
  PERFORM posthaste.note_turns(v_keys, v_turns, array_fill(false, ARRAY[cardinality(v_keys)]))
    WHERE v_keys IS NOT NULL;
END $f$;

-- Whether jobs may wait for their turn in a scheduled slot.
CREATE OR REPLACE FUNCTION posthaste.may_wait_in(p_slot integer)
RETURNS boolean LANGUAGE plpgsql
SET search_path = pg_catalog, pg_temp AS $f$
BEGIN
  RETURN p_slot = 6 + pg_sequence_last_value('posthaste.scheduled_current'::regclass) % 2
    OR NOT CASE p_slot WHEN 6 THEN posthaste.is_promoted_6() ELSE posthaste.is_promoted_7() END;
END $f$;

-- Handles ends of turns: the next job of each key begins; a key without waiting jobs becomes free.
-- The end of a turn that is not the current one changes nothing: its job ended while it waited.
CREATE OR REPLACE FUNCTION posthaste.begin_next(p_ends posthaste.store[])
RETURNS void LANGUAGE plpgsql
SET search_path = pg_catalog, pg_temp AS $f$
DECLARE
  v_keys text[];
  v_turns bigint[];
  v_free boolean[];
  v_next posthaste.place[];
  -- A slot that was carried over has no waiting jobs, but only a scan of all its rows would show
  -- it.
  v_six boolean := posthaste.may_wait_in(6);
  v_seven boolean := posthaste.may_wait_in(7);
BEGIN
  SELECT array_agg(e.key), array_agg(coalesce(n.turn, e.turn)), array_agg(n.turn IS NULL),
         array_agg((n.slot, n.turn, n.xid, n.id)::posthaste.place) FILTER (WHERE n.turn IS NOT NULL)
    INTO v_keys, v_turns, v_free, v_next
    FROM (SELECT DISTINCT (j).ordering_key AS key, (j).turn FROM unnest(p_ends) j) e
    LEFT JOIN LATERAL (SELECT w.*
        FROM (SELECT * FROM posthaste.next_blocked_6(e.key, e.turn) WHERE v_six UNION ALL
                                        SELECT * FROM posthaste.next_blocked_7(e.key, e.turn)
                                          WHERE v_seven) w ORDER BY w.turn LIMIT 1) n ON true
   WHERE EXISTS (SELECT FROM posthaste.ordering_position(e.key) s
                  WHERE s.turn = e.turn AND NOT s.is_free);
  IF v_keys IS NOT NULL THEN
    PERFORM posthaste.begin_6(v_next), posthaste.begin_7(v_next);
    PERFORM posthaste.count_left(v_next);
    PERFORM posthaste.note_turns(v_keys, v_turns, v_free);
  END IF;
END $f$;

-- Assigns turns to jobs that have arrived in a slot, and returns their number. If a job has arrived
-- in an older slot meanwhile, whose transaction may have committed before one of these began, it
-- changes nothing and returns 1: the older slot comes first in the next step.
CREATE OR REPLACE FUNCTION posthaste.take_arrivals(
  p_slot integer, p_older integer[], p_limit integer)
RETURNS bigint LANGUAGE plpgsql
SET search_path = pg_catalog, pg_temp AS $f$
DECLARE
  v_jobs posthaste.store[];
  v_older integer;
BEGIN
  -- By transaction id, then by job id: a transaction that committed before another began has the
  -- smaller id.
  v_jobs := ARRAY(SELECT t FROM posthaste.remove_unclaimed(p_slot, '', 0, p_limit) t
                   ORDER BY t.xid, t.id);
  IF cardinality(v_jobs) > 0 THEN
    FOREACH v_older IN ARRAY p_older LOOP
      IF EXISTS (SELECT FROM posthaste.remove_unclaimed(v_older, '', 0, 1)) THEN
        RAISE EXCEPTION USING ERRCODE = 'PH001', MESSAGE = 'posthaste: an older slot comes first';
      END IF;
    END LOOP;
    PERFORM posthaste.assign_turns(v_jobs);
  END IF;
  RETURN cardinality(v_jobs);
EXCEPTION WHEN SQLSTATE 'PH001' THEN
  RETURN 1;
END $f$;

-- One step of the ordering: handles ended turns, at most 200 in each slot (each may start a job of
-- a megabyte), then the jobs that have arrived in the oldest slot with such jobs, at most p_limit.
-- Returns the number of both. A lane that another session holds is left for the next step.
CREATE OR REPLACE FUNCTION posthaste.advance_ordering(p_limit integer)
RETURNS bigint LANGUAGE plpgsql
SET enable_seqscan = off SET enable_bitmapscan = off SET enable_hashjoin = off
SET enable_mergejoin = off SET jit = off SET plan_cache_mode = force_generic_plan
SET search_path = pg_catalog, pg_temp AS $f$
DECLARE
  v_slots integer[] := posthaste.scan_slots();
  v_jobs posthaste.store[];
  v_all bigint := 0;
  v_here bigint := 0;
BEGIN
  -- The promoter's lock: waiting jobs must not be carried over meanwhile.
  IF current_setting('transaction_isolation') <> 'read committed'
    OR NOT pg_try_advisory_xact_lock(1885893476, 2) THEN
    RETURN 0;
  END IF;
  -- A crash that loses this commit also loses every commit after it.
  PERFORM set_config('synchronous_commit', 'off', true);
  IF pg_try_advisory_xact_lock(1885893475, posthaste.lane_key('', 1)) THEN
    FOR i IN 1 .. cardinality(v_slots) LOOP
      v_jobs := ARRAY(
        SELECT t FROM posthaste.remove_unclaimed(v_slots[i], '', 1, least(p_limit, 200)) t);
      IF cardinality(v_jobs) > 0 THEN
        PERFORM posthaste.begin_next(v_jobs);
        v_all := v_all + cardinality(v_jobs);
      END IF;
    END LOOP;
  END IF;
  IF pg_try_advisory_xact_lock(1885893475, posthaste.lane_key('', 0)) THEN
    FOR i IN 1 .. cardinality(v_slots) LOOP
      v_here := posthaste.take_arrivals(v_slots[i], v_slots[1 : i - 1], p_limit);
      EXIT WHEN v_here > 0;
    END LOOP;
  END IF;
  RETURN v_all + v_here;
END $f$;
-- Maintenance: the overflow. Jobs that no worker claims would pin the ready log, so they are moved
-- to a separate slot, which is compacted from time to time.

-- Moves up to p_limit unclaimed jobs of a slot to the overflow, in order. Called when they pin the
-- full ready log, and to compact an overflow slot. Expired jobs among them are stored as expired
-- and not counted: 0 does not mean that there was nothing.
CREATE OR REPLACE FUNCTION posthaste.move_to_overflow(p_slot integer, p_limit integer)
RETURNS bigint LANGUAGE plpgsql
SET search_path = pg_catalog, pg_temp AS $f$
DECLARE
  v_current bigint;
  v_to smallint;
  v_queue text;
  v_priority integer;
  v_rows bigint;
BEGIN
  IF current_setting('transaction_isolation') <> 'read committed'
    OR NOT pg_try_advisory_xact_lock(1885893476, 1) THEN
    RETURN 0;
  END IF;
  v_current := pg_sequence_last_value('posthaste.overflow_current'::regclass);
  v_to := 4 + v_current % 2;
  IF p_slot = v_to THEN
    RETURN 0;
  END IF;
  SELECT l.* INTO v_queue, v_priority FROM posthaste.pending_lane(p_slot) l;
  IF v_queue IS NULL THEN
    RETURN 0;
  END IF;
  -- Claims read the overflow from now on; an empty slot does no harm.
  IF pg_sequence_last_value('posthaste.overflow_scan'::regclass) > v_current THEN
    PERFORM setval('posthaste.overflow_scan', v_current);
  END IF;
  INSERT INTO posthaste.store SELECT a.*
    FROM posthaste.remove_unclaimed(p_slot, v_queue, v_priority, p_limit) r,
         posthaste.reschedule_row(r, v_to) a;
  GET DIAGNOSTICS v_rows = ROW_COUNT;
  RETURN v_rows;
END $f$;

-- The number of rows of a slot: counted while it is small, else estimated from sampled pages. A
-- plan for this slot alone, so that no other is locked.
CREATE OR REPLACE FUNCTION posthaste.rows_in(p_slot integer) RETURNS bigint LANGUAGE plpgsql
SET plan_cache_mode = force_custom_plan SET search_path = pg_catalog, pg_temp AS $f$
DECLARE
  v_table regclass := 'posthaste.' || CASE WHEN p_slot < 6 THEN 'ready_'
      ELSE 'scheduled_' END || p_slot;
  v_percent real := least(100,
      6400.0 * current_setting('block_size')::bigint / greatest(1, pg_relation_size(v_table)));
BEGIN
  RETURN (SELECT count(*) FROM posthaste.store TABLESAMPLE SYSTEM (v_percent)
      WHERE slot = p_slot::smallint) * 100 / v_percent;
END $f$;

-- The number of claimed rows of an overflow slot.
CREATE OR REPLACE FUNCTION posthaste.claimed_rows(p_slot integer)
RETURNS bigint LANGUAGE plpgsql
SET search_path = pg_catalog, pg_temp AS $f$
BEGIN
  CASE p_slot
    WHEN 4 THEN RETURN (SELECT coalesce(sum(n), 0) FROM posthaste.claim_4);
    WHEN 5 THEN RETURN (SELECT coalesce(sum(n), 0) FROM posthaste.claim_5);
  END CASE;
END $f$;

-- Truncates an overflow slot without unclaimed jobs once every row is closed; running jobs are
-- moved to posthaste.in_flight. The session remembers the verified position as
-- posthaste.verified_overflow: a server that crashed may have lost acknowledgements, and its
-- sessions with them. Returns NULL when it is truncated, else the reason: 'open', or the holder of
-- a lock.
CREATE OR REPLACE FUNCTION posthaste.reclaim_overflow(
  p_low bigint, p_batches integer, p_limit integer)
RETURNS text LANGUAGE plpgsql
SET search_path = pg_catalog, pg_temp AS $f$
DECLARE
  v_slot integer := 4 + p_low % 2;
  -- The oid distinguishes this store from one that was dropped.
  v_this text := concat(p_low, '@', 'posthaste.store'::regclass::oid);
  v_known text := current_setting('posthaste.verified_overflow', true);
  v_from bigint := CASE WHEN split_part(v_known, ':', 1) = v_this
      THEN split_part(v_known, ':', 2)::bigint ELSE 0 END;
  v_batch bigint;
  v_done boolean;
BEGIN
  SELECT v.o_batch, v.o_done INTO v_batch, v_done
    FROM posthaste.verify(v_slot, v_from, p_batches) v;
  PERFORM set_config('posthaste.verified_overflow', concat(v_this, ':', v_batch), false);
  IF v_done THEN
    RETURN posthaste.truncate(v_slot);
  END IF;
  IF v_batch = v_from THEN
    PERFORM posthaste.move_running(v_slot, v_batch, p_limit);
  END IF;
  RETURN 'open';
END $f$;

-- One step of keeping the overflow slots small: truncates finished ones, and starts a compaction
-- when at least p_spent rows or p_bytes bytes, and half of a slot, are finished. o_state: 'moved',
-- 'compacting', 'truncated', 'locked' (o_blocker holds a lock), 'busy' or 'none'. A compaction
-- copies no more rows than have finished since the previous one.
CREATE OR REPLACE FUNCTION posthaste.tidy_overflow(
  p_spent bigint, p_limit integer, p_bytes bigint DEFAULT 50331648,
  OUT o_state text, OUT o_blocker text)
LANGUAGE plpgsql
SET search_path = pg_catalog, pg_temp AS $f$
DECLARE
  r record;
  v_slot integer;
  v_why text;
BEGIN
  o_state := 'none';
  IF current_setting('transaction_isolation') <> 'read committed'
    OR NOT pg_try_advisory_xact_lock(1885893476, 1) THEN
    o_state := 'busy';
    RETURN;
  END IF;
  SELECT * INTO r FROM posthaste.segments();
  v_slot := 4 + r.overflow_low % 2;
  IF (SELECT l.o_queue FROM posthaste.pending_lane(v_slot) l) IS NOT NULL THEN
    IF r.overflow_low < r.overflow_current THEN
      PERFORM posthaste.move_to_overflow(v_slot, p_limit);
      o_state := 'moved';
    ELSIF posthaste.is_half_finished(v_slot, p_spent, p_bytes) THEN
      PERFORM setval('posthaste.overflow_current', r.overflow_current + 1);
      o_state := 'compacting';
    END IF;
    RETURN;
  END IF;
  IF r.overflow_scan = r.overflow_low AND r.overflow_low < r.overflow_current THEN
    PERFORM setval('posthaste.overflow_scan', r.overflow_current);
  END IF;
  IF pg_relation_size(('posthaste.ready_' || v_slot)::regclass) > 0 THEN
    v_why := posthaste.reclaim_overflow(r.overflow_low, 10000, p_limit);
    IF v_why IS NOT NULL THEN
      o_state := CASE WHEN v_why = 'open' THEN 'none' ELSE 'locked' END;
      o_blocker := nullif(v_why, 'open');
      RETURN;
    END IF;
    o_state := 'truncated';
  END IF;
  IF r.overflow_low < r.overflow_current THEN
    PERFORM setval('posthaste.overflow_low', r.overflow_low + 1);
  ELSIF o_state = 'truncated' THEN
    PERFORM setval('posthaste.overflow_scan', r.overflow_current + 1);
  END IF;
END $f$;

-- Whether at least this many rows or bytes of an overflow slot, and half of it, are finished.
CREATE OR REPLACE FUNCTION posthaste.is_half_finished(
  p_slot integer, p_spent bigint, p_bytes bigint)
RETURNS boolean LANGUAGE plpgsql
SET search_path = pg_catalog, pg_temp AS $f$
DECLARE
  v_spent bigint := posthaste.claimed_rows(p_slot);
BEGIN
  RETURN (v_spent >= p_spent OR v_spent > 0
      AND pg_table_size(('posthaste.ready_' || p_slot)::regclass) > p_bytes)
    AND v_spent * 2 >= posthaste.rows_in(p_slot);
END $f$;
-- Periodic jobs: one row each. The leader enqueues their ticks and advances next_at in the same
-- transaction, so only one leader can enqueue a tick.

-- Enqueues these ticks and sets the next one, unless that was done before or the schedule has
-- changed; returns the number of jobs. The ticks follow one another up to the next, the first after
-- p_now. A row that is being changed is left for later.
CREATE OR REPLACE FUNCTION posthaste.tick(
  p_name text, p_schedule text, p_zone text, p_at timestamptz, p_ticks timestamptz[],
  p_next timestamptz, p_now timestamptz DEFAULT clock_timestamp())
RETURNS bigint LANGUAGE plpgsql
SET search_path = pg_catalog, pg_temp AS $f$
DECLARE
  p posthaste.periodic;
  v_tick timestamptz;
  v_new tstzmultirange := tstzmultirange(tstzrange(p_ticks[1], p_next));
  v_jobs bigint := 0;
BEGIN
  SELECT * INTO p FROM posthaste.periodic
   WHERE name = p_name AND schedule = p_schedule AND time_zone = p_zone
     AND next_at IS NOT DISTINCT FROM p_at FOR UPDATE SKIP LOCKED;
  IF NOT FOUND THEN
    RETURN 0;
  END IF;
  -- Each gap was left by a clock jump or a time without a leader; the newest are recorded.
  UPDATE posthaste.periodic SET next_at = p_next, looked_at = p_now, error = NULL,
         made = CASE WHEN cardinality(p_ticks) = 0 THEN p.made
                     ELSE (SELECT range_agg(m.part) FROM (
                             SELECT u.part FROM unnest(p.made + v_new) u(part)
                              ORDER BY u.part DESC LIMIT 16) m) END
   WHERE name = p_name;
  FOREACH v_tick IN ARRAY p_ticks LOOP
    IF NOT p.made @> v_tick THEN
      PERFORM posthaste.enqueue(p.job, p.kwargs, p.queue, p.priority, v_tick,
                                greatest(v_tick, clock_timestamp()) + interval '30 days', p.tag,
                                NULL, p.max_attempts);
      v_jobs := v_jobs + 1;
    END IF;
  END LOOP;
  RETURN v_jobs;
END $f$;

-- Marks periodic jobs that could not be enqueued. They are tried again after ten minutes, or once
-- the row is changed.
CREATE OR REPLACE FUNCTION posthaste.fail_ticks(
  p_names text[], p_schedules text[], p_zones text[], p_errors text[])
RETURNS void LANGUAGE sql
SET search_path = pg_catalog, pg_temp AS $f$
  UPDATE posthaste.periodic p SET error = left(f.error, 500), looked_at = clock_timestamp()
    FROM unnest(p_names, p_schedules, p_zones, p_errors) f(name, schedule, time_zone, error)
   WHERE p.name = f.name AND p.schedule = f.schedule AND p.time_zone = f.time_zone
$f$;
-- Maintenance: the promoter. It moves scheduled jobs to the ready log when they are due, and keeps
-- the scheduled slots small.
--
-- A window is the set {due by t_hi and visible in hi} without its predecessors' set {due by t_lo
-- and visible in lo}: no row is promoted twice, and none is missed however late its transaction
-- commits. First come the late rows (due by t_lo, but not visible in lo), transaction by
-- transaction, then the newly due ones in the order (scheduled_at, id): ten million jobs due at one
-- instant are paged like any others. The last window of a segment has t_hi = infinity; rows that
-- are not due yet go to the current scheduled slot.

-- For a slot that is carried over because the clock was ahead until t_lo
-- (posthaste.return_to_earlier_segment): the latest due time that this clock may have assigned.
-- Retries, jobs rescheduled by a relay and polls of a sync are due at most an hour after they were
-- written, and are shifted back by the clock's error. Times set by programs stay.
CREATE OR REPLACE FUNCTION posthaste.skewed_until(
  t_lo timestamptz, t_hi timestamptz, moment timestamptz)
RETURNS timestamptz LANGUAGE sql IMMUTABLE AS $f$
  SELECT CASE WHEN t_hi = 'infinity' AND t_lo > moment + interval '1 s' AND t_lo < 'infinity'
              THEN t_lo + interval '1 hour' ELSE '-infinity' END
$f$;

-- Transactions that have ended and whose scheduled rows may be due by t_lo although not visible in
-- lo: those that ran when lo was taken. A snapshot does not list a running transaction whose xid is
-- not below its xmax, hence the second part, up to the bound from which on transactions saw t_lo
-- themselves.
CREATE OR REPLACE FUNCTION posthaste.late_transactions_6(
  p_lo pg_snapshot, p_hi pg_snapshot, p_bound xid8, p_at xid8)
RETURNS xid8[] LANGUAGE plpgsql AS $f$
DECLARE
  v_late xid8[] := ARRAY(SELECT p FROM pg_snapshot_xip(p_lo) p
                          WHERE p >= p_at AND pg_visible_in_snapshot(p, p_hi)
                            AND pg_xact_status(p) IS DISTINCT FROM 'aborted');
  v_next xid8;
BEGIN
  SELECT r.xid INTO v_next FROM posthaste.scheduled_6 r
   WHERE r.xid >= greatest(pg_snapshot_xmax(p_lo), p_at) AND r.xid < p_bound ORDER BY r.xid LIMIT 1;
  WHILE v_next IS NOT NULL LOOP
    IF pg_visible_in_snapshot(v_next, p_hi) THEN
      v_late := v_late || v_next;
    END IF;
    SELECT r.xid INTO v_next FROM posthaste.scheduled_6 r WHERE r.xid > v_next AND r.xid < p_bound
      ORDER BY r.xid LIMIT 1;
  END LOOP;
  RETURN v_late;
END $f$;
CREATE OR REPLACE FUNCTION posthaste.late_transactions_7(
  p_lo pg_snapshot, p_hi pg_snapshot, p_bound xid8, p_at xid8)
RETURNS xid8[] LANGUAGE plpgsql AS $f$
DECLARE
  v_late xid8[] := ARRAY(SELECT p FROM pg_snapshot_xip(p_lo) p
                          WHERE p >= p_at AND pg_visible_in_snapshot(p, p_hi)
                            AND pg_xact_status(p) IS DISTINCT FROM 'aborted');
  v_next xid8;
BEGIN
  SELECT r.xid INTO v_next FROM posthaste.scheduled_7 r
   WHERE r.xid >= greatest(pg_snapshot_xmax(p_lo), p_at) AND r.xid < p_bound ORDER BY r.xid LIMIT 1;
  WHILE v_next IS NOT NULL LOOP
    IF pg_visible_in_snapshot(v_next, p_hi) THEN
      v_late := v_late || v_next;
    END IF;
    SELECT r.xid INTO v_next FROM posthaste.scheduled_7 r WHERE r.xid > v_next AND r.xid < p_bound
      ORDER BY r.xid LIMIT 1;
  END LOOP;
  RETURN v_late;
END $f$;

-- The window to continue: the newest, or the next one. NULL if it would find nothing: checking
-- costs no xid and writes nothing.
CREATE OR REPLACE FUNCTION posthaste.next_promote_cursor_6(p_final boolean)
RETURNS posthaste.promote_cursor_6 LANGUAGE plpgsql AS $f$
DECLARE
  c posthaste.promote_cursor_6;
  v_started timestamptz := clock_timestamp();
  v_until timestamptz :=
    to_timestamp(pg_sequence_last_value('posthaste.promote_horizon'::regclass) / 1000000.0);
  v_late xid8[];
BEGIN
  SELECT * INTO c FROM posthaste.promote_cursor_6 ORDER BY page DESC LIMIT 1;
  IF NOT FOUND THEN
    c.page := 0; c.t_hi := '-infinity'; c.hi := '1:1:'; c.hi_bound := '0'; c.exhausted := true;
    c.promoted := 0;
  END IF;
  IF NOT c.exhausted THEN
    RETURN c;
  END IF;
  v_late := posthaste.late_transactions_6(c.hi, pg_current_snapshot(), c.hi_bound, '0');
  IF cardinality(v_late) < 8
     AND NOT EXISTS (SELECT FROM unnest(v_late) x, LATERAL (
           SELECT FROM posthaste.scheduled_6 r
             WHERE r.xid = x AND r.scheduled_at <= c.t_hi LIMIT 1) late)
     AND (CASE WHEN p_final THEN NOT EXISTS (SELECT FROM posthaste.scheduled_6 r
             WHERE r.scheduled_at > c.t_hi) ELSE v_until <= c.t_hi END)
     AND clock_timestamp() - v_started < interval '2 ms' THEN
    RETURN NULL;
  END IF;
  c.t_lo := c.t_hi; c.lo := c.hi; c.lo_bound := c.hi_bound; c.at_xid := '0';
  c.at_due := '-infinity'; c.at_id := 0; c.late_done := false;
  c.t_hi := CASE WHEN p_final THEN 'infinity' ELSE greatest(v_until, c.t_hi) END;
  -- v_until was published to enqueuers, and scheduled_current had left a final segment, before this
  -- transaction got its xid: later transactions knew both.
  c.hi_bound := pg_current_xact_id();
  c.hi := posthaste.cursor_snapshot();
  RETURN c;
END $f$;
CREATE OR REPLACE FUNCTION posthaste.next_promote_cursor_7(p_final boolean)
RETURNS posthaste.promote_cursor_7 LANGUAGE plpgsql AS $f$
DECLARE
  c posthaste.promote_cursor_7;
  v_started timestamptz := clock_timestamp();
  v_until timestamptz :=
    to_timestamp(pg_sequence_last_value('posthaste.promote_horizon'::regclass) / 1000000.0);
  v_late xid8[];
BEGIN
  SELECT * INTO c FROM posthaste.promote_cursor_7 ORDER BY page DESC LIMIT 1;
  IF NOT FOUND THEN
    c.page := 0; c.t_hi := '-infinity'; c.hi := '1:1:'; c.hi_bound := '0'; c.exhausted := true;
    c.promoted := 0;
  END IF;
  IF NOT c.exhausted THEN
    RETURN c;
  END IF;
  v_late := posthaste.late_transactions_7(c.hi, pg_current_snapshot(), c.hi_bound, '0');
  IF cardinality(v_late) < 8
     AND NOT EXISTS (SELECT FROM unnest(v_late) x, LATERAL (
           SELECT FROM posthaste.scheduled_7 r
             WHERE r.xid = x AND r.scheduled_at <= c.t_hi LIMIT 1) late)
     AND (CASE WHEN p_final THEN NOT EXISTS (SELECT FROM posthaste.scheduled_7 r
             WHERE r.scheduled_at > c.t_hi) ELSE v_until <= c.t_hi END)
     AND clock_timestamp() - v_started < interval '2 ms' THEN
    RETURN NULL;
  END IF;
  c.t_lo := c.t_hi; c.lo := c.hi; c.lo_bound := c.hi_bound; c.at_xid := '0';
  c.at_due := '-infinity'; c.at_id := 0; c.late_done := false;
  c.t_hi := CASE WHEN p_final THEN 'infinity' ELSE greatest(v_until, c.t_hi) END;
  -- v_until was published to enqueuers, and scheduled_current had left a final segment, before this
  -- transaction got its xid: later transactions knew both.
  c.hi_bound := pg_current_xact_id();
  c.hi := posthaste.cursor_snapshot();
  RETURN c;
END $f$;

-- Promotes late rows of a window, at most p_limit; returns the window's new position.
CREATE OR REPLACE FUNCTION posthaste.promote_late_6(c posthaste.promote_cursor_6, p_limit integer)
RETURNS posthaste.promote_cursor_6 LANGUAGE plpgsql AS $f$
DECLARE
  v_now timestamptz := clock_timestamp();
  v_late xid8[];
  v_marked boolean := EXISTS (SELECT FROM posthaste.closed_unclaimed_6);
  v_ahead timestamptz := posthaste.skewed_until(c.t_lo, c.t_hi, v_now);
  v_rows bigint := 0;
  v_last record;
BEGIN
  v_late := posthaste.late_transactions_6(c.lo, c.hi, c.lo_bound, c.at_xid);
  IF cardinality(v_late) > 0 THEN
    WITH due AS MATERIALIZED (
      SELECT r.* FROM unnest(v_late) x, LATERAL (
          SELECT * FROM posthaste.scheduled_6 r WHERE r.xid = x AND r.scheduled_at <= c.t_lo
             AND (r.scheduled_at, r.id) > (CASE WHEN x = c.at_xid THEN c.at_due
                   ELSE '-infinity' END,
                                           CASE WHEN x = c.at_xid THEN c.at_id ELSE 0 END)
           ORDER BY r.xid, r.scheduled_at, r.id LIMIT p_limit) r
       ORDER BY r.xid, r.scheduled_at, r.id LIMIT p_limit),
    open AS NOT MATERIALIZED (
      SELECT d.* FROM due d
        WHERE NOT v_marked OR NOT EXISTS (SELECT FROM posthaste.closed_unclaimed_6 e
          WHERE e.xid = d.xid AND e.id = d.id)),
    noted AS (
      INSERT INTO posthaste.left_6 (queue, priority, name, tag, what, jobs)
      SELECT coalesce(o.own_queue, o.queue), coalesce(o.own_priority, o.priority), o.name, o.tag,
             w.what, count(*)
        FROM open o, posthaste.wait_kind(o.scheduled_at, o.attempt) w(what) GROUP BY 1, 2, 3, 4, 5),
    live AS (
      INSERT INTO posthaste.store
      SELECT a.*
        FROM open o,
             LATERAL (SELECT CASE WHEN o.scheduled_at <= v_ahead
                                   AND (o.attempt > 0 OR o.last_error IS NOT NULL
                                        OR starts_with(o.queue, 'sync.'))
                                  THEN o.scheduled_at - (c.t_lo - v_now)
                                  ELSE o.scheduled_at END AS due) w,
             LATERAL (SELECT CASE WHEN w.due > v_now
                   AND w.due > (SELECT posthaste.promote_horizon())
                                  THEN (SELECT posthaste.enter_scheduled())
                                    ELSE (SELECT posthaste.enter_ready())
                                    + posthaste.notify(o.queue, (SELECT posthaste.listeners()))
                                    END) s(slot),
             posthaste.reschedule_row(o, s.slot, w.due) a
       WHERE o.expires_at > v_now),
    gone AS (
      INSERT INTO posthaste.dead
      SELECT d.* FROM open o, posthaste.to_dead(o, 'expired') d
        WHERE o.expires_at <= v_now ON CONFLICT (id) DO NOTHING)
    SELECT d.xid, d.scheduled_at, d.id, count(*) OVER () AS n INTO v_last
      FROM due d ORDER BY d.xid DESC, d.scheduled_at DESC, d.id DESC LIMIT 1;
    v_rows := coalesce(v_last.n, 0);
  END IF;
  c.promoted := c.promoted + v_rows;
  IF v_rows < p_limit THEN
    c.late_done := true; c.at_due := c.t_lo; c.at_id := 9223372036854775807;
  ELSE
    c.at_xid := v_last.xid; c.at_due := v_last.scheduled_at; c.at_id := v_last.id;
  END IF;
  RETURN c;
END $f$;
CREATE OR REPLACE FUNCTION posthaste.promote_late_7(c posthaste.promote_cursor_7, p_limit integer)
RETURNS posthaste.promote_cursor_7 LANGUAGE plpgsql AS $f$
DECLARE
  v_now timestamptz := clock_timestamp();
  v_late xid8[];
  v_marked boolean := EXISTS (SELECT FROM posthaste.closed_unclaimed_7);
  v_ahead timestamptz := posthaste.skewed_until(c.t_lo, c.t_hi, v_now);
  v_rows bigint := 0;
  v_last record;
BEGIN
  v_late := posthaste.late_transactions_7(c.lo, c.hi, c.lo_bound, c.at_xid);
  IF cardinality(v_late) > 0 THEN
    WITH due AS MATERIALIZED (
      SELECT r.* FROM unnest(v_late) x, LATERAL (
          SELECT * FROM posthaste.scheduled_7 r WHERE r.xid = x AND r.scheduled_at <= c.t_lo
             AND (r.scheduled_at, r.id) > (CASE WHEN x = c.at_xid THEN c.at_due
                   ELSE '-infinity' END,
                                           CASE WHEN x = c.at_xid THEN c.at_id ELSE 0 END)
           ORDER BY r.xid, r.scheduled_at, r.id LIMIT p_limit) r
       ORDER BY r.xid, r.scheduled_at, r.id LIMIT p_limit),
    open AS NOT MATERIALIZED (
      SELECT d.* FROM due d
        WHERE NOT v_marked OR NOT EXISTS (SELECT FROM posthaste.closed_unclaimed_7 e
          WHERE e.xid = d.xid AND e.id = d.id)),
    noted AS (
      INSERT INTO posthaste.left_7 (queue, priority, name, tag, what, jobs)
      SELECT coalesce(o.own_queue, o.queue), coalesce(o.own_priority, o.priority), o.name, o.tag,
             w.what, count(*)
        FROM open o, posthaste.wait_kind(o.scheduled_at, o.attempt) w(what) GROUP BY 1, 2, 3, 4, 5),
    live AS (
      INSERT INTO posthaste.store
      SELECT a.*
        FROM open o,
             LATERAL (SELECT CASE WHEN o.scheduled_at <= v_ahead
                                   AND (o.attempt > 0 OR o.last_error IS NOT NULL
                                        OR starts_with(o.queue, 'sync.'))
                                  THEN o.scheduled_at - (c.t_lo - v_now)
                                  ELSE o.scheduled_at END AS due) w,
             LATERAL (SELECT CASE WHEN w.due > v_now
                   AND w.due > (SELECT posthaste.promote_horizon())
                                  THEN (SELECT posthaste.enter_scheduled())
                                    ELSE (SELECT posthaste.enter_ready())
                                    + posthaste.notify(o.queue, (SELECT posthaste.listeners()))
                                    END) s(slot),
             posthaste.reschedule_row(o, s.slot, w.due) a
       WHERE o.expires_at > v_now),
    gone AS (
      INSERT INTO posthaste.dead
      SELECT d.* FROM open o, posthaste.to_dead(o, 'expired') d
        WHERE o.expires_at <= v_now ON CONFLICT (id) DO NOTHING)
    SELECT d.xid, d.scheduled_at, d.id, count(*) OVER () AS n INTO v_last
      FROM due d ORDER BY d.xid DESC, d.scheduled_at DESC, d.id DESC LIMIT 1;
    v_rows := coalesce(v_last.n, 0);
  END IF;
  c.promoted := c.promoted + v_rows;
  IF v_rows < p_limit THEN
    c.late_done := true; c.at_due := c.t_lo; c.at_id := 9223372036854775807;
  ELSE
    c.at_xid := v_last.xid; c.at_due := v_last.scheduled_at; c.at_id := v_last.id;
  END IF;
  RETURN c;
END $f$;

-- Promotes rows that became due since the previous window, at most p_limit; returns the window's
-- new position.
CREATE OR REPLACE FUNCTION posthaste.promote_due_6(c posthaste.promote_cursor_6, p_limit integer)
RETURNS posthaste.promote_cursor_6 LANGUAGE plpgsql AS $f$
DECLARE
  v_now timestamptz := clock_timestamp();
  v_marked boolean := EXISTS (SELECT FROM posthaste.closed_unclaimed_6);
  v_ahead timestamptz := posthaste.skewed_until(c.t_lo, c.t_hi, v_now);
  v_last record;
BEGIN
  WITH due AS MATERIALIZED (
    SELECT r.* FROM posthaste.scheduled_6 r
     WHERE (r.scheduled_at, r.id) > (c.at_due, c.at_id) AND r.scheduled_at <= c.t_hi
       AND pg_visible_in_snapshot(r.xid, c.hi)
     ORDER BY r.scheduled_at, r.id LIMIT p_limit),
  open AS NOT MATERIALIZED (
      SELECT d.* FROM due d
        WHERE NOT v_marked OR NOT EXISTS (SELECT FROM posthaste.closed_unclaimed_6 e
          WHERE e.xid = d.xid AND e.id = d.id)),
    noted AS (
      INSERT INTO posthaste.left_6 (queue, priority, name, tag, what, jobs)
      SELECT coalesce(o.own_queue, o.queue), coalesce(o.own_priority, o.priority), o.name, o.tag,
             w.what, count(*)
        FROM open o, posthaste.wait_kind(o.scheduled_at, o.attempt) w(what) GROUP BY 1, 2, 3, 4, 5),
    live AS (
      INSERT INTO posthaste.store
      SELECT a.*
        FROM open o,
             LATERAL (SELECT CASE WHEN o.scheduled_at <= v_ahead
                                   AND (o.attempt > 0 OR o.last_error IS NOT NULL
                                        OR starts_with(o.queue, 'sync.'))
                                  THEN o.scheduled_at - (c.t_lo - v_now)
                                  ELSE o.scheduled_at END AS due) w,
             LATERAL (SELECT CASE WHEN w.due > v_now
                   AND w.due > (SELECT posthaste.promote_horizon())
                                  THEN (SELECT posthaste.enter_scheduled())
                                    ELSE (SELECT posthaste.enter_ready())
                                    + posthaste.notify(o.queue, (SELECT posthaste.listeners()))
                                    END) s(slot),
             posthaste.reschedule_row(o, s.slot, w.due) a
       WHERE o.expires_at > v_now),
    gone AS (
      INSERT INTO posthaste.dead
      SELECT d.* FROM open o, posthaste.to_dead(o, 'expired') d
        WHERE o.expires_at <= v_now ON CONFLICT (id) DO NOTHING)
  SELECT d.scheduled_at, d.id, count(*) OVER () AS n INTO v_last
    FROM due d ORDER BY d.scheduled_at DESC, d.id DESC LIMIT 1;
  IF FOUND THEN
    c.at_due := v_last.scheduled_at; c.at_id := v_last.id; c.promoted := c.promoted + v_last.n;
  END IF;
  c.exhausted := coalesce(v_last.n, 0) < p_limit;
  RETURN c;
END $f$;
CREATE OR REPLACE FUNCTION posthaste.promote_due_7(c posthaste.promote_cursor_7, p_limit integer)
RETURNS posthaste.promote_cursor_7 LANGUAGE plpgsql AS $f$
DECLARE
  v_now timestamptz := clock_timestamp();
  v_marked boolean := EXISTS (SELECT FROM posthaste.closed_unclaimed_7);
  v_ahead timestamptz := posthaste.skewed_until(c.t_lo, c.t_hi, v_now);
  v_last record;
BEGIN
  WITH due AS MATERIALIZED (
    SELECT r.* FROM posthaste.scheduled_7 r
     WHERE (r.scheduled_at, r.id) > (c.at_due, c.at_id) AND r.scheduled_at <= c.t_hi
       AND pg_visible_in_snapshot(r.xid, c.hi)
     ORDER BY r.scheduled_at, r.id LIMIT p_limit),
  open AS NOT MATERIALIZED (
      SELECT d.* FROM due d
        WHERE NOT v_marked OR NOT EXISTS (SELECT FROM posthaste.closed_unclaimed_7 e
          WHERE e.xid = d.xid AND e.id = d.id)),
    noted AS (
      INSERT INTO posthaste.left_7 (queue, priority, name, tag, what, jobs)
      SELECT coalesce(o.own_queue, o.queue), coalesce(o.own_priority, o.priority), o.name, o.tag,
             w.what, count(*)
        FROM open o, posthaste.wait_kind(o.scheduled_at, o.attempt) w(what) GROUP BY 1, 2, 3, 4, 5),
    live AS (
      INSERT INTO posthaste.store
      SELECT a.*
        FROM open o,
             LATERAL (SELECT CASE WHEN o.scheduled_at <= v_ahead
                                   AND (o.attempt > 0 OR o.last_error IS NOT NULL
                                        OR starts_with(o.queue, 'sync.'))
                                  THEN o.scheduled_at - (c.t_lo - v_now)
                                  ELSE o.scheduled_at END AS due) w,
             LATERAL (SELECT CASE WHEN w.due > v_now
                   AND w.due > (SELECT posthaste.promote_horizon())
                                  THEN (SELECT posthaste.enter_scheduled())
                                    ELSE (SELECT posthaste.enter_ready())
                                    + posthaste.notify(o.queue, (SELECT posthaste.listeners()))
                                    END) s(slot),
             posthaste.reschedule_row(o, s.slot, w.due) a
       WHERE o.expires_at > v_now),
    gone AS (
      INSERT INTO posthaste.dead
      SELECT d.* FROM open o, posthaste.to_dead(o, 'expired') d
        WHERE o.expires_at <= v_now ON CONFLICT (id) DO NOTHING)
  SELECT d.scheduled_at, d.id, count(*) OVER () AS n INTO v_last
    FROM due d ORDER BY d.scheduled_at DESC, d.id DESC LIMIT 1;
  IF FOUND THEN
    c.at_due := v_last.scheduled_at; c.at_id := v_last.id; c.promoted := c.promoted + v_last.n;
  END IF;
  c.exhausted := coalesce(v_last.n, 0) < p_limit;
  RETURN c;
END $f$;

-- Promotes one page of due jobs, at most p_limit, and returns their number.
CREATE OR REPLACE FUNCTION posthaste.promote_6(p_limit integer, p_final boolean)
RETURNS bigint LANGUAGE plpgsql AS $f$
DECLARE
  c posthaste.promote_cursor_6 := posthaste.next_promote_cursor_6(p_final);
  v_before bigint := c.promoted;
BEGIN
  IF c.page IS NULL THEN
    RETURN 0;
  END IF;
  c.exhausted := false;
  IF NOT c.late_done THEN
    c := posthaste.promote_late_6(c, p_limit);
  END IF;
  IF c.late_done THEN
    c := posthaste.promote_due_6(c, p_limit - (c.promoted - v_before)::integer);
  END IF;
  c.page := c.page + 1;
  INSERT INTO posthaste.promote_cursor_6 SELECT c.*;
  RETURN c.promoted - v_before;
END $f$;
CREATE OR REPLACE FUNCTION posthaste.promote_7(p_limit integer, p_final boolean)
RETURNS bigint LANGUAGE plpgsql AS $f$
DECLARE
  c posthaste.promote_cursor_7 := posthaste.next_promote_cursor_7(p_final);
  v_before bigint := c.promoted;
BEGIN
  IF c.page IS NULL THEN
    RETURN 0;
  END IF;
  c.exhausted := false;
  IF NOT c.late_done THEN
    c := posthaste.promote_late_7(c, p_limit);
  END IF;
  IF c.late_done THEN
    c := posthaste.promote_due_7(c, p_limit - (c.promoted - v_before)::integer);
  END IF;
  c.page := c.page + 1;
  INSERT INTO posthaste.promote_cursor_7 SELECT c.*;
  RETURN c.promoted - v_before;
END $f$;

-- Handles a clock that is behind the published time: after a failover to a slower clock, or after
-- this one was corrected. Jobs due by the published time would run at once. So the present is
-- published, and the current segment, whose windows were read up to the published time, is replaced
-- by an unread one; its rows are carried over as after any rotation (tidy_scheduled). In this
-- order: a session that reads the earlier time asks later for the current segment and finds the new
-- one, so the old one receives no row that is due by the published time and belongs to a
-- transaction that the promoter does not check. Small steps are waited out, because carrying over
-- costs a row for each job. Returns false while an older segment is not empty.
CREATE OR REPLACE FUNCTION posthaste.return_to_earlier_segment(p_now timestamptz)
RETURNS boolean LANGUAGE plpgsql
SET search_path = pg_catalog, pg_temp AS $f$
DECLARE
  v_current bigint := pg_sequence_last_value('posthaste.scheduled_current'::regclass);
BEGIN
  IF current_setting('transaction_isolation') <> 'read committed'
     OR pg_sequence_last_value('posthaste.scheduled_low'::regclass) < v_current THEN
    RETURN false;
  ELSIF NOT posthaste.is_empty(7 - (v_current % 2)::integer) THEN
    PERFORM posthaste.truncate_scheduled(7 - (v_current % 2)::integer);
    RETURN false;
  END IF;
  PERFORM setval('posthaste.scheduled_current', v_current + 1);
  PERFORM setval('posthaste.promote_horizon', greatest(0,
            floor(extract(epoch FROM p_now) * 1000000))::bigint);
  RETURN true;
END $f$;

-- First half of a promotion: if a scheduled job is due, publishes to enqueuers how far the promoter
-- will read. A separate transaction, because setval takes an xid before it writes: the promoter may
-- rely only on what was published before it had one.
CREATE OR REPLACE FUNCTION posthaste.publish_horizon() RETURNS boolean LANGUAGE plpgsql
SET enable_seqscan = off SET enable_bitmapscan = off SET jit = off
SET search_path = pg_catalog, pg_temp AS $f$
DECLARE
  v_now timestamptz := clock_timestamp();
  v_until timestamptz;
  v_due boolean;
BEGIN
  IF NOT pg_try_advisory_xact_lock(1885893476, 2) THEN
    RETURN false;
  END IF;
  v_until :=
    to_timestamp(pg_sequence_last_value('posthaste.promote_horizon'::regclass) / 1000000.0);
  IF v_until > v_now + interval '1 s' THEN
    RETURN posthaste.return_to_earlier_segment(v_now);
  ELSIF v_until >= v_now THEN
    RETURN false;
  END IF;
  CASE 6 + pg_sequence_last_value('posthaste.scheduled_current'::regclass) % 2
    WHEN 6 THEN
      v_due := EXISTS (SELECT FROM posthaste.scheduled_6 r
        WHERE r.scheduled_at > v_until AND r.scheduled_at <= v_now);
    WHEN 7 THEN
      v_due := EXISTS (SELECT FROM posthaste.scheduled_7 r
        WHERE r.scheduled_at > v_until AND r.scheduled_at <= v_now);
  END CASE;
  -- A slow check has scanned rows of an open or rolled-back transaction: advancing spares the next
  -- check that scan. A clock that jumps ahead is followed even if nothing is due: back-offs by it
  -- are corrected only after a step back from a published time.
  IF v_due OR clock_timestamp() - v_now > interval '2 ms'
     OR v_now - v_until > interval '1 min' THEN
    PERFORM set_config('synchronous_commit', 'off', true);
    PERFORM setval('posthaste.promote_horizon', floor(extract(epoch FROM v_now) * 1000000)::bigint);
    RETURN true;
  END IF;
  RETURN false;
END $f$;

-- Second half: promotes due jobs, at most p_limit, from the current scheduled slot, or carries over
-- the rest of the old one. One segment per transaction: a window must not meet rows that its own
-- transaction has just carried over.
CREATE OR REPLACE FUNCTION posthaste.promote(p_limit integer, p_old boolean)
RETURNS bigint LANGUAGE plpgsql
SET enable_seqscan = off SET enable_bitmapscan = off SET enable_hashjoin = off
SET enable_mergejoin = off SET jit = off SET plan_cache_mode = force_generic_plan
SET search_path = pg_catalog, pg_temp AS $f$
DECLARE
  v_low bigint;
  v_current bigint;
BEGIN
  IF current_setting('transaction_isolation') <> 'read committed'
    OR pg_current_xact_id_if_assigned() IS NOT NULL THEN
    RAISE EXCEPTION 'posthaste: promote needs a separate READ COMMITTED transaction'
      USING ERRCODE = 'invalid_transaction_state';
  END IF;
  IF NOT pg_try_advisory_xact_lock(1885893476, 2) THEN
    RETURN 0;
  END IF;
  v_low := pg_sequence_last_value('posthaste.scheduled_low'::regclass);
  v_current := pg_sequence_last_value('posthaste.scheduled_current'::regclass);
  IF p_old AND v_low = v_current THEN
    RETURN 0;
  END IF;
  CASE 6 + (CASE WHEN p_old THEN v_low ELSE v_current END) % 2
    WHEN 6 THEN RETURN posthaste.promote_6(p_limit, p_old);
    WHEN 7 THEN RETURN posthaste.promote_7(p_limit, p_old);
  END CASE;
END $f$;
-- Rates: limits how many jobs of a queue are claimed per period.

-- A rate is a token bucket of q.burst jobs, refilled by one every q.per / q.rate. Its cell contains
-- the time when it will be full again, in microseconds since 1970. The cell is a sequence: it
-- leaves no dead rows for a pinned horizon, and a claim that is rolled back has still used up its
-- jobs.
CREATE OR REPLACE FUNCTION posthaste.full_at(
  q posthaste.queue, OUT o_full numeric, OUT o_now numeric, OUT o_step numeric)
LANGUAGE plpgsql
SET search_path = pg_catalog, pg_temp AS $f$
BEGIN
  o_now := floor(extract(epoch FROM clock_timestamp()) * 1000000);
  o_step := extract(epoch FROM q.per) * 1000000 / q.rate;
  o_full := least(greatest(pg_sequence_last_value(q.pace), o_now), o_now + o_step * q.burst);
END $f$;

-- How many jobs of the queue may be claimed now. From here until the end of the transaction, other
-- claimers of the queue wait. A bucket below empty was written while the clock was ahead, and is
-- set to empty: the cell must be written, because the limit in full_at() advances with the clock.
CREATE OR REPLACE FUNCTION posthaste.rate_allowance(q posthaste.queue)
RETURNS integer LANGUAGE plpgsql
SET search_path = pg_catalog, pg_temp AS $f$
DECLARE
  f record;
BEGIN
  PERFORM pg_advisory_xact_lock(1885893479, q.pace::oid::integer);
  f := posthaste.full_at(q);
  IF pg_sequence_last_value(q.pace) > ceil(f.o_full) THEN
    PERFORM setval(q.pace, ceil(f.o_full)::bigint);
  END IF;
  RETURN floor((f.o_now - f.o_full) / f.o_step + q.burst);
END $f$;

-- The time until the next job may be claimed, in milliseconds.
CREATE OR REPLACE FUNCTION posthaste.wait_until_next(q posthaste.queue)
RETURNS bigint LANGUAGE sql AS $f$
  SELECT greatest(1, ceil((f.o_full - f.o_now - f.o_step * (q.burst - 1)) / 1000))::bigint
    FROM posthaste.full_at(q) f
$f$;

-- Takes jobs out of the bucket.
CREATE OR REPLACE FUNCTION posthaste.consume_rate(q posthaste.queue, p_jobs bigint)
RETURNS void LANGUAGE sql AS $f$
  SELECT setval(q.pace, ceil(f.o_full + f.o_step * p_jobs)::bigint) FROM posthaste.full_at(q) f
$f$;

-- Limits the jobs of the queue that all workers together claim per period, from the commit on.
-- After a pause, and at the beginning, up to burst jobs are claimed at once (by default as many as
-- rate). NULL removes the limit. A queue keeps its cell; otherwise it gets the free cell that was
-- used longest ago, because a running claim may still use it for another queue. A value that was
-- written to posthaste.queue by hand is kept only if it is a cell.
CREATE OR REPLACE FUNCTION posthaste.limit_rate(
  queue text, rate integer, per interval DEFAULT '1 second', burst integer DEFAULT NULL)
RETURNS void LANGUAGE plpgsql
SET search_path = pg_catalog, pg_temp AS $f$
#variable_conflict use_variable
DECLARE
  v_cell regclass;
BEGIN
  IF rate < 1 OR burst < 1 OR per <= interval '0' OR per > interval '1 year' OR per IS NULL THEN
    RAISE EXCEPTION 'posthaste: rate and burst must be at least 1, '
      'per more than 0 and at most a year'
      USING ERRCODE = 'invalid_parameter_value';
  END IF;
  PERFORM pg_advisory_xact_lock(1885893479, 0);
  IF rate IS NOT NULL THEN
    v_cell := (
      SELECT c.oid FROM pg_class c LEFT JOIN posthaste.queue q ON q.pace = c.oid AND q.name = queue
       WHERE c.relnamespace = 'posthaste'::regnamespace AND c.relkind = 'S'
         AND c.relname ~ '^pace_[0-9]+$'
         AND NOT EXISTS (SELECT FROM posthaste.queue o WHERE o.pace = c.oid AND o.name <> queue)
       ORDER BY q.name IS NULL, pg_sequence_last_value(c.oid) NULLS FIRST, c.oid LIMIT 1);
    IF v_cell IS NULL THEN
      RAISE EXCEPTION 'posthaste: 64 queues already have a rate limit'
        USING ERRCODE = 'program_limit_exceeded',
              HINT = 'Remove one: SELECT posthaste.limit_rate(its queue, NULL).';
    END IF;
    PERFORM setval(v_cell, 0);
  END IF;
  INSERT INTO posthaste.queue AS q (name, rate, per, burst, pace)
  VALUES (queue, rate, CASE WHEN rate IS NOT NULL THEN per END, coalesce(burst, rate), v_cell)
  ON CONFLICT (name) DO UPDATE
     SET rate = excluded.rate, per = excluded.per, burst = excluded.burst, pace = excluded.pace;
  PERFORM posthaste.notify(queue, posthaste.listeners());
END $f$;
-- The ready log: segments are started, sealed when all their jobs are claimed, and truncated when
-- all are closed.

-- Compares rows instead of counting them: checks at most p_batches batches after p_batch, and stops
-- at the first with an open job. In a sealed slot every job belongs to a batch. o_batch: where to
-- continue next time (all batches up to it are closed for good). o_done: the end was reached.
CREATE OR REPLACE FUNCTION posthaste.verify_0(
  p_batch bigint, p_batches integer, OUT o_batch bigint, OUT o_done boolean)
LANGUAGE plpgsql AS $f$
DECLARE
  v_last bigint := (SELECT max(c.batch)
      FROM (SELECT batch FROM posthaste.claim_0
        WHERE batch > p_batch ORDER BY batch LIMIT p_batches) c);
  v_open bigint;
BEGIN
  SELECT c.batch INTO v_open
    FROM (SELECT c.batch, c.token FROM posthaste.claim_0 c
        WHERE c.batch > p_batch AND c.batch <= v_last
             AND NOT EXISTS (SELECT FROM posthaste.batch_done_0 w WHERE w.batch = c.batch)
               OFFSET 0) c
   WHERE EXISTS (SELECT FROM posthaste.batch_rows_0(c.batch, c.token) r
                  WHERE NOT EXISTS (SELECT FROM posthaste.job_done_0 a
                      WHERE a.xid = r.xid AND a.id = r.id))
   ORDER BY c.batch LIMIT 1;
  o_batch := coalesce(v_open - 1, v_last, p_batch);
  o_done := v_open IS NULL AND NOT EXISTS (SELECT FROM posthaste.claim_0 WHERE batch > o_batch);
END $f$;
CREATE OR REPLACE FUNCTION posthaste.verify_1(
  p_batch bigint, p_batches integer, OUT o_batch bigint, OUT o_done boolean)
LANGUAGE plpgsql AS $f$
DECLARE
  v_last bigint := (SELECT max(c.batch)
      FROM (SELECT batch FROM posthaste.claim_1
        WHERE batch > p_batch ORDER BY batch LIMIT p_batches) c);
  v_open bigint;
BEGIN
  SELECT c.batch INTO v_open
    FROM (SELECT c.batch, c.token FROM posthaste.claim_1 c
        WHERE c.batch > p_batch AND c.batch <= v_last
             AND NOT EXISTS (SELECT FROM posthaste.batch_done_1 w WHERE w.batch = c.batch)
               OFFSET 0) c
   WHERE EXISTS (SELECT FROM posthaste.batch_rows_1(c.batch, c.token) r
                  WHERE NOT EXISTS (SELECT FROM posthaste.job_done_1 a
                      WHERE a.xid = r.xid AND a.id = r.id))
   ORDER BY c.batch LIMIT 1;
  o_batch := coalesce(v_open - 1, v_last, p_batch);
  o_done := v_open IS NULL AND NOT EXISTS (SELECT FROM posthaste.claim_1 WHERE batch > o_batch);
END $f$;
CREATE OR REPLACE FUNCTION posthaste.verify_2(
  p_batch bigint, p_batches integer, OUT o_batch bigint, OUT o_done boolean)
LANGUAGE plpgsql AS $f$
DECLARE
  v_last bigint := (SELECT max(c.batch)
      FROM (SELECT batch FROM posthaste.claim_2
        WHERE batch > p_batch ORDER BY batch LIMIT p_batches) c);
  v_open bigint;
BEGIN
  SELECT c.batch INTO v_open
    FROM (SELECT c.batch, c.token FROM posthaste.claim_2 c
        WHERE c.batch > p_batch AND c.batch <= v_last
             AND NOT EXISTS (SELECT FROM posthaste.batch_done_2 w WHERE w.batch = c.batch)
               OFFSET 0) c
   WHERE EXISTS (SELECT FROM posthaste.batch_rows_2(c.batch, c.token) r
                  WHERE NOT EXISTS (SELECT FROM posthaste.job_done_2 a
                      WHERE a.xid = r.xid AND a.id = r.id))
   ORDER BY c.batch LIMIT 1;
  o_batch := coalesce(v_open - 1, v_last, p_batch);
  o_done := v_open IS NULL AND NOT EXISTS (SELECT FROM posthaste.claim_2 WHERE batch > o_batch);
END $f$;
CREATE OR REPLACE FUNCTION posthaste.verify_3(
  p_batch bigint, p_batches integer, OUT o_batch bigint, OUT o_done boolean)
LANGUAGE plpgsql AS $f$
DECLARE
  v_last bigint := (SELECT max(c.batch)
      FROM (SELECT batch FROM posthaste.claim_3
        WHERE batch > p_batch ORDER BY batch LIMIT p_batches) c);
  v_open bigint;
BEGIN
  SELECT c.batch INTO v_open
    FROM (SELECT c.batch, c.token FROM posthaste.claim_3 c
        WHERE c.batch > p_batch AND c.batch <= v_last
             AND NOT EXISTS (SELECT FROM posthaste.batch_done_3 w WHERE w.batch = c.batch)
               OFFSET 0) c
   WHERE EXISTS (SELECT FROM posthaste.batch_rows_3(c.batch, c.token) r
                  WHERE NOT EXISTS (SELECT FROM posthaste.job_done_3 a
                      WHERE a.xid = r.xid AND a.id = r.id))
   ORDER BY c.batch LIMIT 1;
  o_batch := coalesce(v_open - 1, v_last, p_batch);
  o_done := v_open IS NULL AND NOT EXISTS (SELECT FROM posthaste.claim_3 WHERE batch > o_batch);
END $f$;
CREATE OR REPLACE FUNCTION posthaste.verify_4(
  p_batch bigint, p_batches integer, OUT o_batch bigint, OUT o_done boolean)
LANGUAGE plpgsql AS $f$
DECLARE
  v_last bigint := (SELECT max(c.batch)
      FROM (SELECT batch FROM posthaste.claim_4
        WHERE batch > p_batch ORDER BY batch LIMIT p_batches) c);
  v_open bigint;
BEGIN
  SELECT c.batch INTO v_open
    FROM (SELECT c.batch, c.token FROM posthaste.claim_4 c
        WHERE c.batch > p_batch AND c.batch <= v_last
             AND NOT EXISTS (SELECT FROM posthaste.batch_done_4 w WHERE w.batch = c.batch)
               OFFSET 0) c
   WHERE EXISTS (SELECT FROM posthaste.batch_rows_4(c.batch, c.token) r
                  WHERE NOT EXISTS (SELECT FROM posthaste.job_done_4 a
                      WHERE a.xid = r.xid AND a.id = r.id))
   ORDER BY c.batch LIMIT 1;
  o_batch := coalesce(v_open - 1, v_last, p_batch);
  o_done := v_open IS NULL AND NOT EXISTS (SELECT FROM posthaste.claim_4 WHERE batch > o_batch);
END $f$;
CREATE OR REPLACE FUNCTION posthaste.verify_5(
  p_batch bigint, p_batches integer, OUT o_batch bigint, OUT o_done boolean)
LANGUAGE plpgsql AS $f$
DECLARE
  v_last bigint := (SELECT max(c.batch)
      FROM (SELECT batch FROM posthaste.claim_5
        WHERE batch > p_batch ORDER BY batch LIMIT p_batches) c);
  v_open bigint;
BEGIN
  SELECT c.batch INTO v_open
    FROM (SELECT c.batch, c.token FROM posthaste.claim_5 c
        WHERE c.batch > p_batch AND c.batch <= v_last
             AND NOT EXISTS (SELECT FROM posthaste.batch_done_5 w WHERE w.batch = c.batch)
               OFFSET 0) c
   WHERE EXISTS (SELECT FROM posthaste.batch_rows_5(c.batch, c.token) r
                  WHERE NOT EXISTS (SELECT FROM posthaste.job_done_5 a
                      WHERE a.xid = r.xid AND a.id = r.id))
   ORDER BY c.batch LIMIT 1;
  o_batch := coalesce(v_open - 1, v_last, p_batch);
  o_done := v_open IS NULL AND NOT EXISTS (SELECT FROM posthaste.claim_5 WHERE batch > o_batch);
END $f$;

-- Moves running jobs out of this slot: each gets a row in posthaste.in_flight with the same fence,
-- so that its worker finishes it there. A job that another session is closing is skipped.
CREATE OR REPLACE FUNCTION posthaste.move_running_0(p_batch bigint, p_limit integer)
RETURNS bigint LANGUAGE plpgsql AS $f$
DECLARE
  v_open record;
  v_in_flight bigint := 0;
BEGIN
  PERFORM set_config('lock_timeout', '50ms', true);
  FOR v_open IN
    SELECT c.batch, c.token, c.worker, r.id
      FROM (SELECT c.batch, c.token, c.worker FROM posthaste.claim_0 c
             WHERE c.batch > p_batch AND NOT EXISTS (SELECT FROM posthaste.batch_done_0 w
                 WHERE w.batch = c.batch) ORDER BY c.batch LIMIT 1000) c,
           LATERAL posthaste.batch_rows_0(c.batch, c.token) r
     WHERE NOT EXISTS (SELECT FROM posthaste.job_done_0 a WHERE a.xid = r.xid AND a.id = r.id)
       LIMIT p_limit
  LOOP
    BEGIN
      INSERT INTO posthaste.in_flight
      SELECT h.*
        FROM posthaste.close_0(v_open.batch, v_open.token, ARRAY[v_open.id], ARRAY[6::smallint]) j,
                      posthaste.to_in_flight(j, 'running', worker => v_open.worker,
                          token => v_open.token) h;
      IF FOUND THEN
        v_in_flight := v_in_flight + 1;
      END IF;
    EXCEPTION WHEN lock_not_available THEN
      NULL;
    END;
  END LOOP;
  RETURN v_in_flight;
END $f$;
CREATE OR REPLACE FUNCTION posthaste.move_running_1(p_batch bigint, p_limit integer)
RETURNS bigint LANGUAGE plpgsql AS $f$
DECLARE
  v_open record;
  v_in_flight bigint := 0;
BEGIN
  PERFORM set_config('lock_timeout', '50ms', true);
  FOR v_open IN
    SELECT c.batch, c.token, c.worker, r.id
      FROM (SELECT c.batch, c.token, c.worker FROM posthaste.claim_1 c
             WHERE c.batch > p_batch AND NOT EXISTS (SELECT FROM posthaste.batch_done_1 w
                 WHERE w.batch = c.batch) ORDER BY c.batch LIMIT 1000) c,
           LATERAL posthaste.batch_rows_1(c.batch, c.token) r
     WHERE NOT EXISTS (SELECT FROM posthaste.job_done_1 a WHERE a.xid = r.xid AND a.id = r.id)
       LIMIT p_limit
  LOOP
    BEGIN
      INSERT INTO posthaste.in_flight
      SELECT h.*
        FROM posthaste.close_1(v_open.batch, v_open.token, ARRAY[v_open.id], ARRAY[6::smallint]) j,
                      posthaste.to_in_flight(j, 'running', worker => v_open.worker,
                          token => v_open.token) h;
      IF FOUND THEN
        v_in_flight := v_in_flight + 1;
      END IF;
    EXCEPTION WHEN lock_not_available THEN
      NULL;
    END;
  END LOOP;
  RETURN v_in_flight;
END $f$;
CREATE OR REPLACE FUNCTION posthaste.move_running_2(p_batch bigint, p_limit integer)
RETURNS bigint LANGUAGE plpgsql AS $f$
DECLARE
  v_open record;
  v_in_flight bigint := 0;
BEGIN
  PERFORM set_config('lock_timeout', '50ms', true);
  FOR v_open IN
    SELECT c.batch, c.token, c.worker, r.id
      FROM (SELECT c.batch, c.token, c.worker FROM posthaste.claim_2 c
             WHERE c.batch > p_batch AND NOT EXISTS (SELECT FROM posthaste.batch_done_2 w
                 WHERE w.batch = c.batch) ORDER BY c.batch LIMIT 1000) c,
           LATERAL posthaste.batch_rows_2(c.batch, c.token) r
     WHERE NOT EXISTS (SELECT FROM posthaste.job_done_2 a WHERE a.xid = r.xid AND a.id = r.id)
       LIMIT p_limit
  LOOP
    BEGIN
      INSERT INTO posthaste.in_flight
      SELECT h.*
        FROM posthaste.close_2(v_open.batch, v_open.token, ARRAY[v_open.id], ARRAY[6::smallint]) j,
                      posthaste.to_in_flight(j, 'running', worker => v_open.worker,
                          token => v_open.token) h;
      IF FOUND THEN
        v_in_flight := v_in_flight + 1;
      END IF;
    EXCEPTION WHEN lock_not_available THEN
      NULL;
    END;
  END LOOP;
  RETURN v_in_flight;
END $f$;
CREATE OR REPLACE FUNCTION posthaste.move_running_3(p_batch bigint, p_limit integer)
RETURNS bigint LANGUAGE plpgsql AS $f$
DECLARE
  v_open record;
  v_in_flight bigint := 0;
BEGIN
  PERFORM set_config('lock_timeout', '50ms', true);
  FOR v_open IN
    SELECT c.batch, c.token, c.worker, r.id
      FROM (SELECT c.batch, c.token, c.worker FROM posthaste.claim_3 c
             WHERE c.batch > p_batch AND NOT EXISTS (SELECT FROM posthaste.batch_done_3 w
                 WHERE w.batch = c.batch) ORDER BY c.batch LIMIT 1000) c,
           LATERAL posthaste.batch_rows_3(c.batch, c.token) r
     WHERE NOT EXISTS (SELECT FROM posthaste.job_done_3 a WHERE a.xid = r.xid AND a.id = r.id)
       LIMIT p_limit
  LOOP
    BEGIN
      INSERT INTO posthaste.in_flight
      SELECT h.*
        FROM posthaste.close_3(v_open.batch, v_open.token, ARRAY[v_open.id], ARRAY[6::smallint]) j,
                      posthaste.to_in_flight(j, 'running', worker => v_open.worker,
                          token => v_open.token) h;
      IF FOUND THEN
        v_in_flight := v_in_flight + 1;
      END IF;
    EXCEPTION WHEN lock_not_available THEN
      NULL;
    END;
  END LOOP;
  RETURN v_in_flight;
END $f$;
CREATE OR REPLACE FUNCTION posthaste.move_running_4(p_batch bigint, p_limit integer)
RETURNS bigint LANGUAGE plpgsql AS $f$
DECLARE
  v_open record;
  v_in_flight bigint := 0;
BEGIN
  PERFORM set_config('lock_timeout', '50ms', true);
  FOR v_open IN
    SELECT c.batch, c.token, c.worker, r.id
      FROM (SELECT c.batch, c.token, c.worker FROM posthaste.claim_4 c
             WHERE c.batch > p_batch AND NOT EXISTS (SELECT FROM posthaste.batch_done_4 w
                 WHERE w.batch = c.batch) ORDER BY c.batch LIMIT 1000) c,
           LATERAL posthaste.batch_rows_4(c.batch, c.token) r
     WHERE NOT EXISTS (SELECT FROM posthaste.job_done_4 a WHERE a.xid = r.xid AND a.id = r.id)
       LIMIT p_limit
  LOOP
    BEGIN
      INSERT INTO posthaste.in_flight
      SELECT h.*
        FROM posthaste.close_4(v_open.batch, v_open.token, ARRAY[v_open.id], ARRAY[6::smallint]) j,
                      posthaste.to_in_flight(j, 'running', worker => v_open.worker,
                          token => v_open.token) h;
      IF FOUND THEN
        v_in_flight := v_in_flight + 1;
      END IF;
    EXCEPTION WHEN lock_not_available THEN
      NULL;
    END;
  END LOOP;
  RETURN v_in_flight;
END $f$;
CREATE OR REPLACE FUNCTION posthaste.move_running_5(p_batch bigint, p_limit integer)
RETURNS bigint LANGUAGE plpgsql AS $f$
DECLARE
  v_open record;
  v_in_flight bigint := 0;
BEGIN
  PERFORM set_config('lock_timeout', '50ms', true);
  FOR v_open IN
    SELECT c.batch, c.token, c.worker, r.id
      FROM (SELECT c.batch, c.token, c.worker FROM posthaste.claim_5 c
             WHERE c.batch > p_batch AND NOT EXISTS (SELECT FROM posthaste.batch_done_5 w
                 WHERE w.batch = c.batch) ORDER BY c.batch LIMIT 1000) c,
           LATERAL posthaste.batch_rows_5(c.batch, c.token) r
     WHERE NOT EXISTS (SELECT FROM posthaste.job_done_5 a WHERE a.xid = r.xid AND a.id = r.id)
       LIMIT p_limit
  LOOP
    BEGIN
      INSERT INTO posthaste.in_flight
      SELECT h.*
        FROM posthaste.close_5(v_open.batch, v_open.token, ARRAY[v_open.id], ARRAY[6::smallint]) j,
                      posthaste.to_in_flight(j, 'running', worker => v_open.worker,
                          token => v_open.token) h;
      IF FOUND THEN
        v_in_flight := v_in_flight + 1;
      END IF;
    EXCEPTION WHEN lock_not_available THEN
      NULL;
    END;
  END LOOP;
  RETURN v_in_flight;
END $f$;

-- Truncates the slot and returns NULL, or returns the holder of a lock: a transaction older than a
-- second, before any lock is requested, or '' for a younger one.
CREATE OR REPLACE FUNCTION posthaste.truncate_0() RETURNS text LANGUAGE plpgsql AS $f$
DECLARE
  v_tables regclass[] := ARRAY['posthaste.ready_0', 'posthaste.claim_0', 'posthaste.job_done_0',
                               'posthaste.closed_unclaimed_0', 'posthaste.batch_done_0',
                               'posthaste.batch_split_0', 'posthaste.counted_0',
                               'posthaste.opened_0', 'posthaste.left_0'];
  v_holder text := posthaste.lock_holder(v_tables);
BEGIN
  IF v_holder IS NOT NULL THEN
    RETURN v_holder;
  END IF;
  BEGIN
    LOCK TABLE posthaste.ready_0, posthaste.claim_0, posthaste.job_done_0,
      posthaste.closed_unclaimed_0, posthaste.batch_done_0, posthaste.batch_split_0,
      posthaste.counted_0, posthaste.opened_0, posthaste.left_0 IN ACCESS EXCLUSIVE MODE NOWAIT;
  EXCEPTION WHEN lock_not_available THEN
    RETURN '';
  END;
  -- Each truncation leaves a dead row in pg_class for the table, its TOAST table and each of their
  -- indexes, so tables without pages are skipped.
  IF pg_relation_size('posthaste.ready_0') > 0 THEN TRUNCATE posthaste.ready_0; END IF;
  IF pg_relation_size('posthaste.claim_0') > 0 THEN TRUNCATE posthaste.claim_0; END IF;
  IF pg_relation_size('posthaste.job_done_0') > 0 THEN TRUNCATE posthaste.job_done_0; END IF;
  IF pg_relation_size('posthaste.closed_unclaimed_0') > 0
    THEN TRUNCATE posthaste.closed_unclaimed_0; END IF;
  IF pg_relation_size('posthaste.batch_done_0') > 0 THEN TRUNCATE posthaste.batch_done_0; END IF;
  IF pg_relation_size('posthaste.batch_split_0') > 0 THEN TRUNCATE posthaste.batch_split_0; END IF;
  IF pg_relation_size('posthaste.counted_0') > 0 THEN TRUNCATE posthaste.counted_0; END IF;
  IF pg_relation_size('posthaste.opened_0') > 0 THEN TRUNCATE posthaste.opened_0; END IF;
  IF pg_relation_size('posthaste.left_0') > 0 THEN TRUNCATE posthaste.left_0; END IF;
  RETURN NULL;
END $f$;
CREATE OR REPLACE FUNCTION posthaste.truncate_1() RETURNS text LANGUAGE plpgsql AS $f$
DECLARE
  v_tables regclass[] := ARRAY['posthaste.ready_1', 'posthaste.claim_1', 'posthaste.job_done_1',
                               'posthaste.closed_unclaimed_1', 'posthaste.batch_done_1',
                               'posthaste.batch_split_1', 'posthaste.counted_1',
                               'posthaste.opened_1', 'posthaste.left_1'];
  v_holder text := posthaste.lock_holder(v_tables);
BEGIN
  IF v_holder IS NOT NULL THEN
    RETURN v_holder;
  END IF;
  BEGIN
    LOCK TABLE posthaste.ready_1, posthaste.claim_1, posthaste.job_done_1,
      posthaste.closed_unclaimed_1, posthaste.batch_done_1, posthaste.batch_split_1,
      posthaste.counted_1, posthaste.opened_1, posthaste.left_1 IN ACCESS EXCLUSIVE MODE NOWAIT;
  EXCEPTION WHEN lock_not_available THEN
    RETURN '';
  END;
  -- Each truncation leaves a dead row in pg_class for the table, its TOAST table and each of their
  -- indexes, so tables without pages are skipped.
  IF pg_relation_size('posthaste.ready_1') > 0 THEN TRUNCATE posthaste.ready_1; END IF;
  IF pg_relation_size('posthaste.claim_1') > 0 THEN TRUNCATE posthaste.claim_1; END IF;
  IF pg_relation_size('posthaste.job_done_1') > 0 THEN TRUNCATE posthaste.job_done_1; END IF;
  IF pg_relation_size('posthaste.closed_unclaimed_1') > 0
    THEN TRUNCATE posthaste.closed_unclaimed_1; END IF;
  IF pg_relation_size('posthaste.batch_done_1') > 0 THEN TRUNCATE posthaste.batch_done_1; END IF;
  IF pg_relation_size('posthaste.batch_split_1') > 0 THEN TRUNCATE posthaste.batch_split_1; END IF;
  IF pg_relation_size('posthaste.counted_1') > 0 THEN TRUNCATE posthaste.counted_1; END IF;
  IF pg_relation_size('posthaste.opened_1') > 0 THEN TRUNCATE posthaste.opened_1; END IF;
  IF pg_relation_size('posthaste.left_1') > 0 THEN TRUNCATE posthaste.left_1; END IF;
  RETURN NULL;
END $f$;
CREATE OR REPLACE FUNCTION posthaste.truncate_2() RETURNS text LANGUAGE plpgsql AS $f$
DECLARE
  v_tables regclass[] := ARRAY['posthaste.ready_2', 'posthaste.claim_2', 'posthaste.job_done_2',
                               'posthaste.closed_unclaimed_2', 'posthaste.batch_done_2',
                               'posthaste.batch_split_2', 'posthaste.counted_2',
                               'posthaste.opened_2', 'posthaste.left_2'];
  v_holder text := posthaste.lock_holder(v_tables);
BEGIN
  IF v_holder IS NOT NULL THEN
    RETURN v_holder;
  END IF;
  BEGIN
    LOCK TABLE posthaste.ready_2, posthaste.claim_2, posthaste.job_done_2,
      posthaste.closed_unclaimed_2, posthaste.batch_done_2, posthaste.batch_split_2,
      posthaste.counted_2, posthaste.opened_2, posthaste.left_2 IN ACCESS EXCLUSIVE MODE NOWAIT;
  EXCEPTION WHEN lock_not_available THEN
    RETURN '';
  END;
  -- Each truncation leaves a dead row in pg_class for the table, its TOAST table and each of their
  -- indexes, so tables without pages are skipped.
  IF pg_relation_size('posthaste.ready_2') > 0 THEN TRUNCATE posthaste.ready_2; END IF;
  IF pg_relation_size('posthaste.claim_2') > 0 THEN TRUNCATE posthaste.claim_2; END IF;
  IF pg_relation_size('posthaste.job_done_2') > 0 THEN TRUNCATE posthaste.job_done_2; END IF;
  IF pg_relation_size('posthaste.closed_unclaimed_2') > 0
    THEN TRUNCATE posthaste.closed_unclaimed_2; END IF;
  IF pg_relation_size('posthaste.batch_done_2') > 0 THEN TRUNCATE posthaste.batch_done_2; END IF;
  IF pg_relation_size('posthaste.batch_split_2') > 0 THEN TRUNCATE posthaste.batch_split_2; END IF;
  IF pg_relation_size('posthaste.counted_2') > 0 THEN TRUNCATE posthaste.counted_2; END IF;
  IF pg_relation_size('posthaste.opened_2') > 0 THEN TRUNCATE posthaste.opened_2; END IF;
  IF pg_relation_size('posthaste.left_2') > 0 THEN TRUNCATE posthaste.left_2; END IF;
  RETURN NULL;
END $f$;
CREATE OR REPLACE FUNCTION posthaste.truncate_3() RETURNS text LANGUAGE plpgsql AS $f$
DECLARE
  v_tables regclass[] := ARRAY['posthaste.ready_3', 'posthaste.claim_3', 'posthaste.job_done_3',
                               'posthaste.closed_unclaimed_3', 'posthaste.batch_done_3',
                               'posthaste.batch_split_3', 'posthaste.counted_3',
                               'posthaste.opened_3', 'posthaste.left_3'];
  v_holder text := posthaste.lock_holder(v_tables);
BEGIN
  IF v_holder IS NOT NULL THEN
    RETURN v_holder;
  END IF;
  BEGIN
    LOCK TABLE posthaste.ready_3, posthaste.claim_3, posthaste.job_done_3,
      posthaste.closed_unclaimed_3, posthaste.batch_done_3, posthaste.batch_split_3,
      posthaste.counted_3, posthaste.opened_3, posthaste.left_3 IN ACCESS EXCLUSIVE MODE NOWAIT;
  EXCEPTION WHEN lock_not_available THEN
    RETURN '';
  END;
  -- Each truncation leaves a dead row in pg_class for the table, its TOAST table and each of their
  -- indexes, so tables without pages are skipped.
  IF pg_relation_size('posthaste.ready_3') > 0 THEN TRUNCATE posthaste.ready_3; END IF;
  IF pg_relation_size('posthaste.claim_3') > 0 THEN TRUNCATE posthaste.claim_3; END IF;
  IF pg_relation_size('posthaste.job_done_3') > 0 THEN TRUNCATE posthaste.job_done_3; END IF;
  IF pg_relation_size('posthaste.closed_unclaimed_3') > 0
    THEN TRUNCATE posthaste.closed_unclaimed_3; END IF;
  IF pg_relation_size('posthaste.batch_done_3') > 0 THEN TRUNCATE posthaste.batch_done_3; END IF;
  IF pg_relation_size('posthaste.batch_split_3') > 0 THEN TRUNCATE posthaste.batch_split_3; END IF;
  IF pg_relation_size('posthaste.counted_3') > 0 THEN TRUNCATE posthaste.counted_3; END IF;
  IF pg_relation_size('posthaste.opened_3') > 0 THEN TRUNCATE posthaste.opened_3; END IF;
  IF pg_relation_size('posthaste.left_3') > 0 THEN TRUNCATE posthaste.left_3; END IF;
  RETURN NULL;
END $f$;
CREATE OR REPLACE FUNCTION posthaste.truncate_4() RETURNS text LANGUAGE plpgsql AS $f$
DECLARE
  v_tables regclass[] := ARRAY['posthaste.ready_4', 'posthaste.claim_4', 'posthaste.job_done_4',
                               'posthaste.closed_unclaimed_4', 'posthaste.batch_done_4',
                               'posthaste.batch_split_4', 'posthaste.counted_4',
                               'posthaste.opened_4', 'posthaste.left_4'];
  v_holder text := posthaste.lock_holder(v_tables);
BEGIN
  IF v_holder IS NOT NULL THEN
    RETURN v_holder;
  END IF;
  BEGIN
    LOCK TABLE posthaste.ready_4, posthaste.claim_4, posthaste.job_done_4,
      posthaste.closed_unclaimed_4, posthaste.batch_done_4, posthaste.batch_split_4,
      posthaste.counted_4, posthaste.opened_4, posthaste.left_4 IN ACCESS EXCLUSIVE MODE NOWAIT;
  EXCEPTION WHEN lock_not_available THEN
    RETURN '';
  END;
  -- Each truncation leaves a dead row in pg_class for the table, its TOAST table and each of their
  -- indexes, so tables without pages are skipped.
  IF pg_relation_size('posthaste.ready_4') > 0 THEN TRUNCATE posthaste.ready_4; END IF;
  IF pg_relation_size('posthaste.claim_4') > 0 THEN TRUNCATE posthaste.claim_4; END IF;
  IF pg_relation_size('posthaste.job_done_4') > 0 THEN TRUNCATE posthaste.job_done_4; END IF;
  IF pg_relation_size('posthaste.closed_unclaimed_4') > 0
    THEN TRUNCATE posthaste.closed_unclaimed_4; END IF;
  IF pg_relation_size('posthaste.batch_done_4') > 0 THEN TRUNCATE posthaste.batch_done_4; END IF;
  IF pg_relation_size('posthaste.batch_split_4') > 0 THEN TRUNCATE posthaste.batch_split_4; END IF;
  IF pg_relation_size('posthaste.counted_4') > 0 THEN TRUNCATE posthaste.counted_4; END IF;
  IF pg_relation_size('posthaste.opened_4') > 0 THEN TRUNCATE posthaste.opened_4; END IF;
  IF pg_relation_size('posthaste.left_4') > 0 THEN TRUNCATE posthaste.left_4; END IF;
  RETURN NULL;
END $f$;
CREATE OR REPLACE FUNCTION posthaste.truncate_5() RETURNS text LANGUAGE plpgsql AS $f$
DECLARE
  v_tables regclass[] := ARRAY['posthaste.ready_5', 'posthaste.claim_5', 'posthaste.job_done_5',
                               'posthaste.closed_unclaimed_5', 'posthaste.batch_done_5',
                               'posthaste.batch_split_5', 'posthaste.counted_5',
                               'posthaste.opened_5', 'posthaste.left_5'];
  v_holder text := posthaste.lock_holder(v_tables);
BEGIN
  IF v_holder IS NOT NULL THEN
    RETURN v_holder;
  END IF;
  BEGIN
    LOCK TABLE posthaste.ready_5, posthaste.claim_5, posthaste.job_done_5,
      posthaste.closed_unclaimed_5, posthaste.batch_done_5, posthaste.batch_split_5,
      posthaste.counted_5, posthaste.opened_5, posthaste.left_5 IN ACCESS EXCLUSIVE MODE NOWAIT;
  EXCEPTION WHEN lock_not_available THEN
    RETURN '';
  END;
  -- Each truncation leaves a dead row in pg_class for the table, its TOAST table and each of their
  -- indexes, so tables without pages are skipped.
  IF pg_relation_size('posthaste.ready_5') > 0 THEN TRUNCATE posthaste.ready_5; END IF;
  IF pg_relation_size('posthaste.claim_5') > 0 THEN TRUNCATE posthaste.claim_5; END IF;
  IF pg_relation_size('posthaste.job_done_5') > 0 THEN TRUNCATE posthaste.job_done_5; END IF;
  IF pg_relation_size('posthaste.closed_unclaimed_5') > 0
    THEN TRUNCATE posthaste.closed_unclaimed_5; END IF;
  IF pg_relation_size('posthaste.batch_done_5') > 0 THEN TRUNCATE posthaste.batch_done_5; END IF;
  IF pg_relation_size('posthaste.batch_split_5') > 0 THEN TRUNCATE posthaste.batch_split_5; END IF;
  IF pg_relation_size('posthaste.counted_5') > 0 THEN TRUNCATE posthaste.counted_5; END IF;
  IF pg_relation_size('posthaste.opened_5') > 0 THEN TRUNCATE posthaste.opened_5; END IF;
  IF pg_relation_size('posthaste.left_5') > 0 THEN TRUNCATE posthaste.left_5; END IF;
  RETURN NULL;
END $f$;

-- Starts a new segment when the current one has grown beyond p_bytes, or has rows of p_lanes
-- lanes of one queue. Returns 'rotated', 'full' (the ready log has no free slot: something pins the
-- oldest segment) or 'small'.
CREATE OR REPLACE FUNCTION posthaste.rotate(p_bytes bigint, p_lanes integer DEFAULT NULL)
RETURNS text LANGUAGE plpgsql
SET search_path = pg_catalog, pg_temp AS $f$
DECLARE
  v_current bigint;
  v_slot text;
BEGIN
  IF NOT pg_try_advisory_xact_lock(1885893476, 1) THEN
    RETURN 'busy';
  END IF;
  v_current := pg_sequence_last_value('posthaste.ready_current'::regclass);
  v_slot := (v_current % 4)::text;
  IF pg_table_size(('posthaste.ready_' || v_slot)::regclass)
    + pg_table_size(('posthaste.claim_' || v_slot)::regclass)
     + pg_table_size(('posthaste.job_done_' || v_slot)::regclass) <= p_bytes
     AND (p_lanes IS NULL OR NOT posthaste.has_lanes(v_slot::integer, p_lanes)) THEN
    RETURN 'small';
  END IF;
  IF v_current + 1 - pg_sequence_last_value('posthaste.ready_low'::regclass) >= 4 THEN
    RETURN 'full';
  END IF;
  PERFORM setval('posthaste.ready_current', v_current + 1);
  RETURN 'rotated';
END $f$;

-- Seals the oldest segment that claims still read, once every job in it is claimed. The exclusive
-- lock proves that no enqueuer is in it; later enqueuers find ready_scan advanced and use a newer
-- segment. o_blocker: a transaction older than a second with jobs in the segment.
CREATE OR REPLACE FUNCTION posthaste.seal(OUT o_sealed boolean, OUT o_blocker text)
LANGUAGE plpgsql
SET search_path = pg_catalog, pg_temp AS $f$
DECLARE
  v_scan bigint;
BEGIN
  o_sealed := false;
  IF current_setting('transaction_isolation') <> 'read committed'
    OR NOT pg_try_advisory_xact_lock(1885893476, 1) THEN
    RETURN;
  END IF;
  v_scan := pg_sequence_last_value('posthaste.ready_scan'::regclass);
  IF v_scan >= pg_sequence_last_value('posthaste.ready_current'::regclass) THEN
    RETURN;
  END IF;
  IF NOT pg_try_advisory_xact_lock(1885893473, v_scan::integer) THEN
    o_blocker := posthaste.lock_holder('{}', 1885893473, v_scan);
    RETURN;
  END IF;
  IF (SELECT l.o_queue FROM posthaste.pending_lane((v_scan % 4)::integer) l) IS NOT NULL THEN
    RETURN;
  END IF;
  PERFORM setval('posthaste.ready_scan', v_scan + 1);
  o_sealed := true;
END $f$;

-- The positions of the segments.
CREATE OR REPLACE FUNCTION posthaste.segments(
  OUT ready_low bigint, OUT ready_scan bigint, OUT ready_current bigint, OUT overflow_low bigint,
  OUT overflow_scan bigint, OUT overflow_current bigint, OUT scheduled_low bigint,
  OUT scheduled_current bigint)
LANGUAGE sql STABLE AS $f$
  SELECT pg_sequence_last_value('posthaste.ready_low'::regclass),
         pg_sequence_last_value('posthaste.ready_scan'::regclass),
         pg_sequence_last_value('posthaste.ready_current'::regclass),
         pg_sequence_last_value('posthaste.overflow_low'::regclass),
         pg_sequence_last_value('posthaste.overflow_scan'::regclass),
         pg_sequence_last_value('posthaste.overflow_current'::regclass),
         pg_sequence_last_value('posthaste.scheduled_low'::regclass),
         pg_sequence_last_value('posthaste.scheduled_current'::regclass)
$f$;

-- Verifies at most p_batches batches of a slot after p_batch.
CREATE OR REPLACE FUNCTION posthaste.verify(
  p_slot integer, p_batch bigint, p_batches integer, OUT o_batch bigint, OUT o_done boolean)
LANGUAGE plpgsql
SET enable_seqscan = off SET enable_bitmapscan = off SET enable_hashjoin = off
SET enable_mergejoin = off SET jit = off SET search_path = pg_catalog, pg_temp AS $f$
BEGIN
  CASE p_slot
    WHEN 0 THEN
      SELECT v.* INTO o_batch, o_done FROM posthaste.verify_0(p_batch, p_batches) v;
    WHEN 1 THEN
      SELECT v.* INTO o_batch, o_done FROM posthaste.verify_1(p_batch, p_batches) v;
    WHEN 2 THEN
      SELECT v.* INTO o_batch, o_done FROM posthaste.verify_2(p_batch, p_batches) v;
    WHEN 3 THEN
      SELECT v.* INTO o_batch, o_done FROM posthaste.verify_3(p_batch, p_batches) v;
    WHEN 4 THEN
      SELECT v.* INTO o_batch, o_done FROM posthaste.verify_4(p_batch, p_batches) v;
    WHEN 5 THEN
      SELECT v.* INTO o_batch, o_done FROM posthaste.verify_5(p_batch, p_batches) v;
  END CASE;
END $f$;

-- Truncates a slot, or returns the holder of a lock.
CREATE OR REPLACE FUNCTION posthaste.truncate(p_slot integer) RETURNS text LANGUAGE plpgsql
SET search_path = pg_catalog, pg_temp AS $f$
BEGIN
  CASE p_slot
    WHEN 0 THEN RETURN posthaste.truncate_0();
    WHEN 1 THEN RETURN posthaste.truncate_1();
    WHEN 2 THEN RETURN posthaste.truncate_2();
    WHEN 3 THEN RETURN posthaste.truncate_3();
    WHEN 4 THEN RETURN posthaste.truncate_4();
    WHEN 5 THEN RETURN posthaste.truncate_5();
  END CASE;
END $f$;

-- Reclaims the oldest segment of the ready log if it is sealed and every row of it is closed.
-- p_batch: how far earlier calls have verified it. o_state: 'open' (all batches up to o_batch are
-- closed), 'locked' (o_blocker holds a lock), 'truncated', 'none'.
CREATE OR REPLACE FUNCTION posthaste.reclaim(
  p_low bigint, p_batch bigint, p_batches integer, OUT o_state text, OUT o_batch bigint,
  OUT o_blocker text)
LANGUAGE plpgsql
SET search_path = pg_catalog, pg_temp AS $f$
DECLARE
  v_slot integer := p_low % 4;
  v_done boolean;
BEGIN
  o_state := 'none'; o_batch := 0;
  IF current_setting('transaction_isolation') <> 'read committed'
    OR NOT pg_try_advisory_xact_lock(1885893476, 1)
     OR p_low <> pg_sequence_last_value('posthaste.ready_low'::regclass)
       OR p_low >= pg_sequence_last_value('posthaste.ready_scan'::regclass) THEN
    RETURN;
  END IF;
  SELECT v.o_batch, v.o_done INTO o_batch, v_done
    FROM posthaste.verify(v_slot, p_batch, p_batches) v;
  IF NOT v_done THEN
    o_state := 'open';
    RETURN;
  END IF;
  o_blocker := posthaste.truncate(v_slot);
  IF o_blocker IS NOT NULL THEN
    o_state := 'locked';
    RETURN;
  END IF;
  -- After a crash between this and the commit, the rows are there again, with the claims and
  -- acknowledgements that mark them as finished.
  PERFORM setval('posthaste.ready_low', p_low + 1);
  o_state := 'truncated';
END $f$;

-- Moves running jobs out of a slot, so that it can be truncated.
CREATE OR REPLACE FUNCTION posthaste.move_running(p_slot integer, p_batch bigint, p_limit integer)
RETURNS bigint LANGUAGE plpgsql
SET enable_seqscan = off SET enable_bitmapscan = off SET enable_hashjoin = off
SET enable_mergejoin = off SET jit = off SET search_path = pg_catalog, pg_temp AS $f$
BEGIN
  IF NOT pg_try_advisory_xact_lock(1885893476, 1) THEN
    RETURN 0;
  END IF;
  CASE p_slot
    WHEN 0 THEN RETURN posthaste.move_running_0(p_batch, p_limit);
    WHEN 1 THEN RETURN posthaste.move_running_1(p_batch, p_limit);
    WHEN 2 THEN RETURN posthaste.move_running_2(p_batch, p_limit);
    WHEN 3 THEN RETURN posthaste.move_running_3(p_batch, p_limit);
    WHEN 4 THEN RETURN posthaste.move_running_4(p_batch, p_limit);
    WHEN 5 THEN RETURN posthaste.move_running_5(p_batch, p_limit);
  END CASE;
END $f$;
-- Rebase: moves every unfinished job once into fresh segments, using only the contents of the
-- tables (a dump reads sequences at other moments).
--
-- A row is finished if it or its batch is acknowledged. A batch names its jobs by transaction ids,
-- and in a restored database a later job may have a transaction id within an old batch. Two facts
-- distinguish it: a batch records its number of jobs, and job ids only grow. So the first that many
-- rows by id belong to the batch, and the others were never claimed. The same holds for promotions
-- from a scheduled slot. Cursors are not used: rows in no batch are unclaimed.
CREATE OR REPLACE FUNCTION posthaste.unfinished_0()
RETURNS SETOF posthaste.store LANGUAGE sql STABLE
SET enable_seqscan = on SET enable_hashjoin = on SET search_path = pg_catalog, pg_temp AS $f$
  WITH closed AS MATERIALIZED (
    SELECT m.xid, m.id
      FROM (SELECT r.xid, r.id, c.n, row_number() OVER (PARTITION BY c.batch ORDER BY r.id) AS place
              FROM posthaste.claim_0 c JOIN posthaste.batch_done_0 w ON w.batch = c.batch,
                LATERAL posthaste.batch_rows_0(c.batch, c.token) r) m
     WHERE m.place <= m.n
    UNION ALL
    SELECT a.xid, a.id FROM posthaste.job_done_0 a)
  SELECT r.* FROM posthaste.ready_0 r
    WHERE NOT EXISTS (SELECT FROM closed c WHERE c.xid = r.xid AND c.id = r.id)
$f$;
CREATE OR REPLACE FUNCTION posthaste.unfinished_1()
RETURNS SETOF posthaste.store LANGUAGE sql STABLE
SET enable_seqscan = on SET enable_hashjoin = on SET search_path = pg_catalog, pg_temp AS $f$
  WITH closed AS MATERIALIZED (
    SELECT m.xid, m.id
      FROM (SELECT r.xid, r.id, c.n, row_number() OVER (PARTITION BY c.batch ORDER BY r.id) AS place
              FROM posthaste.claim_1 c JOIN posthaste.batch_done_1 w ON w.batch = c.batch,
                LATERAL posthaste.batch_rows_1(c.batch, c.token) r) m
     WHERE m.place <= m.n
    UNION ALL
    SELECT a.xid, a.id FROM posthaste.job_done_1 a)
  SELECT r.* FROM posthaste.ready_1 r
    WHERE NOT EXISTS (SELECT FROM closed c WHERE c.xid = r.xid AND c.id = r.id)
$f$;
CREATE OR REPLACE FUNCTION posthaste.unfinished_2()
RETURNS SETOF posthaste.store LANGUAGE sql STABLE
SET enable_seqscan = on SET enable_hashjoin = on SET search_path = pg_catalog, pg_temp AS $f$
  WITH closed AS MATERIALIZED (
    SELECT m.xid, m.id
      FROM (SELECT r.xid, r.id, c.n, row_number() OVER (PARTITION BY c.batch ORDER BY r.id) AS place
              FROM posthaste.claim_2 c JOIN posthaste.batch_done_2 w ON w.batch = c.batch,
                LATERAL posthaste.batch_rows_2(c.batch, c.token) r) m
     WHERE m.place <= m.n
    UNION ALL
    SELECT a.xid, a.id FROM posthaste.job_done_2 a)
  SELECT r.* FROM posthaste.ready_2 r
    WHERE NOT EXISTS (SELECT FROM closed c WHERE c.xid = r.xid AND c.id = r.id)
$f$;
CREATE OR REPLACE FUNCTION posthaste.unfinished_3()
RETURNS SETOF posthaste.store LANGUAGE sql STABLE
SET enable_seqscan = on SET enable_hashjoin = on SET search_path = pg_catalog, pg_temp AS $f$
  WITH closed AS MATERIALIZED (
    SELECT m.xid, m.id
      FROM (SELECT r.xid, r.id, c.n, row_number() OVER (PARTITION BY c.batch ORDER BY r.id) AS place
              FROM posthaste.claim_3 c JOIN posthaste.batch_done_3 w ON w.batch = c.batch,
                LATERAL posthaste.batch_rows_3(c.batch, c.token) r) m
     WHERE m.place <= m.n
    UNION ALL
    SELECT a.xid, a.id FROM posthaste.job_done_3 a)
  SELECT r.* FROM posthaste.ready_3 r
    WHERE NOT EXISTS (SELECT FROM closed c WHERE c.xid = r.xid AND c.id = r.id)
$f$;
CREATE OR REPLACE FUNCTION posthaste.unfinished_4()
RETURNS SETOF posthaste.store LANGUAGE sql STABLE
SET enable_seqscan = on SET enable_hashjoin = on SET search_path = pg_catalog, pg_temp AS $f$
  WITH closed AS MATERIALIZED (
    SELECT m.xid, m.id
      FROM (SELECT r.xid, r.id, c.n, row_number() OVER (PARTITION BY c.batch ORDER BY r.id) AS place
              FROM posthaste.claim_4 c JOIN posthaste.batch_done_4 w ON w.batch = c.batch,
                LATERAL posthaste.batch_rows_4(c.batch, c.token) r) m
     WHERE m.place <= m.n
    UNION ALL
    SELECT a.xid, a.id FROM posthaste.job_done_4 a)
  SELECT r.* FROM posthaste.ready_4 r
    WHERE NOT EXISTS (SELECT FROM closed c WHERE c.xid = r.xid AND c.id = r.id)
$f$;
CREATE OR REPLACE FUNCTION posthaste.unfinished_5()
RETURNS SETOF posthaste.store LANGUAGE sql STABLE
SET enable_seqscan = on SET enable_hashjoin = on SET search_path = pg_catalog, pg_temp AS $f$
  WITH closed AS MATERIALIZED (
    SELECT m.xid, m.id
      FROM (SELECT r.xid, r.id, c.n, row_number() OVER (PARTITION BY c.batch ORDER BY r.id) AS place
              FROM posthaste.claim_5 c JOIN posthaste.batch_done_5 w ON w.batch = c.batch,
                LATERAL posthaste.batch_rows_5(c.batch, c.token) r) m
     WHERE m.place <= m.n
    UNION ALL
    SELECT a.xid, a.id FROM posthaste.job_done_5 a)
  SELECT r.* FROM posthaste.ready_5 r
    WHERE NOT EXISTS (SELECT FROM closed c WHERE c.xid = r.xid AND c.id = r.id)
$f$;

CREATE OR REPLACE FUNCTION posthaste.unfinished_6()
RETURNS SETOF posthaste.store LANGUAGE sql STABLE
SET enable_seqscan = on SET enable_hashjoin = on SET search_path = pg_catalog, pg_temp AS $f$
  WITH gone AS MATERIALIZED (
    SELECT m.xid, m.id
      FROM (SELECT r.xid, r.id, p.promoted, row_number() OVER (ORDER BY r.id) AS place
              FROM posthaste.scheduled_6 r,
                (SELECT * FROM posthaste.promote_cursor_6 ORDER BY page DESC LIMIT 1) p
             WHERE posthaste.promoted(r.xid, r.scheduled_at, r.id, p.t_lo, p.t_hi, p.lo, p.hi,
                 p.at_xid, p.at_due, p.at_id, p.late_done, p.exhausted)) m
     WHERE m.place <= m.promoted
    UNION ALL
    SELECT e.xid, e.id FROM posthaste.closed_unclaimed_6 e)
  SELECT r.* FROM posthaste.scheduled_6 r
    WHERE NOT EXISTS (SELECT FROM gone g WHERE g.xid = r.xid AND g.id = r.id)
$f$;
CREATE OR REPLACE FUNCTION posthaste.unfinished_7()
RETURNS SETOF posthaste.store LANGUAGE sql STABLE
SET enable_seqscan = on SET enable_hashjoin = on SET search_path = pg_catalog, pg_temp AS $f$
  WITH gone AS MATERIALIZED (
    SELECT m.xid, m.id
      FROM (SELECT r.xid, r.id, p.promoted, row_number() OVER (ORDER BY r.id) AS place
              FROM posthaste.scheduled_7 r,
                (SELECT * FROM posthaste.promote_cursor_7 ORDER BY page DESC LIMIT 1) p
             WHERE posthaste.promoted(r.xid, r.scheduled_at, r.id, p.t_lo, p.t_hi, p.lo, p.hi,
                 p.at_xid, p.at_due, p.at_id, p.late_done, p.exhausted)) m
     WHERE m.place <= m.promoted
    UNION ALL
    SELECT e.xid, e.id FROM posthaste.closed_unclaimed_7 e)
  SELECT r.* FROM posthaste.scheduled_7 r
    WHERE NOT EXISTS (SELECT FROM gone g WHERE g.xid = r.xid AND g.id = r.id)
$f$;

-- A transaction id with its epoch: the latest possible one.
CREATE OR REPLACE FUNCTION posthaste.full_xid(x xid) RETURNS xid8 LANGUAGE sql STABLE AS $f$
  SELECT (n.now - ((n.now - x::text::numeric) % 4294967296 + 4294967296) % 4294967296)::text::xid8
    FROM (SELECT pg_snapshot_xmax(pg_current_snapshot())::text::numeric AS now) n
$f$;

-- The highest job id that was certainly drawn before the tables were loaded here. A row was written
-- here if its transaction is one since the table exists, and not younger than the row's xmin: a
-- savepoint's id is higher than its transaction's. A restored row may look like that by chance;
-- then its job gets a new delivery id, which is safe.
CREATE OR REPLACE FUNCTION posthaste.last_foreign_id() RETURNS bigint LANGUAGE sql STABLE AS $f$
  SELECT coalesce(max(o.id), 0) FROM (
    SELECT max(c.to_id) AS id FROM posthaste.claim_0 c WHERE c.n > 0 UNION ALL
    SELECT max(a.id) FROM posthaste.job_done_0 a UNION ALL
    SELECT max(c.to_id) AS id FROM posthaste.claim_1 c WHERE c.n > 0 UNION ALL
    SELECT max(a.id) FROM posthaste.job_done_1 a UNION ALL
    SELECT max(c.to_id) AS id FROM posthaste.claim_2 c WHERE c.n > 0 UNION ALL
    SELECT max(a.id) FROM posthaste.job_done_2 a UNION ALL
    SELECT max(c.to_id) AS id FROM posthaste.claim_3 c WHERE c.n > 0 UNION ALL
    SELECT max(a.id) FROM posthaste.job_done_3 a UNION ALL
    SELECT max(c.to_id) AS id FROM posthaste.claim_4 c WHERE c.n > 0 UNION ALL
    SELECT max(a.id) FROM posthaste.job_done_4 a UNION ALL
    SELECT max(c.to_id) AS id FROM posthaste.claim_5 c WHERE c.n > 0 UNION ALL
    SELECT max(a.id) FROM posthaste.job_done_5 a UNION ALL
    SELECT max(h.id) FROM posthaste.in_flight h UNION ALL
    SELECT max(d.id) FROM posthaste.dead d UNION ALL
    SELECT max(f.id) FROM posthaste.finished f UNION ALL
    SELECT max(a.job) FROM posthaste.attempt a UNION ALL
    SELECT max(r.id)
      FROM posthaste.store r,
           (SELECT posthaste.full_xid(a.xmin) AS born,
               pg_snapshot_xmax(pg_current_snapshot()) AS now
              FROM pg_attribute a
                WHERE a.attrelid = 'posthaste.store'::regclass AND a.attname = 'ctid' OFFSET 0) t
     WHERE CASE WHEN r.xid < t.born OR r.xid >= t.now THEN true
                -- nearly all native rows; the check below is expensive
                WHEN r.xid::xid = r.xmin THEN false
                ELSE r.xid > posthaste.full_xid(r.xmin) END) o
$f$;

-- First step of a rebase, to be committed separately: from then on no worker runs here until the
-- second step is done. Refuses while a worker is alive, whose jobs would be run twice, unless
-- p_force is set.
CREATE OR REPLACE FUNCTION posthaste.lock_out_workers(p_force boolean DEFAULT false)
RETURNS void LANGUAGE plpgsql
SET search_path = pg_catalog, pg_temp AS $f$
DECLARE
  v_living text;
BEGIN
  PERFORM posthaste.require_triggers();
  IF EXISTS (SELECT FROM posthaste.store_identity WHERE identity = '{copied,mixed}')
    AND NOT p_force THEN
    RAISE EXCEPTION 'posthaste: rows were loaded into a store that already had jobs, and %',
      'it is not known which of them are completed'
      USING ERRCODE = 'object_not_in_prerequisite_state',
            HINT = 'Restore into a database without this schema. --force takes over the existing '
                   'jobs: completed jobs may run again, and unfinished ones may be missed.';
  END IF;
  SELECT format('%s (%s)', w.id, w.name) INTO v_living FROM posthaste.worker w
   WHERE w.stopped_at IS NULL AND posthaste.is_this_store(w.identity)
     AND w.seen_at BETWEEN clock_timestamp() - interval '1 min'
                       AND clock_timestamp() + interval '1 min' LIMIT 1;
  IF v_living IS NOT NULL AND NOT p_force THEN
    RAISE EXCEPTION 'posthaste: worker % is running', v_living
      USING ERRCODE = 'object_not_in_prerequisite_state',
            HINT = 'Stop all workers first. A killed worker counts as running for one minute.';
  END IF;
  DELETE FROM posthaste.store_identity;
  INSERT INTO posthaste.store_identity (identity) VALUES ('{}');
  PERFORM posthaste.recover()
    WHERE pg_sequence_last_value('posthaste.ready_scan'::regclass) IS NOT NULL;
  -- A schema without its rows has sequences that were never set.
  PERFORM setval(c.oid::regclass, 0) FROM pg_class c JOIN pg_sequence s ON s.seqrelid = c.oid
   WHERE CASE WHEN c.relnamespace = 'posthaste'::regnamespace AND c.relkind = 'S' AND s.seqmin = 0
              THEN pg_sequence_last_value(c.oid) IS NULL END;
  UPDATE posthaste.worker SET stopped_at = clock_timestamp() WHERE stopped_at IS NULL;
END $f$;

-- Waits a few seconds for sessions that use the tables, in the order in which claims and
-- acknowledgements lock them; enqueues wait until the end of the transaction.
CREATE OR REPLACE FUNCTION posthaste.lock_store() RETURNS void LANGUAGE plpgsql
SET search_path = pg_catalog, pg_temp AS $f$
BEGIN
  PERFORM set_config('lock_timeout', '5s', true);
  FOR n IN 1 .. 6 LOOP
    PERFORM pg_advisory_xact_lock(1885893476, n);
  END LOOP;
  LOCK TABLE posthaste.worker, posthaste.leader, posthaste.in_flight IN ACCESS EXCLUSIVE MODE;
  LOCK TABLE posthaste.batch_done_0, posthaste.batch_split_0, posthaste.claim_0,
    posthaste.job_done_0, posthaste.closed_unclaimed_0 IN ACCESS EXCLUSIVE MODE;
  LOCK TABLE posthaste.batch_done_1, posthaste.batch_split_1, posthaste.claim_1,
    posthaste.job_done_1, posthaste.closed_unclaimed_1 IN ACCESS EXCLUSIVE MODE;
  LOCK TABLE posthaste.batch_done_2, posthaste.batch_split_2, posthaste.claim_2,
    posthaste.job_done_2, posthaste.closed_unclaimed_2 IN ACCESS EXCLUSIVE MODE;
  LOCK TABLE posthaste.batch_done_3, posthaste.batch_split_3, posthaste.claim_3,
    posthaste.job_done_3, posthaste.closed_unclaimed_3 IN ACCESS EXCLUSIVE MODE;
  LOCK TABLE posthaste.batch_done_4, posthaste.batch_split_4, posthaste.claim_4,
    posthaste.job_done_4, posthaste.closed_unclaimed_4 IN ACCESS EXCLUSIVE MODE;
  LOCK TABLE posthaste.batch_done_5, posthaste.batch_split_5, posthaste.claim_5,
    posthaste.job_done_5, posthaste.closed_unclaimed_5 IN ACCESS EXCLUSIVE MODE;
  LOCK TABLE posthaste.promote_cursor_6, posthaste.promote_cursor_7, posthaste.closed_unclaimed_6,
    posthaste.closed_unclaimed_7, posthaste.turn_6, posthaste.turn_7 IN ACCESS EXCLUSIVE MODE;
  LOCK TABLE posthaste.store IN ACCESS EXCLUSIVE MODE;
EXCEPTION WHEN lock_not_available OR deadlock_detected THEN
  RAISE EXCEPTION 'posthaste: % holds a lock on the queue''s tables',
      coalesce(posthaste.lock_holder(ARRAY(SELECT c.oid::regclass FROM pg_class c
                                            WHERE c.relnamespace = 'posthaste'::regnamespace
                                              AND c.relkind IN ('r', 'p'))), 'another session')
    USING ERRCODE = 'lock_not_available', HINT = 'End it or wait until it ends, then try again.';
END $f$;

CREATE OR REPLACE FUNCTION posthaste.truncate_slots() RETURNS void LANGUAGE plpgsql
SET search_path = pg_catalog, pg_temp AS $f$
BEGIN
  TRUNCATE posthaste.ready_0, posthaste.claim_0, posthaste.job_done_0, posthaste.closed_unclaimed_0,
    posthaste.batch_done_0, posthaste.batch_split_0;
  TRUNCATE posthaste.left_0;
  TRUNCATE posthaste.ready_1, posthaste.claim_1, posthaste.job_done_1, posthaste.closed_unclaimed_1,
    posthaste.batch_done_1, posthaste.batch_split_1;
  TRUNCATE posthaste.left_1;
  TRUNCATE posthaste.ready_2, posthaste.claim_2, posthaste.job_done_2, posthaste.closed_unclaimed_2,
    posthaste.batch_done_2, posthaste.batch_split_2;
  TRUNCATE posthaste.left_2;
  TRUNCATE posthaste.ready_3, posthaste.claim_3, posthaste.job_done_3, posthaste.closed_unclaimed_3,
    posthaste.batch_done_3, posthaste.batch_split_3;
  TRUNCATE posthaste.left_3;
  TRUNCATE posthaste.ready_4, posthaste.claim_4, posthaste.job_done_4, posthaste.closed_unclaimed_4,
    posthaste.batch_done_4, posthaste.batch_split_4;
  TRUNCATE posthaste.left_4;
  TRUNCATE posthaste.ready_5, posthaste.claim_5, posthaste.job_done_5, posthaste.closed_unclaimed_5,
    posthaste.batch_done_5, posthaste.batch_split_5;
  TRUNCATE posthaste.left_5;
  TRUNCATE posthaste.scheduled_6, posthaste.promote_cursor_6, posthaste.closed_unclaimed_6,
           posthaste.turn_6,
           posthaste.scheduled_7, posthaste.promote_cursor_7, posthaste.closed_unclaimed_7,
           posthaste.turn_7, posthaste.left_6, posthaste.left_7;
END $f$;

-- The last batch and the highest worker id of each slot.
CREATE OR REPLACE FUNCTION posthaste.last_claims()
RETURNS TABLE (batch bigint, worker bigint) LANGUAGE sql STABLE AS $f$
  SELECT max(batch), max(worker) FROM posthaste.claim_0 UNION ALL
  SELECT max(batch), max(worker) FROM posthaste.claim_1 UNION ALL
  SELECT max(batch), max(worker) FROM posthaste.claim_2 UNION ALL
  SELECT max(batch), max(worker) FROM posthaste.claim_3 UNION ALL
  SELECT max(batch), max(worker) FROM posthaste.claim_4 UNION ALL
  SELECT max(batch), max(worker) FROM posthaste.claim_5 UNION ALL
  SELECT 0, 0
$f$;

-- Moves a sequence forward, never back.
CREATE OR REPLACE FUNCTION posthaste.raise_sequence(p_cell regclass, p_value bigint)
RETURNS void LANGUAGE plpgsql
SET search_path = pg_catalog, pg_temp AS $f$
BEGIN
  IF p_value > coalesce(pg_sequence_last_value(p_cell), 0) THEN
    PERFORM setval(p_cell, p_value);
  END IF;
END $f$;

-- Moves all cursors to fresh, empty segments. Sequences do not roll back: if the commit fails, the
-- tables are unchanged, with cursors that a second rebase does not use and that enqueuing
-- tolerates, and no worker runs meanwhile.
CREATE OR REPLACE FUNCTION posthaste.reset_cursors() RETURNS void LANGUAGE plpgsql
SET search_path = pg_catalog, pg_temp AS $f$
DECLARE
  c record;
  v_ready bigint;
  v_overflow bigint;
  v_scheduled bigint;
BEGIN
  SELECT * INTO c FROM posthaste.segments();
  v_ready := greatest(c.ready_low, c.ready_scan, c.ready_current) + 1;
  v_overflow := greatest(c.overflow_low, c.overflow_scan, c.overflow_current) + 1;
  v_scheduled := greatest(c.scheduled_low, c.scheduled_current) + 1;
  PERFORM setval('posthaste.ready_current', v_ready), setval('posthaste.ready_scan', v_ready),
          setval('posthaste.ready_low', v_ready),
          setval('posthaste.overflow_current', v_overflow),
          setval('posthaste.overflow_scan', v_overflow + 1),
          setval('posthaste.overflow_low', v_overflow),
          setval('posthaste.scheduled_current', v_scheduled),
          setval('posthaste.scheduled_low', v_scheduled), setval('posthaste.promote_horizon', 0),
          setval('posthaste.flags', (EXISTS (SELECT FROM posthaste.route))::integer),
          setval('posthaste.listeners_until', 0);
END $f$;

-- Two jobs with one id: one was drawn here while the sequence was too low, as after a logical
-- replication, which does not replicate sequences.
CREATE OR REPLACE FUNCTION posthaste.reject_duplicate_ids(p_ids bigint[])
RETURNS void LANGUAGE plpgsql
SET search_path = pg_catalog, pg_temp AS $f$
BEGIN
  RAISE EXCEPTION 'posthaste: % jobs have the id %', cardinality(p_ids), p_ids[1]
    USING ERRCODE = 'unique_violation',
          HINT = 'Move the sequence posthaste.job_id above all ids, '
                 'give the newer job another id, and try again.';
END $f$;

-- Second step, a separate transaction: takes over every unfinished job once and lets workers in
-- again; returns the number of jobs. Awaiting, quarantined and dead jobs, schedules, routes and
-- pauses stay as they are; running jobs run again.
CREATE OR REPLACE FUNCTION posthaste.rebase() RETURNS bigint LANGUAGE plpgsql
SET jit = off SET search_path = pg_catalog, pg_temp AS $f$
DECLARE
  v_now timestamptz := clock_timestamp();
  v_first bigint;
  v_jobs bigint;
  v_keys text[];   -- ordering keys that are taken, and by which turn
  v_turns bigint[];
BEGIN
  IF current_setting('transaction_isolation') <> 'read committed'
    OR pg_current_xact_id_if_assigned() IS NOT NULL THEN
    RAISE EXCEPTION 'posthaste: rebase needs a separate READ COMMITTED transaction'
      USING ERRCODE = 'invalid_transaction_state';
  END IF;
  PERFORM posthaste.lock_store();
  IF NOT EXISTS (SELECT FROM posthaste.store_identity WHERE identity = '{}') THEN
    RAISE EXCEPTION 'posthaste: rebase needs posthaste.lock_out_workers() before it, committed'
      USING ERRCODE = 'object_not_in_prerequisite_state';
  END IF;
  v_first := posthaste.last_foreign_id() + 1;
  CREATE TEMPORARY TABLE posthaste_unfinished ON COMMIT DROP AS
    SELECT u AS job FROM posthaste.unfinished_0() u UNION ALL
    SELECT u AS job FROM posthaste.unfinished_1() u UNION ALL
    SELECT u AS job FROM posthaste.unfinished_2() u UNION ALL
    SELECT u AS job FROM posthaste.unfinished_3() u UNION ALL
    SELECT u AS job FROM posthaste.unfinished_4() u UNION ALL
    SELECT u AS job FROM posthaste.unfinished_5() u UNION ALL
    SELECT u AS job FROM posthaste.unfinished_6() u UNION ALL
    SELECT u AS job FROM posthaste.unfinished_7() u UNION ALL
    SELECT posthaste.from_in_flight(h) FROM posthaste.in_flight h
      WHERE h.state = 'running' AND h.crashes = 0;
  PERFORM posthaste.reject_duplicate_ids(array_agg((u.job).id)) FROM posthaste_unfinished u
    GROUP BY (u.job).id HAVING count(*) > 1 LIMIT 1;
  -- Numbers that others may still know are not drawn again.
  PERFORM posthaste.raise_sequence('posthaste.job_id',
      greatest(v_first - 1, (SELECT max((u.job).id) FROM posthaste_unfinished u))),
          posthaste.raise_sequence('posthaste.batch_id',
              (SELECT max(c.batch) FROM posthaste.last_claims() c)),
          posthaste.raise_sequence('posthaste.worker_id',
              greatest((SELECT max(c.worker) FROM posthaste.last_claims() c),
                                                             (SELECT max(w.id)
                                                                 FROM posthaste.worker w)));
  SELECT array_agg(t.ordering_key), array_agg(t.turn) INTO v_keys, v_turns
    FROM (SELECT DISTINCT ON (ordering_key) *
        FROM (SELECT * FROM posthaste.turn_6 UNION ALL SELECT * FROM posthaste.turn_7) b
           ORDER BY ordering_key, n DESC) t WHERE NOT t.is_free;
  PERFORM posthaste.raise_sequence('posthaste.turn',
      greatest((SELECT max((u.job).turn) FROM posthaste_unfinished u),
                                                        (SELECT max(h.turn)
          FROM posthaste.in_flight h),
                                                        (SELECT max(t) FROM unnest(v_turns) t)));
  DELETE FROM posthaste.in_flight h WHERE h.state = 'running' AND h.crashes = 0;
  UPDATE posthaste.in_flight h SET state = 'quarantined', worker = NULL, token = NULL, until = v_now
    WHERE h.state = 'running';
  DELETE FROM posthaste.worker;
  DELETE FROM posthaste.leader;
  DELETE FROM posthaste.unique_key u
    WHERE NOT EXISTS (SELECT FROM posthaste_unfinished j WHERE (j.job).id = u.id)
     AND NOT EXISTS (SELECT FROM posthaste.in_flight h WHERE h.id = u.id);
  PERFORM posthaste.truncate_slots(), posthaste.reset_cursors();
  INSERT INTO posthaste.store
  SELECT a.*
    FROM posthaste_unfinished j,
         LATERAL (SELECT CASE WHEN (j.job).scheduled_at > v_now
               THEN (SELECT posthaste.enter_scheduled())
               ELSE (SELECT posthaste.enter_ready()) END) s(slot),
         posthaste.reschedule_row(j.job, s.slot) a
   ORDER BY (j.job).id;
  -- Ends of turns are rows too.
  SELECT count(*) INTO v_jobs FROM posthaste_unfinished u
    WHERE (u.job).queue <> '' OR (u.job).priority = 0;
  PERFORM posthaste.note_turns(v_keys, v_turns,
      array_fill(false, ARRAY[coalesce(cardinality(v_keys), 0)])) WHERE v_keys IS NOT NULL;
  PERFORM posthaste.begin_epoch(v_first);
  PERFORM posthaste.recount();
  PERFORM posthaste.create_copy_triggers() WHERE posthaste.is_unguarded();
  UPDATE posthaste.bulk_action b
     SET state = 'stopped', ended_at = v_now, stopped_by = 'posthaste rebase'
   WHERE b.state IN ('running', 'failed');
  DELETE FROM posthaste.store_identity;
  DELETE FROM posthaste.site;
  INSERT INTO posthaste.store_identity (identity) VALUES (posthaste.current_identity());
  RETURN v_jobs;
END $f$;

-- Counts everything again, for a store whose snapshots are no longer valid (a logical restore).
-- Totals stay. No other session may be active.
CREATE OR REPLACE FUNCTION posthaste.recount() RETURNS void LANGUAGE plpgsql
SET search_path = pg_catalog, pg_temp SET standard_conforming_strings = on AS $f$
DECLARE
  v_sums posthaste.stats_delta[];
BEGIN
  LOCK TABLE posthaste.in_flight, posthaste.dead, posthaste.stats_delta,
    posthaste.stats_sum IN SHARE ROW EXCLUSIVE MODE;
  v_sums := ARRAY(
    SELECT ROW(pg_current_xact_id(), sum(a.jobs), a.priority,
               pg_sequence_last_value('posthaste.stats_current') % 2,
               a.what, a.queue, a.name, a.tag)::posthaste.stats_delta
      FROM posthaste.stats() a WHERE a.what LIKE '%\_total' GROUP BY a.priority, a.what, a.queue,
        a.name, a.tag);
  TRUNCATE posthaste.stats_delta, posthaste.stats_sum;
  TRUNCATE posthaste.counted_0, posthaste.opened_0;
  TRUNCATE posthaste.counted_1, posthaste.opened_1;
  TRUNCATE posthaste.counted_2, posthaste.opened_2;
  TRUNCATE posthaste.counted_3, posthaste.opened_3;
  TRUNCATE posthaste.counted_4, posthaste.opened_4;
  TRUNCATE posthaste.counted_5, posthaste.opened_5;
  TRUNCATE posthaste.counted_6;
  TRUNCATE posthaste.counted_7;
  INSERT INTO posthaste.stats_delta SELECT s.* FROM unnest(v_sums) s;
  INSERT INTO posthaste.stats_delta (queue, priority, name, tag, what, jobs)
  SELECT k.queue, k.priority, k.name, k.tag, k.state, count(*)
    FROM (SELECT queue, priority, name, tag, state FROM posthaste.in_flight
        UNION ALL SELECT queue, priority, name, tag, state FROM posthaste.dead) k
   GROUP BY k.queue, k.priority, k.name, k.tag, k.state;
END $f$;
-- Relays: leases of ordered ones, their status, tables of other systems' outbox patterns, and the
-- receivers' inbox.

-- Arguments as a list if they are nothing else: as INSERT INTO posthaste.staged_jobs was given
-- them.
CREATE OR REPLACE FUNCTION posthaste.as_list(kwargs jsonb)
RETURNS jsonb LANGUAGE sql IMMUTABLE PARALLEL SAFE AS $f$
  SELECT CASE WHEN jsonb_typeof(kwargs -> 'args'::text) = 'array' AND kwargs - 'args'::text = '{}'
              THEN kwargs -> 'args'::text ELSE kwargs END
$f$;

-- The key prevents that the id is taken twice, and finds the job for posthaste.confirm(). An
-- existing id changes nothing and counts as no row.
CREATE OR REPLACE FUNCTION posthaste.insert_outbox_row() RETURNS trigger LANGUAGE plpgsql
SET search_path = pg_catalog, pg_temp AS $f$
DECLARE
  v_row jsonb;
BEGIN
  NEW.id := coalesce(NEW.id, gen_random_uuid());
  IF NEW.created_at IS NOT NULL OR NEW.completed_at IS NOT NULL THEN
    RAISE EXCEPTION 'posthaste: created_at, completed_at: posthaste.outbox does not accept them'
      USING ERRCODE = 'invalid_parameter_value';
  ELSIF (NEW.payload IS NULL) = (NEW.table_name IS NULL)
    OR (NEW.table_name IS NULL) <> (NEW.table_id IS NULL) THEN
    RAISE EXCEPTION 'posthaste: payload: a row of posthaste.outbox has either '
      'a payload or table_name and table_id'
      USING ERRCODE = 'invalid_parameter_value';
  END IF;
  IF EXISTS (SELECT FROM posthaste.unique_key u WHERE u.key = 'outbox:' || NEW.id) THEN
    RETURN NULL;
  END IF;
  IF NEW.payload IS NULL THEN
    v_row := jsonb_build_object('table_name', NEW.table_name, 'table_id', NEW.table_id);
  ELSE
    BEGIN
      v_row := jsonb_build_object('text', convert_from(NEW.payload, 'UTF8'));
    EXCEPTION WHEN character_not_in_repertoire OR untranslatable_character THEN
      v_row := jsonb_build_object('hex', encode(NEW.payload, 'hex'));
    END;
  END IF;
  v_row := jsonb_build_object('posthaste.outbox', v_row || jsonb_build_object('id', NEW.id));
  PERFORM posthaste.enqueue(NEW.type, v_row, unique_key => 'outbox:' || NEW.id,
    trace => NEW.trace);
  NEW.created_at := clock_timestamp();
  RETURN NEW;
END $f$;
-- Maintenance: rescue. Jobs of dead workers are quarantined and run alone.

-- Takes all open jobs of a dead worker's batch away from it and quarantines them, to run alone
-- once. NULL: an open transaction is closing one of them.
CREATE OR REPLACE FUNCTION posthaste.quarantine(
  p_slot integer, p_batch bigint, p_token uuid, p_ids bigint[])
RETURNS bigint LANGUAGE plpgsql
SET search_path = pg_catalog, pg_temp AS $f$
DECLARE
  v_kinds smallint[] := array_fill(7::smallint, ARRAY[cardinality(p_ids)]);
  v_jobs posthaste.store[];
  v_worker bigint := posthaste.worker_of(p_slot::smallint, p_batch, p_token, p_ids);
BEGIN
  CASE p_slot
    WHEN 0 THEN
      v_jobs := ARRAY(SELECT j FROM posthaste.close_0(p_batch, p_token, p_ids, v_kinds) j);
    WHEN 1 THEN
      v_jobs := ARRAY(SELECT j FROM posthaste.close_1(p_batch, p_token, p_ids, v_kinds) j);
    WHEN 2 THEN
      v_jobs := ARRAY(SELECT j FROM posthaste.close_2(p_batch, p_token, p_ids, v_kinds) j);
    WHEN 3 THEN
      v_jobs := ARRAY(SELECT j FROM posthaste.close_3(p_batch, p_token, p_ids, v_kinds) j);
    WHEN 4 THEN
      v_jobs := ARRAY(SELECT j FROM posthaste.close_4(p_batch, p_token, p_ids, v_kinds) j);
    WHEN 5 THEN
      v_jobs := ARRAY(SELECT j FROM posthaste.close_5(p_batch, p_token, p_ids, v_kinds) j);
  END CASE;
  INSERT INTO posthaste.in_flight
  SELECT h.*
    FROM unnest(v_jobs) j,
         posthaste.reschedule_row(j, j.slot, crashes => (j.crashes + 1)::smallint,
        error => 'its worker died while it had this job') a,
         posthaste.to_in_flight(a, 'quarantined', posthaste.quarantine_until(a.crashes)) h;
  PERFORM posthaste.note_attempts(v_jobs, v_worker, p_ids, v_kinds, NULL, NULL, NULL);
  RETURN cardinality(v_jobs);
EXCEPTION WHEN lock_not_available THEN
  RETURN NULL;
END $f$;

-- Takes the jobs of a dead worker away from it. The caller has seen no heartbeat for long enough by
-- its own clock; this only checks that there was none since. Idempotent: repeated for a while,
-- because a claim of the dead worker may still commit.
CREATE OR REPLACE FUNCTION posthaste.rescue(p_worker bigint, p_beat bigint)
RETURNS bigint LANGUAGE plpgsql
SET enable_bitmapscan = off SET jit = off SET search_path = pg_catalog, pg_temp AS $f$
DECLARE
  v_open record;
  v_rows bigint;
  v_id bigint;
  v_jobs bigint := 0;
BEGIN
  IF current_setting('transaction_isolation') <> 'read committed'
    OR NOT pg_try_advisory_xact_lock(1885893476, 3) THEN
    RETURN 0;
  END IF;
  PERFORM set_config('lock_timeout', '50ms', true);
  UPDATE posthaste.worker SET stopped_at = coalesce(stopped_at, clock_timestamp())
    WHERE id = p_worker AND beat = p_beat;
  IF NOT FOUND THEN
    RETURN 0;
  END IF;
  FOR v_open IN SELECT o.* FROM posthaste.open_jobs(p_worker, NULL) o LOOP
    v_rows := posthaste.quarantine(v_open.slot, v_open.batch, v_open.token, v_open.ids);
    -- an open transaction is closing one of them: go job by job and leave that one for later
    IF v_rows IS NULL THEN
      v_rows := 0;
      FOREACH v_id IN ARRAY v_open.ids LOOP
        v_rows := v_rows
          + coalesce(posthaste.quarantine(v_open.slot, v_open.batch, v_open.token, ARRAY[v_id]), 0);
      END LOOP;
    END IF;
    v_jobs := v_jobs + v_rows;
  END LOOP;
  RETURN v_jobs + posthaste.quarantine_in_flight(p_worker);
END $f$;

-- Jobs in flight of a dead worker. One that was quarantined already ran alone and killed its worker
-- again: that counts as an attempt, delays its next run, and ends the job after the last attempt.
CREATE OR REPLACE FUNCTION posthaste.quarantine_in_flight(p_worker bigint)
RETURNS bigint LANGUAGE plpgsql
SET search_path = pg_catalog, pg_temp AS $f$
DECLARE
  h posthaste.in_flight;
  v_jobs bigint := 0;
BEGIN
  FOR h IN SELECT * FROM posthaste.in_flight
    WHERE worker = p_worker AND state = 'running' FOR UPDATE SKIP LOCKED LOOP
    PERFORM posthaste.note_attempts(ARRAY[posthaste.from_in_flight(h)], p_worker, ARRAY[h.id],
        '{7}', NULL, NULL, NULL);
    IF h.crashes > 0 AND h.attempt + 1 >= h.max_attempts THEN
      DELETE FROM posthaste.in_flight WHERE id = h.id;
      h.attempt := h.attempt + 1; h.crashes := h.crashes + 1;
      h.last_error := 'its worker died ' || h.crashes || ' times while it had this job';
      INSERT INTO posthaste.dead SELECT d.*
        FROM posthaste.to_dead(posthaste.from_in_flight(h), 'dead') d ON CONFLICT (id) DO NOTHING;
    ELSE
      UPDATE posthaste.in_flight SET state = 'quarantined', worker = NULL, token = NULL,
             crashes = least(h.crashes + 1, 32000),
             attempt = h.attempt + CASE WHEN h.crashes > 0 THEN 1 ELSE 0 END,
             until = posthaste.quarantine_until((h.crashes + 1)::smallint)
                     + CASE WHEN h.crashes > 0
                         THEN least(interval '1 s' * power(2, least(h.crashes, 10)),
                           interval '5 min') ELSE interval '0' END,
             last_error = 'its worker died while it had this job'
       WHERE id = h.id;
    END IF;
    v_jobs := v_jobs + 1;
  END LOOP;
  RETURN v_jobs;
END $f$;

-- Hands out one quarantined job of a queue, to run while nothing else runs in the worker's process.
CREATE OR REPLACE FUNCTION posthaste.claim_quarantined(p_queue text, p_worker bigint, p_token uuid)
RETURNS SETOF posthaste.claimed LANGUAGE sql AS $f$
  UPDATE posthaste.in_flight h SET state = 'running', worker = p_worker, token = p_token
   WHERE h.id = (SELECT s.id FROM posthaste.in_flight s
                  WHERE s.state = 'quarantined' AND s.queue = p_queue
                    AND s.until <= clock_timestamp() AND s.expires_at > clock_timestamp()
                  ORDER BY s.until, s.id LIMIT 1 FOR UPDATE SKIP LOCKED)
     AND EXISTS (SELECT FROM posthaste.worker w WHERE w.id = p_worker AND w.stopped_at IS NULL
                  AND w.identity = posthaste.session_identity())
     AND NOT EXISTS (SELECT FROM posthaste.queue q
         WHERE q.name = p_queue AND q.paused_at IS NOT NULL)
  RETURNING (-1)::smallint, 0::bigint, h.id, h.enqueued_at, h.scheduled_at, h.expires_at,
            h.priority, h.attempt, h.max_attempts, h.crashes,
            h.name, h.tag, h.unique_key, h.ordering_key, h.trace, h.kwargs
$f$;

-- Queues with quarantined jobs that are due.
CREATE OR REPLACE FUNCTION posthaste.quarantine_queues()
RETURNS SETOF text LANGUAGE sql STABLE AS $f$
  SELECT DISTINCT h.queue FROM posthaste.in_flight h
   WHERE h.state = 'quarantined' AND h.until <= clock_timestamp()
     AND h.expires_at > clock_timestamp()
     AND NOT EXISTS (SELECT FROM posthaste.queue q
         WHERE q.name = h.queue AND q.paused_at IS NOT NULL)
$f$;
-- Identity: which store a session sees. Everything called here is allowed to the schema's owner on
-- a managed server, or optional.

-- The server's cluster id. If pg_control_system() is not allowed: the transaction that created the
-- store by the catalog, which a dump does not contain. It runs with its owner's rights, so that all
-- roles see the same.
CREATE OR REPLACE FUNCTION posthaste.cluster() RETURNS text LANGUAGE plpgsql STABLE SECURITY DEFINER
SET search_path = pg_catalog, pg_temp AS $f$
BEGIN
  IF has_function_privilege('pg_control_system()', 'EXECUTE') THEN
    BEGIN
      RETURN (pg_control_system()).system_identifier;
    EXCEPTION WHEN OTHERS THEN  -- a managed server may reject it inside
    END;
  END IF;
  RETURN (SELECT concat('made by ', a.xmin) FROM pg_attribute a
           WHERE a.attrelid = 'posthaste.store'::regclass AND a.attname = 'ctid');
END $f$;

-- The timeline of the write-ahead log. Until its first checkpoint a promoted server has the new
-- number only as the end of recovery. If both are not allowed, or the number never changes (Neon),
-- each life of the server counts as a new timeline.
CREATE OR REPLACE FUNCTION posthaste.timeline()
RETURNS text LANGUAGE plpgsql STABLE SECURITY DEFINER
SET search_path = pg_catalog, pg_temp AS $f$
BEGIN
  IF has_function_privilege('pg_control_checkpoint()', 'EXECUTE')
     AND has_function_privilege('pg_control_recovery()', 'EXECUTE')
     AND current_setting('neon.timeline_id', true) IS NULL THEN
    BEGIN
      RETURN upper(lpad(to_hex(greatest((pg_control_checkpoint()).timeline_id,
        (pg_control_recovery()).min_recovery_end_timeline)), 8, '0'));
    EXCEPTION WHEN OTHERS THEN
    END;
  END IF;
  RETURN concat('life ', pg_sequence_last_value('posthaste.life'::regclass));
END $f$;

REVOKE EXECUTE ON FUNCTION posthaste.cluster(), posthaste.timeline() FROM PUBLIC;

-- The identity of the store that a session sees: the cluster, the tables, the timeline, the
-- database's oid, which a copy does not share and a rename does not change, and the life of the
-- server. Each claim reads it: that is how a worker notices that its connection leads elsewhere, or
-- to a server that was promoted or has crashed. A session stays in one database of one server, and
-- every change there begins another life, so it is computed once in each.
CREATE OR REPLACE FUNCTION posthaste.session_identity() RETURNS text LANGUAGE plpgsql STABLE AS $f$
DECLARE
  v_life text := pg_catalog.concat('/'::text, pg_sequence_last_value('posthaste.life'::regclass));
  v_known text := current_setting('posthaste.identity'::text, true);
BEGIN
  IF v_known LIKE '%' || v_life AND v_life <> '/'::text THEN
    RETURN v_known;
  END IF;
  v_known := posthaste.read_identity() || v_life;
  IF v_life <> '/'::text THEN
    PERFORM set_config('posthaste.identity'::text, v_known, false);
  END IF;
  RETURN v_known;
END $f$;

CREATE OR REPLACE FUNCTION posthaste.read_identity() RETURNS text LANGUAGE sql STABLE
SET search_path = pg_catalog, pg_temp AS $f$
  SELECT concat_ws('/', posthaste.cluster(), 'posthaste.store'::regclass::oid, posthaste.timeline(),
    (SELECT oid FROM pg_database WHERE datname = current_database()))
$f$;

-- Whether a worker's identity is that of this store, in any life of its server.
CREATE OR REPLACE FUNCTION posthaste.is_this_store(p_identity text)
RETURNS boolean LANGUAGE sql STABLE
SET search_path = pg_catalog, pg_temp AS $f$
  SELECT regexp_replace(p_identity, '/[^/]*$', '')
       = regexp_replace(posthaste.session_identity(), '/[^/]*$', '')
$f$;

-- The identity of this store, without the life of its server.
CREATE OR REPLACE FUNCTION posthaste.current_identity() RETURNS text[] LANGUAGE sql STABLE
SET search_path = pg_catalog, pg_temp AS $f$
  SELECT (string_to_array(posthaste.session_identity(), '/'))[1:4]
$f$;
-- The consequences of the store's identity (functions/identity.sql) for work and delivery ids.
-- functions/rebase.sql takes over jobs whose transaction ids mean nothing here.
--
-- Rows and cursors contain transaction ids. Those are valid in one cluster and for the tables
-- created in it: physical copies keep them (crash recovery, physical backups, point-in-time
-- recovery, promotion), logical ones do not (pg_dump, logical replication).

-- The identity in the one row of posthaste.store_identity; '{}' if there is not exactly one, as in
-- a schema without its rows.
CREATE OR REPLACE FUNCTION posthaste.recorded_identity() RETURNS text[] LANGUAGE sql STABLE AS $f$
  SELECT CASE count(*) WHEN 1 THEN max(h.identity) ELSE '{}' END FROM posthaste.store_identity h
$f$;

-- Rows enter a slot in two ways: through posthaste.store, whose partitions then fire no statement
-- triggers, and directly, as written by a data restore or the initial copy of a replication. So
-- this trigger costs an enqueue nothing and commits with the loaded rows. Workers stop: one that
-- registers meanwhile waits for the lock and reads posthaste.store_identity afterwards.
CREATE OR REPLACE FUNCTION posthaste.note_copied()
RETURNS trigger LANGUAGE plpgsql SECURITY DEFINER
SET search_path = pg_catalog, pg_temp AS $f$
BEGIN
  -- The leader of a store writes its own process there: that is no replication, but a worker whose
  -- session fires no triggers.
  IF TG_NAME = 'note_replicated' THEN
    IF NEW.pid = pg_backend_pid() AND EXISTS (SELECT FROM pg_stat_get_activity(NEW.pid) a
      WHERE a.backend_type = 'client backend') THEN
      PERFORM posthaste.require_triggers();
      RETURN NULL;
    END IF;
  END IF;
  IF NOT EXISTS (SELECT FROM posthaste.store_identity h WHERE h.identity[1] = 'copied') THEN
    LOCK TABLE posthaste.worker IN SHARE ROW EXCLUSIVE MODE;
    INSERT INTO posthaste.store_identity (identity)
    VALUES (CASE WHEN pg_sequence_last_value('posthaste.job_id'::regclass) IS NULL
                 THEN '{copied}'::text[] ELSE '{copied,mixed}' END)
    ON CONFLICT DO NOTHING;
    UPDATE posthaste.worker SET stopped_at = clock_timestamp() WHERE stopped_at IS NULL;
  END IF;
  RETURN NULL;
END $f$;

REVOKE EXECUTE ON FUNCTION posthaste.note_copied() FROM PUBLIC;

CREATE OR REPLACE FUNCTION posthaste.create_copy_triggers() RETURNS void LANGUAGE plpgsql
SET search_path = pg_catalog, pg_temp AS $f$
DECLARE
  v_slot regclass;
BEGIN
  FOR v_slot IN SELECT inhrelid FROM pg_inherits WHERE inhparent = 'posthaste.store'::regclass LOOP
    EXECUTE format('CREATE OR REPLACE TRIGGER note_copied AFTER INSERT ON %s
                      FOR EACH STATEMENT EXECUTE FUNCTION posthaste.note_copied()', v_slot);
    EXECUTE format('ALTER TABLE %s ENABLE ALWAYS TRIGGER note_copied', v_slot);
  END LOOP;
END $f$;

-- Whether rows may have been loaded without a trace. Triggers that were disabled for a while
-- (pg_restore --disable-triggers) are no longer ALWAYS when they are enabled again.
CREATE OR REPLACE FUNCTION posthaste.is_unguarded() RETURNS boolean LANGUAGE sql STABLE AS $f$
  SELECT 8 <> (SELECT count(*) FROM pg_inherits i JOIN pg_trigger t ON t.tgrelid = i.inhrelid
                WHERE i.inhparent = 'posthaste.store'::regclass
                  AND t.tgname = 'note_copied' AND t.tgenabled = 'A')
$f$;

-- Whether a slot certainly holds rows that were not written here: of a future transaction, or a
-- batch whose number was not drawn. For parts of a store that were loaded without its jobs.
CREATE OR REPLACE FUNCTION posthaste.has_foreign_rows() RETURNS boolean LANGUAGE sql STABLE
SET enable_seqscan = off SET enable_bitmapscan = off SET jit = off
SET search_path = pg_catalog, pg_temp AS $f$
  SELECT EXISTS (SELECT FROM (
SELECT '0'::xid8 AS next, 0::bigint AS batch, NULL::xid8 AS xid UNION ALL
(SELECT pg_snapshot_xmax(hi), batch, NULL FROM posthaste.claim_0 ORDER BY 2 DESC LIMIT 1) UNION ALL
(SELECT NULL, batch, NULL FROM posthaste.batch_done_0 ORDER BY batch DESC LIMIT 1) UNION ALL
(SELECT NULL, batch, NULL FROM posthaste.batch_split_0 ORDER BY batch DESC LIMIT 1) UNION ALL
(SELECT NULL, NULL, xid FROM posthaste.job_done_0 ORDER BY xid DESC, id DESC LIMIT 1) UNION ALL
(SELECT pg_snapshot_xmax(hi), batch, NULL FROM posthaste.claim_1 ORDER BY 2 DESC LIMIT 1) UNION ALL
(SELECT NULL, batch, NULL FROM posthaste.batch_done_1 ORDER BY batch DESC LIMIT 1) UNION ALL
(SELECT NULL, batch, NULL FROM posthaste.batch_split_1 ORDER BY batch DESC LIMIT 1) UNION ALL
(SELECT NULL, NULL, xid FROM posthaste.job_done_1 ORDER BY xid DESC, id DESC LIMIT 1) UNION ALL
(SELECT pg_snapshot_xmax(hi), batch, NULL FROM posthaste.claim_2 ORDER BY 2 DESC LIMIT 1) UNION ALL
(SELECT NULL, batch, NULL FROM posthaste.batch_done_2 ORDER BY batch DESC LIMIT 1) UNION ALL
(SELECT NULL, batch, NULL FROM posthaste.batch_split_2 ORDER BY batch DESC LIMIT 1) UNION ALL
(SELECT NULL, NULL, xid FROM posthaste.job_done_2 ORDER BY xid DESC, id DESC LIMIT 1) UNION ALL
(SELECT pg_snapshot_xmax(hi), batch, NULL FROM posthaste.claim_3 ORDER BY 2 DESC LIMIT 1) UNION ALL
(SELECT NULL, batch, NULL FROM posthaste.batch_done_3 ORDER BY batch DESC LIMIT 1) UNION ALL
(SELECT NULL, batch, NULL FROM posthaste.batch_split_3 ORDER BY batch DESC LIMIT 1) UNION ALL
(SELECT NULL, NULL, xid FROM posthaste.job_done_3 ORDER BY xid DESC, id DESC LIMIT 1) UNION ALL
(SELECT pg_snapshot_xmax(hi), batch, NULL FROM posthaste.claim_4 ORDER BY 2 DESC LIMIT 1) UNION ALL
(SELECT NULL, batch, NULL FROM posthaste.batch_done_4 ORDER BY batch DESC LIMIT 1) UNION ALL
(SELECT NULL, batch, NULL FROM posthaste.batch_split_4 ORDER BY batch DESC LIMIT 1) UNION ALL
(SELECT NULL, NULL, xid FROM posthaste.job_done_4 ORDER BY xid DESC, id DESC LIMIT 1) UNION ALL
(SELECT pg_snapshot_xmax(hi), batch, NULL FROM posthaste.claim_5 ORDER BY 2 DESC LIMIT 1) UNION ALL
(SELECT NULL, batch, NULL FROM posthaste.batch_done_5 ORDER BY batch DESC LIMIT 1) UNION ALL
(SELECT NULL, batch, NULL FROM posthaste.batch_split_5 ORDER BY batch DESC LIMIT 1) UNION ALL
(SELECT NULL, NULL, xid FROM posthaste.job_done_5 ORDER BY xid DESC, id DESC LIMIT 1) UNION ALL
(SELECT pg_snapshot_xmax(hi), NULL, NULL FROM posthaste.promote_cursor_6 ORDER BY page DESC LIMIT 1)
  UNION ALL
(SELECT pg_snapshot_xmax(hi), NULL, NULL FROM posthaste.promote_cursor_7
    ORDER BY page DESC LIMIT 1)) u
   WHERE u.next > pg_snapshot_xmax(pg_current_snapshot())
      OR u.xid >= pg_snapshot_xmax(pg_current_snapshot())
      OR u.batch > coalesce(pg_sequence_last_value('posthaste.batch_id'::regclass), 0))
$f$;

CREATE OR REPLACE FUNCTION posthaste.note_ids() RETURNS boolean LANGUAGE plpgsql
SET search_path = pg_catalog, pg_temp AS $f$
DECLARE
  v_drawn bigint := pg_sequence_last_value('posthaste.job_id'::regclass);
BEGIN
  -- On a server that was just promoted, not before its promotion is visible.
  IF v_drawn IS NULL OR v_drawn <= pg_sequence_last_value('posthaste.known_id'::regclass)
     OR posthaste.recorded_identity() <> posthaste.current_identity() THEN
    RETURN false;
  END IF;
  PERFORM set_config('synchronous_commit', 'off', true), setval('posthaste.known_id', v_drawn);
  RETURN true;
END $f$;

-- From this job id on, delivery ids are new.
CREATE OR REPLACE FUNCTION posthaste.begin_epoch(p_first bigint) RETURNS void LANGUAGE sql AS $f$
  INSERT INTO posthaste.epoch (n, first_id, value)
  SELECT coalesce((SELECT max(n) FROM posthaste.epoch), 0) + 1, p_first,
         substr(replace(gen_random_uuid()::text, '-', ''), 1, 12)
           || substr(md5(gen_random_uuid()::text), 1, 3)
$f$;

-- The highest job id among the workers' latest claims: it was drawn before they were made.
CREATE OR REPLACE FUNCTION posthaste.max_claimed_id() RETURNS bigint LANGUAGE sql STABLE AS $f$
  SELECT coalesce(max(c.to_id), 0) FROM (
    (SELECT to_id FROM posthaste.claim_0 WHERE n > 0 AND worker > 0 ORDER BY batch DESC LIMIT 1000)
      UNION ALL
    (SELECT to_id FROM posthaste.claim_1 WHERE n > 0 AND worker > 0 ORDER BY batch DESC LIMIT 1000)
      UNION ALL
    (SELECT to_id FROM posthaste.claim_2 WHERE n > 0 AND worker > 0 ORDER BY batch DESC LIMIT 1000)
      UNION ALL
    (SELECT to_id FROM posthaste.claim_3 WHERE n > 0 AND worker > 0 ORDER BY batch DESC LIMIT 1000)
      UNION ALL
    (SELECT to_id FROM posthaste.claim_4 WHERE n > 0 AND worker > 0 ORDER BY batch DESC LIMIT 1000)
      UNION ALL
    (SELECT to_id FROM posthaste.claim_5 WHERE n > 0 AND worker > 0 ORDER BY batch DESC LIMIT 1000)
      UNION ALL
    SELECT 0) c
$f$;

-- Whether nothing was ever claimed, promoted or closed in this store.
CREATE OR REPLACE FUNCTION posthaste.is_unworked() RETURNS boolean LANGUAGE sql STABLE
SET search_path = pg_catalog, pg_temp AS $f$
  SELECT
         NOT EXISTS (SELECT FROM posthaste.claim_0)
           AND NOT EXISTS (SELECT FROM posthaste.job_done_0) AND
         NOT EXISTS (SELECT FROM posthaste.claim_1)
           AND NOT EXISTS (SELECT FROM posthaste.job_done_1) AND
         NOT EXISTS (SELECT FROM posthaste.claim_2)
           AND NOT EXISTS (SELECT FROM posthaste.job_done_2) AND
         NOT EXISTS (SELECT FROM posthaste.claim_3)
           AND NOT EXISTS (SELECT FROM posthaste.job_done_3) AND
         NOT EXISTS (SELECT FROM posthaste.claim_4)
           AND NOT EXISTS (SELECT FROM posthaste.job_done_4) AND
         NOT EXISTS (SELECT FROM posthaste.claim_5)
           AND NOT EXISTS (SELECT FROM posthaste.job_done_5) AND
         NOT EXISTS (SELECT FROM posthaste.promote_cursor_6)
           AND NOT EXISTS (SELECT FROM posthaste.promote_cursor_7) AND
         NOT EXISTS (SELECT FROM posthaste.closed_unclaimed_6)
           AND NOT EXISTS (SELECT FROM posthaste.closed_unclaimed_7) AND
         NOT EXISTS (SELECT FROM posthaste.in_flight)
$f$;

-- Whether transaction ids in the tables are valid here: the same cluster and the same tables.
CREATE OR REPLACE FUNCTION posthaste.is_own_store() RETURNS boolean LANGUAGE sql STABLE
SET search_path = pg_catalog, pg_temp AS $f$
  SELECT h.identity[1:2] = i.here[1:2]
    FROM (SELECT posthaste.recorded_identity() AS identity) h,
      (SELECT posthaste.current_identity() AS here) i
$f$;

-- Whether these tables are not, or not only, the ones that workers used here. A copy in which
-- nothing was ever claimed (a template of test databases) is as good as the original, a restored
-- store only if nothing was ever enqueued: its cursors may come from different moments. Not
-- thorough: does not read the slots.
CREATE OR REPLACE FUNCTION posthaste.needs_rebase(p_thorough boolean DEFAULT true)
RETURNS boolean LANGUAGE sql STABLE
SET search_path = pg_catalog, pg_temp AS $f$
  SELECT CASE
    WHEN h.identity = '{}' OR posthaste.is_unguarded() THEN true
    WHEN p_thorough AND posthaste.has_foreign_rows() THEN true
    WHEN h.identity[1:2] = i.here[1:2] AND h.identity[4] = i.here[4] THEN false
    ELSE NOT (posthaste.is_unworked()
        AND (posthaste.is_own_store()
          OR pg_sequence_last_value('posthaste.job_id'::regclass) IS NULL))
  END FROM (SELECT posthaste.recorded_identity() AS identity) h,
    (SELECT posthaste.current_identity() AS here) i
$f$;

-- A session with session_replication_role = replica fires no triggers: the counters would be wrong,
-- and keys of dead jobs would stay taken.
CREATE OR REPLACE FUNCTION posthaste.require_triggers() RETURNS void LANGUAGE plpgsql STABLE
SET search_path = pg_catalog, pg_temp AS $f$
BEGIN
  IF current_setting('session_replication_role') = 'replica' THEN
    RAISE EXCEPTION 'posthaste: this session fires no triggers: %',
      'session_replication_role is replica'
      USING ERRCODE = 'object_not_in_prerequisite_state',
            HINT = format('ALTER ROLE %I RESET session_replication_role, if the role sets it.',
                          session_user);
  END IF;
END $f$;

-- Runs only under that setting, before posthaste.in_flight and posthaste.dead change: rejects
-- changes by posthaste's functions. Replication and restores write without them.
CREATE OR REPLACE FUNCTION posthaste.refuse_silent() RETURNS trigger LANGUAGE plpgsql
SET search_path = pg_catalog, pg_temp AS $f$
DECLARE
  v_context text;
BEGIN
  GET DIAGNOSTICS v_context = PG_CONTEXT;
  -- The first is this one.
  IF v_context LIKE '%function%function%' THEN
    PERFORM posthaste.require_triggers();
  END IF;
  RETURN NULL;
END $f$;

-- The same for a worker, whose sessions are its own: resets the setting if it may.
CREATE OR REPLACE FUNCTION posthaste.reset_replica_role() RETURNS void LANGUAGE plpgsql
SET search_path = pg_catalog, pg_temp AS $f$
BEGIN
  IF current_setting('session_replication_role') = 'replica' THEN
    PERFORM set_config('session_replication_role', 'origin', false);
  END IF;
EXCEPTION WHEN insufficient_privilege THEN
  PERFORM posthaste.require_triggers();
END $f$;

-- Ensures that workers may continue here; called for each new connection of a worker, and
-- thoroughly when it starts. A new timeline (the server was promoted, or recovered to a point in
-- time) keeps transaction ids, but job ids may have stepped back: from the last known id on, jobs
-- get new delivery ids.
CREATE OR REPLACE FUNCTION posthaste.check_identity(p_thorough boolean DEFAULT true)
RETURNS void LANGUAGE plpgsql
SET search_path = pg_catalog, pg_temp AS $f$
DECLARE
  v_here text[];
  v_recorded text[];
BEGIN
  PERFORM posthaste.reset_replica_role();
  IF posthaste.needs_rebase(p_thorough) THEN
    PERFORM posthaste.reject_restored_store();
  END IF;
  v_here := posthaste.current_identity();
  IF posthaste.recorded_identity() = v_here THEN
    RETURN;
  END IF;
  PERFORM FROM posthaste.store_identity FOR UPDATE;
  v_recorded := posthaste.recorded_identity();
  IF v_recorded = v_here THEN
    RETURN;  -- another session has handled it meanwhile
  END IF;
  IF posthaste.needs_rebase() THEN
    PERFORM posthaste.reject_restored_store();
  END IF;
  UPDATE posthaste.store_identity SET identity = v_here, since = clock_timestamp()
    WHERE identity = v_recorded;
  -- No claim was made here yet, so all existing ones were made before. In a copy nothing was ever
  -- claimed.
  PERFORM posthaste.begin_epoch(CASE WHEN v_recorded[4] = v_here[4]
    THEN greatest(pg_sequence_last_value('posthaste.known_id'::regclass),
                  posthaste.max_claimed_id()) + 1 ELSE 0 END);
END $f$;

-- Advances sequences after a crash, and returns the value of posthaste.flags. A crash loses
-- transactions that had not waited for the disk. The sequences then repeat their numbers, although
-- a job with such a number may have run. So those whose numbers are visible outside are advanced
-- beyond all that can be lost: as many numbers as fit into the part of the log that is not on disk,
-- which is a segment, because a full one is flushed, plus the buffers. A sequence writes about a
-- hundred bytes for 32 numbers. A sequence without a value may have lost all of its numbers.
--
-- Called when posthaste.flags has no value, before a number is drawn. One caller takes the lock and
-- does it. The others continue once it is done, without waiting for the end of the caller's
-- transaction. It runs with its owner's rights, because enqueuers may not change sequences.
CREATE OR REPLACE FUNCTION posthaste.recover() RETURNS bigint LANGUAGE plpgsql SECURITY DEFINER
SET search_path = pg_catalog, pg_temp AS $f$
DECLARE
  v_leap bigint := (pg_size_bytes(current_setting('wal_segment_size'))
                    + pg_size_bytes(current_setting('wal_buffers'))) / 3;
  v_flags bigint := pg_sequence_last_value('posthaste.flags'::regclass);
BEGIN
  WHILE v_flags IS NULL LOOP
    IF pg_try_advisory_xact_lock(1885893480, 1) THEN
      v_flags := pg_sequence_last_value('posthaste.flags'::regclass);
      IF v_flags IS NULL THEN
        PERFORM setval(c.oid::regclass,
                       coalesce(pg_sequence_last_value(c.oid::regclass), 0) + v_leap)
           FROM pg_class c
          WHERE CASE WHEN c.relnamespace = 'posthaste'::regnamespace AND c.relkind = 'S'
                      AND (c.relname = 'job_id' OR c.relname ~ '^sync_version_')
                     THEN has_sequence_privilege(c.oid, 'UPDATE') END;
        PERFORM setval('posthaste.life', floor(random() * 9007199254740992)::bigint);
        v_flags := setval('posthaste.flags', (EXISTS (SELECT FROM posthaste.route))::integer);
      END IF;
    ELSE
      PERFORM pg_sleep(0.001);
      v_flags := pg_sequence_last_value('posthaste.flags'::regclass);
    END IF;
  END LOOP;
  RETURN v_flags;
END $f$;

REVOKE EXECUTE ON FUNCTION posthaste.recover() FROM PUBLIC;

-- A worker continues after a server crash under its id; returns false if it may not: it is not
-- registered, was declared dead, or belongs elsewhere. Its commit waits for the disk, including
-- what posthaste.recover() did: nothing is handed out before that is durable.
CREATE OR REPLACE FUNCTION posthaste.rejoin(p_worker bigint) RETURNS boolean LANGUAGE plpgsql
SET search_path = pg_catalog, pg_temp AS $f$
BEGIN
  PERFORM posthaste.position('posthaste.flags'), posthaste.wait_for_disk();
  UPDATE posthaste.worker w SET identity = posthaste.session_identity()
   WHERE w.id = p_worker AND w.stopped_at IS NULL AND posthaste.is_this_store(w.identity);
  RETURN FOUND;
END $f$;

-- Tokens of a worker's claims with open jobs. The worker may not know some of them: it had the
-- answer to an acknowledgement that a server crash has undone.
CREATE OR REPLACE FUNCTION posthaste.open_tokens(p_worker bigint)
RETURNS SETOF uuid LANGUAGE sql STABLE
SET enable_bitmapscan = off SET enable_hashjoin = off SET enable_mergejoin = off SET jit = off
SET search_path = pg_catalog, pg_temp AS $f$
  SELECT DISTINCT o.token FROM (
    SELECT c.token FROM posthaste.claim_0 c
     WHERE c.worker = p_worker
       AND NOT EXISTS (SELECT FROM posthaste.batch_done_0 w WHERE w.batch = c.batch)
       AND EXISTS (SELECT FROM posthaste.batch_rows_0(c.batch, c.token) r
                    WHERE NOT EXISTS (SELECT FROM posthaste.job_done_0 a
                                       WHERE a.xid = r.xid AND a.id = r.id))
    UNION ALL
    SELECT c.token FROM posthaste.claim_1 c
     WHERE c.worker = p_worker
       AND NOT EXISTS (SELECT FROM posthaste.batch_done_1 w WHERE w.batch = c.batch)
       AND EXISTS (SELECT FROM posthaste.batch_rows_1(c.batch, c.token) r
                    WHERE NOT EXISTS (SELECT FROM posthaste.job_done_1 a
                                       WHERE a.xid = r.xid AND a.id = r.id))
    UNION ALL
    SELECT c.token FROM posthaste.claim_2 c
     WHERE c.worker = p_worker
       AND NOT EXISTS (SELECT FROM posthaste.batch_done_2 w WHERE w.batch = c.batch)
       AND EXISTS (SELECT FROM posthaste.batch_rows_2(c.batch, c.token) r
                    WHERE NOT EXISTS (SELECT FROM posthaste.job_done_2 a
                                       WHERE a.xid = r.xid AND a.id = r.id))
    UNION ALL
    SELECT c.token FROM posthaste.claim_3 c
     WHERE c.worker = p_worker
       AND NOT EXISTS (SELECT FROM posthaste.batch_done_3 w WHERE w.batch = c.batch)
       AND EXISTS (SELECT FROM posthaste.batch_rows_3(c.batch, c.token) r
                    WHERE NOT EXISTS (SELECT FROM posthaste.job_done_3 a
                                       WHERE a.xid = r.xid AND a.id = r.id))
    UNION ALL
    SELECT c.token FROM posthaste.claim_4 c
     WHERE c.worker = p_worker
       AND NOT EXISTS (SELECT FROM posthaste.batch_done_4 w WHERE w.batch = c.batch)
       AND EXISTS (SELECT FROM posthaste.batch_rows_4(c.batch, c.token) r
                    WHERE NOT EXISTS (SELECT FROM posthaste.job_done_4 a
                                       WHERE a.xid = r.xid AND a.id = r.id))
    UNION ALL
    SELECT c.token FROM posthaste.claim_5 c
     WHERE c.worker = p_worker
       AND NOT EXISTS (SELECT FROM posthaste.batch_done_5 w WHERE w.batch = c.batch)
       AND EXISTS (SELECT FROM posthaste.batch_rows_5(c.batch, c.token) r
                    WHERE NOT EXISTS (SELECT FROM posthaste.job_done_5 a
                                       WHERE a.xid = r.xid AND a.id = r.id))
    UNION ALL
    SELECT h.token FROM posthaste.in_flight h
     WHERE h.worker = p_worker AND h.state = 'running') o
$f$;

CREATE OR REPLACE FUNCTION posthaste.reject_restored_store() RETURNS void LANGUAGE plpgsql
SET search_path = pg_catalog, pg_temp AS $f$
BEGIN
  RAISE EXCEPTION 'posthaste: this database was restored, copied, upgraded or loaded, %',
    'and its jobs were not taken over yet'
    USING ERRCODE = 'object_not_in_prerequisite_state',
          HINT = 'Stop all workers and run `posthaste rebase` once; enqueuing still works.';
END $f$;

-- Required before operations on jobs, which use transaction ids. The first operation on a copy in
-- which nothing was worked makes it a separate store, as its first worker does: otherwise jobs
-- cancelled there would count as work of the original.
CREATE OR REPLACE FUNCTION posthaste.require_own_store() RETURNS void LANGUAGE plpgsql
SET search_path = pg_catalog, pg_temp AS $f$
BEGIN
  PERFORM posthaste.require_triggers();
  IF NOT posthaste.is_own_store() THEN
    PERFORM posthaste.reject_restored_store();
  END IF;
  IF posthaste.recorded_identity() <> posthaste.current_identity() THEN
    PERFORM posthaste.check_identity(false);
  END IF;
END $f$;

-- Registers a worker: returns its id and its delivery ids: for each first id the delivery id of job
-- 0. Returns the reason instead if another site works the store.
CREATE OR REPLACE FUNCTION posthaste.register(
  p_name text, p_queues text[] DEFAULT '{}', p_site text DEFAULT NULL,
  p_addresses text[] DEFAULT '{}', OUT o_worker bigint, OUT o_first bigint[],
  OUT o_zero uuid[], OUT o_refused text, OUT o_registered timestamptz)
LANGUAGE plpgsql
SET search_path = pg_catalog, pg_temp AS $f$
BEGIN
  -- An id lost in a crash would be given to another process too.
  PERFORM posthaste.position('posthaste.flags'), posthaste.wait_for_disk();
  INSERT INTO posthaste.worker (name, queues) VALUES (p_name, p_queues)
    RETURNING id, started_at INTO o_worker, o_registered;
  -- After the insert: a session that locks workers out waits for this row, or this waits for it.
  o_refused := posthaste.enter_site(p_site, p_addresses, true);
  IF o_refused IS NOT NULL THEN
    DELETE FROM posthaste.worker WHERE id = o_worker;
    RETURN;
  END IF;
  SELECT array_agg(i.first_id ORDER BY i.n),
         array_agg(posthaste.delivery_of(i.value, 0) ORDER BY i.n) INTO o_first, o_zero
    FROM posthaste.epoch i;
END $f$;
-- Sites: whether a process may work on this store, or it is a copy of another site's.
--
-- A physical copy has everything of the original except the server it runs on. So the store records
-- the names and addresses by which it is reached, and the last identity of its server.

-- The decision. p_known and p_here: the configured names of the store's site and of the process's.
-- p_is_known_address: the process connects by an address recorded in the store. p_is_running: the
-- server is the one recorded last, and has run since. p_is_same_life: it was at most stopped
-- cleanly, which is also true of a cold copy. p_is_same_endpoint: the server's own address is the
-- same. p_was_admitted: the process was admitted before, and is still alive.
--
-- If both have names, the names decide. Without names, a known address is sufficient, whichever
-- server it leads to, because servers are replaced. So is an earlier admission of the process. If
-- only one has a name, an address proves less: a crashed or promoted server may be a copy whose
-- user gave it a name, or forgot that the original has one.
CREATE OR REPLACE FUNCTION posthaste.is_own_site(
  p_known text, p_here text, p_is_known_address boolean, p_is_running boolean,
  p_is_same_life boolean, p_is_same_endpoint boolean, p_was_admitted boolean)
RETURNS boolean LANGUAGE sql IMMUTABLE
SET search_path = pg_catalog, pg_temp AS $f$
  SELECT CASE
    WHEN p_known IS NOT NULL AND p_here IS NOT NULL THEN p_known = p_here
    WHEN p_is_running OR p_was_admitted THEN true
    WHEN p_is_same_life THEN p_is_known_address OR p_is_same_endpoint
    ELSE p_known IS NULL AND p_here IS NULL AND p_is_known_address END
$f$;

-- The server's own address and port as this session sees them; NULL for loopback, which every
-- machine has.
CREATE OR REPLACE FUNCTION posthaste.endpoint() RETURNS text LANGUAGE sql STABLE
SET search_path = pg_catalog, pg_temp AS $f$
  SELECT CASE WHEN NOT inet_server_addr() <<= '127.0.0.0/8' AND inet_server_addr() <> '::1'
              THEN concat(host(inet_server_addr()), ':', inet_server_port()) END
$f$;

-- Whether this process registered here and has lived since: its row has the start time that only it
-- received, and it was not declared dead. A promoted server has the row; an adopted copy has ended
-- it.
CREATE OR REPLACE FUNCTION posthaste.was_admitted(p_worker bigint, p_registered timestamptz)
RETURNS boolean LANGUAGE sql STABLE
SET search_path = pg_catalog, pg_temp AS $f$
  SELECT EXISTS (SELECT FROM posthaste.worker w
                  WHERE w.id = p_worker AND w.started_at = p_registered AND w.stopped_at IS NULL)
$f$;

-- Why a process of this site may not work here; NULL if it may. p_worker, p_registered: from its
-- last registration.
CREATE OR REPLACE FUNCTION posthaste.site_refusal(
  p_site text, p_addresses text[], p_worker bigint DEFAULT NULL,
  p_registered timestamptz DEFAULT NULL)
RETURNS text LANGUAGE sql STABLE
SET search_path = pg_catalog, pg_temp AS $f$
  SELECT format('%s owns this store, not %s', posthaste.site_label(s.name, s.addresses),
                posthaste.site_label(p_site, p_addresses))
    FROM posthaste.site s, LATERAL (SELECT
      s.life = pg_sequence_last_value('posthaste.life'::regclass) AS is_same_life OFFSET 0) l
   -- A pool may not know its address: that proves no copy.
   WHERE NOT posthaste.is_own_site(s.name, p_site,
           s.addresses && p_addresses OR '{}' IN (s.addresses, p_addresses),
           coalesce(l.is_same_life AND s.started = pg_postmaster_start_time(), false),
           coalesce(l.is_same_life, false), coalesce(s.endpoint = posthaste.endpoint(), false),
           posthaste.was_admitted(p_worker, p_registered))
     -- A template of databases in which nothing was worked belongs to no site.
     AND (posthaste.recorded_identity())[4] = (posthaste.current_identity())[4]
$f$;

CREATE OR REPLACE FUNCTION posthaste.site_label(p_site text, p_addresses text[])
RETURNS text LANGUAGE sql IMMUTABLE
SET search_path = pg_catalog, pg_temp AS $f$
  SELECT CASE WHEN p_site IS NULL
              THEN format('the site at %s', array_to_string(p_addresses[1:3], ', '))
              ELSE format('the site "%s"', p_site) END
$f$;

-- Notes that a process of this site waits here. Each site has a note, written every ten seconds at
-- most; the last 16 sites of the last minute keep theirs.
CREATE OR REPLACE FUNCTION posthaste.note_refused(p_label text) RETURNS void LANGUAGE sql
SET search_path = pg_catalog, pg_temp AS $f$
  UPDATE posthaste.site s
     SET (refused, refused_at) = (
           SELECT array_agg(n.label), array_agg(n.noted_at)
             FROM (SELECT p_label, clock_timestamp() UNION ALL
                   SELECT k.label, k.noted_at
                     FROM unnest(s.refused, s.refused_at) k(label, noted_at)
                    WHERE k.label <> p_label
                      AND k.noted_at > clock_timestamp() - interval '1 min'
                    ORDER BY 2 DESC LIMIT 16) n(label, noted_at))
   WHERE NOT EXISTS (SELECT FROM unnest(s.refused, s.refused_at) k(label, noted_at)
                      WHERE k.label = p_label
                        AND k.noted_at > clock_timestamp() - interval '10 s')
$f$;

-- Ensures that a process of this site may work here, as posthaste.check_identity() does, and
-- updates the recorded site. Returns why not, and records that.
CREATE OR REPLACE FUNCTION posthaste.enter_site(
  p_site text, p_addresses text[], p_thorough boolean DEFAULT false,
  p_worker bigint DEFAULT NULL, p_registered timestamptz DEFAULT NULL)
RETURNS text LANGUAGE plpgsql
SET search_path = pg_catalog, pg_temp AS $f$
DECLARE
  v_refused text;
  v_is_template boolean;
BEGIN
  PERFORM posthaste.reset_replica_role();
  IF NOT posthaste.needs_rebase(false) THEN
    v_refused := posthaste.site_refusal(p_site, p_addresses, p_worker, p_registered);
    IF v_refused IS NOT NULL THEN
      PERFORM posthaste.note_refused(posthaste.site_label(p_site, p_addresses));
      RETURN v_refused;
    END IF;
    v_is_template :=
      (posthaste.recorded_identity())[4] IS DISTINCT FROM (posthaste.current_identity())[4];
  END IF;
  PERFORM posthaste.check_identity(p_thorough);
  IF v_is_template THEN
    DELETE FROM posthaste.site;
  END IF;
  PERFORM posthaste.position('posthaste.flags'), posthaste.record_site(p_site, p_addresses);
  RETURN NULL;
END $f$;

-- Writes only changes. Of many addresses the most recently used are kept: one that is used again
-- moves to the front before others can displace it.
CREATE OR REPLACE FUNCTION posthaste.record_site(p_site text, p_addresses text[])
RETURNS void LANGUAGE plpgsql
SET search_path = pg_catalog, pg_temp AS $f$
DECLARE
  v_life bigint := pg_sequence_last_value('posthaste.life'::regclass);
BEGIN
  UPDATE posthaste.site s
     SET name = coalesce(p_site, s.name), started = pg_postmaster_start_time(), life = v_life,
         endpoint = coalesce(posthaste.endpoint(), s.endpoint),
         addresses = (p_addresses
                       || ARRAY(SELECT a FROM unnest(s.addresses) WITH ORDINALITY k(a, n)
                                 WHERE a <> ALL (p_addresses) ORDER BY n))[1:32]
   WHERE s.name IS DISTINCT FROM coalesce(p_site, s.name) OR s.life <> v_life
      OR s.started <> pg_postmaster_start_time() OR NOT s.addresses[1:16] @> p_addresses
      OR s.endpoint IS DISTINCT FROM coalesce(posthaste.endpoint(), s.endpoint);
  IF NOT EXISTS (SELECT FROM posthaste.site) THEN
    INSERT INTO posthaste.site (name, addresses, started, life, endpoint)
    VALUES (p_site, p_addresses, pg_postmaster_start_time(), v_life, posthaste.endpoint())
    ON CONFLICT DO NOTHING;
  END IF;
END $f$;

-- Takes the store over for this site, permanently. Jobs enqueued from now on get delivery ids that
-- the original does not use; so do those enqueued since the copy was made, as far as its leader had
-- recorded the drawn ids. Refuses while a worker is alive, unless p_force is set. p_discard ends
-- all waiting jobs. Returns the label of the previous site, and the number of discarded jobs.
CREATE OR REPLACE FUNCTION posthaste.adopt(
  p_site text, p_addresses text[], p_force boolean DEFAULT false,
  p_discard boolean DEFAULT false, OUT o_from text, OUT o_discarded bigint)
LANGUAGE plpgsql
SET search_path = pg_catalog, pg_temp AS $f$
DECLARE
  v_living text;
BEGIN
  SELECT posthaste.site_label(s.name, s.addresses) INTO o_from FROM posthaste.site s;
  PERFORM posthaste.require_triggers();
  IF posthaste.needs_rebase() THEN
    PERFORM posthaste.reject_restored_store();
  END IF;
  PERFORM posthaste.position('posthaste.flags'), posthaste.wait_for_disk();
  IF p_discard THEN
    PERFORM posthaste.lock_store();
  END IF;
  LOCK TABLE posthaste.worker IN SHARE ROW EXCLUSIVE MODE;
  SELECT format('%s (%s)', w.id, w.name) INTO v_living FROM posthaste.worker w
   WHERE w.stopped_at IS NULL AND w.identity = posthaste.session_identity()
     AND w.seen_at BETWEEN clock_timestamp() - interval '1 min'
                       AND clock_timestamp() + interval '1 min' LIMIT 1;
  IF v_living IS NOT NULL AND NOT p_force THEN
    RAISE EXCEPTION 'posthaste: worker % is running', v_living
      USING ERRCODE = 'object_not_in_prerequisite_state',
            HINT = 'Stop all workers first. A killed worker counts as running for one minute.';
  END IF;
  UPDATE posthaste.worker SET stopped_at = clock_timestamp() WHERE stopped_at IS NULL;
  DELETE FROM posthaste.leader;
  UPDATE posthaste.store_identity
     SET identity = posthaste.current_identity(), since = clock_timestamp();
  PERFORM posthaste.begin_epoch(greatest(pg_sequence_last_value('posthaste.known_id'::regclass),
                                         posthaste.max_claimed_id()) + 1);
  DELETE FROM posthaste.site;
  PERFORM posthaste.record_site(p_site, p_addresses);
  IF p_discard THEN
    o_discarded := posthaste.discard_unfinished();
  END IF;
END $f$;

-- Removes every unfinished job and returns their number; the caller has called
-- posthaste.lock_store(). Dead jobs, history and totals stay.
CREATE OR REPLACE FUNCTION posthaste.discard_unfinished() RETURNS bigint LANGUAGE plpgsql
SET jit = off SET search_path = pg_catalog, pg_temp AS $f$
DECLARE
  v_jobs bigint;
BEGIN
  -- Ends of turns are rows too.
  SELECT count(*) INTO v_jobs FROM (
    SELECT u.queue, u.priority FROM posthaste.unfinished_0() u UNION ALL
    SELECT u.queue, u.priority FROM posthaste.unfinished_1() u UNION ALL
    SELECT u.queue, u.priority FROM posthaste.unfinished_2() u UNION ALL
    SELECT u.queue, u.priority FROM posthaste.unfinished_3() u UNION ALL
    SELECT u.queue, u.priority FROM posthaste.unfinished_4() u UNION ALL
    SELECT u.queue, u.priority FROM posthaste.unfinished_5() u UNION ALL
    SELECT u.queue, u.priority FROM posthaste.unfinished_6() u UNION ALL
    SELECT u.queue, u.priority FROM posthaste.unfinished_7() u UNION ALL
    SELECT h.queue, h.priority FROM posthaste.in_flight h) j WHERE j.queue <> '' OR j.priority = 0;
  DELETE FROM posthaste.in_flight;
  DELETE FROM posthaste.unique_key;
  PERFORM posthaste.truncate_slots(), posthaste.reset_cursors(), posthaste.recount();
  RETURN v_jobs;
END $f$;
-- Rows: converts a job between the tables that it moves through, and selects the rows of a batch.
--
-- The planner inlines the conversions in FROM, so they cost nothing; their arguments must not
-- contain sub-selects there.

-- The row with which a job is written to a slot again, with those fields changed that are given. A
-- job with an ordering key and without a turn goes to the internal lane that assigns turns
-- (functions/ordering.sql).
CREATE OR REPLACE FUNCTION posthaste.reschedule_row(
  job posthaste.store, slot smallint, due timestamptz DEFAULT NULL, attempt integer DEFAULT NULL,
  crashes smallint DEFAULT NULL, error text DEFAULT NULL, turn bigint DEFAULT NULL)
RETURNS SETOF posthaste.store LANGUAGE sql STABLE AS $f$
  SELECT pg_current_xact_id(), job.id, job.enqueued_at, coalesce(due, job.scheduled_at),
         job.expires_at,
         CASE WHEN w.needs_turn THEN 0 ELSE coalesce(job.own_priority, job.priority) END,
         coalesce(attempt, job.attempt), job.max_attempts, job.kwargs_bytes, slot,
         coalesce(crashes, job.crashes),
         CASE WHEN w.needs_turn THEN '' ELSE coalesce(job.own_queue, job.queue) END,
         job.name, job.tag,
         job.unique_key, job.ordering_key, coalesce(turn, job.turn),
         CASE WHEN w.needs_turn THEN coalesce(job.own_queue, job.queue) END,
         CASE WHEN w.needs_turn THEN coalesce(job.own_priority, job.priority) END,
         coalesce(error, job.last_error), job.trace, job.kwargs
    FROM (SELECT job.ordering_key IS NOT NULL AND coalesce(turn, job.turn) IS NULL AS needs_turn) w
$f$;

-- The row of a job in posthaste.dead; its state is dead, expired, discarded or cancelled.
CREATE OR REPLACE FUNCTION posthaste.to_dead(job posthaste.store, state text)
RETURNS SETOF posthaste.dead LANGUAGE sql STABLE AS $f$
  SELECT job.id, clock_timestamp(), job.enqueued_at, job.scheduled_at, job.expires_at,
         coalesce(job.own_priority, job.priority), job.attempt,
         job.max_attempts, job.kwargs_bytes, job.crashes, state, coalesce(job.own_queue, job.queue),
         job.name, job.tag, job.unique_key,
         job.ordering_key, job.turn, job.last_error, job.trace, job.kwargs
$f$;

-- The row of a job in posthaste.in_flight.
CREATE OR REPLACE FUNCTION posthaste.to_in_flight(
  job posthaste.store, state text, until timestamptz DEFAULT NULL, worker bigint DEFAULT NULL,
  token uuid DEFAULT NULL)
RETURNS SETOF posthaste.in_flight LANGUAGE sql STABLE AS $f$
  SELECT job.id, until, job.enqueued_at, job.scheduled_at, job.expires_at, worker, token,
         job.priority, job.attempt, job.max_attempts,
         job.kwargs_bytes, job.crashes, state, job.queue, job.name, job.tag, job.unique_key,
         job.ordering_key, job.turn, job.last_error, job.trace, job.kwargs
$f$;

-- When a quarantined job may run. Jobs whose worker died once are due at the epoch, so that the
-- index in_flight_quarantined returns them by id: that is the order of their lane, which an ordered
-- relay must keep. Jobs with more deaths come after them.
CREATE OR REPLACE FUNCTION posthaste.quarantine_until(crashes smallint)
RETURNS timestamptz LANGUAGE sql VOLATILE AS $f$
  SELECT CASE WHEN crashes > 1 THEN clock_timestamp() ELSE 'epoch' END
$f$;

-- A job of posthaste.in_flight as a row of posthaste.store, without a slot and a transaction id.
CREATE OR REPLACE FUNCTION posthaste.from_in_flight(h posthaste.in_flight)
RETURNS posthaste.store LANGUAGE sql IMMUTABLE AS $f$
  SELECT ROW(NULL::xid8, h.id, h.enqueued_at, h.scheduled_at, h.expires_at, h.priority, h.attempt,
             h.max_attempts, h.kwargs_bytes,
             -1::smallint, h.crashes, h.queue, h.name, h.tag, h.unique_key, h.ordering_key, h.turn,
             NULL::text, NULL::integer, h.last_error,
             h.trace, h.kwargs)::posthaste.store
$f$;

-- Releases the unique keys and turns of jobs that are written to posthaste.dead, and deletes
-- requests to cancel them.
CREATE OR REPLACE FUNCTION posthaste.release_dead() RETURNS trigger LANGUAGE plpgsql
SET enable_seqscan = off SET enable_hashjoin = off SET search_path = pg_catalog, pg_temp AS $f$
BEGIN
  DELETE FROM posthaste.unique_key u USING new_dead b WHERE u.key = b.unique_key AND u.id = b.id;
  PERFORM posthaste.end_turns(array_agg(b.ordering_key), array_agg(b.turn)) FROM new_dead b
    WHERE b.turn IS NOT NULL HAVING count(*) > 0;
  IF EXISTS (SELECT FROM posthaste.cancelling) THEN
    DELETE FROM posthaste.cancelling c USING new_dead b WHERE c.id = b.id;
  END IF;
  RETURN NULL;
END $f$;

-- Whether a row of a lane is claimed, by the lane's cursor, its newest claim row.
CREATE OR REPLACE FUNCTION posthaste.is_claimed(
  xid xid8, id bigint, lo pg_snapshot, hi pg_snapshot, to_xid xid8, to_id bigint, exhausted boolean)
RETURNS boolean LANGUAGE sql STABLE AS $f$
  SELECT pg_visible_in_snapshot(xid, lo)
    OR (pg_visible_in_snapshot(xid, hi) AND (exhausted OR (xid, id) <= (to_xid, to_id)))
$f$;

-- Whether the promoter has passed a scheduled row, by the fields of its newest page
-- (functions/promote.sql).
CREATE OR REPLACE FUNCTION posthaste.promoted(
  xid xid8, due timestamptz, id bigint, t_lo timestamptz, t_hi timestamptz, lo pg_snapshot,
  hi pg_snapshot, at_xid xid8, at_due timestamptz, at_id bigint, late_done boolean,
  exhausted boolean)
RETURNS boolean LANGUAGE sql STABLE AS $f$
  SELECT CASE
    WHEN due <= t_lo AND pg_visible_in_snapshot(xid, lo) THEN true
    WHEN due > t_hi OR NOT pg_visible_in_snapshot(xid, hi) THEN false
    WHEN exhausted THEN true
    WHEN due <= t_lo THEN late_done OR (xid, due, id) <= (at_xid, at_due, at_id)
    ELSE late_done AND (due, id) <= (at_due, at_id)
  END
$f$;

-- The rows of a batch: those of its window between its bounds; the same rows at each call. Each
-- part is one exact index range: a row comparison as upper bound does not stop a btree scan inside
-- one transaction's rows, and would read the rest of a bulk insert. OFFSET 0 keeps each part a
-- parameterised index scan, even if the planner takes the table for empty.
CREATE OR REPLACE FUNCTION posthaste.batch_rows_0(p_batch bigint, p_token uuid)
RETURNS SETOF posthaste.store LANGUAGE sql STABLE AS $f$
  SELECT r.* FROM (
    SELECT c.queue, c.priority, c.lo, c.hi, c.from_xid, c.from_id, c.to_xid, c.to_id,
           CASE WHEN c.from_xid >= pg_snapshot_xmax(c.lo) THEN c.from_xid
               ELSE pg_snapshot_xmax(c.lo) END AS low_xid,
           CASE WHEN c.from_xid >= pg_snapshot_xmax(c.lo) THEN c.from_id ELSE -1 END AS low_id
      FROM posthaste.claim_0 c WHERE c.batch = p_batch AND c.token = p_token OFFSET 0) c,
  LATERAL (
    SELECT late.* FROM pg_snapshot_xip(c.lo) p, LATERAL (
      SELECT r.* FROM posthaste.ready_0 r
        WHERE r.queue = c.queue AND r.priority = c.priority AND r.xid = p
         AND r.id >  CASE WHEN p > c.from_xid THEN -1 WHEN p = c.from_xid THEN c.from_id
             ELSE 9223372036854775807 END
         AND r.id <= CASE WHEN p < c.to_xid THEN 9223372036854775807 WHEN p = c.to_xid THEN c.to_id
             ELSE -1 END OFFSET 0) late
     WHERE pg_visible_in_snapshot(p, c.hi)
    UNION ALL
    (SELECT r.* FROM posthaste.ready_0 r
        WHERE r.queue = c.queue AND r.priority = c.priority AND r.xid = c.low_xid
        AND r.id > c.low_id
        AND r.id <= CASE WHEN c.low_xid < c.to_xid THEN 9223372036854775807
            WHEN c.low_xid = c.to_xid THEN c.to_id ELSE -1 END
        AND pg_visible_in_snapshot(r.xid, c.hi) OFFSET 0)
    UNION ALL
    (SELECT r.* FROM posthaste.ready_0 r
        WHERE r.queue = c.queue AND r.priority = c.priority AND r.xid > c.low_xid
        AND r.xid < c.to_xid
        AND pg_visible_in_snapshot(r.xid, c.hi) OFFSET 0)
    UNION ALL
    (SELECT r.* FROM posthaste.ready_0 r
        WHERE r.queue = c.queue AND r.priority = c.priority AND r.xid = c.to_xid
        AND c.to_xid > c.low_xid AND r.id <= c.to_id
        AND pg_visible_in_snapshot(r.xid, c.hi) OFFSET 0)
  ) r
$f$;
CREATE OR REPLACE FUNCTION posthaste.batch_rows_1(p_batch bigint, p_token uuid)
RETURNS SETOF posthaste.store LANGUAGE sql STABLE AS $f$
  SELECT r.* FROM (
    SELECT c.queue, c.priority, c.lo, c.hi, c.from_xid, c.from_id, c.to_xid, c.to_id,
           CASE WHEN c.from_xid >= pg_snapshot_xmax(c.lo) THEN c.from_xid
               ELSE pg_snapshot_xmax(c.lo) END AS low_xid,
           CASE WHEN c.from_xid >= pg_snapshot_xmax(c.lo) THEN c.from_id ELSE -1 END AS low_id
      FROM posthaste.claim_1 c WHERE c.batch = p_batch AND c.token = p_token OFFSET 0) c,
  LATERAL (
    SELECT late.* FROM pg_snapshot_xip(c.lo) p, LATERAL (
      SELECT r.* FROM posthaste.ready_1 r
        WHERE r.queue = c.queue AND r.priority = c.priority AND r.xid = p
         AND r.id >  CASE WHEN p > c.from_xid THEN -1 WHEN p = c.from_xid THEN c.from_id
             ELSE 9223372036854775807 END
         AND r.id <= CASE WHEN p < c.to_xid THEN 9223372036854775807 WHEN p = c.to_xid THEN c.to_id
             ELSE -1 END OFFSET 0) late
     WHERE pg_visible_in_snapshot(p, c.hi)
    UNION ALL
    (SELECT r.* FROM posthaste.ready_1 r
        WHERE r.queue = c.queue AND r.priority = c.priority AND r.xid = c.low_xid
        AND r.id > c.low_id
        AND r.id <= CASE WHEN c.low_xid < c.to_xid THEN 9223372036854775807
            WHEN c.low_xid = c.to_xid THEN c.to_id ELSE -1 END
        AND pg_visible_in_snapshot(r.xid, c.hi) OFFSET 0)
    UNION ALL
    (SELECT r.* FROM posthaste.ready_1 r
        WHERE r.queue = c.queue AND r.priority = c.priority AND r.xid > c.low_xid
        AND r.xid < c.to_xid
        AND pg_visible_in_snapshot(r.xid, c.hi) OFFSET 0)
    UNION ALL
    (SELECT r.* FROM posthaste.ready_1 r
        WHERE r.queue = c.queue AND r.priority = c.priority AND r.xid = c.to_xid
        AND c.to_xid > c.low_xid AND r.id <= c.to_id
        AND pg_visible_in_snapshot(r.xid, c.hi) OFFSET 0)
  ) r
$f$;
CREATE OR REPLACE FUNCTION posthaste.batch_rows_2(p_batch bigint, p_token uuid)
RETURNS SETOF posthaste.store LANGUAGE sql STABLE AS $f$
  SELECT r.* FROM (
    SELECT c.queue, c.priority, c.lo, c.hi, c.from_xid, c.from_id, c.to_xid, c.to_id,
           CASE WHEN c.from_xid >= pg_snapshot_xmax(c.lo) THEN c.from_xid
               ELSE pg_snapshot_xmax(c.lo) END AS low_xid,
           CASE WHEN c.from_xid >= pg_snapshot_xmax(c.lo) THEN c.from_id ELSE -1 END AS low_id
      FROM posthaste.claim_2 c WHERE c.batch = p_batch AND c.token = p_token OFFSET 0) c,
  LATERAL (
    SELECT late.* FROM pg_snapshot_xip(c.lo) p, LATERAL (
      SELECT r.* FROM posthaste.ready_2 r
        WHERE r.queue = c.queue AND r.priority = c.priority AND r.xid = p
         AND r.id >  CASE WHEN p > c.from_xid THEN -1 WHEN p = c.from_xid THEN c.from_id
             ELSE 9223372036854775807 END
         AND r.id <= CASE WHEN p < c.to_xid THEN 9223372036854775807 WHEN p = c.to_xid THEN c.to_id
             ELSE -1 END OFFSET 0) late
     WHERE pg_visible_in_snapshot(p, c.hi)
    UNION ALL
    (SELECT r.* FROM posthaste.ready_2 r
        WHERE r.queue = c.queue AND r.priority = c.priority AND r.xid = c.low_xid
        AND r.id > c.low_id
        AND r.id <= CASE WHEN c.low_xid < c.to_xid THEN 9223372036854775807
            WHEN c.low_xid = c.to_xid THEN c.to_id ELSE -1 END
        AND pg_visible_in_snapshot(r.xid, c.hi) OFFSET 0)
    UNION ALL
    (SELECT r.* FROM posthaste.ready_2 r
        WHERE r.queue = c.queue AND r.priority = c.priority AND r.xid > c.low_xid
        AND r.xid < c.to_xid
        AND pg_visible_in_snapshot(r.xid, c.hi) OFFSET 0)
    UNION ALL
    (SELECT r.* FROM posthaste.ready_2 r
        WHERE r.queue = c.queue AND r.priority = c.priority AND r.xid = c.to_xid
        AND c.to_xid > c.low_xid AND r.id <= c.to_id
        AND pg_visible_in_snapshot(r.xid, c.hi) OFFSET 0)
  ) r
$f$;
CREATE OR REPLACE FUNCTION posthaste.batch_rows_3(p_batch bigint, p_token uuid)
RETURNS SETOF posthaste.store LANGUAGE sql STABLE AS $f$
  SELECT r.* FROM (
    SELECT c.queue, c.priority, c.lo, c.hi, c.from_xid, c.from_id, c.to_xid, c.to_id,
           CASE WHEN c.from_xid >= pg_snapshot_xmax(c.lo) THEN c.from_xid
               ELSE pg_snapshot_xmax(c.lo) END AS low_xid,
           CASE WHEN c.from_xid >= pg_snapshot_xmax(c.lo) THEN c.from_id ELSE -1 END AS low_id
      FROM posthaste.claim_3 c WHERE c.batch = p_batch AND c.token = p_token OFFSET 0) c,
  LATERAL (
    SELECT late.* FROM pg_snapshot_xip(c.lo) p, LATERAL (
      SELECT r.* FROM posthaste.ready_3 r
        WHERE r.queue = c.queue AND r.priority = c.priority AND r.xid = p
         AND r.id >  CASE WHEN p > c.from_xid THEN -1 WHEN p = c.from_xid THEN c.from_id
             ELSE 9223372036854775807 END
         AND r.id <= CASE WHEN p < c.to_xid THEN 9223372036854775807 WHEN p = c.to_xid THEN c.to_id
             ELSE -1 END OFFSET 0) late
     WHERE pg_visible_in_snapshot(p, c.hi)
    UNION ALL
    (SELECT r.* FROM posthaste.ready_3 r
        WHERE r.queue = c.queue AND r.priority = c.priority AND r.xid = c.low_xid
        AND r.id > c.low_id
        AND r.id <= CASE WHEN c.low_xid < c.to_xid THEN 9223372036854775807
            WHEN c.low_xid = c.to_xid THEN c.to_id ELSE -1 END
        AND pg_visible_in_snapshot(r.xid, c.hi) OFFSET 0)
    UNION ALL
    (SELECT r.* FROM posthaste.ready_3 r
        WHERE r.queue = c.queue AND r.priority = c.priority AND r.xid > c.low_xid
        AND r.xid < c.to_xid
        AND pg_visible_in_snapshot(r.xid, c.hi) OFFSET 0)
    UNION ALL
    (SELECT r.* FROM posthaste.ready_3 r
        WHERE r.queue = c.queue AND r.priority = c.priority AND r.xid = c.to_xid
        AND c.to_xid > c.low_xid AND r.id <= c.to_id
        AND pg_visible_in_snapshot(r.xid, c.hi) OFFSET 0)
  ) r
$f$;
CREATE OR REPLACE FUNCTION posthaste.batch_rows_4(p_batch bigint, p_token uuid)
RETURNS SETOF posthaste.store LANGUAGE sql STABLE AS $f$
  SELECT r.* FROM (
    SELECT c.queue, c.priority, c.lo, c.hi, c.from_xid, c.from_id, c.to_xid, c.to_id,
           CASE WHEN c.from_xid >= pg_snapshot_xmax(c.lo) THEN c.from_xid
               ELSE pg_snapshot_xmax(c.lo) END AS low_xid,
           CASE WHEN c.from_xid >= pg_snapshot_xmax(c.lo) THEN c.from_id ELSE -1 END AS low_id
      FROM posthaste.claim_4 c WHERE c.batch = p_batch AND c.token = p_token OFFSET 0) c,
  LATERAL (
    SELECT late.* FROM pg_snapshot_xip(c.lo) p, LATERAL (
      SELECT r.* FROM posthaste.ready_4 r
        WHERE r.queue = c.queue AND r.priority = c.priority AND r.xid = p
         AND r.id >  CASE WHEN p > c.from_xid THEN -1 WHEN p = c.from_xid THEN c.from_id
             ELSE 9223372036854775807 END
         AND r.id <= CASE WHEN p < c.to_xid THEN 9223372036854775807 WHEN p = c.to_xid THEN c.to_id
             ELSE -1 END OFFSET 0) late
     WHERE pg_visible_in_snapshot(p, c.hi)
    UNION ALL
    (SELECT r.* FROM posthaste.ready_4 r
        WHERE r.queue = c.queue AND r.priority = c.priority AND r.xid = c.low_xid
        AND r.id > c.low_id
        AND r.id <= CASE WHEN c.low_xid < c.to_xid THEN 9223372036854775807
            WHEN c.low_xid = c.to_xid THEN c.to_id ELSE -1 END
        AND pg_visible_in_snapshot(r.xid, c.hi) OFFSET 0)
    UNION ALL
    (SELECT r.* FROM posthaste.ready_4 r
        WHERE r.queue = c.queue AND r.priority = c.priority AND r.xid > c.low_xid
        AND r.xid < c.to_xid
        AND pg_visible_in_snapshot(r.xid, c.hi) OFFSET 0)
    UNION ALL
    (SELECT r.* FROM posthaste.ready_4 r
        WHERE r.queue = c.queue AND r.priority = c.priority AND r.xid = c.to_xid
        AND c.to_xid > c.low_xid AND r.id <= c.to_id
        AND pg_visible_in_snapshot(r.xid, c.hi) OFFSET 0)
  ) r
$f$;
CREATE OR REPLACE FUNCTION posthaste.batch_rows_5(p_batch bigint, p_token uuid)
RETURNS SETOF posthaste.store LANGUAGE sql STABLE AS $f$
  SELECT r.* FROM (
    SELECT c.queue, c.priority, c.lo, c.hi, c.from_xid, c.from_id, c.to_xid, c.to_id,
           CASE WHEN c.from_xid >= pg_snapshot_xmax(c.lo) THEN c.from_xid
               ELSE pg_snapshot_xmax(c.lo) END AS low_xid,
           CASE WHEN c.from_xid >= pg_snapshot_xmax(c.lo) THEN c.from_id ELSE -1 END AS low_id
      FROM posthaste.claim_5 c WHERE c.batch = p_batch AND c.token = p_token OFFSET 0) c,
  LATERAL (
    SELECT late.* FROM pg_snapshot_xip(c.lo) p, LATERAL (
      SELECT r.* FROM posthaste.ready_5 r
        WHERE r.queue = c.queue AND r.priority = c.priority AND r.xid = p
         AND r.id >  CASE WHEN p > c.from_xid THEN -1 WHEN p = c.from_xid THEN c.from_id
             ELSE 9223372036854775807 END
         AND r.id <= CASE WHEN p < c.to_xid THEN 9223372036854775807 WHEN p = c.to_xid THEN c.to_id
             ELSE -1 END OFFSET 0) late
     WHERE pg_visible_in_snapshot(p, c.hi)
    UNION ALL
    (SELECT r.* FROM posthaste.ready_5 r
        WHERE r.queue = c.queue AND r.priority = c.priority AND r.xid = c.low_xid
        AND r.id > c.low_id
        AND r.id <= CASE WHEN c.low_xid < c.to_xid THEN 9223372036854775807
            WHEN c.low_xid = c.to_xid THEN c.to_id ELSE -1 END
        AND pg_visible_in_snapshot(r.xid, c.hi) OFFSET 0)
    UNION ALL
    (SELECT r.* FROM posthaste.ready_5 r
        WHERE r.queue = c.queue AND r.priority = c.priority AND r.xid > c.low_xid
        AND r.xid < c.to_xid
        AND pg_visible_in_snapshot(r.xid, c.hi) OFFSET 0)
    UNION ALL
    (SELECT r.* FROM posthaste.ready_5 r
        WHERE r.queue = c.queue AND r.priority = c.priority AND r.xid = c.to_xid
        AND c.to_xid > c.low_xid AND r.id <= c.to_id
        AND pg_visible_in_snapshot(r.xid, c.hi) OFFSET 0)
  ) r
$f$;

-- Running jobs of this slot. A function, because planning six such queries inlined into a view
-- costs more than reading their rows.
CREATE OR REPLACE FUNCTION posthaste.running_0()
RETURNS SETOF posthaste.store LANGUAGE plpgsql STABLE COST 10 ROWS 100
SET jit = off SET search_path = pg_catalog, pg_temp AS $f$
BEGIN
  RETURN QUERY
    SELECT r.*
      FROM (SELECT c.batch, c.token FROM posthaste.claim_0 c
             WHERE NOT EXISTS (SELECT FROM posthaste.batch_done_0 w WHERE w.batch = c.batch)
               OFFSET 0) c,
           LATERAL posthaste.batch_rows_0(c.batch, c.token) r
     WHERE NOT EXISTS (SELECT FROM posthaste.job_done_0 a WHERE a.xid = r.xid AND a.id = r.id);
END $f$;
CREATE OR REPLACE FUNCTION posthaste.running_1()
RETURNS SETOF posthaste.store LANGUAGE plpgsql STABLE COST 10 ROWS 100
SET jit = off SET search_path = pg_catalog, pg_temp AS $f$
BEGIN
  RETURN QUERY
    SELECT r.*
      FROM (SELECT c.batch, c.token FROM posthaste.claim_1 c
             WHERE NOT EXISTS (SELECT FROM posthaste.batch_done_1 w WHERE w.batch = c.batch)
               OFFSET 0) c,
           LATERAL posthaste.batch_rows_1(c.batch, c.token) r
     WHERE NOT EXISTS (SELECT FROM posthaste.job_done_1 a WHERE a.xid = r.xid AND a.id = r.id);
END $f$;
CREATE OR REPLACE FUNCTION posthaste.running_2()
RETURNS SETOF posthaste.store LANGUAGE plpgsql STABLE COST 10 ROWS 100
SET jit = off SET search_path = pg_catalog, pg_temp AS $f$
BEGIN
  RETURN QUERY
    SELECT r.*
      FROM (SELECT c.batch, c.token FROM posthaste.claim_2 c
             WHERE NOT EXISTS (SELECT FROM posthaste.batch_done_2 w WHERE w.batch = c.batch)
               OFFSET 0) c,
           LATERAL posthaste.batch_rows_2(c.batch, c.token) r
     WHERE NOT EXISTS (SELECT FROM posthaste.job_done_2 a WHERE a.xid = r.xid AND a.id = r.id);
END $f$;
CREATE OR REPLACE FUNCTION posthaste.running_3()
RETURNS SETOF posthaste.store LANGUAGE plpgsql STABLE COST 10 ROWS 100
SET jit = off SET search_path = pg_catalog, pg_temp AS $f$
BEGIN
  RETURN QUERY
    SELECT r.*
      FROM (SELECT c.batch, c.token FROM posthaste.claim_3 c
             WHERE NOT EXISTS (SELECT FROM posthaste.batch_done_3 w WHERE w.batch = c.batch)
               OFFSET 0) c,
           LATERAL posthaste.batch_rows_3(c.batch, c.token) r
     WHERE NOT EXISTS (SELECT FROM posthaste.job_done_3 a WHERE a.xid = r.xid AND a.id = r.id);
END $f$;
CREATE OR REPLACE FUNCTION posthaste.running_4()
RETURNS SETOF posthaste.store LANGUAGE plpgsql STABLE COST 10 ROWS 100
SET jit = off SET search_path = pg_catalog, pg_temp AS $f$
BEGIN
  RETURN QUERY
    SELECT r.*
      FROM (SELECT c.batch, c.token FROM posthaste.claim_4 c
             WHERE NOT EXISTS (SELECT FROM posthaste.batch_done_4 w WHERE w.batch = c.batch)
               OFFSET 0) c,
           LATERAL posthaste.batch_rows_4(c.batch, c.token) r
     WHERE NOT EXISTS (SELECT FROM posthaste.job_done_4 a WHERE a.xid = r.xid AND a.id = r.id);
END $f$;
CREATE OR REPLACE FUNCTION posthaste.running_5()
RETURNS SETOF posthaste.store LANGUAGE plpgsql STABLE COST 10 ROWS 100
SET jit = off SET search_path = pg_catalog, pg_temp AS $f$
BEGIN
  RETURN QUERY
    SELECT r.*
      FROM (SELECT c.batch, c.token FROM posthaste.claim_5 c
             WHERE NOT EXISTS (SELECT FROM posthaste.batch_done_5 w WHERE w.batch = c.batch)
               OFFSET 0) c,
           LATERAL posthaste.batch_rows_5(c.batch, c.token) r
     WHERE NOT EXISTS (SELECT FROM posthaste.job_done_5 a WHERE a.xid = r.xid AND a.id = r.id);
END $f$;
-- Samples for charts: every minute for an hour, every ten minutes for a day, hourly for a week and
-- a little longer; at most 400 rows for a queue. They cover the hundred queues with the most jobs,
-- and all queues together under the name ''.
--
-- Totals of coarser samples are those of the same moment. Gauges (available, running, oldest) are
-- the maximum since the previous sample, so that a backlog of minutes is visible a week later.

-- Whether there is a sample of this minute, ten minutes or hour.
CREATE OR REPLACE FUNCTION posthaste.is_sampled(p_span smallint, p_now timestamptz)
RETURNS boolean LANGUAGE sql STABLE
SET search_path = pg_catalog, pg_temp AS $f$
  SELECT EXISTS (SELECT FROM posthaste.sample s WHERE s.span = p_span AND s.at <= p_now
      AND s.at >= date_bin(make_interval(mins => p_span), p_now, '2000-01-01 00:00Z'))
$f$;

-- The figures of each queue, and of all together.
CREATE OR REPLACE FUNCTION posthaste.queue_figures(p_now timestamptz)
RETURNS TABLE (queue text, come bigint, done bigint, failed bigint, started bigint, waited bigint,
               available bigint, running bigint, oldest double precision)
LANGUAGE sql
SET search_path = pg_catalog, pg_temp AS $f$
  WITH counted AS MATERIALIZED (
    SELECT c.queue, sum(c.available) AS available, sum(c.running) AS running,
           sum(c.available + c.blocked + c.scheduled + c.retrying + c.running + c.awaiting
             + c.quarantined + c.completed_total + c.dead_total + c.discarded_total
             + c.expired_total + c.cancelled_total) AS come,
           sum(c.completed_total) AS done, sum(c.failed_total) AS failed
      FROM posthaste.counts() c GROUP BY c.queue),
  runs AS MATERIALIZED (
    SELECT t.queue, sum(t.jobs) FILTER (WHERE t.what = 'started_total') AS started,
           sum(t.jobs) FILTER (WHERE t.what = 'waited_total') AS waited
      FROM posthaste.stats() t WHERE t.what IN ('started_total', 'waited_total') GROUP BY t.queue),
  next AS MATERIALIZED (
    SELECT o.queue, greatest(extract(epoch FROM p_now - min(o.since)), 0) AS seconds
      FROM posthaste.oldest() o GROUP BY o.queue),
  queue AS MATERIALIZED (
    SELECT c.queue, c.come, c.done, c.failed, coalesce(r.started, 0) AS started,
           coalesce(r.waited, 0) AS waited, c.available, c.running, n.seconds
      FROM counted c LEFT JOIN runs r ON r.queue = c.queue LEFT JOIN next n ON n.queue = c.queue)
  (SELECT q.queue, q.come::bigint, q.done::bigint, q.failed::bigint, q.started::bigint,
          q.waited::bigint, q.available::bigint, q.running::bigint, q.seconds::double precision
     FROM queue q ORDER BY q.come DESC, q.queue LIMIT 100)
  UNION ALL
  SELECT '', coalesce(sum(q.come), 0)::bigint, coalesce(sum(q.done), 0)::bigint,
         coalesce(sum(q.failed), 0)::bigint, coalesce(sum(q.started), 0)::bigint,
         coalesce(sum(q.waited), 0)::bigint, coalesce(sum(q.available), 0)::bigint,
         coalesce(sum(q.running), 0)::bigint, max(q.seconds)::double precision
    FROM queue q
$f$;

-- Takes the sample of this minute, and those of the ten minutes and the hour if it is their first,
-- and deletes old ones. False: there is one, or another session is taking it.
CREATE OR REPLACE FUNCTION posthaste.take_sample(p_now timestamptz DEFAULT clock_timestamp())
RETURNS boolean LANGUAGE plpgsql
SET search_path = pg_catalog, pg_temp AS $f$
DECLARE
  v_span smallint;
BEGIN
  IF current_setting('transaction_isolation') <> 'read committed'
    OR posthaste.is_sampled(1::smallint, p_now) OR NOT pg_try_advisory_xact_lock(1885893476, 7)
    OR posthaste.is_sampled(1::smallint, p_now) THEN
    RETURN false;
  END IF;
  PERFORM set_config('synchronous_commit', 'off', true);
  -- Samples left by a clock that was ahead.
  DELETE FROM posthaste.sample s WHERE s.span IN (1, 10, 60) AND s.at > p_now;
  INSERT INTO posthaste.sample (span, at, queue, come, done, failed, started, waited, available,
                                running, oldest)
  SELECT 1, p_now, s.queue, s.come, s.done, s.failed, s.started, s.waited, s.available, s.running,
         s.oldest
    FROM posthaste.queue_figures(p_now) s;
  FOREACH v_span IN ARRAY '{10,60}'::smallint[] LOOP
    CONTINUE WHEN posthaste.is_sampled(v_span, p_now);
    PERFORM posthaste.roll_up(v_span, p_now);
  END LOOP;
  RETURN true;
END $f$;

-- Makes the sample of these ten minutes or this hour from the finer ones, and deletes old finer
-- ones; not more often, because each deletion scans rows that vacuum may not remove yet.
CREATE OR REPLACE FUNCTION posthaste.roll_up(p_span smallint, p_now timestamptz)
RETURNS void LANGUAGE plpgsql
SET search_path = pg_catalog, pg_temp AS $f$
DECLARE
  v_finer smallint := CASE p_span WHEN 10 THEN 1 ELSE 10 END;
  v_since timestamptz := date_bin(make_interval(mins => p_span), p_now, '2000-01-01 00:00Z')
    - make_interval(mins => p_span);
  v_past timestamptz := least(p_now, posthaste.retention_clock());
BEGIN
  INSERT INTO posthaste.sample (span, at, queue, come, done, failed, started, waited, available,
                                running, oldest)
  SELECT p_span, n.at, n.queue, n.come, n.done, n.failed, n.started, n.waited, m.available,
         m.running, m.oldest
    FROM posthaste.sample n JOIN (
      SELECT s.queue, max(s.available) AS available, max(s.running) AS running,
             max(s.oldest) AS oldest
        FROM posthaste.sample s WHERE s.span = v_finer AND s.at BETWEEN v_since AND p_now
       GROUP BY s.queue) m ON m.queue = n.queue
   WHERE n.span = v_finer AND n.at = p_now;
  DELETE FROM posthaste.sample s WHERE s.span = v_finer AND s.at < v_past
    - CASE v_finer WHEN 1 THEN interval '65 min' ELSE interval '25 h' END;
  DELETE FROM posthaste.sample s WHERE p_span = 60 AND s.span = 60
    AND s.at < v_past - interval '7 days 2 h';
END $f$;
-- Validation of schedules: the same decisions and messages as src/periodic/schedule.rs, which a
-- test compares (tests/periodic/refused.rs).

-- The numbers that one field of a schedule selects, or the reason why it is invalid. The first of
-- p_names is the number p_least.
CREATE OR REPLACE FUNCTION posthaste.schedule_field(
  p_what text, p_text text, p_least integer, p_most integer, p_names text[],
  OUT o_numbers integer[], OUT o_refusal text)
LANGUAGE plpgsql IMMUTABLE
SET search_path = pg_catalog, pg_temp AS $f$
DECLARE
  v_part text;
  v_range text;
  v_step text;
  v_ends text[];
  v_numbers integer[];
  v_by integer;
BEGIN
  o_numbers := '{}';
  FOREACH v_part IN ARRAY regexp_split_to_array(p_text, ',') LOOP
    v_range := split_part(v_part, '/', 1);
    v_step := CASE WHEN strpos(v_part, '/') > 0 THEN substr(v_part, strpos(v_part, '/') + 1) END;
    v_ends := CASE WHEN v_range IN ('*', '?') THEN ARRAY[p_least, p_most]::text[]
                   WHEN strpos(v_range, '-') > 0 THEN ARRAY[split_part(v_range, '-', 1),
                     substr(v_range, strpos(v_range, '-') + 1)]
                   WHEN v_step IS NULL THEN ARRAY[v_range, v_range]
                   -- 5/15 begins at 5 and continues to the end.
                   ELSE ARRAY[v_range, p_most::text] END;
    v_numbers := ARRAY(
      SELECT coalesce(p_least - 1 + array_position(p_names, upper(e.text COLLATE "C")),
                      CASE WHEN e.text COLLATE "C" ~ '^[0-9]{1,9}$' THEN e.text::integer END)
        FROM unnest(v_ends) WITH ORDINALITY e(text, place) ORDER BY e.place);
    v_by := CASE WHEN v_step IS NULL THEN 1
                 WHEN v_step COLLATE "C" ~ '^[0-9]{1,9}$' THEN v_step::integer END;
    IF v_numbers[1] >= p_least AND v_numbers[1] <= v_numbers[2] AND v_numbers[2] <= p_most
      AND v_by > 0 THEN
      o_numbers := o_numbers || ARRAY(SELECT generate_series(v_numbers[1], v_numbers[2], v_by));
    ELSE
      o_refusal := format('%s: "%s" is not a number, range or step from %s to %s', p_what, v_part,
        p_least, p_most);
      RETURN;
    END IF;
  END LOOP;
END $f$;

-- Whether this server knows a time zone. Names of letters with a slash are checked by using them,
-- all others in the view: Postgres accepts 'Foo+3' and 'EST' as zones that no file describes.
CREATE OR REPLACE FUNCTION posthaste.is_time_zone(p_name text) RETURNS boolean
LANGUAGE plpgsql STABLE
SET search_path = pg_catalog, pg_temp AS $f$
BEGIN
  IF p_name COLLATE "C" ~ '^[A-Za-z_]+(/[A-Za-z_]+)+$' OR p_name = 'UTC' THEN
    PERFORM clock_timestamp() AT TIME ZONE p_name;
    RETURN true;
  END IF;
  RETURN EXISTS (SELECT FROM pg_timezone_names z
    WHERE lower(z.name COLLATE "C") = lower(p_name COLLATE "C"));
EXCEPTION WHEN invalid_parameter_value THEN
  RETURN false;
END $f$;

-- Why a schedule is invalid; NULL if it is valid.
CREATE OR REPLACE FUNCTION posthaste.schedule_refusal(p_schedule text, p_zone text) RETURNS text
LANGUAGE plpgsql STABLE
SET search_path = pg_catalog, pg_temp SET standard_conforming_strings = on AS $f$
DECLARE
  v_text text := btrim(p_schedule, E' \t\n\f\r');
  v_fields text[];
  v_refusal text;
  v_days integer[];
  v_months integer[];
BEGIN
  IF p_schedule IS NULL OR p_zone IS NULL THEN
    RETURN NULL;
  END IF;
  v_text := CASE v_text WHEN '@hourly' THEN '0 * * * *'
                        WHEN '@daily' THEN '0 0 * * *' WHEN '@midnight' THEN '0 0 * * *'
                        WHEN '@weekly' THEN '0 0 * * 0' WHEN '@monthly' THEN '0 0 1 * *'
                        WHEN '@yearly' THEN '0 0 1 1 *' WHEN '@annually' THEN '0 0 1 1 *'
                        ELSE v_text END;
  v_fields := CASE WHEN v_text = '' THEN '{}'
    ELSE regexp_split_to_array(v_text, E'[ \t\n\f\r]+') END;
  IF cardinality(v_fields) <> 5 THEN
    RETURN format('a schedule has five fields, not %s', cardinality(v_fields));
  END IF;
  IF NOT posthaste.is_time_zone(p_zone) THEN
    RETURN format('no time zone is named "%s"', p_zone);
  END IF;
  SELECT o_refusal INTO v_refusal FROM posthaste.schedule_field('day of the week', v_fields[5], 0,
    7, '{SUN,MON,TUE,WED,THU,FRI,SAT}');
  IF v_refusal IS NULL THEN
    SELECT o_refusal INTO v_refusal
      FROM posthaste.schedule_field('minute', v_fields[1], 0, 59, '{}');
  END IF;
  IF v_refusal IS NULL THEN
    SELECT o_refusal INTO v_refusal
      FROM posthaste.schedule_field('hour', v_fields[2], 0, 23, '{}');
  END IF;
  IF v_refusal IS NULL THEN
    SELECT o_numbers, o_refusal INTO v_days, v_refusal
      FROM posthaste.schedule_field('day of the month', v_fields[3], 1, 31, '{}');
  END IF;
  IF v_refusal IS NULL THEN
    SELECT o_numbers, o_refusal INTO v_months, v_refusal
      FROM posthaste.schedule_field('month', v_fields[4], 1, 12,
        '{JAN,FEB,MAR,APR,MAY,JUN,JUL,AUG,SEP,OCT,NOV,DEC}');
  END IF;
  -- If the day of the month or of the week begins with * or ?, a day must match both, else either
  -- is enough. Each date falls on each day of the week within forty years.
  IF v_refusal IS NULL AND left(v_fields[3], 1) NOT IN ('*', '?')
    AND left(v_fields[5], 1) IN ('*', '?')
    AND NOT EXISTS (SELECT FROM unnest(v_months) m, unnest(v_days) d
      WHERE d <= ('{31,29,31,30,31,30,31,31,30,31,30,31}'::integer[])[m]) THEN
    RETURN 'no such date exists';
  END IF;
  RETURN v_refusal;
END $f$;

-- Checks each written row of posthaste.periodic: rejects schedules that no leader could read and
-- jobs that none could enqueue, and clears the error of a changed row.
CREATE OR REPLACE FUNCTION posthaste.check_periodic() RETURNS trigger LANGUAGE plpgsql
SET search_path = pg_catalog, pg_temp AS $f$
DECLARE
  v_refusal text := posthaste.schedule_refusal(NEW.schedule, NEW.time_zone);
BEGIN
  IF v_refusal IS NOT NULL THEN
    RAISE EXCEPTION USING ERRCODE = 'invalid_parameter_value',
      MESSAGE = 'posthaste: schedule: ' || v_refusal;
  END IF;
  IF NOT posthaste.is_valid(NEW.job, coalesce(NEW.queue, 'default'), NEW.tag, NULL, NULL,
    NEW.kwargs, posthaste.text_bytes(NEW.kwargs), 0, NEW.max_attempts, now(), now(), now(), NULL)
    THEN
    PERFORM posthaste.refuse(NEW.job, coalesce(NEW.queue, 'default'), NEW.tag, NULL, NULL,
      NEW.kwargs, posthaste.text_bytes(NEW.kwargs), 0, NEW.max_attempts, now(), now(), now(), NULL);
  END IF;
  NEW.error := NULL;
  RETURN NEW;
END $f$;
-- The scheduled slots: compacts and truncates them.

-- Truncates a finished scheduled segment: no session can enter it (the caller holds its lock), and
-- no row waits to be promoted. Returns NULL, or the obstacle: 'unpromoted', or the holder of a lock
-- as truncate_k() of the ready log.
CREATE OR REPLACE FUNCTION posthaste.truncate_6() RETURNS text LANGUAGE plpgsql AS $f$
DECLARE
  v_holder text;
BEGIN
  IF NOT posthaste.is_promoted_6() THEN
    RETURN 'unpromoted';
  END IF;
  v_holder := posthaste.lock_holder(ARRAY['posthaste.scheduled_6', 'posthaste.promote_cursor_6',
                                           'posthaste.closed_unclaimed_6', 'posthaste.turn_6',
                                           'posthaste.left_6', 'posthaste.counted_6']::regclass[]);
  IF v_holder IS NOT NULL THEN
    RETURN v_holder;
  END IF;
  BEGIN
    LOCK TABLE posthaste.scheduled_6, posthaste.promote_cursor_6, posthaste.closed_unclaimed_6,
      posthaste.turn_6, posthaste.left_6, posthaste.counted_6
      IN ACCESS EXCLUSIVE MODE NOWAIT;
  EXCEPTION WHEN lock_not_available THEN
    RETURN '';
  END;
  PERFORM posthaste.carry_over_turns(6);
  IF pg_relation_size('posthaste.scheduled_6') > 0 THEN TRUNCATE posthaste.scheduled_6; END IF;
  IF pg_relation_size('posthaste.promote_cursor_6') > 0 THEN TRUNCATE posthaste.promote_cursor_6;
  END IF;
  IF pg_relation_size('posthaste.closed_unclaimed_6') > 0
    THEN TRUNCATE posthaste.closed_unclaimed_6; END IF;
  IF pg_relation_size('posthaste.turn_6') > 0 THEN TRUNCATE posthaste.turn_6; END IF;
  IF pg_relation_size('posthaste.left_6') > 0 THEN TRUNCATE posthaste.left_6; END IF;
  IF pg_relation_size('posthaste.counted_6') > 0 THEN TRUNCATE posthaste.counted_6; END IF;
  RETURN NULL;
END $f$;
CREATE OR REPLACE FUNCTION posthaste.truncate_7() RETURNS text LANGUAGE plpgsql AS $f$
DECLARE
  v_holder text;
BEGIN
  IF NOT posthaste.is_promoted_7() THEN
    RETURN 'unpromoted';
  END IF;
  v_holder := posthaste.lock_holder(ARRAY['posthaste.scheduled_7', 'posthaste.promote_cursor_7',
                                           'posthaste.closed_unclaimed_7', 'posthaste.turn_7',
                                           'posthaste.left_7', 'posthaste.counted_7']::regclass[]);
  IF v_holder IS NOT NULL THEN
    RETURN v_holder;
  END IF;
  BEGIN
    LOCK TABLE posthaste.scheduled_7, posthaste.promote_cursor_7, posthaste.closed_unclaimed_7,
      posthaste.turn_7, posthaste.left_7, posthaste.counted_7
      IN ACCESS EXCLUSIVE MODE NOWAIT;
  EXCEPTION WHEN lock_not_available THEN
    RETURN '';
  END;
  PERFORM posthaste.carry_over_turns(7);
  IF pg_relation_size('posthaste.scheduled_7') > 0 THEN TRUNCATE posthaste.scheduled_7; END IF;
  IF pg_relation_size('posthaste.promote_cursor_7') > 0 THEN TRUNCATE posthaste.promote_cursor_7;
  END IF;
  IF pg_relation_size('posthaste.closed_unclaimed_7') > 0
    THEN TRUNCATE posthaste.closed_unclaimed_7; END IF;
  IF pg_relation_size('posthaste.turn_7') > 0 THEN TRUNCATE posthaste.turn_7; END IF;
  IF pg_relation_size('posthaste.left_7') > 0 THEN TRUNCATE posthaste.left_7; END IF;
  IF pg_relation_size('posthaste.counted_7') > 0 THEN TRUNCATE posthaste.counted_7; END IF;
  RETURN NULL;
END $f$;

-- Whether the promoter has passed every row of the slot; the caller knows that no session writes to
-- it any more. Three index probes, whatever the slot's size: a row that is not promoted is due
-- after the last window, or belongs to a transaction that this window did not see.
CREATE OR REPLACE FUNCTION posthaste.is_promoted_6() RETURNS boolean LANGUAGE plpgsql AS $f$
DECLARE
  c posthaste.promote_cursor_6;
BEGIN
  SELECT * INTO c FROM posthaste.promote_cursor_6 ORDER BY page DESC LIMIT 1;
  IF NOT FOUND THEN
    RETURN NOT EXISTS (SELECT FROM posthaste.scheduled_6);
  END IF;
  RETURN c.exhausted
    AND NOT EXISTS (SELECT FROM posthaste.scheduled_6 r WHERE r.scheduled_at > c.t_hi)
    AND NOT EXISTS (SELECT FROM posthaste.scheduled_6 r WHERE r.xid >= pg_snapshot_xmax(c.hi))
    AND NOT EXISTS (SELECT FROM pg_snapshot_xip(c.hi) x,
        LATERAL (SELECT FROM posthaste.scheduled_6 r WHERE r.xid = x LIMIT 1) late);
END $f$;
CREATE OR REPLACE FUNCTION posthaste.is_promoted_7() RETURNS boolean LANGUAGE plpgsql AS $f$
DECLARE
  c posthaste.promote_cursor_7;
BEGIN
  SELECT * INTO c FROM posthaste.promote_cursor_7 ORDER BY page DESC LIMIT 1;
  IF NOT FOUND THEN
    RETURN NOT EXISTS (SELECT FROM posthaste.scheduled_7);
  END IF;
  RETURN c.exhausted
    AND NOT EXISTS (SELECT FROM posthaste.scheduled_7 r WHERE r.scheduled_at > c.t_hi)
    AND NOT EXISTS (SELECT FROM posthaste.scheduled_7 r WHERE r.xid >= pg_snapshot_xmax(c.hi))
    AND NOT EXISTS (SELECT FROM pg_snapshot_xip(c.hi) x,
        LATERAL (SELECT FROM posthaste.scheduled_7 r WHERE r.xid = x LIMIT 1) late);
END $f$;

-- Whether the slot is empty: after a truncation whose transaction was lost after its setval, rows
-- and windows are still there.
CREATE OR REPLACE FUNCTION posthaste.is_empty_6() RETURNS boolean LANGUAGE sql AS $f$
  SELECT NOT EXISTS (SELECT FROM posthaste.scheduled_6)
    AND NOT EXISTS (SELECT FROM posthaste.promote_cursor_6)
     AND NOT EXISTS (SELECT FROM posthaste.closed_unclaimed_6)
       AND NOT EXISTS (SELECT FROM posthaste.turn_6)
$f$;
CREATE OR REPLACE FUNCTION posthaste.is_empty_7() RETURNS boolean LANGUAGE sql AS $f$
  SELECT NOT EXISTS (SELECT FROM posthaste.scheduled_7)
    AND NOT EXISTS (SELECT FROM posthaste.promote_cursor_7)
     AND NOT EXISTS (SELECT FROM posthaste.closed_unclaimed_7)
       AND NOT EXISTS (SELECT FROM posthaste.turn_7)
$f$;

-- The number of finished rows of a slot: those promoted since it was truncated, the promoter's
-- windows (with many writers each poll writes one) and, estimated by size, rows closed before they
-- were promoted (52 bytes each) and outdated positions of ordering keys (80).
CREATE OR REPLACE FUNCTION posthaste.spent_scheduled(p_slot integer)
RETURNS bigint LANGUAGE plpgsql
SET search_path = pg_catalog, pg_temp AS $f$
BEGIN
  CASE p_slot
    WHEN 6 THEN
      RETURN coalesce((SELECT p.promoted + p.page FROM posthaste.promote_cursor_6 p
          ORDER BY page DESC LIMIT 1), 0)
        + pg_relation_size('posthaste.closed_unclaimed_6') / 52
        + greatest(0, pg_relation_size('posthaste.turn_6') / 80
        - pg_sequence_last_value('posthaste.turns_kept'::regclass));
    WHEN 7 THEN
      RETURN coalesce((SELECT p.promoted + p.page FROM posthaste.promote_cursor_7 p
          ORDER BY page DESC LIMIT 1), 0)
        + pg_relation_size('posthaste.closed_unclaimed_7') / 52
        + greatest(0, pg_relation_size('posthaste.turn_7') / 80
        - pg_sequence_last_value('posthaste.turns_kept'::regclass));
  END CASE;
END $f$;

CREATE OR REPLACE FUNCTION posthaste.is_empty(p_slot integer)
RETURNS boolean LANGUAGE plpgsql
SET search_path = pg_catalog, pg_temp AS $f$
BEGIN
  CASE p_slot
    WHEN 6 THEN RETURN posthaste.is_empty_6();
    WHEN 7 THEN RETURN posthaste.is_empty_7();
  END CASE;
END $f$;

CREATE OR REPLACE FUNCTION posthaste.truncate_scheduled(p_slot integer)
RETURNS text LANGUAGE plpgsql
SET enable_seqscan = off SET enable_bitmapscan = off SET jit = off
SET search_path = pg_catalog, pg_temp AS $f$
BEGIN
  CASE p_slot
    WHEN 6 THEN RETURN posthaste.truncate_6();
    WHEN 7 THEN RETURN posthaste.truncate_7();
  END CASE;
END $f$;

-- Estimates the bytes of p_rows waiting jobs of the slot by the next two hundred that are due:
-- their arguments, and 200 bytes for each row with its index entries.
CREATE OR REPLACE FUNCTION posthaste.waiting_bytes_6(p_rows bigint) RETURNS bigint
LANGUAGE sql STABLE AS $f$
  SELECT coalesce(CASE WHEN count(*) < 200 THEN sum(w.bytes)
                       ELSE avg(w.bytes) * greatest(p_rows, 200)::numeric END, 0)::bigint
    FROM (SELECT pg_column_size(r.kwargs) + 200 AS bytes FROM posthaste.scheduled_6 r
           WHERE r.scheduled_at > coalesce((SELECT p.t_hi FROM posthaste.promote_cursor_6 p
               ORDER BY p.page DESC LIMIT 1), '-infinity')
           ORDER BY r.scheduled_at LIMIT 200) w
$f$;
CREATE OR REPLACE FUNCTION posthaste.waiting_bytes_7(p_rows bigint) RETURNS bigint
LANGUAGE sql STABLE AS $f$
  SELECT coalesce(CASE WHEN count(*) < 200 THEN sum(w.bytes)
                       ELSE avg(w.bytes) * greatest(p_rows, 200)::numeric END, 0)::bigint
    FROM (SELECT pg_column_size(r.kwargs) + 200 AS bytes FROM posthaste.scheduled_7 r
           WHERE r.scheduled_at > coalesce((SELECT p.t_hi FROM posthaste.promote_cursor_7 p
               ORDER BY p.page DESC LIMIT 1), '-infinity')
           ORDER BY r.scheduled_at LIMIT 200) w
$f$;

-- Whether a new segment is worth copying the waiting jobs: at least p_rows rows or p_bytes bytes,
-- and half of the slot, are finished.
CREATE OR REPLACE FUNCTION posthaste.is_scheduled_spent(
  p_slot integer, p_rows bigint, p_bytes bigint)
RETURNS boolean LANGUAGE plpgsql
SET enable_seqscan = off SET enable_bitmapscan = off SET jit = off
SET search_path = pg_catalog, pg_temp AS $f$
DECLARE
  v_spent bigint := posthaste.spent_scheduled(p_slot);
  v_bytes bigint := pg_table_size(('posthaste.scheduled_' || p_slot)::regclass);
  v_rows bigint;
BEGIN
  IF v_spent < p_rows AND (v_spent = 0 OR v_bytes <= p_bytes) THEN
    RETURN false;
  END IF;
  v_rows := posthaste.rows_in(p_slot) + pg_sequence_last_value('posthaste.turns_kept'::regclass);
  IF v_spent >= p_rows AND v_spent * 2 >= v_rows THEN
    RETURN true;
  END IF;
  CASE p_slot
    WHEN 6 THEN
      RETURN v_bytes > p_bytes AND v_bytes >= 2 * posthaste.waiting_bytes_6(v_rows - v_spent);
    WHEN 7 THEN
      RETURN v_bytes > p_bytes AND v_bytes >= 2 * posthaste.waiting_bytes_7(v_rows - v_spent);
  END CASE;
END $f$;

-- Keeps the scheduled slots small: starts a new segment when enough of the current one is finished
-- (is_scheduled_spent), and truncates the old one once the promoter has carried its jobs over.
-- o_state: 'rotated', 'truncated', 'draining', 'locked' (o_blocker holds a lock), 'none' or 'busy'.
CREATE OR REPLACE FUNCTION posthaste.tidy_scheduled(
  p_spent bigint, p_bytes bigint DEFAULT 50331648, OUT o_state text, OUT o_blocker text)
LANGUAGE plpgsql
SET search_path = pg_catalog, pg_temp AS $f$
DECLARE
  v_low bigint;
  v_current bigint;
  v_slot integer;   -- the current one
  v_other integer;
BEGIN
  IF current_setting('transaction_isolation') <> 'read committed'
    OR NOT pg_try_advisory_xact_lock(1885893476, 2) THEN
    o_state := 'busy';
    RETURN;
  END IF;
  v_low := pg_sequence_last_value('posthaste.scheduled_low'::regclass);
  v_current := pg_sequence_last_value('posthaste.scheduled_current'::regclass);
  v_slot := 6 + v_current % 2;
  v_other := 13 - v_slot;
  o_state := 'none';
  IF v_low = v_current THEN
    IF NOT posthaste.is_scheduled_spent(v_slot, p_spent, p_bytes) THEN
      RETURN;
    END IF;
    IF posthaste.is_empty(v_other) THEN
      PERFORM setval('posthaste.scheduled_current', v_current + 1);
      o_state := 'rotated';
      RETURN;
    END IF;
  ELSIF NOT pg_try_advisory_xact_lock(1885893474, v_low::integer) THEN
    o_state := 'draining';
    o_blocker := posthaste.lock_holder('{}', 1885893474, v_low);
    RETURN;
  END IF;
  o_blocker := posthaste.truncate_scheduled(v_other);
  IF o_blocker IS NULL THEN
    IF v_low < v_current THEN
      PERFORM setval('posthaste.scheduled_low', v_low + 1);
    END IF;
    o_state := 'truncated';
  ELSE
    o_state := CASE WHEN o_blocker = 'unpromoted' THEN 'draining' ELSE 'locked' END;
    o_blocker := nullif(o_blocker, 'unpromoted');
  END IF;
END $f$;
-- Postgres as the index: its documents.

-- The words of a document: of all its texts, or only of the fields that have a weight ({"title":
-- "A"}).
CREATE OR REPLACE FUNCTION posthaste.search_words(config regconfig, document jsonb, weights jsonb)
RETURNS tsvector LANGUAGE plpgsql STABLE
SET search_path = pg_catalog, pg_temp AS $f$
DECLARE
  v_words tsvector := '';
  w record;
BEGIN
  IF document IS NULL THEN
    RETURN v_words;
  ELSIF weights IS NULL OR weights = '{}' THEN
    RETURN jsonb_to_tsvector(config, document, '["string"]');
  END IF;
  FOR w IN SELECT e.key AS field, e.value AS weight FROM jsonb_each_text(weights) e
    ORDER BY e.key LOOP
    v_words := v_words
      || setweight(to_tsvector(config, coalesce(document ->> w.field, '')), w.weight::"char");
  END LOOP;
  RETURN v_words;
END $f$;

-- Writes documents and returns for each whether it was written: false if the index has the same or
-- a newer version. In the order of the ids, so that two writers do not deadlock; each id once.
CREATE OR REPLACE FUNCTION posthaste.search_write(
  p_index text, p_config regconfig, p_weights jsonb, p_ids text[], p_versions bigint[],
  p_passes integer[], p_tokens bigint[], p_documents jsonb[])
RETURNS TABLE (id text, is_written boolean) LANGUAGE sql
SET search_path = pg_catalog, pg_temp AS $f$
  WITH wanted AS MATERIALIZED (
    SELECT w.*
      FROM unnest(p_ids, p_versions, p_passes, p_tokens, p_documents) w(id, version, pass, token,
        document) ORDER BY w.id COLLATE "C"
  ), written AS (
    INSERT INTO posthaste.search AS s (index, id, version, pass, token, deleted_at, words)
    SELECT p_index, w.id, w.version, w.pass, w.token,
           CASE WHEN w.document IS NULL THEN clock_timestamp() END,
           posthaste.search_words(p_config, w.document, p_weights)
      FROM wanted w ORDER BY w.id COLLATE "C"
    ON CONFLICT (index, id) DO UPDATE
       SET (version, pass, token, deleted_at, words) = (excluded.version, excluded.pass,
           excluded.token, excluded.deleted_at, excluded.words)
     WHERE (s.version, s.pass) < (excluded.version, excluded.pass)
    RETURNING s.id
  )
  SELECT w.id, w.id IN (SELECT n.id FROM written n) FROM wanted w
$f$;
-- Statistics: deltas and their sums, of jobs outside the slots.

-- The newest sums, or empty ones.
CREATE OR REPLACE FUNCTION posthaste.newest_stats_sum()
RETURNS posthaste.stats_sum LANGUAGE sql STABLE AS $f$
  SELECT n
    FROM ((SELECT t AS n, t.number FROM posthaste.stats_sum t ORDER BY t.number DESC LIMIT 1)
      UNION ALL
                 SELECT ROW(0, 0, '1:1:', '{}', '{}', '{}', '{}', '{}', '{}')::posthaste.stats_sum,
                        0) newest
   ORDER BY number DESC LIMIT 1
$f$;

-- Deltas that are not in the sums of that snapshot.
CREATE OR REPLACE FUNCTION posthaste.stats_deltas_since(p_hi pg_snapshot)
RETURNS SETOF posthaste.stats_delta LANGUAGE sql STABLE AS $f$
  SELECT late.*
    FROM pg_snapshot_xip(p_hi) p,
         LATERAL (SELECT t.* FROM posthaste.stats_delta t WHERE t.xid = p OFFSET 0) late UNION ALL
  SELECT t.* FROM posthaste.stats_delta t WHERE t.xid >= pg_snapshot_xmax(p_hi)
$f$;

-- Tracks jobs that enter, change in or leave posthaste.in_flight and posthaste.dead.
CREATE OR REPLACE FUNCTION posthaste.track_stats() RETURNS trigger LANGUAGE plpgsql
SET search_path = pg_catalog, pg_temp AS $f$
BEGIN
  IF TG_OP <> 'INSERT' THEN
    INSERT INTO posthaste.stats_delta (queue, priority, name, tag, what, jobs)
    SELECT o.queue, o.priority, o.name, o.tag, o.state, -count(*) FROM old_rows o
      GROUP BY o.queue, o.priority, o.name, o.tag, o.state;
  END IF;
  IF TG_OP <> 'DELETE' THEN
    INSERT INTO posthaste.stats_delta (queue, priority, name, tag, what, jobs)
    SELECT n.queue, n.priority, n.name, n.tag, n.state, count(*) FROM new_rows n
      GROUP BY n.queue, n.priority, n.name, n.tag, n.state;
  END IF;
  IF TG_OP = 'INSERT' AND TG_TABLE_NAME = 'dead' THEN
    INSERT INTO posthaste.stats_delta (queue, priority, name, tag, what, jobs)
    SELECT n.queue, n.priority, n.name, n.tag, n.state || '_total', count(*) FROM new_rows n
      GROUP BY n.queue, n.priority, n.name, n.tag, n.state;
  END IF;
  RETURN NULL;
END $f$;

-- Writes the counts of a worker since its last flush.
CREATE OR REPLACE FUNCTION posthaste.flush_stats(
  p_queues text[], p_priorities integer[], p_names text[], p_tags text[], p_whats text[],
  p_jobs bigint[])
RETURNS void LANGUAGE sql AS $f$
  INSERT INTO posthaste.stats_delta (queue, priority, name, tag, what, jobs) SELECT *
    FROM unnest(p_queues, p_priorities, p_names, p_tags, p_whats, p_jobs)
$f$;

-- Limits the number of kinds of jobs: a thousand for each queue and state or total, twenty thousand
-- together, in the order of their appearance. Further kinds are counted under the tag 'other',
-- beyond as many names under the name 'other', and totals beyond as many priorities under priority
-- 0. So unique tags or names never make the counters slow, and the figures of a queue and priority
-- stay exact. If everything that is subtracted had been counted (p_whole), a negative count belongs
-- to a kind counted under 'other'.
CREATE OR REPLACE FUNCTION posthaste.limit_kinds(p_kinds posthaste.kind[], p_whole boolean)
RETURNS SETOF posthaste.kind LANGUAGE sql STABLE
SET search_path = pg_catalog, pg_temp SET standard_conforming_strings = on AS $f$
  WITH kinds AS (
    SELECT k.queue, k.priority, k.name, k.tag, k.what, sum(k.jobs) AS jobs, min(k.place) AS place
      FROM unnest(p_kinds) WITH ORDINALITY k(queue, priority, name, tag, what, jobs, place)
     GROUP BY k.queue, k.priority, k.name, k.tag, k.what HAVING sum(k.jobs) <> 0),
  tags AS (
    SELECT k.queue, k.priority, k.name, CASE WHEN k.is_surplus THEN 'other' ELSE k.tag END AS tag,
           k.what, sum(k.jobs) AS jobs, min(k.place) AS place
      FROM (SELECT n.*, (p_whole AND n.jobs < 0)
                   OR row_number() OVER (PARTITION BY n.tag = 'other', n.queue, n.what
                                             ORDER BY n.place) > 1000
                   OR row_number() OVER (PARTITION BY n.tag = 'other'
                                             ORDER BY n.place) > 20000 AS is_surplus
              FROM kinds n) k
     GROUP BY 1, 2, 3, 4, 5),
  names AS (
    SELECT k.queue, k.priority, CASE WHEN k.is_surplus THEN 'other' ELSE k.name END AS name, k.tag,
           k.what, sum(k.jobs) AS jobs, min(k.place) AS place
      FROM (SELECT n.*, n.tag = 'other' AND ((p_whole AND n.jobs < 0)
                   OR row_number() OVER (PARTITION BY n.tag = 'other', n.name = 'other', n.queue,
                                             n.what ORDER BY n.place) > 1000
                   OR row_number() OVER (PARTITION BY n.tag = 'other', n.name = 'other'
                                             ORDER BY n.place) > 20000) AS is_surplus
              FROM tags n) k
     GROUP BY 1, 2, 3, 4, 5)
  SELECT k.queue, CASE WHEN k.is_surplus THEN 0 ELSE k.priority END, k.name, k.tag, k.what,
         sum(k.jobs)::bigint
    FROM (SELECT n.*, n.tag = 'other' AND n.name = 'other' AND n.what LIKE '%\_total'
                 AND row_number() OVER (PARTITION BY n.tag, n.name, n.queue, n.what
                                            ORDER BY n.priority = 0 DESC, n.place) > 1000
                 AS is_surplus
            FROM names n) k
   GROUP BY 1, 2, 3, 4, 5 HAVING sum(k.jobs) <> 0
$f$;

-- The kinds of some sums.
CREATE OR REPLACE FUNCTION posthaste.kinds_of(
  p_queues text[], p_priorities integer[], p_names text[], p_tags text[], p_whats text[],
  p_jobs bigint[])
RETURNS posthaste.kind[] LANGUAGE sql IMMUTABLE
SET search_path = pg_catalog, pg_temp AS $f$
  SELECT ARRAY(SELECT ROW(u.*)::posthaste.kind
      FROM unnest(p_queues, p_priorities, p_names, p_tags, p_whats, p_jobs) u)
$f$;

-- These sums and the deltas since, of those visible in that snapshot, or all. With too many kinds
-- at once, deltas lose their tags and names here: all of them are in memory.
CREATE OR REPLACE FUNCTION posthaste.kinds_since(m posthaste.stats_sum, p_hi pg_snapshot)
RETURNS posthaste.kind[] LANGUAGE sql STABLE
SET search_path = pg_catalog, pg_temp AS $f$
  WITH kinds AS (
    SELECT t.queue, t.priority, t.name, t.tag, t.what, sum(t.jobs) AS jobs,
           row_number() OVER (ORDER BY min(t.xid)) AS place
      FROM posthaste.stats_deltas_since(m.hi) t
     WHERE p_hi IS NULL OR pg_visible_in_snapshot(t.xid, p_hi)
     GROUP BY t.queue, t.priority, t.name, t.tag, t.what),
  tags AS (
    SELECT k.queue, k.priority, k.name,
           CASE WHEN k.place > 40000 THEN 'other' ELSE k.tag END AS tag, k.what,
           sum(k.jobs) AS jobs, row_number() OVER (ORDER BY min(k.place)) AS place
      FROM kinds k GROUP BY 1, 2, 3, 4, 5),
  names AS (
    SELECT k.queue, k.priority, CASE WHEN k.place > 60000 THEN 'other' ELSE k.name END AS name,
           k.tag, k.what, sum(k.jobs)::bigint AS jobs, min(k.place) AS place
      FROM tags k GROUP BY 1, 2, 3, 4, 5)
  SELECT posthaste.kinds_of(m.queues, m.priorities, m.names, m.tags, m.whats, m.jobs)
    || ARRAY(SELECT ROW(n.queue, n.priority, n.name, n.tag, n.what, n.jobs)::posthaste.kind
               FROM names n ORDER BY n.place)
$f$;

-- Adds up the deltas since the last sums if there are at least p_step, and twice as many as sums.
CREATE OR REPLACE FUNCTION posthaste.sum_stats(p_step integer)
RETURNS bigint LANGUAGE plpgsql
SET search_path = pg_catalog, pg_temp AS $f$
DECLARE
  m posthaste.stats_sum := posthaste.newest_stats_sum();
  v_hi pg_snapshot := posthaste.cursor_snapshot();
  v_new bigint := (SELECT count(*) FROM posthaste.stats_deltas_since(m.hi) t
      WHERE pg_visible_in_snapshot(t.xid, v_hi));
BEGIN
  IF p_step > 0 AND v_new < greatest(p_step, 2 * cardinality(m.jobs)) THEN
    RETURN 0;
  END IF;
  INSERT INTO posthaste.stats_sum (number, hi, queues, priorities, names, tags, whats, jobs)
  SELECT m.number + 1, v_hi, coalesce(array_agg(s.queue), '{}'),
         coalesce(array_agg(s.priority), '{}'), coalesce(array_agg(s.name), '{}'),
         coalesce(array_agg(s.tag), '{}'), coalesce(array_agg(s.what), '{}'),
         coalesce(array_agg(s.jobs), '{}')
    FROM posthaste.limit_kinds(posthaste.kinds_since(m, v_hi), true) s;
  RETURN v_new;
END $f$;

-- Begins a new segment of deltas when the current one has p_bytes, and truncates the old one once
-- the sums, then stored in the new one, include all of it. Returns 'rotated', 'truncated', or the
-- obstacle.
CREATE OR REPLACE FUNCTION posthaste.rotate_stats(p_bytes bigint)
RETURNS text LANGUAGE plpgsql
SET search_path = pg_catalog, pg_temp AS $f$
DECLARE
  v_low bigint := pg_sequence_last_value('posthaste.stats_low'::regclass);
  v_current bigint := pg_sequence_last_value('posthaste.stats_current'::regclass);
  v_old integer := v_low % 2;
  v_tables regclass[];
  v_holder text;
BEGIN
  IF v_low = v_current THEN
    IF pg_table_size(('posthaste.stats_delta_' || v_old)::regclass)
      + pg_table_size(('posthaste.stats_sum_' || v_old)::regclass) <= p_bytes THEN
      RETURN NULL;
    END IF;
    PERFORM setval('posthaste.stats_current', v_current + 1);
    RETURN 'rotated';
  END IF;
  -- Sums are made before the lock is requested: readers of the counters would wait for it.
  IF posthaste.has_newest_stats(v_old) THEN
    PERFORM posthaste.sum_stats(0);
    RETURN 'summed';
  END IF;
  v_tables := ARRAY['posthaste.stats_delta_' || v_old, 'posthaste.stats_sum_' || v_old]::regclass[];
  v_holder := posthaste.lock_holder(v_tables);
  IF v_holder IS NOT NULL THEN
    RETURN v_holder;
  END IF;
  BEGIN
    EXECUTE format('LOCK TABLE %s, %s IN ACCESS EXCLUSIVE MODE NOWAIT', v_tables[1], v_tables[2]);
    -- Under the lock no session writes there, and every writer has ended. If deltas arrived
    -- meanwhile, the lock is released and they are summed next time.
    IF posthaste.has_newest_stats(v_old) THEN
      RAISE lock_not_available;
    END IF;
  EXCEPTION WHEN lock_not_available THEN
    RETURN '';
  END;
  EXECUTE format('TRUNCATE %s, %s', v_tables[1], v_tables[2]);
  PERFORM setval('posthaste.stats_low', v_low + 1);
  RETURN 'truncated';
END $f$;

-- Whether that segment has the newest sums, or deltas that are not in them.
CREATE OR REPLACE FUNCTION posthaste.has_newest_stats(p_slot integer)
RETURNS boolean LANGUAGE plpgsql
SET search_path = pg_catalog, pg_temp AS $f$
DECLARE
  m posthaste.stats_sum := posthaste.newest_stats_sum();
BEGIN
  RETURN m.slot = p_slot
    OR EXISTS (SELECT FROM posthaste.stats_deltas_since(m.hi) t WHERE t.slot = p_slot);
END $f$;

CREATE OR REPLACE FUNCTION posthaste.stats()
RETURNS TABLE (queue text, priority integer, name text, tag text, what text, jobs bigint)
LANGUAGE plpgsql STABLE
SET search_path = pg_catalog, pg_temp AS $f$
#variable_conflict use_column
DECLARE
  v_kinds posthaste.kind[] := posthaste.kinds_since(posthaste.newest_stats_sum(), NULL);
BEGIN
  IF cardinality(v_kinds) > 1000 THEN
    RETURN QUERY SELECT * FROM posthaste.limit_kinds(v_kinds, true);
  ELSE
    RETURN QUERY SELECT * FROM unnest(v_kinds);
  END IF;
END $f$;
-- Index sync: jobs for a table's rows, and the rows as the sync reads them.

-- Enqueues one job by hand, in the transaction of the change; delay defaults to the table's.
-- deleted: the version of a deletion, which must be larger than the row's was, and smaller than
-- that of a later row with the same key. force: the document is written even if its version is
-- unchanged.
CREATE OR REPLACE FUNCTION posthaste.sync(
  name text, id text, delay interval DEFAULT NULL, deleted bigint DEFAULT NULL,
  force boolean DEFAULT false, tag text DEFAULT '', priority integer DEFAULT 0)
RETURNS bigint LANGUAGE plpgsql
SET search_path = pg_catalog, pg_temp AS $f$
#variable_conflict use_variable
BEGIN
  delay := coalesce(delay, (SELECT s.delay FROM posthaste.synced s WHERE s.name = name),
      interval '60 s');
  RETURN posthaste.enqueue('sync.' || name,
                           jsonb_strip_nulls(jsonb_build_object('id', id, 'deleted', deleted,
          'force', nullif(force, false))), 'sync.' || name,
                           priority, clock_timestamp() + delay, NULL, tag, NULL, NULL);
END $f$;

-- Here and below, row security that would hide rows raises an error: hidden rows are not deleted
-- ones.

-- Enqueues a job for each row, at lower priority than changes, for an empty index; returns the
-- number. Rows with an unfinished job of this kind get no second one; rows with other jobs do,
-- because a deleted index has lost its contents, even if one of its rows has long been retried.
CREATE OR REPLACE FUNCTION posthaste.sync_fill(name text) RETURNS bigint LANGUAGE plpgsql
SET search_path = pg_catalog, pg_temp SET row_security = off AS $f$
#variable_conflict use_variable
DECLARE
  s posthaste.synced;
  v_jobs bigint;
BEGIN
  IF NOT EXISTS (SELECT FROM posthaste.synced o WHERE o.name = name) THEN
    RETURN 0;
  END IF;
  s := posthaste.synced_table(name);
  PERFORM pg_advisory_xact_lock(1885893480, hashtext(name));
  EXECUTE format($sql$INSERT INTO posthaste.job (name, queue, priority, tag, max_attempts, kwargs)
    WITH there AS MATERIALIZED (
      SELECT j.kwargs ->> 'id' AS id FROM posthaste.job j WHERE j.queue = $1 AND j.tag = 'fill'
        -- A running job may have read the index that is gone.
        AND j.state IN ('available', 'blocked', 'scheduled', 'retrying', 'quarantined'))
    SELECT $1, $1, 1000, 'fill', NULL, jsonb_build_object('id', t.%1$I::text) FROM %2$s t
      WHERE NOT EXISTS (SELECT FROM there WHERE there.id = t.%1$I::text COLLATE "C")$sql$,
    s.key, s.relation) USING 'sync.' || name;
  GET DIAGNOSTICS v_jobs = ROW_COUNT;
  RETURN v_jobs;
END $f$;

-- Raises the versions of a synced table above this one and assigns new ones to these rows: for an
-- index that is ahead of its table, because the table was restored or lost commits.
CREATE OR REPLACE FUNCTION posthaste.sync_raise(name text, beyond bigint, ids text[])
RETURNS bigint LANGUAGE plpgsql AS $f$
#variable_conflict use_variable
DECLARE
  s posthaste.synced;
  v_rows bigint;
  v_sequence regclass;
BEGIN
  SELECT * INTO STRICT s FROM posthaste.synced o WHERE o.name = name AND o.draws;
  v_sequence := pg_catalog.format('posthaste.%I', 'sync_version_' || s.drawn_by);
  EXECUTE pg_catalog.format('LOCK TABLE %s IN SHARE ROW EXCLUSIVE MODE', s.relation);
  PERFORM setval(v_sequence, greatest(posthaste.position(v_sequence), beyond));
  EXECUTE pg_catalog.format(
    'UPDATE %s t SET %I = 0
      WHERE t.%I::text COLLATE pg_catalog."C" OPERATOR(pg_catalog.=) ANY ($1)',
    s.relation, s.version, s.key) USING ids;
  GET DIAGNOSTICS v_rows = ROW_COUNT;
  RETURN v_rows;
END $f$;

-- The type of a synced table's key, without its length: a character(8) would otherwise become a
-- character(1), and a cast to it would truncate keys.
CREATE OR REPLACE FUNCTION posthaste.sync_key_type(s posthaste.synced)
RETURNS text LANGUAGE sql STABLE AS $f$
  SELECT format_type(a.atttypid, -1) FROM pg_attribute a
    WHERE a.attrelid = s.relation AND a.attname = s.key
$f$;

-- Those of these texts that can be keys of a synced table. Any other matches no row, and must not
-- fail the rest.
CREATE OR REPLACE FUNCTION posthaste.sync_keys(s posthaste.synced, p_ids text[])
RETURNS text[] LANGUAGE plpgsql STABLE
SET search_path = pg_catalog, pg_temp AS $f$
DECLARE
  v_type text := posthaste.sync_key_type(s);
  v_id   text;
  v_keys text[] := '{}';
BEGIN
  BEGIN
    EXECUTE format('SELECT $1::%s[]', v_type) USING p_ids;
    RETURN p_ids;
  EXCEPTION WHEN data_exception OR integrity_constraint_violation THEN
    NULL;
  END;
  FOREACH v_id IN ARRAY p_ids LOOP
    BEGIN
      EXECUTE format('SELECT $1::%s', v_type) USING v_id;
      v_keys := v_keys || v_id;
    EXCEPTION WHEN data_exception OR integrity_constraint_violation THEN
      NULL;
    END;
  END LOOP;
  RETURN v_keys;
END $f$;

-- A synced table by name, if it exists.
CREATE OR REPLACE FUNCTION posthaste.synced_table(p_name text)
RETURNS posthaste.synced LANGUAGE plpgsql STABLE
SET search_path = pg_catalog, pg_temp AS $f$
DECLARE
  s posthaste.synced;
BEGIN
  SELECT * INTO s FROM posthaste.synced o WHERE o.name = p_name;
  IF NOT FOUND THEN
    RAISE EXCEPTION 'posthaste: no sync is named %', p_name USING ERRCODE = 'no_data_found';
  ELSIF NOT EXISTS (SELECT FROM pg_class c WHERE c.oid = s.relation) THEN
    RAISE EXCEPTION 'posthaste: the table of sync % was dropped', p_name
      USING ERRCODE = 'undefined_table';
  END IF;
  RETURN s;
END $f$;

-- The condition for rows whose keys have these texts, $1: the index operator finds them, and their
-- bytes are compared, because the operator may treat other texts as equal (1.0 and 1.00, or a and A
-- under a collation that ignores case).
CREATE OR REPLACE FUNCTION posthaste.sync_with_keys(s posthaste.synced)
RETURNS text LANGUAGE plpgsql STABLE
SET search_path = pg_catalog, pg_temp AS $f$
BEGIN
  RETURN format('t.%1$I %2$s ANY ($1::%3$s[]) AND t.%1$I::text COLLATE "C" = ANY ($1)',
                s.key, posthaste.sync_operator(s, 3::smallint), posthaste.sync_key_type(s));
END $f$;

-- All columns of a row as JSON, except the version columns of syncs.
CREATE OR REPLACE FUNCTION posthaste.sync_document(s posthaste.synced)
RETURNS text LANGUAGE plpgsql STABLE
SET search_path = pg_catalog, pg_temp AS $f$
BEGIN
  RETURN format('to_jsonb(t.*) - %L::text[]', ARRAY(
    SELECT s.version::text
    UNION SELECT o.version::text FROM posthaste.synced o
           WHERE o.relation = s.relation AND o.draws));
END $f$;

-- Rows of a synced table by key; document is NULL for a missing or hidden row. Documents do not
-- depend on the session: all settings that affect formatting are set here.
CREATE OR REPLACE FUNCTION posthaste.sync_rows(p_name text, p_ids text[])
RETURNS TABLE (id text, version bigint, document jsonb) LANGUAGE plpgsql STABLE
SET search_path = pg_catalog, pg_temp SET row_security = off
SET timezone = 'UTC' SET datestyle = 'ISO, YMD' SET intervalstyle = 'postgres'
SET extra_float_digits = 1 SET bytea_output = 'hex' SET lc_monetary = 'C' SET xmlbinary = 'base64'
SET quote_all_identifiers = off AS $f$
DECLARE
  s posthaste.synced;
BEGIN
  s := posthaste.synced_table(p_name);
  RETURN QUERY EXECUTE format(
      'SELECT t.%1$I::text, t.%2$I, %3$s FROM %4$s t WHERE %5$s', s.key, s.version,
    CASE WHEN s.deleted IS NULL THEN posthaste.sync_document(s)
         ELSE format('CASE WHEN t.%I IS TRUE THEN NULL ELSE %s END', s.deleted,
                     posthaste.sync_document(s)) END,
    s.relation, posthaste.sync_with_keys(s))
    USING posthaste.sync_keys(s, p_ids);
END $f$;

-- As sync_rows, without documents.
CREATE OR REPLACE FUNCTION posthaste.sync_versions(p_name text, p_ids text[])
RETURNS TABLE (id text, version bigint, is_there boolean) LANGUAGE plpgsql STABLE
SET search_path = pg_catalog, pg_temp SET row_security = off AS $f$
DECLARE
  s posthaste.synced;
BEGIN
  s := posthaste.synced_table(p_name);
  RETURN QUERY EXECUTE format(
      'SELECT t.%1$I::text, t.%2$I, %3$s FROM %4$s t WHERE %5$s', s.key, s.version,
    CASE WHEN s.deleted IS NULL THEN 'true' ELSE format('t.%I IS NOT TRUE', s.deleted) END,
    s.relation, posthaste.sync_with_keys(s))
    USING posthaste.sync_keys(s, p_ids);
END $f$;

-- The next rows after a key, in the order of the key, as returned by sync_versions.
CREATE OR REPLACE FUNCTION posthaste.sync_page(p_name text, p_after text, p_most bigint)
RETURNS TABLE (id text, version bigint, is_there boolean) LANGUAGE plpgsql STABLE
SET search_path = pg_catalog, pg_temp SET row_security = off AS $f$
DECLARE
  s posthaste.synced;
BEGIN
  s := posthaste.synced_table(p_name);
  RETURN QUERY EXECUTE format(
    'SELECT t.%1$I::text, t.%2$I, %3$s FROM %4$s t %5$s ORDER BY t.%1$I USING %6$s LIMIT $2',
      s.key, s.version,
    CASE WHEN s.deleted IS NULL THEN 'true' ELSE format('t.%I IS NOT TRUE', s.deleted) END,
    s.relation,
    CASE WHEN p_after IS NULL THEN ''
         ELSE format('WHERE t.%I %s $1::%s', s.key, posthaste.sync_operator(s, 5::smallint),
                     posthaste.sync_key_type(s)) END,
    posthaste.sync_operator(s, 1::smallint)) USING p_after, p_most;
END $f$;
-- Index sync: triggers of partitioned tables and of partitions. Only row triggers are added to
-- partitions that are created or attached later, and see changes of a partition as changes through
-- its parents. So changes enqueue row by row here; versions are as safe as in sync_triggers.sql,
-- for the same reasons.

-- Whether a table is partitioned or a partition.
CREATE OR REPLACE FUNCTION posthaste.sync_in_parts(s posthaste.synced) RETURNS boolean
LANGUAGE sql STABLE AS $f$
  SELECT c.relkind = 'p' OR c.relispartition FROM pg_class c WHERE c.oid = s.relation::oid
$f$;

-- The unique index of a table's key. If the table is partitioned by another column, no index can
-- have the key alone: then one with the partition columns after the key is used.
CREATE OR REPLACE FUNCTION posthaste.sync_index(s posthaste.synced) RETURNS oid
LANGUAGE sql STABLE AS $f$
  SELECT i.indexrelid
    FROM pg_index i
    JOIN pg_attribute a ON (a.attrelid, a.attnum) = (i.indrelid, i.indkey[0])
   WHERE i.indrelid = s.relation AND i.indisunique AND i.indimmediate AND i.indisvalid
     AND i.indpred IS NULL AND a.attname = s.key AND a.attnotnull
     AND NOT EXISTS (
       SELECT FROM generate_series(1, i.indnkeyatts - 1) n
         LEFT JOIN pg_attribute o ON (o.attrelid, o.attnum) = (i.indrelid, i.indkey[n])
        WHERE o.attname IS NULL OR o.attname NOT IN (
          SELECT k.attname
            FROM (SELECT relid FROM pg_partition_ancestors(s.relation)
                  UNION SELECT relid FROM pg_partition_tree(s.relation)) r
            JOIN pg_partitioned_table p ON p.partrelid = r.relid
            JOIN pg_attribute k ON k.attrelid = r.relid AND k.attnum = ANY (p.partattrs)))
   ORDER BY i.indnkeyatts, NOT i.indisprimary, i.indexrelid LIMIT 1
$f$;

-- As sync_triggers(), which explains the placeholders. @literal@ is the table's name as a string.
CREATE OR REPLACE FUNCTION posthaste.sync_triggers_of_parts() RETURNS text
  LANGUAGE sql IMMUTABLE AS $f$ SELECT $sql$
[draw
-- An insert also records the number of deletions before the first draw of its statement. The
-- server's statement contains all that began within the program's, so this may be higher than
-- needed.
CREATE OR REPLACE FUNCTION posthaste.sync_stamp_@name@() RETURNS trigger LANGUAGE plpgsql AS $t$
DECLARE
  v_statement text;
BEGIN
  IF TG_OP = 'INSERT' THEN
    v_statement := extract(epoch FROM statement_timestamp())::text;
    IF split_part(coalesce(current_setting('posthaste.parts_@name@', true), ''), '/', 1)
       <> v_statement THEN
      PERFORM set_config('posthaste.parts_@name@', v_statement || '/' ||
                         posthaste.position('posthaste.sync_deaths_@drawn@')::text, true);
    END IF;
  END IF;
  NEW.@version@ := nextval('posthaste.sync_version_@drawn@'::regclass);
  RETURN NEW;
END $t$;
CREATE OR REPLACE TRIGGER posthaste_stamp_@name@ BEFORE INSERT OR UPDATE ON @table@ FOR EACH ROW
  EXECUTE FUNCTION posthaste.sync_stamp_@name@();
draw]
CREATE OR REPLACE FUNCTION posthaste.sync_insert_@name@() RETURNS trigger LANGUAGE plpgsql AS $t$
BEGIN
[job
  @enqueue pg_catalog.jsonb_build_object('id', NEW.@key@::text) FROM (SELECT) f enqueue@
job]
[draw
  IF split_part(coalesce(current_setting('posthaste.parts_@name@', true), ''), '/', 2)
     <> posthaste.position('posthaste.sync_deaths_@drawn@')::text THEN
    UPDATE @table@ t SET @version@ = 0 WHERE t.@key@ @is@ NEW.@key@;
  END IF;
draw]
  RETURN NULL;
END $t$;
CREATE OR REPLACE TRIGGER posthaste_insert_@name@ AFTER INSERT ON @table@ FOR EACH ROW
  EXECUTE FUNCTION posthaste.sync_insert_@name@();

[job
CREATE OR REPLACE FUNCTION posthaste.sync_update_@name@() RETURNS trigger LANGUAGE plpgsql AS $t$
BEGIN
  @enqueue pg_catalog.jsonb_build_object('id', NEW.@key@::text) FROM (SELECT) f enqueue@
  RETURN NULL;
END $t$;
CREATE OR REPLACE TRIGGER posthaste_update_@name@ AFTER UPDATE ON @table@ FOR EACH ROW
  EXECUTE FUNCTION posthaste.sync_update_@name@();
job]

CREATE OR REPLACE FUNCTION posthaste.sync_delete_@name@() RETURNS trigger LANGUAGE plpgsql AS $t$
DECLARE
  v_version bigint := [own OLD.@version@ own]
                      [draw nextval('posthaste.sync_version_@drawn@'::regclass) draw];
BEGIN
[draw
  PERFORM nextval('posthaste.sync_deaths_@drawn@'::regclass);
  UPDATE @table@ t SET @version@ = 0 WHERE t.@key@ @is@ OLD.@key@;
draw]
[job
  @enqueue pg_catalog.jsonb_build_object('id', OLD.@key@::text, 'deleted', v_version)
    FROM (SELECT) f enqueue@
job]
  RETURN NULL;
END $t$;
CREATE OR REPLACE TRIGGER posthaste_delete_@name@ AFTER DELETE ON @table@ FOR EACH ROW
  EXECUTE FUNCTION posthaste.sync_delete_@name@();

-- TRUNCATE of a parent fires the triggers of its partitions too. Partitions without one, because
-- they were added later, are handled by the parent's trigger. A detached partition does not belong
-- to the table.
CREATE OR REPLACE FUNCTION posthaste.sync_truncate_@name@() RETURNS trigger LANGUAGE plpgsql
SET row_security = off AS $t$
DECLARE
  v_part    regclass;
  v_id      text;
  v_version bigint;
BEGIN
  IF current_setting('transaction_isolation') <> 'read committed' THEN
    RAISE EXCEPTION 'posthaste: TRUNCATE of a synced table needs READ COMMITTED'
      USING ERRCODE = 'feature_not_supported', HINT = 'DELETE works in every isolation level.';
  END IF;
  IF NOT EXISTS (SELECT FROM pg_partition_ancestors(TG_RELID::regclass) p
                  WHERE p.relid::oid = @literal@::regclass::oid)
     AND TG_RELID <> @literal@::regclass::oid THEN
    RETURN NULL;
  END IF;
[draw
  v_version := nextval('posthaste.sync_version_@drawn@'::regclass);
  PERFORM nextval('posthaste.sync_deaths_@drawn@'::regclass);
draw]
[job
  FOR v_part IN
    SELECT c.oid::regclass FROM pg_class c
     WHERE c.relkind = 'r'
       AND (c.oid = TG_RELID
            OR c.oid IN (SELECT p.relid::oid FROM pg_partition_tree(TG_RELID::regclass) p)
               AND NOT EXISTS (
                 SELECT FROM pg_trigger g
                  WHERE g.tgrelid = c.oid AND g.tgname = TG_NAME
                    AND (g.tgenabled = 'A' OR g.tgenabled = 'O'
                         AND current_setting('session_replication_role') <> 'replica'))) LOOP
    FOR v_id, v_version IN
      EXECUTE 'SELECT t.' || @key_literal@ || '::text, ' || [own 't.' || @version_literal@ own]
              [draw v_version::text draw] || ' FROM ONLY ' || v_part::text || ' t' LOOP
      @enqueue pg_catalog.jsonb_build_object('id', v_id, 'deleted', v_version)
        FROM (SELECT) f enqueue@
    END LOOP;
  END LOOP;
job]
  RETURN NULL;
END $t$;
CREATE OR REPLACE TRIGGER posthaste_truncate_@name@ BEFORE TRUNCATE ON @table@ FOR EACH STATEMENT
  EXECUTE FUNCTION posthaste.sync_truncate_@name@();
$sql$ $f$;

-- TRUNCATE has no row trigger: each existing partition gets its own.
CREATE OR REPLACE FUNCTION posthaste.sync_truncates(s posthaste.synced)
RETURNS void LANGUAGE plpgsql
SET search_path = pg_catalog, pg_temp AS $f$
DECLARE
  v_part regclass;
  v_name text := 'posthaste_truncate_' || s.name;
BEGIN
  FOR v_part IN SELECT p.relid FROM pg_partition_tree(s.relation) p WHERE p.relid <> s.relation LOOP
    EXECUTE format('CREATE OR REPLACE TRIGGER %I BEFORE TRUNCATE ON %s FOR EACH STATEMENT
                    EXECUTE FUNCTION posthaste.%I()', v_name, v_part, 'sync_truncate_' || s.name);
    IF s.always THEN
      EXECUTE format('ALTER TABLE %s ENABLE ALWAYS TRIGGER %I', v_part, v_name);
    END IF;
  END LOOP;
END $f$;
-- Index sync: which tables are synced, and what is created for them.

-- Rejects tables that cannot be synced, naming the reason. Versions and jobs need triggers that see
-- every change of every row.
CREATE OR REPLACE FUNCTION posthaste.check_synced(s posthaste.synced)
RETURNS void LANGUAGE plpgsql
SET search_path = pg_catalog, pg_temp AS $f$
DECLARE
  v_column name;
BEGIN
  -- Statements on a parent would not fire the triggers of its inheritance children, nor those on a
  -- child its parent's.
  IF EXISTS (SELECT FROM pg_class c WHERE c.oid = s.relation
                AND (c.relkind NOT IN ('r', 'p')
                     OR (s.draws OR s.enqueues) AND c.relkind = 'r' AND NOT c.relispartition
                        AND (c.relhassubclass
                             OR EXISTS (SELECT FROM pg_inherits i WHERE i.inhrelid = c.oid)))) THEN
    RAISE EXCEPTION 'posthaste: %: only a table without inheritance can be synced by triggers',
      s.relation USING ERRCODE = 'wrong_object_type',
      HINT = 'With draw and enqueue false, the program sets the versions and enqueues the jobs.';
  END IF;
  FOREACH v_column IN ARRAY
    array_remove(ARRAY[s.key, CASE WHEN NOT s.draws THEN s.version END, s.deleted], NULL) LOOP
    IF NOT EXISTS (SELECT FROM pg_attribute a
                    WHERE a.attrelid = s.relation AND a.attname = v_column AND a.attnum > 0) THEN
      RAISE EXCEPTION 'posthaste: %: there is no column "%" for its %', s.relation,
        v_column, CASE v_column WHEN s.key THEN 'key; name the key column'
                                WHEN s.deleted THEN 'mark of deleted rows' ELSE 'version' END
        USING ERRCODE = 'undefined_column';
    END IF;
  END LOOP;
  -- Its text is the document's id: writers and readers of a row must agree on it.
  IF EXISTS (
    WITH RECURSIVE base AS (
      SELECT t.oid, t.typtype, t.typbasetype, t.typoutput
        FROM pg_attribute a JOIN pg_type t ON t.oid = a.atttypid
       WHERE a.attrelid = s.relation AND a.attname = s.key
      UNION ALL
      SELECT t.oid, t.typtype, t.typbasetype, t.typoutput
        FROM base b JOIN pg_type t ON b.typtype = 'd' AND t.oid = b.typbasetype)
    SELECT FROM base b JOIN pg_proc p ON p.oid = b.typoutput
     WHERE b.typtype NOT IN ('d', 'e')
       AND (p.provolatile <> 'i' OR b.oid = ANY ('{float4,float8,bytea,interval}'::regtype[]))) THEN
    RAISE EXCEPTION 'posthaste: %: the text of the key "%" depends on settings of the session',
      s.relation, s.key USING ERRCODE = 'invalid_parameter_value',
      HINT = 'Use another unique column, of numbers, text or uuid, as the key.';
  END IF;
  -- With a deferred key, an insert does not wait for the transaction that deletes the same key.
  IF posthaste.sync_index(s) IS NULL THEN
    RAISE EXCEPTION 'posthaste: %: the key "%" must be NOT NULL with a single-column unique index',
      s.relation, s.key USING ERRCODE = 'invalid_parameter_value',
      DETAIL = 'The index must not be deferrable or partial. On a partitioned table '
               'the partition columns may follow the key.',
      HINT = 'If the key has several columns, add one column that is unique.';
  END IF;
  IF EXISTS (SELECT FROM pg_attribute a WHERE a.attrelid = s.relation AND a.attname = s.deleted
                AND a.atttypid <> 'boolean'::regtype) THEN
    RAISE EXCEPTION 'posthaste: %: "%", which marks deleted rows, must be a boolean',
      s.relation, s.deleted USING ERRCODE = 'invalid_parameter_value';
  END IF;
  IF EXISTS (SELECT FROM posthaste.synced o
              WHERE o.relation = s.relation AND o.version = s.version AND o.name <> s.name
                AND o.draws <> s.draws) THEN
    RAISE EXCEPTION 'posthaste: %: another sync uses the version "%" with another value of draw',
      s.relation, s.version USING ERRCODE = 'invalid_parameter_value',
      HINT = 'Use a separate version column for this sync.';
  END IF;
END $f$;

-- The sync whose sequences are used: one that draws for the same column already, or the sequences
-- it had, or new ones under a name that no other table uses.
CREATE OR REPLACE FUNCTION posthaste.sync_drawn_by(s posthaste.synced)
RETURNS text LANGUAGE plpgsql
SET search_path = pg_catalog, pg_temp AS $f$
DECLARE
  v_name text := (SELECT o.drawn_by FROM posthaste.synced o
                   WHERE o.relation = s.relation
                     AND (o.name = s.name OR o.draws AND s.draws AND o.version = s.version)
                   ORDER BY o.name = s.name, o.name LIMIT 1);
BEGIN
  v_name := coalesce(v_name, s.name);
  FOR n IN 2 .. 1000 LOOP
    EXIT WHEN NOT EXISTS (SELECT FROM posthaste.synced o WHERE o.drawn_by = v_name
                             AND o.relation <> s.relation AND o.name <> s.name);
    v_name := left(s.name, 36) || '_' || n;
  END LOOP;
  RETURN v_name;
END $f$;

-- An operator of the unique index of a table's key: 1 is less than, 3 equals, 5 is greater than.
CREATE OR REPLACE FUNCTION posthaste.sync_operator(s posthaste.synced, p_strategy smallint)
RETURNS text LANGUAGE plpgsql STABLE
SET search_path = pg_catalog, pg_temp AS $f$
BEGIN
  RETURN (
    SELECT format('OPERATOR(%I.%s)', n.nspname, o.oprname)
      FROM pg_index i
      JOIN pg_opclass c ON c.oid = i.indclass[0]
      JOIN pg_amop m ON m.amopfamily = c.opcfamily AND m.amopstrategy = p_strategy
                    AND m.amoplefttype = c.opcintype AND m.amoprighttype = c.opcintype
      JOIN pg_operator o ON o.oid = m.amopopr
      JOIN pg_namespace n ON n.oid = o.oprnamespace
     WHERE i.indexrelid = posthaste.sync_index(s));
END $f$;

-- Whether the version column was created for posthaste: its comment says so, or a sync already
-- draws for it. Its name proves nothing: programs have columns for optimistic locks.
CREATE OR REPLACE FUNCTION posthaste.sync_owns_version(s posthaste.synced)
RETURNS boolean LANGUAGE sql STABLE AS $f$
  SELECT EXISTS (SELECT FROM posthaste.synced o
                  WHERE o.relation::oid = s.relation::oid AND o.version = s.version AND o.draws)
      OR EXISTS (
        SELECT FROM pg_attribute a
         WHERE a.attname = s.version
           AND (a.attrelid = s.relation::oid
                OR a.attrelid IN (SELECT p.relid::oid FROM pg_partition_ancestors(s.relation) p))
           AND col_description(a.attrelid, a.attnum::integer) LIKE 'posthaste:%')
$f$;

-- Adds the version column, or rejects one that programs may use.
CREATE OR REPLACE FUNCTION posthaste.sync_add_version(s posthaste.synced, p_table text)
RETURNS void LANGUAGE plpgsql
SET search_path = pg_catalog, pg_temp AS $f$
BEGIN
  -- A column cannot be added to a partition, even if it exists.
  IF NOT EXISTS (SELECT FROM pg_attribute a
                  WHERE a.attrelid = s.relation AND a.attname = s.version) THEN
    EXECUTE format('ALTER TABLE %s ADD COLUMN %I bigint NOT NULL DEFAULT 0', p_table, s.version);
    EXECUTE format('COMMENT ON COLUMN %s.%I IS %L', p_table, s.version,
                   'posthaste: the version of the row, drawn by triggers');
  ELSIF NOT posthaste.sync_owns_version(s) THEN
    RAISE EXCEPTION 'posthaste: %: the column "%" exists and was not created by posthaste: its '
      'triggers would overwrite what programs write there', s.relation, s.version
      USING ERRCODE = 'duplicate_column',
      HINT = format('Set "version" to another column. If no program uses this one: COMMENT ON '
                    'COLUMN %s.%I IS %L', p_table, s.version, 'posthaste: versions of rows');
  END IF;
END $f$;

-- Syncs the rows of a table to an index: adds the version column if it is missing, and the
-- triggers. draw => false: the column is the program's own, and ascends for each key, also across
-- deletions. enqueue => false: the program calls posthaste.sync() itself, for deletions too.
-- always: the triggers also fire under session_replication_role = replica. documents: a digest of
-- the document definition. Calling it again with other arguments changes the sync. A table may have
-- several syncs with different names.
CREATE OR REPLACE FUNCTION posthaste.sync_table(
  relation regclass, key name DEFAULT 'id', version name DEFAULT 'posthaste_version',
  name text DEFAULT NULL, deleted name DEFAULT NULL, delay interval DEFAULT '60 s',
  draw boolean DEFAULT true, enqueue boolean DEFAULT true, always boolean DEFAULT false,
  documents text DEFAULT NULL)
RETURNS text LANGUAGE plpgsql
SET search_path = pg_catalog, pg_temp AS $f$
#variable_conflict use_variable
DECLARE
  v_table text := (SELECT format('%I.%I', n.nspname, c.relname) FROM pg_class c
      JOIN pg_namespace n ON n.oid = c.relnamespace WHERE c.oid = relation);
  v_before text;
  s posthaste.synced;
BEGIN
  name := coalesce(name, (SELECT c.relname FROM pg_class c WHERE c.oid = relation));
  s := (name, relation, key, version, deleted, delay, draw, enqueue, always,
        name, documents)::posthaste.synced;
  PERFORM posthaste.check_synced(s);
  EXECUTE format('LOCK TABLE %s', v_table);
  IF draw THEN
    PERFORM posthaste.sync_add_version(s, v_table);
  END IF;
  IF NOT EXISTS (SELECT FROM pg_attribute a
      WHERE a.attrelid = relation AND a.attname = version AND a.atttypid = 'bigint'::regtype
      AND a.attnotnull) THEN
    RAISE EXCEPTION 'posthaste: %: the version "%" must be a bigint and NOT NULL', relation, version
      USING ERRCODE = 'invalid_parameter_value';
  END IF;
  v_before := (SELECT o.drawn_by FROM posthaste.synced o WHERE o.name = name);
  s.drawn_by := posthaste.sync_drawn_by(s);
  DELETE FROM posthaste.audited a WHERE a.name = name
    AND NOT EXISTS (SELECT FROM posthaste.synced o WHERE o.name = name AND o.relation = relation);
  INSERT INTO posthaste.synced AS o VALUES (s.*)
  ON CONFLICT ON CONSTRAINT synced_pkey DO UPDATE
    SET (relation, key, version, deleted, delay, draws, enqueues, always, drawn_by, documents) =
        (s.relation, s.key, s.version, s.deleted, s.delay, s.draws, s.enqueues, s.always,
         s.drawn_by, coalesce(s.documents, o.documents))
   WHERE o.relation = relation OR NOT EXISTS (SELECT FROM pg_class c WHERE c.oid = o.relation);
  IF NOT FOUND THEN
    RAISE EXCEPTION 'posthaste: % is the name of the sync of another table, %', name,
      (SELECT o.relation FROM posthaste.synced o WHERE o.name = name)
      USING ERRCODE = 'duplicate_object';
  END IF;
  PERFORM set_config('client_min_messages', 'warning', true);
  PERFORM posthaste.unsync_triggers(name);
  IF draw THEN
    PERFORM posthaste.sync_sequences(s, v_table, v_before);
  END IF;
  PERFORM posthaste.unsync_sequences(v_before);
  IF draw OR enqueue THEN
    EXECUTE posthaste.sync_sql(s, v_table);
    PERFORM posthaste.sync_truncates(s);
  END IF;
  RETURN name;
END $f$;

-- Advances the sequences of a sync beyond the versions in the table and those drawn before.
CREATE OR REPLACE FUNCTION posthaste.sync_sequences(s posthaste.synced, p_table text, p_before text)
RETURNS void LANGUAGE plpgsql
SET search_path = pg_catalog, pg_temp AS $f$
DECLARE
  v_version text := format('posthaste.%I', 'sync_version_' || s.drawn_by);
  v_deaths  text := format('posthaste.%I', 'sync_deaths_' || s.drawn_by);
  v_before  text := format('posthaste.%I', 'sync_version_' || coalesce(p_before, s.drawn_by));
  v_largest bigint;
BEGIN
  EXECUTE format('CREATE SEQUENCE IF NOT EXISTS %s MINVALUE 0 START 0', v_version);
  EXECUTE format('CREATE SEQUENCE IF NOT EXISTS %s MINVALUE 0 START 0', v_deaths);
  EXECUTE format('SELECT max(t.%I) FROM %s t', s.version, p_table) INTO v_largest;
  PERFORM setval(v_version::regclass,
                 greatest(pg_sequence_last_value(v_version::regclass),
                          pg_sequence_last_value(to_regclass(v_before)), v_largest, 0)),
          nextval(v_deaths::regclass);
  IF EXISTS (SELECT FROM pg_roles r WHERE r.rolname = 'posthaste_producer') THEN
    EXECUTE format('GRANT SELECT, USAGE ON SEQUENCE %s, %s TO posthaste_producer, posthaste_worker',
                   v_version, v_deaths);
    EXECUTE format('GRANT SELECT ON SEQUENCE %s, %s TO posthaste_observer', v_version, v_deaths);
  END IF;
END $f$;

-- Drops the triggers with their functions.
CREATE OR REPLACE FUNCTION posthaste.unsync_triggers(p_name text)
RETURNS void LANGUAGE plpgsql
SET search_path = pg_catalog, pg_temp AS $f$
DECLARE
  v_function regprocedure;
BEGIN
  FOR v_function IN SELECT p.oid FROM pg_proc p
    WHERE p.pronamespace = 'posthaste'::regnamespace AND p.prorettype = 'trigger'::regtype
                      AND p.proname IN (SELECT 'sync_' || e || '_' || p_name
                          FROM unnest(ARRAY['stamp', 'begin', 'insert', 'update', 'move', 'delete',
                            'truncate']) e) LOOP
    EXECUTE format('DROP FUNCTION %s CASCADE', v_function);
  END LOOP;
END $f$;

-- Drops sequences that no sync uses any more.
CREATE OR REPLACE FUNCTION posthaste.unsync_sequences(p_drawn_by text)
RETURNS void LANGUAGE plpgsql
SET search_path = pg_catalog, pg_temp AS $f$
BEGIN
  IF p_drawn_by IS NOT NULL
     AND NOT EXISTS (SELECT FROM posthaste.synced o WHERE o.drawn_by = p_drawn_by) THEN
    EXECUTE format('DROP SEQUENCE IF EXISTS posthaste.%I, posthaste.%I',
                   'sync_version_' || p_drawn_by, 'sync_deaths_' || p_drawn_by);
  END IF;
END $f$;

-- Removes this sync; others of its table stay. The column stays, but the versions are lost with the
-- sequence, so an index must be rebuilt afterwards.
CREATE OR REPLACE FUNCTION posthaste.unsync_table(name text) RETURNS void LANGUAGE plpgsql
SET search_path = pg_catalog, pg_temp AS $f$
#variable_conflict use_variable
DECLARE
  v_drawn_by text;
BEGIN
  PERFORM set_config('client_min_messages', 'warning', true);
  PERFORM posthaste.unsync_triggers(name);
  DELETE FROM posthaste.audited a WHERE a.name = name;
  DELETE FROM posthaste.synced s WHERE s.name = name RETURNING s.drawn_by INTO v_drawn_by;
  PERFORM posthaste.unsync_sequences(v_drawn_by);
END $f$;
-- Index sync: triggers of synced tables. Each row has a version, with which its document is
-- written, and no index replaces a newer version by an older one. Each change enqueues a job in its
-- transaction; the job completes only after it has found the index correct.
--
-- Of two versions of a row, the later one must be larger, also across its deletion and re-creation,
-- whichever transaction waited for the other. An update draws from the table's sequence while it
-- has the row's lock. An insert draws before it has a lock: it may then wait in the unique index
-- for a transaction that deletes the key, whose version may be larger. So at its end an insert
-- checks whether any row was deleted since its statement began, and if so draws again, by an update
-- of the inserted rows. It checks a sequence, which does not depend on a snapshot: this is correct
-- in every isolation level, and no session waits.

-- The template of the triggers of one sync; a table may have several. @key@, @version@ and @table@
-- are quoted identifiers, @name@ and @drawn@ are plain words. Parts between [draw and draw] are
-- used if posthaste draws the versions, those between [own and own] if the program sets them, and
-- those between [job and job] if changes enqueue jobs. The text between @enqueue and enqueue@ is
-- the kwargs of the jobs and the FROM of their source. Programs set the tag of the jobs by SET
-- posthaste.tag. If two syncs draw for one column, each draws: the later value stays, and is
-- larger.
--
-- The triggers run under the writer's search_path, because other triggers of the table may need it.
-- So their names are exact (sql/README.md): @is@ is the equality operator of the key's index.
CREATE OR REPLACE FUNCTION posthaste.sync_triggers() RETURNS text
  LANGUAGE sql IMMUTABLE AS $f$ SELECT $sql$
[draw
CREATE OR REPLACE FUNCTION posthaste.sync_stamp_@name@() RETURNS trigger LANGUAGE plpgsql AS $t$
BEGIN
  NEW.@version@ := nextval('posthaste.sync_version_@drawn@'::regclass);
  RETURN NEW;
END $t$;
CREATE OR REPLACE TRIGGER posthaste_stamp_@name@ BEFORE INSERT OR UPDATE ON @table@ FOR EACH ROW
  EXECUTE FUNCTION posthaste.sync_stamp_@name@();

-- The number of deletions when the oldest active insert began. A nested insert clears it: the outer
-- one then draws again.
CREATE OR REPLACE FUNCTION posthaste.sync_begin_@name@() RETURNS trigger LANGUAGE plpgsql AS $t$
BEGIN
  IF coalesce(current_setting('posthaste.sync_@name@', true), '') = '' THEN
    PERFORM set_config('posthaste.sync_@name@',
                       posthaste.position('posthaste.sync_deaths_@drawn@')::text, true);
  END IF;
  RETURN NULL;
END $t$;
CREATE OR REPLACE TRIGGER posthaste_begin_@name@ BEFORE INSERT ON @table@ FOR EACH STATEMENT
  EXECUTE FUNCTION posthaste.sync_begin_@name@();
draw]
CREATE OR REPLACE FUNCTION posthaste.sync_insert_@name@() RETURNS trigger LANGUAGE plpgsql AS $t$
[draw
DECLARE
  v_began bigint := nullif(current_setting('posthaste.sync_@name@', true), '')::bigint;
draw]
BEGIN
[job
  @enqueue pg_catalog.jsonb_build_object('id', f.@key@::text) FROM fresh f enqueue@
job]
[draw
  PERFORM set_config('posthaste.sync_@name@', '', true);
  IF v_began IS DISTINCT FROM posthaste.position('posthaste.sync_deaths_@drawn@') THEN
    UPDATE @table@ t SET @version@ = 0 FROM fresh f WHERE t.@key@ @is@ f.@key@;
  END IF;
draw]
  RETURN NULL;
END $t$;
CREATE OR REPLACE TRIGGER posthaste_insert_@name@ AFTER INSERT ON @table@
  REFERENCING NEW TABLE AS fresh FOR EACH STATEMENT EXECUTE FUNCTION posthaste.sync_insert_@name@();

[job
CREATE OR REPLACE FUNCTION posthaste.sync_update_@name@() RETURNS trigger LANGUAGE plpgsql AS $t$
BEGIN
  @enqueue pg_catalog.jsonb_build_object('id', f.@key@::text) FROM fresh f enqueue@
  RETURN NULL;
END $t$;
CREATE OR REPLACE TRIGGER posthaste_update_@name@ AFTER UPDATE ON @table@
  REFERENCING NEW TABLE AS fresh FOR EACH STATEMENT EXECUTE FUNCTION posthaste.sync_update_@name@();
job]

-- A key that the same statement deletes and creates draws again: the order of the two is unknown.
CREATE OR REPLACE FUNCTION posthaste.sync_delete_@name@() RETURNS trigger LANGUAGE plpgsql AS $t$
DECLARE
  v_version bigint;
BEGIN
  IF NOT EXISTS (SELECT FROM gone) THEN
    RETURN NULL;
  END IF;
[draw
  v_version := nextval('posthaste.sync_version_@drawn@'::regclass);
  PERFORM nextval('posthaste.sync_deaths_@drawn@'::regclass);
  UPDATE @table@ t SET @version@ = 0 FROM gone g WHERE t.@key@ @is@ g.@key@;
draw]
[job
  @enqueue pg_catalog.jsonb_build_object('id', g.@key@::text,
                              'deleted', [own g.@version@ own] [draw v_version draw])
    FROM gone g enqueue@
job]
  RETURN NULL;
END $t$;
CREATE OR REPLACE TRIGGER posthaste_delete_@name@ AFTER DELETE ON @table@
  REFERENCING OLD TABLE AS gone FOR EACH STATEMENT EXECUTE FUNCTION posthaste.sync_delete_@name@();

-- An old snapshot does not show all the rows that TRUNCATE removes, nor does row security.
CREATE OR REPLACE FUNCTION posthaste.sync_truncate_@name@() RETURNS trigger LANGUAGE plpgsql
SET row_security = off AS $t$
DECLARE
  v_version bigint;
BEGIN
  IF current_setting('transaction_isolation') <> 'read committed' THEN
    RAISE EXCEPTION 'posthaste: TRUNCATE of a synced table needs READ COMMITTED'
      USING ERRCODE = 'feature_not_supported', HINT = 'DELETE works in every isolation level.';
  END IF;
[draw
  v_version := nextval('posthaste.sync_version_@drawn@'::regclass);
  PERFORM nextval('posthaste.sync_deaths_@drawn@'::regclass);
draw]
[job
  @enqueue pg_catalog.jsonb_build_object('id', g.@key@::text,
                              'deleted', [own g.@version@ own] [draw v_version draw])
    FROM @table@ g enqueue@
job]
  RETURN NULL;
END $t$;
CREATE OR REPLACE TRIGGER posthaste_truncate_@name@ BEFORE TRUNCATE ON @table@ FOR EACH STATEMENT
  EXECUTE FUNCTION posthaste.sync_truncate_@name@();
$sql$ $f$;

-- Common to both kinds of tables: changed keys. The old key is deleted, and the new one may have
-- waited in the unique index like an insert. An update that moves a row to another partition is a
-- deletion and an insert for triggers too: for partitioned tables this handles a key that changes
-- within a partition. A key that is equal to the old one but written differently (1.0 and 1.00, or
-- a and A under a collation that ignores case) is another id: texts of keys are compared as bytes.
CREATE OR REPLACE FUNCTION posthaste.sync_trigger_of_moves() RETURNS text
  LANGUAGE sql IMMUTABLE AS $f$ SELECT $sql$
CREATE OR REPLACE FUNCTION posthaste.sync_move_@name@() RETURNS trigger LANGUAGE plpgsql AS $t$
DECLARE
  v_version bigint := [own OLD.@version@ own]
                      [draw nextval('posthaste.sync_version_@drawn@'::regclass) draw];
BEGIN
[draw
  PERFORM nextval('posthaste.sync_deaths_@drawn@'::regclass);
  UPDATE @table@ t SET @version@ = 0 WHERE t.@key@ @is@ OLD.@key@ OR t.@key@ @is@ NEW.@key@;
draw]
[job
  @enqueue pg_catalog.jsonb_build_object('id', OLD.@key@::text, 'deleted', v_version)
    FROM (SELECT) f enqueue@
job]
  RETURN NULL;
END $t$;
CREATE OR REPLACE TRIGGER posthaste_move_@name@ AFTER UPDATE ON @table@ FOR EACH ROW
  WHEN (NOT OLD.@key@ @is@ NEW.@key@
        OR OLD.@key@::text COLLATE pg_catalog."C" OPERATOR(pg_catalog.<>) NEW.@key@::text)
  EXECUTE FUNCTION posthaste.sync_move_@name@();
$sql$ $f$;

-- The statements that create the triggers of a sync. Under session_replication_role = replica the
-- rule of the view posthaste.job does not apply: jobs go one by one through the function.
CREATE OR REPLACE FUNCTION posthaste.sync_sql(s posthaste.synced, p_table text)
RETURNS text LANGUAGE plpgsql
SET search_path = pg_catalog, pg_temp SET standard_conforming_strings = on AS $f$
DECLARE
  v_sql text := CASE WHEN posthaste.sync_in_parts(s) THEN posthaste.sync_triggers_of_parts()
                     ELSE posthaste.sync_triggers() END || posthaste.sync_trigger_of_moves();
  v_jobs text := $sql$INSERT INTO posthaste.job
      (name, queue, scheduled_at, tag, max_attempts, kwargs)
    SELECT 'sync.@name@', 'sync.@name@', @due@, @tag@, NULL, \1;$sql$;
BEGIN
  IF s.always THEN
    v_jobs := $sql$IF current_setting('session_replication_role') = 'replica' THEN
    PERFORM posthaste.enqueue('sync.@name@', k.kwargs, 'sync.@name@', 0, @due@, NULL, @tag@, NULL,
                              NULL) FROM (SELECT \1) k(kwargs);
  ELSE
    $sql$ || v_jobs || $sql$
  END IF;$sql$;
    v_sql := regexp_replace(v_sql, '(CREATE OR REPLACE TRIGGER (\w+@name@) [^;]*;)',
                            '\1 ALTER TABLE @table@ ENABLE ALWAYS TRIGGER \2;', 'g');
  END IF;
  IF NOT s.enqueues THEN
    v_sql := regexp_replace(v_sql, '\[job.*?job\]', '', 'g');
  END IF;
  v_sql := regexp_replace(v_sql, CASE WHEN s.draws THEN '\[own.*?own\]' ELSE '\[draw.*?draw\]' END,
                          '', 'g');
  v_sql := regexp_replace(v_sql, '\[(own|draw|job)|(own|draw|job)\]', '', 'g');
  v_sql := regexp_replace(v_sql, '@enqueue (.*?) enqueue@', v_jobs, 'g');
  v_sql := replace(v_sql, '@due@', $sql$clock_timestamp() + (SELECT s.delay
      FROM posthaste.synced s WHERE s.name = '@name@')$sql$);
  v_sql := replace(v_sql, '@tag@', $sql$coalesce(current_setting('posthaste.tag', true), '')$sql$);
  v_sql := replace(replace(v_sql, '@name@', s.name), '@drawn@', s.drawn_by);
  v_sql := replace(v_sql, '@is@', posthaste.sync_operator(s, 3::smallint));
  v_sql := replace(replace(v_sql, '@literal@', quote_literal(p_table)),
                   '@key_literal@', quote_literal(quote_ident(s.key)));
  v_sql := replace(v_sql, '@version_literal@', quote_literal(quote_ident(s.version)));
  v_sql := replace(v_sql, '@key@', quote_ident(s.key));
  RETURN replace(replace(v_sql, '@version@', quote_ident(s.version)), '@table@', p_table);
END $f$;
-- Claim: selects a worker's next jobs by a cursor that dead and finished rows cannot slow down.
--
-- Each lane (queue, priority) of a slot is read in windows. A window is the set of rows that are
-- visible in snapshot hi and were not visible in snapshot lo, the hi of the previous window.
-- Snapshots of a lane only grow, so each committed row falls into exactly one window, however late
-- its transaction commits. Within a window rows are claimed in the order (xid, id), a batch at a
-- time; the batch's claim row records how far it went, and is the lane's next cursor.

-- A lane's advisory lock: serialises its claimers. A hash collision only makes two lanes wait for
-- each other.
CREATE OR REPLACE FUNCTION posthaste.lane_key(queue text, priority integer)
RETURNS integer LANGUAGE sql IMMUTABLE PARALLEL SAFE AS $f$
  SELECT hashtext(queue || ' ' || priority::text)
$f$;

-- Waits for the lane and locks it. Read the cursor in a separate statement afterwards: it may have
-- moved meanwhile.
CREATE OR REPLACE FUNCTION posthaste.hold_lane(queue text, priority integer)
RETURNS void LANGUAGE sql AS $f$
  SELECT pg_advisory_xact_lock(1885893475, posthaste.lane_key(queue, priority))
$f$;

-- The snapshot for a cursor: the current one, with the own transaction counted as running. Postgres
-- omits the own xid from a snapshot's list, so that rows which this transaction writes later would
-- seem to precede the next window.
CREATE OR REPLACE FUNCTION posthaste.cursor_snapshot() RETURNS pg_snapshot LANGUAGE plpgsql AS $f$
DECLARE
  s pg_snapshot := pg_current_snapshot();
  own xid8 := pg_current_xact_id_if_assigned();
BEGIN
  IF own IS NULL OR own >= pg_snapshot_xmax(s) THEN
    RETURN s;
  END IF;
  RETURN (least(own, pg_snapshot_xmin(s)) || ':' || pg_snapshot_xmax(s) || ':'
          || array_to_string(ARRAY(SELECT x FROM (SELECT own AS x UNION SELECT pg_snapshot_xip(s)) u
                ORDER BY x), ','))::pg_snapshot;
END $f$;

-- Computes the bounds of a window.
CREATE OR REPLACE FUNCTION posthaste.with_bounds(w posthaste.lane_window)
RETURNS posthaste.lane_window LANGUAGE plpgsql AS $f$
BEGIN
  IF w.at_xid >= pg_snapshot_xmax(w.lo) THEN
    w.from_xid := w.at_xid; w.from_id := w.at_id;
  ELSE
    w.from_xid := pg_snapshot_xmax(w.lo); w.from_id := -1;
  END IF;
  IF pg_snapshot_xmin(w.lo) = pg_snapshot_xmax(w.lo) THEN
    w.late := '{}';  -- no transaction was running
  ELSE
    w.late := ARRAY(SELECT p FROM pg_snapshot_xip(w.lo) p
                     WHERE p >= w.at_xid AND pg_visible_in_snapshot(p, w.hi)
                       AND pg_xact_status(p) IS DISTINCT FROM 'aborted');
  END IF;
  RETURN w;
END $f$;

-- The window after this one, up to now.
CREATE OR REPLACE FUNCTION posthaste.next_window(w posthaste.lane_window, p_now pg_snapshot)
RETURNS posthaste.lane_window LANGUAGE plpgsql AS $f$
BEGIN
  w.lo := w.hi; w.hi := p_now; w.at_xid := '0'; w.at_id := 0; w.is_fresh := true;
  RETURN posthaste.with_bounds(w);
END $f$;

-- The window at the lane's cursor, or the next one if that is exhausted. The holder of the lane
-- passes the current snapshot. For others it is taken after the cursor was read: if the cursor
-- moved between, it would be after its own window's end, and rows would be claimed twice.
CREATE OR REPLACE FUNCTION posthaste.window_0(p_queue text, p_priority integer, p_now pg_snapshot)
RETURNS posthaste.lane_window LANGUAGE plpgsql AS $f$
#variable_conflict use_column
DECLARE
  w posthaste.lane_window;
  v_exhausted boolean;
BEGIN
  SELECT batch, lo, hi, to_xid, to_id, exhausted INTO w.batch, w.lo, w.hi, w.at_xid,
         w.at_id, v_exhausted
    FROM posthaste.claim_0 WHERE queue = p_queue AND priority = p_priority
      ORDER BY queue DESC, priority DESC, batch DESC LIMIT 1;
  IF NOT FOUND THEN
    w.batch := 0; w.hi := '1:1:'; v_exhausted := true;
  END IF;
  IF v_exhausted THEN
    RETURN posthaste.next_window(w, coalesce(p_now, posthaste.cursor_snapshot()));
  END IF;
  w.is_fresh := false;
  RETURN posthaste.with_bounds(w);
END $f$;
CREATE OR REPLACE FUNCTION posthaste.window_1(p_queue text, p_priority integer, p_now pg_snapshot)
RETURNS posthaste.lane_window LANGUAGE plpgsql AS $f$
#variable_conflict use_column
DECLARE
  w posthaste.lane_window;
  v_exhausted boolean;
BEGIN
  SELECT batch, lo, hi, to_xid, to_id, exhausted INTO w.batch, w.lo, w.hi, w.at_xid,
         w.at_id, v_exhausted
    FROM posthaste.claim_1 WHERE queue = p_queue AND priority = p_priority
      ORDER BY queue DESC, priority DESC, batch DESC LIMIT 1;
  IF NOT FOUND THEN
    w.batch := 0; w.hi := '1:1:'; v_exhausted := true;
  END IF;
  IF v_exhausted THEN
    RETURN posthaste.next_window(w, coalesce(p_now, posthaste.cursor_snapshot()));
  END IF;
  w.is_fresh := false;
  RETURN posthaste.with_bounds(w);
END $f$;
CREATE OR REPLACE FUNCTION posthaste.window_2(p_queue text, p_priority integer, p_now pg_snapshot)
RETURNS posthaste.lane_window LANGUAGE plpgsql AS $f$
#variable_conflict use_column
DECLARE
  w posthaste.lane_window;
  v_exhausted boolean;
BEGIN
  SELECT batch, lo, hi, to_xid, to_id, exhausted INTO w.batch, w.lo, w.hi, w.at_xid,
         w.at_id, v_exhausted
    FROM posthaste.claim_2 WHERE queue = p_queue AND priority = p_priority
      ORDER BY queue DESC, priority DESC, batch DESC LIMIT 1;
  IF NOT FOUND THEN
    w.batch := 0; w.hi := '1:1:'; v_exhausted := true;
  END IF;
  IF v_exhausted THEN
    RETURN posthaste.next_window(w, coalesce(p_now, posthaste.cursor_snapshot()));
  END IF;
  w.is_fresh := false;
  RETURN posthaste.with_bounds(w);
END $f$;
CREATE OR REPLACE FUNCTION posthaste.window_3(p_queue text, p_priority integer, p_now pg_snapshot)
RETURNS posthaste.lane_window LANGUAGE plpgsql AS $f$
#variable_conflict use_column
DECLARE
  w posthaste.lane_window;
  v_exhausted boolean;
BEGIN
  SELECT batch, lo, hi, to_xid, to_id, exhausted INTO w.batch, w.lo, w.hi, w.at_xid,
         w.at_id, v_exhausted
    FROM posthaste.claim_3 WHERE queue = p_queue AND priority = p_priority
      ORDER BY queue DESC, priority DESC, batch DESC LIMIT 1;
  IF NOT FOUND THEN
    w.batch := 0; w.hi := '1:1:'; v_exhausted := true;
  END IF;
  IF v_exhausted THEN
    RETURN posthaste.next_window(w, coalesce(p_now, posthaste.cursor_snapshot()));
  END IF;
  w.is_fresh := false;
  RETURN posthaste.with_bounds(w);
END $f$;
CREATE OR REPLACE FUNCTION posthaste.window_4(p_queue text, p_priority integer, p_now pg_snapshot)
RETURNS posthaste.lane_window LANGUAGE plpgsql AS $f$
#variable_conflict use_column
DECLARE
  w posthaste.lane_window;
  v_exhausted boolean;
BEGIN
  SELECT batch, lo, hi, to_xid, to_id, exhausted INTO w.batch, w.lo, w.hi, w.at_xid,
         w.at_id, v_exhausted
    FROM posthaste.claim_4 WHERE queue = p_queue AND priority = p_priority
      ORDER BY queue DESC, priority DESC, batch DESC LIMIT 1;
  IF NOT FOUND THEN
    w.batch := 0; w.hi := '1:1:'; v_exhausted := true;
  END IF;
  IF v_exhausted THEN
    RETURN posthaste.next_window(w, coalesce(p_now, posthaste.cursor_snapshot()));
  END IF;
  w.is_fresh := false;
  RETURN posthaste.with_bounds(w);
END $f$;
CREATE OR REPLACE FUNCTION posthaste.window_5(p_queue text, p_priority integer, p_now pg_snapshot)
RETURNS posthaste.lane_window LANGUAGE plpgsql AS $f$
#variable_conflict use_column
DECLARE
  w posthaste.lane_window;
  v_exhausted boolean;
BEGIN
  SELECT batch, lo, hi, to_xid, to_id, exhausted INTO w.batch, w.lo, w.hi, w.at_xid,
         w.at_id, v_exhausted
    FROM posthaste.claim_5 WHERE queue = p_queue AND priority = p_priority
      ORDER BY queue DESC, priority DESC, batch DESC LIMIT 1;
  IF NOT FOUND THEN
    w.batch := 0; w.hi := '1:1:'; v_exhausted := true;
  END IF;
  IF v_exhausted THEN
    RETURN posthaste.next_window(w, coalesce(p_now, posthaste.cursor_snapshot()));
  END IF;
  w.is_fresh := false;
  RETURN posthaste.with_bounds(w);
END $f$;

-- Whether this window has unclaimed rows.
CREATE OR REPLACE FUNCTION posthaste.window_has_rows_0(
  p_queue text, p_priority integer, w posthaste.lane_window)
RETURNS boolean LANGUAGE plpgsql AS $f$
BEGIN
  IF EXISTS (SELECT FROM posthaste.ready_0 r
              WHERE r.queue = p_queue AND r.priority = p_priority
                AND (r.xid, r.id) > (w.from_xid, w.from_id) AND r.xid < pg_snapshot_xmax(w.hi)
                AND pg_visible_in_snapshot(r.xid, w.hi)) THEN
    RETURN true;
  END IF;
  RETURN cardinality(w.late) > 0 AND EXISTS (
    SELECT FROM unnest(w.late) p, LATERAL (
      SELECT FROM posthaste.ready_0 r
        WHERE r.queue = p_queue AND r.priority = p_priority AND r.xid = p
         AND r.id > CASE WHEN p = w.at_xid THEN w.at_id ELSE -1 END LIMIT 1) late);
END $f$;
CREATE OR REPLACE FUNCTION posthaste.window_has_rows_1(
  p_queue text, p_priority integer, w posthaste.lane_window)
RETURNS boolean LANGUAGE plpgsql AS $f$
BEGIN
  IF EXISTS (SELECT FROM posthaste.ready_1 r
              WHERE r.queue = p_queue AND r.priority = p_priority
                AND (r.xid, r.id) > (w.from_xid, w.from_id) AND r.xid < pg_snapshot_xmax(w.hi)
                AND pg_visible_in_snapshot(r.xid, w.hi)) THEN
    RETURN true;
  END IF;
  RETURN cardinality(w.late) > 0 AND EXISTS (
    SELECT FROM unnest(w.late) p, LATERAL (
      SELECT FROM posthaste.ready_1 r
        WHERE r.queue = p_queue AND r.priority = p_priority AND r.xid = p
         AND r.id > CASE WHEN p = w.at_xid THEN w.at_id ELSE -1 END LIMIT 1) late);
END $f$;
CREATE OR REPLACE FUNCTION posthaste.window_has_rows_2(
  p_queue text, p_priority integer, w posthaste.lane_window)
RETURNS boolean LANGUAGE plpgsql AS $f$
BEGIN
  IF EXISTS (SELECT FROM posthaste.ready_2 r
              WHERE r.queue = p_queue AND r.priority = p_priority
                AND (r.xid, r.id) > (w.from_xid, w.from_id) AND r.xid < pg_snapshot_xmax(w.hi)
                AND pg_visible_in_snapshot(r.xid, w.hi)) THEN
    RETURN true;
  END IF;
  RETURN cardinality(w.late) > 0 AND EXISTS (
    SELECT FROM unnest(w.late) p, LATERAL (
      SELECT FROM posthaste.ready_2 r
        WHERE r.queue = p_queue AND r.priority = p_priority AND r.xid = p
         AND r.id > CASE WHEN p = w.at_xid THEN w.at_id ELSE -1 END LIMIT 1) late);
END $f$;
CREATE OR REPLACE FUNCTION posthaste.window_has_rows_3(
  p_queue text, p_priority integer, w posthaste.lane_window)
RETURNS boolean LANGUAGE plpgsql AS $f$
BEGIN
  IF EXISTS (SELECT FROM posthaste.ready_3 r
              WHERE r.queue = p_queue AND r.priority = p_priority
                AND (r.xid, r.id) > (w.from_xid, w.from_id) AND r.xid < pg_snapshot_xmax(w.hi)
                AND pg_visible_in_snapshot(r.xid, w.hi)) THEN
    RETURN true;
  END IF;
  RETURN cardinality(w.late) > 0 AND EXISTS (
    SELECT FROM unnest(w.late) p, LATERAL (
      SELECT FROM posthaste.ready_3 r
        WHERE r.queue = p_queue AND r.priority = p_priority AND r.xid = p
         AND r.id > CASE WHEN p = w.at_xid THEN w.at_id ELSE -1 END LIMIT 1) late);
END $f$;
CREATE OR REPLACE FUNCTION posthaste.window_has_rows_4(
  p_queue text, p_priority integer, w posthaste.lane_window)
RETURNS boolean LANGUAGE plpgsql AS $f$
BEGIN
  IF EXISTS (SELECT FROM posthaste.ready_4 r
              WHERE r.queue = p_queue AND r.priority = p_priority
                AND (r.xid, r.id) > (w.from_xid, w.from_id) AND r.xid < pg_snapshot_xmax(w.hi)
                AND pg_visible_in_snapshot(r.xid, w.hi)) THEN
    RETURN true;
  END IF;
  RETURN cardinality(w.late) > 0 AND EXISTS (
    SELECT FROM unnest(w.late) p, LATERAL (
      SELECT FROM posthaste.ready_4 r
        WHERE r.queue = p_queue AND r.priority = p_priority AND r.xid = p
         AND r.id > CASE WHEN p = w.at_xid THEN w.at_id ELSE -1 END LIMIT 1) late);
END $f$;
CREATE OR REPLACE FUNCTION posthaste.window_has_rows_5(
  p_queue text, p_priority integer, w posthaste.lane_window)
RETURNS boolean LANGUAGE plpgsql AS $f$
BEGIN
  IF EXISTS (SELECT FROM posthaste.ready_5 r
              WHERE r.queue = p_queue AND r.priority = p_priority
                AND (r.xid, r.id) > (w.from_xid, w.from_id) AND r.xid < pg_snapshot_xmax(w.hi)
                AND pg_visible_in_snapshot(r.xid, w.hi)) THEN
    RETURN true;
  END IF;
  RETURN cardinality(w.late) > 0 AND EXISTS (
    SELECT FROM unnest(w.late) p, LATERAL (
      SELECT FROM posthaste.ready_5 r
        WHERE r.queue = p_queue AND r.priority = p_priority AND r.xid = p
         AND r.id > CASE WHEN p = w.at_xid THEN w.at_id ELSE -1 END LIMIT 1) late);
END $f$;

-- The extent of a batch: its last row, its number of rows, their bytes, and whether some have
-- expired. o_first_id: the id of its first row if all its rows are of one transaction, else NULL.
-- Only the columns for that decision are read: the jobs themselves are read once, when they are
-- handed out. With p_expired it ends before the first job that has not expired. Without
-- transactions that committed late, one statement reads the batch, unless it has too many bytes.
CREATE OR REPLACE FUNCTION posthaste.batch_extent_0(
  p_queue text, p_priority integer, w posthaste.lane_window, p_limit integer, p_bytes bigint,
  p_expired boolean, OUT o_xid xid8, OUT o_id bigint, OUT o_n integer, OUT o_bytes bigint,
  OUT o_mixed boolean, OUT o_first_id bigint)
LANGUAGE plpgsql AS $f$
DECLARE
  v_end xid8 := pg_snapshot_xmax(w.hi);
  v_hi pg_snapshot := w.hi;
  v_size bigint;
  v_expired boolean;
  v_xids xid8[]; v_ids bigint[];
BEGIN
  IF cardinality(w.late) = 0 AND NOT p_expired THEN
    SELECT count(*), coalesce(sum(r.kwargs_bytes), 0), coalesce(bool_or(r.expired), false),
           array_agg(r.xid), array_agg(r.id)
      INTO o_n, o_bytes, o_mixed, v_xids, v_ids
      FROM (SELECT r.xid, r.id, r.kwargs_bytes, r.expires_at <= clock_timestamp() AS expired
              FROM posthaste.ready_0 r
             WHERE r.queue = p_queue AND r.priority = p_priority
               AND (r.xid, r.id) > (w.from_xid, w.from_id) AND r.xid < v_end
               AND pg_visible_in_snapshot(r.xid, v_hi)
             ORDER BY r.queue, r.priority, r.xid, r.id LIMIT p_limit) r;
    IF o_bytes < p_bytes THEN
      o_xid := v_xids[o_n]; o_id := v_ids[o_n];
      o_first_id := CASE WHEN v_xids[1] = o_xid THEN v_ids[1] END;
      RETURN;
    END IF;
  END IF;
  o_n := 0; o_bytes := 0; o_mixed := p_expired;
  FOR o_xid, o_id, v_size, v_expired IN
    SELECT * FROM (
      SELECT late.* FROM unnest(w.late) p, LATERAL (
        SELECT r.xid, r.id, r.kwargs_bytes, r.expires_at <= clock_timestamp()
          FROM posthaste.ready_0 r
         WHERE r.queue = p_queue AND r.priority = p_priority AND r.xid = p
           AND r.id > CASE WHEN p = w.at_xid THEN w.at_id ELSE -1 END
             ORDER BY r.queue, r.priority, r.xid, r.id LIMIT p_limit) late
      UNION ALL
      (SELECT r.xid, r.id, r.kwargs_bytes, r.expires_at <= clock_timestamp()
          FROM posthaste.ready_0 r
        WHERE r.queue = p_queue AND r.priority = p_priority
          AND (r.xid, r.id) > (w.from_xid, w.from_id) AND r.xid < v_end
          AND pg_visible_in_snapshot(r.xid, v_hi)
        ORDER BY r.queue, r.priority, r.xid, r.id LIMIT p_limit)
    ) both_parts ORDER BY xid, id LIMIT p_limit
  LOOP
    IF v_expired <> p_expired THEN
      IF p_expired THEN
        o_id := o_id - 1;
        EXIT;
      END IF;
      o_mixed := true;
    END IF;
    o_n := o_n + 1;
    o_bytes := o_bytes + v_size;
    EXIT WHEN o_bytes >= p_bytes;
  END LOOP;
END $f$;
CREATE OR REPLACE FUNCTION posthaste.batch_extent_1(
  p_queue text, p_priority integer, w posthaste.lane_window, p_limit integer, p_bytes bigint,
  p_expired boolean, OUT o_xid xid8, OUT o_id bigint, OUT o_n integer, OUT o_bytes bigint,
  OUT o_mixed boolean, OUT o_first_id bigint)
LANGUAGE plpgsql AS $f$
DECLARE
  v_end xid8 := pg_snapshot_xmax(w.hi);
  v_hi pg_snapshot := w.hi;
  v_size bigint;
  v_expired boolean;
  v_xids xid8[]; v_ids bigint[];
BEGIN
  IF cardinality(w.late) = 0 AND NOT p_expired THEN
    SELECT count(*), coalesce(sum(r.kwargs_bytes), 0), coalesce(bool_or(r.expired), false),
           array_agg(r.xid), array_agg(r.id)
      INTO o_n, o_bytes, o_mixed, v_xids, v_ids
      FROM (SELECT r.xid, r.id, r.kwargs_bytes, r.expires_at <= clock_timestamp() AS expired
              FROM posthaste.ready_1 r
             WHERE r.queue = p_queue AND r.priority = p_priority
               AND (r.xid, r.id) > (w.from_xid, w.from_id) AND r.xid < v_end
               AND pg_visible_in_snapshot(r.xid, v_hi)
             ORDER BY r.queue, r.priority, r.xid, r.id LIMIT p_limit) r;
    IF o_bytes < p_bytes THEN
      o_xid := v_xids[o_n]; o_id := v_ids[o_n];
      o_first_id := CASE WHEN v_xids[1] = o_xid THEN v_ids[1] END;
      RETURN;
    END IF;
  END IF;
  o_n := 0; o_bytes := 0; o_mixed := p_expired;
  FOR o_xid, o_id, v_size, v_expired IN
    SELECT * FROM (
      SELECT late.* FROM unnest(w.late) p, LATERAL (
        SELECT r.xid, r.id, r.kwargs_bytes, r.expires_at <= clock_timestamp()
          FROM posthaste.ready_1 r
         WHERE r.queue = p_queue AND r.priority = p_priority AND r.xid = p
           AND r.id > CASE WHEN p = w.at_xid THEN w.at_id ELSE -1 END
             ORDER BY r.queue, r.priority, r.xid, r.id LIMIT p_limit) late
      UNION ALL
      (SELECT r.xid, r.id, r.kwargs_bytes, r.expires_at <= clock_timestamp()
          FROM posthaste.ready_1 r
        WHERE r.queue = p_queue AND r.priority = p_priority
          AND (r.xid, r.id) > (w.from_xid, w.from_id) AND r.xid < v_end
          AND pg_visible_in_snapshot(r.xid, v_hi)
        ORDER BY r.queue, r.priority, r.xid, r.id LIMIT p_limit)
    ) both_parts ORDER BY xid, id LIMIT p_limit
  LOOP
    IF v_expired <> p_expired THEN
      IF p_expired THEN
        o_id := o_id - 1;
        EXIT;
      END IF;
      o_mixed := true;
    END IF;
    o_n := o_n + 1;
    o_bytes := o_bytes + v_size;
    EXIT WHEN o_bytes >= p_bytes;
  END LOOP;
END $f$;
CREATE OR REPLACE FUNCTION posthaste.batch_extent_2(
  p_queue text, p_priority integer, w posthaste.lane_window, p_limit integer, p_bytes bigint,
  p_expired boolean, OUT o_xid xid8, OUT o_id bigint, OUT o_n integer, OUT o_bytes bigint,
  OUT o_mixed boolean, OUT o_first_id bigint)
LANGUAGE plpgsql AS $f$
DECLARE
  v_end xid8 := pg_snapshot_xmax(w.hi);
  v_hi pg_snapshot := w.hi;
  v_size bigint;
  v_expired boolean;
  v_xids xid8[]; v_ids bigint[];
BEGIN
  IF cardinality(w.late) = 0 AND NOT p_expired THEN
    SELECT count(*), coalesce(sum(r.kwargs_bytes), 0), coalesce(bool_or(r.expired), false),
           array_agg(r.xid), array_agg(r.id)
      INTO o_n, o_bytes, o_mixed, v_xids, v_ids
      FROM (SELECT r.xid, r.id, r.kwargs_bytes, r.expires_at <= clock_timestamp() AS expired
              FROM posthaste.ready_2 r
             WHERE r.queue = p_queue AND r.priority = p_priority
               AND (r.xid, r.id) > (w.from_xid, w.from_id) AND r.xid < v_end
               AND pg_visible_in_snapshot(r.xid, v_hi)
             ORDER BY r.queue, r.priority, r.xid, r.id LIMIT p_limit) r;
    IF o_bytes < p_bytes THEN
      o_xid := v_xids[o_n]; o_id := v_ids[o_n];
      o_first_id := CASE WHEN v_xids[1] = o_xid THEN v_ids[1] END;
      RETURN;
    END IF;
  END IF;
  o_n := 0; o_bytes := 0; o_mixed := p_expired;
  FOR o_xid, o_id, v_size, v_expired IN
    SELECT * FROM (
      SELECT late.* FROM unnest(w.late) p, LATERAL (
        SELECT r.xid, r.id, r.kwargs_bytes, r.expires_at <= clock_timestamp()
          FROM posthaste.ready_2 r
         WHERE r.queue = p_queue AND r.priority = p_priority AND r.xid = p
           AND r.id > CASE WHEN p = w.at_xid THEN w.at_id ELSE -1 END
             ORDER BY r.queue, r.priority, r.xid, r.id LIMIT p_limit) late
      UNION ALL
      (SELECT r.xid, r.id, r.kwargs_bytes, r.expires_at <= clock_timestamp()
          FROM posthaste.ready_2 r
        WHERE r.queue = p_queue AND r.priority = p_priority
          AND (r.xid, r.id) > (w.from_xid, w.from_id) AND r.xid < v_end
          AND pg_visible_in_snapshot(r.xid, v_hi)
        ORDER BY r.queue, r.priority, r.xid, r.id LIMIT p_limit)
    ) both_parts ORDER BY xid, id LIMIT p_limit
  LOOP
    IF v_expired <> p_expired THEN
      IF p_expired THEN
        o_id := o_id - 1;
        EXIT;
      END IF;
      o_mixed := true;
    END IF;
    o_n := o_n + 1;
    o_bytes := o_bytes + v_size;
    EXIT WHEN o_bytes >= p_bytes;
  END LOOP;
END $f$;
CREATE OR REPLACE FUNCTION posthaste.batch_extent_3(
  p_queue text, p_priority integer, w posthaste.lane_window, p_limit integer, p_bytes bigint,
  p_expired boolean, OUT o_xid xid8, OUT o_id bigint, OUT o_n integer, OUT o_bytes bigint,
  OUT o_mixed boolean, OUT o_first_id bigint)
LANGUAGE plpgsql AS $f$
DECLARE
  v_end xid8 := pg_snapshot_xmax(w.hi);
  v_hi pg_snapshot := w.hi;
  v_size bigint;
  v_expired boolean;
  v_xids xid8[]; v_ids bigint[];
BEGIN
  IF cardinality(w.late) = 0 AND NOT p_expired THEN
    SELECT count(*), coalesce(sum(r.kwargs_bytes), 0), coalesce(bool_or(r.expired), false),
           array_agg(r.xid), array_agg(r.id)
      INTO o_n, o_bytes, o_mixed, v_xids, v_ids
      FROM (SELECT r.xid, r.id, r.kwargs_bytes, r.expires_at <= clock_timestamp() AS expired
              FROM posthaste.ready_3 r
             WHERE r.queue = p_queue AND r.priority = p_priority
               AND (r.xid, r.id) > (w.from_xid, w.from_id) AND r.xid < v_end
               AND pg_visible_in_snapshot(r.xid, v_hi)
             ORDER BY r.queue, r.priority, r.xid, r.id LIMIT p_limit) r;
    IF o_bytes < p_bytes THEN
      o_xid := v_xids[o_n]; o_id := v_ids[o_n];
      o_first_id := CASE WHEN v_xids[1] = o_xid THEN v_ids[1] END;
      RETURN;
    END IF;
  END IF;
  o_n := 0; o_bytes := 0; o_mixed := p_expired;
  FOR o_xid, o_id, v_size, v_expired IN
    SELECT * FROM (
      SELECT late.* FROM unnest(w.late) p, LATERAL (
        SELECT r.xid, r.id, r.kwargs_bytes, r.expires_at <= clock_timestamp()
          FROM posthaste.ready_3 r
         WHERE r.queue = p_queue AND r.priority = p_priority AND r.xid = p
           AND r.id > CASE WHEN p = w.at_xid THEN w.at_id ELSE -1 END
             ORDER BY r.queue, r.priority, r.xid, r.id LIMIT p_limit) late
      UNION ALL
      (SELECT r.xid, r.id, r.kwargs_bytes, r.expires_at <= clock_timestamp()
          FROM posthaste.ready_3 r
        WHERE r.queue = p_queue AND r.priority = p_priority
          AND (r.xid, r.id) > (w.from_xid, w.from_id) AND r.xid < v_end
          AND pg_visible_in_snapshot(r.xid, v_hi)
        ORDER BY r.queue, r.priority, r.xid, r.id LIMIT p_limit)
    ) both_parts ORDER BY xid, id LIMIT p_limit
  LOOP
    IF v_expired <> p_expired THEN
      IF p_expired THEN
        o_id := o_id - 1;
        EXIT;
      END IF;
      o_mixed := true;
    END IF;
    o_n := o_n + 1;
    o_bytes := o_bytes + v_size;
    EXIT WHEN o_bytes >= p_bytes;
  END LOOP;
END $f$;
CREATE OR REPLACE FUNCTION posthaste.batch_extent_4(
  p_queue text, p_priority integer, w posthaste.lane_window, p_limit integer, p_bytes bigint,
  p_expired boolean, OUT o_xid xid8, OUT o_id bigint, OUT o_n integer, OUT o_bytes bigint,
  OUT o_mixed boolean, OUT o_first_id bigint)
LANGUAGE plpgsql AS $f$
DECLARE
  v_end xid8 := pg_snapshot_xmax(w.hi);
  v_hi pg_snapshot := w.hi;
  v_size bigint;
  v_expired boolean;
  v_xids xid8[]; v_ids bigint[];
BEGIN
  IF cardinality(w.late) = 0 AND NOT p_expired THEN
    SELECT count(*), coalesce(sum(r.kwargs_bytes), 0), coalesce(bool_or(r.expired), false),
           array_agg(r.xid), array_agg(r.id)
      INTO o_n, o_bytes, o_mixed, v_xids, v_ids
      FROM (SELECT r.xid, r.id, r.kwargs_bytes, r.expires_at <= clock_timestamp() AS expired
              FROM posthaste.ready_4 r
             WHERE r.queue = p_queue AND r.priority = p_priority
               AND (r.xid, r.id) > (w.from_xid, w.from_id) AND r.xid < v_end
               AND pg_visible_in_snapshot(r.xid, v_hi)
             ORDER BY r.queue, r.priority, r.xid, r.id LIMIT p_limit) r;
    IF o_bytes < p_bytes THEN
      o_xid := v_xids[o_n]; o_id := v_ids[o_n];
      o_first_id := CASE WHEN v_xids[1] = o_xid THEN v_ids[1] END;
      RETURN;
    END IF;
  END IF;
  o_n := 0; o_bytes := 0; o_mixed := p_expired;
  FOR o_xid, o_id, v_size, v_expired IN
    SELECT * FROM (
      SELECT late.* FROM unnest(w.late) p, LATERAL (
        SELECT r.xid, r.id, r.kwargs_bytes, r.expires_at <= clock_timestamp()
          FROM posthaste.ready_4 r
         WHERE r.queue = p_queue AND r.priority = p_priority AND r.xid = p
           AND r.id > CASE WHEN p = w.at_xid THEN w.at_id ELSE -1 END
             ORDER BY r.queue, r.priority, r.xid, r.id LIMIT p_limit) late
      UNION ALL
      (SELECT r.xid, r.id, r.kwargs_bytes, r.expires_at <= clock_timestamp()
          FROM posthaste.ready_4 r
        WHERE r.queue = p_queue AND r.priority = p_priority
          AND (r.xid, r.id) > (w.from_xid, w.from_id) AND r.xid < v_end
          AND pg_visible_in_snapshot(r.xid, v_hi)
        ORDER BY r.queue, r.priority, r.xid, r.id LIMIT p_limit)
    ) both_parts ORDER BY xid, id LIMIT p_limit
  LOOP
    IF v_expired <> p_expired THEN
      IF p_expired THEN
        o_id := o_id - 1;
        EXIT;
      END IF;
      o_mixed := true;
    END IF;
    o_n := o_n + 1;
    o_bytes := o_bytes + v_size;
    EXIT WHEN o_bytes >= p_bytes;
  END LOOP;
END $f$;
CREATE OR REPLACE FUNCTION posthaste.batch_extent_5(
  p_queue text, p_priority integer, w posthaste.lane_window, p_limit integer, p_bytes bigint,
  p_expired boolean, OUT o_xid xid8, OUT o_id bigint, OUT o_n integer, OUT o_bytes bigint,
  OUT o_mixed boolean, OUT o_first_id bigint)
LANGUAGE plpgsql AS $f$
DECLARE
  v_end xid8 := pg_snapshot_xmax(w.hi);
  v_hi pg_snapshot := w.hi;
  v_size bigint;
  v_expired boolean;
  v_xids xid8[]; v_ids bigint[];
BEGIN
  IF cardinality(w.late) = 0 AND NOT p_expired THEN
    SELECT count(*), coalesce(sum(r.kwargs_bytes), 0), coalesce(bool_or(r.expired), false),
           array_agg(r.xid), array_agg(r.id)
      INTO o_n, o_bytes, o_mixed, v_xids, v_ids
      FROM (SELECT r.xid, r.id, r.kwargs_bytes, r.expires_at <= clock_timestamp() AS expired
              FROM posthaste.ready_5 r
             WHERE r.queue = p_queue AND r.priority = p_priority
               AND (r.xid, r.id) > (w.from_xid, w.from_id) AND r.xid < v_end
               AND pg_visible_in_snapshot(r.xid, v_hi)
             ORDER BY r.queue, r.priority, r.xid, r.id LIMIT p_limit) r;
    IF o_bytes < p_bytes THEN
      o_xid := v_xids[o_n]; o_id := v_ids[o_n];
      o_first_id := CASE WHEN v_xids[1] = o_xid THEN v_ids[1] END;
      RETURN;
    END IF;
  END IF;
  o_n := 0; o_bytes := 0; o_mixed := p_expired;
  FOR o_xid, o_id, v_size, v_expired IN
    SELECT * FROM (
      SELECT late.* FROM unnest(w.late) p, LATERAL (
        SELECT r.xid, r.id, r.kwargs_bytes, r.expires_at <= clock_timestamp()
          FROM posthaste.ready_5 r
         WHERE r.queue = p_queue AND r.priority = p_priority AND r.xid = p
           AND r.id > CASE WHEN p = w.at_xid THEN w.at_id ELSE -1 END
             ORDER BY r.queue, r.priority, r.xid, r.id LIMIT p_limit) late
      UNION ALL
      (SELECT r.xid, r.id, r.kwargs_bytes, r.expires_at <= clock_timestamp()
          FROM posthaste.ready_5 r
        WHERE r.queue = p_queue AND r.priority = p_priority
          AND (r.xid, r.id) > (w.from_xid, w.from_id) AND r.xid < v_end
          AND pg_visible_in_snapshot(r.xid, v_hi)
        ORDER BY r.queue, r.priority, r.xid, r.id LIMIT p_limit)
    ) both_parts ORDER BY xid, id LIMIT p_limit
  LOOP
    IF v_expired <> p_expired THEN
      IF p_expired THEN
        o_id := o_id - 1;
        EXIT;
      END IF;
      o_mixed := true;
    END IF;
    o_n := o_n + 1;
    o_bytes := o_bytes + v_size;
    EXIT WHEN o_bytes >= p_bytes;
  END LOOP;
END $f$;

-- Moves a lane's cursor past an empty window.
CREATE OR REPLACE FUNCTION posthaste.skip_window_0(
  p_queue text, p_priority integer, p_worker bigint, w posthaste.lane_window)
RETURNS void LANGUAGE plpgsql AS $f$
BEGIN
  -- Two statements: the cursor must be read with a snapshot taken after the lock.
  IF NOT pg_try_advisory_xact_lock(1885893475, posthaste.lane_key(p_queue, p_priority)) THEN
    RETURN;
  END IF;
  IF w.batch = (SELECT n.batch FROM posthaste.window_0(p_queue, p_priority, NULL) n) THEN
    INSERT INTO posthaste.claim_0 (batch, worker, queue, priority, token, lo, hi, from_xid, from_id,
        to_xid, to_id, n, exhausted)
    VALUES (nextval('posthaste.batch_id'), p_worker, p_queue, p_priority, gen_random_uuid(), w.lo,
        w.hi, '0', 0, '0', 0, 0, true);
  END IF;
END $f$;
CREATE OR REPLACE FUNCTION posthaste.skip_window_1(
  p_queue text, p_priority integer, p_worker bigint, w posthaste.lane_window)
RETURNS void LANGUAGE plpgsql AS $f$
BEGIN
  -- Two statements: the cursor must be read with a snapshot taken after the lock.
  IF NOT pg_try_advisory_xact_lock(1885893475, posthaste.lane_key(p_queue, p_priority)) THEN
    RETURN;
  END IF;
  IF w.batch = (SELECT n.batch FROM posthaste.window_1(p_queue, p_priority, NULL) n) THEN
    INSERT INTO posthaste.claim_1 (batch, worker, queue, priority, token, lo, hi, from_xid, from_id,
        to_xid, to_id, n, exhausted)
    VALUES (nextval('posthaste.batch_id'), p_worker, p_queue, p_priority, gen_random_uuid(), w.lo,
        w.hi, '0', 0, '0', 0, 0, true);
  END IF;
END $f$;
CREATE OR REPLACE FUNCTION posthaste.skip_window_2(
  p_queue text, p_priority integer, p_worker bigint, w posthaste.lane_window)
RETURNS void LANGUAGE plpgsql AS $f$
BEGIN
  -- Two statements: the cursor must be read with a snapshot taken after the lock.
  IF NOT pg_try_advisory_xact_lock(1885893475, posthaste.lane_key(p_queue, p_priority)) THEN
    RETURN;
  END IF;
  IF w.batch = (SELECT n.batch FROM posthaste.window_2(p_queue, p_priority, NULL) n) THEN
    INSERT INTO posthaste.claim_2 (batch, worker, queue, priority, token, lo, hi, from_xid, from_id,
        to_xid, to_id, n, exhausted)
    VALUES (nextval('posthaste.batch_id'), p_worker, p_queue, p_priority, gen_random_uuid(), w.lo,
        w.hi, '0', 0, '0', 0, 0, true);
  END IF;
END $f$;
CREATE OR REPLACE FUNCTION posthaste.skip_window_3(
  p_queue text, p_priority integer, p_worker bigint, w posthaste.lane_window)
RETURNS void LANGUAGE plpgsql AS $f$
BEGIN
  -- Two statements: the cursor must be read with a snapshot taken after the lock.
  IF NOT pg_try_advisory_xact_lock(1885893475, posthaste.lane_key(p_queue, p_priority)) THEN
    RETURN;
  END IF;
  IF w.batch = (SELECT n.batch FROM posthaste.window_3(p_queue, p_priority, NULL) n) THEN
    INSERT INTO posthaste.claim_3 (batch, worker, queue, priority, token, lo, hi, from_xid, from_id,
        to_xid, to_id, n, exhausted)
    VALUES (nextval('posthaste.batch_id'), p_worker, p_queue, p_priority, gen_random_uuid(), w.lo,
        w.hi, '0', 0, '0', 0, 0, true);
  END IF;
END $f$;
CREATE OR REPLACE FUNCTION posthaste.skip_window_4(
  p_queue text, p_priority integer, p_worker bigint, w posthaste.lane_window)
RETURNS void LANGUAGE plpgsql AS $f$
BEGIN
  -- Two statements: the cursor must be read with a snapshot taken after the lock.
  IF NOT pg_try_advisory_xact_lock(1885893475, posthaste.lane_key(p_queue, p_priority)) THEN
    RETURN;
  END IF;
  IF w.batch = (SELECT n.batch FROM posthaste.window_4(p_queue, p_priority, NULL) n) THEN
    INSERT INTO posthaste.claim_4 (batch, worker, queue, priority, token, lo, hi, from_xid, from_id,
        to_xid, to_id, n, exhausted)
    VALUES (nextval('posthaste.batch_id'), p_worker, p_queue, p_priority, gen_random_uuid(), w.lo,
        w.hi, '0', 0, '0', 0, 0, true);
  END IF;
END $f$;
CREATE OR REPLACE FUNCTION posthaste.skip_window_5(
  p_queue text, p_priority integer, p_worker bigint, w posthaste.lane_window)
RETURNS void LANGUAGE plpgsql AS $f$
BEGIN
  -- Two statements: the cursor must be read with a snapshot taken after the lock.
  IF NOT pg_try_advisory_xact_lock(1885893475, posthaste.lane_key(p_queue, p_priority)) THEN
    RETURN;
  END IF;
  IF w.batch = (SELECT n.batch FROM posthaste.window_5(p_queue, p_priority, NULL) n) THEN
    INSERT INTO posthaste.claim_5 (batch, worker, queue, priority, token, lo, hi, from_xid, from_id,
        to_xid, to_id, n, exhausted)
    VALUES (nextval('posthaste.batch_id'), p_worker, p_queue, p_priority, gen_random_uuid(), w.lo,
        w.hi, '0', 0, '0', 0, 0, true);
  END IF;
END $f$;

-- The first priority of a queue, above p_above, with jobs in this slot.
CREATE OR REPLACE FUNCTION posthaste.next_priority_0(p_queue text, p_above bigint, p_below bigint)
RETURNS integer LANGUAGE sql STABLE AS $f$
  SELECT r.priority FROM posthaste.ready_0 r
   WHERE r.queue = p_queue AND r.priority > p_above AND r.priority < p_below
     ORDER BY r.queue, r.priority LIMIT 1
$f$;
CREATE OR REPLACE FUNCTION posthaste.next_priority_1(p_queue text, p_above bigint, p_below bigint)
RETURNS integer LANGUAGE sql STABLE AS $f$
  SELECT r.priority FROM posthaste.ready_1 r
   WHERE r.queue = p_queue AND r.priority > p_above AND r.priority < p_below
     ORDER BY r.queue, r.priority LIMIT 1
$f$;
CREATE OR REPLACE FUNCTION posthaste.next_priority_2(p_queue text, p_above bigint, p_below bigint)
RETURNS integer LANGUAGE sql STABLE AS $f$
  SELECT r.priority FROM posthaste.ready_2 r
   WHERE r.queue = p_queue AND r.priority > p_above AND r.priority < p_below
     ORDER BY r.queue, r.priority LIMIT 1
$f$;
CREATE OR REPLACE FUNCTION posthaste.next_priority_3(p_queue text, p_above bigint, p_below bigint)
RETURNS integer LANGUAGE sql STABLE AS $f$
  SELECT r.priority FROM posthaste.ready_3 r
   WHERE r.queue = p_queue AND r.priority > p_above AND r.priority < p_below
     ORDER BY r.queue, r.priority LIMIT 1
$f$;
CREATE OR REPLACE FUNCTION posthaste.next_priority_4(p_queue text, p_above bigint, p_below bigint)
RETURNS integer LANGUAGE sql STABLE AS $f$
  SELECT r.priority FROM posthaste.ready_4 r
   WHERE r.queue = p_queue AND r.priority > p_above AND r.priority < p_below
     ORDER BY r.queue, r.priority LIMIT 1
$f$;
CREATE OR REPLACE FUNCTION posthaste.next_priority_5(p_queue text, p_above bigint, p_below bigint)
RETURNS integer LANGUAGE sql STABLE AS $f$
  SELECT r.priority FROM posthaste.ready_5 r
   WHERE r.queue = p_queue AND r.priority > p_above AND r.priority < p_below
     ORDER BY r.queue, r.priority LIMIT 1
$f$;

-- Slots that may have unclaimed jobs, oldest first. Jobs in the overflow are older than the ready
-- log; of two overflow segments the newer one has the older jobs, because compaction moves a lane's
-- oldest jobs first. In plpgsql, which plans it once per session: a claim calls it twice.
CREATE OR REPLACE FUNCTION posthaste.scan_slots() RETURNS integer[] LANGUAGE plpgsql STABLE AS $f$
DECLARE
  v_slots integer[] := '{}';
  g bigint; v_end bigint;
BEGIN
  v_end := pg_sequence_last_value('posthaste.overflow_scan'::regclass);
  g := pg_sequence_last_value('posthaste.overflow_current'::regclass);
  WHILE g >= v_end LOOP
    v_slots := pg_catalog.array_append(v_slots, (4::bigint + g % 2::bigint)::integer);
    g := g - 1::bigint;
  END LOOP;
  g := pg_sequence_last_value('posthaste.ready_scan'::regclass);
  v_end := pg_sequence_last_value('posthaste.ready_current'::regclass);
  WHILE g <= v_end LOOP
    v_slots := pg_catalog.array_append(v_slots, (g % 4::bigint)::integer);
    g := g + 1::bigint;
  END LOOP;
  RETURN v_slots;
END $f$;

-- Whether the lane has unclaimed jobs in this slot, without a lock.
CREATE OR REPLACE FUNCTION posthaste.lane_has_work_0(
  p_queue text, p_priority integer, p_worker bigint)
RETURNS boolean LANGUAGE plpgsql AS $f$
DECLARE
  v_started timestamptz := clock_timestamp();
  w posthaste.lane_window := posthaste.window_0(p_queue, p_priority, NULL);
BEGIN
  WHILE NOT posthaste.window_has_rows_0(p_queue, p_priority, w) LOOP
    IF w.is_fresh THEN
      -- If an empty scan was slow (it read rows of an open or rolled-back bulk insert), the lane's
      -- cursor is moved past them, so that the next check does not read them again.
      IF clock_timestamp() - v_started > interval '2 ms' THEN
        PERFORM posthaste.skip_window_0(p_queue, p_priority, p_worker, w);
      END IF;
      RETURN false;
    END IF;
    w := posthaste.next_window(w, posthaste.cursor_snapshot());
  END LOOP;
  RETURN true;
END $f$;
CREATE OR REPLACE FUNCTION posthaste.lane_has_work_1(
  p_queue text, p_priority integer, p_worker bigint)
RETURNS boolean LANGUAGE plpgsql AS $f$
DECLARE
  v_started timestamptz := clock_timestamp();
  w posthaste.lane_window := posthaste.window_1(p_queue, p_priority, NULL);
BEGIN
  WHILE NOT posthaste.window_has_rows_1(p_queue, p_priority, w) LOOP
    IF w.is_fresh THEN
      -- If an empty scan was slow (it read rows of an open or rolled-back bulk insert), the lane's
      -- cursor is moved past them, so that the next check does not read them again.
      IF clock_timestamp() - v_started > interval '2 ms' THEN
        PERFORM posthaste.skip_window_1(p_queue, p_priority, p_worker, w);
      END IF;
      RETURN false;
    END IF;
    w := posthaste.next_window(w, posthaste.cursor_snapshot());
  END LOOP;
  RETURN true;
END $f$;
CREATE OR REPLACE FUNCTION posthaste.lane_has_work_2(
  p_queue text, p_priority integer, p_worker bigint)
RETURNS boolean LANGUAGE plpgsql AS $f$
DECLARE
  v_started timestamptz := clock_timestamp();
  w posthaste.lane_window := posthaste.window_2(p_queue, p_priority, NULL);
BEGIN
  WHILE NOT posthaste.window_has_rows_2(p_queue, p_priority, w) LOOP
    IF w.is_fresh THEN
      -- If an empty scan was slow (it read rows of an open or rolled-back bulk insert), the lane's
      -- cursor is moved past them, so that the next check does not read them again.
      IF clock_timestamp() - v_started > interval '2 ms' THEN
        PERFORM posthaste.skip_window_2(p_queue, p_priority, p_worker, w);
      END IF;
      RETURN false;
    END IF;
    w := posthaste.next_window(w, posthaste.cursor_snapshot());
  END LOOP;
  RETURN true;
END $f$;
CREATE OR REPLACE FUNCTION posthaste.lane_has_work_3(
  p_queue text, p_priority integer, p_worker bigint)
RETURNS boolean LANGUAGE plpgsql AS $f$
DECLARE
  v_started timestamptz := clock_timestamp();
  w posthaste.lane_window := posthaste.window_3(p_queue, p_priority, NULL);
BEGIN
  WHILE NOT posthaste.window_has_rows_3(p_queue, p_priority, w) LOOP
    IF w.is_fresh THEN
      -- If an empty scan was slow (it read rows of an open or rolled-back bulk insert), the lane's
      -- cursor is moved past them, so that the next check does not read them again.
      IF clock_timestamp() - v_started > interval '2 ms' THEN
        PERFORM posthaste.skip_window_3(p_queue, p_priority, p_worker, w);
      END IF;
      RETURN false;
    END IF;
    w := posthaste.next_window(w, posthaste.cursor_snapshot());
  END LOOP;
  RETURN true;
END $f$;
CREATE OR REPLACE FUNCTION posthaste.lane_has_work_4(
  p_queue text, p_priority integer, p_worker bigint)
RETURNS boolean LANGUAGE plpgsql AS $f$
DECLARE
  v_started timestamptz := clock_timestamp();
  w posthaste.lane_window := posthaste.window_4(p_queue, p_priority, NULL);
BEGIN
  WHILE NOT posthaste.window_has_rows_4(p_queue, p_priority, w) LOOP
    IF w.is_fresh THEN
      -- If an empty scan was slow (it read rows of an open or rolled-back bulk insert), the lane's
      -- cursor is moved past them, so that the next check does not read them again.
      IF clock_timestamp() - v_started > interval '2 ms' THEN
        PERFORM posthaste.skip_window_4(p_queue, p_priority, p_worker, w);
      END IF;
      RETURN false;
    END IF;
    w := posthaste.next_window(w, posthaste.cursor_snapshot());
  END LOOP;
  RETURN true;
END $f$;
CREATE OR REPLACE FUNCTION posthaste.lane_has_work_5(
  p_queue text, p_priority integer, p_worker bigint)
RETURNS boolean LANGUAGE plpgsql AS $f$
DECLARE
  v_started timestamptz := clock_timestamp();
  w posthaste.lane_window := posthaste.window_5(p_queue, p_priority, NULL);
BEGIN
  WHILE NOT posthaste.window_has_rows_5(p_queue, p_priority, w) LOOP
    IF w.is_fresh THEN
      -- If an empty scan was slow (it read rows of an open or rolled-back bulk insert), the lane's
      -- cursor is moved past them, so that the next check does not read them again.
      IF clock_timestamp() - v_started > interval '2 ms' THEN
        PERFORM posthaste.skip_window_5(p_queue, p_priority, p_worker, w);
      END IF;
      RETURN false;
    END IF;
    w := posthaste.next_window(w, posthaste.cursor_snapshot());
  END LOOP;
  RETURN true;
END $f$;

-- Whether the lane has unclaimed jobs, without a lock.
CREATE OR REPLACE FUNCTION posthaste.lane_has_work(
  p_queue text, p_priority integer, p_worker bigint)
RETURNS boolean LANGUAGE plpgsql
SET enable_seqscan = off SET enable_bitmapscan = off SET enable_hashjoin = off
SET enable_mergejoin = off SET jit = off SET plan_cache_mode = force_generic_plan AS $f$
DECLARE
  v_slot integer;
BEGIN
  FOREACH v_slot IN ARRAY posthaste.scan_slots() LOOP
    CASE v_slot
      WHEN 0 THEN IF posthaste.lane_has_work_0(p_queue, p_priority, p_worker) THEN
        RETURN true; END IF;
      WHEN 1 THEN IF posthaste.lane_has_work_1(p_queue, p_priority, p_worker) THEN
        RETURN true; END IF;
      WHEN 2 THEN IF posthaste.lane_has_work_2(p_queue, p_priority, p_worker) THEN
        RETURN true; END IF;
      WHEN 3 THEN IF posthaste.lane_has_work_3(p_queue, p_priority, p_worker) THEN
        RETURN true; END IF;
      WHEN 4 THEN IF posthaste.lane_has_work_4(p_queue, p_priority, p_worker) THEN
        RETURN true; END IF;
      WHEN 5 THEN IF posthaste.lane_has_work_5(p_queue, p_priority, p_worker) THEN
        RETURN true; END IF;
    END CASE;
  END LOOP;
  RETURN false;
END $f$;

-- Installed after the functions: views, rules, triggers, a default that calls a function, first
-- rows.

-- The store in which a worker registers, the only one in which it may claim.
ALTER TABLE posthaste.worker ALTER COLUMN identity SET DEFAULT posthaste.session_identity();

CREATE TRIGGER release_dead AFTER INSERT ON posthaste.dead REFERENCING NEW TABLE AS new_dead
  FOR EACH STATEMENT EXECUTE FUNCTION posthaste.release_dead();

CREATE TRIGGER note_routes AFTER INSERT ON posthaste.route FOR EACH STATEMENT
  EXECUTE FUNCTION posthaste.note_routes();

-- Every job that is not done, with its state: available, blocked (until its turn), scheduled,
-- retrying, running, awaiting, quarantined, expired, dead, discarded, cancelled. For people and
-- reports: it reads whole slots. It names each slot instead of the partitioned parent, so that a
-- reader locks only the tables that it reads. While a transaction that has read it is open,
-- segments are not truncated; claims are not affected.
CREATE VIEW posthaste.job (
  id, name, queue, priority, scheduled_at, expires_at, enqueued_at, tag, kwargs, unique_key,
  ordering_key, attempt, max_attempts, state, last_error, trace) AS
  SELECT r.id, r.name, coalesce(r.own_queue, r.queue), coalesce(r.own_priority, r.priority),
         r.scheduled_at, r.expires_at, r.enqueued_at, r.tag, r.kwargs,
         r.unique_key, r.ordering_key, r.attempt, r.max_attempts,
         CASE WHEN r.expires_at <= clock_timestamp() THEN 'expired' WHEN r.queue = '' THEN 'blocked'
             ELSE 'available' END, r.last_error, r.trace
    FROM posthaste.ready_0 r
    LEFT JOIN (SELECT DISTINCT ON (queue, priority) queue, priority, lo, hi,
                      to_xid, to_id, exhausted
                 FROM posthaste.claim_0 ORDER BY queue, priority, batch DESC) c
           ON (c.queue, c.priority) = (r.queue, r.priority)
   WHERE NOT EXISTS (SELECT FROM posthaste.closed_unclaimed_0 e
       WHERE (e.xid, e.id) = (r.xid, r.id)) AND (r.queue <> '' OR r.turn IS NULL)
     AND (c.queue IS NULL OR NOT (pg_visible_in_snapshot(r.xid, c.lo)
          OR (pg_visible_in_snapshot(r.xid, c.hi)
              AND (c.exhausted OR (r.xid, r.id) <= (c.to_xid, c.to_id)))))
  UNION ALL
  SELECT r.id, r.name, r.queue, r.priority, r.scheduled_at, r.expires_at, r.enqueued_at, r.tag,
         r.kwargs, r.unique_key, r.ordering_key, r.attempt, r.max_attempts, 'running', r.last_error,
         r.trace
    FROM posthaste.running_0() r
  UNION ALL
  SELECT r.id, r.name, coalesce(r.own_queue, r.queue), coalesce(r.own_priority, r.priority),
         r.scheduled_at, r.expires_at, r.enqueued_at, r.tag, r.kwargs,
         r.unique_key, r.ordering_key, r.attempt, r.max_attempts,
         CASE WHEN r.expires_at <= clock_timestamp() THEN 'expired' WHEN r.queue = '' THEN 'blocked'
             ELSE 'available' END, r.last_error, r.trace
    FROM posthaste.ready_1 r
    LEFT JOIN (SELECT DISTINCT ON (queue, priority) queue, priority, lo, hi,
                      to_xid, to_id, exhausted
                 FROM posthaste.claim_1 ORDER BY queue, priority, batch DESC) c
           ON (c.queue, c.priority) = (r.queue, r.priority)
   WHERE NOT EXISTS (SELECT FROM posthaste.closed_unclaimed_1 e
       WHERE (e.xid, e.id) = (r.xid, r.id)) AND (r.queue <> '' OR r.turn IS NULL)
     AND (c.queue IS NULL OR NOT (pg_visible_in_snapshot(r.xid, c.lo)
          OR (pg_visible_in_snapshot(r.xid, c.hi)
              AND (c.exhausted OR (r.xid, r.id) <= (c.to_xid, c.to_id)))))
  UNION ALL
  SELECT r.id, r.name, r.queue, r.priority, r.scheduled_at, r.expires_at, r.enqueued_at, r.tag,
         r.kwargs, r.unique_key, r.ordering_key, r.attempt, r.max_attempts, 'running', r.last_error,
         r.trace
    FROM posthaste.running_1() r
  UNION ALL
  SELECT r.id, r.name, coalesce(r.own_queue, r.queue), coalesce(r.own_priority, r.priority),
         r.scheduled_at, r.expires_at, r.enqueued_at, r.tag, r.kwargs,
         r.unique_key, r.ordering_key, r.attempt, r.max_attempts,
         CASE WHEN r.expires_at <= clock_timestamp() THEN 'expired' WHEN r.queue = '' THEN 'blocked'
             ELSE 'available' END, r.last_error, r.trace
    FROM posthaste.ready_2 r
    LEFT JOIN (SELECT DISTINCT ON (queue, priority) queue, priority, lo, hi,
                      to_xid, to_id, exhausted
                 FROM posthaste.claim_2 ORDER BY queue, priority, batch DESC) c
           ON (c.queue, c.priority) = (r.queue, r.priority)
   WHERE NOT EXISTS (SELECT FROM posthaste.closed_unclaimed_2 e
       WHERE (e.xid, e.id) = (r.xid, r.id)) AND (r.queue <> '' OR r.turn IS NULL)
     AND (c.queue IS NULL OR NOT (pg_visible_in_snapshot(r.xid, c.lo)
          OR (pg_visible_in_snapshot(r.xid, c.hi)
              AND (c.exhausted OR (r.xid, r.id) <= (c.to_xid, c.to_id)))))
  UNION ALL
  SELECT r.id, r.name, r.queue, r.priority, r.scheduled_at, r.expires_at, r.enqueued_at, r.tag,
         r.kwargs, r.unique_key, r.ordering_key, r.attempt, r.max_attempts, 'running', r.last_error,
         r.trace
    FROM posthaste.running_2() r
  UNION ALL
  SELECT r.id, r.name, coalesce(r.own_queue, r.queue), coalesce(r.own_priority, r.priority),
         r.scheduled_at, r.expires_at, r.enqueued_at, r.tag, r.kwargs,
         r.unique_key, r.ordering_key, r.attempt, r.max_attempts,
         CASE WHEN r.expires_at <= clock_timestamp() THEN 'expired' WHEN r.queue = '' THEN 'blocked'
             ELSE 'available' END, r.last_error, r.trace
    FROM posthaste.ready_3 r
    LEFT JOIN (SELECT DISTINCT ON (queue, priority) queue, priority, lo, hi,
                      to_xid, to_id, exhausted
                 FROM posthaste.claim_3 ORDER BY queue, priority, batch DESC) c
           ON (c.queue, c.priority) = (r.queue, r.priority)
   WHERE NOT EXISTS (SELECT FROM posthaste.closed_unclaimed_3 e
       WHERE (e.xid, e.id) = (r.xid, r.id)) AND (r.queue <> '' OR r.turn IS NULL)
     AND (c.queue IS NULL OR NOT (pg_visible_in_snapshot(r.xid, c.lo)
          OR (pg_visible_in_snapshot(r.xid, c.hi)
              AND (c.exhausted OR (r.xid, r.id) <= (c.to_xid, c.to_id)))))
  UNION ALL
  SELECT r.id, r.name, r.queue, r.priority, r.scheduled_at, r.expires_at, r.enqueued_at, r.tag,
         r.kwargs, r.unique_key, r.ordering_key, r.attempt, r.max_attempts, 'running', r.last_error,
         r.trace
    FROM posthaste.running_3() r
  UNION ALL
  SELECT r.id, r.name, coalesce(r.own_queue, r.queue), coalesce(r.own_priority, r.priority),
         r.scheduled_at, r.expires_at, r.enqueued_at, r.tag, r.kwargs,
         r.unique_key, r.ordering_key, r.attempt, r.max_attempts,
         CASE WHEN r.expires_at <= clock_timestamp() THEN 'expired' WHEN r.queue = '' THEN 'blocked'
             ELSE 'available' END, r.last_error, r.trace
    FROM posthaste.ready_4 r
    LEFT JOIN (SELECT DISTINCT ON (queue, priority) queue, priority, lo, hi,
                      to_xid, to_id, exhausted
                 FROM posthaste.claim_4 ORDER BY queue, priority, batch DESC) c
           ON (c.queue, c.priority) = (r.queue, r.priority)
   WHERE NOT EXISTS (SELECT FROM posthaste.closed_unclaimed_4 e
       WHERE (e.xid, e.id) = (r.xid, r.id)) AND (r.queue <> '' OR r.turn IS NULL)
     AND (c.queue IS NULL OR NOT (pg_visible_in_snapshot(r.xid, c.lo)
          OR (pg_visible_in_snapshot(r.xid, c.hi)
              AND (c.exhausted OR (r.xid, r.id) <= (c.to_xid, c.to_id)))))
  UNION ALL
  SELECT r.id, r.name, r.queue, r.priority, r.scheduled_at, r.expires_at, r.enqueued_at, r.tag,
         r.kwargs, r.unique_key, r.ordering_key, r.attempt, r.max_attempts, 'running', r.last_error,
         r.trace
    FROM posthaste.running_4() r
  UNION ALL
  SELECT r.id, r.name, coalesce(r.own_queue, r.queue), coalesce(r.own_priority, r.priority),
         r.scheduled_at, r.expires_at, r.enqueued_at, r.tag, r.kwargs,
         r.unique_key, r.ordering_key, r.attempt, r.max_attempts,
         CASE WHEN r.expires_at <= clock_timestamp() THEN 'expired' WHEN r.queue = '' THEN 'blocked'
             ELSE 'available' END, r.last_error, r.trace
    FROM posthaste.ready_5 r
    LEFT JOIN (SELECT DISTINCT ON (queue, priority) queue, priority, lo, hi,
                      to_xid, to_id, exhausted
                 FROM posthaste.claim_5 ORDER BY queue, priority, batch DESC) c
           ON (c.queue, c.priority) = (r.queue, r.priority)
   WHERE NOT EXISTS (SELECT FROM posthaste.closed_unclaimed_5 e
       WHERE (e.xid, e.id) = (r.xid, r.id)) AND (r.queue <> '' OR r.turn IS NULL)
     AND (c.queue IS NULL OR NOT (pg_visible_in_snapshot(r.xid, c.lo)
          OR (pg_visible_in_snapshot(r.xid, c.hi)
              AND (c.exhausted OR (r.xid, r.id) <= (c.to_xid, c.to_id)))))
  UNION ALL
  SELECT r.id, r.name, r.queue, r.priority, r.scheduled_at, r.expires_at, r.enqueued_at, r.tag,
         r.kwargs, r.unique_key, r.ordering_key, r.attempt, r.max_attempts, 'running', r.last_error,
         r.trace
    FROM posthaste.running_5() r
  UNION ALL
  SELECT r.id, r.name, coalesce(r.own_queue, r.queue), coalesce(r.own_priority, r.priority),
         CASE WHEN r.scheduled_at = '9999-01-01Z' THEN r.enqueued_at ELSE r.scheduled_at END,
         r.expires_at, r.enqueued_at, r.tag,
         r.kwargs, r.unique_key, r.ordering_key, r.attempt, r.max_attempts,
         CASE WHEN r.expires_at <= clock_timestamp() THEN 'expired'
             WHEN r.scheduled_at = '9999-01-01Z' THEN 'blocked' WHEN r.attempt > 0 THEN 'retrying'
             ELSE 'scheduled' END, r.last_error, r.trace
    FROM posthaste.scheduled_6 r
      LEFT JOIN (SELECT * FROM posthaste.promote_cursor_6 ORDER BY page DESC LIMIT 1) p ON true
   WHERE NOT EXISTS (SELECT FROM posthaste.closed_unclaimed_6 e
       WHERE (e.xid, e.id) = (r.xid, r.id))
     AND NOT coalesce(posthaste.promoted(r.xid, r.scheduled_at, r.id, p.t_lo, p.t_hi, p.lo, p.hi,
           p.at_xid, p.at_due, p.at_id, p.late_done, p.exhausted), false)
  UNION ALL
  SELECT r.id, r.name, coalesce(r.own_queue, r.queue), coalesce(r.own_priority, r.priority),
         CASE WHEN r.scheduled_at = '9999-01-01Z' THEN r.enqueued_at ELSE r.scheduled_at END,
         r.expires_at, r.enqueued_at, r.tag,
         r.kwargs, r.unique_key, r.ordering_key, r.attempt, r.max_attempts,
         CASE WHEN r.expires_at <= clock_timestamp() THEN 'expired'
             WHEN r.scheduled_at = '9999-01-01Z' THEN 'blocked' WHEN r.attempt > 0 THEN 'retrying'
             ELSE 'scheduled' END, r.last_error, r.trace
    FROM posthaste.scheduled_7 r
      LEFT JOIN (SELECT * FROM posthaste.promote_cursor_7 ORDER BY page DESC LIMIT 1) p ON true
   WHERE NOT EXISTS (SELECT FROM posthaste.closed_unclaimed_7 e
       WHERE (e.xid, e.id) = (r.xid, r.id))
     AND NOT coalesce(posthaste.promoted(r.xid, r.scheduled_at, r.id, p.t_lo, p.t_hi, p.lo, p.hi,
           p.at_xid, p.at_due, p.at_id, p.late_done, p.exhausted), false)
  UNION ALL
  SELECT h.id, h.name, h.queue, h.priority, h.scheduled_at, h.expires_at, h.enqueued_at, h.tag,
         h.kwargs, h.unique_key, h.ordering_key, h.attempt, h.max_attempts, h.state, h.last_error,
         h.trace
    FROM posthaste.in_flight h
  UNION ALL
  SELECT d.id, d.name, d.queue, d.priority, d.scheduled_at, d.expires_at, d.enqueued_at, d.tag,
         d.kwargs, d.unique_key, d.ordering_key, d.attempt, d.max_attempts, d.state, d.last_error,
         d.trace
    FROM posthaste.dead d;

ALTER VIEW posthaste.job ALTER COLUMN priority     SET DEFAULT 0;
ALTER VIEW posthaste.job ALTER COLUMN scheduled_at SET DEFAULT now();
ALTER VIEW posthaste.job ALTER COLUMN tag          SET DEFAULT '';
ALTER VIEW posthaste.job ALTER COLUMN kwargs       SET DEFAULT '{}';
ALTER VIEW posthaste.job ALTER COLUMN attempt      SET DEFAULT 0;
ALTER VIEW posthaste.job ALTER COLUMN max_attempts SET DEFAULT 25;

-- Each OFFSET 0 keeps expressions from being evaluated twice (a volatile scheduled_at would be
-- judged by one value and stored as another). The scalar sub-selects without a reference to the row
-- run once per statement, and only when a row needs them: ten million rows enter their segment
-- once. The last of them is enter_ready() inlined, unless the segment is being sealed.
CREATE RULE enqueue AS ON INSERT TO posthaste.job DO INSTEAD
  INSERT INTO posthaste.store (slot, queue, name, priority, scheduled_at, expires_at, enqueued_at,
                               tag, kwargs, kwargs_bytes, attempt, max_attempts,
                               ordering_key, own_queue, own_priority, trace)
  SELECT CASE WHEN r.refused IS NOT NULL THEN posthaste.refuse_field(r.refused)
              WHEN posthaste.is_valid(r.name, r.queue, r.tag, NULL, r.ordering_key, r.kwargs,
                  r.kwargs_bytes, r.attempt, r.max_attempts, r.scheduled_at, r.expires_at,
                  r.enqueued_at, r.trace) IS NOT TRUE THEN
                   posthaste.refuse(r.name, r.queue, r.tag, NULL, r.ordering_key, r.kwargs,
                       r.kwargs_bytes, r.attempt, r.max_attempts, r.scheduled_at, r.expires_at,
                       r.enqueued_at, r.trace)
              WHEN r.scheduled_at > clock_timestamp()
                AND r.scheduled_at > (SELECT posthaste.promote_horizon())
                AND r.scheduled_at > now()
                THEN (SELECT posthaste.enter_scheduled())
              ELSE (SELECT CASE WHEN pg_try_advisory_xact_lock_shared(1885893473, c.g::integer)
                    AND pg_sequence_last_value('posthaste.ready_scan'::regclass) <= c.g
                                THEN (c.g % 4)::smallint ELSE posthaste.enter_ready() END
                      FROM (SELECT pg_sequence_last_value('posthaste.ready_current'::regclass) AS g
                          OFFSET 0) c)
                   + CASE WHEN pg_sequence_last_value('posthaste.flags'::regclass) < 2
                       THEN 0::smallint
                          ELSE posthaste.notify(CASE WHEN r.ordering_key IS NULL THEN r.queue
                                ELSE '' END, (SELECT posthaste.listeners())) END END,
         CASE WHEN r.ordering_key IS NULL THEN r.queue ELSE '' END, r.name,
         CASE WHEN r.ordering_key IS NULL THEN r.priority ELSE 0 END, r.scheduled_at, r.expires_at,
         r.enqueued_at, r.tag, r.kwargs, r.kwargs_bytes, r.attempt, r.max_attempts, r.ordering_key,
         CASE WHEN r.ordering_key IS NOT NULL THEN r.queue END,
         CASE WHEN r.ordering_key IS NOT NULL THEN r.priority END, r.trace
    FROM (SELECT n.name, n.priority, n.ordering_key, n.scheduled_at, n.tag, n.kwargs, n.refused,
                 n.attempt, n.max_attempts, n.trace, posthaste.text_bytes(n.kwargs) AS kwargs_bytes,
                 coalesce(n.expires_at,
                          least(greatest(n.scheduled_at, clock_timestamp()), '9999-01-01 00:00Z')
                          + interval '30 days') AS expires_at,
                 coalesce(n.enqueued_at, clock_timestamp()) AS enqueued_at,
                 coalesce(n.queue,
                     CASE WHEN pg_sequence_last_value('posthaste.flags'::regclass) & 1 = 0
                       THEN 'default' ELSE posthaste.route_of(n.name) END) AS queue
            FROM (SELECT NEW.queue, coalesce(NEW.name, '') AS name,
                         coalesce(NEW.priority, 0) AS priority,
                         coalesce(NEW.scheduled_at, now()) AS scheduled_at, NEW.expires_at,
                         NEW.enqueued_at, coalesce(NEW.tag, '') AS tag,
                         coalesce(NEW.kwargs, '{}') AS kwargs, coalesce(NEW.attempt, 0) AS attempt,
                         NEW.max_attempts, NEW.ordering_key, NEW.trace,
                         CASE WHEN NEW.unique_key IS NOT NULL THEN 'unique_key'
                             WHEN NEW.id IS NOT NULL THEN 'id'
                              WHEN NEW.state IS NOT NULL THEN 'state'
                                WHEN NEW.last_error IS NOT NULL THEN 'last_error' END AS refused
                                OFFSET 0) n OFFSET 0) r
  RETURNING id, name, coalesce(own_queue, queue), coalesce(own_priority, priority), scheduled_at,
            expires_at, enqueued_at, tag, kwargs, unique_key,
            ordering_key, attempt, max_attempts,
            CASE WHEN slot >= 6 THEN 'scheduled' WHEN ordering_key IS NOT NULL THEN 'blocked'
                ELSE 'available' END, last_error, trace;

INSERT INTO posthaste.store_identity (identity) VALUES (posthaste.current_identity());
SELECT posthaste.create_copy_triggers();

-- Rows that a replication writes after its initial copy fire row triggers only. The leader of the
-- replicated store writes this table, and no enqueue does.
CREATE TRIGGER note_replicated AFTER INSERT OR UPDATE ON posthaste.leader
  FOR EACH ROW EXECUTE FUNCTION posthaste.note_copied();

ALTER TABLE posthaste.leader ENABLE REPLICA TRIGGER note_replicated;

SELECT posthaste.begin_epoch(0);

-- Count the jobs that enter, change in or leave these two tables (functions/stats.sql).
CREATE TRIGGER stats_inserted AFTER INSERT ON posthaste.in_flight
  REFERENCING NEW TABLE AS new_rows
  FOR EACH STATEMENT EXECUTE FUNCTION posthaste.track_stats();

CREATE TRIGGER stats_updated AFTER UPDATE ON posthaste.in_flight
  REFERENCING OLD TABLE AS old_rows NEW TABLE AS new_rows
  FOR EACH STATEMENT EXECUTE FUNCTION posthaste.track_stats();

CREATE TRIGGER stats_deleted AFTER DELETE ON posthaste.in_flight
  REFERENCING OLD TABLE AS old_rows
  FOR EACH STATEMENT EXECUTE FUNCTION posthaste.track_stats();

CREATE TRIGGER stats_inserted AFTER INSERT ON posthaste.dead
  REFERENCING NEW TABLE AS new_rows
  FOR EACH STATEMENT EXECUTE FUNCTION posthaste.track_stats();

CREATE TRIGGER stats_updated AFTER UPDATE ON posthaste.dead
  REFERENCING OLD TABLE AS old_rows NEW TABLE AS new_rows
  FOR EACH STATEMENT EXECUTE FUNCTION posthaste.track_stats();

CREATE TRIGGER stats_deleted AFTER DELETE ON posthaste.dead
  REFERENCING OLD TABLE AS old_rows
  FOR EACH STATEMENT EXECUTE FUNCTION posthaste.track_stats();

-- Jobs in the table of "Transactionally staged job drains in Postgres", for programs that use it.
-- posthaste.route maps the job's name to a queue. A list of arguments is stored as {"args": [...]},
-- which relays unwrap. A row disappears when its job is completed.
CREATE VIEW posthaste.staged_jobs (id, job_name, job_args) AS
  SELECT j.id, j.name, posthaste.as_list(j.kwargs) FROM posthaste.job j
    WHERE j.state NOT IN ('dead', 'discarded', 'cancelled', 'expired');

CREATE RULE stage AS ON INSERT TO posthaste.staged_jobs DO INSTEAD
  INSERT INTO posthaste.job (id, name, kwargs)
  VALUES (NEW.id, NEW.job_name,
      CASE WHEN jsonb_typeof(NEW.job_args) = 'array' THEN jsonb_build_object('args', NEW.job_args)
        ELSE NEW.job_args END)
  RETURNING id, name, posthaste.as_list(kwargs);

-- Jobs as an outbox table: the writer gives the id, which is the delivery id that receivers see,
-- and a payload of any bytes or a reference to a row of another table, which is sent as a
-- reference. A row disappears when its job is completed; in a queue that retains completed jobs
-- (posthaste.keep) it stays as long as they do, with the time of completion.
CREATE VIEW posthaste.outbox (id, type, payload, table_name, table_id, created_at, completed_at,
                              trace) AS
  SELECT (o.row ->> 'id')::uuid, j.name,
         coalesce(convert_to(o.row ->> 'text', 'UTF8'), decode(o.row ->> 'hex', 'hex')),
         o.row ->> 'table_name',
         o.row ->> 'table_id', j.enqueued_at, j.ended_at, j.trace
    FROM (SELECT w.name, w.kwargs, w.enqueued_at, NULL::timestamptz AS ended_at, w.trace
            FROM posthaste.job w
        WHERE w.state NOT IN ('dead', 'discarded', 'cancelled', 'expired')
          UNION ALL SELECT f.name, f.kwargs, f.enqueued_at, f.ended_at, f.trace
                      FROM posthaste.finished f) j,
         LATERAL (SELECT j.kwargs -> 'posthaste.outbox' AS row) o
   WHERE jsonb_typeof(o.row) = 'object';

CREATE TRIGGER insert_outbox_row INSTEAD OF INSERT ON posthaste.outbox FOR EACH ROW
  EXECUTE FUNCTION posthaste.insert_outbox_row();

-- Rejects invalid periodic jobs. Updates by the leader (functions/periodic.sql) do not fire it.
CREATE TRIGGER check_periodic
  BEFORE INSERT OR UPDATE OF schedule, time_zone, job, kwargs, queue, priority, tag, max_attempts
  ON posthaste.periodic FOR EACH ROW EXECUTE FUNCTION posthaste.check_periodic();

-- Reject changes by sessions that do not fire the triggers of these two tables.
CREATE TRIGGER refuse_silent BEFORE INSERT OR UPDATE OR DELETE ON posthaste.in_flight
  FOR EACH STATEMENT EXECUTE FUNCTION posthaste.refuse_silent();

CREATE TRIGGER refuse_silent BEFORE INSERT OR UPDATE OR DELETE ON posthaste.dead
  FOR EACH STATEMENT EXECUTE FUNCTION posthaste.refuse_silent();

ALTER TABLE posthaste.in_flight ENABLE REPLICA TRIGGER refuse_silent;

ALTER TABLE posthaste.dead ENABLE REPLICA TRIGGER refuse_silent;

INSERT INTO posthaste.migration (name, checksum, version)
  VALUES ('0001_initial', '54df17f9c78b74f2', '0.1.0')
  ON CONFLICT (name) DO UPDATE SET (checksum, version, applied_at) =
    (excluded.checksum, excluded.version, excluded.applied_at);

INSERT INTO posthaste.migration (name, checksum, version)
  VALUES ('functions', '0baa848197dc57f8', '0.1.0')
  ON CONFLICT (name) DO UPDATE SET (checksum, version, applied_at) =
    (excluded.checksum, excluded.version, excluded.applied_at);

DO $do$ DECLARE
  v_found json := current_setting('posthaste.found')::json;
  v_local boolean := coalesce(current_setting('posthaste.migrates', true), '') = 'on';
BEGIN
  PERFORM set_config('posthaste.found', '', v_local);
  PERFORM set_config('posthaste.migrates', '', v_local);
  PERFORM set_config('check_function_bodies', v_found->>2, v_local);
  PERFORM set_config('standard_conforming_strings', v_found->>1, v_local);
  PERFORM set_config('search_path', v_found->>0, v_local);
END $do$;
