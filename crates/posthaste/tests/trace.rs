//! Trace context: the context that a job was enqueued with reaches its handler and its receiver, by
//! every path.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex};

use jiff::{SignedDuration, Timestamp};
use posthaste::{
    Job, JobId, NewJob, Outcome, WorkerHandle, enqueue, enqueue_copy, enqueue_many, enqueue_nowait,
    rebase,
};
use posthaste_testkit::{PgVersion, Sql as _, TestDb, TestResult, eventually};
use serde_json::json;
use tokio_postgres::Client;

use crate::support::{
    SOON, all_done, connected, count, database, hand, jobs, quick_queue, unfinished,
    unfinished_reaches, worker,
};

const PARENT: &str = "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01";
const TRACE: &str = "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01 vendor=a:1, other=b@2";

/// The trace that each run of a job received, by the job's name.
#[derive(Clone, Default)]
struct Seen(Arc<Mutex<BTreeMap<String, Vec<Option<String>>>>>);

impl Seen {
    /// Records a run; returns the number of runs of this name.
    fn note(&self, job: &Job) -> usize {
        let mut seen = self.0.lock().unwrap();
        let runs = seen.entry(job.name.to_string()).or_default();
        runs.push(job.trace.as_deref().map(str::to_owned));
        runs.len()
    }

    /// Returns the names that were run, and how often; fails if a run had another trace.
    fn each_saw(&self, trace: Option<&str>) -> Vec<(String, usize)> {
        let seen = self.0.lock().unwrap();
        let runs = seen.iter().map(|(name, runs)| {
            let all = runs.iter().all(|run| run.as_deref() == trace);
            assert!(all, "{name}: {runs:?}");
            (name.clone(), runs.len())
        });
        runs.collect()
    }
}

fn job(name: &str) -> NewJob {
    NewJob::new(name, &json!({})).unwrap()
}

fn soon() -> Timestamp {
    Timestamp::now() + SignedDuration::from_millis(300)
}

/// Starts a worker that runs any job; a job whose name begins with "again" fails at first.
async fn start(db: &TestDb, seen: &Seen) -> WorkerHandle {
    let seen = seen.clone();
    worker(&db.pool(4).unwrap())
        .queue_config(quick_queue())
        .handler("*", move |_, job| {
            let runs = seen.note(&job);
            async move {
                match job.name.starts_with("again") && runs == 1 {
                    true => Err("not yet".into()),
                    false => Ok(Outcome::Done),
                }
            }
        })
        .start()
        .await
        .unwrap()
}

