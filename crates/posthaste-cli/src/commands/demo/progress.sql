SELECT count(*) AS rows, count(*) FILTER (WHERE worked_at IS NOT NULL) AS worked,
       count(*) FILTER (WHERE attempts > 1) AS retried,
       count(*) FILTER (WHERE problem IS NOT NULL) AS unreadable,
       coalesce(sum(size), 0)::bigint AS bytes
  FROM public.file WHERE run = $1
