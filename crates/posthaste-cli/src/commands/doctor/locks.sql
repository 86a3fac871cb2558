-- Who has had a lock on the queue's tables for longer than this many seconds. Whose age is hidden
-- from us is left out: claims lock in passing.
SELECT l.name, floor(l.seconds)::bigint AS seconds FROM (
  SELECT DISTINCT
         pg_catalog.format('session %s (%s, %s)', a.pid, a.usename,
                           coalesce(nullif(a.application_name, ''), 'no name')) AS name,
         extract(epoch FROM clock_timestamp() - a.xact_start) AS seconds
    FROM pg_locks l JOIN pg_class c ON c.oid = l.relation JOIN pg_stat_activity a ON a.pid = l.pid
   WHERE l.granted
     AND l.database = (SELECT d.oid FROM pg_database d WHERE d.datname = current_database())
     AND c.relnamespace = to_regnamespace('posthaste')::oid
     AND c.relname ~ '_[0-7]$'::text) l
 WHERE l.seconds::double precision >= $1::double precision
 ORDER BY l.seconds DESC, l.name
