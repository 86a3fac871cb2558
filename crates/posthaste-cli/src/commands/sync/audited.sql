-- Replaces the results of the previous audit.
INSERT INTO posthaste.audited AS a (audited_at, rows, documents, differed, repaired, contents, name)
SELECT clock_timestamp(), $2::bigint, $3::bigint, $4::bigint, $5::bigint, $6::boolean, s.name
  FROM posthaste.synced s WHERE s.name = $1::text
ON CONFLICT (name) DO UPDATE
  SET audited_at = excluded.audited_at, rows = excluded.rows, documents = excluded.documents,
      differed = excluded.differed, repaired = excluded.repaired, contents = excluded.contents
