-- The number of jobs that each worker runs, by the newest claims of each segment; jobs that run for
-- long are in flight.
SELECT j.worker, count(*) AS jobs FROM (
  SELECT c.worker, r.id FROM (
    SELECT n.worker, n.batch, n.token FROM (
      SELECT b.worker, b.batch, b.token FROM posthaste.claim_0 b
       ORDER BY b.batch DESC LIMIT 20000) n
     WHERE NOT EXISTS (SELECT FROM posthaste.batch_done_0 w WHERE w.batch = n.batch) OFFSET 0) c,
    LATERAL posthaste.batch_rows_0(c.batch, c.token) r
   WHERE NOT EXISTS (SELECT FROM posthaste.job_done_0 a WHERE a.xid = r.xid AND a.id = r.id)
  UNION ALL
  SELECT c.worker, r.id FROM (
    SELECT n.worker, n.batch, n.token FROM (
      SELECT b.worker, b.batch, b.token FROM posthaste.claim_1 b
       ORDER BY b.batch DESC LIMIT 20000) n
     WHERE NOT EXISTS (SELECT FROM posthaste.batch_done_1 w WHERE w.batch = n.batch) OFFSET 0) c,
    LATERAL posthaste.batch_rows_1(c.batch, c.token) r
   WHERE NOT EXISTS (SELECT FROM posthaste.job_done_1 a WHERE a.xid = r.xid AND a.id = r.id)
  UNION ALL
  SELECT c.worker, r.id FROM (
    SELECT n.worker, n.batch, n.token FROM (
      SELECT b.worker, b.batch, b.token FROM posthaste.claim_2 b
       ORDER BY b.batch DESC LIMIT 20000) n
     WHERE NOT EXISTS (SELECT FROM posthaste.batch_done_2 w WHERE w.batch = n.batch) OFFSET 0) c,
    LATERAL posthaste.batch_rows_2(c.batch, c.token) r
   WHERE NOT EXISTS (SELECT FROM posthaste.job_done_2 a WHERE a.xid = r.xid AND a.id = r.id)
  UNION ALL
  SELECT c.worker, r.id FROM (
    SELECT n.worker, n.batch, n.token FROM (
      SELECT b.worker, b.batch, b.token FROM posthaste.claim_3 b
       ORDER BY b.batch DESC LIMIT 20000) n
     WHERE NOT EXISTS (SELECT FROM posthaste.batch_done_3 w WHERE w.batch = n.batch) OFFSET 0) c,
    LATERAL posthaste.batch_rows_3(c.batch, c.token) r
   WHERE NOT EXISTS (SELECT FROM posthaste.job_done_3 a WHERE a.xid = r.xid AND a.id = r.id)
  UNION ALL
  SELECT c.worker, r.id FROM (
    SELECT n.worker, n.batch, n.token FROM (
      SELECT b.worker, b.batch, b.token FROM posthaste.claim_4 b
       ORDER BY b.batch DESC LIMIT 20000) n
     WHERE NOT EXISTS (SELECT FROM posthaste.batch_done_4 w WHERE w.batch = n.batch) OFFSET 0) c,
    LATERAL posthaste.batch_rows_4(c.batch, c.token) r
   WHERE NOT EXISTS (SELECT FROM posthaste.job_done_4 a WHERE a.xid = r.xid AND a.id = r.id)
  UNION ALL
  SELECT c.worker, r.id FROM (
    SELECT n.worker, n.batch, n.token FROM (
      SELECT b.worker, b.batch, b.token FROM posthaste.claim_5 b
       ORDER BY b.batch DESC LIMIT 20000) n
     WHERE NOT EXISTS (SELECT FROM posthaste.batch_done_5 w WHERE w.batch = n.batch) OFFSET 0) c,
    LATERAL posthaste.batch_rows_5(c.batch, c.token) r
   WHERE NOT EXISTS (SELECT FROM posthaste.job_done_5 a WHERE a.xid = r.xid AND a.id = r.id)
  UNION ALL
  SELECT f.worker, f.id FROM posthaste.in_flight f WHERE f.state = 'running') j
 WHERE j.worker IS NOT NULL GROUP BY j.worker
