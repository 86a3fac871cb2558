//! Sessions that do not wait for the disk (`synchronous_commit = off`): a crash of the server loses
//! what they had committed. Workers continue, and no id is assigned again.

use std::collections::HashSet;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use posthaste::{Backoff, NewJob, Outcome, QueueConfig};
use posthaste_testkit::{PgServer, PgVersion, Sql as _, eventually};
use tokio::sync::Notify;
use tokio_postgres::Client;
use uuid::Uuid;

use crate::scheduled::on_both;
use crate::support::{self, SOON, number};

/// Before the crash only data reaches the disk for which a commit waits.
const SETTINGS: [(&str, &str); 5] = [
    ("synchronous_commit", "off"),
    ("wal_writer_delay", "10s"),
    ("wal_writer_flush_after", "1GB"),
    ("full_page_writes", "off"),
    ("autovacuum", "off"),
];

on_both! {
    acknowledged =>
        acknowledgements_survive_a_crash_under_any_synchronous_commit_on_15,
        acknowledgements_survive_a_crash_under_any_synchronous_commit_on_18;
    given_back =>
        workers_release_jobs_that_a_crash_reopened_and_keep_the_rest_on_15,
        workers_release_jobs_that_a_crash_reopened_and_keep_the_rest_on_18;
    once =>
        job_ids_lost_in_a_crash_are_not_reused_on_15,
        job_ids_lost_in_a_crash_are_not_reused_on_18;
}

fn crash(server: &PgServer) -> anyhow::Result<()> {
    tokio::task::block_in_place(|| {
        server.stop_immediate()?;
        server.restart()
    })
}

type Runs = Arc<Mutex<Vec<String>>>;

fn times(runs: &Runs, name: &str) -> usize {
    let runs = runs.lock().unwrap();
    runs.iter().filter(|one| *one == name).count()
}

/// Jobs that are done, retried later, and postponed.
async fn acknowledged(version: PgVersion) -> anyhow::Result<()> {
    let server = PgServer::start(version, &SETTINGS)?;
    let db = support::migrated(&server).await;
    let later = Duration::from_secs(600);
    let backoff = Backoff {
        base: later,
        cap: later,
    };
    let runs = Runs::default();
    let sink = Arc::clone(&runs);
    let worker = support::worker(&db.pool(4)?)
        .queue_config(QueueConfig {
            backoff,
            ..QueueConfig::new("default", 4)
        })
        .handler("*", move |_, job| {
            sink.lock().unwrap().push(job.name.to_string());
            async move {
                match &*job.name {
                    "done" => Ok(Outcome::Done),
                    "put off" => Ok(Outcome::Snooze {
                        until: jiff::Timestamp::now() + later,
                    }),
                    _ => Err("no".into()),
                }
            }
        })
        .start()
        .await?;
    let due = "SELECT count(*) FROM posthaste.job WHERE state NOT IN ('scheduled', 'retrying')";
    for (round, name) in ["done", "failed", "put off"].into_iter().enumerate() {
        let client = db.client().await?;
        client.run("SET synchronous_commit = on").await?;
        client
            .query_one("SELECT posthaste.enqueue($1)", &[&name])
            .await?;
        eventually(SOON, "it is acknowledged", async || {
            Ok(times(&runs, name) == 1 && number(&client, due).await == 0)
        })
        .await?;
        crash(&server)?;
        let client = db.client().await?;
        assert_eq!(number(&client, due).await, 0, "{name} came again");
        let waiting = i64::try_from(round)?;
        assert_eq!(support::unfinished(&client).await, waiting, "{name}");
    }
    worker.stop().await?;
    posthaste_testkit::ran::count("crashes", 3);
    Ok(())
}

