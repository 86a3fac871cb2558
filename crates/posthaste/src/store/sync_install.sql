-- The statement that prepares a synced table, with its literals: what is shown is what is run.
SELECT format('SELECT posthaste.sync_table(%L, key => %L, version => %L, name => %L, deleted => %L, delay => %L, draw => %L, enqueue => %L)',
              $1::text, $2::text, $3::text, $4::text, $5::text, make_interval(secs => $6::bigint / 1000.0), $7::boolean, $8::boolean)
