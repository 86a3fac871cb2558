-- Records a failed batch of an action ($1), which then rests for $3 seconds, or fails ($4).
UPDATE posthaste.bulk_action AS a
   SET failures = a.failures + 1, last_error = $2::text, driver = NULL,
       driven_until = clock_timestamp() + $3::double precision * interval '1 s',
       state = CASE WHEN a.stopped_by IS NOT NULL THEN 'stopped' WHEN $4::boolean THEN 'failed'
                    ELSE 'running' END,
       ended_at = CASE WHEN a.stopped_by IS NOT NULL OR $4::boolean THEN clock_timestamp() END
 WHERE a.id = $1::integer AND a.state = 'running'
RETURNING a.state, a.jobs
