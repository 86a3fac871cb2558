-- What programs of posthaste 0.1.0 send: one file because it is one version's.
-- Until it is released, make it again:
-- POSTHASTE_WRITE=1 cargo test -p posthaste --all-features --test main -- migrate::recorded

-- accept.sql
-- takes: int8
-- returns: id int8
UPDATE posthaste.capture_gap g SET accepted_at = clock_timestamp(), accepted_by = session_user
 WHERE g.id = $1::bigint AND g.accepted_at IS NULL
RETURNING id;

-- actions.sql
-- returns: at timestamptz, server text, pid int4, role text, application text, seconds float8
-- returns: action text, rule int4, result text
SELECT a.at, a.server, a.pid, a.role, a.application, a.seconds, a.action, a.rule,
       coalesce(a.result, 'unknown'::text) AS result
  FROM posthaste.txwatch_action a
 WHERE a.action <> 'warn' AND a.at > clock_timestamp() - interval '7 days'
 ORDER BY a.at DESC LIMIT 50;

-- admit.sql
-- takes: text, uuid, uuid, text
-- returns: is_runner bool, is_here bool, turn int8, snapshot text
SELECT c.runner = $2::uuid AND c.epoch = $3::uuid AS is_runner,
       (posthaste.current_identity())[3] = $4::text AS is_here,
       pg_sequence_last_value('posthaste.capture_turn'::regclass)::bigint AS turn,
       pg_current_snapshot()::text AS snapshot
  FROM posthaste.capture c
 WHERE c.name = $1::text;

-- alerts/begins.sql
-- takes: text, text, text, jsonb, float8
-- returns: enqueue int8
WITH noted AS (
  INSERT INTO posthaste.alert AS a (notify, alert, queue, "limit", value)
  VALUES ($1, $2, $3, 0::double precision, $5)
  ON CONFLICT (notify, alert, queue, "limit") DO NOTHING RETURNING 1)
SELECT posthaste.enqueue('posthaste.alert', $4::jsonb, $1) FROM noted;

-- alerts/ends.sql
-- takes: text, text, text, jsonb
-- returns: enqueue int8
WITH noted AS (
  DELETE FROM posthaste.alert a
   WHERE a.notify = $1 AND a.alert = $2 AND a.queue = $3 AND a."limit" = 0::double precision
  RETURNING 1)
SELECT posthaste.enqueue('posthaste.alert', $4::jsonb, $1) FROM noted;

-- alerts/may_tell.sql
-- returns: ?column? bool
SELECT pg_catalog.has_table_privilege('posthaste.alert', 'INSERT')
   AND pg_catalog.has_table_privilege('posthaste.alert', 'UPDATE')
   AND pg_catalog.has_table_privilege('posthaste.alert', 'DELETE');

-- alerts/notified.sql
-- takes: text
-- returns: alert text, queue text
SELECT a.alert, a.queue FROM posthaste.alert a WHERE a.notify = $1;

-- attempts.sql
-- takes: int8
-- returns: answer text
SELECT pg_catalog.row_to_json(a)::text AS answer
  FROM (SELECT t.attempt, t.at, t.outcome, t.worker, t.worker_name, t.error
          FROM posthaste.attempt t WHERE t.job = $1::bigint
         ORDER BY t.at DESC, t.attempt DESC LIMIT 1000) a
 ORDER BY a.at, a.attempt;

-- backlog.sql
-- takes: text
-- returns: seconds float8, is_left bool
SELECT w.seconds, CASE WHEN w.seconds IS NOT NULL THEN true ELSE EXISTS (
         SELECT FROM posthaste.job j
          WHERE j.queue = $1::text AND j.state = ANY ('{available,running,quarantined}'::text[]))
       END AS is_left
  FROM (SELECT extract(epoch FROM clock_timestamp() - min(o.since))::float8 AS seconds
          FROM posthaste.oldest() o WHERE o.queue = $1::text) w;

-- beat.sql
-- takes: int8, text
-- returns: session_identity text
UPDATE posthaste.worker SET beat = beat + 1, seen_at = clock_timestamp(), last_error = $2::text,
       failing_since = CASE WHEN $2::text IS NOT NULL
                            THEN coalesce(failing_since, clock_timestamp()) END
 WHERE id = $1 AND stopped_at IS NULL RETURNING posthaste.session_identity();

-- beats.sql
-- returns: id int8, beat int8, stopped bool
SELECT id, beat, stopped_at IS NOT NULL AS stopped FROM posthaste.worker
 WHERE stopped_at IS NULL
    OR (NOT clean AND stopped_at > posthaste.retention_clock() - interval '1 day');

-- begun_again.sql
-- takes: uuid, text
-- returns: id int8
UPDATE posthaste.capture_gap SET ends = $2::text::pg_lsn
 WHERE epoch = $1::uuid AND ends IS NULL
RETURNING id;

-- behind.sql
-- returns: sync text, reason text, jobs int8, seconds float8, is_over bool
WITH queue AS (
  SELECT s.name AS sync, 'sync.' || s.name AS name, s.delay, true AS is_change
    FROM posthaste.synced s
  UNION ALL
  SELECT s.name, 'sync.' || s.name || '.reindex', interval '0', false FROM posthaste.synced s
), tried AS MATERIALIZED (
  SELECT q.sync, q.is_change, left(j.last_error, 300) AS reason,
         j.state IN ('dead', 'discarded', 'expired') AS is_over,
         j.last_error LIKE '%: written, and to be seen' AS is_written,
         extract(epoch FROM clock_timestamp()
                 - CASE WHEN j.last_error IS NULL OR j.scheduled_at < j.enqueued_at + q.delay
                        THEN j.scheduled_at ELSE j.enqueued_at + q.delay END)::float8 AS seconds
    FROM queue q JOIN posthaste.job j ON j.queue = q.name
   WHERE j.state <> 'cancelled'
)
SELECT t.sync, NULL::text AS reason, count(*) AS jobs, max(t.seconds) AS seconds, false AS is_over
  FROM tried t
 WHERE t.is_change AND NOT t.is_over AND (t.reason IS NOT NULL OR t.seconds >= 0::float8)
 GROUP BY t.sync
UNION ALL
SELECT t.sync, t.reason, count(*), max(t.seconds), t.is_over
  FROM tried t WHERE t.reason IS NOT NULL AND NOT t.is_written
 GROUP BY t.sync, t.reason, t.is_over
 ORDER BY seconds DESC, sync, reason;

-- behind_key.sql
-- takes: text, int8
-- returns: id int8, name text, queue text, enqueued_at timestamptz
WITH stand AS MATERIALIZED (
  SELECT coalesce((SELECT s.turn FROM posthaste.ordering_position($1::text) s), -1::bigint) AS turn
)
SELECT w.id, w.name, w.queue, w.enqueued_at FROM (
  (SELECT r.turn, r.id, r.name, coalesce(r.own_queue, r.queue) AS queue, r.enqueued_at
     FROM posthaste.scheduled_6 r LEFT JOIN (
          SELECT * FROM posthaste.promote_cursor_6 c ORDER BY c.page DESC LIMIT 1) p ON true
    WHERE r.ordering_key = $1::text AND r.turn > (SELECT s.turn FROM stand s)
      AND r.scheduled_at = '9999-01-01Z'
      AND NOT EXISTS (SELECT FROM posthaste.closed_unclaimed_6 e
                       WHERE e.xid = r.xid AND e.id = r.id)
      AND NOT coalesce(posthaste.promoted(r.xid, r.scheduled_at, r.id, p.t_lo, p.t_hi, p.lo, p.hi,
                                          p.at_xid, p.at_due, p.at_id, p.late_done, p.exhausted),
                       false)
    ORDER BY r.ordering_key, r.turn LIMIT $2::bigint)
  UNION ALL
  (SELECT r.turn, r.id, r.name, coalesce(r.own_queue, r.queue), r.enqueued_at
     FROM posthaste.scheduled_7 r LEFT JOIN (
          SELECT * FROM posthaste.promote_cursor_7 c ORDER BY c.page DESC LIMIT 1) p ON true
    WHERE r.ordering_key = $1::text AND r.turn > (SELECT s.turn FROM stand s)
      AND r.scheduled_at = '9999-01-01Z'
      AND NOT EXISTS (SELECT FROM posthaste.closed_unclaimed_7 e
                       WHERE e.xid = r.xid AND e.id = r.id)
      AND NOT coalesce(posthaste.promoted(r.xid, r.scheduled_at, r.id, p.t_lo, p.t_hi, p.lo, p.hi,
                                          p.at_xid, p.at_due, p.at_id, p.late_done, p.exhausted),
                       false)
    ORDER BY r.ordering_key, r.turn LIMIT $2::bigint)) w
 ORDER BY w.turn LIMIT $2::bigint;

-- bulk_advance.sql
-- takes: int4, uuid, int8, text, int4, int8, bool
-- returns: state text, jobs int8
UPDATE posthaste.bulk_action AS a
   SET jobs = a.jobs + $3::bigint, place = $4::text, passes = $5::integer, pass_jobs = $6::bigint,
       failures = 0, last_error = NULL, driver = $2::uuid,
       driven_until = clock_timestamp() + interval '10 s',
       state = CASE WHEN $7::boolean THEN 'finished' WHEN a.stopped_by IS NOT NULL THEN 'stopped'
                    ELSE 'running' END,
       ended_at = CASE WHEN $7::boolean OR a.stopped_by IS NOT NULL THEN clock_timestamp() END
 WHERE a.id = $1::integer
RETURNING a.state, a.jobs;

-- bulk_begin.sql
-- takes: int4, uuid
-- returns: id int4, started_at timestamptz, ended_at timestamptz, at_most int8, expected int8
-- returns: jobs int8, pass_jobs int8, passes int4, failures int4, action text, state text
-- returns: filter text, place text, who text, stopped_by text, last_error text, is_driven bool
-- returns: is_ours bool
SELECT a.id, a.started_at, a.ended_at, a.at_most, a.expected, a.jobs, a.pass_jobs, a.passes,
       a.failures, a.action, a.state, a.filter, a.place, a.who, a.stopped_by, a.last_error,
       a.driven_until > clock_timestamp() - interval '30 s' AS is_driven,
       CASE WHEN pg_catalog.pg_is_in_recovery() THEN true
            ELSE a.identity[1] = (posthaste.current_identity())[1]
                 AND a.identity[2] = (posthaste.current_identity())[2]
                 AND a.identity[4] = (posthaste.current_identity())[4] END AS is_ours
  FROM posthaste.bulk_action a
 WHERE a.id = $1::integer AND a.state = 'running'
   AND (a.driver = $2::uuid OR a.driven_until <= clock_timestamp());

-- bulk_due.sql
-- takes: uuid
-- returns: id int4
SELECT a.id FROM posthaste.bulk_action a
 WHERE a.state = 'running' AND (a.driver = $1::uuid OR a.driven_until <= clock_timestamp())
   AND CASE WHEN pg_catalog.pg_is_in_recovery() THEN false
            ELSE a.identity[1] = (posthaste.current_identity())[1]
                 AND a.identity[2] = (posthaste.current_identity())[2]
                 AND a.identity[4] = (posthaste.current_identity())[4] END
 ORDER BY a.id;

-- bulk_failed.sql
-- takes: int4, text, float8, bool
-- returns: state text, jobs int8
UPDATE posthaste.bulk_action AS a
   SET failures = a.failures + 1, last_error = $2::text, driver = NULL,
       driven_until = clock_timestamp() + $3::double precision * interval '1 s',
       state = CASE WHEN a.stopped_by IS NOT NULL THEN 'stopped' WHEN $4::boolean THEN 'failed'
                    ELSE 'running' END,
       ended_at = CASE WHEN a.stopped_by IS NOT NULL OR $4::boolean THEN clock_timestamp() END
 WHERE a.id = $1::integer AND a.state = 'running'
RETURNING a.state, a.jobs;

-- bulk_given_up.sql
-- takes: text, timestamptz, int8, timestamptz, text, text, text, text, int8, int8, timestamptz
-- takes: text, int4
-- returns: id int8, died_at timestamptz, scanned int8
WITH near AS MATERIALIZED (
  SELECT d.id, d.died_at, d.queue, d.name, d.tag, d.last_error, d.ordering_key, d.priority
    FROM posthaste.dead d
   WHERE d.state = $1::text AND d.died_at >= $2::timestamptz
     AND (d.died_at, d.id) > ($2::timestamptz, $3::bigint) AND d.died_at <= $4::timestamptz
     AND d.died_at < coalesce($11::timestamptz, 'infinity')
   ORDER BY d.died_at, d.id LIMIT $9::bigint
), matching AS MATERIALIZED (
  SELECT n.id, n.died_at FROM near n
   WHERE ($5::text IS NULL OR n.queue LIKE $5::text) AND ($6::text IS NULL OR n.name LIKE $6::text)
     AND ($7::text IS NULL OR n.tag LIKE $7::text)
     AND ($8::text IS NULL OR n.last_error LIKE $8::text)
     AND ($12::text IS NULL OR n.ordering_key LIKE $12::text)
     AND ($13::integer IS NULL OR n.priority = $13::integer)
   ORDER BY n.died_at, n.id LIMIT $10::bigint
), scanned AS (
  SELECT n.id, n.died_at, count(*) OVER () AS rows
    FROM near n ORDER BY n.died_at DESC, n.id DESC LIMIT 1
)
SELECT m.id, m.died_at, NULL::bigint AS scanned FROM matching m
UNION ALL
SELECT l.id, l.died_at, l.rows FROM scanned l
 ORDER BY scanned NULLS FIRST, died_at, id;

-- bulk_go_on.sql
-- takes: int4, uuid
-- returns: state text, jobs int8
UPDATE posthaste.bulk_action AS a
   SET state = 'running', ended_at = NULL, stopped_by = NULL, last_error = NULL, failures = 0,
       place = CASE WHEN a.action <> 'cancel' THEN a.place END, passes = 0,
       driver = $2::uuid, driven_until = clock_timestamp() + interval '10 s',
       identity = posthaste.current_identity()
 WHERE a.id = $1::integer AND a.state IN ('stopped', 'failed')
RETURNING a.state, a.jobs;

-- bulk_lock.sql
-- takes: int4
-- returns: is_free bool
SELECT pg_catalog.pg_try_advisory_xact_lock(1885893481, $1::integer) AS is_free;

-- bulk_newest.sql
-- takes: int8
-- returns: id int4, started_at timestamptz, ended_at timestamptz, at_most int8, expected int8
-- returns: jobs int8, pass_jobs int8, passes int4, failures int4, action text, state text
-- returns: filter text, place text, who text, stopped_by text, last_error text, is_driven bool
-- returns: is_ours bool
SELECT a.id, a.started_at, a.ended_at, a.at_most, a.expected, a.jobs, a.pass_jobs, a.passes,
       a.failures, a.action, a.state, a.filter, a.place, a.who, a.stopped_by, a.last_error,
       a.driven_until > clock_timestamp() - interval '30 s' AS is_driven,
       CASE WHEN pg_catalog.pg_is_in_recovery() THEN true
            ELSE a.identity[1] = (posthaste.current_identity())[1]
                 AND a.identity[2] = (posthaste.current_identity())[2]
                 AND a.identity[4] = (posthaste.current_identity())[4] END AS is_ours
  FROM posthaste.bulk_action a
 WHERE a.state = 'running' OR a.id = ANY (ARRAY(
   SELECT b.id FROM posthaste.bulk_action b ORDER BY b.id DESC LIMIT $1::bigint))
 ORDER BY a.id DESC;

-- bulk_next.sql
-- returns: id int4, running int8
SELECT coalesce(max(a.id), 0) + 1 AS id, count(*) FILTER (WHERE a.state = 'running') AS running
  FROM posthaste.bulk_action a;

-- bulk_number_lock.sql
-- returns: pg_advisory_xact_lock void
SELECT pg_catalog.pg_advisory_xact_lock(1885893481, 0);

-- bulk_one.sql
-- takes: int4
-- returns: id int4, started_at timestamptz, ended_at timestamptz, at_most int8, expected int8
-- returns: jobs int8, pass_jobs int8, passes int4, failures int4, action text, state text
-- returns: filter text, place text, who text, stopped_by text, last_error text, is_driven bool
-- returns: is_ours bool
SELECT a.id, a.started_at, a.ended_at, a.at_most, a.expected, a.jobs, a.pass_jobs, a.passes,
       a.failures, a.action, a.state, a.filter, a.place, a.who, a.stopped_by, a.last_error,
       a.driven_until > clock_timestamp() - interval '30 s' AS is_driven,
       CASE WHEN pg_catalog.pg_is_in_recovery() THEN true
            ELSE a.identity[1] = (posthaste.current_identity())[1]
                 AND a.identity[2] = (posthaste.current_identity())[2]
                 AND a.identity[4] = (posthaste.current_identity())[4] END AS is_ours
  FROM posthaste.bulk_action a WHERE a.id = $1::integer;

-- bulk_quarantined.sql
-- takes: int8, text, text, text, text, timestamptz, int8, timestamptz, text, int4
-- returns: id int8, enqueued_at timestamptz
SELECT h.id, h.enqueued_at FROM posthaste.in_flight h
 WHERE h.state = 'quarantined' AND h.id < $1::bigint AND h.until > clock_timestamp()
   AND ($2::text IS NULL OR h.queue LIKE $2::text) AND ($3::text IS NULL OR h.name LIKE $3::text)
   AND ($4::text IS NULL OR h.tag LIKE $4::text)
   AND ($5::text IS NULL OR h.last_error LIKE $5::text)
   AND ($6::timestamptz IS NULL OR h.enqueued_at >= $6::timestamptz)
   AND ($8::timestamptz IS NULL OR h.enqueued_at < $8::timestamptz)
   AND ($9::text IS NULL OR h.ordering_key LIKE $9::text)
   AND ($10::integer IS NULL OR h.priority = $10::integer)
 ORDER BY h.id DESC LIMIT $7::bigint;

-- bulk_start.sql
-- takes: int4, uuid, text, text, int8, int8, text, int4
WITH forgotten AS (
  DELETE FROM posthaste.bulk_action AS a
   WHERE a.state <> 'running' AND a.id <= $1::integer - $8::integer)
INSERT INTO posthaste.bulk_action
  (id, driver, driven_until, action, filter, at_most, expected, who, identity)
VALUES ($1::integer, $2::uuid, clock_timestamp() + interval '10 s', $3::text, $4::text, $5::bigint,
        $6::bigint, $7::text, posthaste.current_identity());

-- bulk_stop.sql
-- takes: int4, text, bool
-- returns: state text, jobs int8
UPDATE posthaste.bulk_action AS a
   SET stopped_by = $2::text, state = CASE WHEN $3::boolean THEN 'stopped' ELSE a.state END,
       ended_at = CASE WHEN $3::boolean THEN clock_timestamp() END
 WHERE a.id = $1::integer AND a.state IN ('running', 'failed') AND a.stopped_by IS NULL
RETURNING a.state, a.jobs;

-- bulk_told.sql
-- takes: _int8
-- returns: id int8
SELECT c.id FROM posthaste.cancelling c WHERE c.id = ANY ($1::bigint[]);

-- bulk_tried.sql
-- takes: _int8, timestamptz
-- returns: id int8
SELECT DISTINCT a.job AS id FROM posthaste.attempt a
 WHERE a.job = ANY ($1::bigint[]) AND a.at >= $2::timestamptz;

-- cancel.sql
-- takes: _int8
-- returns: answer text
SELECT pg_catalog.json_build_array(c.id, c.state)::text AS answer
  FROM posthaste.cancel_many($1::bigint[]) c ORDER BY c.id;

-- cancelling.sql
-- returns: id int8
SELECT id FROM posthaste.cancelling WHERE posthaste.begin_single_statement();

