-- What the bench reads from the server about a run.  No rival depends on it.

-- name: drop_database
DROP DATABASE IF EXISTS bench WITH (FORCE);

-- name: create_database
CREATE DATABASE bench;

-- name: checkpoint
CHECKPOINT;

-- name: settings
SELECT name, current_setting(name) FROM pg_settings WHERE source = 'configuration file'
 ORDER BY name;

-- name: version
SELECT current_setting('server_version');

-- name: wal_bytes
SELECT pg_wal_lsn_diff(pg_current_wal_insert_lsn(), '0/0')::bigint;

-- name: backend
SELECT pg_backend_pid();

-- A pin is a snapshot: it reads a catalogue that no queue owns, and nothing else.
-- name: pin
SELECT count(*) FROM pg_am;

-- A pin that was let go shows another backend_xmin, or none.
-- name: held_since
SELECT backend_xmin::text, xact_start::text FROM pg_stat_activity WHERE pid = $1;

-- name: dump_backend
SELECT pid FROM pg_stat_activity
WHERE application_name = 'pg_dump' AND datname = current_database() AND backend_xmin IS NOT NULL;

-- name: dump_locks
SELECT count(*) FROM pg_locks AS held
JOIN pg_class AS relation ON relation.oid = held.relation
JOIN pg_namespace AS namespace ON namespace.oid = relation.relnamespace
WHERE held.pid = $1 AND namespace.nspname = $2 AND held.mode = 'AccessShareLock';

-- Larger than what a pipe and a dump's own buffers can swallow, so that a paused reader holds the
-- dump.
-- name: ballast
CREATE TABLE public.ballast AS SELECT n, repeat('x', 200) AS filler
  FROM generate_series(1, 200000) AS n;

-- name: database_bytes
SELECT pg_database_size(current_database());

-- name: schema_bytes
SELECT coalesce(sum(pg_total_relation_size(relation.oid)), 0)::bigint
FROM pg_class AS relation
JOIN pg_namespace AS namespace ON namespace.oid = relation.relnamespace
WHERE namespace.nspname = $1 AND relation.relkind = 'r';

-- name: other_backends
SELECT pid FROM pg_stat_activity
WHERE datname = current_database() AND backend_type = 'client backend' AND pid <> pg_backend_pid();

-- name: backends_named
SELECT pid FROM pg_stat_activity WHERE datname = current_database() AND application_name = $1;
