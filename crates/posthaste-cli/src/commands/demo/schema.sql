-- The tables of the run on real input. Names of files are bytes: a name may hold a newline, and
-- need not be UTF-8.
--   file_run   one run over one folder; committed counts the listed files whose row and job are
--              committed
--   file_list  the files of the folder when the run began, written in one transaction with its
--              file_run
--   file       one row per listed file, committed together with its job and filled in by the worker
-- Two programs may begin at once, so they take turns here.
BEGIN;
SELECT pg_advisory_xact_lock(1885893478, 0);
CREATE TABLE IF NOT EXISTS public.file_run (
  id          bigint      GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
  files       bigint      NOT NULL DEFAULT 0,
  unlisted    bigint      NOT NULL DEFAULT 0,  -- folders that could not be read
  committed   bigint      NOT NULL DEFAULT 0,
  differing   bigint,
  started_at  timestamptz NOT NULL DEFAULT now(),
  finished_at timestamptz,
  folder      bytea       NOT NULL,
  proof       jsonb       -- the result of the comparison; packages may still be loading then
);
CREATE TABLE IF NOT EXISTS public.file_list (
  run  bigint NOT NULL REFERENCES public.file_run ON DELETE CASCADE,
  n    bigint NOT NULL,
  path bytea  NOT NULL,
  PRIMARY KEY (run, n)
);
CREATE TABLE IF NOT EXISTS public.file (
  id        bigint  GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
  run       bigint  NOT NULL REFERENCES public.file_run ON DELETE CASCADE,
  n         bigint  NOT NULL,
  size      bigint,
  attempts  integer,
  worked_at timestamptz,
  path      bytea   NOT NULL,
  sha256    bytea,
  problem   text,         -- why there is no digest
  UNIQUE (run, n)
-- Each row is updated once: its second version fits on the same page.
) WITH (fillfactor = 50);
COMMIT
