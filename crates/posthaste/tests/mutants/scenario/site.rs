//! Processes of one site and of others connect to a store that changes its server.

use anyhow::ensure;
use futures_util::FutureExt;
use posthaste_testkit::connect;
use tokio_postgres::Client;

use super::Scenario;

/// A site without a name, and one that is named later.
pub const SITES: Scenario = Scenario::new("sites", |url| admitted(url).boxed_local());
/// A copy that is taken over.
pub const ADOPTED: Scenario = Scenario::new("an adoption", |url| adopted(url).boxed_local());

/// What a process of a site sends when it connects.
const BY_A: (Option<&str>, &[&str]) = (None, &["a:1/app"]);
const BY_B: (Option<&str>, &[&str]) = (None, &["b:1/app"]);
const BY_C: (Option<&str>, &[&str]) = (None, &["c:1/app"]);
const PRODUCTION: (Option<&str>, &[&str]) = (Some("production"), &["a:1/app"]);
const STAGING: (Option<&str>, &[&str]) = (Some("staging"), &["a:1/app"]);

/// The life of another server, as stored: one that crashed or was promoted since, or was copied.
const ANOTHER_LIFE: &str = "UPDATE posthaste.site SET life = life - 1";
/// The state of a server that was stopped cleanly.
const RESTARTED: &str = "UPDATE posthaste.site SET started = started - interval '1 s'";

async fn admitted(url: String) -> anyhow::Result<()> {
    let client = connect(&url).await?;
    comes(&client, BY_A, true, "the first").await?;
    // The same server by another address, which is admitted from then on.
    comes(&client, BY_B, true, "another address").await?;
    client.batch_execute(ANOTHER_LIFE).await?;
    comes(&client, BY_C, false, "a copy").await?;
    leaves_no_trace(&client).await?;
    comes(&client, BY_B, true, "a failover behind an address").await?;
    client.batch_execute(RESTARTED).await?;
    comes(&client, BY_C, false, "a cold copy").await?;
    comes(&client, BY_A, true, "a restart").await?;
    comes(&client, BY_C, true, "a new address of what was restarted").await?;
    client.batch_execute(ANOTHER_LIFE).await?;
    comes(&client, BY_C, true, "a crash at the new address").await?;

    follows(&client).await?;
    names(&client).await
}

/// Checks that an admitted process continues by any address, until it is declared dead.
async fn follows(client: &Client) -> anyhow::Result<()> {
    let register = "SELECT o_worker, o_registered::text
                      FROM posthaste.register('w', '{}', NULL, '{a:1/app}')";
    let row = client.query_one(register, &[]).await?;
    let (worker, registered): (i64, String) = (row.get(0), row.get(1));
    let come = "SELECT posthaste.enter_site(NULL, ARRAY[concat('d', n, ':1/app')], false, $1,
                  $2::text::timestamptz + $3::integer * interval '1 us')
                FROM (SELECT txid_current() AS n) n";
    for (other, later, may, says) in [
        (0, 0, true, "a process that followed its store"),
        (1, 0, false, "another worker"),
        (0, 1, false, "another start"),
    ] {
        client.batch_execute(ANOTHER_LIFE).await?;
        let worker = worker + other;
        let row = client
            .query_one(come, &[&worker, &registered, &later])
            .await?;
        judge(row.get(0), may, says)?;
    }
    let dead = "UPDATE posthaste.worker SET stopped_at = clock_timestamp() WHERE id = $1";
    client.execute(dead, &[&worker]).await?;
    let row = client.query_one(come, &[&worker, &registered, &0]).await?;
    judge(row.get(0), false, "one that was declared dead")
}

async fn names(client: &Client) -> anyhow::Result<()> {
    comes(client, BY_A, true, "a known address").await?;
    comes(client, PRODUCTION, true, "a name").await?;
    comes(client, STAGING, false, "another name").await?;
    comes(client, BY_A, true, "no name, on the same server").await?;
    client.batch_execute(ANOTHER_LIFE).await?;
    comes(
        client,
        BY_A,
        false,
        "no name, after a failover or in a copy",
    )
    .await?;
    let elsewhere = (Some("production"), &["e:1/app"][..]);
    comes(client, elsewhere, true, "the name at another address").await?;
    comes(client, BY_A, true, "no name, where the name was").await?;
    client
        .batch_execute("UPDATE posthaste.site SET name = NULL, life = life - 1")
        .await?;
    comes(client, STAGING, false, "a name that is new, in a copy").await
}

