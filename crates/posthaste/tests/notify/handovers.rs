//! Each event that hands work over on an otherwise idle system, in one file because all are judged
//! alike: with a notifier none of them waits for a worker's next poll, which comes after up to a
//! second.

mod asked;
mod killed;

use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use posthaste::{Backoff, Config, Outcome, QueueConfig, WorkerHandle};
use posthaste_testkit::{PgVersion, Proxy, Sql as _, TestDb, TestResult, eventually, ran};
use tokio::sync::mpsc::{UnboundedReceiver, unbounded_channel};
use tokio_postgres::{Client, NoTls};

use super::{LISTENER, all_asleep};
use crate::support::{SOON, all_done, database, hand, number, worker};

/// A wake-up takes a few milliseconds; a wait for a poll takes half a second on average.
const WOKEN: Duration = Duration::from_millis(300);
/// The limit without notifications, while polling is as frequent as without a notifier, or a little
/// less.
const POLLED: Duration = Duration::from_millis(600);
/// The limit without notifications, while polling runs once a second.
const LOOKED: Duration = Duration::from_millis(1_600);
/// A machine on which one round trip takes this much longer than expected proves nothing about a
/// wake-up, which takes approximately six of them.
const SLOW: Duration = Duration::from_millis(40);
/// Each event is played this often, and judged by the median. If that is too slow it is played as
/// often as the second number: a wait for a poll does not disappear, a stalled machine does.
const TIMES: [usize; 2] = [5, 15];

/// A system, and the times at which jobs started.
struct Played {
    db: TestDb,
    client: Client,
    worker: WorkerHandle,
    started: UnboundedReceiver<Instant>,
}

impl Played {
    /// Starts a worker with a notifier and ordinary settings, which retries soon.
    async fn new() -> Self {
        let db = database(PgVersion::any()).await;
        let client = db.client().await.unwrap();
        let url = db.url().to_owned();
        let (worker, started) = started(&db, &url).await;
        Self {
            db,
            client,
            worker,
            started,
        }
    }

    async fn run(&self, sql: &str) {
        self.client.run(sql).await.expect(sql);
    }

    /// Returns when the next job started.
    async fn next(&mut self) -> Instant {
        let next = tokio::time::timeout(SOON, self.started.recv()).await;
        next.expect("a job starts").expect("the worker runs")
    }

    /// Returns the time from the end of the statement to the start of this many jobs.
    async fn after(&mut self, sql: &str, jobs: usize) -> Duration {
        self.run(sql).await;
        let since = Instant::now();
        let mut last = since;
        for _ in 0..jobs {
            last = self.next().await;
        }
        last.saturating_duration_since(since)
    }

    async fn is_idle(&self) {
        all_done(&self.client).await;
        all_asleep(&self.client).await;
    }
}

async fn started(db: &TestDb, listener: &str) -> (WorkerHandle, UnboundedReceiver<Instant>) {
    let (sender, started) = unbounded_channel();
    let mut listener: tokio_postgres::Config = listener.parse().unwrap();
    listener.application_name(LISTENER);
    let backoff = Backoff {
        base: Duration::from_millis(40),
        cap: Duration::from_millis(40),
    };
    let seen: Arc<Mutex<Vec<i64>>> = Arc::default();
    let worker = worker(&db.pool(2).unwrap())
        .notifier(listener, NoTls)
        .config(Config::default())
        .queue_config(QueueConfig {
            backoff,
            ..QueueConfig::new("default", 4)
        })
        .handler("*", move |_, job| {
            let is_new = {
                let mut seen = seen.lock().unwrap();
                let is_new = !seen.contains(&job.id.0);
                seen.push(job.id.0);
                is_new
            };
            let _ = sender.send(Instant::now());
            async move {
                let now = jiff::Timestamp::now();
                match &*job.name {
                    "fails" if is_new => Err("not yet".into()),
                    "dies" if is_new => Ok(Outcome::Discard {
                        reason: "not yet".into(),
                    }),
                    "awaits" => Ok(Outcome::Await {
                        until: now + jiff::SignedDuration::from_hours(1),
                    }),
                    _ => Ok(Outcome::Done),
                }
            }
        })
        .start()
        .await
        .unwrap();
    (worker, started)
}

/// Measures the machine at the same time: returns by how much a sleep of 5 ms and a commit that
/// notifies were too long.
async fn beside(client: &Client, play: impl Future<Output = Duration>) -> (Duration, Duration) {
    let nap = Duration::from_millis(5);
    let mut slowest = Duration::ZERO;
    let mut play = std::pin::pin!(play);
    loop {
        let begun = Instant::now();
        let probe = async {
            tokio::time::sleep(nap).await;
            let commit = "SELECT pg_catalog.pg_notify('probe', '')";
            client.run(commit).await.unwrap();
        };
        tokio::select! {
            took = &mut play => return (took, slowest),
            () = probe => slowest = slowest.max(begun.elapsed().saturating_sub(nap)),
        }
    }
}

