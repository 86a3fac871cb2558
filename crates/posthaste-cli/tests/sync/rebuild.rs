//! `posthaste sync rebuild`: a new index replaces the current one on a real server.

use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use posthaste_sync::ElasticClient;
use posthaste_testkit::receivers::{self, OpenSearch, Receiver};
use posthaste_testkit::{Sql as _, TestDb, eventually, number, ran};
use serde_json::Value;
use tokio_postgres::Client;

use super::{TABLE, good, with_pages};
use crate::stage::{BOUND, Stage};

struct Setup {
    stage: Stage,
    database: TestDb,
    client: Client,
    server: ElasticClient,
    alias: &'static str,
    url: String,
}

/// Makes a table of this many rows, which are all in an index with this alias. `None` if this
/// machine has no server.
async fn setup(test: &str, alias: &'static str, rows: u32) -> anyhow::Result<Option<Setup>> {
    if !receivers::are_here(test, &[Receiver::OpenSearch]) {
        return Ok(None);
    }
    let _ = rustls::crypto::ring::default_provider().install_default();
    let address = OpenSearch::shared()?.url();
    let server = ElasticClient::new(reqwest::Client::builder().no_proxy(), &address)?;
    let url = format!("{address}/{alias}");
    let (stage, database, client) = with_pages(&url).await?;
    let rows = format!(
        "INSERT INTO page (title, body)
         SELECT 'page ' || n, 'words' FROM generate_series(21, {rows}) n"
    );
    client.run(&rows).await?;
    good(&stage, &database, &["sync", "reindex", "pages", "--all"]).await?;
    good(&stage, &database, &["sync", "run", "--once"]).await?;
    let setup = Setup {
        stage,
        database,
        client,
        server,
        alias,
        url,
    };
    assert_eq!(setup.index().await?, [format!("{alias}-1")]);
    Ok(Some(setup))
}

impl Setup {
    /// Writes the file with this analyzer of titles.
    fn define(&self, analyzer: &str) -> anyhow::Result<()> {
        let title = format!("{{ type = 'text', analyzer = '{analyzer}' }}");
        let definition =
            format!("definition = {{ mappings = {{ properties = {{ title = {title} }} }} }}\n");
        let text = format!("{TABLE}index = '{}'\n{definition}", self.url);
        self.stage.write("posthaste.toml", &text).map(drop)
    }

    async fn index(&self) -> anyhow::Result<Vec<String>> {
        Ok(self.server.resolve_alias(self.alias).await?)
    }

    async fn ours(&self, arguments: &[&str]) -> anyhow::Result<String> {
        good(&self.stage, &self.database, arguments).await
    }

