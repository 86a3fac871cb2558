-- Dead jobs of the last hour by queue, at most a thousand of each state.
SELECT g.state, g.queue, count(*) AS jobs, min(g.died_at) AS since,
       (pg_catalog.array_agg(left(g.last_error, 300) ORDER BY g.died_at DESC))[1] AS error
  FROM ((SELECT d.state, d.queue, d.died_at, d.last_error FROM posthaste.dead d
          WHERE d.state = 'dead' AND d.died_at > clock_timestamp() - interval '1 h'
          ORDER BY d.died_at DESC LIMIT 1000)
        UNION ALL
        (SELECT d.state, d.queue, d.died_at, d.last_error FROM posthaste.dead d
          WHERE d.state = 'expired' AND d.died_at > clock_timestamp() - interval '1 h'
          ORDER BY d.died_at DESC LIMIT 1000)) g
 GROUP BY g.state, g.queue ORDER BY g.state, jobs DESC, g.queue
