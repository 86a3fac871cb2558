-- Synced tables, and whether their re-indexes are paused.
SELECT s.name, s.relation::regclass::text, EXISTS (SELECT FROM posthaste.queue q
                                                    WHERE q.name = 'sync.' || s.name || '.reindex'
                                                      AND q.paused_at IS NOT NULL)
  FROM posthaste.synced s ORDER BY s.name
