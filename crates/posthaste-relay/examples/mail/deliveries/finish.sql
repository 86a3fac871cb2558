-- What became of an attempt, by the attempt itself. One that was given up by the others meanwhile
-- changes nothing, unless it knows that the mail was sent. One that does not count is taken back.
UPDATE mail_deliveries SET
  state = $3, token = NULL, reason = $4, changed_at = clock_timestamp(),
  attempt = attempt - CASE WHEN $5 THEN 0 ELSE 1 END
 WHERE delivery_id = $1 AND (token = $2::uuid OR $3 = 'sent' AND state = 'unknown')
