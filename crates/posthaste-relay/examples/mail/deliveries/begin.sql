-- Before anything is sent. Who finds a mail that is being sent has its task because the attempt
-- that sent it lost it: what became of that one is not known. A mail that is over is told as it is.
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
