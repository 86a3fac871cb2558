-- The store: append-only segments (docs/why/architecture.md); in one file because
-- a reader of any function wants all of the state at hand.
--
-- Eight physical slots, all partitions of one insert surface, posthaste.store:
--   0..3  the ready log (segment g lives in slot g % 4)
--   4..5  overflow: jobs that waited so long that they would pin the ready log
--   6..7  scheduled: jobs that are not due yet, retries among them
-- No row of a slot is ever updated or deleted: a job moves by being written again elsewhere and
-- acknowledged here, and space comes back by TRUNCATE, which no snapshot can hold up. Autovacuum is
-- off on them because there is nothing for it to do.
--
-- What calls functions (views, rules, triggers, some defaults) stands in 0001_initial_after.sql.

-- An owner of the schema need not be one who may create schemas.
DO $do$ BEGIN
  IF pg_catalog.to_regnamespace('posthaste') IS NULL THEN
    CREATE SCHEMA posthaste;
  END IF;
END $do$;

-- Non-MVCC cells: read by everybody at once, in any isolation level, and without dead tuples. Only
-- setval() moves the cursors among them (setval logs the value itself, nextval logs ahead), and
-- CACHE stays 1: a batch number must be drawn in the order of the lane lock.
CREATE SEQUENCE posthaste.job_id;
CREATE SEQUENCE posthaste.worker_id;
-- mutant: the batch id sequence is cached: CREATE SEQUENCE posthaste.batch_id CACHE 50;
CREATE SEQUENCE posthaste.batch_id;
CREATE SEQUENCE posthaste.turn;
CREATE SEQUENCE posthaste.turns_kept MINVALUE 0 START 0;
-- Segments: where enqueue writes, the oldest that may hold undispatched jobs, the oldest that is
-- not truncated. overflow_scan is overflow_current + 1 while nothing lies in the overflow.
CREATE SEQUENCE posthaste.ready_current MINVALUE 0 START 0;
CREATE SEQUENCE posthaste.ready_scan MINVALUE 0 START 0;
CREATE SEQUENCE posthaste.ready_low MINVALUE 0 START 0;
CREATE SEQUENCE posthaste.overflow_current MINVALUE 0 START 0;
CREATE SEQUENCE posthaste.overflow_scan MINVALUE 0 START 0;
CREATE SEQUENCE posthaste.overflow_low MINVALUE 0 START 0;
CREATE SEQUENCE posthaste.scheduled_current MINVALUE 0 START 0;
CREATE SEQUENCE posthaste.scheduled_low MINVALUE 0 START 0;
-- Microseconds since 1970: the promoter has looked at everything due by then.
CREATE SEQUENCE posthaste.promote_horizon MINVALUE 0 START 0;
SELECT setval('posthaste.turns_kept', 0),
       setval('posthaste.ready_current', 0), setval('posthaste.ready_scan', 0),
       setval('posthaste.ready_low', 0), setval('posthaste.overflow_current', 0),
       setval('posthaste.overflow_scan', 1), setval('posthaste.overflow_low', 0),
       setval('posthaste.scheduled_current', 0), setval('posthaste.scheduled_low', 0),
       setval('posthaste.promote_horizon', 0);

-- One job, wherever it lies. Eight-byte columns come first so that nothing is padded.
--   xid          the transaction that wrote the row: (xid, id) names a row, id names a job
--   attempt      attempts counted so far; crashes: workers that died while they had it
--   kwargs_bytes length as text: bounds a claim without printing anything
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
  ordering_key text COLLATE "C",      -- these four: functions/ordering.sql
  turn         bigint,
  own_queue    text COLLATE "C",
  own_priority integer,
  last_error   text,
  trace        text,
  kwargs       jsonb       NOT NULL DEFAULT '{}'
) PARTITION BY LIST (slot);