-- capture.sql
-- takes: text
-- returns: slot text, publication text, epoch uuid, stopped text, is_here bool, is_published bool
-- returns: is_paused bool, timeline text
SELECT c.slot, c.publication, c.epoch, c.stopped,
       c.identity OPERATOR(pg_catalog.=) ARRAY[i.now[1], i.now[2], i.now[4]] AS is_here,
       EXISTS (SELECT FROM pg_publication p
                WHERE p.oid = c.published AND p.pubname = c.publication::name) AS is_published,
       c.paused_at IS NOT NULL AS is_paused, i.now[3] AS timeline
  FROM posthaste.capture c, (SELECT posthaste.current_identity() AS now) i
 WHERE c.name = $1::text;

-- captures.sql
-- returns: name text, slot text, publication text, installed_at timestamptz, started_at timestamptz
-- returns: stopped text, is_active bool, is_missing bool, wal_status text, done text
-- returns: at timestamptz, unconfirmed int8, kept int8, gaps int8, paused_at timestamptz
-- returns: events int8, bytes int8, lag_seconds float8, copied_rows int8, copy_rows int8
-- returns: copy_problem text, path text, indirect_since timestamptz, path_problem text
SELECT c.name, c.slot, c.publication, c.installed_at, c.started_at, c.stopped,
       coalesce(s.active, false) AS is_active, s.slot_name IS NULL AS is_missing,
       coalesce(s.wal_status, '') AS wal_status, m.done::text, m.at,
       CASE WHEN pg_is_in_recovery() THEN NULL
            ELSE (pg_current_wal_lsn() - m.done)::bigint END AS unconfirmed,
       CASE WHEN pg_is_in_recovery() THEN NULL
            ELSE (pg_current_wal_lsn() - s.restart_lsn)::bigint END AS kept,
       (SELECT count(*) FROM posthaste.capture_gap g
         WHERE g.capture = c.name AND g.accepted_at IS NULL) AS gaps,
       c.paused_at, coalesce(m.events, 0::bigint) AS events, coalesce(m.bytes, 0::bigint) AS bytes,
       CASE WHEN pg_is_in_recovery() THEN NULL
            WHEN s.active AND c.stopped IS NULL AND c.paused_at IS NULL
                 AND (pg_current_wal_lsn() - m.done)::bigint < 16777216::bigint
                 AND m.at > clock_timestamp() - '90 seconds'::interval THEN 0::float8
            ELSE greatest(0::float8, extract(epoch FROM clock_timestamp()
                                             - coalesce(k.at, m.at, c.installed_at))::float8)
       END AS lag_seconds,
       p.rows AS copied_rows, p.expected AS copy_rows, p.problem AS copy_problem, c.path,
       c.indirect_since, CASE WHEN c.path <> 'direct'::text THEN c.path_problem END AS path_problem
  FROM posthaste.capture c
  LEFT JOIN pg_replication_slots s ON s.slot_name = c.slot::name
  LEFT JOIN LATERAL (
    SELECT w.* FROM (SELECT * FROM posthaste.capture_mark_0
                      UNION ALL SELECT * FROM posthaste.capture_mark_1) w
     WHERE w.epoch = c.epoch
     ORDER BY w.commit DESC, w.record DESC, w.row DESC, w.done DESC LIMIT 1) m ON true
  LEFT JOIN LATERAL (
    SELECT max(w.at) AS at FROM (SELECT * FROM posthaste.capture_mark_0
                                  UNION ALL SELECT * FROM posthaste.capture_mark_1) w
     WHERE w.epoch = c.epoch AND w.ended <= m.done) k ON true
  LEFT JOIN LATERAL (
    SELECT sum(y.rows)::bigint AS rows, sum(y.expected)::bigint AS expected,
           min(y.problem) AS problem
      FROM posthaste.capture_copy y WHERE y.capture = c.name AND y.ended_at IS NULL) p ON true
 ORDER BY c.name;

-- captures.sql
-- returns: problem text, capture text, table_name text
WITH slot AS MATERIALIZED (
       SELECT c.name, pg_catalog.to_jsonb(s) ->> 'failover'::text = 'true'::text AS is_failover
         FROM posthaste.capture c JOIN pg_replication_slots s ON s.slot_name = c.slot::name),
     follows AS MATERIALIZED (
       SELECT EXISTS (
         SELECT FROM pg_stat_replication r
          WHERE r.application_name <> ALL ('{pg_basebackup,pg_receivewal}'::text[])
            AND NOT EXISTS (SELECT FROM pg_replication_slots s
                             WHERE s.active_pid = r.pid AND s.slot_type = 'logical'::text)) AS any),
     waits AS MATERIALIZED (
       SELECT btrim(w.slot, ' "'::text) AS slot
         FROM pg_catalog.string_to_table(
                nullif(current_setting('synchronized_standby_slots'::text, true), ''::text),
                ','::text) w (slot))
SELECT 'publication'::text AS problem, c.name AS capture, ''::text AS table_name
  FROM posthaste.capture c
 WHERE c.stopped IS NULL
   AND NOT EXISTS (SELECT FROM pg_publication p
                    WHERE p.oid = c.published AND p.pubname = c.publication::name)
 UNION ALL
SELECT 'identity'::text, c.name, n.nspname::text || '.'::text || t.relname::text
  FROM posthaste.capture c
  JOIN pg_publication p ON p.oid = c.published AND (p.pubupdate OR p.pubdelete)
  JOIN pg_publication_rel r ON r.prpubid = p.oid
 CROSS JOIN LATERAL (
   SELECT r.prrelid AS oid
    UNION SELECT i.relid::oid FROM pg_partition_tree(r.prrelid::regclass) i WHERE i.isleaf) l
  JOIN pg_class t ON t.oid = l.oid AND t.relkind = 'r'::"char"
  JOIN pg_namespace n ON n.oid = t.relnamespace
 WHERE t.relreplident <> 'f'::"char"
   AND NOT EXISTS (
     SELECT FROM pg_index i
      WHERE i.indrelid = t.oid AND i.indisvalid AND i.indimmediate
        AND CASE t.relreplident WHEN 'i'::"char" THEN i.indisreplident
                                WHEN 'd'::"char" THEN i.indisprimary ELSE false END)
 UNION ALL
SELECT 'limit'::text, ''::text, ''::text
 WHERE current_setting('max_slot_wal_keep_size'::text) = '-1'::text
   AND EXISTS (SELECT FROM posthaste.capture)
 UNION ALL
SELECT 'unsynchronized'::text, s.name, ''::text FROM slot s, follows f
 WHERE f.any AND NOT s.is_failover
 UNION ALL
SELECT 'no synchronization'::text, ''::text, ''::text FROM follows f
 WHERE f.any AND EXISTS (SELECT FROM slot s WHERE s.is_failover)
   AND NOT EXISTS (SELECT FROM pg_stat_activity a
                    WHERE a.application_name LIKE '%slotsync worker'::text)
 UNION ALL
SELECT 'standbys lag'::text, ''::text, ''::text FROM follows f
 WHERE f.any AND EXISTS (SELECT FROM slot s WHERE s.is_failover) AND NOT EXISTS (SELECT FROM waits)
 UNION ALL
SELECT 'standby missing'::text, ''::text, w.slot FROM waits w
 WHERE EXISTS (SELECT FROM slot s WHERE s.is_failover)
   AND NOT EXISTS (SELECT FROM pg_replication_slots p
                    WHERE p.slot_name = w.slot::name AND p.slot_type = 'physical'::text
                      AND p.active)
 ORDER BY 1, 2, 3;

-- causes.sql
-- takes: text, timestamptz, timestamptz, text, text, int8, text, text, int4
-- returns: queue text, name text, error text, jobs int8, scanned int8
WITH near AS MATERIALIZED (
  SELECT d.queue, d.name, d.tag, d.ordering_key, d.priority, left(d.last_error, 300) AS error
    FROM posthaste.dead d
   WHERE d.state = $1::text AND d.died_at >= coalesce($2::timestamptz, '-infinity')
     AND d.died_at < coalesce($3::timestamptz, 'infinity')
   ORDER BY d.died_at DESC LIMIT $6::bigint
)
SELECT n.queue, n.name, n.error, count(*) AS jobs, (SELECT count(*) FROM near) AS scanned
  FROM near n
 WHERE n.error <> ''::text
   AND ($4::text IS NULL OR n.queue LIKE $4::text) AND ($5::text IS NULL OR n.name LIKE $5::text)
   AND ($7::text IS NULL OR n.tag LIKE $7::text)
   AND ($8::text IS NULL OR n.ordering_key LIKE $8::text)
   AND ($9::integer IS NULL OR n.priority = $9::integer)
 GROUP BY n.queue, n.name, n.error;

-- claim.sql
-- takes: text, _int4, int8, uuid, int4, int8, int4
-- returns: slot int2, batch int8, id int8, enqueued_at timestamptz, scheduled_at timestamptz
-- returns: expires_at timestamptz, priority int4, attempt int4, max_attempts int4, crashes int2
-- returns: name text, tag text, unique_key text, ordering_key text, trace text, kwargs jsonb
SELECT slot, batch, id, enqueued_at, scheduled_at, expires_at, priority, attempt, max_attempts,
       crashes, name, tag, unique_key, ordering_key, trace, kwargs
  FROM posthaste.claim($1, $2, $3, $4, $5, $6, $7)
 WHERE posthaste.begin_single_statement();

-- claim_batches.sql
-- takes: text, _int4, int8, uuid
-- returns: slot int2, batch int8
SELECT slot, batch FROM posthaste.claim_batches($1, $2, $3, $4);

-- claim_quarantined.sql
-- takes: text, int8, uuid
-- returns: count int8
SELECT count(*) FROM posthaste.claim_quarantined($1, $2, $3);

-- claim_quarantined_batch.sql
-- takes: text, int8, uuid, int8
-- returns: count int8
WITH taken AS (
  UPDATE posthaste.in_flight h SET state = 'running', worker = $2, token = $3
   WHERE h.id = ANY (ARRAY(SELECT s.id FROM posthaste.in_flight s
                            WHERE s.state = 'quarantined' AND s.queue = $1
                              AND s.until <= clock_timestamp() AND s.expires_at > clock_timestamp()
                              AND s.crashes = 1 AND s.max_attempts IS NULL
                            ORDER BY s.until, s.id LIMIT $4 FOR UPDATE SKIP LOCKED))
     AND EXISTS (SELECT FROM posthaste.worker w WHERE w.id = $2 AND w.stopped_at IS NULL
                       AND w.identity = posthaste.session_identity())
     AND NOT EXISTS (SELECT FROM posthaste.queue q WHERE q.name = $1 AND q.paused_at IS NOT NULL)
  RETURNING 1)
SELECT count(*) FROM taken;

-- claimed_jobs.sql
-- takes: int8, uuid, _int2, _int8, _int8
-- returns: slot int2, batch int8, id int8, enqueued_at timestamptz, scheduled_at timestamptz
-- returns: expires_at timestamptz, priority int4, attempt int4, max_attempts int4, crashes int2
-- returns: name text, tag text, unique_key text, ordering_key text, trace text, kwargs jsonb
SELECT slot, batch, id, enqueued_at, scheduled_at, expires_at, priority, attempt, max_attempts,
       crashes, name, tag, unique_key, ordering_key, trace, kwargs
  FROM posthaste.claimed_jobs($1, $2, $3, $4, $5);

-- claimed_now.sql
-- takes: int8, uuid
-- returns: slot int2, batch int8, id int8, enqueued_at timestamptz, scheduled_at timestamptz
-- returns: expires_at timestamptz, priority int4, attempt int4, max_attempts int4, crashes int2
-- returns: name text, tag text, unique_key text, ordering_key text, trace text, kwargs jsonb
SELECT j.slot, j.batch, j.id, j.enqueued_at, j.scheduled_at, j.expires_at, j.priority, j.attempt,
       j.max_attempts, j.crashes, j.name, j.tag, j.unique_key, j.ordering_key, j.trace, j.kwargs
  FROM (SELECT split_part(s.unread, ' '::text, 1) = $2::uuid::text AS is_it,
               split_part(s.unread, ' '::text, 2) AS slots,
               split_part(s.unread, ' '::text, 3) AS batches
          FROM (SELECT current_setting('posthaste.unread'::text, true) AS unread) s) u,
       LATERAL posthaste.claimed_jobs($1::bigint, $2::uuid,
         CASE WHEN u.is_it THEN u.slots ELSE '{}'::text END::smallint[],
         CASE WHEN u.is_it THEN u.batches ELSE '{}'::text END::bigint[], NULL::bigint[]) j
 WHERE u.is_it;

-- complete.sql
-- takes: int2, int8, uuid, int8
-- returns: id int8
SELECT pg_catalog.cardinality(
         posthaste.settle($1::smallint, $2::bigint, $3::uuid, ARRAY[$4::bigint], ARRAY[0::smallint],
                          NULL, NULL, NULL, NULL, NULL))::bigint AS id;

-- copies.sql
-- takes: text
-- returns: id int8, begun_at timestamptz, ended_at timestamptz, rows int8, expected int8
-- returns: is_cancelled bool, capture text, table_name text, filter text, problem text
SELECT p.id, p.begun_at, p.ended_at, p.rows, p.expected, p.is_cancelled, p.capture,
       p.schema_name || '.'::text || p.table_name AS table_name, p.filter, p.problem
  FROM posthaste.capture_copy p
 WHERE $1::text IS NULL OR p.capture = $1::text
 ORDER BY p.id DESC
 LIMIT 1000;

-- copy.sql
-- takes: int2, text, text, int4, timestamptz, timestamptz, timestamptz, text, int4, int4, jsonb
-- takes: text, text, int4, text
COPY posthaste.store (slot, queue, name, priority, enqueued_at, scheduled_at, expires_at, tag,
                      max_attempts, kwargs_bytes, kwargs,
                      ordering_key, own_queue, own_priority, trace) FROM STDIN (FORMAT binary);

-- copy_begin.sql
-- takes: text, text, text, text
-- returns: id int8
INSERT INTO posthaste.capture_copy (capture, schema_name, table_name, filter, expected)
SELECT $1, $2, $3, $4,
       greatest(0::bigint, coalesce(
         (SELECT sum(greatest(l.reltuples, 0::real))::bigint
            FROM pg_class c
            JOIN pg_namespace n ON n.oid = c.relnamespace AND n.nspname = $2::text::name
           CROSS JOIN LATERAL (SELECT c.oid UNION SELECT i.relid::oid
                                 FROM pg_partition_tree(c.oid::regclass) i WHERE i.isleaf) p
            JOIN pg_class l ON l.oid = p.oid AND l.relkind = 'r'::"char"
           WHERE c.relname = $3::text::name), 0::bigint))
    ON CONFLICT (capture, schema_name, table_name) WHERE ended_at IS NULL DO NOTHING
RETURNING id;

-- copy_cancel.sql
-- takes: text, text, text
-- returns: id int8
UPDATE posthaste.capture_copy SET ended_at = clock_timestamp(), is_cancelled = true
 WHERE capture = $1::text AND schema_name = $2::text AND table_name = $3::text AND ended_at IS NULL
RETURNING id;

-- copy_done.sql
-- takes: int8, int8, _text, bool
-- returns: id int8
UPDATE posthaste.capture_copy
   SET rows = rows + $2::bigint, after = $3::text[],
       ended_at = CASE WHEN $4::boolean THEN clock_timestamp() END
 WHERE id = $1::bigint AND ended_at IS NULL
RETURNING id;

-- copy_enter.sql
-- returns: ready int2, scheduled int2, now timestamptz, due_by timestamptz
SELECT posthaste.enter_ready() AS ready,
       CASE WHEN u.until IS NOT NULL THEN posthaste.enter_scheduled() END AS scheduled,
       clock_timestamp() AS now, greatest(clock_timestamp(), u.until) AS due_by
  FROM (SELECT posthaste.promote_horizon() AS until OFFSET 0) u;

-- copy_next.sql
-- takes: text
-- returns: is_paused bool, id int8, schema_name text, table_name text, filter text, after _text
SELECT c.paused_at IS NOT NULL AS is_paused, p.id, p.schema_name, p.table_name, p.filter, p.after
  FROM posthaste.capture c
  LEFT JOIN LATERAL (
    SELECT p.* FROM posthaste.capture_copy p
     WHERE p.capture = c.name AND p.ended_at IS NULL AND p.problem IS NULL
     ORDER BY p.id LIMIT 1) p ON true
 WHERE c.name = $1::text;

-- copy_notify.sql
-- takes: _text
-- returns: notify int2
SELECT posthaste.notify(u.queue, b.listeners) 
  FROM (SELECT posthaste.listeners() AS listeners OFFSET 0) b,
       pg_catalog.unnest($1::text[]) u(queue);

-- copy_routes.sql
-- returns: pattern text, queue text
SELECT pattern, queue FROM posthaste.route;

-- copy_statements.sql
-- takes: text, text, _text, _text, text, _text, int8
-- returns: lock text, rows text
SELECT pg_catalog.format('LOCK TABLE %I.%I IN ACCESS SHARE MODE'::text, $1::text, $2::text) AS lock,
       pg_catalog.format(
         'SELECT %s, r."posthaste wanted", %s FROM (SELECT %I.*, (%s) IS TRUE AS "posthaste wanted"'
         ' FROM (SELECT * FROM %I.%I%s ORDER BY %s LIMIT %s) %I) r ORDER BY %s'::text,
         k.shown,
         (SELECT string_agg(pg_catalog.format('CASE WHEN r."posthaste wanted" THEN r.%I END'::text,
                                              c.name), ', '::text ORDER BY c.n)
            FROM pg_catalog.unnest($3::text[]) WITH ORDINALITY c (name, n)),
         $2::text, coalesce($5::text, 'true'::text), $1::text, $2::text,
         CASE WHEN $6::text[] IS NULL THEN ''::text
              ELSE pg_catalog.format(' WHERE (%s) > (%s)'::text, k.plain, v.list) END,
         k.plain, $7::bigint, $2::text, k.shown) AS rows
  FROM (SELECT string_agg(pg_catalog.format('r.%I'::text, k.name), ', '::text ORDER BY k.n)
                 AS shown,
               string_agg(quote_ident(k.name), ', '::text ORDER BY k.n) AS plain
          FROM pg_catalog.unnest($4::text[]) WITH ORDINALITY k (name, n)) k,
       (SELECT string_agg(pg_catalog.format('%L::%s'::text, v.value,
                                            format_type(a.atttypid, a.atttypmod)),
                          ', '::text ORDER BY v.n) AS list
          FROM unnest($4::text[], $6::text[]) WITH ORDINALITY v (name, value, n)
          JOIN pg_namespace n ON n.nspname = $1::text::name
          JOIN pg_class c ON c.relnamespace = n.oid AND c.relname = $2::text::name
          JOIN pg_attribute a ON a.attrelid = c.oid AND a.attname = v.name::name) v;

-- copy_table.sql
-- takes: text, text, _text, text
-- returns: oid int8, identity text, name text, kind int8, place int8, is_key bool
-- returns: is_published bool
WITH t AS (
  SELECT c.oid, c.relreplident, n.nspname, c.relname
    FROM pg_class c JOIN pg_namespace n ON n.oid = c.relnamespace
   WHERE n.nspname = $1::text::name AND c.relname = $2::text::name
     AND c.relkind IN ('r'::"char", 'p'::"char")),
identity AS (
  SELECT i.indexrelid, i.indrelid, i.indkey, i.indnkeyatts, t.relreplident,
         i.indisprimary, i.indisreplident
    FROM t JOIN pg_index i ON i.indrelid = t.oid
   WHERE i.indisunique AND i.indisvalid AND i.indimmediate
     AND i.indpred IS NULL AND i.indexprs IS NULL
     AND NOT EXISTS (
       SELECT FROM pg_catalog.unnest(i.indkey::smallint[]) WITH ORDINALITY k (attnum, place)
         JOIN pg_attribute a ON a.attrelid = i.indrelid AND a.attnum = k.attnum
        WHERE k.place <= i.indnkeyatts::bigint AND NOT a.attnotnull)
     AND CASE t.relreplident WHEN 'i'::"char" THEN i.indisreplident
                             WHEN 'd'::"char" THEN i.indisprimary ELSE true END
   ORDER BY i.indisprimary DESC, i.indexrelid
   LIMIT 1),
