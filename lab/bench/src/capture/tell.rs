//! Descriptions of the rows.

use super::ROWS;

/// The heading of a row.
pub(super) fn title(name: &str) -> &'static str {
    match name {
        "capture-backlog" => "a backlog of captured transactions, sent to a Redis",
        "capture-300" => "captured events at 300 a second",
        "capture-large" => "one large transaction",
        "capture-dead" => "1,000 events a second while their destination is dead",
        "capture-copy" => "very many rows copied beside changes of them",
        "capture-pinned" => "captures under an open snapshot",
        _ => "",
    }
}

/// What a row measures; empty for other names.
pub(crate) fn about(name: &str) -> &'static str {
    match name {
        "capture-backlog" => {
            "Events per second from the first arrival to the last, of transactions of one row. \
             \"File\" decodes and maps the same events into a file. Debezium is its engine 3.6.1 \
             with EventRouter, which writes JSON by pipelined XADD; posthaste writes Sidekiq's \
             jobs by LPUSH. Each runs in a separate process."
        }
        "capture-300" => {
            "From the answer to COMMIT to the arrival in a Redis. Server CPU and WAL are the \
             writer's and the path's together; \"own outbox\" is an insert into `posthaste.outbox` \
             and an ordered relay."
        }
        "capture-large" => {
            "The highest resident memory of the process while one transaction passes it, and how \
             long after the commit it was done."
        }
        "capture-dead" => {
            "A Redis is killed under the load and started again; events become jobs meanwhile. \
             The p99 of commits is compared with that before."
        }
        "capture-copy" => {
            "A table becomes jobs while its rows are changed. Stale is a row that came older after \
             a newer one."
        }
        "capture-pinned" => {
            "Rows that captures updated or deleted in their tables of marks at 300 events a second."
        }
        _ => "",
    }
}

/// The figures of a row that tables show.
pub(crate) fn figures(name: &str) -> &'static [(&'static str, &'static str)] {
    match name {
        "capture-backlog" => &[
            ("events_per_second", "events per second"),
            ("sender_us_per_event", "sender CPU µs per event"),
            ("server_us_per_event", "server CPU µs"),
        ],
        "capture-300" => &[
            ("p50_ms", "p50 ms"),
            ("p99_ms", "p99 ms"),
            ("server_us_per_event", "server CPU µs per event"),
            ("sender_us_per_event", "sender CPU µs"),
            ("wal_bytes_per_event", "WAL bytes"),
            ("commit_p99_ms", "p99 ms of commits"),
        ],
        "capture-large" => &[
            ("wal_mib", "WAL MiB"),
            ("memory_before_mib", "memory before MiB"),
            ("seconds_after_commit", "seconds after the commit"),
        ],
        "capture-dead" => &[
            ("unconfirmed_mib", "most unconfirmed MiB"),
            ("commit_p99_ms", "p99 ms of commits"),
            ("repeated", "events that came again"),
        ],
        "capture-copy" => &[
            ("changes", "changes meanwhile"),
            ("sender_us_per_row", "sender CPU µs per row"),
        ],
        "capture-pinned" => &[],
        _ => &[],
    }
}

/// The position of a row of this name; `None` for other names.
pub(crate) fn place(name: &str) -> Option<usize> {
    ROWS.iter().position(|row| *row == name)
}

#[cfg(test)]
mod tests {
    use super::{ROWS, about, place, title};

    #[test]
    fn every_row_has_a_title_and_a_description() {
        for row in ROWS {
            assert!(!title(row).is_empty() && !about(row).is_empty(), "{row}");
            assert!(place(row).is_some(), "{row}");
        }
        assert!(about("drain").is_empty() && place("drain").is_none());
    }
}
