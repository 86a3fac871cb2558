//! Rows of the outbox that refer to a row of another table, which the relay reads.

use posthaste_relay::{Lines, Relay};
use posthaste_testkit::{Sql as _, TestResult, eventually};

use super::fake_destination::FakeDestination;
use super::{outcome_of, setup};
use crate::support::{SOON, all_done};

const ORDERS: &str = "CREATE TABLE orders (id bigint PRIMARY KEY, total jsonb);
    INSERT INTO orders VALUES (1, '{\"total\": 12345678901234567890}'), (2, NULL);";
const BY_ID: &str = "SELECT total FROM orders o WHERE o.id = $1::bigint";

async fn refer(client: &tokio_postgres::Client, kind: &str, table: &str, id: &str) {
    let put = "INSERT INTO posthaste.outbox (type, table_name, table_id) VALUES ($1, $2, $3)";
    client.execute(put, &[&kind, &table, &id]).await.unwrap();
}

const ROUTE: &str = "INSERT INTO posthaste.route (pattern, queue) VALUES ('*', 'mail')";

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn referenced_rows_are_read_when_the_message_is_sent() {
    let setup = setup().await;
    let client = &setup.client;
    client.run(ORDERS).await.unwrap();
    client.run(ROUTE).await.unwrap();
    refer(client, "placed", "orders", "1").await;
    let changed = r#"UPDATE orders SET total = '{"total": 12345678901234567891}' WHERE id = 1"#;
    client.run(changed).await.unwrap();
    let fake = FakeDestination::default();
    let relay = fake.relay().database(setup.db.pool(1).unwrap());
    let worker = setup.relay(relay.resolve("orders", BY_ID)).await;
    all_done(client).await;
    let sent = fake.with(|inner| inner.payloads.clone());
    assert_eq!(sent, [r#"{"total": 12345678901234567891}"#]);
    worker.stop().await.unwrap();
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn unreadable_references_count_an_attempt_only_if_the_job_is_at_fault() -> TestResult {
    let setup = setup().await;
    let client = &setup.client;
    client.run(ORDERS).await?;
    client.run(ROUTE).await?;
    refer(client, "nowhere", "orders; DROP TABLE orders", "1").await;
    refer(client, "gone", "orders", "7").await;
    refer(client, "empty", "orders", "2").await;
    refer(client, "malformed", "orders", "1; DROP TABLE orders").await;
    refer(client, "unreadable", "sums", "1").await;
    refer(client, "mistaken", "lost", "1").await;
    let fake = FakeDestination::default();
    let relay = fake.relay().database(setup.db.pool(1)?);
    let relay = relay
        .resolve("orders", BY_ID)
        .resolve("sums", "SELECT 1, $1::text")
        .resolve("lost", "SELECT total FROM lost WHERE id = $1::bigint");
    let worker = setup.relay(relay).await;
    for (kind, error) in [
        ("nowhere", "no statement for the table \"orders; DROP"),
        ("gone", "orders has no row \"7\""),
        ("empty", "the row \"2\" of orders has no payload"),
        ("malformed", "invalid input syntax for type bigint"),
        ("unreadable", "must be json, jsonb, text or bytea"),
    ] {
        let is_kept = async || {
            let outcome = outcome_of(client, kind).await;
            Ok(outcome.is_some_and(|(state, ..)| state == "discarded"))
        };
        eventually(SOON, kind, is_kept).await?;
        let (_, _, reason) = outcome_of(client, kind).await.unwrap();
        assert!(
            reason.as_deref().unwrap_or_default().contains(error),
            "{kind}: {reason:?}"
        );
    }
    // An operator can correct the statement: the job is retried, and attempts are counted.
    eventually(SOON, "an attempt is counted", async || {
        let outcome = outcome_of(client, "mistaken").await;
        Ok(outcome.is_some_and(|(_, attempt, _)| attempt > 0))
    })
    .await?;
    client
        .run("CREATE TABLE lost AS SELECT * FROM orders")
        .await?;
    eventually(SOON, "it is sent", async || Ok(!fake.taken().is_empty())).await?;
    assert_eq!(fake.taken(), ["mistaken"]);
    worker.stop().await?;
    Ok(())
}

#[tokio::test]
async fn resolving_references_requires_a_database() {
    let relay = Relay::to(Lines::new(tokio::io::sink())).resolve("orders", BY_ID);
    let error = relay.start().await.err().unwrap().to_string();
    assert!(error.contains("resolve: "), "{error}");
}

/// Rows that cannot be read while the server reports that it shuts down.
const SHUTTING_DOWN: &str = "CREATE TABLE away (id bigint);
    CREATE FUNCTION total_of(id bigint) RETURNS jsonb LANGUAGE plpgsql AS $$ BEGIN
      IF EXISTS (SELECT FROM away a WHERE a.id = total_of.id) THEN
        RAISE EXCEPTION 'the system is shutting down' USING ERRCODE = '57P03';
      END IF;
      RETURN to_jsonb(id);
    END $$;
    CREATE SEQUENCE asked;
    INSERT INTO away VALUES (3), (4);";

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_ordered_relay_keeps_its_order_while_a_row_is_unreadable() -> TestResult {
    let setup = setup().await;
    let client = &setup.client;
    client.run(SHUTTING_DOWN).await?;
    client.run(ROUTE).await?;
    for id in 1..=8 {
        refer(client, "placed", "orders", &id.to_string()).await;
    }
    let fake = FakeDestination::default();
    let relay = fake.relay().database(setup.db.pool(1)?);
    let total = "SELECT total_of($1::bigint) FROM nextval('asked')";
    let worker = setup
        .relay(relay.ordered(true).batch(6).resolve("orders", total))
        .await;
    let sent = || fake.with(|inner| inner.payloads.clone());
    // Repeated reads: six for the first batch, then for the rest.
    eventually(SOON, "it is asked for again", async || {
        let asked = client.one::<i64>("SELECT last_value FROM asked").await?;
        Ok(asked >= 15)
    })
    .await?;
    assert_eq!(sent(), ["1", "2"]);
    client.run("DELETE FROM away WHERE id = 3").await?;
    eventually(SOON, "the third is sent", async || Ok(sent().len() == 3)).await?;
    client.run("DELETE FROM away").await?;
    all_done(client).await;
    assert_eq!(sent(), ["1", "2", "3", "4", "5", "6", "7", "8"]);
    let counted = "SELECT count(*) FROM posthaste.job WHERE attempt > 0";
    assert_eq!(crate::support::number(client, counted).await, 0);
    worker.stop().await?;
    Ok(())
}