key AS (
  SELECT k.attnum, k.place
    FROM identity i, pg_catalog.unnest(i.indkey::smallint[]) WITH ORDINALITY k (attnum, place)
   WHERE k.place <= i.indnkeyatts::bigint)
SELECT t.oid::bigint AS oid, t.relreplident::text AS identity, a.attname::text AS name,
       a.atttypid::bigint AS kind, k.place AS place,
       t.relreplident = 'f'::"char"
         OR t.relreplident <> 'n'::"char" AND k.place IS NOT NULL AS is_key,
       EXISTS (SELECT FROM pg_publication_rel r JOIN pg_publication p ON p.oid = r.prpubid
                WHERE p.pubname = $4::text::name AND r.prrelid = t.oid) AS is_published
  FROM t
  JOIN pg_attribute a ON a.attrelid = t.oid AND a.attnum > 0 AND NOT a.attisdropped
   AND (a.attgenerated = ''::"char"
        OR a.attgenerated = 's'::"char"
           AND current_setting('server_version_num'::text)::integer >= 180000)
  LEFT JOIN key k ON k.attnum = a.attnum
 WHERE pg_catalog.cardinality($3::text[]) = 0 OR a.attname::text = ANY ($3::text[])
 ORDER BY a.attnum;

-- counters.sql
-- takes: int4
-- returns: answer text
SELECT pg_catalog.json_build_object(
         'oldest', ARRAY(
           SELECT pg_catalog.row_to_json(a) FROM (
             SELECT o.queue, o.priority, o.since,
                    extract(epoch FROM clock_timestamp() - o.since) AS seconds,
                    EXISTS (SELECT FROM posthaste.worker w
                             WHERE w.stopped_at IS NULL
                               AND w.seen_at > clock_timestamp() - interval '1 min'
                               AND (pg_catalog.cardinality(w.queues) = 0
                                    OR o.queue = ANY (w.queues))) AS is_worked
               FROM posthaste.oldest() o) a
            ORDER BY a.queue, a.priority),
         'paused', ARRAY(
           SELECT q.name FROM posthaste.queue q WHERE q.paused_at IS NOT NULL ORDER BY q.name),
         'is_partial', CASE WHEN $1::integer IS NULL THEN false
                            ELSE posthaste.not_counted($1::integer) >= $1::integer END,
         'jobs', ARRAY(
           SELECT pg_catalog.row_to_json(c) FROM posthaste.counts_within($1::integer) c
            ORDER BY c.queue, c.priority, c.name, c.tag))::text AS answer;

-- dead.sql
-- takes: _int8, text, text, text, text, text, numeric, int8
-- returns: answer text
SELECT pg_catalog.row_to_json(a)::text AS answer
  FROM (SELECT k.*, posthaste.delivery_id(k.id) AS delivery_id
          FROM (SELECT d.id, d.name, d.queue, d.priority, d.scheduled_at, d.expires_at,
                       d.enqueued_at, d.tag, d.kwargs, d.unique_key, d.ordering_key, d.trace,
                       d.attempt, d.max_attempts, d.state, d.last_error, NULL::bigint AS worker,
                       NULL::text AS worker_name, NULL::timestamptz AS claimed_at,
                       d.died_at AS ended_at
                  FROM posthaste.dead d
                 WHERE ($1::bigint[] IS NULL OR d.id = ANY ($1::bigint[]))
                   AND ($2::text IS NULL OR d.queue = $2::text)
                   AND ($3::text IS NULL OR d.name = $3::text)
                   AND ($4::text IS NULL OR d.tag = $4::text)
                   AND ($5::text IS NULL OR d.state = $5::text)
                   AND ($6::text IS NULL OR d.last_error LIKE $6::text)
                 ORDER BY extract(epoch FROM d.died_at) * $7::numeric, d.id * $7::bigint
                 LIMIT $8::bigint) k) a
 ORDER BY extract(epoch FROM a.ended_at) * $7::numeric, a.id * $7::bigint;

-- dead_rows.sql
-- returns: name text, dead int8, live int8, vacuumed_at timestamptz
SELECT pg_catalog.format('%s.%s', t.schemaname, t.relname) AS name, t.n_dead_tup AS dead,
       t.n_live_tup AS live, greatest(t.last_vacuum, t.last_autovacuum) AS vacuumed_at
  FROM pg_catalog.pg_stat_user_tables t
 WHERE t.n_dead_tup > 0::bigint AND t.schemaname <> 'posthaste'
 ORDER BY t.n_dead_tup DESC, t.relid LIMIT 10;

-- deaths.sql
-- takes: int8, int8
-- returns: int8 int8, int8 int8, int4 int4, int8 int8, text text, text text, text text, text text
WITH span AS MATERIALIZED (SELECT clock_timestamp() - interval '2 s' AS until),
gone AS (
  SELECT d.id, d.state, d.queue, d.name, d.attempt, e.reason,
         count(*) OVER (PARTITION BY d.state, d.queue, d.name, e.reason) AS jobs,
         row_number() OVER (PARTITION BY d.state, d.queue, d.name, e.reason ORDER BY d.id) AS n
    FROM posthaste.dead d
    CROSS JOIN LATERAL (SELECT CASE WHEN d.state = 'dead' THEN d.last_error END AS reason) e
   WHERE d.died_at <= (SELECT s.until FROM span s)
     AND d.died_at > to_timestamp(0::float8) + $1::bigint::float8 * interval '1 microsecond'
     AND (d.state = 'expired'
          OR d.state = 'dead' AND (d.last_error LIKE 'its worker died %'
                                   OR d.last_error = 'it was not confirmed in time')))
SELECT (extract(epoch FROM s.until) * 1000000::numeric)::bigint, NULL::bigint, NULL::integer,
       NULL::bigint, NULL::text, NULL::text, NULL::text, NULL::text
  FROM span s
UNION ALL
SELECT NULL::bigint, g.id, g.attempt, g.jobs, g.state, g.queue, g.name, g.reason
  FROM gone g WHERE g.n = 1 OR g.n <= $2::bigint AND g.jobs <= $2::bigint;

-- discover.sql
-- takes: text, _int4
-- returns: priority int4
WITH found AS (
  SELECT DISTINCT priority FROM posthaste.discover_priorities($1, $2) priority
   WHERE posthaste.begin_single_statement())
INSERT INTO posthaste.lane (queue, priority) SELECT $1, priority FROM found
ON CONFLICT (queue, priority) DO UPDATE SET priority = excluded.priority
RETURNING priority;

-- due.sql
-- takes: timestamptz, int8, text, text, text, text, text, timestamptz, int8, int8, timestamptz
-- takes: text, int4
-- returns: id int8, scheduled_at timestamptz, name text, queue text, priority int4, state text
-- returns: attempt int4, max_attempts int4, enqueued_at timestamptz, tag text, last_error text
-- returns: kwargs text, kwargs_bytes int4
WITH cursor AS MATERIALIZED (
  (SELECT 6::smallint AS slot, p.* FROM posthaste.promote_cursor_6 p ORDER BY p.page DESC LIMIT 1)
  UNION ALL
  (SELECT 7::smallint, p.* FROM posthaste.promote_cursor_7 p ORDER BY p.page DESC LIMIT 1)
), sent AS MATERIALIZED (
  SELECT c.slot, CASE WHEN c.exhausted THEN c.t_hi ELSE c.t_lo END AS until FROM cursor c
), beginning AS MATERIALIZED (
  SELECT s.slot, greatest($1::timestamptz, s.until) AS due,
         CASE WHEN s.until >= $1::timestamptz THEN 9223372036854775807 ELSE $2::bigint END AS id
    FROM (SELECT g.slot, max(n.until) AS until
            FROM (SELECT 6::smallint AS slot UNION ALL SELECT 7::smallint) g
            LEFT JOIN sent n ON n.slot = g.slot GROUP BY g.slot) s
), near AS MATERIALIZED (
  SELECT n.* FROM (
    (SELECT s.* FROM posthaste.scheduled_6 s
      WHERE (s.scheduled_at, s.id) > ((SELECT b.due FROM beginning b WHERE b.slot = 6::smallint),
                                      (SELECT b.id FROM beginning b WHERE b.slot = 6::smallint))
      ORDER BY s.scheduled_at, s.id LIMIT $9::bigint)
    UNION ALL
    (SELECT s.* FROM posthaste.scheduled_7 s
      WHERE (s.scheduled_at, s.id) > ((SELECT b.due FROM beginning b WHERE b.slot = 7::smallint),
                                      (SELECT b.id FROM beginning b WHERE b.slot = 7::smallint))
      ORDER BY s.scheduled_at, s.id LIMIT $9::bigint)) n
   WHERE n.scheduled_at < '9999-01-01Z'
   ORDER BY n.scheduled_at, n.id LIMIT $9::bigint
), matching AS MATERIALIZED (
  SELECT n.id, n.scheduled_at, n.name, coalesce(n.own_queue, n.queue) AS queue,
         coalesce(n.own_priority, n.priority) AS priority,
         CASE WHEN n.attempt > 0 THEN 'retrying' ELSE 'scheduled' END AS state, n.attempt,
         n.max_attempts, n.enqueued_at, n.tag, left(n.last_error, 400) AS last_error,
         CASE WHEN n.kwargs_bytes <= 4096 THEN n.kwargs::text END AS kwargs, n.kwargs_bytes
    FROM near n LEFT JOIN cursor c ON c.slot = n.slot
   WHERE ($3::text IS NULL OR coalesce(n.own_queue, n.queue) LIKE $3::text)
     AND ($4::text IS NULL OR n.name LIKE $4::text) AND ($5::text IS NULL OR n.tag LIKE $5::text)
     AND ($6::text IS NULL OR ($6::text = 'retrying') = (n.attempt > 0))
     AND ($7::text IS NULL OR n.last_error LIKE $7::text)
     AND ($8::timestamptz IS NULL OR n.enqueued_at >= $8::timestamptz)
     AND ($11::timestamptz IS NULL OR n.enqueued_at < $11::timestamptz)
     AND ($12::text IS NULL OR n.ordering_key LIKE $12::text)
     AND ($13::integer IS NULL OR coalesce(n.own_priority, n.priority) = $13::integer)
     AND n.expires_at > clock_timestamp()
     AND NOT EXISTS (SELECT FROM posthaste.closed_unclaimed_6 e
                      WHERE n.slot = 6::smallint AND e.xid = n.xid AND e.id = n.id)
     AND NOT EXISTS (SELECT FROM posthaste.closed_unclaimed_7 e
                      WHERE n.slot = 7::smallint AND e.xid = n.xid AND e.id = n.id)
     AND NOT coalesce(posthaste.promoted(n.xid, n.scheduled_at, n.id, c.t_lo, c.t_hi, c.lo, c.hi,
                                         c.at_xid, c.at_due, c.at_id, c.late_done, c.exhausted),
                      false)
   ORDER BY n.scheduled_at, n.id LIMIT $10::bigint
), scanned AS (
  SELECT n.id, n.scheduled_at, count(*) OVER () AS rows
    FROM near n ORDER BY n.scheduled_at DESC, n.id DESC LIMIT 1
)
SELECT m.id, m.scheduled_at, m.name, m.queue, m.priority, m.state, m.attempt, m.max_attempts,
       m.enqueued_at, m.tag, m.last_error, m.kwargs, m.kwargs_bytes
  FROM matching m
UNION ALL
SELECT l.id, l.scheduled_at, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL,
       l.rows::integer
  FROM scanned l
 ORDER BY scheduled_at, id;

-- ended_workers.sql
-- returns: id int8, name text, started_at timestamptz, stopped_at timestamptz, clean bool
SELECT w.id, w.name, w.started_at, w.stopped_at, w.clean
  FROM posthaste.worker w WHERE w.stopped_at IS NOT NULL
 ORDER BY w.stopped_at DESC, w.id DESC LIMIT 20;

-- ends_alone.sql
-- returns: pg_is_in_recovery bool, case text
SELECT pg_catalog.pg_is_in_recovery(),
       CASE WHEN pg_catalog.version() ~ '(linux|darwin|bsd)'
            THEN pg_catalog.set_config('client_connection_check_interval', '1s', true) END;

-- enqueue.sql
-- takes: text, jsonb, text, int4, timestamptz, timestamptz, text, text, int4, text, text
-- returns: id int8
SELECT posthaste.enqueue($1, $2::jsonb, $3, $4::integer, coalesce($5::timestamptz, now()),
                         $6::timestamptz, $7, $8, $9::integer, $10, $11) AS id;

-- enqueue_many.sql
-- takes: _text, _text, _text, _int4, _timestamptz, _timestamptz, _text, _int4, _text, _text
-- returns: id int8
INSERT INTO posthaste.job (name, kwargs, queue, priority, scheduled_at, expires_at, tag,
                           max_attempts, ordering_key, trace)
SELECT u.name, u.kwargs::jsonb, u.queue, u.priority, u.scheduled_at, u.expires_at, u.tag,
       u.max_attempts, u.ordering_key, u.trace
  FROM unnest($1::text[], $2::text[], $3::text[], $4::integer[], $5::timestamptz[],
              $6::timestamptz[], $7::text[], $8::integer[], $9::text[], $10::text[])
       WITH ORDINALITY u (name, kwargs, queue, priority, scheduled_at, expires_at, tag,
                          max_attempts, ordering_key, trace, n)
 ORDER BY u.n
RETURNING id;

-- enqueue_nowait.sql
-- takes: text, jsonb, text, int4, timestamptz, timestamptz, text, text, int4, text, text
-- returns: id int8
SELECT id FROM posthaste.enqueue_nowait(
         $1, $2::jsonb, $3, $4::integer, coalesce($5::timestamptz, now()), $6::timestamptz, $7, $8,
         $9::integer, $10, $11) AS id
 WHERE id IS NOT NULL;

-- enqueue_plain.sql
-- takes: text, jsonb
-- returns: id int8
INSERT INTO posthaste.store (slot, queue, name, expires_at, kwargs, kwargs_bytes)
SELECT (c.g % 4::bigint)::smallint, c.queue, $1, now() + interval '30 days', $2, c.bytes
  FROM (SELECT pg_sequence_last_value('posthaste.ready_current'::regclass) AS g,
               posthaste.text_bytes($2) AS bytes,
               CASE WHEN pg_sequence_last_value('posthaste.flags'::regclass)
                         & (1::bigint | posthaste.listener_bit('default')) = 0 THEN 'default'
                    ELSE posthaste.resolve_queue_and_notify(NULL, $1, true) END AS queue
        OFFSET 0) c
 WHERE posthaste.is_valid($1, c.queue, '', NULL, NULL, $2, c.bytes, 0, 25, '2000-01-01Z',
                          '2000-01-01Z', '2000-01-01Z', NULL)
   AND CASE WHEN pg_try_advisory_xact_lock_shared(1885893473, c.g::integer)
            THEN pg_sequence_last_value('posthaste.ready_scan'::regclass) <= c.g END
RETURNING id;

-- enqueued.sql
-- takes: text
-- returns: answer text
SELECT j.kwargs::text AS answer
  FROM posthaste.job j
 WHERE j.name = $1::text
   AND j.state IN ('scheduled', 'available', 'blocked', 'running', 'retrying', 'awaiting',
                   'quarantined')
 ORDER BY j.id;

-- enqueuing.sql
-- returns: pid int4
SELECT DISTINCT l.pid FROM pg_locks l
 WHERE l.granted AND l.locktype = 'advisory'::text AND l.mode = 'ShareLock'::text
   AND l.classid::bigint IN (1885893473, 1885893474)
   AND l.database = (SELECT d.oid FROM pg_database d WHERE d.datname = current_database());

-- errors.sql
-- takes: _text
-- returns: queue text, error text
SELECT DISTINCT ON (n.queue) n.queue, left(n.error, 300) AS error FROM (
  SELECT a.queue, a.at, a.error FROM posthaste.attempt_0 a
   WHERE a.ctid >= (SELECT pg_catalog.format('(%s,0)', greatest(0::bigint,
           pg_relation_size('posthaste.attempt_0'::regclass) / 8192::bigint - 64::bigint))::tid)
  UNION ALL
  SELECT a.queue, a.at, a.error FROM posthaste.attempt_1 a
   WHERE a.ctid >= (SELECT pg_catalog.format('(%s,0)', greatest(0::bigint,
           pg_relation_size('posthaste.attempt_1'::regclass) / 8192::bigint - 64::bigint))::tid)
  UNION ALL
  SELECT a.queue, a.at, a.error FROM posthaste.attempt_2 a
   WHERE a.ctid >= (SELECT pg_catalog.format('(%s,0)', greatest(0::bigint,
           pg_relation_size('posthaste.attempt_2'::regclass) / 8192::bigint - 64::bigint))::tid)
  UNION ALL
  SELECT a.queue, a.at, a.error FROM posthaste.attempt_3 a
   WHERE a.ctid >= (SELECT pg_catalog.format('(%s,0)', greatest(0::bigint,
           pg_relation_size('posthaste.attempt_3'::regclass) / 8192::bigint - 64::bigint))::tid)) n
 WHERE n.queue = ANY ($1::text[]) AND n.error IS NOT NULL
   AND n.at > clock_timestamp() - interval '10 min'
 ORDER BY n.queue, n.at DESC;

-- failing_jobs.sql
-- returns: queue text, attempts int8, jobs int8, error text
SELECT m.queue, m.attempts, count(*) AS jobs,
       (pg_catalog.array_agg(left(m.error, 300) ORDER BY m.at DESC))[1] AS error
  FROM (SELECT DISTINCT ON (n.job) n.job, n.queue, n.at, n.attempt::bigint AS attempts, n.outcome,
               n.error
          FROM (
  SELECT a.queue, a.at, a.job, a.attempt, a.outcome, a.error FROM posthaste.attempt_0 a
   WHERE a.ctid >= (SELECT pg_catalog.format('(%s,0)', greatest(0::bigint,
           pg_relation_size('posthaste.attempt_0'::regclass) / 8192::bigint - 64::bigint))::tid)
  UNION ALL
  SELECT a.queue, a.at, a.job, a.attempt, a.outcome, a.error FROM posthaste.attempt_1 a
   WHERE a.ctid >= (SELECT pg_catalog.format('(%s,0)', greatest(0::bigint,
           pg_relation_size('posthaste.attempt_1'::regclass) / 8192::bigint - 64::bigint))::tid)
  UNION ALL
  SELECT a.queue, a.at, a.job, a.attempt, a.outcome, a.error FROM posthaste.attempt_2 a
   WHERE a.ctid >= (SELECT pg_catalog.format('(%s,0)', greatest(0::bigint,
           pg_relation_size('posthaste.attempt_2'::regclass) / 8192::bigint - 64::bigint))::tid)
  UNION ALL
  SELECT a.queue, a.at, a.job, a.attempt, a.outcome, a.error FROM posthaste.attempt_3 a
   WHERE a.ctid >= (SELECT pg_catalog.format('(%s,0)', greatest(0::bigint,
           pg_relation_size('posthaste.attempt_3'::regclass) / 8192::bigint - 64::bigint))::tid)) n
         WHERE n.attempt > 2 AND n.at > clock_timestamp() - interval '75 min'
         ORDER BY n.job, n.at DESC) m
 WHERE m.outcome IN ('retried', 'crashed')
 GROUP BY m.queue, m.attempts ORDER BY m.attempts DESC, m.queue LIMIT 1000;

-- find.sql
-- takes: int8
-- returns: answer text
SELECT pg_catalog.row_to_json(a)::text AS answer
  FROM (SELECT f.*, posthaste.delivery_id(f.id) AS delivery_id FROM posthaste.find($1::bigint) f) a;

