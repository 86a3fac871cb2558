//! Tables that programs insert into as the articles describe, functions that receivers call, and
//! reports of relays.

use posthaste::WorkerHandle;
use posthaste_relay::{Ack, RelayState, list_relays};
use posthaste_testkit::{PgVersion, Sql as _, TestDb, TestResult, eventually};
use tokio_postgres::Client;
use uuid::Uuid;

use super::fake_destination::{Does, FakeDestination};
use super::{Setup, setup};
use crate::support::{SOON, all_done, count, database, number, quick, unfinished, worker};

const OWN: Uuid = Uuid::from_u128(0x1234_5678_0000_4000_8000_0000_0000_0001);

async fn on_each(version: PgVersion) -> (TestDb, Client) {
    let db = database(version).await;
    let client = db.client().await.unwrap();
    (db, client)
}

/// Relays the only job, until it waits for its confirmation.
async fn awaited(setup: &Setup) -> (FakeDestination, WorkerHandle) {
    let fake = FakeDestination::default();
    let lease = SOON * 10;
    let relay = fake.relay().ack(Ack::Confirmed { lease });
    let worker = setup.relay(relay).await;
    let awaited = async || Ok(count(&setup.client, "awaiting").await == 1);
    eventually(SOON, "it is sent", awaited).await.unwrap();
    (fake, worker)
}

