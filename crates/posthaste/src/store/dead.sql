-- Dead jobs in the shape of posthaste.find(). A condition that is NULL is ignored. $7 is 1 for the
-- oldest deaths first, -1 for the newest.
SELECT pg_catalog.row_to_json(a)::text AS answer
  FROM (SELECT k.*, posthaste.delivery_id(k.id) AS delivery_id
          FROM (SELECT d.id, d.name, d.queue, d.priority, d.scheduled_at, d.expires_at,
                       d.enqueued_at, d.tag, d.kwargs, d.unique_key, d.ordering_key, d.trace,
                       d.attempt, d.max_attempts, d.state, d.last_error, NULL::bigint AS worker,
                       NULL::text AS worker_name, NULL::timestamptz AS claimed_at,
                       d.died_at AS ended_at
                  FROM posthaste.dead d
                 WHERE ($1::bigint[] IS NULL OR d.id = ANY ($1::bigint[]))
                   AND ($2::text IS NULL OR d.queue = $2::text)
                   AND ($3::text IS NULL OR d.name = $3::text)
                   AND ($4::text IS NULL OR d.tag = $4::text)
                   AND ($5::text IS NULL OR d.state = $5::text)
                   AND ($6::text IS NULL OR d.last_error LIKE $6::text)
                 ORDER BY extract(epoch FROM d.died_at) * $7::numeric, d.id * $7::bigint
                 LIMIT $8::bigint) k) a
 ORDER BY extract(epoch FROM a.ended_at) * $7::numeric, a.id * $7::bigint
