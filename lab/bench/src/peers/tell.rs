//! The comparison in words and as a table.

use std::collections::BTreeMap;
use std::fmt::Write as _;

use super::options::Sizes;
use super::roster::Peer;
use super::rows::{ROWS, Row};
use crate::report::{Bar, figures_of};

/// The heading of a row.
pub(super) fn title(row: Row) -> &'static str {
    match row {
        Row::Single => "real queues, one job per commit on eight connections",
        Row::Bulk => "real queues, very many jobs by the fastest way of each",
        Row::Drain => "real queues, a backlog worked by one process",
        Row::Slow => "real queues, from commit to start at 50 jobs a second",
        Row::Fast => "real queues, from commit to start at 2,000 jobs a second",
        Row::Pinned => "real queues, 2,000 jobs a second under an open snapshot",
    }
}

/// What a row of this name measures; empty for other names.
pub(crate) fn about(name: &str) -> &'static str {
    match row(name) {
        Some(Row::Single) => {
            "Each queue runs by its own library, in a separate process, with acknowledgements \
             and in its documented fastest settings. Server CPU is that of all processes of \
             Postgres; process CPU that of the adapter."
        }
        Some(Row::Bulk) => "Rows are those that workers can take afterwards.",
        Some(Row::Drain) => "Until the last handler begins; costs until all is acknowledged.",
        Some(Row::Slow | Row::Fast) => {
            "From the answer to COMMIT to the handler's first line, in one worker; costs include \
             the enqueue. Transactions are those of the processes' whole lives. A queue that took \
             less than 90 % of the offer is not compared."
        }
        Some(Row::Pinned) => {
            "The horizon is held by an idle REPEATABLE READ transaction. Blocks are those that \
             all statements of the queue touched."
        }
        None => "",
    }
}

/// The figures of a row that tables show.
pub(crate) fn figures(name: &str) -> &'static [(&'static str, &'static str)] {
    match row(name) {
        Some(Row::Single | Row::Bulk | Row::Drain) => &[
            ("jobs_per_second", "jobs per second"),
            ("server_us_per_job", "server CPU µs per job"),
            ("process_us_per_job", "process CPU µs"),
            ("wal_bytes_per_job", "WAL bytes"),
            ("statements_per_job", "statements"),
        ],
        Some(Row::Slow | Row::Fast) => &[
            ("start_p50_ms", "p50 ms"),
            ("start_p99_ms", "p99 ms"),
            ("offered_percent", "% offered"),
            ("server_us_per_job", "server CPU µs per job"),
            ("process_us_per_job", "process CPU µs"),
            ("wal_bytes_per_job", "WAL bytes"),
            ("statements_per_job", "statements"),
            ("commits_per_job", "transactions"),
        ],
        Some(Row::Pinned) => &[
            ("first_p50_ms", "p50 ms, first third"),
            ("last_p50_ms", "last third"),
            ("last_p99_ms", "p99 ms, last third"),
            ("offered_percent", "% offered"),
            ("first_blocks_per_job", "blocks per job, first third"),
            ("last_blocks_per_job", "last third"),
            ("server_us_per_job", "server CPU µs per job"),
        ],
        None => &[],
    }
}

fn row(name: &str) -> Option<Row> {
    ROWS.into_iter().find(|row| row.name() == name)
}

/// The position of a row of this name; `None` for other names.
pub(crate) fn place(name: &str) -> Option<usize> {
    ROWS.iter().position(|row| row.name() == name)
}

pub(super) fn parameters(row: Row, sizes: Sizes) -> Vec<(&'static str, u64)> {
    match row {
        Row::Single | Row::Slow | Row::Fast => vec![("seconds", sizes.seconds)],
        Row::Bulk => vec![("rows", sizes.rows)],
        Row::Drain => vec![("jobs", sizes.backlog)],
        Row::Pinned => vec![("seconds", sizes.pinned_seconds)],
    }
}

/// The peers with their versions, settings and differences.
pub(super) fn contestants(peers: &[Peer], versions: &BTreeMap<&str, String>) -> String {
    let told = peers.iter().map(|peer| {
        let version = versions.get(peer.name).map_or("", String::as_str);
        let apart = match peer.apart {
            "" => String::new(),
            apart => format!("; not comparable: {apart}"),
        };
        let smaller = match peer.smaller {
            1 => String::new(),
            times => format!("; backlog {times} times smaller"),
        };
        format!(
            "{} {version} ({}{smaller}{apart})",
            peer.name, peer.settings
        )
    });
    format!("{}.", told.collect::<Vec<String>>().join(", "))
}

/// All rows for the terminal.
pub(super) fn table(bars: &[Bar]) -> String {
    let mut text = String::new();
    for bar in bars {
        let _ = writeln!(text, "\n{}: {}", bar.name, bar.title);
        for note in &bar.notes {
            let _ = writeln!(text, "{note}");
        }
        figures_of(&mut text, bar);
    }
    text
}

#[cfg(test)]
mod tests {
    use super::{ROWS, about, figures, place, title};

    #[test]
    fn every_row_has_a_title_and_a_description() {
        for row in ROWS {
            let name = row.name();
            assert!(!title(row).is_empty() && !about(name).is_empty(), "{name}");
            assert!(!figures(name).is_empty() && place(name).is_some(), "{name}");
        }
        assert!(about("drain").is_empty() && place("drain").is_none());
    }
}
