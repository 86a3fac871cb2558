-- Tells enqueuers how far the promoter is going to look, when a job is due; how long none is, in milliseconds.
SELECT CASE WHEN posthaste.tell_due() THEN 0
            ELSE ceil(extract(epoch FROM posthaste.due_in($1::bigint * interval '1 millisecond')) * 1000)::bigint END
