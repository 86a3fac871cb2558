-- Records the result of an attempt. If another worker has marked the mail as unknown meanwhile,
-- only the result "sent" changes it. An attempt that does not count is subtracted again.
UPDATE mail_deliveries SET
  state = $3, token = NULL, reason = $4, changed_at = clock_timestamp(),
  attempt = attempt - CASE WHEN $5 THEN 0 ELSE 1 END
 WHERE delivery_id = $1 AND (token = $2::uuid OR $3 = 'sent' AND state = 'unknown')
