-- The relay: who drains a queue, how relays go, the tables of others that programs may go on writing to, and the inbox of receivers.

-- Who drains a queue in its order: one worker at a time. A row changes when the lease is renewed, a few times a minute (src/store/drain.sql).
CREATE TABLE posthaste.drain (
  queue  text COLLATE "C" PRIMARY KEY,
  worker bigint      NOT NULL,
  until  timestamptz NOT NULL
) WITH (fillfactor = 50);

-- How a relay went each time that it told; in volumes of an hour (0014_history.sql), so that nothing is updated. Sums are since it was started.
CREATE TABLE posthaste.relay (
  at          timestamptz NOT NULL DEFAULT clock_timestamp(),
  worker      bigint      NOT NULL,
  accepted    bigint      NOT NULL,
  refused     bigint      NOT NULL,
  later       bigint      NOT NULL,
  unanswered  bigint      NOT NULL,
  down_since  timestamptz,            -- by the relay's clock
  slot        smallint    NOT NULL,
  state       text        NOT NULL,   -- up, down, or standby: another one drains
  queue       text COLLATE "C" NOT NULL,
  route       text        NOT NULL,
  destination text        NOT NULL,
  last_error  text
) PARTITION BY LIST (slot);
CREATE INDEX relay_queue ON posthaste.relay (queue, worker, at);
CALL posthaste.each_slot(0, 3, $sql$
CREATE TABLE posthaste.relay_@k@ PARTITION OF posthaste.relay FOR VALUES IN (@k@) WITH (autovacuum_enabled = off)
$sql$);

-- Arguments as a list, where they are nothing but that: what INSERT INTO posthaste.staged_jobs was given.
CREATE FUNCTION posthaste.as_list(kwargs jsonb) RETURNS jsonb LANGUAGE sql IMMUTABLE PARALLEL SAFE AS $f$
  SELECT CASE WHEN jsonb_typeof(kwargs -> 'args') = 'array' AND kwargs - 'args' = '{}' THEN kwargs -> 'args' ELSE kwargs END
$f$;

-- Jobs as "Transactionally staged job drains in Postgres" has them, for programs written against that. The job's name decides on the queue, as always
-- (posthaste.route). A list of arguments is kept as {"args": [...]}, which relays unwrap. A row is gone when its job is done.
CREATE VIEW posthaste.staged_jobs (id, job_name, job_args) AS
  SELECT j.id, j.name, posthaste.as_list(j.kwargs) FROM posthaste.job j WHERE j.state NOT IN ('dead', 'discarded', 'cancelled', 'expired');
CREATE RULE stage AS ON INSERT TO posthaste.staged_jobs DO INSTEAD
  INSERT INTO posthaste.job (id, name, kwargs)
  VALUES (NEW.id, NEW.job_name, CASE WHEN jsonb_typeof(NEW.job_args) = 'array' THEN jsonb_build_object('args', NEW.job_args) ELSE NEW.job_args END)
  RETURNING id, name, posthaste.as_list(kwargs);

-- Jobs as an outbox has them: under an id that their writer gives, which is the delivery id that receivers see; with a payload of any bytes, or by
-- reference to a row of another table, which is sent as a reference. A row is gone when its job is done; in a queue that keeps
-- done jobs (posthaste.keep) it stays for as long, with the time of its completion.
CREATE VIEW posthaste.outbox (id, type, payload, table_name, table_id, created_at, completed_at) AS
  SELECT (o.row ->> 'id')::uuid, j.name, coalesce(convert_to(o.row ->> 'text', 'UTF8'), decode(o.row ->> 'hex', 'hex')), o.row ->> 'table_name',
         o.row ->> 'table_id', j.enqueued_at, j.ended_at
    FROM (SELECT w.name, w.kwargs, w.enqueued_at, NULL::timestamptz AS ended_at FROM posthaste.job w WHERE w.state NOT IN ('dead', 'discarded', 'cancelled', 'expired')
          UNION ALL SELECT f.name, f.kwargs, f.enqueued_at, f.ended_at FROM posthaste.finished f) j,
         LATERAL (SELECT j.kwargs -> 'posthaste.outbox' AS row) o
   WHERE jsonb_typeof(o.row) = 'object';

