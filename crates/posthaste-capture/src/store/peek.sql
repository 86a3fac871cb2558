-- The next changes of a slot, without consuming them.
SELECT p.lsn::text, p.data
  FROM pg_catalog.pg_logical_slot_peek_binary_changes($1::text::name, NULL, $2,
                                                      VARIADIC $3::text[]) p
