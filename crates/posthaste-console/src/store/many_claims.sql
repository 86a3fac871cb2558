-- Whether a segment has more claims than $1.
SELECT EXISTS (SELECT FROM posthaste.claim_0 OFFSET $1::bigint)
    OR EXISTS (SELECT FROM posthaste.claim_1 OFFSET $1::bigint)
    OR EXISTS (SELECT FROM posthaste.claim_2 OFFSET $1::bigint)
    OR EXISTS (SELECT FROM posthaste.claim_3 OFFSET $1::bigint)
    OR EXISTS (SELECT FROM posthaste.claim_4 OFFSET $1::bigint)
    OR EXISTS (SELECT FROM posthaste.claim_5 OFFSET $1::bigint)
