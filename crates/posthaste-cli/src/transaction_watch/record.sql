-- Records an action before it is taken.
INSERT INTO posthaste.txwatch_action (server, kind, pid, backend_start, transaction_start, name,
    role, application, address, database, state, seconds, action, rule, query)
VALUES ($1, $2, $3, $4, $5, $6, $7, $8, $9, $10, $11, $12, $13, $14, $15)
RETURNING id;
