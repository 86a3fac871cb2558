-- The statement of a re-index with its literals, and one that estimates its number of rows: the
-- text shown is the text that runs. $2: a condition; $3 to $5: a column and a range of times; $11:
-- a value of the column; $6: ids, which need not have rows; $12: distinguishes the jobs from those
-- of other re-indexes. The column is compared by operators of pg_catalog: for varchar or a domain,
-- an operator of another schema could match better. Types of extensions have theirs in other
-- schemas.
WITH RECURSIVE of_column(typtype, typcategory, typnamespace, typname, typbasetype) AS (
  SELECT t.typtype, t.typcategory, t.typnamespace, t.typname, t.typbasetype
    FROM pg_attribute a JOIN pg_type t ON t.oid = a.atttypid
   WHERE a.attname = $3::text::name AND NOT a.attisdropped
     AND a.attrelid = (SELECT s.relation::oid FROM posthaste.synced s WHERE s.name = $1)
  UNION ALL
  SELECT t.typtype, t.typcategory, t.typnamespace, t.typname, t.typbasetype
    FROM of_column d JOIN pg_type t ON t.oid = d.typbasetype
   WHERE d.typtype = 'd')
SELECT pg_catalog.format(
         $f$INSERT INTO posthaste.job (name, queue, priority, tag, max_attempts, kwargs)
SELECT %L, %L, %s, %L, NULL, pg_catalog.jsonb_build_object('id', i.id%s, 'reindex', %L)
  FROM (%s) i$f$,
         'sync.' || s.name, $10::text, $8::integer, $7::text,
         CASE WHEN $9 THEN $k$, 'force', true$k$ ELSE '' END, $12::text, r.taken),
       'EXPLAIN (FORMAT json) ' || r.taken
  FROM posthaste.synced s
  JOIN pg_class c ON c.oid = s.relation::oid
  JOIN pg_namespace n ON n.oid = c.relnamespace
  LEFT JOIN (
    SELECT pg_catalog.format('::%I.%I', n.nspname, o.typname),
           n.nspname = 'pg_catalog' OR o.typtype <> 'b' OR o.typcategory = 'A'
      FROM of_column o JOIN pg_namespace n ON n.oid = o.typnamespace
     WHERE o.typtype <> 'd') b(made, is_built_in) ON true,
  LATERAL (
    SELECT CASE WHEN b.is_built_in THEN 't.%I%s OPERATOR(pg_catalog.%s) %L'
           ELSE 't.%I%s %s %L' END) k(compared),
  LATERAL (
    SELECT CASE
      WHEN $6::text[] IS NOT NULL
        THEN pg_catalog.format('SELECT pg_catalog.unnest(%L::text[]) AS id', $6)
      ELSE pg_catalog.format(
        'SELECT t.%I::text AS id FROM %I.%I t WHERE %s', s.key, n.nspname, c.relname,
        pg_catalog.concat_ws(' AND ', coalesce('(' || $2::text || ')', 'true'),
          CASE WHEN $11::text IS NOT NULL
            THEN pg_catalog.format(k.compared, $3::text, b.made, '=', $11) END,
          CASE WHEN $4::text IS NOT NULL
            THEN pg_catalog.format(k.compared, $3::text, b.made, '>=', $4) END,
          CASE WHEN $5::text IS NOT NULL
            THEN pg_catalog.format(k.compared, $3, b.made, '<', $5) END)) END) r(taken)
 WHERE s.name = $1
