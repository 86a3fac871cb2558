//! Notifications: a sleeping worker is notified, and no other is.

mod full;
mod handovers;
mod polls;

use std::future::poll_fn;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use posthaste::{Config, NewJob, Outcome, WorkerHandle, enqueue, enqueue_copy};
use posthaste_testkit::{PgVersion, Sql as _, TestDb, TestResult, eventually};
use serde_json::json;
use tokio::sync::mpsc::{UnboundedReceiver, unbounded_channel};
use tokio_postgres::{AsyncMessage, Client, NoTls};

use crate::support::{SOON, all_done, connected, database, number, quick, telling, worker};

/// The `application_name` of a worker's listening connection.
const LISTENER: &str = "listener";
/// Longer than any test: an idle queue is polled after an eighth of the time that it has been idle.
const NEVER: Duration = Duration::from_secs(3600);

/// Starts a worker that would sleep for an hour; returns a message for each job that it starts.
async fn sleeper(db: &TestDb, poll_interval: Duration) -> (WorkerHandle, UnboundedReceiver<()>) {
    let mut listener: tokio_postgres::Config = db.url().parse().unwrap();
    listener.application_name(LISTENER);
    let sleeping = Config {
        poll_interval,
        ..quick()
    };
    let worker = worker(&db.pool(2).unwrap());
    telling(worker.notifier(listener, NoTls).config(sleeping)).await
}

/// Returns the bits of the queues whose notifications are on.
async fn notified(client: &Client) -> i64 {
    number(client, "SELECT posthaste.listeners() & -2").await
}

/// Waits until the notifications of the queue and of the leader are on.
async fn all_asleep(client: &Client) {
    let both = "SELECT posthaste.listener_bit('default') | posthaste.listener_bit('')";
    let both = number(client, both).await;
    eventually(SOON, "notifications are on", async || {
        Ok(notified(client).await & both == both)
    })
    .await
    .unwrap();
}

/// Enqueues one job that is due.
const ENQUEUE: &str = "SELECT posthaste.enqueue('a')";

/// Runs a statement and waits until its job starts.
async fn starts(client: &Client, statement: &str, jobs: &mut UnboundedReceiver<()>) {
    client.run(statement).await.unwrap();
    started(jobs).await;
}

async fn started(jobs: &mut UnboundedReceiver<()>) {
    let job = tokio::time::timeout(SOON, jobs.recv()).await;
    job.expect("a job starts").expect("the worker runs");
}

/// Listens on these channels; returns channel and payload of each notification.
async fn listener(db: &TestDb) -> (Client, UnboundedReceiver<(String, String)>) {
    let (client, mut connection) = tokio_postgres::connect(db.url(), NoTls).await.unwrap();
    let (sender, incoming) = unbounded_channel();
    tokio::spawn(async move {
        while let Some(Ok(message)) = poll_fn(|context| connection.poll_message(context)).await {
            if let AsyncMessage::Notification(one) = message {
                let _ = sender.send((one.channel().to_owned(), one.payload().to_owned()));
            }
        }
    });
    client
        .run("LISTEN posthaste; LISTEN posthaste_rest")
        .await
        .unwrap();
    (client, incoming)
}

