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
  -- repeat: slots 0..5
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
  -- end
  -- repeat: slots 6..7
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
  -- end
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
                -- mutant: the view checks only the clock:
                AND r.scheduled_at > (SELECT posthaste.promote_horizon())
                AND r.scheduled_at > now()
                THEN (SELECT posthaste.enter_scheduled())
              ELSE (SELECT CASE WHEN pg_try_advisory_xact_lock_shared(1885893473, c.g::integer)
                    -- mutant: entering a segment does not check ready_scan:
                    AND pg_sequence_last_value('posthaste.ready_scan'::regclass) <= c.g
                                -- gate: enqueue waits before it writes the row:
                                --   | THEN (c.g % 4 + 0 * posthaste.gate(6))::smallint
                                --   | ELSE posthaste.enter_ready() END
                                THEN (c.g % 4)::smallint ELSE posthaste.enter_ready() END
                      FROM (SELECT pg_sequence_last_value('posthaste.ready_current'::regclass) AS g
                          -- gate: enqueue waits after it has read ready_current (insert):
                          --   | , posthaste.gate(1)
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
