-- A mail and the job that has it sent, both or neither. The job carries nothing: the row is looked
-- up by the id that both have.
WITH job AS (SELECT posthaste.enqueue('mail:send', '{}', queue => 'mail') AS id)
INSERT INTO mail_deliveries (delivery_id, recipient, subject, body)
SELECT posthaste.delivery_id(job.id), $1, $2, $3 FROM job
RETURNING delivery_id