/// Creates a database in which the watch over sleeping queues finds nothing: only a notification
/// wakes a queue that has slept for eight times its poll interval.
async fn blind(version: PgVersion) -> TestDb {
    let db = database(version).await;
    let client = db.client().await.unwrap();
    let sql = "CREATE OR REPLACE FUNCTION posthaste.queues_with_work(p_queues text[])
        RETURNS TABLE (queue text, priority integer)
        LANGUAGE sql AS 'SELECT NULL::text, NULL::integer WHERE false'";
    client.run(sql).await.unwrap();
    db
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn sleeping_workers_are_woken_despite_rollbacks_and_open_transactions() {
    for version in PgVersion::tried() {
        let db = blind(version).await;
        let client = db.client().await.unwrap();
        let (worker, mut jobs) = sleeper(&db, Duration::from_millis(20)).await;
        all_asleep(&client).await;
        // It no longer polls by now. If it still did, the test would detect less, but would not
        // fail.
        let deep = Instant::now() + Duration::from_millis(500);
        eventually(SOON, "it sleeps deeply", async || Ok(Instant::now() > deep))
            .await
            .unwrap();
        starts(&client, ENQUEUE, &mut jobs).await;
        let after = "BEGIN; SELECT posthaste.enqueue('a'); ROLLBACK; INSERT INTO posthaste.job \
                     (name) VALUES ('a')";
        starts(&client, after, &mut jobs).await;
        let mut other = db.client().await.unwrap();
        let open = other.transaction().await.unwrap();
        let job = NewJob::new("a", &json!({})).unwrap();
        enqueue(&open, &job).await.unwrap();
        enqueue(&client, &job.clone().priority(77)).await.unwrap();
        started(&mut jobs).await;
        open.commit().await.unwrap();
        started(&mut jobs).await;
        // What the leader promotes notifies too.
        let soon =
            "SELECT posthaste.enqueue('a', scheduled_at => clock_timestamp() + interval '50 ms')";
        for _ in 0..4 {
            starts(&client, soon, &mut jobs).await;
        }
        all_done(&client).await;
        worker.stop().await.unwrap();
        assert_eq!(
            notified(&client).await,
            0,
            "it turned its notifications off"
        );
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_notifier_reconnects_after_a_lost_connection() -> TestResult {
    let (db, client) = connected(PgVersion::any()).await?;
    let (worker, mut jobs) = sleeper(&db, NEVER).await;
    let listeners = "SELECT pid FROM pg_stat_activity WHERE datname = current_database() \
                     AND application_name = $1";
    for _ in 0..3 {
        all_asleep(&client).await;
        let pid: i32 = client.one_with(listeners, &[&LISTENER]).await?;
        client
            .execute("SELECT pg_terminate_backend($1, 10000)", &[&pid])
            .await?;
        // No worker is notified of this job, so the worker itself has turned notifications on again
        // below.
        let missed = "SELECT setval('posthaste.flags', 0); SELECT posthaste.enqueue('a')";
        starts(&client, missed, &mut jobs).await;
        all_asleep(&client).await;
        starts(&client, ENQUEUE, &mut jobs).await;
    }
    worker.stop().await?;
    Ok(())
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn each_job_wakes_one_of_two_idle_workers() {
    let db = database(PgVersion::any()).await;
    let client = db.client().await.unwrap();
    let (first, mut of_first) = sleeper(&db, NEVER).await;
    let (second, mut of_second) = sleeper(&db, NEVER).await;
    all_asleep(&client).await;
    for _ in 0..20 {
        client.run(ENQUEUE).await.unwrap();
        tokio::select! { () = started(&mut of_first) => {}, () = started(&mut of_second) => {} }
    }
    all_done(&client).await;
    assert!(of_first.is_empty() && of_second.is_empty());
    // It turns notifications off; the other worker is notified of that, and turns them on again.
    first.stop().await.unwrap();
    all_asleep(&client).await;
    starts(&client, ENQUEUE, &mut of_second).await;
    second.stop().await.unwrap();
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn enqueues_do_not_notify_without_a_listener() {
    for version in PgVersion::tried() {
        let db = database(version).await;
        let (client, mut incoming) = listener(&db).await;
        let every_way = "SELECT posthaste.enqueue('a'); SELECT posthaste.enqueue('a',
             scheduled_at => now() + interval '1 h');
             INSERT INTO posthaste.job (name) SELECT 'a' FROM generate_series(1, 3);
             INSERT INTO posthaste.job (name, scheduled_at) VALUES ('a', now() + interval '1 h');
             SELECT posthaste.enqueue('a', unique_key => gen_random_uuid()::text);
             SELECT posthaste.enqueue('a', ordering_key => 'k')";
        let job = NewJob::new("a", &json!({})).unwrap();
        let pooled = db.pool(1).unwrap().get().await.unwrap();
        // No worker sleeps, a worker of another queue does, one died asleep, and notifications are
        // off.
        for state in [
            "SELECT 1",
            "SELECT posthaste.notify_on(posthaste.listener_bit('another'), '1 h')",
            "SELECT posthaste.notify_off(-1), setval('posthaste.listeners_until', 0), \
             posthaste.notify_on(-1 & ~(1::bigint << 63), '-1 s')",
            "SELECT posthaste.notify_on(-1 & ~(1::bigint << 63), '1 h'); \
             SET posthaste.notify = off",
        ] {
            client.run(state).await.unwrap();
            client.run(every_way).await.unwrap();
            if !state.ends_with("off") {
                enqueue(&pooled, &job).await.unwrap();
            }
        }
        client
            .run("RESET posthaste.notify; NOTIFY posthaste, 'the end'")
            .await
            .unwrap();
        let mut received = Vec::new();
        while received
            .last()
            .is_none_or(|(_, incoming)| incoming != "the end")
        {
            let one = tokio::time::timeout(SOON, incoming.recv()).await;
            received.push(one.expect("a notification").expect("a connection"));
        }
        received.retain(|(channel, _)| channel == "posthaste");
        assert_eq!(received.len(), 1, "{} {received:?}", version.name());
        // The same statements notify when a worker sleeps: each transaction once for the queue and
        // once for the leader.
        client.run(every_way).await.unwrap();
        enqueue(&pooled, &job).await.unwrap();
        let mut queues = std::collections::BTreeSet::new();
        for _ in 0..3 {
            let one = tokio::time::timeout(SOON, incoming.recv()).await;
            queues.insert(one.expect("a notification").expect("a connection").1);
        }
        assert_eq!(queues, ["".to_owned(), "default".to_owned()].into());
        let mut other = db.client().await.unwrap();
        let copied = other.transaction().await.unwrap();
        let jobs = [job.clone().queue("copied"), job.clone().queue("copied")];
        enqueue_copy(&copied, jobs).await.unwrap();
        copied.commit().await.unwrap();
        let copied = async {
            while let Some((_, queue)) = incoming.recv().await {
                if queue == "copied" {
                    return;
                }
            }
        };
        tokio::time::timeout(SOON, copied)
            .await
            .expect("a notification");
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn notifications_turn_off_under_load_and_on_again_after_it() {
    let db = database(PgVersion::any()).await;
    let (client, mut incoming) = listener(&db).await;
    let (worker, mut jobs) = sleeper(&db, NEVER).await;
    all_asleep(&client).await;
    let sent = AtomicU64::new(0);
    let producers = futures_util::future::join_all((0..4).map(|_| async {
        let client = db.client().await.unwrap();
        loop {
            client.run(ENQUEUE).await.unwrap();
            sent.fetch_add(1, Ordering::SeqCst);
        }
    }));
    let rested = async {
        while let Some((channel, _)) = incoming.recv().await {
            if channel == "posthaste_rest" {
                return;
            }
        }
    };
    tokio::select! {
        () = rested => {},
        _ = producers => {},
        () = tokio::time::sleep(SOON) => panic!("they stay on"),
    }
    all_done(&client).await;
    all_asleep(&client).await;
    // A stream depends on the rate of notifications; a single one never counts as a stream.
    assert!(sent.load(Ordering::SeqCst) > 1);
    while jobs.try_recv().is_ok() {}
    starts(&client, ENQUEUE, &mut jobs).await;
    worker.stop().await.unwrap();
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn sessions_with_notifications_off_may_prepare_transactions() -> TestResult {
    for version in PgVersion::tried() {
        let (db, client) = connected(version).await?;
        let (worker, mut jobs) = sleeper(&db, Duration::from_millis(20)).await;
        all_asleep(&client).await;
        let refused = client
            .batch_execute("BEGIN; SELECT posthaste.enqueue('a'); PREPARE TRANSACTION 'notified'")
            .await
            .unwrap_err();
        assert_eq!(refused.code().map(|code| code.code()), Some("0A000"));
        client.run("ROLLBACK").await?;
        for way in [
            "SELECT posthaste.enqueue('a')",
            "INSERT INTO posthaste.job (name) VALUES ('a')",
            "SELECT posthaste.enqueue('a', scheduled_at => clock_timestamp() + interval '20 ms')",
        ] {
            client
                .run(&format!(
                    "BEGIN; SET LOCAL posthaste.notify = off; {way}; PREPARE TRANSACTION 'still \
                     {}'",
                    db.name()
                ))
                .await?;
            client
                .run(&format!("COMMIT PREPARED 'still {}'", db.name()))
                .await?;
            started(&mut jobs).await;
        }
        all_done(&client).await;
        worker.stop().await?;
    }
    Ok(())
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_uncommitted_first_route_blocks_nobody() {
    let db = database(PgVersion::any()).await;
    let mut other = db.client().await.unwrap();
    let open = other.transaction().await.unwrap();
    open.run("INSERT INTO posthaste.route (pattern, queue) VALUES ('b', 'b')")
        .await
        .unwrap();
    let client = db.client().await.unwrap();
    // Notifications cannot be turned on, so it polls.
    let (worker, mut jobs) = sleeper(&db, Duration::from_millis(20)).await;
    for _ in 0..3 {
        starts(&client, ENQUEUE, &mut jobs).await;
    }
    assert_eq!(notified(&client).await, 0);
    open.commit().await.unwrap();
    all_asleep(&client).await;
    let route = "SELECT posthaste.route_of('b') || (pg_sequence_last_value('posthaste.flags') & 1)";
    let route: String = client.one(route).await.unwrap();
    assert_eq!(route, "b1", "turning them on leaves the other flags alone");
    all_done(&client).await;
    worker.stop().await.unwrap();
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn workers_poll_when_listen_fails() -> TestResult {
    let (db, client) = connected(PgVersion::any()).await?;
    let nobody = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let mut unreachable: tokio_postgres::Config = db.url().parse()?;
    unreachable.port(nobody.local_addr().unwrap().port());
    drop(nobody);
    let worker = worker(&db.pool(2)?)
        .notifier(unreachable, NoTls)
        .queue("default", 4)
        .handler("*", |_, _| async { Ok(Outcome::Done) })
        .start()
        .await?;
    for statement in [
        "SELECT posthaste.enqueue('a')",
        "SELECT posthaste.enqueue('a', priority => 42)",
        "SELECT posthaste.enqueue('a', scheduled_at => clock_timestamp() + interval '50 ms')",
    ] {
        client.run(statement).await?;
        all_done(&client).await;
    }
    assert_eq!(notified(&client).await, 0);
    worker.stop().await?;
    Ok(())
}

#[tokio::test]
async fn the_promoter_sleeps_until_the_next_job_is_due() {
    for version in PgVersion::tried() {
        let db = database(version).await;
        let client = db.client().await.unwrap();
        let milliseconds = async || -> Option<i64> {
            let sql = "SELECT (extract(epoch FROM posthaste.time_until_due(interval '10 s')) \
                         * 1000)::bigint";
            client.one(sql).await.unwrap()
        };
        assert_eq!(milliseconds().await, None);
        let later = "SELECT posthaste.enqueue('x', scheduled_at => now() + interval '5 s')";
        client.run(later).await.unwrap();
        let due = milliseconds().await.expect("it is due within ten seconds");
        assert!((1..=5000).contains(&due), "{due}");
    }
}
