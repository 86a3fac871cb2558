-- Captures, their slots, and the log that the server keeps for them. A capture has no lag if its
-- newest mark is young and little was written since; else its lag is the age of the last mark at
-- which the log ended before the current position.
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
 ORDER BY c.name
