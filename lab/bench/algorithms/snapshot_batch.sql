-- PgQ and PgQue: a tick records a snapshot, and a batch is what became visible between two ticks.
-- Events are never updated; three tables take turns and are emptied by TRUNCATE. Left out: several
-- consumers, and the retry queue.
-- manner: batch in a transaction

-- name: schema
CREATE TABLE event (
  id   bigint GENERATED ALWAYS AS IDENTITY,
  xid  xid8 NOT NULL DEFAULT pg_current_xact_id(),
  args jsonb NOT NULL
);
CREATE TABLE event_0 (LIKE event INCLUDING ALL) INHERITS (event);
CREATE TABLE event_1 (LIKE event INCLUDING ALL) INHERITS (event);
CREATE TABLE event_2 (LIKE event INCLUDING ALL) INHERITS (event);
CREATE INDEX ON event_0 (xid);
CREATE INDEX ON event_1 (xid);
CREATE INDEX ON event_2 (xid);
CREATE SEQUENCE written MINVALUE 0;
SELECT setval('written', 0);

CREATE TABLE tick (
  id bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
  at pg_snapshot NOT NULL
);
INSERT INTO tick (at) VALUES (pg_current_snapshot());
CREATE TABLE consumer (tick bigint NOT NULL);
INSERT INTO consumer VALUES (1);

CREATE FUNCTION enqueue(args jsonb) RETURNS void LANGUAGE plpgsql AS $$
BEGIN
  EXECUTE format('INSERT INTO event_%s (args) VALUES ($1)', (SELECT last_value % 3 FROM written))
  USING args;
END $$;

-- One worker at a time has the consumer. Batches without an event are passed.
CREATE FUNCTION next_batch() RETURNS TABLE (id bigint, args jsonb) LANGUAGE plpgsql AS $$
DECLARE
  passed bigint;
  before pg_snapshot;
  after  pg_snapshot;
BEGIN
  SELECT tick INTO passed FROM consumer FOR UPDATE SKIP LOCKED;
  WHILE FOUND LOOP
    SELECT a.at, b.at INTO before, after FROM tick a, tick b
    WHERE a.id = passed AND b.id = passed + 1;
    EXIT WHEN NOT FOUND;
    RETURN QUERY
    SELECT e.id, e.args FROM event e
    WHERE e.xid >= pg_snapshot_xmin(before) AND e.xid < pg_snapshot_xmax(after)
      AND pg_visible_in_snapshot(e.xid, after) AND NOT pg_visible_in_snapshot(e.xid, before)
    ORDER BY e.id;
    EXIT WHEN FOUND;
    passed := passed + 1;
    UPDATE consumer SET tick = passed;
  END LOOP;
END $$;

-- The next table is emptied when all of its events were passed.
CREATE FUNCTION turn_tables() RETURNS void LANGUAGE plpgsql AS $$
DECLARE
  next     bigint := (SELECT last_value + 1 FROM written);
  oldest   xid8 := (SELECT pg_snapshot_xmin(t.at) FROM consumer c JOIN tick t ON t.id = c.tick);
  is_ahead boolean;
BEGIN
  EXECUTE format('LOCK TABLE event_%s IN ACCESS EXCLUSIVE MODE NOWAIT', next % 3);
  EXECUTE format('SELECT EXISTS (SELECT FROM event_%s WHERE xid >= $1)', next % 3)
  INTO is_ahead USING oldest;
  IF NOT is_ahead THEN
    EXECUTE format('TRUNCATE event_%s', next % 3);
    PERFORM setval('written', next);
  END IF;
EXCEPTION WHEN lock_not_available THEN
  NULL;
END $$;

-- name: enqueue
SELECT enqueue(:args);

-- name: claim
SELECT id, args FROM next_batch();

-- name: finish
UPDATE consumer SET tick = tick + 1;

-- name: tick
-- every: 100ms
INSERT INTO tick (at) VALUES (pg_current_snapshot());

-- name: forget
-- every: 1s
DELETE FROM tick WHERE id < (SELECT tick FROM consumer);

-- name: turn
-- every: 10s
SELECT turn_tables();

-- name: remaining
SELECT count(*) FROM event e, consumer c JOIN tick t ON t.id = c.tick
WHERE e.xid >= pg_snapshot_xmin(t.at) AND NOT pg_visible_in_snapshot(e.xid, t.at);
