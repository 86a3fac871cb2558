//! The commands of the mail example: orders, and mails whose outcome is unknown.

use std::process::Command;

use posthaste_testkit::{Child, PgVersion, Sql as _, TestDb};
use uuid::Uuid;

use super::deliveries::Deliveries;
use super::{Setup, deliveries};
use crate::examples::example;
use crate::support::{SOON, database};

/// Returns the example with these arguments, on this database, and with no other setting.
pub(super) fn command(arguments: &[&str], db: Option<&TestDb>) -> Command {
    let mut command = example("mail");
    command.args(arguments);
    for name in ["DATABASE_URL", "REDIS_URL", "SMTP_URL", "MAIL_FROM"] {
        command.env_remove(name);
    }
    if let Some(db) = db {
        command.env("DATABASE_URL", db.url());
    }
    command
}

/// Returns its exit code and its lines on standard output and standard error.
async fn ended(mut command: Command) -> (Option<i32>, Vec<String>, Vec<String>) {
    let mut child = Child::spawn(&mut command).unwrap();
    let status = child.exit(SOON).await.unwrap();
    (status.code(), child.stdout(), child.stderr())
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn order_prints_its_id_and_rejects_invalid_addresses() {
    let db = database(PgVersion::any()).await;
    let deliveries = Deliveries::open(db.pool(1).unwrap()).await.unwrap();
    let client = db.client().await.unwrap();
    let count = "SELECT count(*) FROM mail_deliveries";
    let count = async || client.one::<i64>(count).await.unwrap();
    let (code, printed, error) = ended(command(&["order", "not an address"], Some(&db))).await;
    assert_eq!((code, printed.len()), (Some(1), 0));
    assert!(
        error[0].starts_with("error: nothing is ordered: "),
        "{error:?}"
    );
    assert_eq!((error.len(), count().await), (1, 0));

    let (code, printed, _) = ended(command(&["order", "ada@example.com"], Some(&db))).await;
    assert_eq!((code, printed.len(), count().await), (Some(0), 1, 1));
    let id: Uuid = printed[0].parse().unwrap();
    let state = deliveries.state(id).await.unwrap();
    assert_eq!(state.as_deref(), Some("queued"));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn unknown_mails_are_listed_and_resolved_by_hand() {
    let test = "unknown_mails_are_listed_and_resolved_by_hand";
    let Some(setup) = Setup::new(test).await else {
        return;
    };
    let run = async |arguments: &[&str]| {
        let mut command = command(arguments, Some(&setup.db));
        command.env("REDIS_URL", setup.redis.url());
        ended(command).await
    };
    let mut ids = Vec::new();
    for _ in 0..2 {
        let id = setup.order().await;
        setup.queue.take().await.unwrap().unwrap();
        let begun = setup.deliveries.begin(id, Uuid::new_v4()).await.unwrap();
        assert!(matches!(begun, deliveries::Begun::Mail { .. }));
        setup.work_until(id, "unknown").await;
        ids.push(id.to_string());
    }
    let (_, printed, _) = run(&["unknown"]).await;
    assert_eq!(printed.len(), 2, "{printed:?}");
    for (line, id) in printed.iter().zip(&ids) {
        assert!(line.starts_with(id.as_str()), "the oldest first: {line}");
        let reason = "attempt 1  to ada@example.com: its worker was lost while it sent it";
        assert!(line.ends_with(reason), "{line}");
    }
    let (_, printed, error) = run(&["resolve", &ids[0], "sent"]).await;
    assert_eq!(printed, [format!("{}: sent", ids[0])], "{error:?}");
    let (_, printed, error) = run(&["resolve", &ids[1], "queued"]).await;
    assert_eq!(printed, [format!("{}: queued", ids[1])], "{error:?}");
    setup.work_until(ids[1].parse().unwrap(), "sent").await;
    assert_eq!((setup.mails(), run(&["unknown"]).await.1.len()), (1, 0));

    let (code, _, error) = run(&["resolve", &ids[0], "queued"]).await;
    let refused = format!("error: {} is sent, and stays it", ids[0]);
    assert_eq!((code, error), (Some(1), vec![refused]));
}
