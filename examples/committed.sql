-- What an example should have left: its two jobs, each with whether the id is the one that it was
-- told, the arguments are those of the customer, and the time is right. Variables: name (the
-- customer's), welcome and reminder (ids).
SELECT j.name, j.queue, j.state,
       j.id = CASE j.name WHEN 'mail.welcome' THEN :welcome WHEN 'mail.reminder' THEN :reminder END,
       j.kwargs = CASE j.name WHEN 'mail.welcome'
                                THEN jsonb_build_object('customer', c.id, 'to', c.name)
                              WHEN 'mail.reminder' THEN jsonb_build_object('customer', c.id) END,
       CASE j.name WHEN 'mail.welcome'
                     THEN j.scheduled_at BETWEEN now() - interval '1 minute' AND now()
                   WHEN 'mail.reminder' THEN j.scheduled_at = c.remind_at
                        AND j.scheduled_at BETWEEN now() + interval '23:59'
                                             AND now() + interval '24:01' END
  FROM posthaste.job j LEFT JOIN customer c ON c.name = :'name'
   AND c.id = (j.kwargs->>'customer')::bigint
 WHERE c.id IS NOT NULL OR j.id IN (:welcome, :reminder)
 ORDER BY j.id;
