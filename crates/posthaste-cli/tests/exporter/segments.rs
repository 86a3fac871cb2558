//! Segments that cannot be sealed or emptied are counted by their holders.

use posthaste_testkit::{Child, Sql as _, eventually};

use super::{got, served, value};
use crate::stage::{self, BOUND, Stage};

#[tokio::test(flavor = "multi_thread")]
async fn segments_held_by_a_transaction_or_lock_are_counted_until_it_ends() -> anyhow::Result<()> {
    let stage = Stage::new()?;
    let (_server, database, as_looker) = stage::somebody_who_looks(&stage).await?;
    let mut exporter = stage.command(&["exporter", "--listen", "127.0.0.1:0"]);
    let mut exporter = Child::spawn(exporter.env("DATABASE_URL", as_looker))?;
    let root = served(&mut exporter).await?;
    let are = async |what: &str, expected: [f64; 4]| {
        eventually(BOUND, what, async || {
            let (_, text) = got(&root, "/metrics").await?;
            let of = |series: &str| value(&text, &format!("posthaste_segments{series}"));
            let all = [
                r#"{state="live"}"#,
                r#"{state="sealed"}"#,
                r#"_blocked{by="transaction"}"#,
                r#"_blocked{by="lock"}"#,
            ];
            Ok(all.map(of) == expected.map(Some))
        })
        .await
    };
    are("one segment, and nobody holds it", [1.0, 0.0, 0.0, 0.0]).await?;
    let (mut writer, mut reader) = (database.client().await?, database.client().await?);
    let client = database.client().await?;
    let open = writer.transaction().await?;
    let enqueue = "SELECT posthaste.enqueue('ok')";
    open.run(enqueue).await?;
    are("what is not full is held by nobody", [1.0, 0.0, 0.0, 0.0]).await?;
    client.run("SELECT posthaste.rotate(0)").await?;
    are("the transaction holds it", [2.0, 0.0, 1.0, 0.0]).await?;
    let dump = reader.transaction().await?;
    let tables = "LOCK TABLE posthaste.ready_0, posthaste.ready_1, posthaste.ready_2,
                  posthaste.ready_3 IN ACCESS SHARE MODE";
    dump.run(tables).await?;
    open.commit().await?;
    let mut worker = stage.spawn_on(&database, &["work", "--exec", "ok=true"])?;
    are("the lock keeps it from being emptied", [2.0, 1.0, 0.0, 1.0]).await?;
    dump.commit().await?;
    are("it is emptied", [1.0, 0.0, 0.0, 0.0]).await?;
    worker.terminate()?;
    assert!(worker.exit(BOUND).await?.success());
    Ok(())
}
