-- Writes very many jobs. Values that differ by row are sent: a volatile default would make COPY
-- insert row by row.
COPY posthaste.store (slot, queue, name, priority, enqueued_at, scheduled_at, expires_at, tag,
                      max_attempts, kwargs_bytes, kwargs,
                      ordering_key, own_queue, own_priority, trace) FROM STDIN (FORMAT binary)
