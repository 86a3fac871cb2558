-- Every job that is not done, counted by queue and state.
SELECT queue, state, count(*) AS jobs FROM posthaste.job GROUP BY queue, state ORDER BY queue, state
