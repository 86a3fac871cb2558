-- Actions are retained for 90 days.
DELETE FROM posthaste.txwatch_action a
 WHERE a.id IN (SELECT b.id FROM posthaste.txwatch_action b
                 WHERE b.at < pg_catalog.clock_timestamp() - interval '90 days'
                 ORDER BY b.at LIMIT 1000);
