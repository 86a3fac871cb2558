-- A state that is left because somebody found out, and only from the state that was asked about.
UPDATE mail_deliveries SET state = $3, token = NULL, reason = $4, changed_at = clock_timestamp()
 WHERE delivery_id = $1 AND state = $2
