//! The testing helpers for programs.

use std::time::Duration;

use futures_util::FutureExt;
use posthaste::testing::{
    TestRun, assert_enqueued, enqueued, refute_enqueued, run_until_idle, work_one,
};
use posthaste::{Backoff, Context, JobArgs, JobId, Outcome, QueueConfig, RetryLater, enqueue};
use posthaste_testkit::{PgVersion, Sql as _, TestResult, eventually};
use serde::{Deserialize, Serialize};

use crate::support::{SOON, connected, count, database, number, unfinished, worker};

#[derive(Deserialize, Serialize)]
struct Mail {
    to: String,
}

impl JobArgs for Mail {
    const NAME: &'static str = "mail";
}

fn mail(to: &str) -> Mail {
    Mail { to: to.to_owned() }
}

/// Rejects Eve, and postpones the first attempt for Bob.
async fn send(context: Context, mail: Mail) -> anyhow::Result<()> {
    anyhow::ensure!(mail.to != "Eve", "{} is unwelcome", mail.to);
    if mail.to == "Bob" && context.job().attempt == 1 {
        let hour = Duration::from_secs(3600);
        return Err(RetryLater::without_attempt(hour, "no quota"))?;
    }
    Ok(())
}

#[tokio::test]
async fn handlers_behave_the_same_without_a_database() {
    let run = TestRun::of(mail("Eve").job().tag("t"))
        .unwrap()
        .id(JobId(7));
    let context = run.context();
    assert_eq!((context.job().id, &*context.job().tag), (JobId(7), "t"));
    let error = run.call(send).await.unwrap_err().to_string();
    assert_eq!(error, "Eve is unwelcome");
    let run = TestRun::of(mail("Bob")).unwrap();
    let error = run.call(send).await.unwrap_err();
    assert!(error.downcast_ref::<RetryLater>().is_some(), "{error}");
    assert_eq!(run.attempt(2).call(send).await.unwrap(), Outcome::Done);
    #[derive(Serialize)]
    struct Other {}
    impl JobArgs for Other {
        const NAME: &'static str = "mail";
    }
    let error = TestRun::of(Other {}).unwrap().call(send).await.unwrap_err();
    let error = error.to_string();
    assert!(error.starts_with("kwargs: missing field `to`"), "{error}");
}

#[tokio::test]
async fn test_runs_check_the_job_type_and_use_the_given_time() {
    #[derive(Deserialize, Serialize)]
    struct Note {
        to: String,
    }
    impl JobArgs for Note {
        const NAME: &'static str = "note";
    }
    let note = Note { to: "Ada".into() };
    let error = TestRun::of(&note).unwrap().call(send).await.unwrap_err();
    assert_eq!(
        error.to_string(),
        "the job is note, but the handler expects mail"
    );
    let run = TestRun::of(note.job().delay(SOON)).unwrap();
    let (context, soon) = (run.context(), SOON.try_into().unwrap());
    let job = context.job();
    assert_eq!(job.scheduled_at.duration_since(job.enqueued_at), soon);
    let far = note.job().delay(Duration::MAX);
    let error = TestRun::of(far).unwrap_err().to_string();
    assert!(error.starts_with("scheduled_at: "), "{error}");
}

#[tokio::test]
async fn tests_can_stop_cancel_and_observe_a_run() {
    let run = TestRun::of(mail("Ada")).unwrap().state("shared");
    let waits = async |context: Context<&str>, _: Mail| {
        context.stopping().await;
        context.cancelled().await;
        assert_eq!(*context.state(), "shared");
    };
    let called = run.call(waits);
    let ended = async {
        run.stop();
        run.cancel();
    };
    let (result, ()) = tokio::join!(called, ended);
    assert_eq!(result.unwrap(), Outcome::Done);
    assert!(!run.is_completed());
    let db = database(PgVersion::any()).await;
    let client = db.client().await.unwrap();
    run.context().complete_in(&client).await.unwrap();
    assert!(run.is_completed());
}

/// Returns the message of an assertion that fails.
async fn panics(assertion: impl Future<Output = ()>) -> String {
    let panic = std::panic::AssertUnwindSafe(assertion).catch_unwind().await;
    *panic.expect_err("it panics").downcast::<String>().unwrap()
}

