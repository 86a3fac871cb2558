-- Which of these jobs ($1) are being cancelled already.
SELECT c.id FROM posthaste.cancelling c WHERE c.id = ANY ($1::bigint[])
