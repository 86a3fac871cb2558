-- What is to be reconciled. A mail that waits or is being sent is left alone for as long as its task or its worker may be there.
SELECT delivery_id, state FROM mail_deliveries
 WHERE state IN ('failed', 'unknown') OR state IN ('queued', 'sending') AND changed_at < now() - make_interval(secs => $1)
 ORDER BY changed_at LIMIT 100
