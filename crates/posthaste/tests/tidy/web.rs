//! The web service in docs/guides/axum-sqlx.md.

use std::time::Duration;

use posthaste_testkit::{Child, PgVersion};

use super::root;
use crate::examples::{cargo, example};
use crate::support;

const WITHIN: Duration = Duration::from_secs(60);

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_guides_web_service_enqueues_runs_and_stops() {
    let database = support::database(PgVersion::any()).await;
    let mut command = example("web");
    command.env("DATABASE_URL", database.url());
    let mut service = Child::spawn(command.env("LISTEN", "127.0.0.1:0")).unwrap();
    let line = service.line("listening on ", WITHIN).await.unwrap();
    let (_, address) = line.split_once("listening on ").unwrap();
    let _ = rustls::crypto::ring::default_provider().install_default();
    let accounts = format!("http://{}/accounts", address.trim());
    let sign_up = async || {
        let ada = reqwest::Client::new()
            .post(&accounts)
            .header("content-type", "application/json")
            .body(r#"{"name": "Ada"}"#);
        ada.send().await.unwrap().status()
    };
    assert_eq!(sign_up().await, 201);
    service.line("welcome, Ada", WITHIN).await.unwrap();
    assert_eq!(sign_up().await, 500, "there is one already");
    service.terminate().unwrap();
    assert!(service.exit(WITHIN).await.unwrap().success());
    let client = database.client().await.unwrap();
    let welcomed = "SELECT count(*) FROM account WHERE welcomed";
    assert_eq!(support::number(&client, welcomed).await, 1);
    assert_eq!(support::unfinished(&client).await, 0, "nothing is left");
}

#[tokio::test]
async fn the_tests_of_the_guide_pass() {
    let database = support::database(PgVersion::any()).await;
    let client = database.client().await.unwrap();
    let account = "CREATE TABLE account (name text PRIMARY KEY, welcomed bool DEFAULT false);
                   INSERT INTO account (name) VALUES ('Bob')";
    client.batch_execute(account).await.unwrap();
    let mut cargo = cargo();
    // Built like the suite: the features of a single package would rebuild everything.
    cargo.args(["test", "--quiet", "--workspace", "--all-features"]);
    cargo.args(["--example", "web"]).current_dir(root());
    let tested = cargo.env("DATABASE_URL", database.url()).output().unwrap();
    let stdout = String::from_utf8_lossy(&tested.stdout).into_owned();
    let complained = String::from_utf8_lossy(&tested.stderr);
    assert!(tested.status.success(), "{stdout}\n{complained}");
    assert!(stdout.contains("2 passed"), "{stdout}");
    assert_eq!(
        support::unfinished(&client).await,
        0,
        "nothing was committed"
    );
    let welcomed = "SELECT count(*) FROM account WHERE name = 'Bob' AND welcomed";
    assert_eq!(support::number(&client, welcomed).await, 1);
}
