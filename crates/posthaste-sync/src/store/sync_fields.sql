-- The columns in the documents of a synced table, each with the type of its values: the base type
-- of a domain, the element type of an array; json for an object in JSON.
WITH RECURSIVE of_column(attnum, attname, oid, typname, typtype, typcategory, typbasetype, typelem)
AS (
  SELECT a.attnum, a.attname, t.oid, t.typname, t.typtype, t.typcategory, t.typbasetype, t.typelem
    FROM posthaste.synced s
    JOIN pg_attribute a ON a.attrelid = s.relation::oid AND a.attnum > 0 AND NOT a.attisdropped
    JOIN pg_type t ON t.oid = a.atttypid
   WHERE s.name = $1 AND a.attname <> s.version
     AND NOT EXISTS (SELECT FROM posthaste.synced o
                      WHERE o.relation::oid = a.attrelid AND o.draws AND o.version = a.attname)
  UNION ALL
  SELECT c.attnum, c.attname, t.oid, t.typname, t.typtype, t.typcategory, t.typbasetype, t.typelem
    FROM of_column c
    JOIN pg_type t
      ON t.oid = CASE WHEN c.typtype = 'd' THEN c.typbasetype
                      WHEN c.typcategory = 'A' THEN c.typelem END)
SELECT c.attname::text,
       CASE WHEN c.typtype = 'e' THEN 'enum'
            WHEN c.typtype IN ('r', 'm') THEN 'range'
            WHEN c.typtype = 'c' OR EXISTS (
              SELECT FROM pg_cast k JOIN pg_type j ON j.oid = k.casttarget
               WHERE k.castsource = c.oid AND j.typname = 'json') THEN 'json'
            ELSE c.typname::text END
  FROM of_column c
 WHERE c.typtype <> 'd' AND c.typcategory <> 'A'
 ORDER BY c.attnum
