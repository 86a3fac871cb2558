-- Segments of the ready log that are in use, and how many of them are full and wait to be emptied.
SELECT r.ready_current - r.ready_low + 1, r.ready_scan - r.ready_low FROM posthaste.segments() r
