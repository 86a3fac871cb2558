-- What `capture` sends beside the libraries that it measures.

-- A slot that is in use is let go first.
-- name: end_sessions
SELECT count(pg_terminate_backend(active_pid)) FROM pg_replication_slots WHERE active;

-- name: drop_slots
SELECT count(pg_drop_replication_slot(slot_name)) FROM pg_replication_slots WHERE NOT active;

-- name: slots
SELECT count(*) FROM pg_replication_slots;

-- Columns that Debezium's EventRouter and posthaste know alike.
-- name: outbox
CREATE TABLE outbox (
  id            uuid PRIMARY KEY DEFAULT gen_random_uuid(),
  aggregatetype text NOT NULL,
  aggregateid   text NOT NULL,
  type          text NOT NULL,
  payload       jsonb NOT NULL
);

-- name: insert
INSERT INTO outbox (aggregatetype, aggregateid, type, payload)
VALUES ('order', '7', 'Event', $1::text::jsonb);

-- name: enqueue
INSERT INTO posthaste.outbox (type, payload) VALUES ('Event', convert_to($1::text, 'UTF8'));

-- name: large
INSERT INTO outbox (aggregatetype, aggregateid, type, payload)
SELECT 'order', '7', 'Event', jsonb_build_object('n', n, 'pad', repeat('x', 900))
FROM generate_series(1, $1::bigint) AS n;

-- name: debezium_publication
CREATE PUBLICATION debezium FOR TABLE outbox;

-- name: debezium_slot
SELECT pg_create_logical_replication_slot('debezium', 'pgoutput');

-- name: is_read
SELECT coalesce(bool_and(confirmed_flush_lsn >= $1::text::pg_lsn), false)
FROM pg_replication_slots;

-- name: last_event
INSERT INTO outbox (aggregatetype, aggregateid, type, payload)
VALUES ('order', '7', 'Event', '{}');

-- name: last_change
UPDATE item SET version = version + 1 WHERE id = 1;

-- name: log_end
SELECT pg_current_wal_insert_lsn()::text;

-- name: unconfirmed
SELECT coalesce(max(pg_wal_lsn_diff(pg_current_wal_lsn(), confirmed_flush_lsn)), 0)::bigint
FROM pg_replication_slots;

-- name: items
CREATE TABLE item (id bigint PRIMARY KEY, version bigint NOT NULL, pad text NOT NULL);

-- name: fill_items
INSERT INTO item SELECT n, 0, repeat('x', 100) FROM generate_series(1, $1::bigint) AS n;

-- name: analyze_items
VACUUM (ANALYZE) item;

-- name: change
UPDATE item SET version = version + 1 WHERE id = ANY ($1);

-- name: versions
SELECT id, version FROM item;

-- name: copy
SELECT extract(epoch FROM ended_at - begun_at)::float8 FROM posthaste.capture_copy
WHERE ended_at IS NOT NULL;

-- name: captured
SELECT job.id, (body.row -> 'after' ->> 'id')::bigint AS item,
       (body.row -> 'after' ->> 'version')::bigint AS version
FROM posthaste.job AS job,
     LATERAL (SELECT (job.kwargs #>> '{posthaste.outbox,text}')::jsonb AS row) AS body
WHERE job.queue = 'captured';

-- Walsenders have no snapshot while they send.
-- name: oldest_snapshot
SELECT coalesce(max(extract(epoch FROM clock_timestamp() - xact_start)), 0)::float8
FROM pg_stat_activity
WHERE datname = current_database() AND backend_xmin IS NOT NULL
  AND backend_type = 'client backend' AND application_name <> 'posthaste-bench';

-- Rows that were changed or deleted in the tables of marks, which every event goes through.
-- name: changed_rows
SELECT coalesce(sum(n_tup_upd + n_tup_del), 0)::bigint FROM pg_stat_all_tables
WHERE schemaname = 'posthaste' AND relname LIKE 'capture_mark%';
