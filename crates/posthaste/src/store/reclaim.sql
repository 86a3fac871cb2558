-- Truncates the oldest segment if every row of it is closed. The session remembers how far it has
-- verified this store, for itself only: a server that crashed in between may have lost
-- acknowledgements, and its sessions with them. Through a pooler, the steps of one verification run
-- in several sessions, and each continues from its own position.
SELECT r.o_state, r.o_batch, r.o_blocker,
       CASE WHEN r.o_state <> 'none'
            THEN set_config('posthaste.verified', pg_catalog.concat(this, ':', r.o_batch),
                            false) END
  FROM pg_catalog.concat($1::bigint, '@', 'posthaste.store'::regclass::oid) this,
       current_setting('posthaste.verified', true) known,
       posthaste.reclaim($1::bigint, CASE WHEN split_part(known, ':', 1) = this
                                     THEN split_part(known, ':', 2)::bigint
                                     ELSE 0 END, $2::integer) r
