-- What `degrade` reads from the server while a queue is under load, and how it holds the horizon.

-- name: prepare
CREATE EXTENSION pg_stat_statements;
CREATE SCHEMA holder;
CREATE TABLE holder.written (n bigint);

-- $1: what the texts of its claims are like.
-- name: claim_cost
SELECT coalesce(sum(calls), 0)::bigint AS calls,
       coalesce(sum(shared_blks_hit + shared_blks_read), 0)::bigint AS blocks,
       coalesce(sum(total_exec_time), 0)::float8 AS milliseconds
FROM pg_stat_statements AS statement
JOIN pg_database AS database ON database.oid = statement.dbid
WHERE database.datname = current_database() AND statement.query LIKE $1;

-- Of the queue's own tables, and of the two catalogs that a slot pins.
-- name: dead_rows
SELECT relname::text AS name, n_dead_tup AS rows
FROM pg_stat_user_tables
WHERE schemaname <> 'holder' AND relname <> 'ballast' AND n_dead_tup > 0
UNION ALL
SELECT schemaname || '.' || relname, n_dead_tup
FROM pg_stat_sys_tables
WHERE schemaname = 'pg_catalog' AND relname IN ('pg_class', 'pg_attribute') AND n_dead_tup > 0
ORDER BY 1;

-- name: server
SELECT pg_wal_lsn_diff(pg_current_wal_insert_lsn(), '0/0')::bigint AS wal,
       pg_database_size(current_database()) AS bytes;

-- name: write
INSERT INTO holder.written VALUES (1);

-- name: prepare_transaction
PREPARE TRANSACTION 'degrade';

-- name: rollback_prepared
ROLLBACK PREPARED 'degrade';

-- name: make_slot
SELECT pg_create_logical_replication_slot('degrade', 'pgoutput');

-- name: drop_slot
SELECT pg_drop_replication_slot('degrade');

-- Each of these is the same at the end of a hold as at its beginning. $1 is the session's process.
-- name: proof_writer
SELECT backend_xid::text || ' since ' || xact_start::text FROM pg_stat_activity
WHERE pid = $1::integer;

-- name: proof_prepared
SELECT transaction::text || ' since ' || prepared::text FROM pg_prepared_xacts
WHERE gid = 'degrade' AND $1::integer IS NOT NULL;

-- name: proof_slot
SELECT catalog_xmin::text FROM pg_replication_slots
WHERE slot_name = 'degrade' AND $1::integer IS NOT NULL;

-- name: proof_follower
SELECT backend_xmin::text FROM pg_stat_replication
WHERE backend_xmin IS NOT NULL AND $1::integer IS NOT NULL;

-- name: own_horizon
SELECT backend_xmin::text FROM pg_stat_activity WHERE pid = pg_backend_pid();