-- Slots. Each of the six slots that are claimed from is a set of tables:
--   ready_k             the jobs; the index serves "the next job of a lane after a cursor" and
--                       nothing else
--   claim_k             one row per claimed batch; the newest row of a lane IS the lane's cursor
--   batch_done_k        one row per batch that was closed as a whole, which is how nearly all jobs
--                       end: acknowledging a thousand costs one row
--   batch_split_k       batches that may not be closed as a whole any more, because a job of theirs
--                       was closed by itself
--   job_done_k          one row per job row that was closed by itself; the key makes the first
--                       closer the only one
--   closed_unclaimed_k  rows that were closed before they were claimed (expired without a
--                       consumer); nearly always empty, and then free to ask
-- A scheduled slot has scheduled_k with an index by due time and one by transaction (for late
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
  -- the batch is the part of the window (lo, hi) after this row ...
  from_xid   xid8        NOT NULL,
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
  t_hi      timestamptz NOT NULL,  -- this window: what is due by t_hi and visible in hi
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

-- outcome, as in job_done_k: 1 sent on to work (its turn came, or somebody let it run now), 3
-- expired, 9 cancelled.
CREATE TABLE posthaste.closed_unclaimed_6 (xid xid8 NOT NULL, id bigint NOT NULL,
    outcome smallint NOT NULL, PRIMARY KEY (xid, id)) WITH (autovacuum_enabled = off);

-- How ordering keys stand (functions/ordering.sql): a row per change.
CREATE TABLE posthaste.turn_6 (
  n            bigint  NOT NULL,
  turn         bigint  NOT NULL,  -- who has its turn, or had it last
  is_free      boolean NOT NULL,  -- it has ended, and nobody waits
  ordering_key text COLLATE "C" NOT NULL
) WITH (autovacuum_enabled = off);
CREATE INDEX turn_6_key ON posthaste.turn_6 (ordering_key, n);
-- end

-- Who works here. A worker's row is updated at each heartbeat; under a pinned horizon its versions
-- grow by one per beat, which is why the beat is per worker and not per job.
CREATE TABLE posthaste.worker (
  id         bigint      PRIMARY KEY DEFAULT nextval('posthaste.worker_id'),
  beat       bigint      NOT NULL DEFAULT 0,
  started_at timestamptz NOT NULL DEFAULT clock_timestamp(),
  seen_at    timestamptz NOT NULL DEFAULT clock_timestamp(),
  stopped_at timestamptz,             -- stopped, or declared dead; it never beats again
  -- stopped in good order: it has nothing that could be rescued
  clean      boolean     NOT NULL DEFAULT false,
  name       text        NOT NULL,
  -- It may claim there and nowhere else.
  identity   text        NOT NULL,
  queues     text[]      NOT NULL DEFAULT '{}', -- what it works on; none: it does not say
  -- since when an endpoint of it accepts no jobs, and why
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

-- Lanes that were ever seen by a worker, so that a claim probes lanes instead of searching for
-- them. Enqueue never writes here.
CREATE TABLE posthaste.lane (
  queue    text COLLATE "C" NOT NULL,
  priority integer NOT NULL,
  PRIMARY KEY (queue, priority)
);

-- Jobs that lie in no slot for a while, one row each:
--   running      still being worked when its segment was to be truncated
--   awaiting     its effect happens elsewhere; kept here until posthaste.confirm(delivery_id), else
--                tried again
--   quarantined  its worker died while it had the job; to be run alone once
-- (worker, token) is the fence of the one that has it now; until says when a quarantined job may be
-- run, or an awaited job is tried again.
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
  trace        text,
  kwargs       jsonb       NOT NULL
);
CREATE INDEX dead_state ON posthaste.dead (state, died_at);

-- Jobs that were running when somebody cancelled them. Their workers look here, and the leader
-- cancels them again until they have ended: one that is given back or tried again is met where it
-- waits.
CREATE TABLE posthaste.cancelling (
  id       bigint      PRIMARY KEY,
  asked_at timestamptz NOT NULL DEFAULT clock_timestamp()
);

-- What is set for a queue. One without a row here has the defaults.
CREATE TABLE posthaste.queue (
  name      text COLLATE "C" PRIMARY KEY CHECK (octet_length(name) BETWEEN 1 AND 255),
  paused_at timestamptz, -- since when nothing of it is claimed
  rate      integer CHECK (rate > 0),               -- this many of its jobs are claimed
  per       interval CHECK (per > interval '0'),    -- in such a time, by all workers together
  burst     integer CHECK (burst > 0),              -- after a lull this many at once
  pace      regclass,    -- the cell that says up to when its rate is used up
  -- for how long, at least, a done job of it is kept
  keep      interval CHECK (keep > interval '0' AND keep <= interval '3660 days')
);
CREATE INDEX queue_keep ON posthaste.queue (name) WHERE keep IS NOT NULL;

-- The cells of rates (functions/rate.sql). They are made here and not with each rate: whatever a
-- store is replicated to has them too.
-- repeat: cells 1..64
CREATE SEQUENCE posthaste.pace_1 MINVALUE 0 START 0;
SELECT setval('posthaste.pace_1', 0);
-- end

-- One row per unique key that is held; released when its job is done, dead, expired, discarded or
-- cancelled.
CREATE TABLE posthaste.unique_key (
  -- No collation of the machine decides where a key is found.
  key text   COLLATE "C" PRIMARY KEY,
  id  bigint NOT NULL
  -- To cut its empty end off would lock it against everybody.
) WITH (vacuum_truncate = off);

-- Confirmations that came before the job awaited them: the receiver was faster than our
-- acknowledgement.
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

-- What an enqueue may have to know, in one cell, so that one which nothing concerns looks once
-- and asks no table. Bits: 1 there ever was a route; the others are listeners
-- (posthaste.listener_bit): 2 the leader sleeps, who promotes and keeps the order of keys, from
-- 4 on somebody who works on such a queue. The one that changes a bit holds the lock
-- (1885893480, 0), because the others are written back with it. Unlogged: a crash leaves it
-- without a value, and the first enqueue after the crash calls posthaste.recover() because of
-- that. Other enqueues pay nothing for it.
CREATE UNLOGGED SEQUENCE posthaste.flags MINVALUE 0 START 0;

-- A random number, another one after each crash or promotion of the server; part of
-- posthaste.session_identity().
CREATE UNLOGGED SEQUENCE posthaste.life MINVALUE 0 START 0;

-- seconds since 1970: workers that died asleep are not notified for longer than that
CREATE SEQUENCE posthaste.listeners_until MINVALUE 0 START 0;
SELECT setval('posthaste.flags', 0),
       setval('posthaste.life', floor(random() * 9007199254740992)::bigint),
       setval('posthaste.listeners_until', 0);

-- What makes delivery ids differ from those of other databases and other pasts of this one: 60
-- random bits as 15 hexadecimal digits, from job id first_id on, until a newer row says otherwise.
-- Migrated, restored and promoted databases begin a new one (functions/restored.sql).
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

-- Which rows of a lane are to be claimed next: those that are visible in hi and were not visible in
-- lo, after the row (at_xid, at_id).
CREATE TYPE posthaste.lane_window AS (
  -- the newest claim row of the lane, which this was read from; 0 when there is none
  batch    bigint,
  lo       pg_snapshot,
  hi       pg_snapshot,
  at_xid   xid8,
  at_id    bigint,
  -- lower bound of the range part; one only: with two, btree starts at the lower one and walks all
  -- spent rows
  from_xid xid8,
  from_id  bigint,
  -- transactions that ran when lo was taken and have ended since: looked up one by one
  late     xid8[],
  is_fresh boolean       -- nothing of it was claimed: it reaches up to now
);

-- Periodic jobs: one row each. The leader enqueues their ticks; the one that moves next_at on, in
-- the transaction of the enqueue, is the only one.
CREATE TABLE posthaste.periodic (
  name         text COLLATE "C" PRIMARY KEY CHECK (octet_length(name) BETWEEN 1 AND 255),
  schedule     text        NOT NULL,  -- five fields of cron
  time_zone    text        NOT NULL DEFAULT 'UTC',
  -- what is made up for when no leader was there
  missed       text        NOT NULL DEFAULT 'last' CHECK (missed IN ('all', 'last', 'none')),
  job          text        NOT NULL,
  kwargs       jsonb       NOT NULL DEFAULT '{}',
  queue        text,
  priority     integer     NOT NULL DEFAULT 0,
  tag          text        NOT NULL DEFAULT '',
  max_attempts integer              DEFAULT 25,
  next_at      timestamptz,           -- the next tick; NULL until a leader has seen the row
  looked_at    timestamptz,           -- when that was the next: a clock before this has another
  error        text,                  -- why no leader could enqueue it when it was looked at
  -- Every tick in here was enqueued: none comes again when the clock steps back.
  made         tstzmultirange NOT NULL DEFAULT '{}'
);

CREATE TYPE posthaste.place AS (slot smallint, turn bigint, xid xid8, id bigint);

-- History: failed attempts, and jobs that are done and kept for a while.
--
-- What is history is written into volumes: tables that are filled for a while and emptied as a
-- whole. There are four to a shelf, and they are always there: nothing that is written can miss its
-- table, whichever worker leads and whatever the clock says. A volume that cannot be emptied,
-- because somebody reads it, stays; then the current one is filled for longer.

-- The shelves: failed attempts; done jobs of queues that keep them for up to a day; those of queues
-- that keep them for longer; how relays went (functions/relay.sql).
CREATE TABLE posthaste.volume (
  shelf    text     NOT NULL CHECK (shelf IN ('attempt', 'day', 'long', 'relay')),
  slot     smallint NOT NULL,
  -- the newest of a shelf is the one that is filled, until the next begins; NULL: empty
  began_at timestamptz,
  PRIMARY KEY (shelf, slot)
);
INSERT INTO posthaste.volume (shelf, slot, began_at)
SELECT s.shelf, s.first + n, CASE WHEN n = 0 THEN clock_timestamp() END
  FROM (VALUES ('attempt', 0), ('day', 0), ('long', 4), ('relay', 0)) s(shelf, first),
    generate_series(0, 3) n;

-- What is set for the whole database.
CREATE TABLE posthaste.setting (
  only_row      boolean  PRIMARY KEY DEFAULT true CHECK (only_row),
  keep_attempts interval NOT NULL DEFAULT '7 days'
    CHECK (keep_attempts BETWEEN interval '0' AND interval '3660 days'),
  keep_inbox    interval NOT NULL DEFAULT '30 days'
    CHECK (keep_inbox BETWEEN interval '0' AND interval '3660 days')
);
INSERT INTO posthaste.setting DEFAULT VALUES;

-- How queues stood, for charts: a minute apart for an hour, ten minutes apart for a day, an hour
-- apart for a week (functions/sample.sql); the queue '' is all of them together. Totals since the
-- beginning, of which differences make rates, and the most there was since the sample before.
CREATE TABLE posthaste.sample (
  at        timestamptz NOT NULL,
  come      bigint   NOT NULL,   -- jobs that were enqueued, or redriven
  done      bigint   NOT NULL,
  failed    bigint   NOT NULL,   -- attempts
  started   bigint   NOT NULL,   -- runs, and for how many milliseconds their jobs had waited
  waited    bigint   NOT NULL,
  available bigint   NOT NULL,
  running   bigint   NOT NULL,
  oldest    double precision,    -- for how many seconds the next job had waited; NULL: none did
  span      smallint NOT NULL,   -- 1, 10 or 60 minutes
  queue     text COLLATE "C" NOT NULL,
  PRIMARY KEY (span, at, queue)
);

-- Attempts that were counted or lost, one row each. outcome: 'retried' (another follows), 'dead'
-- (it was the last), 'discarded', 'cancelled', 'crashed' (its worker died). The worker's name
-- stands here because its row is forgotten a day after its end.
CREATE TABLE posthaste.attempt (
  at          timestamptz NOT NULL DEFAULT clock_timestamp(),
  job         bigint      NOT NULL,
  worker      bigint,      -- who had it; NULL: nobody, it waited for its confirmation
  attempt     integer     NOT NULL,  -- 1 for the first
  slot        smallint    NOT NULL,
  outcome     text        NOT NULL,
  queue       text COLLATE "C" NOT NULL,
  name        text COLLATE "C" NOT NULL,
  worker_name text,
  error       text
) PARTITION BY LIST (slot);
CREATE INDEX attempt_job ON posthaste.attempt (job);

-- Done jobs of queues that keep them.
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

-- A row of a job in a slot. state is NULL when the row is spent; outcome says then what became of
-- the job there.
CREATE TYPE posthaste.slot_row AS (
  job posthaste.store, state text, outcome smallint, worker bigint, claimed_at timestamptz
);

-- A job that was looked for. claimed_at and worker: since when, and with whom, it runs or ran last;
-- ended_at: when it was done or given up. Of a done job that its queue does not keep, ended_at is
-- not known.
CREATE TYPE posthaste.found AS (
  id bigint, name text, queue text, priority integer, scheduled_at timestamptz,
  expires_at timestamptz, enqueued_at timestamptz, tag text, kwargs jsonb, unique_key text,
  ordering_key text, attempt integer, max_attempts integer, state text, last_error text,
  worker bigint, worker_name text, claimed_at timestamptz, ended_at timestamptz, trace text
);

-- Where the store was last worked: one row. Another store's data, loaded into this one, bring
-- theirs beside it, which no key keeps out. '{}': from the beginning of a rebase to its end;
-- '{copied}', '{copied,mixed}': rows came into a slot by themselves, the second where jobs had been
-- before.
CREATE TABLE posthaste.store_identity (
  identity text[]      PRIMARY KEY,
  since    timestamptz NOT NULL DEFAULT clock_timestamp()
);

-- Which site works the store, and what identified its server when it last did (functions/site.sql).
-- No row: no worker has come yet. Sites that are refused leave notes.
CREATE TABLE posthaste.site (
  only_row  boolean     PRIMARY KEY DEFAULT true CHECK (only_row),
  name      text,                    -- as set; none: known by its addresses alone
  addresses text[]      NOT NULL,    -- by which its processes connect, the newest first
  started   timestamptz NOT NULL,    -- the server's start
  life      bigint      NOT NULL,    -- posthaste.life
  endpoint  text,                    -- the server's own address and port, if not of its machine
  since     timestamptz NOT NULL DEFAULT clock_timestamp(),
  refused   text[]      NOT NULL DEFAULT '{}',  -- other sites whose processes wait here
  refused_at timestamptz[] NOT NULL DEFAULT '{}'
);

-- All ids up to this one were drawn, and the one that has the write-ahead log up to here knows it:
-- a server that is promoted may know of more, never of fewer. The leader moves it on.
CREATE SEQUENCE posthaste.known_id MINVALUE 0 START 0;
SELECT setval('posthaste.known_id', 0);
-- A slot that is claimed from has three tables more:
--   counted_k  marks in a lane's backlog, one every few hundred jobs: a cursor like that of a
--              claim, and the jobs from the first mark of its run up to it, by name and tag. What a
--              lane's claims have passed is the difference of two marks: draining writes nothing
--              here.
--   opened_k   marks in a lane's claims: which batches up to this one were not closed yet
--   left_k     jobs that ended where they waited, before they were claimed
-- repeat: slots 0..5
CREATE TABLE posthaste.counted_0 (
  -- the number of the run's first mark, which counts nothing: it stands where the claims stood
  run       bigint      NOT NULL,
  number    bigint      NOT NULL,
  max_xid   xid8        NOT NULL,  -- no job that the run has counted lies behind this one
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

-- Within a run what is counted only grows, so this is the order of the marks, and of what they
-- reach. The only index: the planner is to have no choice.
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

-- A scheduled slot has two: what left it, and marks, each with all that had entered and not left.
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
  left_hi    pg_snapshot NOT NULL,  -- what had left by then is subtracted
  queues     text[] COLLATE "C" NOT NULL,
  priorities integer[]   NOT NULL,
  names      text[] COLLATE "C" NOT NULL,
  tags       text[]      NOT NULL,
  whats      text[]      NOT NULL,
  jobs       bigint[]    NOT NULL
) WITH (autovacuum_enabled = off);
-- end

-- Statistics: counters of what has no slot to lie in, by deltas: jobs in posthaste.in_flight and
-- posthaste.dead, and sums since the beginning, which workers flush about once a second. Two
-- segments, used by turns, so that the older can be truncated once the newest sums have all of it.
-- A delta may lie in either.
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
  hi         pg_snapshot NOT NULL,  -- every delta that is visible in it is in the sums
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

-- Who sends a queue in order: one worker at a time. A row changes when the lease is renewed, a few
-- times a minute (ordered_relay.sql of posthaste-relay).
CREATE TABLE posthaste.ordered_relay (
  queue  text COLLATE "C" PRIMARY KEY,
  worker bigint      NOT NULL,
  since  timestamptz NOT NULL DEFAULT clock_timestamp(),
  until  timestamptz NOT NULL
) WITH (fillfactor = 50);

-- How a relay went each time that it wrote; in volumes of an hour (functions/history.sql), so that
-- nothing is updated. Sums are since it was started.
CREATE TABLE posthaste.relay (
  at          timestamptz NOT NULL DEFAULT clock_timestamp(),
  worker      bigint      NOT NULL,
  accepted    bigint      NOT NULL,
  rejected     bigint      NOT NULL,
  retried       bigint      NOT NULL,
  unavailable  bigint      NOT NULL,
  down_since  timestamptz,            -- by the relay's clock
  failing_since timestamptz,          -- by the relay's clock: nothing was taken since
  slot        smallint    NOT NULL,
  state       text        NOT NULL,   -- up, down, or standby: another one has the lease
  queue       text COLLATE "C" NOT NULL,
  route       text        NOT NULL,
  destination text        NOT NULL,
  last_error  text,
  rejections    jsonb       NOT NULL,   -- how many were rejected, by the reason
  failures      jsonb       NOT NULL    -- how many were not taken, by the kind of failure
) PARTITION BY LIST (slot);
CREATE INDEX relay_queue ON posthaste.relay (queue, worker, at);

-- repeat: slots 0..3
CREATE TABLE posthaste.relay_0 PARTITION OF posthaste.relay
  FOR VALUES IN (0 /*slot*/) WITH (autovacuum_enabled = off);
-- end

-- What receivers have had: for those that cannot tell duplicates by themselves. It may be in
-- another database than the jobs.
CREATE TABLE posthaste.inbox (
  delivery_id uuid        PRIMARY KEY,
  received_at timestamptz NOT NULL DEFAULT clock_timestamp()
);
CREATE INDEX inbox_received_at ON posthaste.inbox (received_at);

-- Alerts of whose beginning `posthaste alerts --notify` has told, and not of their end: who goes on
-- after it tells of that.
CREATE TABLE posthaste.alert (
  notify   text COLLATE "C"  NOT NULL,    -- the queue of its jobs
  alert    text COLLATE "C"  NOT NULL,
  queue    text COLLATE "C"  NOT NULL,
  value    double precision  NOT NULL,    -- as it was at the beginning
  "limit"  double precision  NOT NULL,
  begun_at timestamptz       NOT NULL DEFAULT clock_timestamp(),
  -- Several processes may tell one queue of other limits.
  PRIMARY KEY (notify, alert, queue, "limit")
);

-- What somebody asked for all jobs that a filter names. A console goes through them batch by batch;
-- each batch is a transaction that acts and moves place and jobs on here, so each job counts once.
-- The one that is at a batch holds the lock (1885893481, id); between two of them driver, until
-- driven_until, keeps others from taking turns with it.
CREATE TABLE posthaste.bulk_action (
  id           integer     PRIMARY KEY,   -- one more than the last: no sequence can be behind it
  started_at   timestamptz NOT NULL DEFAULT clock_timestamp(),
  ended_at     timestamptz,
  driven_until timestamptz NOT NULL,
  driver       uuid,                      -- NULL: nobody; it rests until then
  at_most      bigint      NOT NULL CHECK (at_most > 0),
  expected     bigint,                    -- how many jobs there were; NULL: nobody counted
  jobs         bigint      NOT NULL DEFAULT 0,  -- done so far
  pass_jobs    bigint      NOT NULL DEFAULT 0,  -- of them in this pass over all places
  passes       integer     NOT NULL DEFAULT 0,  -- that came to their end
  failures     integer     NOT NULL DEFAULT 0,  -- batches in a row that failed
  action       text        NOT NULL CHECK (action IN ('retry', 'cancel', 'redrive', 'delete')),
  state        text        NOT NULL DEFAULT 'running'
    CHECK (state IN ('running', 'finished', 'stopped', 'failed')),
  filter       text        NOT NULL,      -- as it is typed, its times resolved
  place        text,                      -- where the walk goes on; NULL: at the beginning
  who          text        NOT NULL,
  stopped_by   text,                      -- who asked for its end; the next batch sees it
  last_error   text,
  -- whose jobs were meant: a copy of the database does not go on by itself
  identity     text[]      NOT NULL
) WITH (fillfactor = 50);

-- What `posthaste txwatch` did to transactions: a row is committed before the statement that acts,
-- and gets its result afterwards. A row without a result: the process ended in between.
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
  -- a boolean column: rows that are there and not to be found
  deleted  name,
  -- from a change until its job is due: direct indexing comes first
  delay    interval NOT NULL DEFAULT '60 s' CHECK (delay >= '0'),
  draws    boolean  NOT NULL,                      -- the version is ours to draw
  enqueues boolean  NOT NULL,                      -- changes enqueue their jobs by themselves
  always   boolean  NOT NULL,                      -- also under session_replication_role = replica
  -- Whose sequences the versions come from: syncs that draw for one column share them.
  drawn_by text COLLATE "C" NOT NULL,
  -- A digest of how documents are made of rows, where an install said it: a program that makes them
  -- otherwise makes none.
  documents text COLLATE "C"
);

