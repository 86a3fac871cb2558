-- Whether the documents of a sync are still made as this digest describes, or no digest is
-- recorded.
SELECT s.documents IS NULL OR s.documents = $2 FROM posthaste.synced s WHERE s.name = $1
