-- The arguments of unfinished jobs of this name, by id.
SELECT j.kwargs::text AS answer
  FROM posthaste.job j
 WHERE j.name = $1::text
   AND j.state IN ('scheduled', 'available', 'blocked', 'running', 'retrying', 'awaiting',
                   'quarantined')
 ORDER BY j.id
