-- Sets the rate limit of a queue; NULL removes it.
SELECT 'true'::text AS answer
  FROM posthaste.limit_rate($1::text, $2::integer, $3::text::interval, $4::integer)
