-- The newest sessions within a week that txwatch cancelled or terminated, or could not.
SELECT a.at, a.server, a.pid, a.role, a.application, a.seconds, a.action, a.rule,
       coalesce(a.result, 'unknown'::text) AS result
  FROM posthaste.txwatch_action a
 WHERE a.action <> 'warn' AND a.at > clock_timestamp() - interval '7 days'
 ORDER BY a.at DESC LIMIT 50
