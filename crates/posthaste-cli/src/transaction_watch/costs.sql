-- Sessions and prepared transactions that hold locks which matter to posthaste: on tables of its
-- queues, which cannot be truncated meanwhile, and on the segments into which they have enqueued.
SELECT l.pid, p.gid AS name,
       count(DISTINCT l.relation) FILTER (WHERE l.locktype = 'relation') AS queue_tables,
       coalesce(bool_or(l.locktype = 'advisory'), false) AS has_enqueued
  FROM pg_catalog.pg_locks l
  LEFT JOIN pg_catalog.pg_prepared_xacts p
    ON l.virtualtransaction = pg_catalog.format('-1/%s', p.transaction)
 WHERE l.granted AND (l.pid IS NOT NULL OR p.gid IS NOT NULL)
   AND l.database = (SELECT d.oid FROM pg_catalog.pg_database d
                      WHERE d.datname = pg_catalog.current_database())
   AND (l.locktype = 'relation' AND l.relation IN (
          SELECT c.oid FROM pg_catalog.pg_class c
           WHERE c.relnamespace = pg_catalog.to_regnamespace('posthaste')::oid
             AND c.relname ~ '_[0-7]$'::text)
     OR l.locktype = 'advisory' AND l.classid::bigint IN (1885893473, 1885893474)
          AND l.mode = 'ShareLock')
 GROUP BY l.pid, p.gid;
