-- The jobs of a claim that this session has just committed, as claimed_jobs.sql reads them; no rows
-- if a pooler sends this to another session.
SELECT j.slot, j.batch, j.id, j.enqueued_at, j.scheduled_at, j.expires_at, j.priority, j.attempt,
       j.max_attempts, j.crashes, j.name, j.tag, j.unique_key, j.ordering_key, j.trace, j.kwargs
  FROM (SELECT split_part(s.unread, ' '::text, 1) = $2::uuid::text AS is_it,
               split_part(s.unread, ' '::text, 2) AS slots,
               split_part(s.unread, ' '::text, 3) AS batches
          FROM (SELECT current_setting('posthaste.unread'::text, true) AS unread) s) u,
       LATERAL posthaste.claimed_jobs($1::bigint, $2::uuid,
         CASE WHEN u.is_it THEN u.slots ELSE '{}'::text END::smallint[],
         CASE WHEN u.is_it THEN u.batches ELSE '{}'::text END::bigint[], NULL::bigint[]) j
 WHERE u.is_it
