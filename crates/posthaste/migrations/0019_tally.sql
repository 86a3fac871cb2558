-- Counters of what has no slot to lie in, by deltas: jobs in posthaste.held and posthaste.dead, and sums since the beginning, which workers tell about once
-- a second. Two generations by turns, so that the older can be truncated once the newest sums have all of it. A delta may lie in either.
CREATE SEQUENCE posthaste.tally_current MINVALUE 0 START 0;
CREATE SEQUENCE posthaste.tally_low     MINVALUE 0 START 0;
SELECT setval('posthaste.tally_current', 0), setval('posthaste.tally_low', 0);
CREATE TABLE posthaste.tally (
  xid      xid8     NOT NULL DEFAULT pg_current_xact_id(),
  jobs     bigint   NOT NULL,
  priority integer  NOT NULL,
  slot     smallint NOT NULL DEFAULT pg_sequence_last_value('posthaste.tally_current') % 2,
  what     text     NOT NULL,
  queue    text COLLATE "C" NOT NULL,
  name     text COLLATE "C" NOT NULL,
  tag      text     NOT NULL
) PARTITION BY LIST (slot);
CREATE TABLE posthaste.tallied (
  number     bigint      NOT NULL,
  slot       smallint    NOT NULL DEFAULT pg_sequence_last_value('posthaste.tally_current') % 2,
  hi         pg_snapshot NOT NULL,  -- every delta that is visible in it is in the sums
  queues     text[] COLLATE "C" NOT NULL,
  priorities integer[]   NOT NULL,
  names      text[] COLLATE "C" NOT NULL,
  tags       text[]      NOT NULL,
  whats      text[]      NOT NULL,
  jobs       bigint[]    NOT NULL
) PARTITION BY LIST (slot);
CALL posthaste.each_slot(0, 1, $sql$
CREATE TABLE posthaste.tally_@k@ PARTITION OF posthaste.tally FOR VALUES IN (@k@) WITH (autovacuum_enabled = off);
CREATE INDEX tally_@k@_xid ON posthaste.tally_@k@ (xid);
CREATE TABLE posthaste.tallied_@k@ PARTITION OF posthaste.tallied FOR VALUES IN (@k@) WITH (autovacuum_enabled = off);
CREATE INDEX tallied_@k@_number ON posthaste.tallied_@k@ (number)
$sql$);

-- The newest sums, or those before everything.
CREATE FUNCTION posthaste.newest_tally() RETURNS posthaste.tallied LANGUAGE sql STABLE AS $f$
  SELECT n FROM ((SELECT t AS n, t.number FROM posthaste.tallied t ORDER BY t.number DESC LIMIT 1) UNION ALL
                 SELECT ROW(0, 0, '1:1:', '{}', '{}', '{}', '{}', '{}', '{}')::posthaste.tallied, 0) newest
   ORDER BY number DESC LIMIT 1
$f$;

-- Deltas that are not in the sums of that snapshot.
CREATE FUNCTION posthaste.tallied_since(p_hi pg_snapshot) RETURNS SETOF posthaste.tally LANGUAGE sql STABLE AS $f$
  SELECT late.* FROM pg_snapshot_xip(p_hi) p, LATERAL (SELECT t.* FROM posthaste.tally t WHERE t.xid = p OFFSET 0) late UNION ALL
  SELECT t.* FROM posthaste.tally t WHERE t.xid >= pg_snapshot_xmax(p_hi)
$f$;

