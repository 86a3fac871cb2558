-- Somebody ($2) ends an action ($1): at once where nobody is at a batch of it ($3), else that batch
-- is its last.
UPDATE posthaste.bulk_action AS a
   SET stopped_by = $2::text, state = CASE WHEN $3::boolean THEN 'stopped' ELSE a.state END,
       ended_at = CASE WHEN $3::boolean THEN clock_timestamp() END
 WHERE a.id = $1::integer AND a.state IN ('running', 'failed') AND a.stopped_by IS NULL
RETURNING a.state, a.jobs
