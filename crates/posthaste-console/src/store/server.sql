-- Which database it is, and what only it knows: whether it is a replica, how far the segments are
-- behind, and what was given up within the last hour (a thousand at most).
SELECT current_database()::text AS database, current_setting('server_version') AS version,
       pg_catalog.pg_is_in_recovery() AS is_replica, clock_timestamp() AS at,
       pg_catalog.pg_has_role('pg_read_all_stats'::name, 'USAGE') AS sees_sessions,
       (SELECT s.ready_current - s.ready_low FROM posthaste.segments() s) AS segments_behind,
       (SELECT count(*) FROM (SELECT FROM posthaste.dead d
          WHERE d.state = 'dead' AND d.died_at > clock_timestamp() - interval '1 h'
          LIMIT 1000) n) AS dead_lately,
       (SELECT count(*) FROM (SELECT FROM posthaste.dead d
          WHERE d.state = 'expired' AND d.died_at > clock_timestamp() - interval '1 h'
          LIMIT 1000) n) AS expired_lately,
       EXISTS (SELECT FROM posthaste.leader l
                WHERE clock_timestamp() BETWEEN l.since AND l.until) AS has_leader
