//! Options that select documents: time windows, progress, and audits that no single row or id
//! stops.

use posthaste_testkit::{Sql as _, eventually, number};
use serde_json::Value;

use super::{TABLE, good, with_one_document, with_pages};
use crate::stage::BOUND;

#[tokio::test(flavor = "multi_thread")]
async fn reindexing_a_time_window_covers_its_rows_and_reports_the_remainder() -> anyhow::Result<()>
{
    let (stage, database, client) = with_pages("postgres:").await?;
    with_one_document(&stage, &database, &client).await?;
    client
        .run(
            "ALTER TABLE page DISABLE TRIGGER USER; UPDATE page \
             SET edited_at = timestamptz '2001-01-01 00:00 UTC' + id * interval '1 day'; ALTER \
             TABLE page ENABLE TRIGGER USER",
        )
        .await?;
    let ours = async |arguments: &str| {
        let arguments: Vec<&str> = arguments.split(' ').collect();
        good(&stage, &database, &arguments).await
    };
    let far = ours("sync reindex pages --progress").await?;
    assert_eq!(far, "pages: 0 left, 0 completed");
    // From the fifth to the ninth day, and before the tenth.
    let window =
        "sync reindex pages --column edited_at --since 2001-01-06T00:00Z --until 2001-01-11T00:00Z";
    let begun = ours(window).await?;
    assert_eq!(begun, "pages: 5 documents will be written again");
    let taken = "SELECT count(*) FROM posthaste.job WHERE queue = 'sync.pages.reindex' \
                 AND (kwargs ->> 'id')::integer BETWEEN 5 AND 9";
    assert_eq!(number(&client, taken).await?, 5);
    let far = ours("sync reindex pages --progress").await?;
    assert_eq!(far, "pages: 5 left, 0 completed");
    ours("sync run --once").await?;
    let far: Value = serde_json::from_str(&ours("sync reindex pages --progress --json").await?)?;
    assert_eq!(far["left"], 0);
    let audit = stage.run_on(&database, &["sync", "audit"]).await?;
    assert!(
        audit.out.contains("20 rows, 6 documents, 14 missing"),
        "{audit:?}"
    );
    Ok(())
}

#[tokio::test(flavor = "multi_thread")]
async fn unmakeable_rows_and_invalid_ids_do_not_stop_an_audit() -> anyhow::Result<()> {
    let (stage, database, client) = with_pages("postgres:").await?;
    let rows = "rows = \"SELECT p.id::text, p.posthaste_version, jsonb_build_object('all', \
                p.title, 'n', 1 / (p.id - 7)) FROM page p WHERE p.id = ANY ($1::bigint[])\"";
    let text = format!("{TABLE}index = 'postgres:'\n").replace("document =", "# document =");
    stage.write("posthaste.toml", &format!("{text}{rows}\n"))?;
    good(&stage, &database, &["sync", "install"]).await?;
    let repair = stage
        .run_on(&database, &["sync", "audit", "--repair"])
        .await?;
    assert_eq!(repair.code, Some(3), "{repair:?}");
    let expected =
        "20 rows, 19 documents, 19 missing, 1 unreadable; 19 repaired, the others DIFFER";
    assert!(repair.out.contains(expected), "{repair:?}");
    client
        .run("UPDATE posthaste.search SET id = 'abc' WHERE id = '3'")
        .await?;
    let audit = stage.run_on(&database, &["sync", "audit"]).await?;
    assert_eq!(audit.code, Some(3), "{audit:?}");
    let expected = "1 missing, 1 orphaned, 1 unreadable; they DIFFER";
    assert!(audit.out.contains(expected), "{audit:?}");
    client.run("DELETE FROM page WHERE id = 7").await?;
    let repair = good(&stage, &database, &["sync", "audit", "--repair"]).await?;
    assert!(
        repair.contains("1 missing, 1 orphaned; all repaired, equal now"),
        "{repair}"
    );
    let audit = good(&stage, &database, &["sync", "audit"]).await?;
    assert_eq!(audit, "pages: 19 rows, 19 documents; equal");
    Ok(())
}

