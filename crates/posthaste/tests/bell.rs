//! The bell: who sleeps is rung for, and nobody else.

use std::future::poll_fn;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use posthaste::{Config, NewJob, Outcome, WorkerHandle, enqueue, enqueue_copy};
use posthaste_testkit::{PgVersion, TestDb, eventually};
use serde_json::json;
use tokio::sync::mpsc::{UnboundedReceiver, unbounded_channel};
use tokio_postgres::{AsyncMessage, Client, NoTls};

use crate::support::{SOON, all_done, database, number, quick, unfinished, worker};

/// The bell's connection of a worker goes by this name.
const EAR: &str = "ear";
/// Longer than any test: nobody looks at an idle queue but for an eighth of the time that it has been idle.
const NEVER: Duration = Duration::from_secs(3600);

/// A worker that would sleep for an hour, and what it started: the time of each.
async fn sleeper(db: &TestDb, poll_interval: Duration) -> (WorkerHandle, UnboundedReceiver<()>) {
    let (tell, started) = unbounded_channel();
    let mut ear: tokio_postgres::Config = db.url().parse().unwrap();
    ear.application_name(EAR);
    let worker = worker(&db.pool(2).unwrap())
        .bell(ear, NoTls)
        .config(Config {
            poll_interval,
            ..quick()
        })
        .queue("default", 4)
        .handler("*", move |_, _| {
            let _ = tell.send(());
            async { Ok(Outcome::Done) }
        })
        .start()
        .await
        .unwrap();
    (worker, started)
}

/// Bells that are armed.
async fn armed(client: &Client) -> i64 {
    number(client, "SELECT posthaste.bell() & -2").await
}

/// Waits until the bells of the queue and of the leader are armed.
async fn asleep(client: &Client) {
    let both = "SELECT posthaste.bell_of('default') | posthaste.bell_of('')";
    let both = number(client, both).await;
    eventually(SOON, "the bells are armed", async || {
        Ok(armed(client).await & both == both)
    })
    .await
    .unwrap();
}

/// One job that is due.
const ENQUEUE: &str = "SELECT posthaste.enqueue('a')";

/// Runs a statement, whose job starts.
async fn starts(client: &Client, statement: &str, jobs: &mut UnboundedReceiver<()>) {
    client.batch_execute(statement).await.unwrap();
    started(jobs).await;
}

async fn started(jobs: &mut UnboundedReceiver<()>) {
    let job = tokio::time::timeout(SOON, jobs.recv()).await;
    job.expect("a job starts").expect("the worker runs");
}

/// What is rung, on these channels: channel and payload.
async fn listener(db: &TestDb) -> (Client, UnboundedReceiver<(String, String)>) {
    let (client, mut connection) = tokio_postgres::connect(db.url(), NoTls).await.unwrap();
    let (tell, rung) = unbounded_channel();
    tokio::spawn(async move {
        while let Some(Ok(message)) = poll_fn(|context| connection.poll_message(context)).await {
            if let AsyncMessage::Notification(one) = message {
                let _ = tell.send((one.channel().to_owned(), one.payload().to_owned()));
            }
        }
    });
    client
        .batch_execute("LISTEN posthaste; LISTEN posthaste_rest")
        .await
        .unwrap();
    (client, rung)
}

