-- Starts an action ($1) by this console ($2). Retains the last $8 ended actions.
WITH forgotten AS (
  DELETE FROM posthaste.bulk_action AS a
   WHERE a.state <> 'running' AND a.id <= $1::integer - $8::integer)
INSERT INTO posthaste.bulk_action
  (id, driver, driven_until, action, filter, at_most, expected, who, identity)
VALUES ($1::integer, $2::uuid, clock_timestamp() + interval '10 s', $3::text, $4::text, $5::bigint,
        $6::bigint, $7::text, posthaste.current_identity())
