//! A capture whose destination accepts nothing: every interface reports this with the reason.

use anyhow::ensure;
use posthaste_testkit::receivers::Redis;
use posthaste_testkit::{Child, TestDb, eventually};
use serde_json::Value;

use crate::exporter::{got, served};
use crate::stage::{BOUND, Stage, with_logical_log};

const TABLE: &str =
    "CREATE TABLE outbox (id bigserial PRIMARY KEY, type text NOT NULL DEFAULT 'a', payload text)";
const KEEPS: &[(&str, &str)] = &[("appendonly", "yes"), ("appendfsync", "always")];

struct Surfaces {
    stage: Stage,
    database: TestDb,
    _exporter: Child,
    metrics: String,
    _console: Child,
    console: String,
}

impl Surfaces {
    async fn new(stage: Stage, database: TestDb) -> anyhow::Result<Self> {
        let listen = |command| [command, "--listen", "127.0.0.1:0"];
        let mut exporter = stage.spawn_on(&database, &listen("exporter"))?;
        let metrics = served(&mut exporter).await?;
        let mut console = stage.spawn_on(&database, &listen("console"))?;
        let line = console.error_line("console at http://", BOUND).await?;
        let address = line.rsplit("console at ").next().unwrap_or_default();
        let address: Vec<&str> = address.split('/').take(3).collect();
        Ok(Self {
            console: address.join("/"),
            stage,
            database,
            _exporter: exporter,
            metrics,
            _console: console,
        })
    }

    async fn answer(&self, arguments: &[&str]) -> anyhow::Result<String> {
        Ok(self.stage.run_on(&self.database, arguments).await?.out)
    }

    /// Returns the status of the capture as JSON.
    async fn capture(&self) -> anyhow::Result<Value> {
        let status = self.answer(&["capture", "status", "--json"]).await?;
        let status: Value = serde_json::from_str(&status)?;
        Ok(status[0].clone())
    }

    /// Requires that all interfaces show a problem without this secret in it.
    async fn hide(&self, secret: &str) -> anyhow::Result<()> {
        let commands: [&[&str]; 5] = [
            &["capture", "status"],
            &["capture", "status", "--json"],
            &["status"],
            &["status", "--json"],
            &["doctor"],
        ];
        for command in commands {
            let text = self.answer(command).await?;
            let is_hidden = text.contains("password=***") && !text.contains(secret);
            ensure!(is_hidden, "{command:?}: {text}");
        }
        let is_hidden = async || {
            let page = got(&self.console, "/captures").await?.1;
            ensure!(!page.contains(secret), "{page}");
            Ok(page.contains("password=***"))
        };
        eventually(BOUND, "the console hides the secret", is_hidden).await
    }

    /// Waits until all interfaces show the capture in this state.
    async fn all_show(&self, state: &str) -> anyhow::Result<()> {
        eventually(BOUND, &format!("all show {state}"), async || {
            let metrics = got(&self.metrics, "/metrics").await?.1;
            let metric = format!("state=\"{state}\"}} 1");
            let mut lines = metrics.lines();
            Ok(self.answer(&["capture", "status"]).await?.contains(state)
                && self.answer(&["status"]).await?.contains(state)
                && got(&self.console, "/captures").await?.1.contains(state)
                && lines.any(|line| line.contains("capture") && line.ends_with(&metric)))
        })
        .await
    }
}

fn arrived(redis: &Redis) -> anyhow::Result<Vec<String>> {
    let list = redis.ask(&["LRANGE", "queue:default", "0", "-1"])?;
    let list = list.as_array().into_iter().flatten().rev();
    let mut first = Vec::new();
    for job in list {
        let job: Value = serde_json::from_str(job.as_str().unwrap_or_default())?;
        let payload = job["args"][0].as_str().unwrap_or_default().to_owned();
        if !first.contains(&payload) {
            first.push(payload);
        }
    }
    Ok(first)
}

#[tokio::test(flavor = "multi_thread")]
async fn every_surface_shows_captures_that_wait_for_their_destination() -> anyhow::Result<()> {
    let stage = Stage::new()?;
    let (server, database) = with_logical_log().await?;
    let client = database.client().await?;
    client.batch_execute(TABLE).await?;
    stage.run_on(&database, &["migrate"]).await?.good()?;
    let redis = Redis::start(KEEPS)?;
    let file = format!(
        "[route.hot]\nto = 'sidekiq://127.0.0.1:{}/0'\nordered = true\ntime_limit = '2s'\n\
         [capture.orders]\noutbox = 'public.outbox'\nroute = 'hot'\n",
        redis.port()
    );
    stage.write("posthaste.toml", &file)?;
    let install = ["capture", "install"];
    stage.run_on(&database, &install).await?.good()?;
    let mut run = stage.spawn_on(&database, &["capture", "run"])?;
    run.error_line("capture orders: to", BOUND).await?;
    let surfaces = Surfaces::new(stage, database).await?;
    let insert = async |name: &str| {
        let insert = "INSERT INTO outbox (payload) SELECT concat($1::text, i)
                        FROM generate_series(1, 5) i";
        client.execute(insert, &[&name]).await
    };
    insert("before").await?;
    surfaces.all_show("direct").await?;
    eventually(BOUND, "the first arrived", async || {
        Ok(arrived(&redis)?.len() == 5)
    })
    .await?;

    redis.kill9()?;
    insert("during").await?;
    surfaces.all_show("waiting").await?;
    let capture = surfaces.capture().await?;
    let problem = capture["path_problem"].as_str().unwrap_or_default();
    ensure!(!problem.is_empty(), "no reason: {capture}");
    let page = got(&surfaces.console, "/captures").await?.1;
    let text = surfaces.answer(&["capture", "status"]).await?;
    for shown in [&text, &page] {
        ensure!(shown.contains(problem), "{problem} is not in {shown}");
    }
    // The capture has waited for longer, and the destination quoted a secret.
    client
        .batch_execute(
            "UPDATE posthaste.capture SET indirect_since = indirect_since - interval '1 min',
                    path_problem = path_problem || ' password=swordfish'",
        )
        .await?;
    for command in ["status", "doctor"] {
        let text = surfaces.answer(&[command]).await?;
        let is_found = text.contains("capture.waiting") && text.contains(problem);
        ensure!(is_found, "{command}: {text}");
    }
    surfaces.hide("swordfish").await?;

    redis.restart()?;
    surfaces.all_show("direct").await?;
    insert("after").await?;
    let expected = ["before", "during", "after"].iter();
    let expected: Vec<String> = expected
        .flat_map(|name| (1..=5).map(move |n| format!("{name}{n}")))
        .collect();
    eventually(BOUND, "all arrived", async || {
        Ok(arrived(&redis)?.len() == expected.len())
    })
    .await?;
    assert_eq!(arrived(&redis)?, expected);
    let jobs = "SELECT count(*) FROM posthaste.job";
    assert_eq!(client.query_one(jobs, &[]).await?.get::<_, i64>(0), 0);
    let problem = &surfaces.capture().await?["path_problem"];
    ensure!(problem.is_null(), "{problem}");
    drop((run, server));
    Ok(())
}
