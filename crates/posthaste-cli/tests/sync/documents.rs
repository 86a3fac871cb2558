//! Documents get new settings: programs with the old file stop, and none of their documents remain.

use posthaste_testkit::{Sql as _, eventually, number};

use super::{TABLE, good, with_pages};
use crate::stage::BOUND;

#[tokio::test(flavor = "multi_thread")]
async fn syncs_with_an_outdated_file_write_nothing_after_a_new_install() -> anyhow::Result<()> {
    let (stage, database, client) = with_pages("postgres:").await?;
    let mut old = stage.spawn_on(&database, &["sync", "run"])?;
    old.error_line("Ctrl-C stops", BOUND).await?;
    eventually(BOUND, "the index is filled", async || {
        Ok(number(&client, "SELECT count(*) FROM posthaste.search").await? == 20)
    })
    .await?;
    let table = TABLE.replace("text = 'body'", "text = 'body', more = 'edited_at'");
    stage.write("posthaste.toml", &format!("{table}index = 'postgres:'\n"))?;
    // With the new file alone the sync does not start.
    let early = stage.run_on(&database, &["sync", "run", "--once"]).await?;
    assert!(early.failure()?.contains("'posthaste sync install'"));
    good(&stage, &database, &["sync", "install"]).await?;
    client
        .run("UPDATE page SET title = 'changed' WHERE id = 1")
        .await?;
    eventually(
        BOUND,
        "the old process says why it does nothing",
        async || {
            let query = "SELECT count(*) FROM posthaste.job WHERE kwargs ->> 'id' = '1'
                     AND attempt = 0 AND last_error LIKE '%restart it with the new one%'";
            // The job that wrote the row first may not have seen its document yet.
            Ok(number(&client, query).await? >= 1)
        },
    )
    .await?;
    let stale = good(&stage, &database, &["sync", "search", "changed"]).await?;
    assert_eq!(stale, "nothing found");
    old.terminate()?;
    assert!(old.exit(BOUND).await?.success());
    good(&stage, &database, &["sync", "reindex", "pages", "--all"]).await?;
    good(&stage, &database, &["sync", "run", "--once"]).await?;
    let audit = good(&stage, &database, &["sync", "audit", "--contents"]).await?;
    assert_eq!(audit, "pages: 20 rows, 20 documents; equal");
    Ok(())
}

#[tokio::test(flavor = "multi_thread")]
async fn install_names_columns_the_index_cannot_store() -> anyhow::Result<()> {
    // No request is sent there.
    let (stage, database, client) = with_pages("http://127.0.0.1:9/pages").await?;
    client.run("ALTER TABLE page ADD \"_id\" bigint").await?;
    let index = "index = 'http://127.0.0.1:9/pages'\n";
    let all = TABLE.replace("document =", "# document =");
    stage.write("posthaste.toml", &format!("{all}{index}"))?;
    let output = stage.run_on(&database, &["sync", "install"]).await?;
    assert!(output.err.contains("the field \"_id\""), "{output:?}");
    stage.write("posthaste.toml", &format!("{TABLE}{index}"))?;
    let output = stage.run_on(&database, &["sync", "install"]).await?;
    assert!(!output.err.contains("_id"), "{output:?}");
    Ok(())
}
