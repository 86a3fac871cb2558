-- Takes one job whose worker died, to be run alone; how many it took. claimed_jobs.sql reads it.
SELECT count(*) FROM posthaste.claim_quarantined($1, $2, $3)
