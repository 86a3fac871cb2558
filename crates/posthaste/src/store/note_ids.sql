-- Remembers which job ids were drawn, for the day on which this server is lost.
SELECT posthaste.note_ids()
