-- What the bench asks of posthaste beside its library: bulk enqueues by plain SQL, and looks from
-- outside.

-- name: preload
INSERT INTO posthaste.job (name, kwargs)
SELECT 'bench.noop', jsonb_build_object('n', 1000000 + n) FROM generate_series(1, $1::bigint) AS n;

-- name: preload_queue
INSERT INTO posthaste.job (name, queue, kwargs)
SELECT 'bench.noop', $2::text, jsonb_build_object('n', 1000000 + n)
  FROM generate_series(1, $1::bigint) AS n;

-- One job for each lane of this many queues: `default` and others.
-- name: touch_lanes
INSERT INTO posthaste.job (name, queue, priority, kwargs)
SELECT 'bench.noop', CASE q WHEN 1 THEN 'default' ELSE 'queue ' || q END, p, '{"n": 0}'
FROM generate_series(1, $1::integer) AS q, generate_series(0, $2::integer - 1) AS p;

-- name: bulk
INSERT INTO posthaste.job (name, kwargs)
SELECT 'bench.noop', jsonb_build_object('n', 1000000 + n)
  FROM (SELECT generate_series(1, $1::bigint) AS n) AS numbers;

-- name: numbered
INSERT INTO posthaste.job (name, scheduled_at, kwargs)
SELECT 'bench.noop', to_timestamp($1::float8), jsonb_build_object('n', $2::bigint + n)
FROM (SELECT generate_series(0, $3::bigint - 1) AS n) AS numbers;

-- Of other names than the bench has: that there is one is what costs.
-- name: route
INSERT INTO posthaste.route (pattern, queue) VALUES ('mail.*', 'mail');

-- name: remaining
SELECT count(*) FROM posthaste.job;

-- name: synced_table
CREATE TABLE page (id bigint PRIMARY KEY, title text, body text);

-- name: sync_table
SELECT posthaste.sync_table('page', delay => '0');

-- name: sync_table_silent
SELECT posthaste.sync_table('page', enqueue => false);

-- name: audit_rows
INSERT INTO page (id, title, body) SELECT n, 'page ' || n, ''
  FROM generate_series(1, $1::bigint) AS n;

-- What a sync would have written, with one word.
-- name: audit_documents
INSERT INTO posthaste.search (index, id, version, pass, token, words)
SELECT 'page', id::text, posthaste_version, 0, 0, 'page'::tsvector FROM page;

-- A title, and some hundred letters of words; each row with its job by the triggers.
-- name: sync_fill
INSERT INTO page (id, title, body)
SELECT n, 'page ' || n, (SELECT string_agg('word' || (n * 7919 * w) % 20011, ' ')
                           FROM generate_series(1, 40) AS w)
FROM generate_series(1, $1::bigint) AS n;

-- name: sync_again
INSERT INTO posthaste.job (name, queue, tag, max_attempts, kwargs)
SELECT 'sync.page', 'sync.page', 'again', NULL, jsonb_build_object('id', id::text) FROM page;

-- Statistics of a busy session arrive late; the sum only grows, so a stable zero is a zero.
-- name: hot_tuples
SELECT coalesce(sum(n_dead_tup), 0)::bigint AS dead,
       coalesce(sum(n_tup_upd + n_tup_del), 0)::bigint AS changed,
       coalesce(sum(n_tup_ins), 0)::bigint AS inserted
FROM pg_stat_user_tables
WHERE schemaname = 'posthaste'
  AND relname ~ '^(ready|claim|job_done|closed_unclaimed|batch_done|batch_split|scheduled|'
                'promote_cursor|counted|opened|left|stats_delta|stats_sum)_[0-9]+$';

-- name: claims
SELECT count(*) AS claims, coalesce(sum(n), 0)::bigint AS jobs
FROM (
  SELECT n FROM posthaste.claim_0 UNION ALL SELECT n FROM posthaste.claim_1
  UNION ALL SELECT n FROM posthaste.claim_2 UNION ALL SELECT n FROM posthaste.claim_3
) AS claim
WHERE n > 0;

-- name: segments
SELECT pg_sequence_last_value('posthaste.ready_current') AS current,
       pg_sequence_last_value('posthaste.ready_low') AS oldest;

-- name: leader
SELECT worker.name FROM posthaste.leader AS leader
       JOIN posthaste.worker AS worker ON worker.id = leader.worker;

-- A burst that is promoted in one segment is counted by it.
-- name: promoted
SELECT greatest((SELECT promoted FROM posthaste.promote_cursor_6 ORDER BY page DESC LIMIT 1),
                (SELECT promoted FROM posthaste.promote_cursor_7 ORDER BY page DESC LIMIT 1), 0);

-- Ten names in each of $2 queues.
-- name: preload_mixed
INSERT INTO posthaste.job (name, queue)
SELECT 'bench.' || n / $2::bigint % 10, 'queue ' || n % $2::bigint
  FROM generate_series(1, $1::bigint) AS n;

-- name: preload_varied
INSERT INTO posthaste.job (name, queue, priority, tag, scheduled_at)
SELECT 'bench.' || n / $2::bigint % 10, 'queue ' || n % $2::bigint,
       (n / $2::bigint / 10 % 3)::integer, 'tag ' || n / $2::bigint / 30 % 4,
  CASE WHEN n / $2::bigint / 120 % 10 = 0 THEN now() + interval '1 day' END
FROM generate_series(1, $1::bigint) AS n;

-- name: register
INSERT INTO posthaste.worker (name) VALUES ('bench') RETURNING id;

-- Each function of the store reads with a snapshot of its own, so the jobs that are closed are
-- those that were claimed.
-- name: claim_and_close
WITH claim AS MATERIALIZED (
  SELECT slot, batch, token, count(*)::integer AS n
  FROM (SELECT gen_random_uuid() AS token OFFSET 0) AS fence,
       LATERAL posthaste.claim('queue ' || $1::bigint, '{0,1,2}', $2::bigint, token, $3::integer,
                               1 << 30)
  GROUP BY slot, batch, token),
closed AS MATERIALIZED (
  SELECT posthaste.close_batches(array_agg(slot), array_agg(batch), array_agg(token),
                                 array_agg(n)) AS rest FROM claim)
SELECT coalesce(sum(n), 0)::bigint AS done FROM claim, closed WHERE rest = '{}';

-- What the leader does about four times a second, in larger steps.
-- name: account
SELECT posthaste.count_new_jobs(100000, 125, 8388608) IS NULL AS more;
