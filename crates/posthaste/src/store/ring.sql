-- Where the ring stands.
SELECT ready_low, ready_scan, ready_current, aside_low, aside_scan, aside_current, parked_low, parked_current FROM posthaste.ring()
