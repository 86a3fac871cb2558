-- Jobs of a queue of re-indexes, or those of one re-index, that are not completed: how many are
-- still to be done, were given up, and were cancelled.
SELECT count(*) FILTER (WHERE j.state IN ('available', 'blocked', 'scheduled', 'retrying',
                                          'running', 'quarantined')),
       count(*) FILTER (WHERE j.state IN ('dead', 'discarded', 'expired')),
       count(*) FILTER (WHERE j.state = 'cancelled')
  FROM posthaste.job j
 WHERE j.queue = $1 AND ($2::text IS NULL OR j.kwargs ->> 'reindex'::text = $2)
