//! What is refused: by the library before anything is sent, and by the server.

use std::time::Duration;

use posthaste::{Client, DriverError, Executor, Filter, JobId, Rate, State, Value};
use posthaste_testkit::{PgServer, PgVersion, TestDb, connect};

use crate::support::{database, jobs, number};

/// Fails the test when it is asked for anything.
struct Untouched;

impl Executor for Untouched {
    const PREPARES: bool = false;

    async fn run(&mut self, sql: &'static str, _: &[Value<'_>]) -> Result<Vec<i64>, DriverError> {
        panic!("{sql} was sent")
    }

    async fn texts(
        &mut self,
        sql: &'static str,
        _: &[Value<'_>],
    ) -> Result<Vec<String>, DriverError> {
        panic!("{sql} was sent")
    }
}

#[tokio::test]
async fn invalid_requests_fail_before_anything_is_sent() {
    fn told<T: std::fmt::Debug>(answer: Result<T, posthaste::Error>) -> String {
        let error = answer.unwrap_err();
        assert!(error.is_invalid(), "{error}");
        error.to_string()
    }
    let mut all = Client::new(Untouched);
    let state = |state| Filter::new().state(state);
    for (said, field) in [
        (told(all.list(&state(State::Completed)).await), "state"),
        (told(all.dead(&state(State::Running)).await), "state"),
        (told(all.retry_where(&state(State::Dead)).await), "state"),
        (
            told(all.redrive_where(&state(State::Retrying)).await),
            "state",
        ),
        (told(all.list(&Filter::new().tag("\0")).await), "tag"),
        (
            told(all.dead(&Filter::new().error_like("\\")).await),
            "error",
        ),
        (told(all.pause("").await), "queue"),
        (told(all.resume(&"x".repeat(256)).await), "queue"),
        (told(all.keep("\0", None).await), "queue"),
        (told(all.keep("q", Some(Duration::ZERO)).await), "keep"),
        (told(all.keep("q", Some(Duration::MAX)).await), "keep"),
        (
            told(all.limit("q", Some(Rate::new(0, Duration::MAX))).await),
            "jobs",
        ),
        (
            told(all.limit("q", Some(Rate::new(1, Duration::MAX))).await),
            "per",
        ),
    ] {
        assert!(said.starts_with(&format!("{field}: ")), "{said}");
    }
    // Nothing is to be done.
    assert!(all.cancel(&[]).await.unwrap().is_empty());
    assert!(all.retry(&[]).await.unwrap().is_empty());
    assert!(all.redrive(&[]).await.unwrap().is_empty());
}

#[tokio::test]
async fn server_errors_keep_their_words_and_add_a_remedy() {
    let db = database(PgVersion::any()).await;
    let mut client = db.client().await.unwrap();
    let tx = client.build_transaction();
    let tx = tx.isolation_level(tokio_postgres::IsolationLevel::RepeatableRead);
    let tx = tx.start().await.unwrap();
    let refused = Client::new(&tx).cancel(&[JobId(1)]).await.unwrap_err();
    assert_eq!(refused.sqlstate().unwrap().code(), "25000");
    assert!(refused.to_string().contains("READ COMMITTED"), "{refused}");
    tx.rollback().await.unwrap();
    let full = "SELECT posthaste.limit_rate('q' || n, 1) FROM generate_series(1, 64) n";
    client.batch_execute(full).await.unwrap();
    assert_eq!(
        number(&client, "SELECT count(*) FROM posthaste.queue").await,
        64
    );
    let rate = Rate::new(1, Duration::from_secs(1));
    let refused = jobs(&client).limit("q", Some(rate)).await.unwrap_err();
    assert_eq!(refused.sqlstate().unwrap().code(), "54000");

    let server = PgServer::shared(PgVersion::any()).unwrap();
    let bare = TestDb::empty(server).await.unwrap();
    let client = connect(bare.url()).await.unwrap();
    let refused = jobs(&client).counters().await.unwrap_err().to_string();
    assert!(refused.starts_with("cannot count jobs: "), "{refused}");
    assert!(refused.contains("posthaste migrate"), "{refused}");
}