-- What the last audit of each synced table has found.
CREATE TABLE posthaste.audited (
  audited_at timestamptz NOT NULL,
  rows       bigint  NOT NULL,
  documents  bigint  NOT NULL,
  differed   bigint  NOT NULL,
  repaired   bigint  NOT NULL,               -- of these
  contents   boolean NOT NULL,               -- were compared too
  name       text COLLATE "C" PRIMARY KEY
);

-- Postgres as the index: what is found, in a table of its own beside or in another database. The
-- last write of a document is the one with the largest (version, pass), whatever came last; a
-- deletion stays as a row without words, so that a late write of what was deleted finds something
-- larger.
CREATE TABLE posthaste.search (
  version    bigint      NOT NULL,
  token      bigint      NOT NULL,   -- whose write it was, for passes that must see their own
  deleted_at timestamptz,
  pass       integer     NOT NULL,
  index      text COLLATE "C" NOT NULL,
  id         text COLLATE "C" NOT NULL,
  words      tsvector    NOT NULL,
  PRIMARY KEY (index, id)
) WITH (fillfactor = 80);

CREATE INDEX search_words ON posthaste.search USING gin (words);
CREATE INDEX search_deleted_at ON posthaste.search (index, deleted_at) WHERE deleted_at IS NOT NULL;

