-- The tables of the run that syncs an index.
--   package      one row per package, written together with its index job by the triggers of
--                posthaste.sync_table
--   package_run  one load: its total rows, and those committed, counted in the transactions of the
--                rows; the changes made meanwhile, and the kills of its process
-- Two programs may begin at once, so they take turns here.
BEGIN;
SELECT pg_advisory_xact_lock(1885893478, 0);
CREATE TABLE IF NOT EXISTS public.package (
  posthaste_version bigint NOT NULL DEFAULT 0,
  hidden  boolean NOT NULL DEFAULT false,
  name    text    PRIMARY KEY,
  release text,
  section text,
  summary text,
  details text
) WITH (fillfactor = 80); -- some rows are changed meanwhile
COMMENT ON COLUMN public.package.posthaste_version IS 'posthaste: versions of rows';
CREATE TABLE IF NOT EXISTS public.package_run (
  id      bigint  GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
  total   bigint  NOT NULL,
  loaded  bigint  NOT NULL DEFAULT 0,
  changed bigint  NOT NULL DEFAULT 0,
  deleted bigint  NOT NULL DEFAULT 0,
  kills   integer NOT NULL DEFAULT 0,
  removed bigint  NOT NULL DEFAULT 0,  -- documents that were removed from the index
  proven_at timestamptz,               -- a load without it is continued
  source  text    NOT NULL
);
COMMIT
