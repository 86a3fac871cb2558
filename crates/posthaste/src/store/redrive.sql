-- Redrives dead jobs. A condition that is NULL is ignored.
SELECT r.id
  FROM posthaste.redrive($1::bigint[], $2::text, $3::text, $4::text, $5::text, $6::text,
                         $7::integer) r (id)
 ORDER BY r.id
