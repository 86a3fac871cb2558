-- A ring of eight tables: workers take jobs with SKIP LOCKED from the oldest table that has any. A
-- table without jobs is emptied by TRUNCATE, which needs no snapshot to end. Left out: priorities,
-- schedules and retries.
-- manner: one in a transaction

-- name: schema
CREATE SEQUENCE job_number;
-- How many times the ring has moved on to another table: for rows, and for TRUNCATE.
CREATE SEQUENCE written MINVALUE 0;
CREATE SEQUENCE emptied MINVALUE 0;
SELECT setval('written', 0), setval('emptied', 0);

DO $$ BEGIN
  FOR slot IN 0..7 LOOP
    EXECUTE format('CREATE TABLE job_%s (id bigint PRIMARY KEY, args jsonb NOT NULL)', slot);
  END LOOP;
END $$;

-- The last digit of an id in base 8 names the table.
CREATE FUNCTION enqueue(args jsonb) RETURNS void LANGUAGE plpgsql AS $$
DECLARE
  slot bigint := (SELECT last_value % 8 FROM written);
BEGIN
  EXECUTE format('INSERT INTO job_%s VALUES ($1, $2)', slot)
  USING nextval('job_number') * 8 + slot, args;
END $$;

CREATE FUNCTION claim_oldest() RETURNS TABLE (id bigint, args jsonb) LANGUAGE plpgsql AS $$
DECLARE
  first bigint := (SELECT last_value FROM emptied);
BEGIN
  FOR turn IN first .. first + 7 LOOP
    RETURN QUERY EXECUTE format(
      'SELECT id, args FROM job_%s ORDER BY id LIMIT 1 FOR UPDATE SKIP LOCKED', turn % 8);
    IF FOUND THEN
      RETURN;
    END IF;
  END LOOP;
END $$;

CREATE FUNCTION finish(job bigint) RETURNS void LANGUAGE plpgsql AS $$
BEGIN
  EXECUTE format('DELETE FROM job_%s WHERE id = $1', job % 8) USING job;
END $$;

-- Moves on to the next table while one is free, and empties tables in their order. A transaction
-- that wrote to a table, or works one of its jobs, has its lock.
CREATE FUNCTION turn_ring() RETURNS void LANGUAGE plpgsql AS $$
DECLARE
  head bigint := (SELECT last_value FROM written);
  tail bigint := (SELECT last_value FROM emptied);
  is_empty boolean;
BEGIN
  IF head - tail < 7 THEN
    PERFORM setval('written', head + 1);
  END IF;
  WHILE tail < head LOOP
    BEGIN
      EXECUTE format('LOCK TABLE job_%s IN ACCESS EXCLUSIVE MODE NOWAIT', tail % 8);
      EXECUTE format('SELECT NOT EXISTS (SELECT FROM job_%s)', tail % 8) INTO is_empty;
      EXIT WHEN NOT is_empty;
      EXECUTE format('TRUNCATE job_%s', tail % 8);
    EXCEPTION WHEN lock_not_available THEN
      RETURN;
    END;
    tail := tail + 1;
    PERFORM setval('emptied', tail);
  END LOOP;
END $$;

CREATE VIEW job AS
  SELECT id FROM job_0 UNION ALL SELECT id FROM job_1 UNION ALL SELECT id FROM job_2
  UNION ALL SELECT id FROM job_3 UNION ALL SELECT id FROM job_4 UNION ALL SELECT id FROM job_5
  UNION ALL SELECT id FROM job_6 UNION ALL SELECT id FROM job_7;

-- name: enqueue
SELECT enqueue(:args);

-- name: claim
SELECT id, args FROM claim_oldest();

-- name: finish
SELECT finish(:id);

-- name: turn
-- every: 1s
SELECT turn_ring();

-- name: remaining
SELECT count(*) FROM job;