-- Captures (posthaste-capture): what is committed elsewhere in the database becomes jobs. A row
-- changes when a process begins to run it, when its events take another path, and when it stops for
-- good.
CREATE TABLE posthaste.capture (
  installed_at timestamptz NOT NULL DEFAULT clock_timestamp(),
  started_at   timestamptz,
  paused_at    timestamptz,            -- it takes nothing, and the server keeps its log
  indirect_since timestamptz,          -- since when its path is not direct
  epoch  uuid        NOT NULL,   -- in each delivery id; another one after a gap
  runner       uuid,                   -- whose marks count: those of others are refused
  published    oid         NOT NULL,   -- a publication that is younger than the slot's place lacks
                                       -- what was before it
  slot         text        NOT NULL,
  publication  text        NOT NULL,
  name         text COLLATE "C" PRIMARY KEY CHECK (name ~ '^[a-z_][a-z0-9_]{0,39}$'),
  stopped      text,                   -- why it does not go on before somebody acts
  path         text,                   -- of one that sends without jobs: direct, waiting,
                                       -- spilling, full, draining
  path_problem text,                   -- why it is not direct
  -- Cluster, store and database: positions mean nothing in a copy.
  identity     text[]      NOT NULL
) WITH (fillfactor = 50);

-- How far captures are, each in the transaction of the jobs that it counts; the largest is the
-- newest. Nothing is updated: the table that is not written to is truncated once the newest marks
-- are copied out of it, so that a pinned snapshot leaves no dead rows. The parity of capture_turn
-- says which one is written to.
--   done                 all before it is done: the slot may be confirmed up to here
--   commit, record, row  the last change that is done, in a transaction that may go on
--   ended                where the server's log ended then, by which a lag is known in time
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

