-- The columns of table $1, or NULL where there is no such table: somebody else's table `file` must
-- not be written to.
SELECT string_agg(a.attname::text || ' ' || format_type(a.atttypid, a.atttypmod), ', '
                  ORDER BY a.attnum)
  FROM pg_attribute a
 WHERE a.attrelid = to_regclass($1)::oid AND a.attnum > 0 AND NOT a.attisdropped
