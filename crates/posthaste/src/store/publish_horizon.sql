-- Publishes how far the promoter will read if a job is due, and returns 0; else the milliseconds
-- until one is due.
SELECT CASE WHEN posthaste.publish_horizon() THEN 0
            ELSE ceil(extract(epoch FROM posthaste.time_until_due(
                   $1::bigint::float8 * interval '1 millisecond')) * 1000::numeric)::bigint END
