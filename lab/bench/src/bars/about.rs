//! Descriptions of the bars for the page.

/// The heading of a bar on the page.
pub(super) fn title(name: &str) -> &'static str {
    match name {
        "drain" => "a backlog through the library, no-op handler, full lifecycle",
        "pinned" => "the same backlog while a REPEATABLE READ transaction stays open",
        "churn" => "a steady load after spent jobs: free, pinned, and beside a real pg_dump",
        "paused" => "a queue that nobody works, beside a steady load on another",
        "crowd" => "very many jobs of one instant, pinned, with another leader half-way",
        "enqueue" => "one job per commit on eight connections",
        "bulk" => "very many jobs by one INSERT ... SELECT",
        "latency" => "from commit to start at a low rate",
        "idle" => "what a worker without jobs costs",
        "wal" => "WAL of claim and acknowledgement at batches of 100",
        "memory" => "the worker's memory over a long backlog",
        "relay" => "a backlog sent to the workers that people run",
        "two-phase" => "transfers between two documents of OpenSearch",
        "sync" => "an index made true to its table, and seen to be",
        "audit" => "very many rows held against their documents",
        "counters" => "all counters while very many jobs wait",
        "watch" => "ten open consoles and a scrape every five seconds",
        "pages" => "the console's pages while very many jobs wait",
        _ => "",
    }
}

/// What a bar measures and how, in a few sentences.
pub(crate) fn about(name: &str) -> &'static str {
    match name {
        "drain" => {
            "Jobs per second until a full queue is empty, through the whole library. The rivals \
             are bare statements in a loop, on as many connections; River and Oban themselves \
             were not run. The update shape is one row for a job's whole life, as theirs is. SKIP \
             LOCKED deletes done jobs. \"At 1000\" is the batch size; posthaste chooses its own \
             (wal has it at 100)."
        }
        "pinned" => "The drain while a long transaction keeps VACUUM from removing dead rows.",
        "churn" => {
            "The server's own times of claims that found jobs, at a steady rate: alone, with a \
             long transaction, and while pg_dump runs."
        }
        "watch" => {
            "A drain with nobody who looks and one beside a console with ten open pages and an \
             exporter that is scraped every five seconds, both processes of their own; then the \
             processor time of the server's sessions while nothing else happens. Single drains \
             differ by more than watching costs: the share of the processor time, in the same \
             run, does not."
        }
        "pages" => {
            "From the request to the last byte of a page of the console, a process of its own, \
             while as many jobs are done as wait. The median of twenty, after a first one that \
             opens its session."
        }
        "paused" => "The server's disk and processor time meanwhile.",
        "crowd" => {
            "Two workers and a steady load of a higher priority, under one long transaction. \
             First comes a backlog; then one statement schedules the crowd for one instant. \
             Half-way, the worker that leads maintenance is stopped. Large claims are the slowest \
             ones, as many as the jobs need at 5,000 a claim."
        }
        "enqueue" => {
            "Commits per second of a transaction that enqueues one job, against a bare INSERT. \
             The bound holds for jobs with a name and arguments only."
        }
        "bulk" => {
            "Rows per second of one statement, against a bare table with one index. Meanwhile a \
             worker runs, and a job of high priority every 250 ms."
        }
        "latency" => {
            "Time from the answer to COMMIT to the handler's first line. \"Commits\" are \
             multiples of the median round trip of a one-row commit in the same run. \
             graphile-worker 0.17.3 runs on Node.js with LISTEN; its time ends when a line from \
             its handler is read."
        }
        "idle" => {
            "Processor time of a worker's process and its sessions, from 5 s after the last job. \
             The worker leads maintenance."
        }
        "wal" => {
            "All WAL of a backlog's work: heartbeats and maintenance included, enqueue excluded."
        }
        "memory" => {
            "Peak of a worker's resident memory in the last fifth of the backlog against the \
             second fifth."
        }
        "relay" => {
            "Messages per second to real servers. a is the drain to a consumer that does nothing, \
             b the bare client with the same bytes. One after the other, both would do \
             1/(1/a + 1/b) a second: 100 %. \"Beside\": five times the backlog goes to Sidekiq's \
             Redis, while another relay in the worker has a Redis that is dead, or answers after \
             a second. The webhook answers after a quarter of a second."
        }
        "two-phase" => {
            "The requests alone are five round trips until a transfer is settled \
             (`run_to_settled`), six until it is finished (`run`). The seven updates are the \
             protocol that Elastic published. Rates are those of `run`. On the hot account each \
             transfer is to another account."
        }
        "sync" => {
            "Rows per second into an index, and of a second sync that verifies them. a is the \
             rate of reading and rendering, b that of the bare library or client. One after the \
             other, both would do 1/(1/a + 1/b) a second: 100 %."
        }
        "audit" => {
            "An audit of an index in Postgres: peak memory in the last nine tenths against the \
             first tenth. The documents have one word each."
        }
        "counters" => "Time to read all counts and the age of the oldest job of each queue.",
        _ => "",
    }
}

