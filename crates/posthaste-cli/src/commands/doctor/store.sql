-- What the store says of itself. Workers of another place came with a copy, and so did its lanes.
SELECT n.needs_rebase,
       (SELECT count(*) FROM posthaste.worker w
         WHERE w.stopped_at IS NULL AND w.identity = posthaste.session_identity()
           AND w.seen_at BETWEEN clock_timestamp() - interval '1 min'
                         AND clock_timestamp() + interval '1 min') AS workers,
       EXISTS (SELECT FROM posthaste.leader l
                WHERE clock_timestamp() BETWEEN l.since AND l.until) AS has_leader,
       CASE WHEN NOT n.needs_rebase THEN
         EXISTS (SELECT FROM pg_catalog.unnest(posthaste.scan_slots()) s,
                      posthaste.pending_lane(s) l
                  WHERE l.o_queue IS NOT NULL)
       ELSE false END AS has_waiting,
       CASE WHEN NOT n.needs_rebase THEN
         ARRAY(SELECT DISTINCT o.queue FROM posthaste.oldest() o
                WHERE NOT EXISTS (SELECT FROM posthaste.worker w
                                   WHERE w.stopped_at IS NULL
                                     AND w.identity = posthaste.session_identity()
                                     AND w.seen_at > clock_timestamp() - interval '1 min'
                                     AND (pg_catalog.cardinality(w.queues) = 0
                                          OR o.queue = ANY (w.queues)))
                ORDER BY o.queue)
       ELSE '{}' END AS unworked,
       greatest((SELECT max(s.id) FROM posthaste.store s),
                (SELECT max(h.id) FROM posthaste.in_flight h),
                (SELECT max(d.id) FROM posthaste.dead d),
                (SELECT max(f.id) FROM posthaste.finished f),
                (SELECT max(a.job) FROM posthaste.attempt a), 0)
         > coalesce(pg_sequence_last_value('posthaste.job_id'::regclass), 0) AS ids_behind,
       -- Times of the past: how far the promoter has looked, when the leader renewed its lease,
       -- when periodic jobs and heartbeats were looked at.
       coalesce(extract(epoch FROM greatest(
          to_timestamp(pg_sequence_last_value('posthaste.promote_horizon'::regclass)::float8
                       / 1000000::float8),
          (SELECT l.since FROM posthaste.leader l),
          (SELECT max(p.looked_at) FROM posthaste.periodic p),
          (SELECT max(w.seen_at) FROM posthaste.worker w)) - clock_timestamp()), 0::numeric)::bigint
         AS seconds_ahead,
       coalesce(extract(epoch FROM clock_timestamp()
                                   - (SELECT l.steady FROM posthaste.leader l)), 0::numeric)::bigint
         AS seconds_jumped
  FROM (SELECT posthaste.needs_rebase() AS needs_rebase OFFSET 0) n
