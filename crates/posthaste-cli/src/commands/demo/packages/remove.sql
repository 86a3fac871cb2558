-- Removes up to $2 documents behind $1 from the index, as no posthaste would.
DELETE FROM posthaste.search s
 WHERE s.index = 'demo_package'
   AND s.id IN (SELECT d.id FROM posthaste.search d
                 WHERE d.index = 'demo_package' AND d.id > $1::text AND d.deleted_at IS NULL
                 ORDER BY d.id LIMIT $2::bigint)
