-- Takes or keeps the drain of a queue; a row comes back to whoever has it: how many jobs of the one before it are to be run first. Another one takes over
-- when the lease is over and its holder is not among the living any more: then its jobs are suspects by now. One that ended in good order left none.
INSERT INTO posthaste.drain AS d (queue, worker, until) VALUES ($1, $2, clock_timestamp() + $3::bigint * interval '1 millisecond')
ON CONFLICT (queue) DO UPDATE SET worker = excluded.worker, until = excluded.until
 WHERE d.worker = excluded.worker
    OR NOT EXISTS (SELECT FROM posthaste.worker w
                    WHERE w.id = d.worker AND (w.stopped_at IS NULL OR (NOT w.clean AND d.until >= clock_timestamp())))
RETURNING (SELECT count(*) FROM posthaste.held h
            WHERE h.queue = d.queue AND h.state = 'suspect' AND h.until <= clock_timestamp() AND h.expires_at > clock_timestamp())
