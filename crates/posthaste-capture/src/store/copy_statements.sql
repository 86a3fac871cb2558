-- The statements that lock a table against a rewrite, and that read its next rows by the key. Rows
-- that do not match the filter are returned without their values, so that no chunk scans for long.
SELECT pg_catalog.format('LOCK TABLE %I.%I IN ACCESS SHARE MODE'::text, $1::text, $2::text) AS lock,
       pg_catalog.format(
         'SELECT %s, r."posthaste wanted", %s FROM (SELECT %I.*, (%s) IS TRUE AS "posthaste wanted"'
         ' FROM (SELECT * FROM %I.%I%s ORDER BY %s LIMIT %s) %I) r ORDER BY %s'::text,
         k.shown,
         (SELECT string_agg(pg_catalog.format('CASE WHEN r."posthaste wanted" THEN r.%I END'::text,
                                              c.name), ', '::text ORDER BY c.n)
            FROM pg_catalog.unnest($3::text[]) WITH ORDINALITY c (name, n)),
         $2::text, coalesce($5::text, 'true'::text), $1::text, $2::text,
         CASE WHEN $6::text[] IS NULL THEN ''::text
              ELSE pg_catalog.format(' WHERE (%s) > (%s)'::text, k.plain, v.list) END,
         k.plain, $7::bigint, $2::text, k.shown) AS rows
  FROM (SELECT string_agg(pg_catalog.format('r.%I'::text, k.name), ', '::text ORDER BY k.n)
                 AS shown,
               string_agg(quote_ident(k.name), ', '::text ORDER BY k.n) AS plain
          FROM pg_catalog.unnest($4::text[]) WITH ORDINALITY k (name, n)) k,
       (SELECT string_agg(pg_catalog.format('%L::%s'::text, v.value,
                                            format_type(a.atttypid, a.atttypmod)),
                          ', '::text ORDER BY v.n) AS list
          FROM unnest($4::text[], $6::text[]) WITH ORDINALITY v (name, value, n)
          JOIN pg_namespace n ON n.nspname = $1::text::name
          JOIN pg_class c ON c.relnamespace = n.oid AND c.relname = $2::text::name
          JOIN pg_attribute a ON a.attrelid = c.oid AND a.attname = v.name::name) v
