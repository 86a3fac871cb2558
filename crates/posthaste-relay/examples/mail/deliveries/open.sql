-- What is to be reconciled: only what the reconciler would move on, those first that were looked at
-- longest ago, each once since $3. A mail that waits or is being sent is left alone for as long as
-- its task or its worker may be there. One that failed or of which nobody knows is looked at at
-- once, and then after a pause, which is longer after each attempt. Each look is remembered, so
-- that a hundred mails of which nobody finds out anything stand in nobody's way.
WITH turn AS (
  SELECT delivery_id, pause
    FROM mail_deliveries, make_interval(secs =>
           least($5::float8, $4::float8 * 2 ^ least(greatest(attempt - 1, 0), 30))) AS pause
   WHERE looked_at < $3 AND (
         state IN ('queued', 'sending') AND changed_at < now() - make_interval(secs => $1)
      OR (state = 'unknown' OR state = 'failed' AND $2)
         AND (looked_at < changed_at OR looked_at <= now() - pause))
   ORDER BY looked_at, changed_at LIMIT $6 FOR UPDATE OF mail_deliveries SKIP LOCKED)
UPDATE mail_deliveries AS mail SET looked_at = clock_timestamp()
  FROM turn WHERE mail.delivery_id = turn.delivery_id
RETURNING mail.delivery_id, mail.state, mail.changed_at <= now() - turn.pause
