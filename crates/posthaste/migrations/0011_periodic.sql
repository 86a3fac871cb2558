-- Periodic jobs: one row each. The leader enqueues their ticks; whoever moves next_at on, in the transaction of the enqueue, is the only one.
CREATE TABLE posthaste.periodic (
  name         text COLLATE "C" PRIMARY KEY CHECK (octet_length(name) BETWEEN 1 AND 255),
  schedule     text        NOT NULL,  -- five fields of cron
  time_zone    text        NOT NULL DEFAULT 'UTC',
  missed       text        NOT NULL DEFAULT 'last' CHECK (missed IN ('all', 'last', 'none')),  -- what is made up for when no leader was there
  job          text        NOT NULL,
  kwargs       jsonb       NOT NULL DEFAULT '{}',
  queue        text,
  priority     integer     NOT NULL DEFAULT 0,
  tag          text        NOT NULL DEFAULT '',
  max_attempts integer              DEFAULT 25,
  next_at      timestamptz            -- the next tick; NULL until a leader has seen the row
);

-- Enqueues these ticks and moves on to the next one, if nobody did so before and the schedule is still the same; how many jobs. A row that somebody
-- is just changing is left for later.
CREATE FUNCTION posthaste.tick(p_name text, p_schedule text, p_zone text, p_at timestamptz, p_ticks timestamptz[], p_next timestamptz) RETURNS bigint LANGUAGE plpgsql AS $f$
DECLARE
  p posthaste.periodic;
  v_tick timestamptz;
BEGIN
  SELECT * INTO p FROM posthaste.periodic
   WHERE name = p_name AND schedule = p_schedule AND time_zone = p_zone AND next_at IS NOT DISTINCT FROM p_at FOR UPDATE SKIP LOCKED;
  IF NOT FOUND THEN
    RETURN 0;
  END IF;
  UPDATE posthaste.periodic SET next_at = p_next WHERE name = p_name;
  FOREACH v_tick IN ARRAY p_ticks LOOP
    PERFORM posthaste.enqueue(p.job, p.kwargs, p.queue, p.priority, v_tick, greatest(v_tick, clock_timestamp()) + interval '30 days', p.tag, NULL,
                              p.max_attempts);
  END LOOP;
  RETURN cardinality(p_ticks);
END $f$;
