SELECT NOT EXISTS (SELECT FROM posthaste.search s WHERE s.index = $1)
