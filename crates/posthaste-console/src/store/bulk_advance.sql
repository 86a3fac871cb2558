-- Records a batch of an action ($1) by this console ($2): $3 more jobs, the place $4 in pass $5,
-- the jobs $6 of this pass, and whether the action is finished ($7).
UPDATE posthaste.bulk_action AS a
   SET jobs = a.jobs + $3::bigint, place = $4::text, passes = $5::integer, pass_jobs = $6::bigint,
       failures = 0, last_error = NULL, driver = $2::uuid,
       driven_until = clock_timestamp() + interval '10 s',
       state = CASE WHEN $7::boolean THEN 'finished' WHEN a.stopped_by IS NOT NULL THEN 'stopped'
                    ELSE 'running' END,
       ended_at = CASE WHEN $7::boolean OR a.stopped_by IS NOT NULL THEN clock_timestamp() END
 WHERE a.id = $1::integer
RETURNING a.state, a.jobs
