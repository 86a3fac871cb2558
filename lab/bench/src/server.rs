//! The private Postgres of one run of the bench, on the measured disk.

use std::fs;
use std::os::unix::fs::MetadataExt;
use std::path::Path;

use anyhow::Result;
use posthaste_testkit::{PgServer, PgVersion};

/// The settings of every contestant. Durability is on; checkpoints are rare enough not to decide a
/// round; autovacuum wakes often, because it would be unfair to a rival that waits a minute for it.
const SETTINGS: &[(&str, &str)] = &[
    ("fsync", "on"),
    ("synchronous_commit", "on"),
    ("full_page_writes", "on"),
    ("jit", "off"),
    ("shared_buffers", "1GB"),
    ("work_mem", "16MB"),
    ("maintenance_work_mem", "256MB"),
    ("max_connections", "64"),
    ("max_wal_size", "32GB"),
    ("min_wal_size", "2GB"),
    ("checkpoint_timeout", "1h"),
    ("autovacuum", "on"),
    ("autovacuum_naptime", "5s"),
    ("autovacuum_max_workers", "3"),
    ("max_prepared_transactions", "8"),
    ("log_min_messages", "warning"),
    // Parsed by `claims.rs`: seconds since the epoch, the session's name, its transaction's ID or
    // 0.
    ("log_line_prefix", "%n %a %x "),
    ("log_parameter_max_length", "0"),
];

/// Starts a server below this folder.
pub(crate) fn start(version: PgVersion, parent: &Path) -> Result<PgServer> {
    start_with(version, parent, &[])
}

/// As [`start`], with more settings, which override the others.
pub(crate) fn start_with(
    version: PgVersion,
    parent: &Path,
    settings: &[(&str, &str)],
) -> Result<PgServer> {
    PgServer::start_below(parent, version, &[SETTINGS, settings].concat())
}

/// The type of the file system of a folder: on a tmpfs, fsync would measure nothing.
pub(crate) fn file_system(folder: &Path) -> Result<String> {
    let device = fs::metadata(folder)?.dev();
    let mounts = fs::read_to_string("/proc/mounts")?;
    Ok(mounts
        .lines()
        .rev()
        .filter_map(|line| {
            let mut fields = line.split(' ').skip(1);
            Some((fields.next()?, fields.next()?))
        })
        .find(|(point, _)| fs::metadata(point).is_ok_and(|found| found.dev() == device))
        .map_or_else(|| "unknown".to_owned(), |(_, kind)| kind.to_owned()))
}