/// Plays an event this often on a machine that can be judged. Returns the sorted times, fewer of
/// them if the machine is too slow.
async fn times(
    wanted: usize,
    played: &mut Played,
    play: &mut impl AsyncFnMut(&mut Played) -> Duration,
) -> Vec<Duration> {
    let watched = played.db.client().await.unwrap();
    let mut times = Vec::new();
    for _ in 0..wanted * 4 {
        played.is_idle().await;
        let (took, slowest) = beside(&watched, play(played)).await;
        if slowest < SLOW {
            times.push(took);
        }
        if times.len() == wanted {
            break;
        }
    }
    times.sort_unstable();
    times
}

/// Plays an event and judges it.
async fn judge(
    what: &str,
    within: Duration,
    played: &mut Played,
    mut play: impl AsyncFnMut(&mut Played) -> Duration,
) {
    let mut seen = Vec::new();
    for wanted in TIMES {
        let times = times(wanted, played, &mut play).await;
        println!("{what}: {times:?}");
        if times.len() < wanted {
            let slow = format!("{what}: the machine was too slow to judge");
            return ran::not_run("notify::handovers", &slow);
        }
        if times[wanted / 2] <= within {
            return;
        }
        seen.push(times);
    }
    panic!("{what} waits for a poll: {seen:?}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn idle_workers_react_to_every_event_without_polling() {
    let mut system = Played::new().await;
    for (what, cause) in [
        ("an enqueue", "SELECT posthaste.enqueue('a')"),
        (
            "a new priority",
            "SELECT posthaste.enqueue('a', priority => nextval('posthaste.turn')::integer)",
        ),
        (
            "a job of an ordering key",
            "SELECT posthaste.enqueue('a', ordering_key => 'k')",
        ),
        (
            "a job that is due soon",
            "SELECT posthaste.enqueue('a', scheduled_at => clock_timestamp() + interval '50 ms')",
        ),
    ] {
        judge(what, WOKEN, &mut system, async |system: &mut Played| {
            system.after(cause, 1).await
        })
        .await;
    }
    judge("a turn", WOKEN, &mut system, async |system: &mut Played| {
        let line = "SELECT posthaste.enqueue('a', ordering_key => 'k') FROM generate_series(1, 5)";
        system.after(line, 5).await / 5
    })
    .await;
    judge(
        "a turn behind a confirmation",
        WOKEN,
        &mut system,
        async |system: &mut Played| {
            let line = "SELECT posthaste.enqueue('awaits', ordering_key => 'k');
            SELECT posthaste.enqueue('a', ordering_key => 'k')";
            system.after(line, 1).await;
            let held = async || {
                Ok(number(&system.client, "SELECT count(*) FROM posthaste.in_flight").await == 1)
            };
            eventually(SOON, "it is awaited", held).await.unwrap();
            all_asleep(&system.client).await;
            let done =
                "SELECT posthaste.confirm(posthaste.delivery_id(h.id)) FROM posthaste.in_flight h";
            system.after(done, 1).await
        },
    )
    .await;
    judge(
        "a retry",
        WOKEN,
        &mut system,
        async |system: &mut Played| system.after("SELECT posthaste.enqueue('fails')", 2).await,
    )
    .await;
    judge(
        "a redriven job",
        WOKEN,
        &mut system,
        async |system: &mut Played| {
            system.after("SELECT posthaste.enqueue('dies')", 1).await;
            let dead = async || {
                Ok(number(&system.client, "SELECT count(*) FROM posthaste.dead").await == 1)
            };
            eventually(SOON, "it is dead", dead).await.unwrap();
            all_asleep(&system.client).await;
            system.after("SELECT posthaste.redrive()", 1).await
        },
    )
    .await;
    judge(
        "a queue that is resumed",
        WOKEN,
        &mut system,
        async |system: &mut Played| {
            for step in [
                "SELECT posthaste.pause('default')",
                "SELECT posthaste.enqueue('a')",
            ] {
                system.run(step).await;
            }
            all_asleep(&system.client).await;
            system.after("SELECT posthaste.resume('default')", 1).await
        },
    )
    .await;
    for rate in ["NULL", "1000"] {
        let raised = format!("SELECT posthaste.limit_rate('default', {rate})");
        judge(&raised, WOKEN, &mut system, async |system: &mut Played| {
            system
                .run("SELECT posthaste.limit_rate('default', 1, '1 hour')")
                .await;
            let two = "SELECT posthaste.enqueue('a') FROM generate_series(1, 2)";
            system.after(two, 1).await;
            // It has found that no job is left to claim.
            tokio::time::sleep(Duration::from_millis(200)).await;
            let took = system.after(&raised, 1).await;
            system
                .run("SELECT posthaste.limit_rate('default', NULL)")
                .await;
            took
        })
        .await;
    }
    judge(
        "a rescued job",
        LOOKED,
        &mut system,
        async |system: &mut Played| {
            system.run("SELECT posthaste.pause('default')").await;
            system.run("SELECT posthaste.enqueue('a')").await;
            let dying = hand(&system.client).await;
            // A worker that the test plays claims a job that no other may claim, and is declared
            // dead.
            let claim = format!(
                "UPDATE posthaste.queue SET paused_at = NULL;
             SELECT posthaste.claim('default', '{{0}}', {dying}, gen_random_uuid(), 1, 1000)"
            );
            system.run(&claim).await;
            all_asleep(&system.client).await;
            system
                .after(&format!("SELECT posthaste.rescue({dying}, 0)"), 1)
                .await
        },
    )
    .await;
    // The first job is found by a poll. After that the worker polls as without a notifier, for a
    // while.
    let silent = "BEGIN; SET LOCAL posthaste.notify = off; SELECT posthaste.enqueue('a'); COMMIT";
    system.is_idle().await;
    let first = system.after(silent, 1).await;
    println!("the first that does not notify: {first:?}");
    judge(
        "a session that does not notify",
        POLLED,
        &mut system,
        async |system: &mut Played| system.after(silent, 1).await,
    )
    .await;
    let soon = "BEGIN; SET LOCAL posthaste.notify = off;
        SELECT posthaste.enqueue('a', scheduled_at => clock_timestamp() + interval '20 ms');
        COMMIT";
    system.after(soon, 1).await;
    judge(
        "a due job of a session that does not notify",
        POLLED,
        &mut system,
        async |system: &mut Played| system.after(soon, 1).await,
    )
    .await;
    system.worker.stop().await.unwrap();
}

/// A connection that is dead unnoticed: the first job waits for a poll, those after it do not, and
/// the connection is replaced.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_half_open_listener_delays_a_job_by_one_poll() -> TestResult {
    let mut system = Played::new().await;
    system.worker.stop().await?;
    let server = posthaste_testkit::PgServer::shared(PgVersion::any())?;
    let proxy = Proxy::start(server.address()).await?;
    (system.worker, system.started) = started(&system.db, &proxy.url(system.db.name())).await;
    let what = "a job behind a dead connection";
    judge(what, WOKEN, &mut system, async |system: &mut Played| {
        let newest = "SELECT max(extract(epoch FROM backend_start) * 1000)::bigint
            FROM pg_stat_activity
            WHERE datname = current_database() AND application_name = 'listener'";
        let (before, lost) = (
            number(&system.client, newest).await,
            proxy.lost_connections(),
        );
        proxy.half_open();
        let first = system.after("SELECT posthaste.enqueue('a')", 1).await;
        let second = system.after("SELECT posthaste.enqueue('a')", 1).await;
        // A notification, or the renewal that the worker sends every three seconds.
        eventually(SOON, "it is dead", async || {
            Ok(proxy.lost_connections() > lost)
        })
        .await
        .unwrap();
        proxy.restore().await.unwrap();
        eventually(SOON, "it is replaced", async || {
            Ok(number(&system.client, newest).await > before)
        })
        .await
        .unwrap();
        // The first may wait for a poll.
        second.max(first / 5)
    })
    .await;
    system.worker.stop().await?;
    Ok(())
}

/// A leader that stops cleanly releases its lease to others.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn due_jobs_do_not_wait_for_the_lease_of_a_stopped_leader() -> TestResult {
    let mut system = Played::new().await;
    let what = "a job that is due behind a leader that stopped";
    judge(what, LOOKED, &mut system, async |system: &mut Played| {
        let url = system.db.url().to_owned();
        let (next, started) = started(&system.db, &url).await;
        let both = "SELECT count(*) FROM posthaste.worker WHERE stopped_at IS NULL";
        eventually(SOON, "both work", async || {
            Ok(number(&system.client, both).await == 2)
        })
        .await
        .unwrap();
        std::mem::replace(&mut system.worker, next)
            .stop()
            .await
            .unwrap();
        system.started = started;
        let due =
            "SELECT posthaste.enqueue('a', scheduled_at => clock_timestamp() + interval '1 ms')";
        system.after(due, 1).await
    })
    .await;
    system.worker.stop().await?;
    Ok(())
}