async fn given_back(version: PgVersion) -> anyhow::Result<()> {
    let server = PgServer::start(version, &SETTINGS)?;
    let db = support::migrated(&server).await;
    let client = db.client().await?;
    let (runs, release) = (Runs::default(), Arc::new(Notify::new()));
    let (sink, released) = (Arc::clone(&runs), Arc::clone(&release));
    let worker = support::worker(&db.pool(4)?)
        .queue("default", 1)
        .handler("*", move |_, job| {
            sink.lock().unwrap().push(job.name.to_string());
            let released = Arc::clone(&released);
            async move {
                if &*job.name == "held" {
                    released.notified().await;
                }
                Ok(Outcome::Done)
            }
        })
        .start()
        .await?;
    client.run("SELECT posthaste.enqueue('held')").await?;
    eventually(SOON, "it runs", async || Ok(times(&runs, "held") == 1)).await?;
    // A claim in the name of the process that it does not know, as after an acknowledgement that
    // the crash undid.
    client.run("SELECT posthaste.enqueue('forgotten')").await?;
    let me = number(&client, "SELECT max(id) FROM posthaste.worker").await;
    let claim = "SELECT count(id) FROM posthaste.claim('default', '{0}', $1, $2, 1, 1000)";
    let claimed: i64 = client.one_with(claim, &[&me, &Uuid::new_v4()]).await?;
    assert_eq!(claimed, 1);
    client.run("CHECKPOINT").await?;
    crash(&server)?;
    let client = db.client().await?;
    let is_open = "SELECT count(*) FROM posthaste.job WHERE name = 'forgotten'
                    AND state = 'available'";
    eventually(SOON, "it is given back", async || {
        Ok(number(&client, is_open).await == 1)
    })
    .await?;
    release.notify_one();
    support::all_done(&client).await;
    assert_eq!((times(&runs, "held"), times(&runs, "forgotten")), (1, 1));
    let workers = "SELECT count(*) FROM posthaste.worker";
    assert_eq!(number(&client, workers).await, 1, "it goes on as it was");
    worker.stop().await?;
    posthaste_testkit::ran::count("crashes", 1);
    Ok(())
}

/// Statements that enqueue forty jobs and return their ids.
const ENQUEUES: [&str; 8] = [
    "SELECT posthaste.enqueue('x') FROM generate_series(1, 40)",
    "SELECT posthaste.enqueue('x', queue => 'q') FROM generate_series(1, 40)",
    "SELECT posthaste.enqueue('x', queue => 'q', scheduled_at => now() + interval '1 hour')
       FROM generate_series(1, 40)",
    "SELECT posthaste.enqueue('x', queue => 'q', unique_key => gen_random_uuid()::text)
       FROM generate_series(1, 40)",
    "SELECT posthaste.enqueue_nowait('x', queue => 'q', unique_key => gen_random_uuid()::text)
       FROM generate_series(1, 40)",
    "SELECT posthaste.enqueue('x', queue => 'q', ordering_key => n::text)
       FROM generate_series(1, 40) n",
    "INSERT INTO posthaste.job (name) SELECT 'x' FROM generate_series(1, 40) RETURNING id",
    "INSERT INTO posthaste.job (name, queue, scheduled_at)
       SELECT 'x', 'q', now() + interval '1 hour' FROM generate_series(1, 40) RETURNING id",
];

async fn enqueue(client: &mut Client, how: usize) -> anyhow::Result<Vec<i64>> {
    if let Some(sql) = ENQUEUES.get(how) {
        let rows = client.query(*sql, &[]).await?;
        return Ok(rows.iter().map(|row| row.get(0)).collect());
    }
    let job = NewJob::new("by rust", &serde_json::json!({}))?;
    let tx = client.transaction().await?;
    if how == ENQUEUES.len() {
        for _ in 0..40 {
            posthaste::enqueue(&tx, &job).await?;
        }
    } else {
        posthaste::enqueue_copy(&tx, vec![job; 40]).await?;
    }
    tx.commit().await?;
    client.run("RESET ROLE").await?;
    let ids = "SELECT id FROM posthaste.job WHERE name = 'by rust' ORDER BY id DESC LIMIT 40";
    let rows = client.query(ids, &[]).await?;
    Ok(rows.iter().map(|row| row.get(0)).collect())
}

/// The first statement after the crash is an enqueue, by a role that may only enqueue.
async fn once(version: PgVersion) -> anyhow::Result<()> {
    let server = PgServer::start(version, &SETTINGS)?;
    let db = support::migrated(&server).await;
    posthaste::grant_roles(&mut db.client().await?).await?;
    let mut known = HashSet::new();
    let mut could_come_again = 0;
    for how in 0..ENQUEUES.len() + 2 {
        let mut client = db.client().await?;
        client.run("CHECKPOINT").await?;
        let before = enqueue(&mut client, how).await?;
        crash(&server)?;
        let mut client = db.client().await?;
        let drawn = number(&client, "SELECT last_value FROM posthaste.job_id").await;
        could_come_again += u32::from(before.iter().any(|id| *id > drawn));
        client.run("SET ROLE posthaste_producer").await?;
        let after = enqueue(&mut client, how).await?;
        assert_eq!(after.len(), 40);
        for id in before.into_iter().chain(after) {
            assert!(
                known.insert(id),
                "{id} was given out twice, by enqueue {how}"
            );
        }
    }
    assert!(could_come_again > 0, "the hazard was never met");
    posthaste_testkit::ran::count("crashes", 1);
    Ok(())
}
