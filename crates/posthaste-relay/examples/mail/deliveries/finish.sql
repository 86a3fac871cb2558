-- What became of an attempt, by the attempt itself. One that was given up by the others meanwhile changes nothing, unless it knows that the mail was sent.
UPDATE mail_deliveries SET state = $3, token = NULL, reason = $4, changed_at = now()
 WHERE delivery_id = $1 AND (token = $2::uuid OR $3 = 'sent' AND state = 'unknown')
