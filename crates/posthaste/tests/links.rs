//! The connections of a worker: a statement that waits or is lost on one does not delay the others.

use std::time::Duration;

use posthaste::{Config, Outcome, QueueConfig};
use posthaste_testkit::{
    PgServer, PgVersion, Proxy, RequestMatcher, Sql as _, TestResult, eventually,
};

use crate::crash::{Worked, remembering};
use crate::support::{
    SOON, all_done, completed_when, connected, count, migrated, quick, unfinished, worker,
};

/// Jobs whose acknowledgements each wait for a second.
const LOCKED: i64 = 20;

#[tokio::test(flavor = "multi_thread", worker_threads = 6)]
async fn completions_in_open_transactions_do_not_delay_claims() -> TestResult {
    let (db, client) = connected(PgVersion::any()).await?;
    let pool = db.pool(24)?;
    let inner = pool.clone();
    let (release, released) = tokio::sync::watch::channel(false);
    let worker = worker(&pool)
        .queue_config(QueueConfig {
            timeout: Duration::from_millis(300),
            ..QueueConfig::new("default", 32)
        })
        .handler("quick", |_, _| async { Ok(Outcome::Done) })
        .handler("slow", move |context, _| {
            completed_when(released.clone(), inner.clone(), context)
        })
        .start()
        .await?;
    client
        .execute(
            "INSERT INTO posthaste.job (name) SELECT 'slow' FROM generate_series(1, $1::bigint)",
            &[&LOCKED],
        )
        .await?;
    eventually(SOON, "their acknowledgements wait", async || {
        let waiting = client
            .one::<i64>(
                "SELECT count(*) FROM pg_stat_activity WHERE datname = current_database() \
                 AND wait_event_type = 'Lock' AND query LIKE '%settle%'",
            )
            .await?;
        Ok(count(&client, "running").await == LOCKED && waiting > 0)
    })
    .await?;
    // The first wait is with the batch, the next ones are one by one: twenty of them, repeatedly.
    let bound = Duration::from_secs(10);
    for priority in [31, 32] {
        client
            .execute(
                "INSERT INTO posthaste.job (name, priority) VALUES ('quick', $1)",
                &[&priority],
            )
            .await?;
        eventually(bound, "a job of a new priority is found", async || {
            Ok(unfinished(&client).await == LOCKED)
        })
        .await?;
    }
    release.send(true).unwrap();
    all_done(&client).await;
    worker.stop().await?;
    Ok(())
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn unanswered_quarantine_claims_are_released() {
    let server = PgServer::shared(PgVersion::any()).expect("a server");
    let db = migrated(server).await;
    let client = db.client().await.unwrap();
    // Separate transactions: a claim sees what others have committed.
    for step in [
        "INSERT INTO posthaste.job (name, kwargs) SELECT 'crash', jsonb_build_object('key', i) \
         FROM generate_series(1, 3) i",
        "INSERT INTO posthaste.worker (name) VALUES ('dying')",
        "SELECT posthaste.claim('default', '{0}', max(id), gen_random_uuid(), 10, 1000000) \
         FROM posthaste.worker",
        "SELECT posthaste.rescue(max(id), 0) FROM posthaste.worker",
    ] {
        client.run(step).await.unwrap();
    }
    assert_eq!(count(&client, "quarantined").await, 3);
    let proxy = Proxy::start(server.address()).await.expect("a proxy");
    let lost = proxy.drop_answer_to(RequestMatcher::statement(
        "FROM posthaste.claim_quarantined(",
    ));
    let worked = Worked::default();
    let worker = remembering(&proxy.url(db.name()), &worked).await;
    lost.wait(SOON).await.expect("the answer is lost");
    all_done(&client).await;
    worker.stop().await.expect("a clean stop");
    let times = worked.all();
    assert!(
        times.len() == 3 && times.values().all(|times| *times == 1),
        "{times:?}"
    );
}

/// One answer never comes, and no error reports that. Later requests on that connection continue
/// long before half a minute has passed.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_lost_answer_delays_later_requests_by_seconds_at_most() {
    let server = PgServer::shared(PgVersion::any()).expect("a server");
    // The statement, the cause that it delays, and the longest allowed time: twice the timeout of
    // its connection.
    for (statement, cause, within) in [
        (
            "posthaste.discover_priorities(",
            "SELECT posthaste.enqueue('n', priority => 77)",
            10,
        ),
        ("posthaste.claim(", "SELECT posthaste.enqueue('n')", 20),
        (
            "posthaste.publish_horizon(",
            "SELECT posthaste.enqueue('n', scheduled_at => now() + interval '100 ms')",
            6,
        ),
    ] {
        let db = migrated(server).await;
        let client = db.client().await.unwrap();
        let proxy = Proxy::start(server.address()).await.expect("a proxy");
        let worked = Worked::default();
        let lost = proxy.lose_answer_to(RequestMatcher::statement(statement));
        let worker = remembering(&proxy.url(db.name()), &worked).await;
        lost.wait(SOON).await.expect("the answer is lost");
        let cause = cause.replace("'n'", "'crash', '{\"key\": 1}'");
        client.run(&cause).await.unwrap();
        let within = Duration::from_secs(within) + Duration::from_secs(5);
        eventually(within, statement, async || {
            Ok(unfinished(&client).await == 0)
        })
        .await
        .unwrap();
        worker.stop().await.expect("a clean stop");
    }
}

