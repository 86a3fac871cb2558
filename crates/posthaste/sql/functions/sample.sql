-- Samples for charts: every minute for an hour, every ten minutes for a day, hourly for a week and
-- a little longer; at most 400 rows for a queue. They cover the hundred queues with the most jobs,
-- and all queues together under the name ''.
--
-- Totals of coarser samples are those of the same moment. Gauges (available, running, oldest) are
-- the maximum since the previous sample, so that a backlog of minutes is visible a week later.

-- Whether there is a sample of this minute, ten minutes or hour.
CREATE OR REPLACE FUNCTION posthaste.is_sampled(p_span smallint, p_now timestamptz)
RETURNS boolean LANGUAGE sql STABLE
SET search_path = pg_catalog, pg_temp AS $f$
  SELECT EXISTS (SELECT FROM posthaste.sample s WHERE s.span = p_span AND s.at <= p_now
      AND s.at >= date_bin(make_interval(mins => p_span), p_now, '2000-01-01 00:00Z'))
$f$;

-- The figures of each queue, and of all together.
CREATE OR REPLACE FUNCTION posthaste.queue_figures(p_now timestamptz)
RETURNS TABLE (queue text, come bigint, done bigint, failed bigint, started bigint, waited bigint,
               available bigint, running bigint, oldest double precision)
LANGUAGE sql
SET search_path = pg_catalog, pg_temp AS $f$
  WITH counted AS MATERIALIZED (
    SELECT c.queue, sum(c.available) AS available, sum(c.running) AS running,
           sum(c.available + c.blocked + c.scheduled + c.retrying + c.running + c.awaiting
             + c.quarantined + c.completed_total + c.dead_total + c.discarded_total
             + c.expired_total + c.cancelled_total) AS come,
           sum(c.completed_total) AS done, sum(c.failed_total) AS failed
      FROM posthaste.counts() c GROUP BY c.queue),
  runs AS MATERIALIZED (
    SELECT t.queue, sum(t.jobs) FILTER (WHERE t.what = 'started_total') AS started,
           sum(t.jobs) FILTER (WHERE t.what = 'waited_total') AS waited
      FROM posthaste.stats() t WHERE t.what IN ('started_total', 'waited_total') GROUP BY t.queue),
  next AS MATERIALIZED (
    SELECT o.queue, greatest(extract(epoch FROM p_now - min(o.since)), 0) AS seconds
      FROM posthaste.oldest() o GROUP BY o.queue),
  queue AS MATERIALIZED (
    SELECT c.queue, c.come, c.done, c.failed, coalesce(r.started, 0) AS started,
           coalesce(r.waited, 0) AS waited, c.available, c.running, n.seconds
      FROM counted c LEFT JOIN runs r ON r.queue = c.queue LEFT JOIN next n ON n.queue = c.queue)
  (SELECT q.queue, q.come::bigint, q.done::bigint, q.failed::bigint, q.started::bigint,
          q.waited::bigint, q.available::bigint, q.running::bigint, q.seconds::double precision
     FROM queue q ORDER BY q.come DESC, q.queue LIMIT 100)
  UNION ALL
  SELECT '', coalesce(sum(q.come), 0)::bigint, coalesce(sum(q.done), 0)::bigint,
         coalesce(sum(q.failed), 0)::bigint, coalesce(sum(q.started), 0)::bigint,
         coalesce(sum(q.waited), 0)::bigint, coalesce(sum(q.available), 0)::bigint,
         coalesce(sum(q.running), 0)::bigint, max(q.seconds)::double precision
    FROM queue q
$f$;

-- Takes the sample of this minute, and those of the ten minutes and the hour if it is their first,
-- and deletes old ones. False: there is one, or another session is taking it.
CREATE OR REPLACE FUNCTION posthaste.take_sample(p_now timestamptz DEFAULT clock_timestamp())
RETURNS boolean LANGUAGE plpgsql
SET search_path = pg_catalog, pg_temp AS $f$
DECLARE
  v_span smallint;
BEGIN
  IF current_setting('transaction_isolation') <> 'read committed'
    OR posthaste.is_sampled(1::smallint, p_now) OR NOT pg_try_advisory_xact_lock(1885893476, 7)
    OR posthaste.is_sampled(1::smallint, p_now) THEN
    RETURN false;
  END IF;
  PERFORM set_config('synchronous_commit', 'off', true);
  -- Samples left by a clock that was ahead.
  DELETE FROM posthaste.sample s WHERE s.span IN (1, 10, 60) AND s.at > p_now;
  INSERT INTO posthaste.sample (span, at, queue, come, done, failed, started, waited, available,
                                running, oldest)
  SELECT 1, p_now, s.queue, s.come, s.done, s.failed, s.started, s.waited, s.available, s.running,
         s.oldest
    FROM posthaste.queue_figures(p_now) s;
  FOREACH v_span IN ARRAY '{10,60}'::smallint[] LOOP
    CONTINUE WHEN posthaste.is_sampled(v_span, p_now);
    PERFORM posthaste.roll_up(v_span, p_now);
  END LOOP;
  RETURN true;
END $f$;

-- Makes the sample of these ten minutes or this hour from the finer ones, and deletes old finer
-- ones; not more often, because each deletion scans rows that vacuum may not remove yet.
CREATE OR REPLACE FUNCTION posthaste.roll_up(p_span smallint, p_now timestamptz)
RETURNS void LANGUAGE plpgsql
SET search_path = pg_catalog, pg_temp AS $f$
DECLARE
  v_finer smallint := CASE p_span WHEN 10 THEN 1 ELSE 10 END;
  v_since timestamptz := date_bin(make_interval(mins => p_span), p_now, '2000-01-01 00:00Z')
    - make_interval(mins => p_span);
  v_past timestamptz := least(p_now, posthaste.retention_clock());
BEGIN
  INSERT INTO posthaste.sample (span, at, queue, come, done, failed, started, waited, available,
                                running, oldest)
  SELECT p_span, n.at, n.queue, n.come, n.done, n.failed, n.started, n.waited, m.available,
         m.running, m.oldest
    FROM posthaste.sample n JOIN (
      SELECT s.queue, max(s.available) AS available, max(s.running) AS running,
             max(s.oldest) AS oldest
        FROM posthaste.sample s WHERE s.span = v_finer AND s.at BETWEEN v_since AND p_now
       GROUP BY s.queue) m ON m.queue = n.queue
   WHERE n.span = v_finer AND n.at = p_now;
  DELETE FROM posthaste.sample s WHERE s.span = v_finer AND s.at < v_past
    - CASE v_finer WHEN 1 THEN interval '65 min' ELSE interval '25 h' END;
  DELETE FROM posthaste.sample s WHERE p_span = 60 AND s.span = 60
    AND s.at < v_past - interval '7 days 2 h';
END $f$;
