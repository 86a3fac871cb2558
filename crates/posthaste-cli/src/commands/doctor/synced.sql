-- Synced tables of which changes do not get jobs as they should: the table is gone, or a trigger is gone or was switched off.
SELECT s.name, c.oid IS NULL AS is_gone
  FROM posthaste.synced s
  LEFT JOIN pg_class c ON c.oid = s.relation
 WHERE c.oid IS NULL
    OR EXISTS (SELECT FROM unnest(CASE WHEN s.enqueues THEN ARRAY['posthaste_insert', 'posthaste_update'] ELSE '{}' END || ARRAY['posthaste_delete', 'posthaste_truncate', 'posthaste_move']
                                  || CASE WHEN s.draws THEN ARRAY['posthaste_stamp', 'posthaste_begin'] ELSE '{}' END) n
                WHERE NOT EXISTS (SELECT FROM pg_trigger t WHERE t.tgrelid = s.relation AND t.tgname = n AND t.tgenabled IN ('O', 'A')))
 ORDER BY s.name
