-- Whether documents of a sync are still made as this digest says, or nothing was said.
SELECT s.documents IS NULL OR s.documents = $2 FROM posthaste.synced s WHERE s.name = $1