/// The heartbeat's connection drops an answer. The worker is alive, and is not declared dead.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn heartbeats_survive_a_connection_that_drops_an_answer() -> TestResult {
    let server = PgServer::shared(PgVersion::any()).expect("a server");
    let db = migrated(server).await;
    let client = db.client().await?;
    let config = Config {
        rescue_after: Duration::from_secs(9),
        heartbeat_interval: Duration::from_millis(500),
        ..quick()
    };
    // Another worker is the leader.
    let leader = worker(&db.pool(2)?)
        .config(config.clone())
        .queue("another", 1)
        .handler("*", |_, _| async { Ok(Outcome::Done) })
        .start()
        .await?;
    let proxy = Proxy::start(server.address()).await.expect("a proxy");
    let url = proxy.url(db.name());
    let manager = deadpool_postgres::Manager::new(url.parse()?, tokio_postgres::NoTls);
    let pool = deadpool_postgres::Pool::builder(manager).build().unwrap();
    let behind = worker(&pool)
        .config(Config {
            name: "behind".into(),
            maintenance: false,
            ..config
        })
        .queue("default", 1)
        .handler("*", |_, _| async { Ok(Outcome::Done) })
        .start()
        .await?;
    let beat = async || -> anyhow::Result<(i64, bool)> {
        let sql = "SELECT max(beat), bool_or(stopped_at IS NOT NULL)
            FROM posthaste.worker WHERE name = 'behind'";
        let row = client.query_one(sql, &[]).await?;
        let beat: Option<i64> = row.get(0);
        Ok((
            beat.unwrap_or(0),
            row.get::<_, Option<bool>>(1).unwrap_or(false),
        ))
    };
    eventually(SOON, "it beats", async || Ok(beat().await?.0 > 1)).await?;
    let lost = proxy.lose_answer_to(RequestMatcher::statement("SET beat = beat + 1"));
    lost.wait(SOON).await.expect("the answer is lost");
    let before = beat().await?.0;
    eventually(SOON, "it beats again", async || {
        let (now, is_dead) = beat().await?;
        assert!(!is_dead, "it was declared dead");
        Ok(now > before + 2)
    })
    .await?;
    behind.stop().await?;
    leader.stop().await?;
    Ok(())
}

