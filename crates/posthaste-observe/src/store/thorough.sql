-- Whether the store was restored or copied, and whether ids in use are above the sequence of job
-- ids. Both read whole tables.
SELECT posthaste.needs_rebase() AS needs_rebase,
       greatest((SELECT max(s.id) FROM posthaste.store s),
                (SELECT max(h.id) FROM posthaste.in_flight h),
                (SELECT max(d.id) FROM posthaste.dead d),
                (SELECT max(f.id) FROM posthaste.finished f),
                (SELECT max(a.job) FROM posthaste.attempt a), 0)
         > coalesce(pg_sequence_last_value('posthaste.job_id'::regclass), 0) AS ids_behind
