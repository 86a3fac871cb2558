-- Writes a mail and enqueues the job that sends it, in one transaction. The job has no arguments:
-- its delivery id is the key of the mail.
WITH job AS (SELECT posthaste.enqueue('mail:send', '{}', queue => 'mail') AS id)
INSERT INTO mail_deliveries (delivery_id, recipient, subject, body)
SELECT posthaste.delivery_id(job.id), $1, $2, $3 FROM job
RETURNING delivery_id
