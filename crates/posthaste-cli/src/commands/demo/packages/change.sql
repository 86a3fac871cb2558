-- What people do meanwhile: of the rows so far some get another text, some are hidden or shown
-- again. Which ones, their names and the turn say.
UPDATE public.package p
   SET summary = p.summary || ' (' || $1::bigint::text || ')',
       hidden = p.hidden <> (abs(hashtext(p.name)::bigint) % 3::bigint = 0)
 WHERE abs(hashtext(p.name)::bigint) % 211::bigint = $1 % 211::bigint
