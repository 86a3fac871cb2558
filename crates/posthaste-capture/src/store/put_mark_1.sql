-- Writes the position of a capture.
INSERT INTO posthaste.capture_mark_1 (done, commit, record, row, epoch, events, bytes)
VALUES ($1::text::pg_lsn, $2::text::pg_lsn, $3::text::pg_lsn, $4, $5, $6, $7)
