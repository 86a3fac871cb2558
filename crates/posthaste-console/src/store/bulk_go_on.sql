-- Continues a stopped or failed action ($1) by this console ($2) in this database. Places in tables
-- may be invalid by now, so a cancellation starts again; jobs that are already done no longer
-- match.
UPDATE posthaste.bulk_action AS a
   SET state = 'running', ended_at = NULL, stopped_by = NULL, last_error = NULL, failures = 0,
       place = CASE WHEN a.action <> 'cancel' THEN a.place END, passes = 0,
       driver = $2::uuid, driven_until = clock_timestamp() + interval '10 s',
       identity = posthaste.current_identity()
 WHERE a.id = $1::integer AND a.state IN ('stopped', 'failed')
RETURNING a.state, a.jobs
