-- Actions on transactions that may still be open.
SELECT a.server, a.pid, a.name, a.transaction_start, a.action
  FROM posthaste.txwatch_action a
 WHERE a.at > pg_catalog.clock_timestamp() - interval '7 days'
 ORDER BY a.id DESC LIMIT 10000;
