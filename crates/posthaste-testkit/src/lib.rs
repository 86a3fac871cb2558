//! Starts real servers, cuts connections, checks histories. For tests only.
