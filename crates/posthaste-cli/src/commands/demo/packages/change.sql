-- Changes made by users meanwhile: some of the loaded rows get another text, some are hidden or
-- shown again, selected by name and number of the change.
UPDATE public.package p
   SET summary = p.summary || ' (' || $1::bigint::text || ')',
       hidden = p.hidden <> (abs(hashtext(p.name)::bigint) % 3::bigint = 0)
 WHERE abs(hashtext(p.name)::bigint) % 211::bigint = $1 % 211::bigint
