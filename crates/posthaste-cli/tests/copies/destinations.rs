//! Relays and syncs of a copy: nothing reaches the original's destinations.

use anyhow::ensure;
use posthaste_testkit::receivers::{Receiver, Redis, are_here};
use posthaste_testkit::{
    Child, PgServer, PgVersion, Sql as _, TestDb, connect, eventually, number,
};
use serde_json::Value;
use tokio_postgres::Client;

use crate::exporter::{got, served};
use crate::stage::{self, BOUND, Stage};

const PAGES: &str = "CREATE TABLE page (id bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
                                        title text NOT NULL);
                     INSERT INTO page (title) SELECT concat('page ', n)
                       FROM generate_series(1, 9) n";

/// Waiting jobs of each kind: ready, ordered, unique, scheduled and retried.
const WAITING: &str = "
    SELECT posthaste.enqueue('ready', queue => 'mail') FROM generate_series(1, 3);
    SELECT posthaste.enqueue('ordered', queue => 'mail', ordering_key => 'o')
      FROM generate_series(1, 2);
    SELECT posthaste.enqueue('unique', queue => 'mail', unique_key => 'u');
    SELECT posthaste.enqueue('scheduled', queue => 'mail',
      scheduled_at => clock_timestamp() + interval '1 s');
    UPDATE page SET title = 'changed' WHERE id <= 2";
/// Jobs that exist in a copy alone.
const ADDED: &str = "SELECT posthaste.enqueue('copied', queue => 'mail');
    UPDATE page SET title = 'copied' WHERE id = 3";

/// A running relay and a running sync.
struct Pair([Child; 2]);

impl Pair {
    fn start(stage: &Stage, url: &str) -> anyhow::Result<Self> {
        let listen = ["--listen", "127.0.0.1:0"];
        let relay = [&["relay", "run"][..], &listen].concat();
        let sync = [&["sync", "run"][..], &listen].concat();
        Ok(Self([
            stage.spawn_at(url, &relay)?,
            stage.spawn_at(url, &sync)?,
        ]))
    }

    async fn stop(mut self) -> anyhow::Result<()> {
        for one in &mut self.0 {
            one.terminate()?;
            ensure!(one.exit(BOUND).await?.success(), "{:?}", one.stderr());
        }
        Ok(())
    }
}

struct Destinations {
    redis: Redis,
    index: Client,
}

impl Destinations {
    /// Returns the names of the jobs that were sent.
    fn sent(&self) -> anyhow::Result<Vec<String>> {
        let lists: Vec<String> = serde_json::from_value(self.redis.ask(&["KEYS", "queue:*"])?)?;
        let mut sent = Vec::new();
        for list in lists {
            let jobs = self.redis.ask(&["LRANGE", &list, "0", "-1"])?;
            for job in serde_json::from_value::<Vec<String>>(jobs)? {
                let job: Value = serde_json::from_str(&job)?;
                sent.push(job["class"].as_str().unwrap_or_default().to_owned());
            }
        }
        sent.sort_unstable();
        Ok(sent)
    }

    async fn titled(&self, title: &str) -> anyhow::Result<i64> {
        let documents = format!(
            "SELECT count(*) FROM posthaste.search
              WHERE words @@ to_tsquery('english', '{title}')"
        );
        number(&self.index, &documents).await
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn relays_and_syncs_of_an_unadopted_copy_send_nothing() -> anyhow::Result<()> {
    let test = "relays_and_syncs_of_an_unadopted_copy_send_nothing";
    if !are_here(test, &[Receiver::Redis]) {
        return Ok(());
    }
    let (stage, elsewhere) = (Stage::new()?, stage::database().await?);
    let server = PgServer::start(PgVersion::any(), &[])?;
    let database = TestDb::empty(&server).await?;
    stage.run_on(&database, &["migrate"]).await?.good()?;
    let client = database.client().await?;
    client.run(PAGES).await?;
    let to = Destinations {
        redis: Redis::start(&[("appendonly", "yes")])?,
        index: elsewhere.client().await?,
    };
    let file = format!(
        "[route.mail]\nqueue = 'mail'\nto = 'sidekiq+{}'\n\
         [sync.pages]\ntable = 'page'\ndelay = '0s'\nperiod = '1s'\nindex = '{}'\n",
        to.redis.url(),
        elsewhere.url()
    );
    stage.write("posthaste.toml", &file)?;
    stage
        .run_on(&database, &["sync", "install"])
        .await?
        .good()?;
    let original = Pair::start(&stage, database.url())?;
    client
        .run("SELECT posthaste.enqueue('first', queue => 'mail')")
        .await?;
    eventually(BOUND, "the original sends and indexes", async || {
        Ok(to.sent()? == ["first"] && to.titled("page").await? == 9)
    })
    .await?;
    original.stop().await?;
    client.run(WAITING).await?;

    let copy = tokio::task::block_in_place(|| server.start_backup(&[]))?;
    let url = copy.url(database.name());
    let there = connect(&url).await?;
    there.run(ADDED).await?;
    let mut copied = Pair::start(&stage, &url)?;
    for one in &mut copied.0 {
        let root = served(one).await?;
        let line = one.error_line("another site owns", BOUND).await?;
        assert!(line.contains("posthaste adopt"), "{line}");
        eventually(BOUND, "it is not ready", async || {
            let (status, answer) = got(&root, "/ready").await?;
            Ok(status == 503 && answer.contains("owns this store, not"))
        })
        .await?;
    }
    // The original does the waiting jobs while the processes of the copy wait.
    let original = Pair::start(&stage, database.url())?;
    let all = [
        "first",
        "ordered",
        "ordered",
        "ready",
        "ready",
        "ready",
        "scheduled",
        "unique",
    ];
    eventually(BOUND, "the original goes on", async || {
        Ok(to.sent()? == all && to.titled("changed").await? == 2)
    })
    .await?;
    assert_eq!(to.titled("copied").await?, 0);
    original.stop().await?;

    stage.run_with_url(&url, &["adopt"]).await?.good()?;
    eventually(
        BOUND,
        "the copy sends and indexes once it is adopted",
        async || {
            let sent = to.sent()?;
            let copied = sent.iter().filter(|name| *name == "copied").count();
            Ok(copied == 1 && sent.len() == 2 * all.len() && to.titled("copied").await? == 1)
        },
    )
    .await?;
    copied.stop().await
}
