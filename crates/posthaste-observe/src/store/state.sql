-- The state of the store. seconds_ahead: how far the newest recorded time (of the promoter, the
-- leader's lease, periodic jobs and heartbeats) is ahead of the server's clock.
SELECT CASE WHEN NOT pg_is_in_recovery()
             AND has_function_privilege('posthaste.cluster()'::text, 'EXECUTE'::text)
            THEN posthaste.needs_rebase(false) ELSE false END AS needs_rebase,
       (SELECT posthaste.site_label(s.name, s.addresses) FROM posthaste.site s) AS site,
       ARRAY(SELECT n.label
               FROM posthaste.site s, unnest(s.refused, s.refused_at) n(label, noted_at)
              WHERE n.noted_at > clock_timestamp() - interval '1 min' ORDER BY n.label) AS refused,
       EXISTS (SELECT FROM posthaste.leader l
                WHERE clock_timestamp() BETWEEN l.since AND l.until) AS has_leader,
       coalesce(extract(epoch FROM greatest(
          to_timestamp(pg_sequence_last_value('posthaste.promote_horizon'::regclass)::float8
                       / 1000000::float8),
          (SELECT l.since FROM posthaste.leader l),
          (SELECT max(p.looked_at) FROM posthaste.periodic p),
          (SELECT max(w.seen_at) FROM posthaste.worker w)) - clock_timestamp()), 0::numeric)::bigint
         AS seconds_ahead,
       coalesce(extract(epoch FROM clock_timestamp() - (
         SELECT l.retention_clock FROM posthaste.leader l)), 0::numeric)::bigint
         AS seconds_jumped
