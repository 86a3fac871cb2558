-- Whether queue $1 has jobs that its relay runs or would claim now, if relays claim only jobs of
-- the queues $2. A blocked job does not count if the job with the turn of its ordering key is not
-- due, awaits a confirmation, or is in another queue. A job that is not due blocks others only if
-- it has the turn, which the turn's number shows.
WITH job AS MATERIALIZED (
  SELECT j.id, j.queue, j.state, j.ordering_key COLLATE "C" AS ordering_key FROM posthaste.job j
   WHERE (j.queue = $1 OR j.ordering_key IS NOT NULL)
     AND j.state IN ('available', 'blocked', 'running', 'quarantined', 'scheduled', 'retrying',
                     'awaiting')),
behind AS MATERIALIZED (
  SELECT DISTINCT j.ordering_key FROM job j WHERE j.queue = $1 AND j.state = 'blocked'),
stuck AS MATERIALIZED (
  SELECT b.ordering_key FROM behind b JOIN job j ON j.ordering_key = b.ordering_key
   WHERE j.state IN ('available', 'running', 'quarantined') AND j.queue <> ALL ($2)
  UNION ALL
  SELECT b.ordering_key FROM behind b JOIN job j ON j.ordering_key = b.ordering_key,
         LATERAL posthaste.ordering_position(b.ordering_key) s
   WHERE j.state IN ('scheduled', 'retrying', 'awaiting') AND NOT s.is_free
     AND (EXISTS (SELECT FROM posthaste.in_flight h WHERE h.id = j.id AND h.turn = s.turn)
          OR EXISTS (SELECT FROM posthaste.store r
                      WHERE r.slot IN (6, 7) AND r.ordering_key = j.ordering_key
                        AND r.turn = s.turn AND r.id = j.id)))
SELECT EXISTS (SELECT FROM job j
                WHERE j.queue = $1 AND j.state IN ('available', 'running', 'quarantined'))
    OR EXISTS (SELECT FROM behind b
                WHERE NOT EXISTS (SELECT FROM stuck s WHERE s.ordering_key = b.ordering_key))
