-- An action ($1) that was stopped or failed goes on, by this console ($2), in this database. A
-- place in tables may be none any more; what is done already is not met again.
UPDATE posthaste.bulk_action AS a
   SET state = 'running', ended_at = NULL, stopped_by = NULL, last_error = NULL, failures = 0,
       place = CASE WHEN a.action <> 'cancel' THEN a.place END, passes = 0,
       driver = $2::uuid, driven_until = clock_timestamp() + interval '10 s',
       identity = posthaste.current_identity()
 WHERE a.id = $1::integer AND a.state IN ('stopped', 'failed')
RETURNING a.state, a.jobs
