-- Ends awaited jobs whose confirmation came from a transaction that could not see them held.
SELECT posthaste.confirm_held('infinity', $1)
