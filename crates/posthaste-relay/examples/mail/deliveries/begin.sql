-- Before anything is sent. Who finds a mail that is being sent has its task because the attempt that sent it lost it: what became of that one is not known.
UPDATE mail_deliveries SET
  state = CASE state WHEN 'queued' THEN 'sending' ELSE 'unknown' END,
  token = CASE state WHEN 'queued' THEN $2::uuid END,
  attempt = attempt + CASE state WHEN 'queued' THEN 1 ELSE 0 END,
  reason = CASE state WHEN 'queued' THEN NULL ELSE 'its worker was lost while it sent it' END,
  changed_at = now()
 WHERE delivery_id = $1 AND state IN ('queued', 'sending')
RETURNING state, recipient, subject, body
