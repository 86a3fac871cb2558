SELECT count(*) AS rows, count(worked_at) AS worked, count(*) FILTER (WHERE attempts > 1) AS retried,
       count(*) FILTER (WHERE problem IS NOT NULL) AS unreadable, coalesce(sum(size), 0)::bigint AS bytes
  FROM public.file WHERE run = $1