/// Each task of a worker retries separately; none of them may retry at its polling rate.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn reconnects_to_a_lost_server_are_limited() -> TestResult {
    let server = PgServer::start(PgVersion::any(), &[])?;
    let db = migrated(&server).await;
    let pool = db.pool(8)?;
    let worker = worker(&pool)
        .queue("default", 4)
        .queue("other", 4)
        .handler("a", |_, _| async { Ok(Outcome::Done) })
        .start()
        .await?;
    server.stop_fast().unwrap();
    let place = tokio::net::TcpListener::bind(server.address()).await;
    let place = place.unwrap();
    let begun = std::time::Instant::now();
    for _ in 0..30 {
        drop(place.accept().await?);
    }
    // Without a delay they arrive within less than a second, then fifty per second.
    assert!(
        begun.elapsed() > Duration::from_secs(3),
        "{:?}",
        begun.elapsed()
    );
    drop(place);
    server.restart().unwrap();
    let client = db.client().await?;
    client.run("SELECT posthaste.enqueue('a')").await?;
    all_done(&client).await;
    worker.stop().await?;
    Ok(())
}

/// A worker that is not notified polls ten times a second; an unanswered poll does not count.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn polling_resumes_after_an_unanswered_poll() {
    let server = PgServer::shared(PgVersion::any()).expect("a server");
    let db = migrated(server).await;
    let proxy = Proxy::start(server.address()).await.expect("a proxy");
    let worked = Worked::default();
    let worker = remembering(&proxy.url(db.name()), &worked).await;
    let poll = || RequestMatcher::statement("FROM posthaste.queues_with_work(");
    let lost = proxy.lose_answer_to(poll());
    lost.wait(SOON).await.expect("the answer is lost");
    // It times out after five seconds. Polling once took twenty times as long to resume.
    let next = proxy.lose_answer_to(poll());
    next.wait(SOON).await.expect("the next poll");
    worker.stop().await.expect("a clean stop");
}

/// Records for claims and acknowledgements the statement timeout under which they ran. A claim of
/// no jobs only moves a lane's cursor, after a check that took long.
const NOTED: &str = "
    CREATE TABLE public.noted (of_table text, statement_timeout text);
    CREATE FUNCTION public.note() RETURNS trigger LANGUAGE plpgsql AS $f$ BEGIN
      INSERT INTO public.noted VALUES (TG_TABLE_NAME, current_setting('statement_timeout'));
      PERFORM pg_sleep(current_setting('test.pause')::float8);
      RETURN NULL;
    END $f$;
    CREATE TRIGGER noted AFTER INSERT ON posthaste.claim_0 FOR EACH ROW WHEN (NEW.n > 0)
      EXECUTE FUNCTION public.note();
    CREATE TRIGGER noted AFTER INSERT ON posthaste.batch_done_0 FOR EACH ROW
      EXECUTE FUNCTION public.note()";

/// Within a block no statement is limited; one that is sent without a block has the limit of the
/// database.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn claims_and_acknowledgements_are_sent_alone_unless_settings_end_them() -> TestResult {
    let hour = "statement_timeout = '1h'";
    let isolation = "default_transaction_isolation = serializable";
    let second = "statement_timeout = '1s'";
    for (settings, expected) in [
        (&["test.pause = 0", hour][..], "1h"),
        (&["test.pause = 0", hour, isolation], "0"),
        (&["test.pause = 1.2", second], "0"),
    ] {
        let (db, client) = connected(PgVersion::any()).await?;
        client.run(NOTED).await?;
        for setting in settings {
            let alter = format!("ALTER DATABASE {} SET {setting}", db.name());
            client.run(&alter).await?;
        }
        let enqueue = "INSERT INTO posthaste.job (name) VALUES ('n')";
        client.run(enqueue).await?;
        let worker = worker(&db.pool(4)?)
            .queue("default", 1)
            .handler("*", |_, _| async { Ok(Outcome::Done) })
            .start()
            .await?;
        all_done(&client).await;
        let noted = "SELECT of_table, statement_timeout FROM public.noted ORDER BY of_table";
        let noted = client.query(noted, &[]).await?;
        let noted: Vec<(&str, &str)> = noted.iter().map(|row| (row.get(0), row.get(1))).collect();
        assert_eq!(noted, [("batch_done_0", expected), ("claim_0", expected)]);
        worker.stop().await?;
    }
    Ok(())
}
