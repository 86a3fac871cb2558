-- The existing rows, as lines of changes.
SELECT pg_catalog.jsonb_build_object('payload'::text, pg_catalog.jsonb_build_object(
         'operation'::text, 'read'::text, 'after'::text, pg_catalog.jsonb_build_object(
           'name'::text, p.name, 'hidden'::text, p.hidden,
           'posthaste_version'::text, p.posthaste_version)))::text
  FROM public.package p
