-- Advances the counts of a load, in the transaction of its rows.
UPDATE public.package_run r SET (loaded, changed, deleted) =
  ROW ($2::bigint, r.changed + $3::bigint, r.deleted + $4::bigint) WHERE r.id = $1