-- finished.sql
-- takes: int8, int8, text, text, text, text, timestamptz, timestamptz, int8, text, int4, int8
-- returns: id int8, ended_at timestamptz, name text, queue text, priority int4, state text
-- returns: attempt int4, max_attempts int4, enqueued_at timestamptz, scheduled_at timestamptz
-- returns: tag text, last_error text, kwargs text, kwargs_bytes int4
WITH near AS MATERIALIZED (
  SELECT f.id, f.ended_at, f.queue, f.name, f.tag, f.last_error, f.ordering_key,
         f.priority, f.worker
    FROM posthaste.finished f WHERE f.id < $1::bigint ORDER BY f.id DESC LIMIT $2::bigint
), matches AS MATERIALIZED (
  SELECT n.id FROM near n
   WHERE ($3::text IS NULL OR n.queue LIKE $3::text) AND ($4::text IS NULL OR n.name LIKE $4::text)
     AND ($5::text IS NULL OR n.tag LIKE $5::text)
     AND ($6::text IS NULL OR n.last_error LIKE $6::text)
     AND ($7::timestamptz IS NULL OR n.ended_at >= $7::timestamptz)
     AND ($8::timestamptz IS NULL OR n.ended_at < $8::timestamptz)
     AND ($10::text IS NULL OR n.ordering_key LIKE $10::text)
     AND ($11::integer IS NULL OR n.priority = $11::integer)
     AND ($12::bigint IS NULL OR n.worker = $12::bigint)
   ORDER BY n.id DESC LIMIT $9::bigint
), scanned AS (
  SELECT n.id, n.ended_at, count(*) OVER () AS rows FROM near n ORDER BY n.id LIMIT 1
)
SELECT f.id, f.ended_at, f.name, f.queue, f.priority, 'completed'::text AS state, f.attempt,
       f.max_attempts, f.enqueued_at, f.scheduled_at, f.tag, left(f.last_error, 400) AS last_error,
       CASE WHEN octet_length(f.kwargs::text) <= 4096 THEN f.kwargs::text END AS kwargs,
       octet_length(f.kwargs::text) AS kwargs_bytes
  FROM posthaste.finished f WHERE f.id = ANY (ARRAY(SELECT m.id FROM matches m))
UNION ALL
SELECT s.id, s.ended_at, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL,
       s.rows::integer
  FROM scanned s
 ORDER BY id DESC;

-- flush_relay.sql
-- takes: int8, text, text, text, text, int8, int8, int8, int8, timestamptz, timestamptz, text, text
-- takes: text
INSERT INTO posthaste.relay
  (slot, worker, queue, route, destination, state, accepted, rejected, retried, unavailable,
   down_since, failing_since, last_error, rejections, failures)
SELECT (SELECT posthaste.volume('relay')), $1, $2, $3, $4, $5, $6, $7, $8, $9, $10, $11, $12,
       $13::text::jsonb, $14::text::jsonb;

-- gaps.sql
-- takes: text
-- returns: id int8, seen_at timestamptz, accepted_at timestamptz, begins text, ends text
-- returns: capture text, reason text, tables _text, accepted_by text
SELECT g.id, g.seen_at, g.accepted_at, g.begins::text, g.ends::text, g.capture, g.reason, g.tables,
       g.accepted_by
  FROM posthaste.capture_gap g
 WHERE $1::text IS NULL OR g.capture = $1::text
 ORDER BY g.id DESC
 LIMIT 1000;

-- given_up.sql
-- returns: state text, queue text, jobs int8, since timestamptz, error text
SELECT g.state, g.queue, count(*) AS jobs, min(g.died_at) AS since,
       (pg_catalog.array_agg(left(g.last_error, 300) ORDER BY g.died_at DESC))[1] AS error
  FROM ((SELECT d.state, d.queue, d.died_at, d.last_error FROM posthaste.dead d
          WHERE d.state = 'dead' AND d.died_at > clock_timestamp() - interval '1 h'
          ORDER BY d.died_at DESC LIMIT 1000)
        UNION ALL
        (SELECT d.state, d.queue, d.died_at, d.last_error FROM posthaste.dead d
          WHERE d.state = 'expired' AND d.died_at > clock_timestamp() - interval '1 h'
          ORDER BY d.died_at DESC LIMIT 1000)) g
 GROUP BY g.state, g.queue ORDER BY g.state, jobs DESC, g.queue;

-- given_up.sql
-- takes: text, timestamptz, int8, text, text, text, text, int8, int8, timestamptz, timestamptz
-- takes: text, int4
-- returns: id int8, died_at timestamptz, name text, queue text, priority int4, state text
-- returns: attempt int4, max_attempts int4, enqueued_at timestamptz, scheduled_at timestamptz
-- returns: tag text, last_error text, kwargs text, kwargs_bytes int4
WITH near AS MATERIALIZED (
  SELECT d.id, d.died_at, d.queue, d.name, d.tag, d.last_error, d.ordering_key, d.priority
    FROM posthaste.dead d
   WHERE d.state = $1::text AND d.died_at <= $2::timestamptz
     AND (d.died_at, d.id) < ($2::timestamptz, $3::bigint)
     AND d.died_at >= coalesce($10::timestamptz, '-infinity')
     AND d.died_at < coalesce($11::timestamptz, 'infinity')
   ORDER BY d.died_at DESC, d.id DESC LIMIT $8::bigint
), matching AS MATERIALIZED (
  SELECT n.id FROM near n
   WHERE ($4::text IS NULL OR n.queue LIKE $4::text) AND ($5::text IS NULL OR n.name LIKE $5::text)
     AND ($6::text IS NULL OR n.tag LIKE $6::text)
     AND ($7::text IS NULL OR n.last_error LIKE $7::text)
     AND ($12::text IS NULL OR n.ordering_key LIKE $12::text)
     AND ($13::integer IS NULL OR n.priority = $13::integer)
   ORDER BY n.died_at DESC, n.id DESC LIMIT $9::bigint
), scanned AS (
  SELECT n.id, n.died_at, count(*) OVER () AS rows FROM near n ORDER BY n.died_at, n.id LIMIT 1
)
SELECT d.id, d.died_at, d.name, d.queue, d.priority, d.state, d.attempt, d.max_attempts,
       d.enqueued_at, d.scheduled_at, d.tag, left(d.last_error, 400) AS last_error,
       CASE WHEN d.kwargs_bytes <= 4096 THEN d.kwargs::text END AS kwargs, d.kwargs_bytes
  FROM posthaste.dead d WHERE d.id = ANY (ARRAY(SELECT m.id FROM matching m))
UNION ALL
SELECT l.id, l.died_at, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL,
       l.rows::integer
  FROM scanned l
 ORDER BY died_at DESC, id DESC;

-- given_up_count.sql
-- takes: text, text, text, text, text, int8, timestamptz, timestamptz, text, int4
-- returns: matching int8, scanned int8
SELECT count(*) FILTER (WHERE ($2::text IS NULL OR d.queue LIKE $2::text)
                          AND ($3::text IS NULL OR d.name LIKE $3::text)
                          AND ($4::text IS NULL OR d.tag LIKE $4::text)
                          AND ($5::text IS NULL OR d.last_error LIKE $5::text)
                          AND ($9::text IS NULL OR d.ordering_key LIKE $9::text)
                          AND ($10::integer IS NULL OR d.priority = $10::integer)) AS matching,
       count(*) AS scanned
  FROM (SELECT d.queue, d.name, d.tag, d.last_error, d.ordering_key, d.priority
          FROM posthaste.dead d
         WHERE ($1::text IS NULL OR d.state = $1::text)
           AND ($7::timestamptz IS NULL OR d.died_at >= $7::timestamptz)
           AND ($8::timestamptz IS NULL OR d.died_at < $8::timestamptz) LIMIT $6::bigint) d;

-- holders.sql
-- returns: kind text, pid int4, name text, role text, application text, address text, database text
-- returns: state text, is_read bool, is_logical bool, is_by_slot bool, seconds float8
-- returns: transactions int8, is_superuser bool, backend_start timestamptz
-- returns: transaction_start timestamptz, wait_event text, query text
SELECT h.kind, h.pid, h.name, h.role, h.application, h.address, h.database, h.state, h.is_read,
       h.is_logical, h.is_by_slot,
       CASE WHEN h.seconds >= (-1)::numeric THEN h.seconds::double precision END AS seconds,
       h.transactions::bigint AS transactions, h.is_superuser, h.backend_start,
       h.transaction_start, h.wait_event, h.query
  FROM (
  SELECT 'session' AS kind, a.pid, NULL::text AS name, a.usename::text AS role,
         a.application_name AS application, pg_catalog.host(a.client_addr) AS address,
         a.datname::text AS database, a.state, false AS is_read, false AS is_logical,
         false AS is_by_slot, extract(epoch FROM clock_timestamp() - a.xact_start) AS seconds,
         greatest(pg_catalog.age(a.backend_xmin), pg_catalog.age(a.backend_xid)) AS transactions,
         coalesce(r.rolsuper, false) AS is_superuser, a.backend_start,
         a.xact_start AS transaction_start, a.wait_event,
         pg_catalog.left(a.query, 2000) AS query
    FROM pg_catalog.pg_stat_activity a
    LEFT JOIN pg_catalog.pg_roles r ON r.oid = a.usesysid
   WHERE a.backend_type = 'client backend' AND a.pid <> pg_catalog.pg_backend_pid()
     AND a.xact_start IS NOT NULL
  UNION ALL
  SELECT 'prepared', NULL, p.gid, p.owner::text, NULL, NULL, p.database::text, NULL, false, false,
         false, extract(epoch FROM clock_timestamp() - p.prepared), pg_catalog.age(p.transaction),
         false, NULL, p.prepared, NULL, NULL
    FROM pg_catalog.pg_prepared_xacts p
  UNION ALL
  SELECT 'slot', s.active_pid, s.slot_name::text, NULL, NULL, NULL, s.database::text, NULL,
         s.active, s.slot_type = 'logical' AND s.xmin IS NOT NULL, false, NULL,
         greatest(pg_catalog.age(s.xmin), pg_catalog.age(s.catalog_xmin)),
         false, NULL, NULL, NULL, NULL
    FROM pg_catalog.pg_replication_slots s
  UNION ALL
  SELECT 'replica', r.pid, NULL, r.usename::text, r.application_name,
         pg_catalog.host(r.client_addr), NULL, r.state, false, false, r.backend_xmin IS NULL, NULL,
         pg_catalog.age(coalesce(r.backend_xmin, s.xmin)), false, r.backend_start, NULL, NULL, NULL
    FROM pg_catalog.pg_stat_replication r
    LEFT JOIN pg_catalog.pg_replication_slots s ON s.active_pid = r.pid) h
 ORDER BY h.transactions DESC NULLS LAST, h.seconds DESC NULLS LAST LIMIT 5000;

-- in the code
-- takes: _int8
DELETE FROM posthaste.dead AS d WHERE d.id = ANY ($1::bigint[]);

-- in the code
LISTEN posthaste;

-- in the code
LISTEN posthaste_rest;

-- in the code
-- returns: answer text
SELECT (pg_catalog.to_regclass('posthaste.store') IS NOT NULL)::text AS answer;

-- in the code
-- returns: exists bool
SELECT EXISTS (SELECT FROM posthaste.capture);

-- in the code
-- takes: text, _text, bool, bool
-- returns: o_from text, o_discarded int8
SELECT o_from, o_discarded FROM posthaste.adopt($1, $2, $3, $4);

-- in the code
-- returns: o_sealed bool, o_blocker text
SELECT o_sealed, o_blocker FROM posthaste.seal() WHERE posthaste.begin_single_statement();

-- in the code
-- returns: has_table_privilege bool
SELECT pg_catalog.has_table_privilege('posthaste.queue', 'UPDATE');

-- in the code
-- returns: answer text
SELECT pg_catalog.set_config('posthaste.migrates', 'on', true) AS answer;

-- in the code
-- takes: text
-- returns: pg_notify void
SELECT pg_notify('posthaste', $1);

-- in the code
-- takes: int4
-- returns: advance_ordering int8
SELECT posthaste.advance_ordering($1) WHERE posthaste.begin_single_statement();

-- in the code
-- returns: cancel_again int8
SELECT posthaste.cancel_again() WHERE posthaste.begin_single_statement();

-- in the code
-- takes: _int2, _int8, _uuid, _int4
-- returns: close_batches _int4
SELECT posthaste.close_batches($1, $2, $3, $4);

-- in the code
-- takes: uuid
-- returns: answer text
SELECT posthaste.confirm($1::uuid)::text AS answer;

-- in the code
-- takes: int4
-- returns: confirm_in_flight int8
SELECT posthaste.confirm_in_flight('infinity', $1);

-- in the code
-- returns: correct_future_times int8
SELECT posthaste.correct_future_times();

-- in the code
-- takes: int4, int4, int8, text
-- returns: count_new_jobs text
SELECT posthaste.count_new_jobs($1, $2, $3, $4);

-- in the code
-- takes: text, _int4, int8, uuid, text
-- returns: dead_letter_next int8
SELECT posthaste.dead_letter_next($1, $2, $3, $4, $5);

-- in the code
-- takes: text, _text, bool, int8, timestamptz
-- returns: enter_site text
SELECT posthaste.enter_site($1, $2, $3, $4, $5);

-- in the code
-- takes: int4, int4
-- returns: expire int8
SELECT posthaste.expire($1, $2);

-- in the code
-- takes: _text, _text, _text, _text
-- returns: fail_ticks void
SELECT posthaste.fail_ticks($1, $2, $3, $4);

-- in the code
-- takes: _text, _int4, _text, _text, _text, _int8
-- returns: flush_stats void
SELECT posthaste.flush_stats($1, $2, $3, $4, $5, $6);

-- in the code
-- returns: forget_lanes void
SELECT posthaste.forget_lanes();

-- in the code
-- takes: text, text
-- returns: answer text
SELECT posthaste.keep($1::text, $2::text::interval)::text AS answer;

-- in the code
-- takes: bool
-- returns: lock_out_workers void
SELECT posthaste.lock_out_workers($1);

-- in the code
-- takes: int4, int8, int4
-- returns: move_running int8
SELECT posthaste.move_running($1, $2, $3);

-- in the code
-- takes: int4, int4
-- returns: move_to_overflow int8
SELECT posthaste.move_to_overflow($1, $2);

-- in the code
-- returns: note_ids bool
SELECT posthaste.note_ids() WHERE posthaste.begin_single_statement();

-- in the code
-- takes: int8
-- returns: notify_off bool
SELECT posthaste.notify_off($1);

-- in the code
-- takes: text
-- returns: notify_off bool
SELECT posthaste.notify_off(posthaste.listener_bit($1));

-- in the code
-- takes: int8, int8
-- returns: notify_on bool
SELECT posthaste.notify_on($1, $2::bigint::float8 * interval '1 millisecond');

-- in the code
-- takes: int8
-- returns: open_tokens uuid
SELECT posthaste.open_tokens($1);

-- in the code
-- takes: text
-- returns: answer text
SELECT posthaste.pause($1::text)::text AS answer;

-- in the code
-- takes: int4, bool
-- returns: promote int8
SELECT posthaste.promote($1, $2) WHERE posthaste.begin_single_statement();

-- in the code
-- returns: prune void
SELECT posthaste.prune();

-- in the code
-- returns: prune_inbox int8
SELECT posthaste.prune_inbox();

-- in the code
-- returns: quarantine_queues text
SELECT posthaste.quarantine_queues() WHERE posthaste.begin_single_statement();

-- in the code
-- returns: rebase int8
SELECT posthaste.rebase();

-- in the code
-- takes: int8
-- returns: rejoin bool
SELECT posthaste.rejoin($1);

-- in the code
-- takes: int8, int8
-- returns: rescue int8
SELECT posthaste.rescue($1, $2);

-- in the code
-- takes: text
-- returns: answer text
SELECT posthaste.resume($1::text)::text AS answer;

-- in the code
-- takes: int4
-- returns: retry_overdue int8
SELECT posthaste.retry_overdue($1) WHERE posthaste.begin_single_statement();

-- in the code
-- takes: int8, uuid
-- returns: return_claim int8
SELECT posthaste.return_claim($1, $2);

-- in the code
-- takes: int8, int4
-- returns: rotate text
SELECT posthaste.rotate($1, $2) WHERE posthaste.begin_single_statement();

-- in the code
-- returns: place text
SELECT posthaste.segment_positions() AS place;

-- in the code
-- takes: text, _text
-- returns: site_label text, site_refusal text
SELECT posthaste.site_label($1, $2), posthaste.site_refusal($1, $2);

-- in the code
-- returns: take_sample bool
SELECT posthaste.take_sample();

-- in the code
-- takes: text, text, text, timestamptz, _timestamptz, timestamptz, timestamptz
-- returns: tick int8
SELECT posthaste.tick($1, $2, $3, $4, $5, $6, $7);

-- in the code
-- takes: int4
-- returns: answer text
SELECT posthaste.uncounted($1::integer)::text AS answer;

-- in the code
-- takes: text
-- returns: priority int4
SELECT priority FROM posthaste.lane WHERE queue = $1 ORDER BY priority;

-- in the code
-- takes: int8
-- returns: setval int8
SELECT setval('posthaste.capture_turn'::regclass, $1::bigint);

-- in the code
-- takes: int8, uuid, _int2, _int8
-- returns: slot int2, batch int8, id int8
SELECT slot, batch, id FROM posthaste.claimed_jobs($1, $2, $3, $4, NULL);

-- in the code
TRUNCATE posthaste.capture_mark_0;

-- in the code
TRUNCATE posthaste.capture_mark_1;

-- in the code
-- takes: text, text
UPDATE posthaste.capture SET stopped = $2 WHERE name = $1::text;

-- in the code
-- takes: int8, text
UPDATE posthaste.capture_copy SET problem = $2 WHERE id = $1::bigint;

-- in_flight.sql
-- takes: int8, text, text, text, text, text, int8, timestamptz, timestamptz, text, int4, int8
-- returns: at text, id int8, name text, queue text, priority int4, state text, attempt int4
-- returns: max_attempts int4, enqueued_at timestamptz, scheduled_at timestamptz, tag text
-- returns: last_error text, kwargs text, kwargs_bytes int4
SELECT j.id::text AS at, j.id, j.name, j.queue, j.priority, j.state AS state, j.attempt,
       j.max_attempts, j.enqueued_at, j.scheduled_at, j.tag,
       left(j.last_error, 400) AS last_error,
       CASE WHEN j.kwargs_bytes <= 4096 THEN j.kwargs::text END AS kwargs, j.kwargs_bytes
  FROM posthaste.in_flight j
 WHERE j.id < $1::bigint
   AND ($2::text IS NULL OR j.queue LIKE $2::text) AND ($3::text IS NULL OR j.name LIKE $3::text)
   AND ($4::text IS NULL OR j.tag LIKE $4::text) AND ($5::text IS NULL OR j.state = $5::text)
   AND ($6::text IS NULL OR j.last_error LIKE $6::text)
   AND ($8::timestamptz IS NULL OR j.enqueued_at >= $8::timestamptz)
   AND ($9::timestamptz IS NULL OR j.enqueued_at < $9::timestamptz)
   AND ($10::text IS NULL OR j.ordering_key LIKE $10::text)
   AND ($11::integer IS NULL OR j.priority = $11::integer)
   AND ($12::bigint IS NULL OR j.worker = $12::bigint)
 ORDER BY j.id DESC LIMIT $7::bigint;

-- is_idle.sql
-- takes: _text
-- returns: is_idle bool
SELECT NOT EXISTS (
  SELECT FROM posthaste.job
   WHERE queue = ANY ($1::text[])
     AND (state IN ('available', 'blocked', 'running', 'quarantined')
          OR state IN ('scheduled', 'retrying') AND scheduled_at <= clock_timestamp())) AS is_idle;

-- keep_marks_0.sql
INSERT INTO posthaste.capture_mark_0
SELECT DISTINCT ON (m.epoch) m.*
  FROM (SELECT * FROM posthaste.capture_mark_0 UNION ALL SELECT * FROM posthaste.capture_mark_1) m
  JOIN posthaste.capture c ON c.epoch = m.epoch
 ORDER BY m.epoch, m.commit DESC, m.record DESC, m.row DESC, m.done DESC;

