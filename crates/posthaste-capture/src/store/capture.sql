-- A capture, and whether this is the database that it was installed in.
SELECT c.slot, c.publication, c.epoch, c.stopped,
       c.identity OPERATOR(pg_catalog.=) ARRAY[i.now[1], i.now[2], i.now[4]] AS is_here,
       EXISTS (SELECT FROM pg_publication p
                WHERE p.oid = c.published AND p.pubname = c.publication::name) AS is_published,
       c.paused_at IS NOT NULL AS is_paused, i.now[3] AS timeline
  FROM posthaste.capture c, (SELECT posthaste.current_identity() AS now) i
 WHERE c.name = $1::text