-- Each job that comes into posthaste.held or posthaste.dead, changes there, or leaves.
CREATE FUNCTION posthaste.tally_held() RETURNS trigger LANGUAGE plpgsql AS $f$
BEGIN
  IF TG_OP <> 'INSERT' THEN
    INSERT INTO posthaste.tally (queue, priority, name, tag, what, jobs)
    SELECT o.queue, o.priority, o.name, o.tag, o.state, -count(*) FROM old_rows o GROUP BY o.queue, o.priority, o.name, o.tag, o.state;
  END IF;
  IF TG_OP <> 'DELETE' THEN
    INSERT INTO posthaste.tally (queue, priority, name, tag, what, jobs)
    SELECT n.queue, n.priority, n.name, n.tag, n.state, count(*) FROM new_rows n GROUP BY n.queue, n.priority, n.name, n.tag, n.state;
  END IF;
  IF TG_OP = 'INSERT' AND TG_TABLE_NAME = 'dead' THEN
    INSERT INTO posthaste.tally (queue, priority, name, tag, what, jobs)
    SELECT n.queue, n.priority, n.name, n.tag, n.state || '_total', count(*) FROM new_rows n GROUP BY n.queue, n.priority, n.name, n.tag, n.state;
  END IF;
  RETURN NULL;
END $f$;
DO $do$
DECLARE
  v_table text;
BEGIN
  FOREACH v_table IN ARRAY ARRAY['held', 'dead'] LOOP
    EXECUTE format($sql$
      CREATE TRIGGER tally_came AFTER INSERT ON posthaste.%1$I REFERENCING NEW TABLE AS new_rows
        FOR EACH STATEMENT EXECUTE FUNCTION posthaste.tally_held();
      CREATE TRIGGER tally_changed AFTER UPDATE ON posthaste.%1$I REFERENCING OLD TABLE AS old_rows NEW TABLE AS new_rows
        FOR EACH STATEMENT EXECUTE FUNCTION posthaste.tally_held();
      CREATE TRIGGER tally_left AFTER DELETE ON posthaste.%1$I REFERENCING OLD TABLE AS old_rows
        FOR EACH STATEMENT EXECUTE FUNCTION posthaste.tally_held()$sql$, v_table);
  END LOOP;
END $do$;

-- What a worker has done since it last told.
CREATE FUNCTION posthaste.tell(p_queues text[], p_priorities integer[], p_names text[], p_tags text[], p_whats text[], p_jobs bigint[])
RETURNS void LANGUAGE sql AS $f$
  INSERT INTO posthaste.tally (queue, priority, name, tag, what, jobs) SELECT * FROM unnest(p_queues, p_priorities, p_names, p_tags, p_whats, p_jobs)
$f$;

-- Adds up what was told since the last sums, if that is p_step deltas at least, and twice as many as there are sums. Sums since the beginning
-- never end by themselves: where there are more than ten thousand, they lose their tags.
CREATE FUNCTION posthaste.sum_tally(p_step integer) RETURNS bigint LANGUAGE plpgsql AS $f$
DECLARE
  m posthaste.tallied := posthaste.newest_tally();
  v_hi pg_snapshot := posthaste.cursor_snapshot();
  v_new bigint := (SELECT count(*) FROM posthaste.tallied_since(m.hi) t WHERE pg_visible_in_snapshot(t.xid, v_hi));
BEGIN
  IF p_step > 0 AND v_new < greatest(p_step, 2 * cardinality(m.jobs)) THEN
    RETURN 0;
  END IF;
  INSERT INTO posthaste.tallied (number, hi, queues, priorities, names, tags, whats, jobs)
  SELECT m.number + 1, v_hi, coalesce(array_agg(s.queue), '{}'), coalesce(array_agg(s.priority), '{}'), coalesce(array_agg(s.name), '{}'),
         coalesce(array_agg(s.tag), '{}'), coalesce(array_agg(s.what), '{}'), coalesce(array_agg(s.jobs), '{}')
    FROM (SELECT a.queue, a.priority, a.name, CASE WHEN cardinality(m.jobs) > 10000 AND a.what LIKE '%\_total' THEN '' ELSE a.tag END AS tag,
                 a.what, sum(a.jobs)::bigint AS jobs
            FROM (SELECT t.queue, t.priority, t.name, t.tag, t.what, t.jobs FROM posthaste.tallied_since(m.hi) t
                   WHERE pg_visible_in_snapshot(t.xid, v_hi) UNION ALL
                  SELECT * FROM unnest(m.queues, m.priorities, m.names, m.tags, m.whats, m.jobs)) a
           GROUP BY 1, 2, 3, 4, 5 HAVING sum(a.jobs) <> 0) s;
  RETURN v_new;
