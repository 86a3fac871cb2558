-- Runs before anything is sent. If the mail is being sent, the worker of the previous attempt was
-- lost, and the outcome of that attempt is unknown. A mail in a final state is returned unchanged.
WITH begun AS (
  UPDATE mail_deliveries SET
    state = CASE state WHEN 'queued' THEN 'sending' ELSE 'unknown' END,
    token = CASE state WHEN 'queued' THEN $2::uuid END,
    attempt = attempt + CASE state WHEN 'queued' THEN 1 ELSE 0 END,
    reason = CASE state WHEN 'queued' THEN NULL ELSE 'its worker was lost while it sent it' END,
    changed_at = clock_timestamp()
   WHERE delivery_id = $1 AND state IN ('queued', 'sending')
  RETURNING state, recipient, subject, body)
SELECT true AS is_begun, * FROM begun
UNION ALL
SELECT false, state, recipient, subject, body FROM mail_deliveries
 WHERE delivery_id = $1 AND NOT EXISTS (SELECT FROM begun)
