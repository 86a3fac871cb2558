-- The batches of a claim whose answer was lost.
SELECT slot, batch FROM posthaste.claim_batches($1, $2, $3, $4)
