//! Rejected arguments: by the library before anything is sent, and by the server.

use std::time::Duration;

use posthaste::{Client, DriverError, Executor, Filter, JobId, Rate, State, Value};
use posthaste_testkit::{PgServer, PgVersion, Sql as _, TestDb, connect};

use crate::support::{database, jobs, number};

/// Fails the test when a statement is sent.
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
    fn refusal<T: std::fmt::Debug>(answer: Result<T, posthaste::Error>) -> String {
        let error = answer.unwrap_err();
        assert!(error.is_invalid(), "{error}");
        error.to_string()
    }
    let mut all = Client::new(Untouched);
    let state = |state| Filter::new().state(state);
    for (message, field) in [
        (refusal(all.list(&state(State::Completed)).await), "state"),
        (refusal(all.dead(&state(State::Running)).await), "state"),
        (refusal(all.retry_where(&state(State::Dead)).await), "state"),
        (
            refusal(all.redrive_where(&state(State::Retrying)).await),
            "state",
        ),
        (refusal(all.list(&Filter::new().tag("\0")).await), "tag"),
        (
            refusal(all.dead(&Filter::new().error_like("\\")).await),
            "error",
        ),
        (refusal(all.pause("").await), "queue"),
        (refusal(all.resume(&"x".repeat(256)).await), "queue"),
        (refusal(all.keep("\0", None).await), "queue"),
        (refusal(all.keep("q", Some(Duration::ZERO)).await), "keep"),
        (refusal(all.keep("q", Some(Duration::MAX)).await), "keep"),
        (
            refusal(all.limit("q", Some(Rate::new(0, Duration::MAX))).await),
            "jobs",
        ),
        (
            refusal(all.limit("q", Some(Rate::new(1, Duration::MAX))).await),
            "per",
        ),
    ] {
        assert!(message.starts_with(&format!("{field}: ")), "{message}");
    }
    // Empty lists need no statement.
    assert!(all.cancel(&[]).await.unwrap().is_empty());
    assert!(all.retry(&[]).await.unwrap().is_empty());
    assert!(all.redrive(&[]).await.unwrap().is_empty());
}

#[tokio::test]
async fn server_errors_keep_their_text_and_add_a_remedy() {
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
    client.run(full).await.unwrap();
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
