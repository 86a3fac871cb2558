-- Statements that fail if a publication of these tables would make statements of programs fail.
-- They are planned and never run.
SELECT p.statement
  FROM unnest($1::text[], $2::text[]) t (schema, name)
  JOIN pg_namespace s ON s.nspname = t.schema::name
  JOIN pg_class c ON c.relnamespace = s.oid AND c.relname = t.name::name
 CROSS JOIN LATERAL (
   SELECT c.oid AS leaf
    UNION SELECT i.relid FROM pg_catalog.pg_partition_tree(c.oid) i WHERE i.isleaf) l
  JOIN pg_class lc ON lc.oid = l.leaf AND lc.relkind = 'r'::"char"
  JOIN pg_namespace ls ON ls.oid = lc.relnamespace
 CROSS JOIN LATERAL (
   SELECT pg_catalog.format('EXPLAIN DELETE FROM %I.%I'::text, ls.nspname, lc.relname)
    UNION ALL
   SELECT pg_catalog.format('EXPLAIN UPDATE %I.%I SET %I = DEFAULT'::text, ls.nspname, lc.relname,
                            a.attname)
     FROM pg_attribute a
    WHERE a.attrelid = l.leaf AND a.attnum = (
      SELECT min(b.attnum) FROM pg_attribute b
       WHERE b.attrelid = l.leaf AND b.attnum > 0 AND NOT b.attisdropped)) p (statement)
