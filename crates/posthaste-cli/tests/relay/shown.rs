//! The output of `posthaste relay preview` before messages are sent, and of relays that have sent
//! none.

use axum::Router;
use axum::http::StatusCode;
use axum::routing::post;
use posthaste_testkit::{Sql as _, number};

use super::{LINES, enqueue, relay};
use crate::stage::{self, BOUND, Stage};

#[tokio::test(flavor = "multi_thread")]
async fn previews_match_sent_messages_byte_for_byte() -> anyhow::Result<()> {
    let (stage, database) = (Stage::new()?, stage::database().await?);
    let client = database.client().await?;
    let route = "[route.audit]\nqueue = \"a\"\nto = \"stdout:\"\nkind = \"{name}\"\n\
                 headers = {who = \"{json:name}\"}\n[route.audit.resolve]\n\
                 orders = \"SELECT to_jsonb(o) FROM orders o WHERE id = $1::bigint\"\n";
    stage.write("posthaste.toml", route)?;
    let rows = r#"CREATE TABLE orders AS SELECT 4711 AS id, '"' AS who;
        INSERT INTO posthaste.route (pattern, queue) VALUES ('*', 'a');
        INSERT INTO posthaste.outbox (type, payload) VALUES
          ('inj', '0],"class":"Charge","retry":false,"args":[666'),
          ('te"xt', 'plain text'), ('json', E'{"a":\n[1]}'), ('bytes', '\x8812'),
          ('number', '8812');
        INSERT INTO posthaste.outbox (type, table_name, table_id) VALUES ('row', 'orders', '4711');
        SELECT posthaste.enqueue('call', '{"n": 1}', queue => 'a')"#;
    client.run(rows).await?;
    let dry = ["relay", "preview"];
    let shown = stage.run_on(&database, &dry).await?.good()?;
    let sent = stage
        .run_on(&database, &["relay", "run", "--once"])
        .await?
        .good()?;
    let mut sent: Vec<&str> = sent.lines().collect();
    assert_eq!(sent.pop(), Some("audit: 7 sent"));
    let mut shown: Vec<&str> = shown.lines().collect();
    sent.sort_unstable();
    shown.sort_unstable();
    assert_eq!(shown, sent);
    let all = sent.join("\n");
    for payload in [
        r#""payload":"0],\"class\":\"Charge\",\"retry\":false,\"args\":[666""#,
        r#""payload":"plain text"}"#,
        r#""payload":{"a": [1]}"#,
        r#""payload":"8812","payload_encoding":"hex""#,
        r#""payload":8812"#,
        r#""who": "\"""#,
        r#""headers":{"who":"\"te\\\"xt\""}"#,
    ] {
        assert!(all.contains(payload), "{payload} in {all}");
    }
    Ok(())
}

#[tokio::test(flavor = "multi_thread")]
async fn previews_show_rejections_with_reasons() -> anyhow::Result<()> {
    let (stage, database) = (Stage::new()?, stage::database().await?);
    let client = database.client().await?;
    let route = "[route.audit]\nqueue = \"a\"\nto = \"bullmq://127.0.0.1:1\"\n\
        receiver_queue = \"{kwargs.queue}\"\n";
    stage.write("posthaste.toml", route)?;
    let rows = r#"SELECT posthaste.enqueue('n', '{"queue": "a:b"}', queue => 'a')"#;
    client.run(rows).await?;
    let dry = ["relay", "preview"];
    let shown = stage.run_on(&database, &dry).await?.good()?;
    let why = "\"error\":\"a BullMQ queue needs a name without a colon\"";
    assert!(shown.contains(why), "{shown}");
    Ok(())
}

#[tokio::test(flavor = "multi_thread")]
async fn routes_without_jobs_name_the_queues_that_have_some() -> anyhow::Result<()> {
    let (stage, database) = (Stage::new()?, stage::database().await?);
    let client = database.client().await?;
    stage.write("posthaste.toml", LINES)?;
    let staged = "INSERT INTO posthaste.staged_jobs (job_name, job_args) VALUES ('m', '[1]')";
    client.run(staged).await?;
    let why = "route audit: queue a is empty and no pattern in posthaste.route maps to it, \
        while 1 job waits in queue default";
    let preview = stage.run_on(&database, &["relay", "preview"]).await?;
    assert!(preview.err.contains(why), "{}", preview.err);
    let output = stage.run_on(&database, &["relay", "run", "--once"]).await?;
    assert!(output.err.contains(why), "{}", output.err);
    assert_eq!(output.good()?, "audit: 0 sent");
    let mut running = relay(&stage, &database).await?;
    let err = running.stderr().join("\n");
    assert!(err.contains(why), "{err}");
    running.terminate()?;
    assert!(running.exit(BOUND).await?.success());
    let led = "INSERT INTO posthaste.route (pattern, queue) VALUES ('m*', 'a')";
    client.run(led).await?;
    client.run(staged).await?;
    let output = stage.run_on(&database, &["relay", "run", "--once"]).await?;
    assert!(!output.err.contains("default"), "{}", output.err);
    assert!(output.good()?.ends_with("audit: 1 sent"));
    Ok(())
}

