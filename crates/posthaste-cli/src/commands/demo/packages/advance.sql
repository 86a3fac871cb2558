-- This many are committed with this transaction.
UPDATE public.package_run r SET (loaded, changed, deleted) =
  ROW ($2::bigint, r.changed + $3::bigint, r.deleted + $4::bigint) WHERE r.id = $1
