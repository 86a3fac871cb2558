-- Sends kept jobs to work again.
SELECT count(*) FROM posthaste.redrive($1, $2, $3, $4, $5, $6, $7)
