SELECT path FROM public.file WHERE id = $1
