//! Reports about an index that lags or that another program has changed, and searches in such an
//! index.

use std::time::SystemTime;

use anyhow::ensure;
use posthaste_testkit::receivers::{OpenSearch, Receiver, are_here};
use posthaste_testkit::{Sql as _, eventually, number, unique};
use serde_json::{Value, json};
use tokio_postgres::Client;

use super::{TABLE, good, with_pages};
use crate::stage::BOUND;

#[tokio::test(flavor = "multi_thread")]
async fn searches_fill_their_limit_despite_deleted_matches() -> anyhow::Result<()> {
    let (stage, database, client) = with_pages("postgres:").await?;
    client
        .run(
            "INSERT INTO page (title) SELECT 'haste' FROM generate_series(1, 30);
             INSERT INTO page (title, body) SELECT 'haste', repeat('haste ', 50)
               FROM generate_series(1, 10)",
        )
        .await?;
    good(&stage, &database, &["sync", "run", "--once"]).await?;
    let ids = async |limit: &str| -> anyhow::Result<Vec<u64>> {
        let found = ["sync", "search", "haste", "--limit", limit, "--json"];
        let found: Value = serde_json::from_str(&good(&stage, &database, &found).await?)?;
        let found = found.as_array().into_iter().flatten();
        let ids = found.filter_map(|one| one["id"].as_str()?.parse().ok());
        Ok(ids.collect())
    };
    let best = ids("10").await?;
    assert!(best.iter().all(|id| *id > 50), "{best:?}");
    client.run("DELETE FROM page WHERE id > 50").await?;
    assert_eq!(ids("10").await?.len(), 10);
    // All rows, each once.
    let mut all = ids("100").await?;
    all.sort_unstable();
    assert_eq!(all, (21..=50).collect::<Vec<u64>>());
    Ok(())
}

#[tokio::test(flavor = "multi_thread")]
async fn index_failures_are_shown_with_time_and_reason() -> anyhow::Result<()> {
    let (stage, database, client) = with_pages("postgres:").await?;
    good(&stage, &database, &["sync", "run", "--once"]).await?;
    // No server listens there.
    let away = format!("{TABLE}index = 'http://127.0.0.1:1/pages'\n");
    stage.write(
        "posthaste.toml",
        &away.replace("document =", "# document ="),
    )?;
    good(&stage, &database, &["sync", "install"]).await?;
    let mut sync = stage.spawn_on(&database, &["sync", "run"])?;
    sync.error_line("Ctrl-C stops", BOUND).await?;
    let three_seconds_on = change_pages(&client).await?;
    let status = async || -> anyhow::Result<Value> {
        let status = good(&stage, &database, &["status", "--json"]).await?;
        Ok(serde_json::from_str::<Value>(&status)?["syncs"][0].take())
    };
    eventually(BOUND, "three seconds pass", || {
        is_past(&client, three_seconds_on)
    })
    .await?;
    eventually(
        BOUND,
        "its age grows while it is tried and rescheduled",
        async || {
            let line = status().await?;
            let problem = &line["problems"][0];
            Ok(line["lag_seconds"].as_f64() > Some(3.0)
                && line["failing_seconds"].as_f64() > Some(3.0)
                && problem["jobs"] == 5
                && problem["reason"]
                    .as_str()
                    .is_some_and(|why| !why.is_empty()))
        },
    )
    .await?;
    let shown = good(&stage, &database, &["status"]).await?;
    assert!(shown.contains("failing for"), "{shown}");
    let doctor = ["doctor", "--older-than", "1"];
    let output = stage.run_on(&database, &doctor).await?;
    assert!(
        output
            .out
            .contains("sync.failing: Sync pages is failing: 5 jobs fail for"),
        "{output:?}"
    );
    sync.terminate()?;
    sync.exit(BOUND).await?;
    // The problem is removed with the jobs.
    stage.write("posthaste.toml", &format!("{TABLE}index = 'postgres:'\n"))?;
    good(&stage, &database, &["sync", "install"]).await?;
    eventually(BOUND, "all is in the index", async || {
        good(&stage, &database, &["sync", "run", "--once"]).await?;
        Ok(status().await?["lag_seconds"].is_null())
    })
    .await?;
    let line = status().await?;
    assert_eq!(line["problems"], Value::Array(Vec::new()), "{line}");
    let output = stage.run_on(&database, &doctor).await?;
    assert!(!output.out.contains("Sync pages"), "{output:?}");
    Ok(())
}

/// Changes five pages. Returns the time, by the database's clock, at which the changes are three
/// seconds old.
async fn change_pages(client: &Client) -> anyhow::Result<SystemTime> {
    client
        .run("UPDATE page SET body = 'other' WHERE id <= 5")
        .await?;
    let sql = "SELECT clock_timestamp() + interval '3 s'";
    Ok(client.query_one(sql, &[]).await?.get(0))
}

/// Whether this time has passed. Reading the status is slow, and it shows no such age before.
async fn is_past(client: &Client, moment: SystemTime) -> anyhow::Result<bool> {
    let sql = "SELECT clock_timestamp() > $1";
    client.one_with(sql, &[&moment]).await
}