#[tokio::test(flavor = "multi_thread")]
async fn once_does_not_wait_for_stuck_destinations_or_paused_queues() -> anyhow::Result<()> {
    let (stage, database) = (Stage::new()?, stage::database().await?);
    let client = database.client().await?;
    let dead = "[route.audit]\nqueue = \"a\"\nto = \"sidekiq://127.0.0.1:1/0\"\n";
    stage.write("posthaste.toml", dead)?;
    let nothing = stage.run_on(&database, &["relay", "run", "--once"]).await?;
    assert_eq!(nothing.good()?, "audit: 0 sent");
    enqueue(&client, 2).await?;
    let output = stage.run_on(&database, &["relay", "run", "--once"]).await?;
    assert_eq!(
        (output.code, output.out.trim()),
        (Some(1), "audit: 0 sent"),
        "{output:?}"
    );
    let why = "error: route audit: sidekiq at 127.0.0.1:1/0 accepts nothing: Redis: ";
    assert!(output.err.contains(why), "{}", output.err);
    let waiting = "SELECT count(*) FROM posthaste.job WHERE attempt = 0";
    assert_eq!(number(&client, waiting).await?, 2);
    stage.write("posthaste.toml", LINES)?;
    let pause = stage.run_on(&database, &["queues", "pause", "a"]).await?;
    pause.good()?;
    let output = stage.run_on(&database, &["relay", "run", "--once"]).await?;
    let why = "route audit: 2 jobs wait in queue a, which is paused";
    assert!(output.err.contains(why), "{}", output.err);
    assert_eq!(output.good()?, "audit: 0 sent");
    Ok(())
}

#[tokio::test(flavor = "multi_thread")]
async fn once_does_not_wait_for_ordered_jobs_after_a_scheduled_one() -> anyhow::Result<()> {
    let (stage, database) = (Stage::new()?, stage::database().await?);
    let client = database.client().await?;
    let later = post(|| async { (StatusCode::SERVICE_UNAVAILABLE, [("retry-after", "3600")]) });
    let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await?;
    let address = listener.local_addr()?;
    let router = Router::new().route("/", later);
    tokio::spawn(async move { axum::serve(listener, router).await });
    let routes = format!(
        "[route.a]\nto = 'stdout:'\nat = '{{kwargs.at}}'\n\
         [route.b]\nto = 'http://{address}/'\nnetworks = ['127.0.0.1']\n"
    );
    stage.write("posthaste.toml", &routes)?;
    // The first job of each key is snoozed, is retried in an hour, or is in a queue that no relay
    // here sends. The fourth key is free: a job that is not due has no turn.
    let jobs = "
        SELECT posthaste.enqueue('n', jsonb_build_object('at', now() + interval '1 hour'),
          queue => 'a', ordering_key => 'snoozed');
        SELECT posthaste.enqueue('n', queue => 'a', ordering_key => 'snoozed');
        SELECT posthaste.enqueue('n', queue => 'b', ordering_key => 'tried again');
        SELECT posthaste.enqueue('n', queue => 'b', ordering_key => 'tried again');
        SELECT posthaste.enqueue('n', queue => 'c', ordering_key => 'nobody');
        SELECT posthaste.enqueue('n', queue => 'a', ordering_key => 'nobody');
        SELECT posthaste.enqueue('n', queue => 'a', ordering_key => 'free',
          scheduled_at => now() + interval '1 day');
        SELECT posthaste.enqueue('n', queue => 'a', ordering_key => 'free')";
    client.run(jobs).await?;
    let output = stage.run_on(&database, &["relay", "run", "--once"]).await?;
    let output = output.good()?;
    let mut lines = output.lines().rev();
    let (b, a) = (lines.next(), lines.next());
    assert_eq!(a, Some("a: 1 sent"), "{output}");
    let again = "b: 0 sent, 1 to be retried; ";
    assert!(b.is_some_and(|b| b.starts_with(again)), "{output}");
    let blocked = "SELECT count(*) FROM posthaste.job WHERE state = 'blocked'";
    assert_eq!(number(&client, blocked).await?, 3);
    Ok(())
}

#[tokio::test(flavor = "multi_thread")]
async fn permanent_rejections_show_their_reason() -> anyhow::Result<()> {
    let (stage, database) = (Stage::new()?, stage::database().await?);
    let client = database.client().await?;
    let route = "[route.audit]\nqueue = \"a\"\nto = \"stdout:\"\nkind = \"{kwargs.kind}\"\n";
    stage.write("posthaste.toml", route)?;
    enqueue(&client, 2).await?;
    let output = stage
        .run_on(&database, &["relay", "run", "--once"])
        .await?
        .good()?;
    let why = "audit: 0 sent, 2 rejected permanently; \
        the last error: the job has no argument \"kind\"";
    assert_eq!(output, why);
    Ok(())
}
