//! The worker of the mail example as a separate process that is killed in the middle of a mail.

use std::sync::Arc;

use posthaste_testkit::{Child, eventually};
use serde_json::json;

use super::{Maildir, Setup};
use crate::examples::example;
use crate::support::SOON;

/// Starts a process that works.
fn working(setup: &Setup) -> Child {
    let mut command = example("mail");
    command.arg("work");
    command.env("DATABASE_URL", setup.db.url());
    command.env("REDIS_URL", setup.redis.url());
    command.env("SMTP_URL", setup.server.url());
    Child::spawn(&mut command).unwrap()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn mails_of_a_killed_worker_are_not_resent_and_the_next_is_sent() {
    let test = "a_mail_whose_worker_is_killed_is_not_sent_again_by_another_process";
    let Some(setup) = Setup::new(test).await else {
        return;
    };
    setup
        .server
        .set_behaviour(&json!({ "delay": 3600 }))
        .unwrap();
    let id = setup.order().await;
    let mut killed = working(&setup);
    let taken = async || Ok(setup.mails() == 1);
    eventually(SOON, "the server has it", taken).await.unwrap();
    killed.kill().unwrap();
    assert_eq!(setup.state(id).await, "sending");
    setup.server.set_behaviour(&json!({})).unwrap();

    let mut other = working(&setup);
    let next = setup.order().await;
    let sent = async || Ok(setup.state(next).await == "sent");
    eventually(SOON, "the next one is sent", sent)
        .await
        .unwrap();
    assert_eq!(
        setup.task(id),
        "active",
        "its lease holds for half a minute"
    );
    // The lease has expired.
    let lease = "asynq:{mail}:lease";
    let ended = ["ZADD", lease, "XX", "CH", "1", &id.to_string()];
    assert_eq!(setup.redis.ask(&ended).unwrap(), json!(1));
    let found = async || Ok(setup.state(id).await == "unknown");
    eventually(SOON, "it is unknown", found).await.unwrap();
    let provider = Maildir(Arc::clone(&setup.server));
    assert_eq!(setup.reconciler(provider).pass().await.unwrap(), 1);
    assert_eq!((setup.state(id).await.as_str(), setup.mails()), ("sent", 2));
    other.terminate().unwrap();
    assert!(other.exit(SOON).await.unwrap().success());
}
