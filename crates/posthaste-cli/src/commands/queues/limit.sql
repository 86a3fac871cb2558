-- Says how many jobs of a queue may be claimed in so many seconds; NULL takes the limit away.
SELECT posthaste.limit_rate($1, $2, $3::bigint * interval '1 second', $4)