-- keep_marks_1.sql
INSERT INTO posthaste.capture_mark_1
SELECT DISTINCT ON (m.epoch) m.*
  FROM (SELECT * FROM posthaste.capture_mark_0 UNION ALL SELECT * FROM posthaste.capture_mark_1) m
  JOIN posthaste.capture c ON c.epoch = m.epoch
 ORDER BY m.epoch, m.commit DESC, m.record DESC, m.row DESC, m.done DESC;

-- lead.sql
-- takes: int8, int8
-- returns: worker int8
INSERT INTO posthaste.leader AS l (worker, until, pid)
VALUES ($1, clock_timestamp() + $2::bigint::float8 * interval '1 millisecond', pg_backend_pid())
ON CONFLICT (only_row) DO UPDATE
   SET worker = excluded.worker, since = excluded.since, until = excluded.until,
       retention_clock = least(l.retention_clock + interval '1 min', excluded.since),
       pid = excluded.pid,
       is_own = l.worker = excluded.worker AND l.pid = excluded.pid
 WHERE l.worker = excluded.worker OR clock_timestamp() NOT BETWEEN l.since AND l.until
       OR l.is_own AND NOT EXISTS (SELECT FROM pg_stat_get_activity(l.pid))
RETURNING worker;

-- limit.sql
-- takes: text, int4, text, int4
-- returns: answer text
SELECT 'true'::text AS answer
  FROM posthaste.limit_rate($1::text, $2::integer, $3::text::interval, $4::integer);

-- list.sql
-- takes: _int8, text, text, text, text, text, int8, int8
-- returns: answer text
SELECT pg_catalog.row_to_json(a)::text AS answer
  FROM (SELECT j.id, j.name, j.queue, j.priority, j.state, j.attempt, j.max_attempts, j.enqueued_at,
               j.scheduled_at, j.expires_at, j.tag, j.unique_key, j.ordering_key, j.last_error
          FROM posthaste.job j
         WHERE ($1::bigint[] IS NULL OR j.id = ANY ($1::bigint[]))
           AND ($2::text IS NULL OR j.queue = $2::text) AND ($3::text IS NULL OR j.name = $3::text)
           AND ($4::text IS NULL OR j.tag = $4::text) AND ($5::text IS NULL OR j.state = $5::text)
           AND ($6::text IS NULL OR j.last_error LIKE $6::text)
         ORDER BY j.id * $7::bigint LIMIT $8::bigint) a
 ORDER BY a.id * $7::bigint;

-- listener_bit.sql
-- takes: _text
-- returns: listener_bit int8
SELECT posthaste.listener_bit(u.queue)
  FROM pg_catalog.unnest($1::text[]) WITH ORDINALITY u (queue, n) ORDER BY u.n;

-- locks.sql
-- takes: float8
-- returns: name text, seconds int8
SELECT l.name,
       CASE WHEN l.seconds >= (-1)::numeric THEN floor(l.seconds)::bigint END AS seconds
  FROM (
  SELECT DISTINCT
         pg_catalog.format('session %s (%s, %s)', a.pid, a.usename,
                           coalesce(nullif(a.application_name, ''), 'no name')) AS name,
         extract(epoch FROM statement_timestamp() - a.xact_start) AS seconds
    FROM pg_locks l JOIN pg_class c ON c.oid = l.relation JOIN pg_stat_activity a ON a.pid = l.pid
   WHERE l.granted
     AND l.database = (SELECT d.oid FROM pg_database d WHERE d.datname = current_database())
     AND c.relnamespace = to_regnamespace('posthaste')::oid
     AND c.relname ~ '_[0-7]$'::text) l
 WHERE l.seconds::double precision >= $1::double precision OR l.seconds < (-1)::numeric
 ORDER BY l.seconds DESC, l.name;

-- log.sql
-- returns: ready int8, sealed int8, overflow int8, scheduled int8, bytes int8, dead_bytes int8
SELECT s.ready_current - s.ready_low + 1::bigint AS ready, s.ready_scan - s.ready_low AS sealed,
       s.overflow_current - s.overflow_low + 1::bigint AS overflow,
       s.scheduled_current - s.scheduled_low + 1::bigint AS scheduled,
       (SELECT sum(pg_catalog.pg_total_relation_size(
                 ('posthaste.' || t.name)::regclass))::bigint
          FROM (SELECT 'ready_' || g::text AS name FROM generate_series(0, 5) g
                UNION ALL SELECT 'claim_' || g::text FROM generate_series(0, 5) g
                UNION ALL SELECT 'scheduled_' || g::text FROM generate_series(6, 7) g) t) AS bytes,
       pg_catalog.pg_total_relation_size('posthaste.dead'::regclass) AS dead_bytes
  FROM posthaste.segments() s;

-- many_claims.sql
-- takes: int8
-- returns: ?column? bool
SELECT EXISTS (SELECT FROM posthaste.claim_0 OFFSET $1::bigint)
    OR EXISTS (SELECT FROM posthaste.claim_1 OFFSET $1::bigint)
    OR EXISTS (SELECT FROM posthaste.claim_2 OFFSET $1::bigint)
    OR EXISTS (SELECT FROM posthaste.claim_3 OFFSET $1::bigint)
    OR EXISTS (SELECT FROM posthaste.claim_4 OFFSET $1::bigint)
    OR EXISTS (SELECT FROM posthaste.claim_5 OFFSET $1::bigint);

-- mark.sql
-- takes: uuid
-- returns: done text, commit text, record text, row int4, events int8, bytes int8
SELECT m.done::text, m.commit::text, m.record::text, m.row, m.events, m.bytes
  FROM (SELECT * FROM posthaste.capture_mark_0 UNION ALL SELECT * FROM posthaste.capture_mark_1) m
 WHERE m.epoch = $1::uuid
 ORDER BY m.commit DESC, m.record DESC, m.row DESC, m.done DESC
 LIMIT 1;

-- migrate_place.sql
-- returns: answer text
SELECT pg_catalog.json_build_object(
         'has_begun', coalesce(pg_catalog.current_setting('posthaste.migrates', true), '') = 'on',
         'isolation', pg_catalog.current_setting('transaction_isolation'),
         'server', pg_catalog.current_setting('server_version_num')::integer,
         'settings', pg_catalog.json_build_array(
           pg_catalog.current_setting('search_path'),
           pg_catalog.current_setting('standard_conforming_strings'),
           pg_catalog.current_setting('check_function_bodies'),
           pg_catalog.current_setting('client_min_messages'),
           pg_catalog.current_setting('lock_timeout'),
           pg_catalog.current_setting('statement_timeout')))::text AS answer;

-- migrate_restored.sql
-- takes: text, text, text, text, text, text
-- returns: answer text
SELECT pg_catalog.concat(
         pg_catalog.set_config('search_path', $1::text, true),
         pg_catalog.set_config('standard_conforming_strings', $2::text, true),
         pg_catalog.set_config('check_function_bodies', $3::text, true),
         pg_catalog.set_config('client_min_messages', $4::text, true),
         pg_catalog.set_config('lock_timeout', $5::text, true),
         pg_catalog.set_config('statement_timeout', $6::text, true),
         pg_catalog.set_config('posthaste.migrates', '', true)) AS answer;

-- oldest.sql
-- returns: queue text, priority int4, since timestamptz, seconds float8, is_worked bool
SELECT o.queue, o.priority, o.since,
       extract(epoch FROM clock_timestamp() - o.since)::float8 AS seconds,
       EXISTS (SELECT FROM posthaste.worker w
                WHERE w.stopped_at IS NULL AND w.seen_at > clock_timestamp() - interval '1 min'
                  AND (pg_catalog.cardinality(w.queues) = 0
                       OR o.queue = ANY (w.queues))) AS is_worked
  FROM posthaste.oldest() o ORDER BY o.queue, o.priority;

-- ordered_relay.sql
-- takes: text, int8, int8
-- returns: coalesce int8, count int8
WITH holder AS MATERIALIZED (
  SELECT d.worker,
         NOT EXISTS (SELECT FROM posthaste.worker w
                      WHERE w.id = d.worker
                        AND (w.stopped_at IS NULL
                             OR (NOT w.clean
                                 AND clock_timestamp() BETWEEN d.since AND d.until))) AS is_free
    FROM posthaste.ordered_relay d WHERE d.queue = $1),
taken AS (
  INSERT INTO posthaste.ordered_relay AS d (queue, worker, until)
  SELECT $1::text, $2::bigint, clock_timestamp() + $3::bigint::float8 * interval '1 millisecond'
    FROM (SELECT posthaste.wait_for_disk() OFFSET 0) d
   WHERE NOT EXISTS (SELECT FROM holder h WHERE h.worker <> $2 AND NOT h.is_free)
  ON CONFLICT (queue) DO UPDATE
     SET worker = excluded.worker, since = excluded.since, until = excluded.until
   WHERE d.worker = excluded.worker
      OR NOT EXISTS (SELECT FROM posthaste.worker w
                      WHERE w.id = d.worker
                        AND (w.stopped_at IS NULL
                             OR (NOT w.clean AND clock_timestamp() BETWEEN d.since AND d.until)))
  RETURNING d.worker)
SELECT coalesce((SELECT t.worker FROM taken t), (SELECT h.worker FROM holder h), 0::bigint),
       (SELECT count(*) FROM posthaste.in_flight h
         WHERE h.queue = $1 AND h.state = 'quarantined' AND h.until <= clock_timestamp()
           AND h.expires_at > clock_timestamp());

-- outbox_key.sql
-- takes: text, text
-- returns: key _text, may_delete bool, statement text
SELECT ARRAY(SELECT a.attname::text FROM pg_attribute a
              WHERE a.attrelid = c.oid AND a.attnum = ANY (i.indkey::smallint[])
              ORDER BY a.attnum) AS key,
       has_table_privilege(c.oid, 'DELETE'::text) AS may_delete,
       pg_catalog.format(
         'DELETE FROM %I.%I t USING pg_catalog.jsonb_to_recordset($1::text::jsonb) k (%s) '
         'WHERE %s'::text, $1::text, $2::text,
         (SELECT string_agg(pg_catalog.format('%I %s'::text, a.attname,
                                              format_type(a.atttypid, a.atttypmod)), ', '::text)
            FROM pg_attribute a WHERE a.attrelid = c.oid AND a.attnum = ANY (i.indkey::smallint[])),
         (SELECT string_agg(pg_catalog.format('t.%I = k.%I'::text, a.attname, a.attname),
                            ' AND '::text)
            FROM pg_attribute a WHERE a.attrelid = c.oid AND a.attnum = ANY (i.indkey::smallint[]))
       ) AS statement
  FROM pg_namespace n
  JOIN pg_class c ON c.relnamespace = n.oid AND c.relname = $2::text::name
  JOIN pg_index i ON i.indrelid = c.oid AND i.indisprimary
 WHERE n.nspname = $1::text::name;

-- pause.sql
-- takes: text, bool
-- returns: is_changed bool
WITH was AS (SELECT c.name, c.paused_at IS NOT NULL AS is_paused FROM posthaste.capture c
              WHERE c.name = $1::text FOR UPDATE),
     done AS (UPDATE posthaste.capture c
                 SET paused_at = CASE WHEN $2::boolean THEN clock_timestamp() END
                FROM was WHERE c.name = was.name AND was.is_paused <> $2::boolean)
SELECT was.is_paused <> $2::boolean AS is_changed FROM was;

-- peek.sql
-- takes: text, int4, _text
-- returns: lsn text, data bytea
SELECT p.lsn::text, p.data
  FROM pg_catalog.pg_logical_slot_peek_binary_changes($1::text::name, NULL, $2,
                                                      VARIADIC $3::text[]) p;

-- periodic.sql
-- returns: name text, error text
SELECT p.name, p.error FROM posthaste.periodic p WHERE p.error IS NOT NULL ORDER BY p.name LIMIT 200
;

-- periodic_due.sql
-- returns: name text, schedule text, time_zone text, missed text, next_at timestamptz
-- returns: now timestamptz, is_ahead bool
SELECT name, schedule, time_zone, missed, next_at, clock_timestamp() AS now,
       next_at > clock_timestamp() AND coalesce(looked_at <= clock_timestamp(), true) AS is_ahead
  FROM posthaste.periodic
 WHERE (next_at IS NULL OR next_at <= clock_timestamp() + interval '1 s'
        OR looked_at > clock_timestamp())
   AND (error IS NULL OR looked_at IS NULL OR looked_at > clock_timestamp()
        OR looked_at < clock_timestamp() - interval '10 min')
 ORDER BY error IS NOT NULL, next_at NULLS LAST LIMIT 1000 FOR NO KEY UPDATE SKIP LOCKED;

-- periodic_list.sql
-- returns: name text, schedule text, time_zone text, missed text, job text, queue text, tag text
-- returns: next_at timestamptz, is_off bool, error text, enqueued_at timestamptz, kwargs text
SELECT p.name, p.schedule, p.time_zone, p.missed, p.job, p.queue, p.tag,
       CASE WHEN p.next_at < '9999-01-01Z' THEN p.next_at END AS next_at,
       coalesce(p.next_at >= '9999-01-01Z', false) AS is_off, p.error,
       CASE WHEN p.made::text <> '{}' THEN p.looked_at END AS enqueued_at,
       CASE WHEN pg_catalog.octet_length(p.kwargs::text) <= 4096 THEN p.kwargs::text END AS kwargs
  FROM posthaste.periodic p ORDER BY p.name LIMIT 1000;

-- periodic_off.sql
-- takes: text
UPDATE posthaste.periodic AS p SET next_at = '9999-01-01Z', looked_at = NULL WHERE p.name = $1::text
;

-- periodic_on.sql
-- takes: text
UPDATE posthaste.periodic AS p SET next_at = NULL, looked_at = NULL
 WHERE p.name = $1::text AND p.next_at >= '9999-01-01Z';

-- periodic_put.sql
-- takes: text, text, text, text, text, jsonb, text, int4, text, int4
INSERT INTO posthaste.periodic AS p (name, schedule, time_zone, missed, job, kwargs, queue,
                                     priority, tag, max_attempts)
SELECT $1, $2, $3, $4, $5, $6, $7, $8, $9, $10 FROM (SELECT posthaste.wait_for_disk() OFFSET 0) d
ON CONFLICT (name) DO UPDATE SET
  schedule = excluded.schedule, time_zone = excluded.time_zone, missed = excluded.missed,
  job = excluded.job, kwargs = excluded.kwargs, queue = excluded.queue,
  priority = excluded.priority, tag = excluded.tag, max_attempts = excluded.max_attempts,
  next_at = CASE WHEN (p.schedule, p.time_zone) = (excluded.schedule, excluded.time_zone)
                 THEN p.next_at END,
  made = CASE WHEN (p.schedule, p.time_zone) = (excluded.schedule, excluded.time_zone)
              THEN p.made ELSE '{}' END;

-- periodic_run.sql
-- takes: text
-- returns: id int8
SELECT posthaste.enqueue(p.job, p.kwargs, p.queue, p.priority, clock_timestamp(),
                         NULL::timestamptz, p.tag, NULL::text, p.max_attempts) AS id
  FROM posthaste.periodic p WHERE p.name = $1::text;

-- pid.sql
-- returns: pg_backend_pid int4
SELECT pg_backend_pid();

-- probes.sql
-- takes: _text, _text
-- returns: statement text
SELECT p.statement
  FROM unnest($1::text[], $2::text[]) t (schema, name)
  JOIN pg_namespace s ON s.nspname = t.schema::name
  JOIN pg_class c ON c.relnamespace = s.oid AND c.relname = t.name::name
 CROSS JOIN LATERAL (
   SELECT c.oid AS leaf
    UNION SELECT i.relid FROM pg_catalog.pg_partition_tree(c.oid) i WHERE i.isleaf) l
  JOIN pg_class lc ON lc.oid = l.leaf AND lc.relkind = 'r'::"char"
  JOIN pg_namespace ls ON ls.oid = lc.relnamespace
 CROSS JOIN LATERAL (
   SELECT pg_catalog.format('EXPLAIN DELETE FROM %I.%I'::text, ls.nspname, lc.relname)
    UNION ALL
   SELECT pg_catalog.format('EXPLAIN UPDATE %I.%I SET %I = DEFAULT'::text, ls.nspname, lc.relname,
                            a.attname)
     FROM pg_attribute a
    WHERE a.attrelid = l.leaf AND a.attnum = (
      SELECT min(b.attnum) FROM pg_attribute b
       WHERE b.attrelid = l.leaf AND b.attnum > 0 AND NOT b.attisdropped)) p (statement);

-- publication.sql
-- takes: text, text, text, bool
-- returns: ?column? text
SELECT pg_catalog.format('CREATE PUBLICATION %I'::text, $1::text)
    || coalesce(' FOR TABLE '::text || string_agg(
         pg_catalog.format('%I.%I'::text, t.one ->> 'schema'::text, t.one ->> 'name'::text)
         || coalesce(' ('::text || (SELECT string_agg(quote_ident(c.name), ', '::text ORDER BY c.n)
              FROM jsonb_array_elements_text(t.one -> 'columns'::text)
                   WITH ORDINALITY c (name, n)) || ')'::text, ''::text)
         || coalesce(' WHERE ('::text || (t.one ->> 'filter'::text) || ')'::text, ''::text),
         ', '::text ORDER BY t.n), ''::text)
    || pg_catalog.format(' WITH (publish = %L, publish_via_partition_root = true%s)'::text,
         $3::text,
         CASE WHEN $4::boolean THEN ', publish_generated_columns = stored' ELSE '' END)
  FROM jsonb_array_elements($2::text::jsonb) WITH ORDINALITY t (one, n);

-- publish_horizon.sql
-- takes: int8
-- returns: ceil int8
SELECT CASE WHEN posthaste.publish_horizon() THEN 0
            ELSE ceil(extract(epoch FROM posthaste.time_until_due(
                   $1::bigint::float8 * interval '1 millisecond')) * 1000::numeric)::bigint END;

-- published.sql
-- takes: text
-- returns: has_more bool, tables _text
SELECT p.puballtables OR EXISTS (SELECT FROM pg_publication_namespace n WHERE n.pnpubid = p.oid)
         AS has_more,
       ARRAY(SELECT s.nspname::text || '.'::text || c.relname::text
               FROM pg_publication_rel r
               JOIN pg_class c ON c.oid = r.prrelid JOIN pg_namespace s ON s.oid = c.relnamespace
              WHERE r.prpubid = p.oid ORDER BY 1) AS tables
  FROM pg_publication p
 WHERE p.pubname = $1::text::name;

-- put_gap.sql
-- takes: uuid, text, text, text, text, _text
INSERT INTO posthaste.capture_gap (epoch, begins, ends, capture, reason, tables)
SELECT $1::uuid, $2::text::pg_lsn, $3::text::pg_lsn, $4, $5, $6
 WHERE $3::text IS NOT NULL OR NOT EXISTS (
   SELECT FROM posthaste.capture_gap g WHERE g.epoch = $1::uuid AND g.ends IS NULL);

-- put_mark_0.sql
-- takes: text, text, text, int4, uuid, int8, int8
INSERT INTO posthaste.capture_mark_0 (done, commit, record, row, epoch, events, bytes)
VALUES ($1::text::pg_lsn, $2::text::pg_lsn, $3::text::pg_lsn, $4, $5, $6, $7);

-- put_mark_1.sql
-- takes: text, text, text, int4, uuid, int8, int8
INSERT INTO posthaste.capture_mark_1 (done, commit, record, row, epoch, events, bytes)
VALUES ($1::text::pg_lsn, $2::text::pg_lsn, $3::text::pg_lsn, $4, $5, $6, $7);

