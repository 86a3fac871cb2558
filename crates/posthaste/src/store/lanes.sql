-- Priorities of a queue that were ever seen.
SELECT priority FROM posthaste.lane WHERE queue = $1 ORDER BY priority
