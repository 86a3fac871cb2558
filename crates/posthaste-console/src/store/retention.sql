-- The retention periods of the whole database, in seconds.
SELECT extract(epoch FROM s.keep_attempts)::double precision AS attempts,
       extract(epoch FROM s.keep_inbox)::double precision AS inbox
  FROM posthaste.setting s
