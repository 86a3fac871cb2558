-- The columns of a table to be copied, as the stream describes them. Its key is that of the replica
-- identity, which deletions in the stream contain; with a full replica identity, the primary key or
-- a unique index.
WITH t AS (
  SELECT c.oid, c.relreplident, n.nspname, c.relname
    FROM pg_class c JOIN pg_namespace n ON n.oid = c.relnamespace
   WHERE n.nspname = $1::text::name AND c.relname = $2::text::name
     AND c.relkind IN ('r'::"char", 'p'::"char")),
identity AS (
  SELECT i.indexrelid, i.indrelid, i.indkey, i.indnkeyatts, t.relreplident,
         i.indisprimary, i.indisreplident
    FROM t JOIN pg_index i ON i.indrelid = t.oid
   WHERE i.indisunique AND i.indisvalid AND i.indimmediate
     AND i.indpred IS NULL AND i.indexprs IS NULL
     AND NOT EXISTS (
       SELECT FROM pg_catalog.unnest(i.indkey::smallint[]) WITH ORDINALITY k (attnum, place)
         JOIN pg_attribute a ON a.attrelid = i.indrelid AND a.attnum = k.attnum
        WHERE k.place <= i.indnkeyatts::bigint AND NOT a.attnotnull)
     AND CASE t.relreplident WHEN 'i'::"char" THEN i.indisreplident
                             WHEN 'd'::"char" THEN i.indisprimary ELSE true END
   ORDER BY i.indisprimary DESC, i.indexrelid
   LIMIT 1),
key AS (
  SELECT k.attnum, k.place
    FROM identity i, pg_catalog.unnest(i.indkey::smallint[]) WITH ORDINALITY k (attnum, place)
   WHERE k.place <= i.indnkeyatts::bigint)
SELECT t.oid::bigint AS oid, t.relreplident::text AS identity, a.attname::text AS name,
       a.atttypid::bigint AS kind, k.place AS place,
       t.relreplident = 'f'::"char"
         OR t.relreplident <> 'n'::"char" AND k.place IS NOT NULL AS is_key,
       EXISTS (SELECT FROM pg_publication_rel r JOIN pg_publication p ON p.oid = r.prpubid
                WHERE p.pubname = $4::text::name AND r.prrelid = t.oid) AS is_published
  FROM t
  JOIN pg_attribute a ON a.attrelid = t.oid AND a.attnum > 0 AND NOT a.attisdropped
   AND (a.attgenerated = ''::"char"
        OR a.attgenerated = 's'::"char"
           AND current_setting('server_version_num'::text)::integer >= 180000)
  LEFT JOIN key k ON k.attnum = a.attnum
 WHERE pg_catalog.cardinality($3::text[]) = 0 OR a.attname::text = ANY ($3::text[])
 ORDER BY a.attnum
