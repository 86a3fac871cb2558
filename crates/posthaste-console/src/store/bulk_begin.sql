-- The action ($1), if this console ($2) may continue it.
SELECT a.id, a.started_at, a.ended_at, a.at_most, a.expected, a.jobs, a.pass_jobs, a.passes,
       a.failures, a.action, a.state, a.filter, a.place, a.who, a.stopped_by, a.last_error,
       a.driven_until > clock_timestamp() - interval '30 s' AS is_driven,
       CASE WHEN pg_catalog.pg_is_in_recovery() THEN true
            ELSE a.identity[1] = (posthaste.current_identity())[1]
                 AND a.identity[2] = (posthaste.current_identity())[2]
                 AND a.identity[4] = (posthaste.current_identity())[4] END AS is_ours
  FROM posthaste.bulk_action a
 WHERE a.id = $1::integer AND a.state = 'running'
   AND (a.driver = $2::uuid OR a.driven_until <= clock_timestamp())