-- What nobody captured.
CREATE TABLE posthaste.capture_gap (
  id          bigint      GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
  seen_at     timestamptz NOT NULL DEFAULT clock_timestamp(),
  accepted_at timestamptz,
  epoch uuid        NOT NULL,
  begins      pg_lsn      NOT NULL,
  ends        pg_lsn,                  -- NULL: the capture has not begun again
  capture     text COLLATE "C" NOT NULL,
  reason      text        NOT NULL,
  accepted_by text,
  tables      text[]      NOT NULL
);

-- Copies of rows that were there before their capture, or are to be sent again. A row changes once
-- a chunk, in the transaction of the chunk's jobs.
CREATE TABLE posthaste.capture_copy (
  id          bigint      GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
  begun_at    timestamptz NOT NULL DEFAULT clock_timestamp(),
  ended_at    timestamptz,
  rows        bigint      NOT NULL DEFAULT 0,
  expected    bigint      NOT NULL,    -- about so many rows
  is_cancelled boolean    NOT NULL DEFAULT false,
  capture     text COLLATE "C" NOT NULL,
  schema_name text        NOT NULL,
  table_name  text        NOT NULL,
  filter      text,                    -- rows for which this SQL expression is true
  problem     text,                    -- why it does not go on
  after       text[]                   -- the key of the last row; NULL: it begins
) WITH (fillfactor = 50);
CREATE UNIQUE INDEX capture_copy_open ON posthaste.capture_copy (capture, schema_name, table_name)
 WHERE ended_at IS NULL;
