-- Takes or renews the lease of a queue's ordered relay. Returns the holder, and the number of jobs
-- of its predecessor that must run first. Another relay takes over when the lease has ended and its
-- holder is not alive: then the holder's jobs are quarantined. A holder that stopped cleanly left
-- none. A lease that begins in the future was written by another clock, and its holder, which uses
-- its own clock, has been silent for longer. The commit waits for the disk: a lease that a crash
-- loses would be given to another relay while this one sends. A relay that cannot get the lease
-- only reads, so that standbys do not block the holder's updates of its row.
WITH holder AS MATERIALIZED (
  SELECT d.worker,
         NOT EXISTS (SELECT FROM posthaste.worker w
                      WHERE w.id = d.worker
                        AND (w.stopped_at IS NULL
                             OR (NOT w.clean
                                 AND clock_timestamp() BETWEEN d.since AND d.until))) AS is_free
    FROM posthaste.ordered_relay d WHERE d.queue = $1),
taken AS (
  INSERT INTO posthaste.ordered_relay AS d (queue, worker, until)
  SELECT $1::text, $2::bigint, clock_timestamp() + $3::bigint::float8 * interval '1 millisecond'
    FROM (SELECT posthaste.wait_for_disk() OFFSET 0) d
   WHERE NOT EXISTS (SELECT FROM holder h WHERE h.worker <> $2 AND NOT h.is_free)
  ON CONFLICT (queue) DO UPDATE
     SET worker = excluded.worker, since = excluded.since, until = excluded.until
   WHERE d.worker = excluded.worker
      OR NOT EXISTS (SELECT FROM posthaste.worker w
                      WHERE w.id = d.worker
                        AND (w.stopped_at IS NULL
                             OR (NOT w.clean AND clock_timestamp() BETWEEN d.since AND d.until)))
  RETURNING d.worker)
SELECT coalesce((SELECT t.worker FROM taken t), (SELECT h.worker FROM holder h), 0::bigint),
       (SELECT count(*) FROM posthaste.in_flight h
         WHERE h.queue = $1 AND h.state = 'quarantined' AND h.until <= clock_timestamp()
           AND h.expires_at > clock_timestamp())
