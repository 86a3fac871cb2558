-- Server processes whose open transaction has enqueued: it holds a lock on the segment of its jobs.
-- Prepared transactions have no process.
SELECT DISTINCT l.pid FROM pg_locks l
 WHERE l.granted AND l.locktype = 'advisory'::text AND l.mode = 'ShareLock'::text
   AND l.classid::bigint IN (1885893473, 1885893474)
   AND l.database = (SELECT d.oid FROM pg_database d WHERE d.datname = current_database())
