-- Quarantined jobs that are not due yet, with ids below $1, newest first. A condition that is NULL
-- is ignored.
SELECT h.id, h.enqueued_at FROM posthaste.in_flight h
 WHERE h.state = 'quarantined' AND h.id < $1::bigint AND h.until > clock_timestamp()
   AND ($2::text IS NULL OR h.queue LIKE $2::text) AND ($3::text IS NULL OR h.name LIKE $3::text)
   AND ($4::text IS NULL OR h.tag LIKE $4::text)
   AND ($5::text IS NULL OR h.last_error LIKE $5::text)
   AND ($6::timestamptz IS NULL OR h.enqueued_at >= $6::timestamptz)
   AND ($8::timestamptz IS NULL OR h.enqueued_at < $8::timestamptz)
   AND ($9::text IS NULL OR h.ordering_key LIKE $9::text)
   AND ($10::integer IS NULL OR h.priority = $10::integer)
 ORDER BY h.id DESC LIMIT $7::bigint
