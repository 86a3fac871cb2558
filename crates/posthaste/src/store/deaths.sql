-- Jobs that the store ended for good since a time in microseconds (NULL: none): the first of each
-- state, queue, name and reason, with their number. The row without a job has the end of the
-- period, 2 s ago, because later deaths may not be committed yet. Only reasons of the store are
-- returned: the last error of an expired job may contain an argument.
WITH span AS MATERIALIZED (SELECT clock_timestamp() - interval '2 s' AS until),
gone AS (
  SELECT d.id, d.state, d.queue, d.name, d.attempt, e.reason,
         count(*) OVER (PARTITION BY d.state, d.queue, d.name, e.reason) AS jobs,
         row_number() OVER (PARTITION BY d.state, d.queue, d.name, e.reason ORDER BY d.id) AS n
    FROM posthaste.dead d
    CROSS JOIN LATERAL (SELECT CASE WHEN d.state = 'dead' THEN d.last_error END AS reason) e
   WHERE d.died_at <= (SELECT s.until FROM span s)
     AND d.died_at > to_timestamp(0::float8) + $1::bigint::float8 * interval '1 microsecond'
     AND (d.state = 'expired'
          OR d.state = 'dead' AND (d.last_error LIKE 'its worker died %'
                                   OR d.last_error = 'it was not confirmed in time')))
SELECT (extract(epoch FROM s.until) * 1000000::numeric)::bigint, NULL::bigint, NULL::integer,
       NULL::bigint, NULL::text, NULL::text, NULL::text, NULL::text
  FROM span s
UNION ALL
SELECT NULL::bigint, g.id, g.attempt, g.jobs, g.state, g.queue, g.name, g.reason
  FROM gone g WHERE g.n = 1 OR g.n <= $2::bigint AND g.jobs <= $2::bigint
