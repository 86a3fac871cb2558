-- Workers that have ended within the last day, newest first.
SELECT w.id, w.name, w.started_at, w.stopped_at, w.clean
  FROM posthaste.worker w WHERE w.stopped_at IS NOT NULL
 ORDER BY w.stopped_at DESC, w.id DESC LIMIT 20
