-- The statement that makes a publication of these tables.
SELECT format('CREATE PUBLICATION %I', $1)
    || coalesce(' FOR TABLE ' || string_agg(
         format('%I.%I', t.one ->> 'schema'::text, t.one ->> 'name'::text)
         || coalesce(' (' || (SELECT string_agg(quote_ident(c.name), ', ' ORDER BY c.n)
              FROM jsonb_array_elements_text(t.one -> 'columns'::text)
                   WITH ORDINALITY c (name, n)) || ')', '')
         || coalesce(' WHERE (' || (t.one ->> 'filter'::text) || ')', ''),
         ', ' ORDER BY t.n), '')
    || format(' WITH (publish = %L, publish_via_partition_root = true%s)', $3,
         CASE WHEN $4 THEN ', publish_generated_columns = stored' ELSE '' END)
  FROM jsonb_array_elements($2::text::jsonb) WITH ORDINALITY t (one, n)