/// A server whose disk is nearly full accepts deletions only. It lifts the block once there is
/// space, so the test sets it repeatedly.
#[tokio::test(flavor = "multi_thread")]
async fn blocked_indexes_are_reported_as_behind() -> anyhow::Result<()> {
    if !are_here("a blocked index", &[Receiver::OpenSearch]) {
        return Ok(());
    }
    let index = format!("{}/{}", OpenSearch::shared()?.url(), unique("blocked"));
    let (stage, database, client) = with_pages(&index).await?;
    good(&stage, &database, &["sync", "run", "--once"]).await?;
    let _ = rustls::crypto::ring::default_provider().install_default();
    let http = reqwest::Client::builder().no_proxy().build()?;
    let block = async |is_on: Value| -> anyhow::Result<()> {
        let settings = json!({ "index.blocks.read_only_allow_delete": is_on }).to_string();
        let put = http.put(format!("{index}/_settings")).body(settings);
        let put = put.header("content-type", "application/json").send();
        put.await?.error_for_status()?;
        Ok(())
    };
    block(true.into()).await?;
    let mut sync = stage.spawn_on(&database, &["sync", "run"])?;
    sync.error_line("Ctrl-C stops", BOUND).await?;
    let three_seconds_on = change_pages(&client).await?;
    let status = async || -> anyhow::Result<Value> {
        let status = good(&stage, &database, &["status", "--json"]).await?;
        Ok(serde_json::from_str::<Value>(&status)?["syncs"][0].take())
    };
    eventually(BOUND, "three seconds pass", async || {
        block(true.into()).await?;
        is_past(&client, three_seconds_on).await
    })
    .await?;
    let mut last = 0.0;
    let mut grown = 0;
    eventually(BOUND, "its lag grows, and the block is named", async || {
        block(true.into()).await?;
        let line = status().await?;
        let lag = line["lag_seconds"].as_f64().unwrap_or_default();
        grown = if lag > last { grown + 1 } else { 0 };
        last = lag;
        let reason = line["problems"][0]["reason"].as_str().unwrap_or_default();
        Ok(grown > 2 && lag > 3.0 && reason.contains("read-only-allow-delete block"))
    })
    .await?;
    let shown = good(&stage, &database, &["status"]).await?;
    assert!(shown.contains("failing for"), "{shown}");
    let doctor = stage
        .run_on(&database, &["doctor", "--older-than", "1"])
        .await?;
    assert!(doctor.out.contains("Sync pages is failing: "), "{doctor:?}");
    block(Value::Null).await?;
    eventually(BOUND, "all is in the index", async || {
        let line = status().await?;
        Ok(line["lag_seconds"].is_null() && line["problems"] == json!([]))
    })
    .await?;
    sync.terminate()?;
    ensure!(sync.exit(BOUND).await?.success());
    let audit = good(&stage, &database, &["sync", "audit", "--contents"]).await?;
    assert_eq!(audit, "pages: 20 rows, 20 documents; equal");
    Ok(())
}

#[tokio::test(flavor = "multi_thread")]
async fn content_audits_find_changes_that_bypassed_triggers() -> anyhow::Result<()> {
    let (stage, database, client) = with_pages("tantivy:index").await?;
    good(&stage, &database, &["sync", "run", "--once"]).await?;
    client
        .run(
            "ALTER TABLE page DISABLE TRIGGER USER; UPDATE page SET body = 'past' WHERE id = 7;
             ALTER TABLE page ENABLE TRIGGER USER",
        )
        .await?;
    let equal = good(&stage, &database, &["sync", "audit"]).await?;
    assert_eq!(equal, "pages: 20 rows, 20 documents; equal");
    let audit = ["sync", "audit", "--contents"];
    let output = stage.run_on(&database, &audit).await?;
    assert_eq!(output.code, Some(3), "{output:?}");
    assert!(
        output
            .out
            .contains("1 altered; they DIFFER\n  altered     7"),
        "{output:?}"
    );
    let repair = [&audit[..], &["--repair"]].concat();
    let repaired = good(&stage, &database, &repair).await?;
    assert!(
        repaired.contains("1 altered; all repaired, equal now"),
        "{repaired}"
    );
    assert_eq!(good(&stage, &database, &audit).await?, equal);
    assert_eq!(
        good(&stage, &database, &["sync", "search", "past"]).await?,
        "7  past | old page 7"
    );
    Ok(())
}

