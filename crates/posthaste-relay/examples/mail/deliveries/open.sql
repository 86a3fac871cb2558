-- What is to be reconciled: only what the reconciler would move on, those first that were looked at longest ago. A mail that waits or is being sent is left alone for as long as its task or its worker
-- may be there. Each look is remembered, so that a hundred mails of which nobody finds out anything stand in nobody's way.
UPDATE mail_deliveries SET looked_at = clock_timestamp()
 WHERE delivery_id IN (
   SELECT delivery_id FROM mail_deliveries
    WHERE state = 'unknown' OR state = 'failed' AND $2
       OR state IN ('queued', 'sending') AND changed_at < now() - make_interval(secs => $1)
    ORDER BY looked_at, changed_at LIMIT 100 FOR UPDATE SKIP LOCKED)
RETURNING delivery_id, state
