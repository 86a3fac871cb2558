-- Installs a capture here; a new epoch if it exists.
INSERT INTO posthaste.capture (epoch, slot, publication, published, name, identity)
SELECT $1::uuid, $2::text, $3::text,
       (SELECT p.oid FROM pg_publication p WHERE p.pubname = $3::text::name),
       $4::text, ARRAY[i.now[1], i.now[2], i.now[4]]
  FROM (SELECT posthaste.current_identity() AS now) i
    ON CONFLICT (name) DO UPDATE
   SET epoch = excluded.epoch, runner = NULL, stopped = NULL, slot = excluded.slot,
       publication = excluded.publication, published = excluded.published,
       identity = excluded.identity