/// Checks that a refused process leaves only a note of its refusal: no worker is registered, and
/// its address is not stored as one of the site.
async fn leaves_no_trace(client: &Client) -> anyhow::Result<()> {
    let register = "SELECT o_refused FROM posthaste.register('w', '{}', NULL, '{c:1/app}')";
    let refused: Option<String> = client.query_one(register, &[]).await?.get(0);
    judge(refused, false, "a worker of a copy")?;
    let register = register.replace("c:1", "d:1");
    let refused: Option<String> = client.query_one(&register, &[]).await?.get(0);
    judge(refused, false, "a worker of another copy")?;
    let left = "SELECT (SELECT count(*) FROM posthaste.worker),
        (SELECT addresses::text FROM posthaste.site), (SELECT refused FROM posthaste.site)";
    let row = client.query_one(left, &[]).await?;
    let (workers, addresses, notes): (i64, String, Vec<String>) =
        (row.get(0), row.get(1), row.get(2));
    ensure!(workers == 0, "a refused worker is registered");
    ensure!(!addresses.contains("c:1"), "a refused address is known");
    for refused in ["c:1", "d:1"] {
        let is_noted = notes.iter().any(|note| note.contains(refused));
        ensure!(
            is_noted,
            "nobody reads that {refused} was refused: {notes:?}"
        );
    }
    Ok(())
}

async fn adopted(url: String) -> anyhow::Result<()> {
    let client = connect(&url).await?;
    let register = "SELECT o_refused FROM posthaste.register('w', '{}', NULL, '{a:1/app}')";
    let refused: Option<String> = client.query_one(register, &[]).await?.get(0);
    judge(refused, true, "a worker of the original")?;
    let enqueue = "SELECT posthaste.enqueue('job')";
    let job: i64 = client.query_one(enqueue, &[]).await?.get(0);
    client.batch_execute("SELECT posthaste.note_ids()").await?;
    let (before, same) = (
        delivery(&client, job + 1).await?,
        delivery(&client, job).await?,
    );
    let adopt = "SELECT o_from FROM posthaste.adopt(NULL, '{b:1/app}')";
    ensure!(
        client.execute(adopt, &[]).await.is_err(),
        "it is adopted although a worker lives"
    );
    let forced = "SELECT o_from, o_discarded
                    FROM posthaste.adopt(NULL, '{b:1/app}', p_force => true, p_discard => true)";
    let row = client.query_one(forced, &[]).await?;
    let (from, discarded): (Option<String>, Option<i64>) = (row.get(0), row.get(1));
    ensure!(
        from.is_some_and(|from| from.contains("a:1/app")),
        "nobody had it before"
    );
    ensure!(discarded == Some(1), "{discarded:?} jobs were discarded");
    let left = "SELECT count(*) FROM posthaste.job";
    let left: i64 = client.query_one(left, &[]).await?.get(0);
    ensure!(left == 0, "{left} jobs are left");
    let alive = "SELECT count(*) FROM posthaste.worker WHERE stopped_at IS NULL";
    let alive: i64 = client.query_one(alive, &[]).await?.get(0);
    ensure!(alive == 0, "the original's worker lives in the copy");
    ensure!(
        delivery(&client, job).await? == same,
        "a job of the original has a new delivery id"
    );
    ensure!(
        delivery(&client, job + 1).await? != before,
        "both sites give the same delivery id"
    );
    client.batch_execute(ANOTHER_LIFE).await?;
    comes(&client, BY_A, false, "the original's process").await?;
    comes(&client, BY_B, true, "the new site's process").await
}

async fn delivery(client: &Client, job: i64) -> anyhow::Result<String> {
    let id = "SELECT posthaste.delivery_id($1)::text";
    Ok(client.query_one(id, &[&job]).await?.get(0))
}

async fn comes(
    client: &Client,
    (name, addresses): (Option<&str>, &[&str]),
    may: bool,
    says: &str,
) -> anyhow::Result<()> {
    let enter = "SELECT posthaste.enter_site($1, $2)";
    let row = client.query_one(enter, &[&name, &addresses]).await?;
    judge(row.get(0), may, says)
}

fn judge(refused: Option<String>, may: bool, says: &str) -> anyhow::Result<()> {
    ensure!(
        refused.is_none() == may,
        "{says} is {}",
        refused.map_or_else(|| "let in".to_owned(), |why| format!("refused: {why}"))
    );
    Ok(())
}
