-- The key of an outbox, whether its rows may be deleted, and the statement that deletes them by it.
SELECT ARRAY(SELECT a.attname::text FROM pg_attribute a
              WHERE a.attrelid = c.oid AND a.attnum = ANY (i.indkey::smallint[])
              ORDER BY a.attnum) AS key,
       has_table_privilege(c.oid, 'DELETE'::text) AS may_delete,
       pg_catalog.format(
         'DELETE FROM %I.%I t USING pg_catalog.jsonb_to_recordset($1::text::jsonb) k (%s) '
         'WHERE %s'::text, $1::text, $2::text,
         (SELECT string_agg(pg_catalog.format('%I %s'::text, a.attname,
                                              format_type(a.atttypid, a.atttypmod)), ', '::text)
            FROM pg_attribute a WHERE a.attrelid = c.oid AND a.attnum = ANY (i.indkey::smallint[])),
         (SELECT string_agg(pg_catalog.format('t.%I = k.%I'::text, a.attname, a.attname),
                            ' AND '::text)
            FROM pg_attribute a WHERE a.attrelid = c.oid AND a.attnum = ANY (i.indkey::smallint[]))
       ) AS statement
  FROM pg_namespace n
  JOIN pg_class c ON c.relnamespace = n.oid AND c.relname = $2::text::name
  JOIN pg_index i ON i.indrelid = c.oid AND i.indisprimary
 WHERE n.nspname = $1::text::name
