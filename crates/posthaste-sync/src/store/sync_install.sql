-- The statement that installs a sync, with its literals: the text shown is the text that runs.
SELECT pg_catalog.format('SELECT posthaste.sync_table(%L, key => %L, version => %L, name => %L, '
              'deleted => %L, delay => %L, draw => %L, enqueue => %L%s, documents => %L)',
              $1::text, $2::text, $3::text, $4::text, $5::text,
              $6::bigint::float8 * interval '1 millisecond', $7::boolean, $8::boolean,
              CASE WHEN $9::boolean THEN ', always => true' ELSE '' END, $10::text)
