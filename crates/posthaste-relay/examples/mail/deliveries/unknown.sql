-- Mails that may have been sent or not, oldest first.
SELECT delivery_id, recipient, attempt, changed_at, coalesce(reason, '') FROM mail_deliveries
 WHERE state = 'unknown'
 ORDER BY changed_at, delivery_id
