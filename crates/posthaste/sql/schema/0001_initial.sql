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
-- mutant: the batch id sequence is cached: CREATE SEQUENCE posthaste.batch_id CACHE 50;
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
-- repeat: slots 0..5
CREATE TABLE posthaste.ready_0 PARTITION OF posthaste.store
  FOR VALUES IN (0 /*slot*/) WITH (autovacuum_enabled = off);
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
-- end

-- repeat: slots 6..7
CREATE TABLE posthaste.scheduled_6 PARTITION OF posthaste.store
  FOR VALUES IN (6 /*slot*/) WITH (autovacuum_enabled = off);
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
-- end

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
-- repeat: cells 1..64
CREATE SEQUENCE posthaste.pace_1 MINVALUE 0 START 0;
SELECT setval('posthaste.pace_1', 0);
-- end

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

-- repeat: slots 0..3
CREATE TABLE posthaste.attempt_0 PARTITION OF posthaste.attempt
  FOR VALUES IN (0 /*slot*/) WITH (autovacuum_enabled = off);
-- end

-- repeat: slots 0..7
CREATE TABLE posthaste.finished_0 PARTITION OF posthaste.finished
  FOR VALUES IN (0 /*slot*/) WITH (autovacuum_enabled = off);
-- end

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
-- repeat: slots 0..5
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
-- end

-- A scheduled slot has two: jobs that left it, and marks, each with the jobs that had entered and
-- not left.
-- repeat: slots 6..7
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
-- end

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

-- repeat: slots 0..1
CREATE TABLE posthaste.stats_delta_0 PARTITION OF posthaste.stats_delta
  FOR VALUES IN (0 /*slot*/) WITH (autovacuum_enabled = off);
CREATE INDEX stats_delta_0_xid ON posthaste.stats_delta_0 (xid);
CREATE TABLE posthaste.stats_sum_0 PARTITION OF posthaste.stats_sum
  FOR VALUES IN (0 /*slot*/) WITH (autovacuum_enabled = off);
CREATE INDEX stats_sum_0_number ON posthaste.stats_sum_0 (number);
-- end

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

-- repeat: slots 0..3
CREATE TABLE posthaste.relay_0 PARTITION OF posthaste.relay
  FOR VALUES IN (0 /*slot*/) WITH (autovacuum_enabled = off);
-- end

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
-- repeat: slots 0..1
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
-- end

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
