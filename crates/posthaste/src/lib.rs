//! posthaste: the transactional gate between Postgres and everything behind it.
