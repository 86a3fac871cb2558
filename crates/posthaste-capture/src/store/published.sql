-- The tables of a publication; no row if it does not exist.
SELECT p.puballtables OR EXISTS (SELECT FROM pg_publication_namespace n WHERE n.pnpubid = p.oid)
         AS has_more,
       ARRAY(SELECT s.nspname::text || '.'::text || c.relname::text
               FROM pg_publication_rel r
               JOIN pg_class c ON c.oid = r.prrelid JOIN pg_namespace s ON s.oid = c.relnamespace
              WHERE r.prpubid = p.oid ORDER BY 1) AS tables
  FROM pg_publication p
 WHERE p.pubname = $1::text::name
