-- Changes the state of a reconciled mail, unless it has changed since it was checked.
UPDATE mail_deliveries SET state = $3, token = NULL, reason = $4, changed_at = clock_timestamp()
 WHERE delivery_id = $1 AND state = $2