END $f$;

-- Begins a new generation of deltas when the current one has p_bytes, and empties the old one once the sums, which lie in the new one then, have all of it.
-- 'rotated', 'truncated', or who keeps it from that.
CREATE FUNCTION posthaste.turn_tally(p_bytes bigint) RETURNS text LANGUAGE plpgsql AS $f$
DECLARE
  v_low bigint := pg_sequence_last_value('posthaste.tally_low'::regclass);
  v_current bigint := pg_sequence_last_value('posthaste.tally_current'::regclass);
  v_old integer := v_low % 2;
  v_tables regclass[];
  v_holder text;
BEGIN
  IF v_low = v_current THEN
    IF pg_table_size(('posthaste.tally_' || v_old)::regclass) + pg_table_size(('posthaste.tallied_' || v_old)::regclass) <= p_bytes THEN
      RETURN NULL;
    END IF;
    PERFORM setval('posthaste.tally_current', v_current + 1);
    RETURN 'rotated';
  END IF;
  v_tables := ARRAY['posthaste.tally_' || v_old, 'posthaste.tallied_' || v_old]::regclass[];
  v_holder := posthaste.lock_holder(v_tables);
  IF v_holder IS NOT NULL THEN
    RETURN v_holder;
  END IF;
  BEGIN
    EXECUTE format('LOCK TABLE %s, %s IN ACCESS EXCLUSIVE MODE NOWAIT', v_tables[1], v_tables[2]);
  EXCEPTION WHEN lock_not_available THEN
    RETURN '';
  END;
  -- Under the lock: nobody is writing there, and nobody who has written is still open.
  IF (posthaste.newest_tally()).slot = v_old OR EXISTS (SELECT FROM posthaste.tallied_since((posthaste.newest_tally()).hi) t WHERE t.slot = v_old) THEN
    PERFORM posthaste.sum_tally(0);
    RETURN 'summed';
  END IF;
  EXECUTE format('TRUNCATE %s, %s', v_tables[1], v_tables[2]);
  PERFORM setval('posthaste.tally_low', v_low + 1);
  RETURN 'truncated';
END $f$;

-- Counts everything anew, for a store whose snapshots mean nothing any more (a logical restore). Sums since the beginning stay. Nothing else may go on.
CREATE FUNCTION posthaste.recount() RETURNS void LANGUAGE plpgsql AS $f$
DECLARE
  v_sums posthaste.tally[];
BEGIN
  LOCK TABLE posthaste.held, posthaste.dead, posthaste.tally, posthaste.tallied IN SHARE ROW EXCLUSIVE MODE;
  v_sums := ARRAY(
    SELECT ROW(pg_current_xact_id(), sum(a.jobs), a.priority, pg_sequence_last_value('posthaste.tally_current') % 2,
               a.what, a.queue, a.name, a.tag)::posthaste.tally
      FROM posthaste.tallied() a WHERE a.what LIKE '%\_total' GROUP BY a.priority, a.what, a.queue, a.name, a.tag);
  TRUNCATE posthaste.tally, posthaste.tallied;
  CALL posthaste.each_slot(0, 5, 'TRUNCATE posthaste.counted_@k@, posthaste.opened_@k@');
  CALL posthaste.each_slot(6, 7, 'TRUNCATE posthaste.counted_@k@');
  INSERT INTO posthaste.tally SELECT s.* FROM unnest(v_sums) s;
  INSERT INTO posthaste.tally (queue, priority, name, tag, what, jobs)
  SELECT k.queue, k.priority, k.name, k.tag, k.state, count(*)
    FROM (SELECT queue, priority, name, tag, state FROM posthaste.held UNION ALL SELECT queue, priority, name, tag, state FROM posthaste.dead) k
   GROUP BY k.queue, k.priority, k.name, k.tag, k.state;
END $f$;
