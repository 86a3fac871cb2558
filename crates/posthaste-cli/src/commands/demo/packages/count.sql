-- The documents that should be found, computed by Postgres: their number, and a digest of keys and
-- versions.
SELECT count(*),
       encode(sha256(convert_to(coalesce(
         string_agg(p.name || ' ' || p.posthaste_version::text || E'\n', ''
                    ORDER BY p.name COLLATE "C"), ''),
                               'UTF8'::name)), 'hex')
  FROM public.package p WHERE NOT p.hidden
