//! A console of a replica reads, and reports that it cannot do anything else.

use posthaste_testkit::{PgServer, PgVersion, Sql as _, eventually};
use reqwest::StatusCode;

use crate::support::{self, SOON, enqueue, given_up};

#[tokio::test]
async fn replicas_are_readable_and_refuse_every_action() {
    let server = PgServer::start(PgVersion::any(), &[]).unwrap();
    let database = support::migrated(&server).await;
    let client = database.client().await.unwrap();
    let id = enqueue(&client, "mail.send", "mail", r#"{"to": 7}"#).await;
    given_up(&client, "dead", "old", "refused").await;
    let sample = "SELECT posthaste.take_sample(clock_timestamp() - n * interval '1 min')
                    FROM generate_series(1, 0, -1) n";
    client.run(sample).await.unwrap();
    let replica = server.start_replica(&[]).unwrap();
    let pool = pool(&replica.url(database.name()));
    let console = support::console_of(pool, support::operator()).await;
    eventually(SOON, "the replica has the job", async || {
        Ok(console.get(&format!("/jobs/{id}")).await.status() == StatusCode::OK)
    })
    .await
    .unwrap();
    let job = format!("/jobs/{id}");
    for path in [
        "/",
        "/queues",
        "/jobs",
        "/scheduled",
        "/periodic",
        "/destinations",
        "/transactions",
        "/sync",
        "/captures",
        "/workers",
        "/settings",
        "/queues/drain?queue=mail",
        "/queue?queue=mail",
        "/dead",
        "/bulk-actions",
        &job,
    ] {
        let page = console.page(path).await;
        assert!(page.contains("This is a read-only replica"), "{path}");
        assert!(!page.contains("data-key="), "{path} has buttons");
    }
    assert!(
        console
            .page("/")
            .await
            .contains("Jobs a second, the last hour")
    );
    assert!(
        !replica.log().contains("cannot execute"),
        "{}",
        replica.log()
    );
    assert_eq!(console.get("/ready").await.status(), StatusCode::OK);
    let id = id.to_string();
    let fields = [
        ("id", id.as_str()),
        ("queue", "mail"),
        ("name", "nightly"),
        ("capture", "orders"),
        ("confirmed", "yes"),
        ("do", "redrive"),
        ("filter", ""),
    ];
    for path in [
        "/jobs/cancel",
        "/jobs/redrive",
        "/jobs/delete",
        "/queues/pause",
        "/queues/keep",
        "/sync/reindex",
        "/queues/drain",
        "/periodic/run",
        "/periodic/off",
        "/captures/pause",
        "/bulk",
        "/bulk/1/stop",
        "/bulk/1/continue",
    ] {
        let answer = console.post(path, &fields).await;
        assert_eq!(answer.status(), StatusCode::SERVICE_UNAVAILABLE, "{path}");
        assert!(
            answer.text().await.unwrap().contains("read-only replica"),
            "{path}"
        );
    }
    drop(database);
}

fn pool(url: &str) -> deadpool_postgres::Pool {
    let manager = deadpool_postgres::Manager::new(url.parse().unwrap(), tokio_postgres::NoTls);
    let pool = deadpool_postgres::Pool::builder(manager).max_size(2);
    let runtime = deadpool_postgres::Runtime::Tokio1;
    pool.runtime(runtime).build().unwrap()
}
