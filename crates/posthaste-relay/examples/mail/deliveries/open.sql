-- Mails to be reconciled: those that the reconciler can change, least recently checked first, each
-- once since $3. A queued or sending mail is skipped as long as its task or worker may exist. A
-- failed or unknown mail is checked at once, and then after a pause that grows with each attempt.
-- Each check is recorded, so that mails without a result do not block the others.
WITH turn AS (
  SELECT delivery_id, pause
    FROM mail_deliveries, make_interval(secs =>
           least($5::float8, $4::float8 * 2 ^ least(greatest(attempt - 1, 0), 30))) AS pause
   WHERE looked_at < $3 AND (
         state IN ('queued', 'sending') AND changed_at < now() - make_interval(secs => $1)
      OR (state = 'unknown' OR state = 'failed' AND $2)
         AND (looked_at < changed_at OR looked_at <= now() - pause))
   ORDER BY looked_at, changed_at LIMIT $6 FOR UPDATE OF mail_deliveries SKIP LOCKED)
UPDATE mail_deliveries AS mail SET looked_at = clock_timestamp()
  FROM turn WHERE mail.delivery_id = turn.delivery_id
RETURNING mail.delivery_id, mail.state, mail.changed_at <= now() - turn.pause