/// A database in which the watch over what sleeps finds nothing: nothing but a ring wakes a queue that has slept for eight times its poll interval.
async fn blind(version: PgVersion) -> TestDb {
    let db = database(version).await;
    let client = db.client().await.unwrap();
    let sql = "CREATE OR REPLACE FUNCTION posthaste.stirring(p_queues text[]) RETURNS TABLE (queue text, priority integer)
        LANGUAGE sql AS 'SELECT NULL::text, NULL::integer WHERE false'";
    client.batch_execute(sql).await.unwrap();
    db
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_worker_that_sleeps_is_woken_whatever_was_rolled_back_or_stays_open() {
    for version in PgVersion::ALL {
        let db = blind(version).await;
        let client = db.client().await.unwrap();
        let (worker, mut jobs) = sleeper(&db, Duration::from_millis(20)).await;
        asleep(&client).await;
        // By now it no longer looks by itself. Were it not so far yet, the test would notice less, and fail no more.
        let deep = Instant::now() + Duration::from_millis(500);
        eventually(SOON, "it sleeps deeply", async || Ok(Instant::now() > deep))
            .await
            .unwrap();
        starts(&client, ENQUEUE, &mut jobs).await;
        let after = "BEGIN; SELECT posthaste.enqueue('a'); ROLLBACK; INSERT INTO posthaste.job (name) VALUES ('a')";
        starts(&client, after, &mut jobs).await;
        let mut other = db.client().await.unwrap();
        let open = other.transaction().await.unwrap();
        let job = NewJob::new("a", &json!({})).unwrap();
        enqueue(&open, &job).await.unwrap();
        enqueue(&client, &job.clone().priority(77)).await.unwrap();
        started(&mut jobs).await;
        open.commit().await.unwrap();
        started(&mut jobs).await;
        // What the leader promotes rings too.
        let soon =
            "SELECT posthaste.enqueue('a', scheduled_at => clock_timestamp() + interval '50 ms')";
        for _ in 0..4 {
            starts(&client, soon, &mut jobs).await;
        }
        all_done(&client).await;
        worker.stop().await.unwrap();
        assert_eq!(armed(&client).await, 0, "it took its bells along");
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_lost_connection_of_the_bell_is_replaced() {
    let db = database(PgVersion::V15).await;
    let client = db.client().await.unwrap();
    let (worker, mut jobs) = sleeper(&db, NEVER).await;
    let ears = "SELECT pid FROM pg_stat_activity WHERE datname = current_database() AND application_name = $1";
    for _ in 0..3 {
        asleep(&client).await;
        let pid: i32 = client.query_one(ears, &[&EAR]).await.unwrap().get(0);
        client
            .execute("SELECT pg_terminate_backend($1, 10000)", &[&pid])
            .await
            .unwrap();
        // Nobody rings for this one, and that the bells are armed below is its own doing.
        let unheard = "SELECT setval('posthaste.flags', 0); SELECT posthaste.enqueue('a')";
        starts(&client, unheard, &mut jobs).await;
        asleep(&client).await;
        starts(&client, ENQUEUE, &mut jobs).await;
    }
    worker.stop().await.unwrap();
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn of_two_workers_that_sleep_each_job_finds_one_and_who_stays_is_rung_for() {
    let db = database(PgVersion::V15).await;
    let client = db.client().await.unwrap();
    let (first, mut of_first) = sleeper(&db, NEVER).await;
    let (second, mut of_second) = sleeper(&db, NEVER).await;
    asleep(&client).await;
    for _ in 0..20 {
        client.batch_execute(ENQUEUE).await.unwrap();
        tokio::select! { () = started(&mut of_first) => {}, () = started(&mut of_second) => {} }
    }
    all_done(&client).await;
    assert!(of_first.is_empty() && of_second.is_empty());
    // It puts the bells to rest; the other one is told, and arms them again.
    first.stop().await.unwrap();
    asleep(&client).await;
    starts(&client, ENQUEUE, &mut of_second).await;
    second.stop().await.unwrap();
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn nobody_rings_for_nobody() {
    for version in PgVersion::ALL {
        let db = database(version).await;
        let (client, mut rung) = listener(&db).await;
        let every_way = "SELECT posthaste.enqueue('a'); SELECT posthaste.enqueue('a', scheduled_at => now() + interval '1 h');
             INSERT INTO posthaste.job (name) SELECT 'a' FROM generate_series(1, 3);
             INSERT INTO posthaste.job (name, scheduled_at) VALUES ('a', now() + interval '1 h');
             SELECT posthaste.enqueue('a', unique_key => gen_random_uuid()::text);
             SELECT posthaste.enqueue('a', ordering_key => 'k')";
        let job = NewJob::new("a", &json!({})).unwrap();
        let pooled = db.pool(1).unwrap().get().await.unwrap();
        // Awake, asleep elsewhere, died asleep, off.
        for state in [
            "SELECT 1",
            "SELECT posthaste.arm_bell(posthaste.bell_of('another'), '1 h')",
            "SELECT posthaste.rest_bell(-1), setval('posthaste.bell_until', 0), posthaste.arm_bell(-1 & ~(1::bigint << 63), '-1 s')",
            "SELECT posthaste.arm_bell(-1 & ~(1::bigint << 63), '1 h'); SET posthaste.bell = off",
        ] {
            client.batch_execute(state).await.unwrap();
            client.batch_execute(every_way).await.unwrap();
            if !state.ends_with("off") {
                enqueue(&pooled, &job).await.unwrap();
            }
        }
        client
            .batch_execute("RESET posthaste.bell; NOTIFY posthaste, 'the end'")
            .await
            .unwrap();
        let mut heard = Vec::new();
        while heard.last().is_none_or(|(_, rung)| rung != "the end") {
            let one = tokio::time::timeout(SOON, rung.recv()).await;
            heard.push(one.expect("a ring").expect("a connection"));
        }
        heard.retain(|(channel, _)| channel == "posthaste");
        assert_eq!(heard.len(), 1, "{} {heard:?}", version.name());
        // The same ways ring when somebody sleeps: once for the queue and once for the leader each transaction.
        client.batch_execute(every_way).await.unwrap();
        enqueue(&pooled, &job).await.unwrap();
        let mut queues = std::collections::BTreeSet::new();
        for _ in 0..3 {
            let one = tokio::time::timeout(SOON, rung.recv()).await;
            queues.insert(one.expect("a ring").expect("a connection").1);
        }
        assert_eq!(queues, ["".to_owned(), "default".to_owned()].into());
        let mut other = db.client().await.unwrap();
        let copied = other.transaction().await.unwrap();
        let jobs = [job.clone().queue("copied"), job.clone().queue("copied")];
        enqueue_copy(&copied, jobs).await.unwrap();
        copied.commit().await.unwrap();
        let copied = async {
            while let Some((_, queue)) = rung.recv().await {
                if queue == "copied" {
                    return;
                }
            }
        };
        tokio::time::timeout(SOON, copied).await.expect("a ring");
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_stream_of_rings_puts_the_bell_to_rest_and_its_end_arms_it_again() {
    let db = database(PgVersion::V15).await;
    let (client, mut rung) = listener(&db).await;
    let (worker, mut jobs) = sleeper(&db, NEVER).await;
    asleep(&client).await;
    let sent = AtomicU64::new(0);
    let producers = futures_util::future::join_all((0..4).map(|_| async {
        let client = db.client().await.unwrap();
        loop {
            client.batch_execute(ENQUEUE).await.unwrap();
            sent.fetch_add(1, Ordering::SeqCst);
        }
    }));
    let rested = async {
        while let Some((channel, _)) = rung.recv().await {
            if channel == "posthaste_rest" {
                return;
            }
        }
    };
    tokio::select! { () = rested => {}, _ = producers => {}, () = tokio::time::sleep(SOON) => panic!("no rest") }
    all_done(&client).await;
    asleep(&client).await;
    assert!(sent.load(Ordering::SeqCst) > 20);
    while jobs.try_recv().is_ok() {}
    starts(&client, ENQUEUE, &mut jobs).await;
    worker.stop().await.unwrap();
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_session_that_does_not_ring_may_prepare_and_its_jobs_are_found() {
    for version in PgVersion::ALL {
        let db = database(version).await;
        let client = db.client().await.unwrap();
        let (worker, mut jobs) = sleeper(&db, Duration::from_millis(20)).await;
        asleep(&client).await;
        let refused = client
            .batch_execute("BEGIN; SELECT posthaste.enqueue('a'); PREPARE TRANSACTION 'rung'")
            .await
            .unwrap_err();
        assert_eq!(refused.code().map(|code| code.code()), Some("0A000"));
        client.batch_execute("ROLLBACK").await.unwrap();
        for way in [
            "SELECT posthaste.enqueue('a')",
            "INSERT INTO posthaste.job (name) VALUES ('a')",
            "SELECT posthaste.enqueue('a', scheduled_at => clock_timestamp() + interval '20 ms')",
        ] {
            client
                .batch_execute(&format!(
                    "BEGIN; SET LOCAL posthaste.bell = off; {way}; PREPARE TRANSACTION 'still {}'",
                    db.name()
                ))
                .await
                .unwrap();
            client
                .batch_execute(&format!("COMMIT PREPARED 'still {}'", db.name()))
                .await
                .unwrap();
            started(&mut jobs).await;
        }
        all_done(&client).await;
        worker.stop().await.unwrap();
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_open_transaction_with_the_first_route_keeps_nobody_waiting() {
    let db = database(PgVersion::V15).await;
    let mut other = db.client().await.unwrap();
    let open = other.transaction().await.unwrap();
    open.batch_execute("INSERT INTO posthaste.route (pattern, queue) VALUES ('b', 'b')")
        .await
        .unwrap();
    let client = db.client().await.unwrap();
    // The bell cannot be armed meanwhile, so it looks as if there were none.
    let (worker, mut jobs) = sleeper(&db, Duration::from_millis(20)).await;
    for _ in 0..3 {
        starts(&client, ENQUEUE, &mut jobs).await;
    }
    assert_eq!(armed(&client).await, 0);
    open.commit().await.unwrap();
    asleep(&client).await;
    let route = "SELECT posthaste.route_of('b') || (pg_sequence_last_value('posthaste.flags') & 1)";
    let route: String = client.query_one(route, &[]).await.unwrap().get(0);
    assert_eq!(route, "b1", "arming leaves the other flags alone");
    assert_eq!(unfinished(&client).await, 0);
    worker.stop().await.unwrap();
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_worker_whose_bell_cannot_be_heard_looks_by_itself() {
    let db = database(PgVersion::V15).await;
    let client = db.client().await.unwrap();
    let nobody = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let mut deaf: tokio_postgres::Config = db.url().parse().unwrap();
    deaf.port(nobody.local_addr().unwrap().port());
    drop(nobody);
    let worker = worker(&db.pool(2).unwrap())
        .bell(deaf, NoTls)
        .queue("default", 4)
        .handler("*", |_, _| async { Ok(Outcome::Done) })
        .start()
        .await
        .unwrap();
    for statement in [
        "SELECT posthaste.enqueue('a')",
        "SELECT posthaste.enqueue('a', priority => 42)",
        "SELECT posthaste.enqueue('a', scheduled_at => clock_timestamp() + interval '50 ms')",
    ] {
        client.batch_execute(statement).await.unwrap();
        all_done(&client).await;
    }
    assert_eq!(armed(&client).await, 0);
    worker.stop().await.unwrap();
}

#[tokio::test]
async fn the_promoter_may_sleep_while_nothing_is_due_and_until_the_next_job_is() {
    for version in PgVersion::ALL {
        let db = database(version).await;
        let client = db.client().await.unwrap();
        let milliseconds = async || -> Option<i64> {
            let sql =
                "SELECT (extract(epoch FROM posthaste.due_in(interval '10 s')) * 1000)::bigint";
            client.query_one(sql, &[]).await.unwrap().get(0)
        };
        assert_eq!(milliseconds().await, None);
        let later = "SELECT posthaste.enqueue('x', scheduled_at => now() + interval '5 s')";
        client.batch_execute(later).await.unwrap();
        let due = milliseconds().await.expect("it is due within ten seconds");
        assert!((1..=5000).contains(&due), "{due}");
    }
}
