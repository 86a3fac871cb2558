-- Truncates the oldest segment when every row of it is closed. How far it was verified is
-- remembered by the session that verified it, of this store, and counts nowhere else: a server that
-- crashed in between may have forgotten acknowledgements, and its sessions with them. Behind a
-- pooler the steps of one verification meet several sessions, and each goes on from its own.
SELECT r.o_state, r.o_batch, r.o_blocker,
       CASE WHEN r.o_state <> 'none'
            THEN set_config('posthaste.verified', pg_catalog.concat(this, ':', r.o_batch),
                            false) END
  FROM pg_catalog.concat($1::bigint, '@', 'posthaste.store'::regclass::oid) this,
       current_setting('posthaste.verified', true) known,
       posthaste.reclaim($1::bigint, CASE WHEN split_part(known, ':', 1) = this
                                     THEN split_part(known, ':', 2)::bigint
                                     ELSE 0 END, $2::integer) r