/// Returns the answer of a function about a delivery.
async fn says(client: &Client, call: &str, id: Uuid) -> bool {
    client.one_with(call, &[&id]).await.unwrap()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn staged_jobs_accepts_the_inserts_of_the_staged_job_pattern() {
    for version in PgVersion::tried() {
        let (_db, client) = on_each(version).await;
        let insert = "INSERT INTO posthaste.staged_jobs (job_name, job_args) \
                      VALUES ('a', '[1, {\"b\": 2}]'), ('b', '{\"to\": 7}') \
                      RETURNING id, job_name, job_args::text";
        let rows = client.query(insert, &[]).await.unwrap();
        assert_eq!(rows.len(), 2);
        assert_eq!(rows[0].get::<_, &str>(2), "[1, {\"b\": 2}]");
        let stored = "SELECT count(*) FROM posthaste.job WHERE kwargs = '{\"args\": [1, \
                    {\"b\": 2}]}' AND max_attempts = 25 AND queue = 'default'";
        assert_eq!(number(&client, stored).await, 1);
        let shown = "SELECT count(*) FROM posthaste.staged_jobs \
                     WHERE job_args IN ('[1, {\"b\": 2}]', '{\"to\": 7}')";
        assert_eq!(number(&client, shown).await, 2);
        let given =
            "INSERT INTO posthaste.staged_jobs (id, job_name, job_args) VALUES (7, 'a', '[]')";
        let refused = client.batch_execute(given).await.unwrap_err();
        assert_eq!(refused.code().map(|code| code.code()), Some("22023"));
        let many = "INSERT INTO posthaste.staged_jobs (job_name, job_args) \
                    SELECT 'n', jsonb_build_array(n) FROM generate_series(1, 100) n";
        assert_eq!(client.execute(many, &[]).await.unwrap(), 100);
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn outbox_rows_become_jobs_with_their_row_id() {
    for version in PgVersion::tried() {
        let (_db, client) = on_each(version).await;
        let insert =
            "INSERT INTO posthaste.outbox (id, type, payload) VALUES ($1, 'mail:send', $2)";
        let put = async |payload: &[u8]| client.execute(insert, &[&OWN, &payload]).await.unwrap();
        assert_eq!(put(b"{\"to\": 7}").await, 1);
        assert_eq!(put(b"{\"to\": 8}").await, 0, "the id is taken");
        let stored = "SELECT count(*) FROM posthaste.outbox WHERE payload = '{\"to\": 7}'::bytea \
                    AND type = 'mail:send' AND completed_at IS NULL";
        assert_eq!(number(&client, stored).await, 1);
        let more = "INSERT INTO posthaste.outbox (type, payload) VALUES ('bytes', '\\x00ff80') \
                    RETURNING id";
        let id: Uuid = client.one(more).await.unwrap();
        let bytes = "SELECT payload FROM posthaste.outbox WHERE id = $1";
        let bytes: Vec<u8> = client.one_with(bytes, &[&id]).await.unwrap();
        assert_eq!(bytes, [0, 255, 128]);
        for wrong in [
            "(type) VALUES ('a')",
            "(type, table_name) VALUES ('a', 't')",
            "(type, payload, table_name, table_id) VALUES ('a', '', 't', '1')",
            "(type, payload, completed_at) VALUES ('a', '', now())",
        ] {
            let wrong = format!("INSERT INTO posthaste.outbox {wrong}");
            let refused = client.batch_execute(&wrong).await.unwrap_err();
            assert_eq!(
                refused.code().map(|code| code.code()),
                Some("22023"),
                "{wrong}"
            );
        }
        let rolled_back = "BEGIN; INSERT INTO posthaste.outbox (type, table_name, table_id) VALUES \
                           ('a', 't', '1'); ROLLBACK";
        client.run(rolled_back).await.unwrap();
        assert_eq!(unfinished(&client).await, 2);
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn outbox_rows_are_confirmed_by_id_and_follow_the_queues_retention() {
    let setup = setup().await;
    let client = &setup.client;
    let put = "INSERT INTO posthaste.route (pattern, queue) VALUES ('m*', 'mail');
        SELECT posthaste.keep('mail', '1 hour');
        INSERT INTO posthaste.outbox (id, type, payload)
          VALUES ('12345678-0000-4000-8000-000000000001', 'm', '{}')";
    client.run(put).await.unwrap();
    let (fake, worker) = awaited(&setup).await;
    assert_eq!(fake.with(|inner| inner.ids.clone()), [OWN]);
    let done = "SELECT posthaste.confirm($1)";
    assert!(says(client, done, OWN).await);
    all_done(client).await;
    let stays = "SELECT count(*) FROM posthaste.outbox \
                 WHERE id = '12345678-0000-4000-8000-000000000001' AND completed_at > created_at";
    assert_eq!(number(client, stays).await, 1);
    assert!(!says(client, done, OWN).await, "its job is forgotten");
    worker.stop().await.unwrap();
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn receive_returns_true_once_per_committed_id() {
    for version in PgVersion::tried() {
        let (_db, client) = on_each(version).await;
        let receive = "SELECT posthaste.receive($1)";
        let receives = async || says(&client, receive, OWN).await;
        client.run("BEGIN").await.unwrap();
        assert!(receives().await);
        client.run("ROLLBACK").await.unwrap();
        assert!(receives().await);
        assert!(!receives().await);
        let old = "UPDATE posthaste.inbox SET received_at = received_at - interval '29 days'; \
                   SELECT posthaste.prune_inbox()";
        client.run(old).await.unwrap();
        assert!(!receives().await);
        client.run(old).await.unwrap();
        assert!(receives().await, "it is forgotten after its time");
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn concurrent_receivers_apply_the_effect_once() {
    let setup = setup().await;
    let (first, second) = (&setup.client, setup.db.client().await.unwrap());
    let receive = "SELECT posthaste.receive('12345678-0000-4000-8000-000000000001')";
    let is_first = |row: tokio_postgres::Row| row.get::<_, bool>(0);
    first.run("BEGIN").await.unwrap();
    assert!(is_first(first.query_one(receive, &[]).await.unwrap()));
    let waiting = tokio::spawn(async move { second.query_one(receive, &[]).await });
    let waits = async || {
        let waits = "SELECT count(*) FROM pg_stat_activity \
                     WHERE datname = current_database() AND wait_event_type = 'Lock'";
        Ok(number(first, waits).await == 1)
    };
    eventually(SOON, "the second waits", waits).await.unwrap();
    first.run("COMMIT").await.unwrap();
    assert!(!is_first(waiting.await.unwrap().unwrap()));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn receivers_in_other_languages_confirm_with_their_effect() {
    let setup = setup().await;
    let client = &setup.client;
    super::enqueue(client, &["m"]).await;
    let (fake, worker) = awaited(&setup).await;
    let id = fake.with(|inner| inner.ids[0]);
    let receive = "SELECT posthaste.receive($1)";
    assert!(says(client, receive, id).await);
    all_done(client).await;
    worker.stop().await.unwrap();
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn relay_status_reports_failures_rejections_and_silence() {
    for version in PgVersion::tried() {
        let (db, client) = on_each(version).await;
        super::enqueue(&client, &["bad", "bad", "late"]).await;
        let fake = FakeDestination::default().does("bad", Does::Reject);
        let fake = fake.does("late", Does::Backpressure);
        let relay = fake.relay().start().await.unwrap();
        let running = worker(&db.pool(2).unwrap()).consumer("mail", relay);
        let running = running.config(quick()).start().await.unwrap();
        let fails = async || {
            let reports = list_relays(&client).await?;
            Ok(reports.first().is_some_and(|one| {
                let status = &one.status;
                status.failing_since.is_some()
                    && status.rejections.get("as configured") == Some(&2)
                    && status.failures.get("refused") == Some(&2)
                    && status.failures.get("full").is_some_and(|times| *times > 0)
            }))
        };
        eventually(SOON, "it says so", fails).await.unwrap();
        fake.with(|inner| inner.does.clear());
        let goes = async || {
            let reports = list_relays(&client).await?;
            let status = &reports[0].status;
            Ok(status.accepted == 1 && status.failing_since.is_none())
        };
        eventually(SOON, "it goes", goes).await.unwrap();
        // As after SIGSTOP: its worker is not declared dead yet.
        let earlier = "UPDATE posthaste.relay SET at = at - interval '31 seconds'";
        let silent = async || {
            client.run(earlier).await?;
            Ok(list_relays(&client).await?[0].state == RelayState::Silent)
        };
        eventually(SOON, "it is silent", silent).await.unwrap();
        running.stop().await.unwrap();
        let report = list_relays(&client).await.unwrap().remove(0);
        assert_eq!(report.state, RelayState::Stopped);
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn relay_status_is_written_without_updates() -> TestResult {
    for version in PgVersion::tried() {
        let (db, client) = on_each(version).await;
        super::enqueue(&client, &["m"]).await;
        let fake = FakeDestination::default();
        fake.is_down(true);
        let relay = fake.relay().name("letters").start().await?;
        let running = worker(&db.pool(2)?).consumer("mail", relay);
        let running = running.config(quick()).start().await?;
        let is = async |state: RelayState| {
            let all = list_relays(&client).await?;
            Ok(all.len() == 1 && all[0].state == state)
        };
        eventually(SOON, "it is down", async || is(RelayState::Down).await).await?;
        let report = list_relays(&client).await?.remove(0);
        assert_eq!((&*report.route, &*report.queue), ("letters", "mail"));
        assert_eq!(report.status.last_error.as_deref(), Some("down"));
        fake.is_down(false);
        eventually(SOON, "it is up", async || is(RelayState::Up).await).await?;
        all_done(&client).await;
        running.stop().await?;
        let report = list_relays(&client).await?.remove(0);
        assert_eq!(report.state, RelayState::Stopped);
        assert_eq!(report.status.accepted, 1);
        let updates = "SELECT coalesce(sum(n_tup_upd + n_tup_del), 0)::bigint \
                       FROM pg_stat_all_tables WHERE relname ~ '^relay_[0-3]$'";
        assert_eq!(number(&client, updates).await, 0);
        // Rows older than an hour are removed.
        let turn = "UPDATE posthaste.volume SET began_at = began_at - interval '2 hours'; \
                    SELECT posthaste.tidy_history()";
        client.run(turn).await?;
        client.run(turn).await?;
        assert_eq!(
            number(&client, "SELECT count(*) FROM posthaste.relay").await,
            0
        );
    }
    Ok(())
}