#[tokio::test(flavor = "multi_thread")]
async fn reindexes_are_shown_paused_and_cancelled() -> anyhow::Result<()> {
    let (stage, database, client) = with_pages("postgres:").await?;
    let ours = async |arguments: &[&str]| good(&stage, &database, arguments).await;
    let jobs = async || {
        number(
            &client,
            "SELECT count(*) FROM posthaste.job WHERE queue = 'sync.pages.reindex' \
             AND state = 'available' AND priority = 1000",
        )
        .await
    };
    let plan = ours(&[
        "sync",
        "reindex",
        "pages",
        "--where",
        "t.id <= 7",
        "--dry-run",
    ])
    .await?;
    assert!(
        plan.contains("FROM public.page t WHERE (t.id <= 7)") && plan.contains("-- about "),
        "{plan}"
    );
    assert_eq!(jobs().await?, 0);
    ours(&["sync", "reindex", "pages", "--pause"]).await?;
    ours(&[
        "sync",
        "reindex",
        "pages",
        "--where",
        "t.id <= 7",
        "--tag",
        "mine",
    ])
    .await?;
    assert_eq!(jobs().await?, 7);
    ours(&[
        "sync",
        "reindex",
        "pages",
        "--column",
        "edited_at",
        "--since",
        "2000-01-01",
        "--until",
        "2001-01-01",
    ])
    .await?;
    assert_eq!(jobs().await?, 7);
    ours(&["sync", "reindex", "pages", "--ids", "8,999"]).await?;
    assert_eq!(jobs().await?, 9);
    let tagged =
        "SELECT count(*) FROM posthaste.job WHERE tag = 'mine' AND kwargs ->> 'force' = 'true'";
    assert_eq!(number(&client, tagged).await?, 7);
    // Re-indexes are paused; changes are synced.
    client
        .run("INSERT INTO page (title) VALUES ('beside')")
        .await?;
    let status: Value = serde_json::from_str(&ours(&["status", "--json"]).await?)?;
    assert_eq!(
        (
            &status["syncs"][0]["reindex"],
            &status["syncs"][0]["reindex_paused"]
        ),
        (&9.into(), &true.into())
    );
    let mut sync = stage.spawn_on(&database, &["sync", "run"])?;
    eventually(BOUND, "the change is found", async || {
        Ok(ours(&["sync", "search", "beside"]).await? == "21  beside")
    })
    .await?;
    assert_eq!(jobs().await?, 9);
    sync.terminate()?;
    assert!(sync.exit(BOUND).await?.success());
    // Paused jobs are not waited for.
    ours(&["sync", "run", "--once"]).await?;
    assert_eq!(jobs().await?, 9);
    assert_eq!(
        ours(&["sync", "reindex", "pages", "--cancel"]).await?,
        "pages: 9 jobs cancelled"
    );
    ours(&["sync", "reindex", "pages", "--resume"]).await?;
    ours(&["sync", "reindex", "pages", "--all"]).await?;
    let mut sync = stage.spawn_on(&database, &["sync", "run"])?;
    let far = ours(&["sync", "reindex", "pages", "--wait"]).await?;
    // Sums since the installation lag by a moment.
    assert!(far.starts_with("pages: 0 left, "), "{far}");
    // Selected documents are written again although nothing has changed, and are counted
    // separately.
    let again = "SELECT count(*) FROM posthaste.search WHERE pass >= 2";
    assert_eq!(number(&client, again).await?, 0);
    let some = ["sync", "reindex", "pages", "--where", "t.id <= 3", "--wait"];
    assert_eq!(ours(&some).await?, "pages: 3 written again");
    assert_eq!(number(&client, again).await?, 3);
    let compared = ours(&[&some[..], &["--only-different"]].concat()).await?;
    assert_eq!(compared, "pages: 3 compared, and equal now");
    assert_eq!(number(&client, again).await?, 3);
    sync.terminate()?;
    assert!(sync.exit(BOUND).await?.success());
    assert!(ours(&["sync", "audit"]).await?.ends_with("; equal"));
    Ok(())
}

#[tokio::test(flavor = "multi_thread")]
async fn a_negated_column_can_hide_unpublished_rows() -> anyhow::Result<()> {
    let (stage, database, client) = with_pages("postgres:").await?;
    client
        .run(
            "ALTER TABLE page ADD published boolean NOT NULL DEFAULT true;
             ALTER TABLE page ADD hidden boolean GENERATED ALWAYS AS (NOT published) STORED",
        )
        .await?;
    let table = TABLE.replace("deleted = 'gone'", "deleted = 'hidden'");
    stage.write("posthaste.toml", &format!("{table}index = 'postgres:'\n"))?;
    good(&stage, &database, &["sync", "install"]).await?;
    good(&stage, &database, &["sync", "reindex", "pages", "--all"]).await?;
    let audited = async || {
        good(&stage, &database, &["sync", "run", "--once"]).await?;
        good(&stage, &database, &["sync", "audit"]).await
    };
    assert_eq!(audited().await?, "pages: 20 rows, 20 documents; equal");
    let hide = "UPDATE page SET published = false WHERE id <= 5";
    client.run(hide).await?;
    assert_eq!(audited().await?, "pages: 15 rows, 15 documents; equal");
    let show = "UPDATE page SET published = true WHERE id = 1";
    client.run(show).await?;
    assert_eq!(audited().await?, "pages: 16 rows, 16 documents; equal");
    Ok(())
}

/// A column may have any name, including the alias of the row in our statements.
#[tokio::test(flavor = "multi_thread")]
async fn tables_with_a_column_named_t_can_be_synced() -> anyhow::Result<()> {
    let (stage, database, client) = with_pages("postgres:").await?;
    let rename = "ALTER TABLE page RENAME title TO t";
    client.run(rename).await?;
    stage.write(
        "posthaste.toml",
        "[sync.pages]\ntable = 'page'\nindex = 'postgres:'\n",
    )?;
    good(&stage, &database, &["sync", "install"]).await?;
    good(&stage, &database, &["sync", "audit", "--repair"]).await?;
    let audit = good(&stage, &database, &["sync", "audit", "--contents"]).await?;
    assert_eq!(audit, "pages: 20 rows, 20 documents; equal");
    Ok(())
}

#[tokio::test(flavor = "multi_thread")]
async fn dropped_tables_are_named_by_every_command() -> anyhow::Result<()> {
    let (stage, database, client) = with_pages("postgres:").await?;
    client.run("DROP TABLE page").await?;
    let gone = "the table of sync pages was dropped";
    let audit = stage.run_on(&database, &["sync", "audit"]).await?;
    assert!(audit.failure()?.contains(gone));
    let doctor = stage.run_on(&database, &["doctor"]).await?;
    assert!(
        doctor.out.contains("The table of sync pages was dropped"),
        "{doctor:?}"
    );
    client
        .run("SELECT posthaste.sync('pages', '1', delay => '0')")
        .await?;
    let _sync = stage.spawn_on(&database, &["sync", "run"])?;
    eventually(BOUND, "its jobs say so", async || {
        let query = "SELECT count(*) FROM posthaste.job
                     WHERE last_error LIKE '%the table of sync pages was dropped%'";
        Ok(number(&client, query).await? > 0)
    })
    .await
}
