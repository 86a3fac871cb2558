-- Running jobs of the newest claims of each segment, except those in flight, with ids below this
-- one, newest first. Jobs that run for long are in flight. A condition that is NULL is ignored.
SELECT j.id::text AS at, j.id, j.name, j.queue, j.priority, 'running' AS state, j.attempt,
       j.max_attempts, j.enqueued_at, j.scheduled_at, j.tag,
       left(j.last_error, 400) AS last_error,
       CASE WHEN j.kwargs_bytes <= 4096 THEN j.kwargs::text END AS kwargs, j.kwargs_bytes
  FROM (
  SELECT c.worker, r.* FROM (
    SELECT n.worker, n.batch, n.token FROM (
      SELECT b.worker, b.batch, b.token FROM posthaste.claim_0 b
       ORDER BY b.batch DESC LIMIT $9::bigint) n
     WHERE NOT EXISTS (SELECT FROM posthaste.batch_done_0 w WHERE w.batch = n.batch) OFFSET 0) c,
    LATERAL posthaste.batch_rows_0(c.batch, c.token) r
   WHERE NOT EXISTS (SELECT FROM posthaste.job_done_0 a WHERE a.xid = r.xid AND a.id = r.id)
  UNION ALL
  SELECT c.worker, r.* FROM (
    SELECT n.worker, n.batch, n.token FROM (
      SELECT b.worker, b.batch, b.token FROM posthaste.claim_1 b
       ORDER BY b.batch DESC LIMIT $9::bigint) n
     WHERE NOT EXISTS (SELECT FROM posthaste.batch_done_1 w WHERE w.batch = n.batch) OFFSET 0) c,
    LATERAL posthaste.batch_rows_1(c.batch, c.token) r
   WHERE NOT EXISTS (SELECT FROM posthaste.job_done_1 a WHERE a.xid = r.xid AND a.id = r.id)
  UNION ALL
  SELECT c.worker, r.* FROM (
    SELECT n.worker, n.batch, n.token FROM (
      SELECT b.worker, b.batch, b.token FROM posthaste.claim_2 b
       ORDER BY b.batch DESC LIMIT $9::bigint) n
     WHERE NOT EXISTS (SELECT FROM posthaste.batch_done_2 w WHERE w.batch = n.batch) OFFSET 0) c,
    LATERAL posthaste.batch_rows_2(c.batch, c.token) r
   WHERE NOT EXISTS (SELECT FROM posthaste.job_done_2 a WHERE a.xid = r.xid AND a.id = r.id)
  UNION ALL
  SELECT c.worker, r.* FROM (
    SELECT n.worker, n.batch, n.token FROM (
      SELECT b.worker, b.batch, b.token FROM posthaste.claim_3 b
       ORDER BY b.batch DESC LIMIT $9::bigint) n
     WHERE NOT EXISTS (SELECT FROM posthaste.batch_done_3 w WHERE w.batch = n.batch) OFFSET 0) c,
    LATERAL posthaste.batch_rows_3(c.batch, c.token) r
   WHERE NOT EXISTS (SELECT FROM posthaste.job_done_3 a WHERE a.xid = r.xid AND a.id = r.id)
  UNION ALL
  SELECT c.worker, r.* FROM (
    SELECT n.worker, n.batch, n.token FROM (
      SELECT b.worker, b.batch, b.token FROM posthaste.claim_4 b
       ORDER BY b.batch DESC LIMIT $9::bigint) n
     WHERE NOT EXISTS (SELECT FROM posthaste.batch_done_4 w WHERE w.batch = n.batch) OFFSET 0) c,
    LATERAL posthaste.batch_rows_4(c.batch, c.token) r
   WHERE NOT EXISTS (SELECT FROM posthaste.job_done_4 a WHERE a.xid = r.xid AND a.id = r.id)
  UNION ALL
  SELECT c.worker, r.* FROM (
    SELECT n.worker, n.batch, n.token FROM (
      SELECT b.worker, b.batch, b.token FROM posthaste.claim_5 b
       ORDER BY b.batch DESC LIMIT $9::bigint) n
     WHERE NOT EXISTS (SELECT FROM posthaste.batch_done_5 w WHERE w.batch = n.batch) OFFSET 0) c,
    LATERAL posthaste.batch_rows_5(c.batch, c.token) r
   WHERE NOT EXISTS (SELECT FROM posthaste.job_done_5 a WHERE a.xid = r.xid AND a.id = r.id)) j
 WHERE j.id < $1::bigint
   AND ($2::text IS NULL OR j.queue LIKE $2::text) AND ($3::text IS NULL OR j.name LIKE $3::text)
   AND ($4::text IS NULL OR j.tag LIKE $4::text) AND ($5::text IS NULL OR $5::text = 'running')
   AND ($6::text IS NULL OR j.last_error LIKE $6::text)
   AND ($8::timestamptz IS NULL OR j.enqueued_at >= $8::timestamptz)
   AND ($10::timestamptz IS NULL OR j.enqueued_at < $10::timestamptz)
   AND ($11::text IS NULL OR j.ordering_key LIKE $11::text)
   AND ($12::integer IS NULL OR j.priority = $12::integer)
   AND ($13::bigint IS NULL OR j.worker = $13::bigint)
 ORDER BY j.id DESC LIMIT $7::bigint
