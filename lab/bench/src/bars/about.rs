//! What each bar measures, in the words of the page.

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

/// What is measured and how, in a few sentences.
pub(crate) fn about(name: &str) -> &'static str {
    match name {
        "drain" => {
            "Jobs per second from a full queue until all are done. posthaste runs its whole \
             library. The rivals are bare statements in a loop, on as many connections. The update \
             shape is one row for a job's whole life, as River and Oban keep it. SKIP LOCKED is a \
             table from which done jobs are deleted. \"At 1000\" is the batch size."
        }
        "pinned" => {
            "The drain again, while a long transaction keeps VACUUM from removing dead rows. No \
             bound rests on the rivals."
        }
        "churn" => {
            "Claim times at a steady rate: with nothing else, with a long transaction, and while \
             pg_dump runs. Times are the server's own, of claims that found jobs. Each run checks \
             that the transaction stayed open and that segments rotated."
        }
        "watch" => {
            "A drain with nobody who looks and one beside a console with ten open pages and an \
             exporter that is scraped every five seconds, both processes of their own; then the \
             processor time of the server's sessions while nothing else happens."
        }
        "pages" => {
            "From the request to the last byte of a page of the console, a process of its own, \
             while as many jobs are done as wait. The median of twenty, after a first one that \
             opens its session."
        }
        "paused" => {
            "Disk and processor time of the server while one queue is paused and another works at \
             a constant rate. The last third of the run is compared with the middle third."
        }
        "crowd" => {
            "Two workers and a steady load of a higher priority, with a long transaction open all \
             the time. First comes a backlog; then one statement schedules the crowd for one \
             instant. When half of the crowd is done, the worker that leads maintenance is \
             stopped. Large claims are the slowest ones, as many as the jobs need at 5,000 a claim."
        }
        "enqueue" => {
            "Commits per second of a transaction that enqueues one job, against a bare INSERT of \
             one row. The bound holds for jobs with a name and arguments only."
        }
        "bulk" => {
            "Rows per second of one statement, against a bare table with one index. Beside \
             posthaste's statement a worker runs, and a job of high priority every 250 ms."
        }
        "latency" => {
            "Time from the answer to COMMIT to the handler's first line. \"Commits\" are multiples \
             of the median round trip of a one-row commit in the same run. graphile-worker 0.17.3 \
             runs on Node.js with LISTEN; its time ends when a line from its handler is read."
        }
        "idle" => {
            "Processor time of a worker's process and of its sessions, from 5 s after the last \
             job on. The worker leads maintenance. Each lane has had a job."
        }
        "wal" => {
            "All WAL of the server while a backlog is worked in batches of 100, heartbeats and \
             maintenance included, enqueue excluded."
        }
        "memory" => {
            "Resident memory of a worker's process: its peak in the last fifth of the backlog \
             against that in the second fifth."
        }
        "relay" => {
            "Messages per second to real servers. a is the drain to a consumer that does nothing, \
             b the bare client with the same bytes; one after the other they make 1/(1/a + 1/b). \
             \"Beside\": five times the backlog goes to Sidekiq's Redis, while another relay in \
             the same worker has a Redis that is dead, or takes a second for each answer. The \
             webhook answers after a quarter of a second."
        }
        "two-phase" => {
            "Transfers between two accounts. The chain of requests is five round trips until a \
             transfer is settled (`run_to_settled`), six until it is finished (`run`). The seven \
             updates are those of the protocol that Elastic published, on the same server. The \
             rates are those of `run`. On the hot account each transfer is to another account."
        }
        "sync" => {
            "Rows per second from a table into an index, and of a second sync that verifies them. \
             a is the rate of reading and rendering, b that of the bare library or client; one \
             after the other they make 1/(1/a + 1/b). A direct write is timed as a whole."
        }
        "audit" => {
            "Memory and rate of an audit in Postgres: its peak in the last nine tenths against \
             that in the first tenth. The documents have one word each."
        }
        "counters" => {
            "Milliseconds to read all counts and the age of the oldest job of each queue. The \
             first read of a session also plans the statements."
        }
        _ => "",
    }
}

#[cfg(test)]
mod tests {
    use super::{about, title};

    #[test]
    fn every_bar_has_a_title_and_says_what_it_measures() {
        let is_told = |name: &&str| !title(name).is_empty() && !about(name).is_empty();
        assert!(crate::bars::ORDER.iter().all(is_told));
    }
}