#[tokio::test(flavor = "multi_thread")]
async fn traces_reach_the_handler_from_every_enqueue_function() {
    for version in PgVersion::tried() {
        let db = database(version).await;
        let mut client = db.client().await.unwrap();
        for sql in [
            "SELECT posthaste.enqueue('by call', trace => $1)",
            "SELECT posthaste.enqueue('by call, later', scheduled_at => now() + interval '0.3 s', \
             trace => $1)",
            "SELECT posthaste.enqueue('by call, ordered', ordering_key => 'k', trace => $1)",
            "SELECT posthaste.enqueue_nowait('by call, nowait', trace => $1)",
            "SELECT posthaste.enqueue_nowait('by call, unique', unique_key => 'u', trace => $1)",
            "INSERT INTO posthaste.job (name, trace) VALUES ('by view', $1)",
            "INSERT INTO posthaste.job (name, trace, ordering_key) \
             VALUES ('by view, ordered', $1, 'k')",
            "INSERT INTO posthaste.outbox (type, payload, trace) VALUES ('by outbox', '{}', $1)",
        ] {
            client.execute(sql, &[&TRACE]).await.unwrap();
        }
        let traced = |name: &str| job(name).trace(TRACE);
        enqueue(&client, &traced("by Rust")).await.unwrap();
        let unique = traced("by Rust, nowait").unique_key("n");
        enqueue_nowait(&client, &unique).await.unwrap();
        let many = [traced("many 1"), traced("many 2").scheduled_at(soon())];
        enqueue_many(&client, &many).await.unwrap();
        let copies = [traced("copy 1"), traced("copy 2").ordering_key("k")];
        let transaction = client.transaction().await.unwrap();
        enqueue_copy(&transaction, copies).await.unwrap();
        transaction.commit().await.unwrap();
        let seen = Seen::default();
        let worker = start(&db, &seen).await;
        all_done(&client).await;
        worker.stop().await.unwrap();
        let runs = seen.each_saw(Some(TRACE));
        assert_eq!(runs.len(), 14, "{runs:?}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn traces_survive_retry_death_and_redrive() -> TestResult {
    let (db, client) = connected(PgVersion::any()).await?;
    // A job whose worker dies, and a worker that takes it over.
    let dying = hand(&client).await;
    let lost = enqueue(&client, &job("lost").trace(TRACE)).await?;
    let claim = "SELECT trace FROM posthaste.claim('default', '{0}', $1, \
                 '0bad0bad-0000-4000-8000-000000000000', 1, 1000)";
    let claimed = client.query_one(claim, &[&dying]).await?;
    assert_eq!(claimed.get::<_, &str>(0), TRACE);
    let rescue = "SELECT posthaste.rescue($1, 0)";
    let rescued = client.one_with::<i64>(rescue, &[&dying]).await?;
    assert_eq!(rescued, 1);
    assert_eq!(shown(&client, lost).await, Some(TRACE.into()));
    let dead = job("again, dead").max_attempts(Some(1)).trace(TRACE);
    let dead = enqueue(&client, &dead).await?;
    let again = job("again").ordering_key("k").trace(TRACE);
    enqueue(&client, &again).await?;
    let seen = Seen::default();
    let worker = start(&db, &seen).await;
    eventually(SOON, "one is left, dead", async || {
        Ok(unfinished(&client).await == 1 && count(&client, "dead").await == 1)
    })
    .await?;
    assert_eq!(shown(&client, dead).await, Some(TRACE.into()));
    let redrive = "SELECT posthaste.redrive()";
    client.run(redrive).await?;
    all_done(&client).await;
    worker.stop().await?;
    let runs = [("again", 2), ("again, dead", 2), ("lost", 1)];
    let runs = runs.map(|(name, runs)| (name.to_owned(), runs));
    assert_eq!(seen.each_saw(Some(TRACE)), runs);
    Ok(())
}

/// Returns the trace in the view and in the search for one job, which must agree.
async fn shown(client: &Client, id: JobId) -> Option<String> {
    let view = "SELECT trace FROM posthaste.job WHERE id = $1";
    let view = client.one_with(view, &[&id.0]).await.unwrap();
    let found = jobs(client).find(id).await.unwrap().expect("it is known");
    assert_eq!(found.trace, view);
    view
}

#[tokio::test(flavor = "multi_thread")]
async fn traces_survive_completion_and_rebase() {
    let db = database(PgVersion::any()).await;
    let mut client = db.client().await.unwrap();
    let keep = "SELECT posthaste.keep('default', interval '1 hour')";
    client.run(keep).await.unwrap();
    let year = Timestamp::now() + SignedDuration::from_hours(24 * 365);
    let mut ids = Vec::new();
    for other in [
        job("due"),
        job("later").scheduled_at(year),
        job("ordered").ordering_key("k"),
    ] {
        let job = other.queue("other").trace(TRACE);
        ids.push(enqueue(&client, &job).await.unwrap());
    }
    let kept = enqueue(&client, &job("kept").trace(PARENT)).await.unwrap();
    let seen = Seen::default();
    let worker = start(&db, &seen).await;
    unfinished_reaches(&client, 3).await.unwrap();
    worker.stop().await.unwrap();
    rebase(&mut client, true).await.unwrap();
    for id in ids {
        assert_eq!(shown(&client, id).await, Some(TRACE.into()));
    }
    let kept = jobs(&client).find(kept).await.unwrap().expect("it is kept");
    assert_eq!(kept.trace.as_deref(), Some(PARENT));
}

#[tokio::test(flavor = "multi_thread")]
async fn traces_are_parsed_into_traceparent_and_tracestate() -> TestResult {
    let (db, client) = connected(PgVersion::any()).await?;
    let parts = Arc::new(Mutex::new(BTreeMap::new()));
    let seen = Arc::clone(&parts);
    let worker = worker(&db.pool(4)?)
        .queue_config(quick_queue())
        .handler("*", move |_, job| {
            let part = |part: Option<&str>| part.map(str::to_owned);
            let both = (part(job.traceparent()), part(job.tracestate()));
            seen.lock().unwrap().insert(job.name.to_string(), both);
            async { Ok(Outcome::Done) }
        })
        .start()
        .await?;
    for new in [
        job("both").trace(TRACE),
        job("one").trace(PARENT),
        job("none"),
    ] {
        enqueue(&client, &new).await?;
    }
    // A role that may write rows of the store writes them unchecked.
    let forged = "INSERT INTO posthaste.store (slot, queue, name, expires_at, kwargs_bytes, trace)
        SELECT posthaste.enter_ready(), 'default', 'forged', now() + interval '1 day', 2,
          E'00-x\r\n\
          set-cookie: a'";
    client.run(forged).await?;
    all_done(&client).await;
    worker.stop().await?;
    let parent = || Some(PARENT.to_owned());
    let expected = [
        ("both", (parent(), Some("vendor=a:1, other=b@2".to_owned()))),
        ("forged", (None, None)),
        ("none", (None, None)),
        ("one", (parent(), None)),
    ];
    let expected = expected.map(|(name, parts)| (name.to_owned(), parts));
    assert_eq!(*parts.lock().unwrap(), BTreeMap::from(expected));
    Ok(())
}

#[tokio::test]
async fn rejects_malformed_traces_without_harming_the_transaction() {
    let longest = format!("{PARENT} {}", "s".repeat(600 - 56));
    for version in PgVersion::tried() {
        let db = database(version).await;
        let mut client = db.client().await.unwrap();
        let calls = [
            "SELECT posthaste.enqueue('x', trace => $1)",
            "SELECT posthaste.enqueue('x', trace => $1, unique_key => 'k')",
            "SELECT posthaste.enqueue('x', trace => $1, scheduled_at => now() + interval '1 hour')",
            "SELECT posthaste.enqueue_nowait('x', trace => $1)",
            "INSERT INTO posthaste.job (name, trace) VALUES ('x', $1)",
            "INSERT INTO posthaste.outbox (type, payload, trace) VALUES ('x', '', $1)",
        ];
        let transaction = client.transaction().await.unwrap();
        for wrong in [
            "",
            "x",
            &PARENT.to_uppercase(),
            &PARENT.replace("00-4", "01-4"),
            &PARENT[..54],
            &format!("{PARENT} "),
            &format!("{PARENT}  a=1"),
            &format!("{PARENT} a=1 "),
            &format!("{PARENT}\n"),
            &format!("{PARENT} a=1\r\nset-cookie: b"),
            &format!("{PARENT} a=\u{e4}"),
            &format!("{longest}s"),
        ] {
            for call in calls {
                transaction.run("SAVEPOINT s").await.unwrap();
                let error = transaction.execute(call, &[&wrong]).await.unwrap_err();
                let error = error.as_db_error().expect("the server's");
                assert_eq!(error.code().code(), "22023", "{call}: {wrong:?}");
                assert!(error.message().contains("trace: "), "{}", error.message());
                let undo = "ROLLBACK TO SAVEPOINT s";
                transaction.run(undo).await.unwrap();
            }
            // Rust rejects it before anything is sent: the transaction continues.
            let refused = [job("fine"), job("x").trace(wrong)];
            for error in [
                enqueue(&transaction, &refused[1]).await.map(drop),
                enqueue_nowait(&transaction, &refused[1]).await.map(drop),
                enqueue_many(&transaction, &refused).await.map(drop),
            ] {
                let error = error.unwrap_err().to_string();
                assert!(error.contains("trace: "), "{error}");
            }
        }
        for call in &calls[..1] {
            transaction.execute(*call, &[&longest]).await.unwrap();
        }
        let fine = job("fine").trace(&*longest);
        enqueue(&transaction, &fine).await.unwrap();
        transaction.commit().await.unwrap();
        assert_eq!(unfinished(&client).await, 2);
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn untraced_jobs_use_no_extra_space() {
    let db = database(PgVersion::any()).await;
    let client = db.client().await.unwrap();
    let plain = enqueue(&client, &job("plain")).await.unwrap();
    let full = job("full").ordering_key("k").tag("t");
    let full = enqueue(&client, &full).await.unwrap();
    for id in [plain, full] {
        assert_eq!(shown(&client, id).await, None);
    }
    let columns = "SELECT string_agg(quote_ident(attname), ', ' ORDER BY attnum) FROM pg_attribute
        WHERE attrelid = 'posthaste.store'::regclass AND attnum > 0 AND attname <> 'trace'";
    let columns: String = client.one(columns).await.unwrap();
    let copies = format!(
        "CREATE TABLE bare AS SELECT {columns} FROM posthaste.store;
         CREATE TABLE whole AS SELECT * FROM posthaste.store"
    );
    client.run(&copies).await.unwrap();
    let sizes = "SELECT (SELECT sum(pg_column_size(w.*)) FROM whole w),
        (SELECT sum(pg_column_size(b.*)) FROM bare b)";
    let sizes = client.query_one(sizes, &[]).await.unwrap();
    assert_eq!(sizes.get::<_, i64>(0), sizes.get::<_, i64>(1));
    let seen = Seen::default();
    let worker = start(&db, &seen).await;
    all_done(&client).await;
    worker.stop().await.unwrap();
    assert_eq!(seen.each_saw(None).len(), 2);
}
