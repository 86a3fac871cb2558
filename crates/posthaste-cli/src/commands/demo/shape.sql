-- The columns of table $1, or NULL if it does not exist: a table `file` of another program must not
-- be written.
SELECT string_agg(a.attname::text || ' ' || format_type(a.atttypid, a.atttypmod), ', '
                  ORDER BY a.attnum)
  FROM pg_attribute a
 WHERE a.attrelid = to_regclass($1)::oid AND a.attnum > 0 AND NOT a.attisdropped
