-- Periodic jobs by name, at most a thousand. The next time of a disabled one is the year 9999.
SELECT p.name, p.schedule, p.time_zone, p.missed, p.job, p.queue, p.tag,
       CASE WHEN p.next_at < '9999-01-01Z' THEN p.next_at END AS next_at,
       coalesce(p.next_at >= '9999-01-01Z', false) AS is_off, p.error,
       CASE WHEN p.made::text <> '{}' THEN p.looked_at END AS enqueued_at,
       CASE WHEN pg_catalog.octet_length(p.kwargs::text) <= 4096 THEN p.kwargs::text END AS kwargs
  FROM posthaste.periodic p ORDER BY p.name LIMIT 1000