-- queues.sql
-- returns: name text, paused_at timestamptz, rate int4, per float8, burst int4, keep float8
SELECT q.name, max(q.paused_at) AS paused_at, max(q.rate) AS rate,
       extract(epoch FROM max(q.per))::double precision AS per, max(q.burst) AS burst,
       extract(epoch FROM max(q.keep))::double precision AS keep
  FROM (SELECT l.queue AS name, NULL::timestamptz AS paused_at, NULL::integer AS rate,
               NULL::interval AS per, NULL::integer AS burst, NULL::interval AS keep
          FROM posthaste.lane l
        UNION ALL SELECT r.queue, NULL, NULL, NULL, NULL, NULL FROM posthaste.route r
        UNION ALL SELECT s.name, s.paused_at, s.rate, s.per, s.burst, s.keep FROM posthaste.queue s
        ) q
 WHERE q.name <> '' GROUP BY q.name
 ORDER BY coalesce(max(q.paused_at)::text, max(q.rate)::text, max(q.keep)::text) IS NULL, q.name
 LIMIT 1000;

-- queues/keep.sql
-- takes: text, text
-- returns: keep bool
SELECT posthaste.keep($1, $2::text::interval);

-- queues/list.sql
-- returns: name text, paused bool, rate int4, seconds float8, burst int4, keep text
SELECT name, bool_or(paused) AS paused, max(rate) AS rate,
       extract(epoch FROM max(per))::double precision AS seconds, max(burst) AS burst,
       max(keep)::text AS keep
  FROM (SELECT queue AS name, false AS paused, NULL::integer AS rate, NULL::interval AS per,
               NULL::integer AS burst, NULL::interval AS keep
          FROM posthaste.lane UNION ALL
        SELECT queue, false, NULL, NULL, NULL, NULL FROM posthaste.route UNION ALL
        SELECT name, paused_at IS NOT NULL, rate, per, burst, keep FROM posthaste.queue
         WHERE name <> '') q
 GROUP BY name ORDER BY name;

-- queues_with_work.sql
-- takes: _text
-- returns: queue text, priority int4
WITH queues_with_work AS (
  SELECT s.queue, s.priority
    FROM posthaste.queues_with_work(ARRAY(
         SELECT u.name FROM pg_catalog.unnest($1::text[]) u(name)
          WHERE NOT EXISTS (SELECT FROM posthaste.queue q
                             WHERE q.name = u.name AND q.paused_at IS NOT NULL))) s),
noted AS (
  INSERT INTO posthaste.lane (queue, priority)
  SELECT s.queue, s.priority FROM queues_with_work s
   WHERE NOT EXISTS (SELECT FROM posthaste.lane l
                      WHERE (l.queue, l.priority) = (s.queue, s.priority))
  ON CONFLICT DO NOTHING)
SELECT queue, priority FROM queues_with_work;

-- reclaim.sql
-- takes: int8, int4
-- returns: o_state text, o_batch int8, o_blocker text, case text
SELECT r.o_state, r.o_batch, r.o_blocker,
       CASE WHEN r.o_state <> 'none'
            THEN set_config('posthaste.verified', pg_catalog.concat(this, ':', r.o_batch),
                            false) END
  FROM pg_catalog.concat($1::bigint, '@', 'posthaste.store'::regclass::oid) this,
       current_setting('posthaste.verified', true) known,
       posthaste.reclaim($1::bigint, CASE WHEN split_part(known, ':', 1) = this
                                     THEN split_part(known, ':', 2)::bigint
                                     ELSE 0 END, $2::integer) r;

-- redrive.sql
-- takes: _int8, text, text, text, text, text, int4
-- returns: id int8
SELECT r.id
  FROM posthaste.redrive($1::bigint[], $2::text, $3::text, $4::text, $5::text, $6::text,
                         $7::integer) r (id)
 ORDER BY r.id;

-- register.sql
-- takes: uuid, text, text, text
INSERT INTO posthaste.capture (epoch, slot, publication, published, name, identity)
SELECT $1::uuid, $2::text, $3::text,
       (SELECT p.oid FROM pg_publication p WHERE p.pubname = $3::text::name),
       $4::text, ARRAY[i.now[1], i.now[2], i.now[4]]
  FROM (SELECT posthaste.current_identity() AS now) i
    ON CONFLICT (name) DO UPDATE
   SET epoch = excluded.epoch, runner = NULL, stopped = NULL, slot = excluded.slot,
       publication = excluded.publication, published = excluded.published,
       identity = excluded.identity;

-- reindex.sql
-- takes: text, text, text, text, text, _text, text, int4, bool, text, text, text
-- returns: format text, ?column? text
WITH RECURSIVE of_column(typtype, typcategory, typnamespace, typname, typbasetype) AS (
  SELECT t.typtype, t.typcategory, t.typnamespace, t.typname, t.typbasetype
    FROM pg_attribute a JOIN pg_type t ON t.oid = a.atttypid
   WHERE a.attname = $3::text::name AND NOT a.attisdropped
     AND a.attrelid = (SELECT s.relation::oid FROM posthaste.synced s WHERE s.name = $1)
  UNION ALL
  SELECT t.typtype, t.typcategory, t.typnamespace, t.typname, t.typbasetype
    FROM of_column d JOIN pg_type t ON t.oid = d.typbasetype
   WHERE d.typtype = 'd')
SELECT pg_catalog.format(
         $f$INSERT INTO posthaste.job (name, queue, priority, tag, max_attempts, kwargs)
SELECT %L, %L, %s, %L, NULL, pg_catalog.jsonb_build_object('id', i.id%s, 'reindex', %L)
  FROM (%s) i$f$,
         'sync.' || s.name, $10::text, $8::integer, $7::text,
         CASE WHEN $9 THEN $k$, 'force', true$k$ ELSE '' END, $12::text, r.taken),
       'EXPLAIN (FORMAT json) ' || r.taken
  FROM posthaste.synced s
  JOIN pg_class c ON c.oid = s.relation::oid
  JOIN pg_namespace n ON n.oid = c.relnamespace
  LEFT JOIN (
    SELECT pg_catalog.format('::%I.%I', n.nspname, o.typname),
           n.nspname = 'pg_catalog' OR o.typtype <> 'b' OR o.typcategory = 'A'
      FROM of_column o JOIN pg_namespace n ON n.oid = o.typnamespace
     WHERE o.typtype <> 'd') b(made, is_built_in) ON true,
  LATERAL (
    SELECT CASE WHEN b.is_built_in THEN 't.%I%s OPERATOR(pg_catalog.%s) %L'
           ELSE 't.%I%s %s %L' END) k(compared),
  LATERAL (
    SELECT CASE
      WHEN $6::text[] IS NOT NULL
        THEN pg_catalog.format('SELECT pg_catalog.unnest(%L::text[]) AS id', $6)
      ELSE pg_catalog.format(
        'SELECT t.%I::text AS id FROM %I.%I t WHERE %s', s.key, n.nspname, c.relname,
        pg_catalog.concat_ws(' AND ', coalesce('(' || $2::text || ')', 'true'),
          CASE WHEN $11::text IS NOT NULL
            THEN pg_catalog.format(k.compared, $3::text, b.made, '=', $11) END,
          CASE WHEN $4::text IS NOT NULL
            THEN pg_catalog.format(k.compared, $3::text, b.made, '>=', $4) END,
          CASE WHEN $5::text IS NOT NULL
            THEN pg_catalog.format(k.compared, $3, b.made, '<', $5) END)) END) r(taken)
 WHERE s.name = $1;

-- relay/is_led_to.sql
-- takes: _text
-- returns: exists bool
SELECT EXISTS (SELECT FROM posthaste.route r WHERE r.queue = q.name)
  FROM pg_catalog.unnest($1::text[]) WITH ORDINALITY q(name, n) ORDER BY q.n;

-- relay/moves.sql
-- takes: text, _text
-- returns: ?column? bool
WITH job AS MATERIALIZED (
  SELECT j.id, j.queue, j.state, j.ordering_key COLLATE "C" AS ordering_key FROM posthaste.job j
   WHERE (j.queue = $1 OR j.ordering_key IS NOT NULL)
     AND j.state IN ('available', 'blocked', 'running', 'quarantined', 'scheduled', 'retrying',
                     'awaiting')),
behind AS MATERIALIZED (
  SELECT DISTINCT j.ordering_key FROM job j WHERE j.queue = $1 AND j.state = 'blocked'),
stuck AS MATERIALIZED (
  SELECT b.ordering_key FROM behind b JOIN job j ON j.ordering_key = b.ordering_key
   WHERE j.state IN ('available', 'running', 'quarantined') AND j.queue <> ALL ($2)
  UNION ALL
  SELECT b.ordering_key FROM behind b JOIN job j ON j.ordering_key = b.ordering_key,
         LATERAL posthaste.ordering_position(b.ordering_key) s
   WHERE j.state IN ('scheduled', 'retrying', 'awaiting') AND NOT s.is_free
     AND (EXISTS (SELECT FROM posthaste.in_flight h WHERE h.id = j.id AND h.turn = s.turn)
          OR EXISTS (SELECT FROM posthaste.store r
                      WHERE r.slot IN (6, 7) AND r.ordering_key = j.ordering_key
                        AND r.turn = s.turn AND r.id = j.id)))
SELECT EXISTS (SELECT FROM job j
                WHERE j.queue = $1 AND j.state IN ('available', 'running', 'quarantined'))
    OR EXISTS (SELECT FROM behind b
                WHERE NOT EXISTS (SELECT FROM stuck s WHERE s.ordering_key = b.ordering_key));

-- relays.sql
-- returns: worker int8, queue text, route text, destination text, state text, accepted int8
-- returns: rejected int8, retried int8, unavailable int8, down_since timestamptz
-- returns: failing_since timestamptz, last_error text, written_at timestamptz, rejections text
-- returns: failures text
WITH newest AS (
  SELECT DISTINCT ON (r.queue, r.worker) r.*, w.id IS NOT NULL AS lives,
         least(r.at, now.at) AS written_at
    FROM (SELECT clock_timestamp() AS at) now, posthaste.relay r
         LEFT JOIN posthaste.worker w ON w.id = r.worker AND w.stopped_at IS NULL
   ORDER BY r.queue, r.worker, r.at > now.at, r.at DESC)
SELECT n.worker, n.queue, n.route, n.destination,
       CASE WHEN NOT n.lives THEN 'stopped'
            WHEN n.written_at < clock_timestamp() - interval '30 s' THEN 'silent'
            ELSE n.state END,
       n.accepted, n.rejected, n.retried, n.unavailable,
       n.down_since, n.failing_since, n.last_error, n.written_at, n.rejections::text,
       n.failures::text
  FROM newest n
 WHERE n.lives OR NOT EXISTS (SELECT FROM newest o WHERE o.queue = n.queue
         AND (o.lives OR (o.written_at, o.worker) > (n.written_at, n.worker)))
 ORDER BY n.queue, n.worker;

-- requirements.sql
-- returns: wal_level text, version int4, may_replicate bool, slots_left int8, senders int8
SELECT current_setting('wal_level'::text) AS wal_level,
       current_setting('server_version_num'::text)::integer AS version,
       (SELECT r.rolreplication OR r.rolsuper FROM pg_roles r WHERE r.rolname = current_user)
         AS may_replicate,
       current_setting('max_replication_slots'::text)::bigint
         - (SELECT count(*) FROM pg_replication_slots) AS slots_left,
       current_setting('max_wal_senders'::text)::bigint AS senders;

-- reschedule.sql
-- takes: int2, int8, uuid, int4, int8, text
-- returns: reschedule bool
SELECT posthaste.reschedule($1, $2, $3, $4, $5::bigint::float8 * interval '1 millisecond', $6);

-- retention.sql
-- returns: attempts float8, inbox float8
SELECT extract(epoch FROM s.keep_attempts)::double precision AS attempts,
       extract(epoch FROM s.keep_inbox)::double precision AS inbox
  FROM posthaste.setting s;

-- retry.sql
-- takes: _int8, text, text, text, text, text, int4
-- returns: answer text
SELECT pg_catalog.json_build_array(r.job_id, r.is_now)::text AS answer
  FROM posthaste.retry($1::bigint[], $2::text, $3::text, $4::text, $5::text, $6::text,
                       $7::integer) r
 ORDER BY r.job_id;

-- rights.sql
-- returns: may_look bool, may_look_at_synced bool, may_enqueue bool, may_work bool
-- returns: may_observe bool, functions_lacking _text, roles_lacking _text
WITH c AS (
  SELECT c.oid, c.relname, c.relkind, c.relkind = 'r' AND c.relname ~ '_[0-7]$'::text AS is_slot,
         c.relname IN ('job', 'store') AS is_entered
    FROM pg_class c WHERE c.relnamespace = to_regnamespace('posthaste')::oid)
SELECT has_schema_privilege('posthaste', 'USAGE') AS may_look,
       has_schema_privilege('posthaste', 'USAGE')
         AND coalesce((SELECT has_table_privilege(c.oid, 'SELECT') FROM c
                        WHERE c.relname = 'synced'),
                      false) AS may_look_at_synced,
       coalesce((SELECT bool_and(has_any_column_privilege(c.oid, 'INSERT')) FROM c
                  WHERE c.is_entered), false)
         AND coalesce((SELECT bool_and(has_sequence_privilege(c.oid, 'USAGE')) FROM c
                        WHERE c.relname = 'job_id'),
                      false) AS may_enqueue,
       coalesce((SELECT bool_and(has_table_privilege(c.oid, 'INSERT')
                                 AND has_table_privilege(c.oid, 'TRUNCATE'))
                   FROM c WHERE c.is_slot), false) AS may_work,
       coalesce((SELECT bool_and(has_table_privilege(c.oid, 'SELECT')) FROM c
                  WHERE c.relkind IN ('r', 'p', 'v')), false)
         AND coalesce((SELECT bool_and(has_sequence_privilege(c.oid, 'SELECT')) FROM c
                        WHERE c.relkind = 'S'),
                false) AS may_observe,
       (SELECT coalesce(pg_catalog.array_agg(f.name ORDER BY f.name), '{}') FROM (
          SELECT p.oid::regprocedure::text AS name FROM pg_proc p
           WHERE p.pronamespace = to_regnamespace('posthaste')::oid
             AND p.proname IN ('check_identity', 'register', 'enter_site', 'session_identity',
                               'claim', 'settle', 'close_batches', 'beat', 'enter_ready')
             AND NOT has_function_privilege(p.oid, 'EXECUTE')
          UNION ALL
          SELECT p.oid::regprocedure::text FROM pg_proc p
           WHERE p.pronamespace = 'pg_catalog'::regnamespace::oid
             AND p.proname = 'pg_sequence_last_value'
             AND NOT has_function_privilege(p.oid, 'EXECUTE')) f) AS functions_lacking,
       (SELECT coalesce(pg_catalog.array_agg(DISTINCT r.rolname::text), '{}') FROM c, pg_roles r
         WHERE r.rolname = 'posthaste_worker' AND c.is_slot
           AND NOT has_table_privilege(r.oid, c.oid, 'INSERT')
            OR r.rolname = 'posthaste_producer' AND c.is_entered
               AND NOT has_any_column_privilege(r.oid, c.oid, 'INSERT')
            OR r.rolname = 'posthaste_observer' AND c.relkind IN ('r', 'p', 'v')
               AND NOT has_table_privilege(r.oid, c.oid, 'SELECT')
            OR r.rolname IN ('posthaste_worker', 'posthaste_producer', 'posthaste_observer')
               AND c.relname = 'store' AND EXISTS (
                 SELECT FROM pg_proc p
                  WHERE p.pronamespace = to_regnamespace('posthaste')::oid
                    AND NOT p.prosecdef AND p.prorettype <> 'trigger'::regtype::oid
                    AND NOT has_function_privilege(r.oid, p.oid, 'EXECUTE'))) AS roles_lacking;

-- run.sql
-- takes: text, uuid, text
UPDATE posthaste.capture SET runner = $2, path = $3, started_at = clock_timestamp(),
       indirect_since = CASE WHEN path <> 'direct'::text THEN indirect_since END, stopped = NULL
 WHERE name = $1::text;

-- running.sql
-- takes: int8, text, text, text, text, text, int8, timestamptz, int8, timestamptz, text, int4, int8
-- returns: at text, id int8, name text, queue text, priority int4, state text, attempt int4
-- returns: max_attempts int4, enqueued_at timestamptz, scheduled_at timestamptz, tag text
-- returns: last_error text, kwargs text, kwargs_bytes int4
SELECT j.id::text AS at, j.id, j.name, j.queue, j.priority, 'running' AS state, j.attempt,
       j.max_attempts, j.enqueued_at, j.scheduled_at, j.tag,
       left(j.last_error, 400) AS last_error,
       CASE WHEN j.kwargs_bytes <= 4096 THEN j.kwargs::text END AS kwargs, j.kwargs_bytes
  FROM (
  SELECT c.worker, r.* FROM (
    SELECT n.worker, n.batch, n.token FROM (
      SELECT b.worker, b.batch, b.token FROM posthaste.claim_0 b
       ORDER BY b.batch DESC LIMIT $9::bigint) n
     WHERE NOT EXISTS (SELECT FROM posthaste.batch_done_0 w WHERE w.batch = n.batch) OFFSET 0) c,
    LATERAL posthaste.batch_rows_0(c.batch, c.token) r
   WHERE NOT EXISTS (SELECT FROM posthaste.job_done_0 a WHERE a.xid = r.xid AND a.id = r.id)
  UNION ALL
  SELECT c.worker, r.* FROM (
    SELECT n.worker, n.batch, n.token FROM (
      SELECT b.worker, b.batch, b.token FROM posthaste.claim_1 b
       ORDER BY b.batch DESC LIMIT $9::bigint) n
     WHERE NOT EXISTS (SELECT FROM posthaste.batch_done_1 w WHERE w.batch = n.batch) OFFSET 0) c,
    LATERAL posthaste.batch_rows_1(c.batch, c.token) r
   WHERE NOT EXISTS (SELECT FROM posthaste.job_done_1 a WHERE a.xid = r.xid AND a.id = r.id)
  UNION ALL
  SELECT c.worker, r.* FROM (
    SELECT n.worker, n.batch, n.token FROM (
      SELECT b.worker, b.batch, b.token FROM posthaste.claim_2 b
       ORDER BY b.batch DESC LIMIT $9::bigint) n
     WHERE NOT EXISTS (SELECT FROM posthaste.batch_done_2 w WHERE w.batch = n.batch) OFFSET 0) c,
    LATERAL posthaste.batch_rows_2(c.batch, c.token) r
   WHERE NOT EXISTS (SELECT FROM posthaste.job_done_2 a WHERE a.xid = r.xid AND a.id = r.id)
  UNION ALL
  SELECT c.worker, r.* FROM (
    SELECT n.worker, n.batch, n.token FROM (
      SELECT b.worker, b.batch, b.token FROM posthaste.claim_3 b
       ORDER BY b.batch DESC LIMIT $9::bigint) n
     WHERE NOT EXISTS (SELECT FROM posthaste.batch_done_3 w WHERE w.batch = n.batch) OFFSET 0) c,
    LATERAL posthaste.batch_rows_3(c.batch, c.token) r
   WHERE NOT EXISTS (SELECT FROM posthaste.job_done_3 a WHERE a.xid = r.xid AND a.id = r.id)
  UNION ALL
  SELECT c.worker, r.* FROM (
    SELECT n.worker, n.batch, n.token FROM (
      SELECT b.worker, b.batch, b.token FROM posthaste.claim_4 b
       ORDER BY b.batch DESC LIMIT $9::bigint) n
     WHERE NOT EXISTS (SELECT FROM posthaste.batch_done_4 w WHERE w.batch = n.batch) OFFSET 0) c,
    LATERAL posthaste.batch_rows_4(c.batch, c.token) r
   WHERE NOT EXISTS (SELECT FROM posthaste.job_done_4 a WHERE a.xid = r.xid AND a.id = r.id)
  UNION ALL
  SELECT c.worker, r.* FROM (
    SELECT n.worker, n.batch, n.token FROM (
      SELECT b.worker, b.batch, b.token FROM posthaste.claim_5 b
       ORDER BY b.batch DESC LIMIT $9::bigint) n
     WHERE NOT EXISTS (SELECT FROM posthaste.batch_done_5 w WHERE w.batch = n.batch) OFFSET 0) c,
    LATERAL posthaste.batch_rows_5(c.batch, c.token) r
   WHERE NOT EXISTS (SELECT FROM posthaste.job_done_5 a WHERE a.xid = r.xid AND a.id = r.id)) j
 WHERE j.id < $1::bigint
   AND ($2::text IS NULL OR j.queue LIKE $2::text) AND ($3::text IS NULL OR j.name LIKE $3::text)
   AND ($4::text IS NULL OR j.tag LIKE $4::text) AND ($5::text IS NULL OR $5::text = 'running')
   AND ($6::text IS NULL OR j.last_error LIKE $6::text)
   AND ($8::timestamptz IS NULL OR j.enqueued_at >= $8::timestamptz)
   AND ($10::timestamptz IS NULL OR j.enqueued_at < $10::timestamptz)
   AND ($11::text IS NULL OR j.ordering_key LIKE $11::text)
   AND ($12::integer IS NULL OR j.priority = $12::integer)
   AND ($13::bigint IS NULL OR j.worker = $13::bigint)
 ORDER BY j.id DESC LIMIT $7::bigint;

