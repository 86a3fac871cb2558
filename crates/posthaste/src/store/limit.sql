-- Says how many jobs of a queue may be claimed in such a time; NULL takes the limit away.
SELECT 'true'::text AS answer
  FROM posthaste.limit_rate($1::text, $2::integer, $3::text::interval, $4::integer)
