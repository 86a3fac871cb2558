-- The statement that creates a publication of these tables.
SELECT pg_catalog.format('CREATE PUBLICATION %I'::text, $1::text)
    || coalesce(' FOR TABLE '::text || string_agg(
         pg_catalog.format('%I.%I'::text, t.one ->> 'schema'::text, t.one ->> 'name'::text)
         || coalesce(' ('::text || (SELECT string_agg(quote_ident(c.name), ', '::text ORDER BY c.n)
              FROM jsonb_array_elements_text(t.one -> 'columns'::text)
                   WITH ORDINALITY c (name, n)) || ')'::text, ''::text)
         || coalesce(' WHERE ('::text || (t.one ->> 'filter'::text) || ')'::text, ''::text),
         ', '::text ORDER BY t.n), ''::text)
    || pg_catalog.format(' WITH (publish = %L, publish_via_partition_root = true%s)'::text,
         $3::text,
         CASE WHEN $4::boolean THEN ', publish_generated_columns = stored' ELSE '' END)
  FROM jsonb_array_elements($2::text::jsonb) WITH ORDINALITY t (one, n)