-- running_by_worker.sql
-- returns: worker int8, jobs int8
SELECT j.worker, count(*) AS jobs FROM (
  SELECT c.worker, r.id FROM (
    SELECT n.worker, n.batch, n.token FROM (
      SELECT b.worker, b.batch, b.token FROM posthaste.claim_0 b
       ORDER BY b.batch DESC LIMIT 20000) n
     WHERE NOT EXISTS (SELECT FROM posthaste.batch_done_0 w WHERE w.batch = n.batch) OFFSET 0) c,
    LATERAL posthaste.batch_rows_0(c.batch, c.token) r
   WHERE NOT EXISTS (SELECT FROM posthaste.job_done_0 a WHERE a.xid = r.xid AND a.id = r.id)
  UNION ALL
  SELECT c.worker, r.id FROM (
    SELECT n.worker, n.batch, n.token FROM (
      SELECT b.worker, b.batch, b.token FROM posthaste.claim_1 b
       ORDER BY b.batch DESC LIMIT 20000) n
     WHERE NOT EXISTS (SELECT FROM posthaste.batch_done_1 w WHERE w.batch = n.batch) OFFSET 0) c,
    LATERAL posthaste.batch_rows_1(c.batch, c.token) r
   WHERE NOT EXISTS (SELECT FROM posthaste.job_done_1 a WHERE a.xid = r.xid AND a.id = r.id)
  UNION ALL
  SELECT c.worker, r.id FROM (
    SELECT n.worker, n.batch, n.token FROM (
      SELECT b.worker, b.batch, b.token FROM posthaste.claim_2 b
       ORDER BY b.batch DESC LIMIT 20000) n
     WHERE NOT EXISTS (SELECT FROM posthaste.batch_done_2 w WHERE w.batch = n.batch) OFFSET 0) c,
    LATERAL posthaste.batch_rows_2(c.batch, c.token) r
   WHERE NOT EXISTS (SELECT FROM posthaste.job_done_2 a WHERE a.xid = r.xid AND a.id = r.id)
  UNION ALL
  SELECT c.worker, r.id FROM (
    SELECT n.worker, n.batch, n.token FROM (
      SELECT b.worker, b.batch, b.token FROM posthaste.claim_3 b
       ORDER BY b.batch DESC LIMIT 20000) n
     WHERE NOT EXISTS (SELECT FROM posthaste.batch_done_3 w WHERE w.batch = n.batch) OFFSET 0) c,
    LATERAL posthaste.batch_rows_3(c.batch, c.token) r
   WHERE NOT EXISTS (SELECT FROM posthaste.job_done_3 a WHERE a.xid = r.xid AND a.id = r.id)
  UNION ALL
  SELECT c.worker, r.id FROM (
    SELECT n.worker, n.batch, n.token FROM (
      SELECT b.worker, b.batch, b.token FROM posthaste.claim_4 b
       ORDER BY b.batch DESC LIMIT 20000) n
     WHERE NOT EXISTS (SELECT FROM posthaste.batch_done_4 w WHERE w.batch = n.batch) OFFSET 0) c,
    LATERAL posthaste.batch_rows_4(c.batch, c.token) r
   WHERE NOT EXISTS (SELECT FROM posthaste.job_done_4 a WHERE a.xid = r.xid AND a.id = r.id)
  UNION ALL
  SELECT c.worker, r.id FROM (
    SELECT n.worker, n.batch, n.token FROM (
      SELECT b.worker, b.batch, b.token FROM posthaste.claim_5 b
       ORDER BY b.batch DESC LIMIT 20000) n
     WHERE NOT EXISTS (SELECT FROM posthaste.batch_done_5 w WHERE w.batch = n.batch) OFFSET 0) c,
    LATERAL posthaste.batch_rows_5(c.batch, c.token) r
   WHERE NOT EXISTS (SELECT FROM posthaste.job_done_5 a WHERE a.xid = r.xid AND a.id = r.id)
  UNION ALL
  SELECT f.worker, f.id FROM posthaste.in_flight f WHERE f.state = 'running') j
 WHERE j.worker IS NOT NULL GROUP BY j.worker;

-- samples.sql
-- takes: int2, text, timestamptz
-- returns: at timestamptz, come int8, done int8, failed int8, started int8, waited int8
-- returns: available int8, running int8, oldest float8
SELECT DISTINCT ON (u.at) u.at, u.come, u.done, u.failed, u.started, u.waited, u.available,
       u.running, u.oldest
  FROM (SELECT s.* FROM posthaste.sample s
         WHERE s.span = $1 AND s.at >= $3 AND s.queue = $2
        UNION ALL
        (SELECT s.* FROM posthaste.sample s
          WHERE s.span = '1'::smallint AND s.at >= $3 AND s.queue = $2
          ORDER BY s.at DESC LIMIT 1)) u
 ORDER BY u.at, u.span DESC;

-- scheduled.sql
-- takes: int4, text, text, text, text, text, text, text, int8, timestamptz, timestamptz, text, int4
-- returns: at text, id int8, name text, queue text, priority int4, state text, attempt int4
-- returns: max_attempts int4, enqueued_at timestamptz, scheduled_at timestamptz, tag text
-- returns: last_error text, kwargs text, kwargs_bytes int4
WITH page AS MATERIALIZED (
    (SELECT * FROM posthaste.promote_cursor_6 WHERE $1::integer = 6 ORDER BY page DESC LIMIT 1)
    UNION ALL
    (SELECT * FROM posthaste.promote_cursor_7 WHERE $1::integer = 7 ORDER BY page DESC LIMIT 1)
)
SELECT w.ctid::text AS at, w.id, w.name, coalesce(w.own_queue, w.queue) AS queue,
       coalesce(w.own_priority, w.priority) AS priority, w.state, w.attempt, w.max_attempts,
       w.enqueued_at, w.due AS scheduled_at, w.tag, left(w.last_error, 400) AS last_error,
       CASE WHEN w.kwargs_bytes <= 4096 THEN w.kwargs::text END AS kwargs, w.kwargs_bytes
  FROM (
  SELECT s.ctid, s.*,
         CASE WHEN s.scheduled_at = '9999-01-01Z' THEN s.enqueued_at ELSE s.scheduled_at END AS due,
         CASE WHEN s.expires_at <= clock_timestamp() THEN 'expired'
              WHEN s.scheduled_at = '9999-01-01Z' THEN 'blocked' WHEN s.attempt > 0 THEN 'retrying'
              ELSE 'scheduled' END AS state
    FROM posthaste.store s LEFT JOIN page p ON true
   WHERE s.slot = $1::integer AND s.ctid >= $2::text::tid AND s.ctid < $3::text::tid
     AND ($7::text IS DISTINCT FROM 'retrying' OR s.attempt > 0)
     AND ($4::text IS NULL OR coalesce(s.own_queue, s.queue) LIKE $4::text)
     AND ($5::text IS NULL OR s.name LIKE $5::text) AND ($6::text IS NULL OR s.tag LIKE $6::text)
     AND ($8::text IS NULL OR s.last_error LIKE $8::text)
     AND ($10::timestamptz IS NULL OR s.enqueued_at >= $10::timestamptz)
     AND ($11::timestamptz IS NULL OR s.enqueued_at < $11::timestamptz)
     AND ($12::text IS NULL OR s.ordering_key LIKE $12::text)
     AND ($13::integer IS NULL OR coalesce(s.own_priority, s.priority) = $13::integer)
     AND NOT EXISTS (SELECT FROM posthaste.closed_unclaimed_6 e
                      WHERE $1::integer = 6 AND e.xid = s.xid AND e.id = s.id)
     AND NOT EXISTS (SELECT FROM posthaste.closed_unclaimed_7 e
                      WHERE $1::integer = 7 AND e.xid = s.xid AND e.id = s.id)
     AND NOT coalesce(posthaste.promoted(s.xid, s.scheduled_at, s.id, p.t_lo, p.t_hi, p.lo, p.hi,
                                         p.at_xid, p.at_due, p.at_id, p.late_done, p.exhausted),
                      false)
) w
 WHERE $7::text IS NULL OR w.state = $7::text
 ORDER BY w.ctid DESC LIMIT $9::bigint;

-- search.sql
-- takes: text, text, text, int8
-- returns: id text
SELECT s.id FROM posthaste.search s, websearch_to_tsquery($2::text::regconfig, $3) q
 WHERE s.index = $1 AND s.deleted_at IS NULL AND s.words @@ q
 ORDER BY ts_rank_cd(s.words, q) DESC, s.id LIMIT $4;

-- search_forget.sql
-- takes: text, int8, int8
DELETE FROM posthaste.search s USING (
  SELECT o.index, o.id FROM posthaste.search o
   WHERE o.index = $1
     AND o.deleted_at < posthaste.retention_clock() - $2::bigint::float8 * interval '1 millisecond'
   LIMIT $3 FOR UPDATE SKIP LOCKED) o
 WHERE (s.index, s.id) = (o.index, o.id) AND s.deleted_at IS NOT NULL;

-- search_holds.sql
-- takes: text, text, jsonb, _text, _jsonb
-- returns: id text
SELECT w.id
  FROM unnest($4::text[], $5::jsonb[]) w(id, document)
  JOIN posthaste.search s ON s.index = $1 AND s.id = w.id
 WHERE s.words = posthaste.search_words($2::text::regconfig, w.document, $3);

-- search_is_empty.sql
-- takes: text
-- returns: ?column? bool
SELECT NOT EXISTS (SELECT FROM posthaste.search s WHERE s.index = $1);

-- search_read.sql
-- takes: text, _text
-- returns: id text, version int8, pass int4, token int8, ?column? bool
SELECT s.id, s.version, s.pass, s.token, s.deleted_at IS NULL FROM posthaste.search s
 WHERE s.index = $1 AND s.id = ANY ($2);

-- search_walk.sql
-- takes: text, text, int8
-- returns: id text, version int8, pass int4, token int8, ?column? bool
SELECT s.id, s.version, s.pass, s.token, s.deleted_at IS NULL FROM posthaste.search s
 WHERE s.index = $1 AND ($2::text IS NULL OR s.id > $2) ORDER BY s.id LIMIT $3;

-- search_write.sql
-- takes: text, text, jsonb, _text, _int8, _int4, _int8, _jsonb
-- returns: id text, is_written bool
SELECT w.id, w.is_written
  FROM posthaste.search_write($1, $2::text::regconfig, $3, $4, $5, $6, $7, $8) w;

-- segments.sql
-- returns: ready_low int8, ready_scan int8, ready_current int8, overflow_low int8
-- returns: overflow_scan int8, overflow_current int8, scheduled_low int8, scheduled_current int8
SELECT ready_low, ready_scan, ready_current, overflow_low, overflow_scan, overflow_current,
       scheduled_low, scheduled_current FROM posthaste.segments();

-- segments.sql
-- returns: ?column? int8, ?column? int8, count int8, count int8
WITH at AS MATERIALIZED (SELECT * FROM posthaste.segments()),
held AS MATERIALIZED (
  SELECT l.objid::bigint AS segment, right(c.relname::text, 1) AS slot
    FROM pg_locks l
         LEFT JOIN pg_class c ON c.oid = l.relation AND c.relname ~ '_[0-3]$'::text
           AND c.relnamespace = to_regnamespace('posthaste')::oid
         LEFT JOIN pg_stat_activity a ON a.pid = l.pid
   WHERE (SELECT at.ready_current > at.ready_low FROM at) AND l.granted
     AND l.database = (SELECT d.oid FROM pg_database d WHERE d.datname = current_database())
     AND (c.oid IS NOT NULL OR l.locktype = 'advisory'::text AND l.classid::bigint = 1885893473)
     AND (l.pid IS NULL OR a.xact_start < clock_timestamp() - interval '1 s'))
SELECT at.ready_current - at.ready_low + 1, at.ready_scan - at.ready_low,
       (SELECT pg_catalog.count(DISTINCT h.segment) FROM held h
         WHERE h.slot IS NULL AND h.segment >= at.ready_low AND h.segment < at.ready_current),
       (SELECT count(*) FROM generate_series(at.ready_low, at.ready_scan - 1) s
         WHERE EXISTS (SELECT FROM held h WHERE h.slot = (s % 4::bigint)::text))
  FROM at;

-- server.sql
-- returns: database text, version_number int4, version text, is_replica bool, at timestamptz
-- returns: role text, sees_sessions bool, fsync bool, synchronous_commit text
-- returns: max_prepared_transactions int4, notifications int4, encoding text, platform text
-- returns: missing_roles _text, open_schemas _text
SELECT current_database()::text AS database,
       current_setting('server_version_num')::integer AS version_number,
       current_setting('server_version') AS version, pg_is_in_recovery() AS is_replica,
       clock_timestamp() AS at, current_user::text AS role,
       pg_has_role('pg_read_all_stats'::name, 'USAGE') AS sees_sessions,
       current_setting('fsync') = 'on' AS fsync,
       current_setting('synchronous_commit') AS synchronous_commit,
       current_setting('max_prepared_transactions')::integer AS max_prepared_transactions,
       CASE WHEN pg_is_in_recovery() THEN 0
            ELSE (pg_notification_queue_usage() * 100::float8)::integer END AS notifications,
       current_setting('server_encoding') AS encoding,
       (SELECT p.name FROM (VALUES
            (1, 'Neon', current_setting('neon.timeline_id'::text, true) IS NOT NULL),
            (2, 'Supabase', EXISTS (SELECT FROM pg_roles WHERE rolname = 'supabase_admin')),
            (3, 'Amazon Aurora', to_regproc('pg_catalog.aurora_version'::text) IS NOT NULL),
            (4, 'Amazon RDS', EXISTS (SELECT FROM pg_roles WHERE rolname = 'rdsadmin')),
            (5, 'AlloyDB', EXISTS (SELECT FROM pg_roles WHERE rolname = 'alloydbsuperuser')),
            (6, 'Cloud SQL', EXISTS (SELECT FROM pg_roles WHERE rolname = 'cloudsqlsuperuser')),
            (7, 'Azure Database for PostgreSQL',
             EXISTS (SELECT FROM pg_roles WHERE rolname IN ('azure_pg_admin', 'azuresu')))
          ) p (place, name, is_it) WHERE p.is_it ORDER BY p.place LIMIT 1) AS platform,
       (SELECT coalesce(pg_catalog.array_agg(r ORDER BY r), '{}')
          FROM pg_catalog.unnest(
                 ARRAY['posthaste_observer', 'posthaste_producer', 'posthaste_worker']) r
         WHERE NOT EXISTS (SELECT FROM pg_roles p WHERE p.rolname = r)) AS missing_roles,
       (SELECT coalesce(pg_catalog.array_agg(n.nspname::text ORDER BY n.nspname), '{}')
          FROM pg_namespace n
         WHERE n.nspname = ANY (current_schemas(false))
           AND has_schema_privilege('public'::name, n.oid, 'CREATE')) AS open_schemas;

-- session.sql
-- takes: text
-- returns: set_config text, set_config text, set_config text, set_config text, set_config text
-- returns: set_config text
SELECT pg_catalog.set_config('search_path', 'pg_catalog, pg_temp', true),
       pg_catalog.set_config('TimeZone', 'UTC', true),
       pg_catalog.set_config('jit', 'off', true),
       pg_catalog.set_config('statement_timeout', $1::text, true),
       pg_catalog.set_config('lock_timeout', '1s', true),
       pg_catalog.set_config('idle_in_transaction_session_timeout', '10s', true);

-- settle.sql
-- takes: int2, int8, uuid, _int8, _int2, _int4, _int8, _timestamptz, _text, _text
-- returns: settle _int8
SELECT posthaste.settle($1, $2, $3, $4, $5, $6,
  ARRAY(SELECT u.ms::float8 * interval '1 millisecond'
          FROM pg_catalog.unnest($7::bigint[]) WITH ORDINALITY u (ms, n) ORDER BY u.n),
  $8, $9, $10)
  FROM (SELECT posthaste.wait_for_disk() OFFSET 0) d;

-- slot.sql
-- takes: text
-- returns: is_ours bool, active bool, confirmed text, wal_status text, reason text
-- returns: is_failover bool
SELECT s.database = current_database() AND s.plugin = 'pgoutput'::name AS is_ours, s.active,
       coalesce(s.confirmed_flush_lsn, '0/0')::text AS confirmed,
       coalesce(s.wal_status, 'reserved') AS wal_status,
       coalesce(pg_catalog.to_jsonb(s) ->> 'invalidation_reason'::text,
                CASE WHEN pg_catalog.to_jsonb(s) ->> 'conflicting'::text = 'true'::text
                     THEN 'it conflicted with recovery' END) AS reason,
       coalesce(pg_catalog.to_jsonb(s) ->> 'failover'::text = 'true'::text, false) AS is_failover
  FROM pg_replication_slots s
 WHERE s.slot_name = $1::text::name;

-- slots.sql
-- returns: slot int4, pages int8
SELECT k.slot::integer AS slot,
       pg_catalog.pg_relation_size(
         ((CASE WHEN k.slot < 6 THEN 'posthaste.ready_' ELSE 'posthaste.scheduled_' END)
          || k.slot::text)::regclass) / current_setting('block_size')::bigint AS pages
  FROM (SELECT 0 AS kind, g AS n, g % 4::bigint AS slot
          FROM posthaste.segments() r, generate_series(r.ready_scan, r.ready_current) g
        UNION ALL SELECT 1, g, 4 + g % 2::bigint
          FROM posthaste.segments() r, generate_series(r.overflow_low, r.overflow_current) g
        UNION ALL SELECT 2, g, 6 + g % 2::bigint
          FROM posthaste.segments() r, generate_series(r.scheduled_low, r.scheduled_current) g) k
 ORDER BY k.kind, k.n DESC;

-- state.sql
-- returns: needs_rebase bool, site text, refused _text, has_leader bool, seconds_ahead int8
-- returns: seconds_jumped int8
SELECT CASE WHEN NOT pg_is_in_recovery()
             AND has_function_privilege('posthaste.cluster()'::text, 'EXECUTE'::text)
            THEN posthaste.needs_rebase(false) ELSE false END AS needs_rebase,
       (SELECT posthaste.site_label(s.name, s.addresses) FROM posthaste.site s) AS site,
       ARRAY(SELECT n.label
               FROM posthaste.site s, unnest(s.refused, s.refused_at) n(label, noted_at)
              WHERE n.noted_at > clock_timestamp() - interval '1 min' ORDER BY n.label) AS refused,
       EXISTS (SELECT FROM posthaste.leader l
                WHERE clock_timestamp() BETWEEN l.since AND l.until) AS has_leader,
       coalesce(extract(epoch FROM greatest(
          to_timestamp(pg_sequence_last_value('posthaste.promote_horizon'::regclass)::float8
                       / 1000000::float8),
          (SELECT l.since FROM posthaste.leader l),
          (SELECT max(p.looked_at) FROM posthaste.periodic p),
          (SELECT max(w.seen_at) FROM posthaste.worker w)) - clock_timestamp()), 0::numeric)::bigint
         AS seconds_ahead,
       coalesce(extract(epoch FROM clock_timestamp() - (
         SELECT l.retention_clock FROM posthaste.leader l)), 0::numeric)::bigint
         AS seconds_jumped;

