-- The versions of the rows that a statement for documents returns; it replaces the text between the
-- two marks. Its documents do not leave the server.
SELECT r.id, r.version, r.document IS NOT NULL
  FROM (
-- rows
SELECT NULL::text, NULL::bigint, NULL::jsonb WHERE $1::text[] IS NULL
-- rows
) r (id, version, document)
