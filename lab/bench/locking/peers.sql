-- What `peers` asks the server beside the queues' own libraries.

-- name: extension
CREATE EXTENSION IF NOT EXISTS pg_stat_statements;

-- name: statements
SELECT coalesce(sum(statement.calls), 0)::bigint AS calls,
       coalesce(sum(statement.shared_blks_hit + statement.shared_blks_read), 0)::bigint AS blocks
FROM pg_stat_statements AS statement
JOIN pg_database AS database ON database.oid = statement.dbid
JOIN pg_roles AS role ON role.oid = statement.userid
WHERE database.datname = 'bench' AND role.rolname <> 'peers_watch';

-- name: commits
SELECT xact_commit FROM pg_stat_database WHERE datname = 'bench';

-- The bench asks as this role whether jobs remain, so that its statements are not counted.
-- name: watcher
CREATE ROLE peers_watch SUPERUSER;

-- name: as_watcher
SET ROLE peers_watch;

-- name: analyze
ANALYZE;

-- name: remaining_posthaste
SELECT count(*) FROM posthaste.job;

-- name: remaining_river
SELECT count(*) FROM river_job WHERE state <> 'completed';

-- name: remaining_graphile-worker
SELECT count(*) FROM graphile_worker._private_jobs;

-- name: remaining_pg-boss
SELECT count(*) FROM pgboss.job WHERE state <> 'completed';

-- name: remaining_oban
SELECT count(*) FROM oban_jobs WHERE state <> 'completed';

-- name: remaining_procrastinate
SELECT count(*) FROM procrastinate_jobs WHERE status <> 'succeeded';

-- name: remaining_pgqueuer
SELECT count(*) FROM pgqueuer;

-- name: remaining_pgmq
SELECT count(*) FROM pgmq.q_noop;

-- name: remaining_awa
SELECT count(*) FROM awa.jobs WHERE state <> 'completed';
