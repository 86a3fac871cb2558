SELECT w.id, w.is_written
  FROM posthaste.search_write($1, $2::text::regconfig, $3, $4, $5, $6, $7, $8) w
