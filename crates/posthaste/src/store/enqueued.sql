-- The arguments of the jobs of this name that have not ended, in the order of their numbers.
SELECT j.kwargs::text AS answer
  FROM posthaste.job j
 WHERE j.name = $1::text
   AND j.state IN ('scheduled', 'available', 'blocked', 'running', 'retrying', 'awaiting',
                   'quarantined')
 ORDER BY j.id
