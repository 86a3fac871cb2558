-- The positions of the segments.
SELECT ready_low, ready_scan, ready_current, overflow_low, overflow_scan, overflow_current,
       scheduled_low, scheduled_current FROM posthaste.segments()
