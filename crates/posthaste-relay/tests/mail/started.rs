//! Starts of the mail example's programs: at the same time, and while orders are open.

use posthaste_testkit::{Child, PgVersion, Sql as _, eventually};
use tokio_postgres::Client;

use super::commands::command;
use super::deliveries::Deliveries;
use super::settings;
use crate::support::{SOON, database};

async fn has_table(client: &Client) -> bool {
    let has = "SELECT to_regclass('mail_deliveries') IS NOT NULL";
    client.one(has).await.unwrap()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn eight_workers_start_at_once_on_a_fresh_database() {
    let db = database(PgVersion::any()).await;
    let client = db.client().await.unwrap();
    for _ in 0..5 {
        let starts = (0..8).map(|_| {
            let pool = db.pool(1).unwrap();
            tokio::spawn(async move {
                let opened = Deliveries::open(pool).await;
                opened.map(drop).map_err(|error| error.to_string())
            })
        });
        for start in starts.collect::<Vec<_>>() {
            start.await.unwrap().unwrap();
        }
        assert!(has_table(&client).await);
        let drop = "DROP TABLE mail_deliveries; DROP FUNCTION mail_deliveries_notify()";
        client.run(drop).await.unwrap();
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn starting_beside_an_open_transaction_blocks_nobody() {
    let db = database(PgVersion::any()).await;
    Deliveries::open(db.pool(1).unwrap()).await.unwrap();
    let mut open = db.pool(1).unwrap().get().await.unwrap();
    let transaction = open.transaction().await.unwrap();
    let order = Deliveries::order(&transaction, "ada@example.com", "Welcome", "Hi.\n");
    let first = order.await.unwrap();
    // A whole program: it starts, and orders a mail.
    let mut other = Child::spawn(&mut command(&["order", "bob@example.com"], Some(&db))).unwrap();
    assert!(other.exit(SOON).await.unwrap().success());
    let client = db.client().await.unwrap();
    let waiting = "SELECT count(*) FROM pg_stat_activity \
                     WHERE datname = current_database() AND wait_event_type = 'Lock'";
    let nobody = async || Ok(client.one::<i64>(waiting).await? == 0);
    eventually(SOON, "nobody waits", nobody).await.unwrap();
    let ordered = "SELECT count(*) FROM mail_deliveries WHERE delivery_id <> $1";
    let ordered = client.one_with::<i64>(ordered, &[&first]).await.unwrap();
    assert_eq!(ordered, 1);
    transaction.commit().await.unwrap();
}

#[test]
fn missing_and_invalid_settings_are_reported_without_values() {
    let names = ["DATABASE_URL", "REDIS_URL", "SMTP_URL"];
    let error = settings::read(names, |_| None).unwrap_err();
    let missing = "DATABASE_URL is not set; REDIS_URL is not set; SMTP_URL is not set";
    assert_eq!(error, missing);
    let error = settings::read(names, |_| Some("http://geheim@nowhere".into())).unwrap_err();
    for name in names {
        assert!(error.contains(&format!("{name} must be ")), "{error}");
    }
    assert!(!error.contains("geheim"), "{error}");
    let right = |name: &str| {
        Some(match name {
            "DATABASE_URL" => "postgres://u:p@localhost/app".to_owned(),
            "REDIS_URL" => "redis://:p@localhost:6379/0".to_owned(),
            _ => "smtp://localhost:2525".to_owned(),
        })
    };
    let [database, redis, smtp] = settings::read(names, right).unwrap();
    assert_eq!(Some(database), right("DATABASE_URL"));
    assert_eq!(
        (Some(redis), Some(smtp)),
        (right("REDIS_URL"), right("SMTP_URL"))
    );
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn missing_settings_end_the_program_with_one_line() {
    let mut work = Child::spawn(&mut command(&["work"], None)).unwrap();
    assert_eq!(work.exit(SOON).await.unwrap().code(), Some(1));
    let error = "error: DATABASE_URL is not set; REDIS_URL is not set; SMTP_URL is not set";
    assert_eq!(work.stderr(), [error]);
}
