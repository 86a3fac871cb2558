-- Claims one job whose worker died, to run it alone. Returns the number of claimed jobs, which
-- claimed_jobs.sql reads.
SELECT count(*) FROM posthaste.claim_quarantined($1, $2, $3)
