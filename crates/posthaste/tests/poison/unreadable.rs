//! Jobs that break the claim they are part of are found and ended, and no other job is harmed.

use posthaste::Outcome;
use posthaste_testkit::{PgServer, PgVersion, Sql as _, TestResult, connect, eventually, reaches};

use super::INNOCENT;
use crate::support::{SOON, database, unfinished, worker};

/// Enough numbers of 128 KiB each that no server can print them.
const NUMBERS: usize = 9_000;

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn jobs_the_server_cannot_print_are_isolated_and_ended() {
    // A user with the owner's rights disabled the check and wrote numbers whose text no message can
    // hold.
    let bomb = format!(
        "CREATE OR REPLACE FUNCTION posthaste.text_bytes(kwargs jsonb) RETURNS integer
         LANGUAGE sql STABLE AS 'SELECT 100';
         INSERT INTO posthaste.job (name, kwargs) VALUES ('bomb', '{{\"a\":[{}1]}}')",
        "1e131071,".repeat(NUMBERS)
    );
    unreadable(&bomb).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn jobs_the_worker_cannot_decode_are_isolated_and_ended() {
    let bomb = "INSERT INTO posthaste.store (slot, queue, name, enqueued_at, expires_at,
                kwargs_bytes)
                VALUES (posthaste.enter_ready(), 'default', 'bomb', 'infinity',
                  now() + interval '1 day', 2)";
    unreadable(bomb).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn jobs_with_invalid_text_in_a_sql_ascii_database_are_isolated_and_ended() -> TestResult {
    let server = PgServer::start(PgVersion::any(), &[])?;
    let admin = connect(&server.url("postgres")).await?;
    let create = "CREATE DATABASE bytes TEMPLATE template0 ENCODING 'SQL_ASCII' LOCALE 'C'";
    admin.run(create).await?;
    let mut client = connect(&server.url("bytes")).await?;
    posthaste::migrate(&mut client).await?;
    let manager =
        deadpool_postgres::Manager::new(server.url("bytes").parse()?, tokio_postgres::NoTls);
    let pool = deadpool_postgres::Pool::builder(manager).build().unwrap();
    let bombs = ["'h.' || chr(255)", "'bomb', tag => chr(255)"];
    for bomb in bombs {
        let bomb = format!("SELECT posthaste.enqueue({bomb})");
        client.run(&bomb).await?;
    }
    let good = "INSERT INTO posthaste.job (name) SELECT 'good' FROM generate_series(1, 20)";
    client.run(good).await?;
    // Each claim uses the queue's rate, even one that fails.
    let limit = "SELECT posthaste.limit_rate('default', 20, burst => 1)";
    client.run(limit).await?;
    let worker = worker(&pool)
        .queue("default", 4)
        .handler("good", |_, _| async { Ok(Outcome::Done) })
        .start()
        .await?;
    eventually(SOON, "only the bombs are left, dead", async || {
        let dead = "SELECT count(*) FROM posthaste.dead";
        let dead: i64 = client.one(dead).await?;
        Ok(dead == 2 && unfinished(&client).await == 2)
    })
    .await?;
    worker.stop().await?;
    Ok(())
}

/// Plays a job that breaks its claim, in the middle of innocent jobs.
async fn unreadable(bomb: &str) {
    let db = database(PgVersion::any()).await;
    let client = db.client().await.unwrap();
    let good = "INSERT INTO posthaste.job (name) SELECT 'good' FROM generate_series(1, $1::bigint)";
    client.execute(good, &[&(INNOCENT / 2)]).await.unwrap();
    client.run(bomb).await.unwrap();
    client
        .execute(good, &[&(INNOCENT - INNOCENT / 2)])
        .await
        .unwrap();
    let worker = worker(&db.pool(4).unwrap())
        .queue("default", 4)
        .handler("good", |_, job| async move {
            assert_eq!(job.attempt, 1, "an attempt of an innocent job was counted");
            Ok(Outcome::Done)
        })
        .start()
        .await
        .unwrap();
    reaches(SOON, "only the bomb is left", 1, async || {
        Ok(unfinished(&client).await)
    })
    .await
    .unwrap();
    eventually(SOON, "the bomb is dead", async || {
        let dead = "SELECT count(*) FROM posthaste.dead WHERE name = 'bomb'";
        Ok(client.one::<i64>(dead).await? == 1)
    })
    .await
    .unwrap();
    worker.stop().await.unwrap();
}