#[tokio::test(flavor = "multi_thread")]
async fn a_second_sync_does_not_affect_the_first() -> anyhow::Result<()> {
    let (stage, database, client) = with_pages("postgres:").await?;
    let second = TABLE.replace("[sync.pages]", "[sync.titles]");
    let second = second.replace("text = 'body'", "id = 'id'");
    let both = format!("{TABLE}index = 'postgres:'\n{second}index = 'tantivy:titles'\n");
    stage.write("posthaste.toml", &both)?;
    let ours = async |arguments: &[&str]| good(&stage, &database, arguments).await;
    ours(&["sync", "install"]).await?;
    client
        .run("INSERT INTO page (title) VALUES ('both')")
        .await?;
    ours(&["sync", "run", "--once"]).await?;
    for table in ["pages", "titles"] {
        let found = ours(&["sync", "search", "both", "--in", table]).await?;
        assert_eq!(found.lines().count(), 1, "{table}: {found}");
    }
    assert!(
        ours(&["sync", "audit"])
            .await?
            .contains("titles: 21 rows, 21 documents; equal")
    );
    // A trigger of one sync that calls the other's function does not count as its own.
    let doctor = async || stage.run_on(&database, &["doctor"]).await;
    let finding = "Sync pages: triggers are missing";
    assert!(!doctor().await?.out.contains("sync.triggers"));
    client
        .run(
            "CREATE OR REPLACE TRIGGER posthaste_update_pages AFTER UPDATE ON page
               REFERENCING NEW TABLE AS fresh FOR EACH STATEMENT
               EXECUTE FUNCTION posthaste.sync_update_titles()",
        )
        .await?;
    let output = doctor().await?.out;
    assert!(
        output.contains(finding) && !output.contains("Sync titles"),
        "{output}"
    );
    ours(&["sync", "install"]).await?;
    client
        .run("SELECT posthaste.unsync_table('titles')")
        .await?;
    assert!(!doctor().await?.out.contains("sync.triggers"));
    client
        .run("UPDATE page SET body = 'still' WHERE id = 3")
        .await?;
    ours(&["sync", "run", "--once", "pages"]).await?;
    assert_eq!(
        ours(&["sync", "search", "still", "--in", "pages"]).await?,
        "3  still | old page 3"
    );
    Ok(())
}

#[tokio::test(flavor = "multi_thread")]
async fn ids_may_contain_commas() -> anyhow::Result<()> {
    let (stage, database, client) = with_pages("postgres:").await?;
    let again = [
        "sync", "reindex", "pages", "--id", "a,b", "--id", "c", "--ids", "d,e",
    ];
    let begun = good(&stage, &database, &again).await?;
    assert_eq!(begun, "pages: 4 documents will be written again");
    let one = "SELECT count(*) FROM posthaste.job WHERE kwargs ->> 'id' = 'a,b'";
    assert_eq!(number(&client, one).await?, 1);
    Ok(())
}

#[tokio::test(flavor = "multi_thread")]
async fn partitions_without_triggers_are_reported_until_reinstalled() -> anyhow::Result<()> {
    let (stage, database, client) = with_pages("postgres:").await?;
    client
        .run(
            "SELECT posthaste.unsync_table('pages'); DROP TABLE page;
             CREATE TABLE page (id bigint PRIMARY KEY, title text, body text,
               gone boolean NOT NULL DEFAULT false) PARTITION BY RANGE (id);
             CREATE TABLE page_0 PARTITION OF page FOR VALUES FROM (0) TO (100)",
        )
        .await?;
    good(&stage, &database, &["sync", "install"]).await?;
    let named = async |part: &str| -> anyhow::Result<bool> {
        let output = stage.run_on(&database, &["doctor"]).await?.out;
        let finding = format!("Sync pages: triggers are missing, disabled or foreign on {part}.");
        Ok(output.contains(&finding))
    };
    assert!(!named("").await?);
    for (done, undone, part) in [
        (
            "CREATE TABLE page_1 PARTITION OF page FOR VALUES FROM (100) TO (200)",
            None,
            "page_1",
        ),
        (
            "ALTER TABLE page_0 DISABLE TRIGGER USER",
            Some("ALTER TABLE page_0 ENABLE TRIGGER USER"),
            "page_0",
        ),
    ] {
        client.run(done).await?;
        assert!(named(part).await?, "{part}");
        match undone {
            Some(undone) => client.run(undone).await?,
            None => drop(good(&stage, &database, &["sync", "install"]).await?),
        }
        let output = stage.run_on(&database, &["doctor"]).await?.out;
        assert!(!output.contains("sync.triggers"), "{output}");
    }
    // Rows that were inserted without triggers are found, and so are those that were dropped with
    // their partition.
    client
        .run("INSERT INTO page (id, title) SELECT n, 'page ' || n FROM generate_series(95, 105) n")
        .await?;
    good(&stage, &database, &["sync", "run", "--once"]).await?;
    client
        .run(
            "ALTER TABLE page DETACH PARTITION page_1; DROP TABLE page_1;
             CREATE TABLE page_2 (LIKE page INCLUDING DEFAULTS);
             INSERT INTO page_2 (id, title) VALUES (201, 'unseen');
             ALTER TABLE page ATTACH PARTITION page_2 FOR VALUES FROM (200) TO (300)",
        )
        .await?;
    let audit = stage
        .run_on(&database, &["sync", "audit", "--repair"])
        .await?
        .out;
    assert!(
        audit.contains("1 missing") && audit.contains("6 orphaned"),
        "{audit}"
    );
    let found = good(&stage, &database, &["sync", "search", "unseen"]).await?;
    assert!(found.starts_with("201"), "{found}");
    Ok(())
}
