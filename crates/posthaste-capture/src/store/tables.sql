-- The properties of tables to be captured.
SELECT t.schema || '.'::text || t.name AS name, c.oid IS NOT NULL AS is_there,
       coalesce(c.relkind::text, '') AS kind,
       coalesce(c.relpersistence::text, '') AS persistence,
       coalesce(pg_has_role(c.relowner, 'USAGE'::text), false) AS is_own,
       ARRAY(SELECT a.attname::text FROM pg_attribute a
              WHERE a.attrelid = c.oid AND a.attnum > 0 AND NOT a.attisdropped
              ORDER BY a.attnum) AS columns
  FROM unnest($1::text[], $2::text[]) WITH ORDINALITY t (schema, name, n)
  LEFT JOIN pg_namespace s ON s.nspname = t.schema::name
  LEFT JOIN pg_class c ON c.relnamespace = s.oid AND c.relname = t.name::name
 ORDER BY t.n
