-- Where a job is, and the id that receivers see.
SELECT f.*, posthaste.delivery_id(f.id) AS delivery_id FROM posthaste.find($1) f
