-- Records a copied chunk, in the transaction of its jobs; no row if the copy has ended meanwhile.
UPDATE posthaste.capture_copy
   SET rows = rows + $2::bigint, after = $3::text[],
       ended_at = CASE WHEN $4::boolean THEN clock_timestamp() END
 WHERE id = $1::bigint AND ended_at IS NULL
RETURNING id
