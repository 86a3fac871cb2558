-- Sessions that have locked tables of the queue for longer than this many seconds, or since before
-- the clock stepped back (then without seconds). Sessions whose age this role may not see are
-- omitted, because claims lock the tables briefly.
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
 ORDER BY l.seconds DESC, l.name
