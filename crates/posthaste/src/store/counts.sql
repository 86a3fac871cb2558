-- How many jobs there are of each kind.
SELECT queue, priority, name, tag, claimable, waiting, scheduled, retrying, running, awaiting, suspect, dead, discarded, expired, cancelled,
       done_total, failed_total, retried_total, dead_total, discarded_total, expired_total, cancelled_total
  FROM posthaste.counts() ORDER BY queue, priority, name, tag
