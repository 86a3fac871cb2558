-- Tables that use space, the positions of the segments, and holders of locks.
SELECT concat_ws('; ',
  (SELECT string_agg(c.relname || ' ' || pg_relation_size(c.oid), ', ' ORDER BY c.relname)
     FROM pg_class c JOIN pg_namespace n ON n.oid = c.relnamespace
    WHERE n.nspname = 'posthaste' AND c.relkind = 'r' AND c.relname ~ '_[0-7]$'
      AND pg_relation_size(c.oid) > 0),
  (SELECT 'segments ' || r::text FROM posthaste.segments() r),
  (SELECT 'verify ' || string_agg(k || ': ' || v::text, ', ') FROM generate_series(0, 5) k,
          posthaste.verify(k, 0, 1000000) v),
  (SELECT 'pending ' || string_agg(k || ': ' || l::text, ', ') FROM generate_series(0, 5) k,
          posthaste.pending_lane(k) l),
  (SELECT 'locks ' || string_agg(DISTINCT l.relation::regclass || ' ' || l.mode || ' '
            || coalesce(a.state, '') || ' ' || coalesce(a.query, ''), ', ')
     FROM pg_locks l LEFT JOIN pg_stat_activity a USING (pid)
    WHERE l.locktype = 'relation' AND l.pid <> pg_backend_pid()
      AND l.relation::regclass::text ~ '_[0-7]$'))
