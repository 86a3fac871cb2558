-- Unfinished jobs of a queue of re-indexes, or of one re-index: the number of those still to be
-- done, dead, and cancelled.
SELECT count(*) FILTER (WHERE j.state IN ('available', 'blocked', 'scheduled', 'retrying',
                                          'running', 'quarantined')),
       count(*) FILTER (WHERE j.state IN ('dead', 'discarded', 'expired')),
       count(*) FILTER (WHERE j.state = 'cancelled')
  FROM posthaste.job j
 WHERE j.queue = $1 AND ($2::text IS NULL OR j.kwargs ->> 'reindex'::text = $2)
