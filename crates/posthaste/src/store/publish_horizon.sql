-- Publishes how far the promoter is going to poll, when a job is due; how long none is, in
-- milliseconds.
SELECT CASE WHEN posthaste.publish_horizon() THEN 0
            ELSE ceil(extract(epoch FROM posthaste.time_until_due(
                   $1::bigint::float8 * interval '1 millisecond')) * 1000::numeric)::bigint END
