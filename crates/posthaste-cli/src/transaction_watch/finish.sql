-- Records the result of an action.
UPDATE posthaste.txwatch_action SET result = $2, finished_at = pg_catalog.clock_timestamp()
 WHERE id = $1;