-- steps.sql
-- returns: name text, version text, applied_at timestamptz
SELECT m.name, m.version, m.applied_at FROM posthaste.migration m ORDER BY m.name LIMIT 100;

-- stop.sql
-- takes: int8, bool
WITH left_office AS (UPDATE posthaste.leader SET until = clock_timestamp() WHERE worker = $1)
UPDATE posthaste.worker SET stopped_at = clock_timestamp(),
       clean = $2 AND NOT EXISTS (SELECT FROM posthaste.open_jobs($1, NULL))
                  AND NOT EXISTS (SELECT FROM posthaste.in_flight h WHERE h.worker = $1
                                     AND h.state = 'running')
 WHERE id = $1 AND stopped_at IS NULL;

-- sync/audited.sql
-- takes: text, int8, int8, int8, int8, bool
INSERT INTO posthaste.audited AS a (audited_at, rows, documents, differed, repaired, contents, name)
SELECT clock_timestamp(), $2::bigint, $3::bigint, $4::bigint, $5::bigint, $6::boolean, s.name
  FROM posthaste.synced s WHERE s.name = $1::text
ON CONFLICT (name) DO UPDATE
  SET audited_at = excluded.audited_at, rows = excluded.rows, documents = excluded.documents,
      differed = excluded.differed, repaired = excluded.repaired, contents = excluded.contents;

-- sync/installed.sql
-- takes: text, text
-- returns: relation text, ?column? bool
SELECT s.relation::regclass::text, s.relation::oid = pg_catalog.to_regclass($2)::oid
  FROM posthaste.synced s WHERE s.name = $1;

-- sync/left.sql
-- takes: _text, timestamptz
-- returns: count int8
SELECT count(*)
  FROM posthaste.job j
 WHERE j.queue = ANY ($1) AND j.enqueued_at <= $2
   AND NOT EXISTS (SELECT FROM posthaste.queue q WHERE q.name = j.queue AND q.paused_at IS NOT NULL)
   AND (j.state IN ('available', 'blocked', 'running', 'quarantined')
        OR j.state IN ('scheduled', 'retrying')
           AND j.scheduled_at <= clock_timestamp() + interval '3 s');

-- sync/now.sql
-- returns: clock_timestamp timestamptz
SELECT clock_timestamp();

-- sync/reindex/left.sql
-- takes: text, text
-- returns: count int8, count int8, count int8
SELECT count(*) FILTER (WHERE j.state IN ('available', 'blocked', 'scheduled', 'retrying',
                                          'running', 'quarantined')),
       count(*) FILTER (WHERE j.state IN ('dead', 'discarded', 'expired')),
       count(*) FILTER (WHERE j.state = 'cancelled')
  FROM posthaste.job j
 WHERE j.queue = $1 AND ($2::text IS NULL OR j.kwargs ->> 'reindex'::text = $2);

-- sync/reindex/waiting.sql
-- takes: text
-- returns: id int8
SELECT j.id FROM posthaste.job j WHERE j.queue = $1
   AND j.state IN ('available', 'blocked', 'scheduled', 'retrying') LIMIT 5000;

-- sync/rows.sql
-- takes: text
-- returns: reltuples int8
SELECT c.reltuples::bigint FROM posthaste.synced s
  JOIN pg_class c ON c.oid = s.relation::oid WHERE s.name = $1;

-- sync_documents.sql
-- takes: text, text
-- returns: ?column? bool
SELECT s.documents IS NULL OR s.documents = $2 FROM posthaste.synced s WHERE s.name = $1;

-- sync_fields.sql
-- takes: text
-- returns: attname text, typname text
WITH RECURSIVE of_column(attnum, attname, oid, typname, typtype, typcategory, typbasetype, typelem)
AS (
  SELECT a.attnum, a.attname, t.oid, t.typname, t.typtype, t.typcategory, t.typbasetype, t.typelem
    FROM posthaste.synced s
    JOIN pg_attribute a ON a.attrelid = s.relation::oid AND a.attnum > 0 AND NOT a.attisdropped
    JOIN pg_type t ON t.oid = a.atttypid
   WHERE s.name = $1 AND a.attname <> s.version
     AND NOT EXISTS (SELECT FROM posthaste.synced o
                      WHERE o.relation::oid = a.attrelid AND o.draws AND o.version = a.attname)
  UNION ALL
  SELECT c.attnum, c.attname, t.oid, t.typname, t.typtype, t.typcategory, t.typbasetype, t.typelem
    FROM of_column c
    JOIN pg_type t
      ON t.oid = CASE WHEN c.typtype = 'd' THEN c.typbasetype
                      WHEN c.typcategory = 'A' THEN c.typelem END)
SELECT c.attname::text,
       CASE WHEN c.typtype = 'e' THEN 'enum'
            WHEN c.typtype IN ('r', 'm') THEN 'range'
            WHEN c.typtype = 'c' OR EXISTS (
              SELECT FROM pg_cast k JOIN pg_type j ON j.oid = k.casttarget
               WHERE k.castsource = c.oid AND j.typname = 'json') THEN 'json'
            ELSE c.typname::text END
  FROM of_column c
 WHERE c.typtype <> 'd' AND c.typcategory <> 'A'
 ORDER BY c.attnum;

-- sync_install.sql
-- takes: text, text, text, text, text, int8, bool, bool, bool, text
-- returns: format text
SELECT pg_catalog.format('SELECT posthaste.sync_table(%L, key => %L, version => %L, name => %L, '
              'deleted => %L, delay => %L, draw => %L, enqueue => %L%s, documents => %L)',
              $1::text, $2::text, $3::text, $4::text, $5::text,
              $6::bigint::float8 * interval '1 millisecond', $7::boolean, $8::boolean,
              CASE WHEN $9::boolean THEN ', always => true' ELSE '' END, $10::text);

-- sync_page.sql
-- takes: text, text, int8
-- returns: id text, version int8, is_there bool
SELECT p.id, p.version, p.is_there FROM posthaste.sync_page($1, $2, $3) p;

-- sync_pending.sql
-- takes: text, _text
-- returns: ?column? text
SELECT DISTINCT j.kwargs ->> 'id'::text
  FROM posthaste.job j LEFT JOIN posthaste.synced s ON s.name = $1
 WHERE j.queue = 'sync.' || $1 AND j.kwargs ->> 'id'::text = ANY ($2) AND j.attempt = 0
   AND j.state IN ('available', 'blocked', 'scheduled', 'retrying', 'running', 'quarantined')
   AND greatest(j.scheduled_at, j.enqueued_at + s.delay)
       > clock_timestamp() - interval '10 minutes'
   AND (j.last_error IS NULL OR j.last_error LIKE '%: written, and to be seen');

-- sync_rows.sql
-- takes: text, _text
-- returns: id text, version int8, document jsonb
SELECT r.id, r.version, r.document FROM posthaste.sync_rows($1, $2) r;

-- sync_versions.sql
-- takes: text, _text
-- returns: id text, version int8, is_there bool
SELECT v.id, v.version, v.is_there FROM posthaste.sync_versions($1, $2) v;

-- sync_versions_of.sql
-- takes: _text
-- returns: id text, version int8, ?column? bool
SELECT r.id, r.version, r.document IS NOT NULL
  FROM (
SELECT NULL::text, NULL::bigint, NULL::jsonb WHERE $1::text[] IS NULL
) r (id, version, document);

-- synced.sql
-- returns: name text, relation text, key text, delay float8, columns _text, audited float8
-- returns: rows int8, documents int8, differed int8, repaired int8, contents bool
SELECT s.name, s.relation::regclass::text AS relation, s.key::text AS key,
       extract(epoch FROM s.delay)::double precision AS delay,
       ARRAY(SELECT a.attname::text FROM pg_catalog.pg_attribute a
              WHERE a.attrelid = s.relation::oid AND a.attnum > 0::smallint AND NOT a.attisdropped
              ORDER BY a.attnum LIMIT 200) AS columns,
       extract(epoch FROM clock_timestamp() - f.audited_at)::double precision AS audited,
       f.rows, f.documents, f.differed, f.repaired, f.contents
  FROM posthaste.synced s LEFT JOIN posthaste.audited f ON f.name = s.name ORDER BY s.name LIMIT 200
;

-- syncs.sql
-- returns: name text, relation text, exists bool
SELECT s.name, s.relation::regclass::text, EXISTS (SELECT FROM posthaste.queue q
                                                    WHERE q.name = 'sync.' || s.name || '.reindex'
                                                      AND q.paused_at IS NOT NULL)
  FROM posthaste.synced s ORDER BY s.name;

-- tables.sql
-- takes: _text, _text
-- returns: name text, is_there bool, kind text, persistence text, is_own bool, columns _text
SELECT t.schema || '.'::text || t.name AS name, c.oid IS NOT NULL AS is_there,
       coalesce(c.relkind::text, '') AS kind,
       coalesce(c.relpersistence::text, '') AS persistence,
       coalesce(pg_has_role(c.relowner, 'USAGE'::text), false) AS is_own,
       ARRAY(SELECT a.attname::text FROM pg_attribute a
              WHERE a.attrelid = c.oid AND a.attnum > 0 AND NOT a.attisdropped
              ORDER BY a.attnum) AS columns
  FROM unnest($1::text[], $2::text[]) WITH ORDINALITY t (schema, name, n)
  LEFT JOIN pg_namespace s ON s.nspname = t.schema::name
  LEFT JOIN pg_class c ON c.relnamespace = s.oid AND c.relname = t.name::name
 ORDER BY t.n;

-- take_sample.sql
-- returns: case bool
SELECT CASE WHEN pg_catalog.current_setting('transaction_read_only') = 'off'
                 AND pg_catalog.has_table_privilege('posthaste.sample', 'INSERT')
                 AND pg_catalog.has_table_privilege('posthaste.sample', 'DELETE')
                 AND NOT EXISTS (SELECT FROM posthaste.leader l
                       WHERE clock_timestamp() BETWEEN l.since AND l.until)
            THEN posthaste.take_sample() ELSE false END;

-- thorough.sql
-- returns: needs_rebase bool, ids_behind bool
SELECT posthaste.needs_rebase() AS needs_rebase,
       greatest((SELECT max(s.id) FROM posthaste.store s),
                (SELECT max(h.id) FROM posthaste.in_flight h),
                (SELECT max(d.id) FROM posthaste.dead d),
                (SELECT max(f.id) FROM posthaste.finished f),
                (SELECT max(a.job) FROM posthaste.attempt a), 0)
         > coalesce(pg_sequence_last_value('posthaste.job_id'::regclass), 0) AS ids_behind;

-- tidy_overflow.sql
-- takes: int8, int4, int8
-- returns: o_state text, o_blocker text
SELECT o_state, o_blocker FROM posthaste.tidy_overflow($1, $2, $3)
 WHERE posthaste.begin_single_statement();

-- tidy_scheduled.sql
-- takes: int8, int8
-- returns: o_state text, o_blocker text
SELECT o_state, o_blocker FROM posthaste.tidy_scheduled($1, $2)
 WHERE posthaste.begin_single_statement();

-- triggers.sql
-- returns: name text, is_gone bool, parts _text
SELECT s.name, c.oid IS NULL AS is_gone, lacking.parts
  FROM posthaste.synced s
  LEFT JOIN pg_class c ON c.oid = s.relation::oid
  LEFT JOIN LATERAL (SELECT ARRAY(
    SELECT p.oid::regclass::text
      FROM pg_class p
     WHERE (p.oid = c.oid
            OR p.oid IN (SELECT t.relid::oid FROM pg_partition_tree(c.oid::regclass) t))
       AND EXISTS (
         SELECT FROM pg_catalog.unnest(ARRAY['insert', 'delete', 'truncate', 'move', 'update',
                                             'stamp', 'begin']) e
          WHERE CASE WHEN e = 'update' THEN s.enqueues WHEN e = 'stamp' THEN s.draws
                     WHEN e = 'begin' THEN s.draws AND NOT (c.relkind = 'p' OR c.relispartition)
                     ELSE s.draws OR s.enqueues END
            AND NOT EXISTS (
              SELECT FROM pg_trigger t JOIN pg_proc f ON f.oid = t.tgfoid
               WHERE t.tgrelid = p.oid
                 AND f.pronamespace = 'posthaste'::regnamespace::oid
                 AND f.proname = 'sync_' || e || '_' || s.name
                 AND (NOT (c.relkind = 'p' OR c.relispartition) OR e = 'truncate'
                      OR t.tgtype::integer & 1 = 1)
                 AND (t.tgenabled = 'A' OR t.tgenabled = 'O' AND NOT s.always)))
     ORDER BY p.oid::regclass::text) AS parts) lacking ON true
 WHERE c.oid IS NULL OR pg_catalog.cardinality(lacking.parts) > 0
 ORDER BY s.name;

-- turn.sql
-- returns: turn int8, is_long bool
SELECT t.turn, pg_relation_size(CASE t.turn % 2::bigint
                                WHEN 0::bigint THEN 'posthaste.capture_mark_0'::regclass
                                ELSE 'posthaste.capture_mark_1'::regclass END) > 1048576 AS is_long
  FROM (SELECT pg_sequence_last_value('posthaste.capture_turn'::regclass)::bigint AS turn) t;

-- waiting.sql
-- takes: text, int8
-- returns: id int8, delivery_id uuid, enqueued_at timestamptz, scheduled_at timestamptz
-- returns: expires_at timestamptz, priority int4, attempt int4, max_attempts int4, name text
-- returns: tag text, unique_key text, ordering_key text, trace text, kwargs jsonb
SELECT j.id, posthaste.delivery_id(j.id), j.enqueued_at, j.scheduled_at, j.expires_at, j.priority,
       j.attempt, j.max_attempts, j.name, j.tag, j.unique_key,
       j.ordering_key, j.trace, j.kwargs
  FROM posthaste.job j WHERE j.queue = $1 AND j.state = 'available'
 ORDER BY j.priority, j.id LIMIT $2;

-- waiting.sql
-- takes: int4, text, text, text, text, text, text, text, int8, timestamptz, timestamptz, text, int4
-- returns: at text, id int8, name text, queue text, priority int4, state text, attempt int4
-- returns: max_attempts int4, enqueued_at timestamptz, scheduled_at timestamptz, tag text
-- returns: last_error text, kwargs text, kwargs_bytes int4
WITH cursor AS MATERIALIZED (
    SELECT * FROM posthaste.cursors_0() WHERE $1::integer = 0
    UNION ALL SELECT * FROM posthaste.cursors_1() WHERE $1::integer = 1
    UNION ALL SELECT * FROM posthaste.cursors_2() WHERE $1::integer = 2
    UNION ALL SELECT * FROM posthaste.cursors_3() WHERE $1::integer = 3
    UNION ALL SELECT * FROM posthaste.cursors_4() WHERE $1::integer = 4
    UNION ALL SELECT * FROM posthaste.cursors_5() WHERE $1::integer = 5
)
SELECT w.ctid::text AS at, w.id, w.name, coalesce(w.own_queue, w.queue) AS queue,
       coalesce(w.own_priority, w.priority) AS priority, w.state, w.attempt, w.max_attempts,
       w.enqueued_at, w.due AS scheduled_at, w.tag, left(w.last_error, 400) AS last_error,
       CASE WHEN w.kwargs_bytes <= 4096 THEN w.kwargs::text END AS kwargs, w.kwargs_bytes
  FROM (
  SELECT s.ctid, s.*, s.scheduled_at AS due,
         CASE WHEN s.expires_at <= clock_timestamp() THEN 'expired' WHEN s.queue = '' THEN 'blocked'
              ELSE 'available' END AS state
    FROM posthaste.store s LEFT JOIN cursor c ON c.queue = s.queue AND c.priority = s.priority
   WHERE s.slot = $1::integer AND s.ctid >= $2::text::tid AND s.ctid < $3::text::tid
     AND (s.queue <> '' OR s.turn IS NULL)
     AND ($4::text IS NULL OR coalesce(s.own_queue, s.queue) LIKE $4::text)
     AND ($5::text IS NULL OR s.name LIKE $5::text) AND ($6::text IS NULL OR s.tag LIKE $6::text)
     AND ($8::text IS NULL OR s.last_error LIKE $8::text)
     AND ($10::timestamptz IS NULL OR s.enqueued_at >= $10::timestamptz)
     AND ($11::timestamptz IS NULL OR s.enqueued_at < $11::timestamptz)
     AND ($12::text IS NULL OR s.ordering_key LIKE $12::text)
     AND ($13::integer IS NULL OR coalesce(s.own_priority, s.priority) = $13::integer)
     AND NOT coalesce(posthaste.is_claimed(s.xid, s.id, c.lo, c.hi, c.at_xid, c.at_id, c.exhausted),
                      false)
     AND NOT EXISTS (SELECT FROM posthaste.closed_unclaimed_0 e
                      WHERE $1::integer = 0 AND e.xid = s.xid AND e.id = s.id)
     AND NOT EXISTS (SELECT FROM posthaste.closed_unclaimed_1 e
                      WHERE $1::integer = 1 AND e.xid = s.xid AND e.id = s.id)
     AND NOT EXISTS (SELECT FROM posthaste.closed_unclaimed_2 e
                      WHERE $1::integer = 2 AND e.xid = s.xid AND e.id = s.id)
     AND NOT EXISTS (SELECT FROM posthaste.closed_unclaimed_3 e
                      WHERE $1::integer = 3 AND e.xid = s.xid AND e.id = s.id)
     AND NOT EXISTS (SELECT FROM posthaste.closed_unclaimed_4 e
                      WHERE $1::integer = 4 AND e.xid = s.xid AND e.id = s.id)
     AND NOT EXISTS (SELECT FROM posthaste.closed_unclaimed_5 e
                      WHERE $1::integer = 5 AND e.xid = s.xid AND e.id = s.id)
) w
 WHERE $7::text IS NULL OR w.state = $7::text
 ORDER BY w.ctid DESC LIMIT $9::bigint;

-- window.sql
-- returns: queue text, come int8, done int8, failed int8, seconds float8
SELECT DISTINCT ON (s.queue) s.queue, s.come, s.done, s.failed,
       extract(epoch FROM clock_timestamp() - s.at)::double precision AS seconds
  FROM posthaste.sample s
 WHERE s.span = 1::smallint AND s.at > clock_timestamp() - interval '630 s'
   AND s.at < clock_timestamp() - interval '30 s' AND s.queue <> ''
 ORDER BY s.queue, s.at;

-- workers.sql
-- returns: id int8, name text, started_at timestamptz, silent float8, queues _text, leads bool
-- returns: failing_since timestamptz, last_error text
SELECT w.id, w.name, w.started_at,
       extract(epoch FROM clock_timestamp() - w.seen_at)::double precision AS silent,
       w.queues, l.worker IS NOT NULL AS leads, w.failing_since, w.last_error
  FROM (SELECT CASE WHEN NOT pg_is_in_recovery()
                     AND has_function_privilege('posthaste.cluster()'::text, 'EXECUTE'::text)
                    THEN posthaste.session_identity() END AS identity OFFSET 0) here,
       posthaste.worker w LEFT JOIN posthaste.leader l
       ON l.worker = w.id AND clock_timestamp() BETWEEN l.since AND l.until
 WHERE w.stopped_at IS NULL AND (here.identity IS NULL OR w.identity = here.identity)
 ORDER BY w.id LIMIT 5000;