/// The figures of a bar that the page shows with its requirements, and their labels.
pub(crate) fn figures(name: &str) -> &'static [(&'static str, &'static str)] {
    match name {
        "drain" => &[
            ("jobs_per_second", "jobs per second"),
            ("cpu_microseconds_per_job", "CPU µs per job"),
            ("wal_bytes_per_job", "WAL bytes per job"),
        ],
        "pinned" | "wal" => &[
            ("jobs_per_second", "jobs per second"),
            ("wal_bytes_per_job", "WAL bytes per job"),
        ],
        "churn" => &[
            ("claim_p50_ms", "claim p50 ms"),
            ("claim_p99_ms", "claim p99 ms"),
            ("enqueue_to_start_p99_ms", "enqueue to start p99 ms"),
            ("truncations", "truncations"),
        ],
        "paused" => &[
            ("disk_peak_mib", "peak MiB of disk"),
            ("truncations", "truncations"),
        ],
        "crowd" => &[
            ("worked_per_second", "jobs worked per second"),
            ("longest_pause_ms", "longest pause ms"),
            (
                "parking_start_p99_ms",
                "start p99 ms while the crowd is scheduled",
            ),
            ("parking_start_slowest_ms", "slowest then"),
            ("crowd_start_slowest_ms", "slowest start beside the crowd"),
        ],
        "enqueue" => &[
            ("commits_per_second", "commits per second"),
            ("p50_ms", "p50 ms"),
            ("p99_ms", "p99 ms"),
        ],
        "bulk" => &[("rows_per_second", "rows per second")],
        "latency" => &[
            ("start_p50_ms", "start p50 ms"),
            ("start_p99_ms", "start p99 ms"),
            ("start_slowest_ms", "slowest ms"),
        ],
        "memory" => &[("resident_peak_mib", "peak MiB of memory")],
        "relay" => &[
            ("drained_per_second", "a: drained per second"),
            ("bare_per_second", "b: bare client per second"),
            ("relayed_per_second", "relayed per second"),
            ("resident_peak_mib", "peak MiB of memory"),
        ],
        "two-phase" => &[
            ("settled_ms", "settled ms"),
            ("finished_ms", "finished ms"),
            ("seven_ms", "seven updates ms"),
            ("transfers_per_second", "transfers per second"),
            ("p99_ms", "p99 ms"),
        ],
        "sync" => &[
            ("read_per_second", "a: read per second"),
            ("bare_per_second", "b: bare per second"),
            ("written_per_second", "written per second"),
            ("verified_per_second", "verified per second"),
        ],
        "audit" => &[
            ("resident_peak_mib", "peak MiB of memory"),
            ("rows_per_second", "rows per second"),
        ],
        _ => &[],
    }
}

#[cfg(test)]
mod tests {
    use super::{about, title};

    #[test]
    fn every_bar_has_a_title_and_a_description() {
        let is_told = |name: &&str| !title(name).is_empty() && !about(name).is_empty();
        assert!(crate::bars::ORDER.iter().all(is_told));
    }
}
