-- What became of each job that is not done.
SELECT id, state FROM posthaste.cancel_many($1) ORDER BY id
