-- The settings of the server that a capture requires.
SELECT current_setting('wal_level'::text) AS wal_level,
       current_setting('server_version_num'::text)::integer AS version,
       (SELECT r.rolreplication OR r.rolsuper FROM pg_roles r WHERE r.rolname = current_user)
         AS may_replicate,
       current_setting('max_replication_slots'::text)::bigint
         - (SELECT count(*) FROM pg_replication_slots) AS slots_left,
       current_setting('max_wal_senders'::text)::bigint AS senders