#[tokio::test]
async fn enqueued_jobs_are_visible_in_their_transaction() -> TestResult {
    let db = database(PgVersion::any()).await;
    let mut client = db.client().await?;
    enqueue(&client, mail("Ada")).await?;
    let tx = client.transaction().await?;
    let hour = std::time::Duration::from_secs(3600);
    enqueue(&tx, mail("Bob").job().unique_key("bob")).await?;
    enqueue(&tx, mail("Cid").job().delay(hour)).await?;
    enqueue(&tx, mail("Dan").job().ordering_key("d")).await?;
    let mails: Vec<Mail> = enqueued(&tx).await?;
    let to: Vec<_> = mails.iter().map(|mail| &*mail.to).collect();
    assert_eq!(to, ["Ada", "Bob", "Cid", "Dan"]);
    assert_enqueued(&tx, |mail: &Mail| mail.to == "Cid").await;
    refute_enqueued(&tx, |mail: &Mail| mail.to == "Eve").await;
    let message = panics(assert_enqueued(&tx, |mail: &Mail| mail.to == "Eve")).await;
    assert!(
        message.contains(": none of the 4 enqueued jobs mail matches: "),
        "{message}"
    );
    assert!(
        message.contains(file!()),
        "not where the test asked: {message}"
    );
    assert!(message.contains(r#"{"to":"Dan"}"#), "{message}");
    let message = panics(refute_enqueued(&tx, |mail: &Mail| mail.to == "Bob")).await;
    assert!(
        message.contains(": one of the 4 enqueued jobs mail matches: "),
        "{message}"
    );
    assert!(
        message.contains(file!()),
        "not where the test asked: {message}"
    );
    tx.rollback().await?;
    refute_enqueued(&client, |mail: &Mail| mail.to == "Bob").await;
    Ok(())
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn test_workers_run_until_idle_and_report_each_run() -> TestResult {
    let (db, client) = connected(PgVersion::any()).await?;
    let queue = || QueueConfig {
        backoff: Backoff {
            base: SOON * 100,
            cap: SOON * 100,
        },
        ..QueueConfig::new("default", 1)
    };
    // The handlers need the pool's only connection.
    let worker = || worker(&db.pool(1).unwrap()).queue_config(queue()).job(send);
    assert!(run_until_idle(worker()).await?.is_empty());
    for to in ["Ada", "Eve", "Bob"] {
        enqueue(&client, mail(to)).await?;
    }
    enqueue(&client, mail("Ada").job().queue("other")).await?;
    let runs = run_until_idle(worker()).await?;
    let finished: Vec<_> = runs
        .iter()
        .map(|ran| (ran.job.kwargs::<Mail>().unwrap().to, ran.result.clone()))
        .collect();
    let expected = [
        ("Ada".to_owned(), Ok(Outcome::Done)),
        ("Eve".to_owned(), Err("Eve is unwelcome".to_owned())),
        ("Bob".to_owned(), Err("no quota".to_owned())),
    ];
    assert_eq!(finished, expected);
    assert_eq!(unfinished(&client).await, 3, "the others wait");
    let later = "SELECT count(*) FROM posthaste.job WHERE attempt = 0 AND last_error = 'no quota'";
    let later: i64 = client.one(later).await?;
    assert_eq!(later, 1, "it says itself that no attempt is counted");
    Ok(())
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn test_workers_wait_for_unpromoted_due_jobs() {
    let db = database(PgVersion::any()).await;
    let client = db.client().await.unwrap();
    let soon = mail("Ada").job().delay(Duration::from_millis(100));
    enqueue(&client, soon).await.unwrap();
    let is_due = "SELECT count(*) FROM posthaste.job
                   WHERE state = 'scheduled' AND scheduled_at <= clock_timestamp()";
    let due = async || Ok(number(&client, is_due).await == 1);
    eventually(SOON, "its time has come", due).await.unwrap();
    let worker = worker(&db.pool(2).unwrap()).queue("default", 1).job(send);
    assert_eq!(run_until_idle(worker).await.unwrap().len(), 1);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn run_one_runs_one_job_and_leaves_the_others() {
    let db = database(PgVersion::any()).await;
    let client = db.client().await.unwrap();
    let worker = || worker(&db.pool(2).unwrap()).queue("default", 8).job(send);
    assert!(work_one(worker()).await.unwrap().is_none());
    for to in ["Ada", "Cid", "Eve"] {
        enqueue(&client, mail(to)).await.unwrap();
    }
    let ran = work_one(worker()).await.unwrap().unwrap();
    assert_eq!(ran.job.kwargs::<Mail>().unwrap().to, "Ada");
    assert_eq!(ran.result, Ok(Outcome::Done));
    let rest = "SELECT count(*) FROM posthaste.job WHERE state = 'available' AND attempt = 0";
    let rest: i64 = client.one(rest).await.unwrap();
    assert_eq!((rest, count(&client, "running").await), (2, 0));
}