-- The key keeps the id from being taken twice, and finds the job for posthaste.done(). An id that is there already changes nothing and counts as no row.
CREATE FUNCTION posthaste.put_out() RETURNS trigger LANGUAGE plpgsql AS $f$
DECLARE
  v_row jsonb;
BEGIN
  NEW.id := coalesce(NEW.id, gen_random_uuid());
  IF NEW.created_at IS NOT NULL OR NEW.completed_at IS NOT NULL THEN
    RAISE EXCEPTION 'posthaste: created_at, completed_at: posthaste.outbox does not take them' USING ERRCODE = 'invalid_parameter_value';
  ELSIF (NEW.payload IS NULL) = (NEW.table_name IS NULL) OR (NEW.table_name IS NULL) <> (NEW.table_id IS NULL) THEN
    RAISE EXCEPTION 'posthaste: payload: a row of posthaste.outbox has either a payload or table_name and table_id' USING ERRCODE = 'invalid_parameter_value';
  END IF;
  IF EXISTS (SELECT FROM posthaste.unique_key u WHERE u.key = 'outbox:' || NEW.id) THEN
    RETURN NULL;
  END IF;
  IF NEW.payload IS NULL THEN
    v_row := jsonb_build_object('table_name', NEW.table_name, 'table_id', NEW.table_id);
  ELSE
    BEGIN
      v_row := jsonb_build_object('text', convert_from(NEW.payload, 'UTF8'));
    EXCEPTION WHEN character_not_in_repertoire OR untranslatable_character THEN
      v_row := jsonb_build_object('hex', encode(NEW.payload, 'hex'));
    END;
  END IF;
  v_row := jsonb_build_object('posthaste.outbox', v_row || jsonb_build_object('id', NEW.id));
  PERFORM posthaste.enqueue(NEW.type, v_row, unique_key => 'outbox:' || NEW.id);
  NEW.created_at := clock_timestamp();
  RETURN NEW;
END $f$;
CREATE TRIGGER put_out INSTEAD OF INSERT ON posthaste.outbox FOR EACH ROW EXECUTE FUNCTION posthaste.put_out();

-- What receivers have had: for those that cannot tell duplicates by themselves. It may be in another database than the jobs.
CREATE TABLE posthaste.inbox (
  delivery_id uuid        PRIMARY KEY,
  received_at timestamptz NOT NULL DEFAULT clock_timestamp()
);
CREATE INDEX inbox_received_at ON posthaste.inbox (received_at);
ALTER TABLE posthaste.setting ADD COLUMN keep_inbox interval NOT NULL DEFAULT '30 days' CHECK (keep_inbox BETWEEN interval '0' AND interval '3660 days');

-- Called in the transaction of the effect: true the first time, and the effect is to happen; false when it has happened. Whoever comes while another is at
-- it waits for that one's end. It confirms the job too, where somebody awaits that.
CREATE FUNCTION posthaste.receive(delivery_id uuid) RETURNS boolean LANGUAGE plpgsql AS $f$
#variable_conflict use_variable
DECLARE
  v_is_first boolean;
BEGIN
  INSERT INTO posthaste.inbox AS i (delivery_id) VALUES (delivery_id) ON CONFLICT DO NOTHING;
  v_is_first := FOUND;
  PERFORM posthaste.done(delivery_id);
  RETURN v_is_first;
END $f$;

-- Forgets what was received long ago, up to 10,000 of it; how many.
CREATE FUNCTION posthaste.prune_inbox() RETURNS bigint LANGUAGE sql AS $f$
  WITH gone AS (
    DELETE FROM posthaste.inbox i USING (
      SELECT o.delivery_id FROM posthaste.inbox o WHERE o.received_at < clock_timestamp() - (SELECT s.keep_inbox FROM posthaste.setting s)
       ORDER BY o.received_at LIMIT 10000 FOR UPDATE SKIP LOCKED) o
     WHERE i.delivery_id = o.delivery_id RETURNING 1)
  SELECT count(*) FROM gone
$f$;
