-- What the store says of itself.
SELECT posthaste.needs_rebase() AS needs_rebase,
       (SELECT count(*) FROM posthaste.worker w WHERE w.stopped_at IS NULL AND w.seen_at > clock_timestamp() - interval '1 min') AS workers,
       EXISTS (SELECT FROM posthaste.leader l WHERE l.until > clock_timestamp()) AS has_leader,
       EXISTS (SELECT FROM unnest(posthaste.scan_slots()) s, posthaste.pending_lane(s) l WHERE l.o_queue IS NOT NULL) AS has_waiting,
       greatest((SELECT max(s.id) FROM posthaste.store s), (SELECT max(h.id) FROM posthaste.held h), (SELECT max(d.id) FROM posthaste.dead d),
                (SELECT max(f.id) FROM posthaste.finished f), (SELECT max(a.job) FROM posthaste.attempt a), 0) > coalesce(pg_sequence_last_value('posthaste.job_id'::regclass), 0) AS ids_behind
