-- Stops an action ($1) on behalf of $2: at once if no session executes a batch ($3), else after its
-- batch.
UPDATE posthaste.bulk_action AS a
   SET stopped_by = $2::text, state = CASE WHEN $3::boolean THEN 'stopped' ELSE a.state END,
       ended_at = CASE WHEN $3::boolean THEN clock_timestamp() END
 WHERE a.id = $1::integer AND a.state IN ('running', 'failed') AND a.stopped_by IS NULL
RETURNING a.state, a.jobs
