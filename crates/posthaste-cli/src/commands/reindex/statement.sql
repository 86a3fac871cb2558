-- The statement of a re-index with its literals, and one that says about how many rows it takes: what is shown is what is run. $2: a condition; $3 to $5: a column and the times between
-- which it lies; $6: ids, which need not have rows any more.
SELECT pg_catalog.format($f$INSERT INTO posthaste.job (name, queue, priority, tag, max_attempts, kwargs)
SELECT %L, %L, %s, %L, NULL, pg_catalog.jsonb_build_object(%s) FROM (%s) i$f$,
         'sync.' || s.name, $10::text, $8::integer, $7::text,
         CASE WHEN $9 THEN $k$'id', i.id, 'force', true$k$ ELSE $k$'id', i.id$k$ END, r.taken),
       'EXPLAIN (FORMAT json) ' || r.taken
  FROM posthaste.synced s
  JOIN pg_class c ON c.oid = s.relation::oid
  JOIN pg_namespace n ON n.oid = c.relnamespace,
  LATERAL (
    SELECT CASE
      WHEN $6::text[] IS NOT NULL
        THEN pg_catalog.format('SELECT pg_catalog.unnest(%L::text[]) AS id', $6)
      ELSE pg_catalog.format(
        'SELECT t.%I::text AS id FROM %I.%I t WHERE %s', s.key, n.nspname, c.relname,
        pg_catalog.concat_ws(' AND ', coalesce('(' || $2::text || ')', 'true'),
          CASE WHEN $4::text IS NOT NULL THEN pg_catalog.format('t.%I >= %L', $3::text, $4) END,
          CASE WHEN $5::text IS NOT NULL THEN pg_catalog.format('t.%I < %L', $3, $5) END)) END) r(taken)
 WHERE s.name = $1
