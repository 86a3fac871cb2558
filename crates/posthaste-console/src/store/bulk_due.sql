-- Actions that this console ($1) continues: its own, and those that no console has continued for a
-- while.
SELECT a.id FROM posthaste.bulk_action a
 WHERE a.state = 'running' AND (a.driver = $1::uuid OR a.driven_until <= clock_timestamp())
   AND CASE WHEN pg_catalog.pg_is_in_recovery() THEN false
            ELSE a.identity[1] = (posthaste.current_identity())[1]
                 AND a.identity[2] = (posthaste.current_identity())[2]
                 AND a.identity[4] = (posthaste.current_identity())[4] END
 ORDER BY a.id