    /// Begins a rebuild at this rate, and kills it when the new index has this many documents.
    async fn begin_and_kill(&self, rate: &str, documents: u64) -> anyhow::Result<()> {
        let begin = ["sync", "rebuild", "pages", "--rate", rate];
        let mut rebuild = self.stage.spawn_on(&self.database, &begin)?;
        let next = format!("{}-2", self.alias);
        eventually(BOUND, "some are in the new index", async || {
            if !self.server.index_exists(&next).await? {
                return Ok(false);
            }
            self.server.refresh(&next).await?;
            Ok(self.server.count(&next, None).await? >= documents)
        })
        .await?;
        rebuild.kill()?;
        // Searches still use the old index.
        assert_eq!(self.index().await?, [format!("{}-1", self.alias)]);
        Ok(())
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn rebuilds_survive_kills_under_live_writes() -> anyhow::Result<()> {
    let test = "an index is made anew from the command line";
    // Several pages of a walk, so that the rebuild is killed between them.
    let Some(setup) = setup(test, "pages-made-anew", 8_000).await? else {
        return Ok(());
    };
    setup.define("german")?;
    let mut sync = setup.stage.spawn_on(&setup.database, &["sync", "run"])?;
    sync.error_line("Ctrl-C stops", BOUND).await?;
    let is_over = AtomicBool::new(false);
    let traffic = async {
        let mut rounds = 0;
        // Slowly enough for a busy machine to index in two indexes with an unoptimized build.
        let mut pace = tokio::time::interval(Duration::from_millis(250));
        while !is_over.load(Ordering::SeqCst) {
            pace.tick().await;
            rounds += 1;
            let edit = format!(
                "UPDATE page SET body = 'round {rounds}' WHERE id % 197 = {rounds} % 197; DELETE
                 FROM page WHERE id % 2111 = {rounds} % 2111;
                 INSERT INTO page (title) SELECT 'Häuser {rounds}' FROM generate_series(1, 3)"
            );
            setup.client.run(&edit).await?;
        }
        anyhow::Ok(rounds)
    };
    let rebuild = async {
        for documents in [1, 2_501, 5_001] {
            setup.begin_and_kill("1000", documents).await?;
        }
        let done = setup.ours(&["sync", "rebuild", "--json"]).await;
        is_over.store(true, Ordering::SeqCst);
        done
    };
    let (done, rounds) = tokio::join!(rebuild, traffic);
    let done: Value = serde_json::from_str(&done?)?;
    assert_eq!(
        (&done["table"], &done["index"], &done["replaced"]),
        (
            &"pages".into(),
            &"pages-made-anew-2".into(),
            &"pages-made-anew-1".into()
        )
    );
    assert!(
        rounds? > 10 && done["rows"].as_u64() > Some(5_000),
        "{done}"
    );
    assert_eq!(setup.index().await?, ["pages-made-anew-2"]);
    eventually(BOUND, "both sides are equal", async || {
        let audit = setup
            .stage
            .run_on(&setup.database, &["sync", "audit"])
            .await?;
        Ok(audit.code == Some(0))
    })
    .await?;
    sync.terminate()?;
    assert!(sync.exit(BOUND).await?.success());
    // A separate count, and words as the new analyzer reads them.
    let rows = number(&setup.client, "SELECT count(*) FROM page WHERE NOT gone").await?;
    let live =
        serde_json::json!({"bool": {"must_not": {"exists": {"field": "posthaste.deleted_at"}}}});
    setup.server.refresh("pages-made-anew-2").await?;
    let documents = setup.server.count("pages-made-anew-2", Some(&live)).await?;
    assert_eq!(i64::try_from(documents)?, rows);
    let found = setup
        .ours(&["sync", "search", "Haus", "--limit", "3"])
        .await?;
    assert_eq!(found.lines().count(), 3, "{found}");
    ran::note("sync-rebuild");
    Ok(())
}

#[tokio::test(flavor = "multi_thread")]
async fn rebuilds_with_another_definition_must_be_abandoned_first() -> anyhow::Result<()> {
    let test = "a rebuild with another definition";
    let Some(setup) = setup(test, "pages-defined", 300).await? else {
        return Ok(());
    };
    setup.define("german")?;
    // The single page takes half a minute at this rate.
    setup.begin_and_kill("10", 1).await?;
    setup.define("english")?;
    let rebuild = ["sync", "rebuild", "pages"];
    let refused = setup
        .stage
        .run_on(&setup.database, &rebuild)
        .await?
        .failure()?;
    assert!(
        refused.contains("pages-defined-2 was started with another definition")
            && refused.contains("--give-up"),
        "{refused}"
    );
    assert_eq!(setup.index().await?, ["pages-defined-1"]);
    let give_up = ["sync", "rebuild", "pages", "--give-up"];
    let given_up = setup.ours(&give_up).await?;
    assert_eq!(given_up, "pages: the unfinished index is deleted");
    assert!(!setup.server.index_exists("pages-defined-2").await?);
    assert_eq!(
        setup.ours(&give_up).await?,
        "pages: no rebuild is in progress"
    );
    let done = setup.ours(&rebuild).await?;
    assert_eq!(
        done,
        "pages: pages-defined-2 with 300 rows replaced pages-defined-1"
    );
    let audit = setup.ours(&["sync", "audit"]).await?;
    assert_eq!(audit, "pages: 300 rows, 300 documents; equal");
    Ok(())
}

#[tokio::test(flavor = "multi_thread")]
async fn indexes_without_room_for_a_second_are_not_rebuilt() -> anyhow::Result<()> {
    let (stage, database, _) = with_pages("postgres:").await?;
    let rebuild = stage.run_on(&database, &["sync", "rebuild"]).await?;
    let refused = rebuild.failure()?;
    assert!(
        refused.contains("only an index on Elasticsearch or OpenSearch")
            && refused.contains("posthaste sync reindex pages --all"),
        "{refused}"
    );
    Ok(())
}
