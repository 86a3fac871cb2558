-- Finds expired jobs in one slot.
SELECT posthaste.expire($1, $2)
