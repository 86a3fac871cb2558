//! What is no copy: nobody's hand is needed.

use std::time::Duration;

use deadpool_postgres::{Manager, Pool};
use posthaste_testkit::{PgServer, PgVersion, TestDb, connect, eventually};
use tokio_postgres::NoTls;

use super::{of, start};
use crate::support::{self, SOON};

fn pool(url: &str) -> anyhow::Result<Pool> {
    let manager = Manager::new(url.parse()?, NoTls);
    Ok(Pool::builder(manager).max_size(2).build()?)
}

/// A worker that connects by this address does a job.
async fn works(url: &str, site: Option<&str>, says: &str) -> anyhow::Result<()> {
    let (worker, runs) = start(&pool(url)?, site, &["default"]).await?;
    let client = pool(url)?.get().await?;
    client
        .batch_execute("SELECT posthaste.enqueue('job')")
        .await?;
    eventually(SOON, says, async || {
        if let Some(why) = worker.refused() {
            anyhow::bail!("{says}: {why}");
        }
        Ok(of(&runs, "job") > 0)
    })
    .await?;
    worker.stop().await?;
    Ok(())
}

/// A worker that connects by this address waits.
async fn waits(url: &str, site: Option<&str>, says: &str) -> anyhow::Result<()> {
    let (worker, _) = start(&pool(url)?, site, &["default"]).await?;
    eventually(SOON, says, async || Ok(worker.refused().is_some())).await?;
    worker.stop().await?;
    Ok(())
}

#[tokio::test(flavor = "multi_thread", worker_threads = 3)]
async fn addresses_of_one_server_poolers_and_a_clean_restart_refuse_nobody() {
    let server = PgServer::start(PgVersion::any(), &[]).unwrap();
    let db = support::migrated(&server).await;
    let port = server.address().port();
    let of = |host: &str| format!("postgres://postgres@{host}:{port}/{}", db.name());
    works(&of("127.0.0.1"), None, "by its number")
        .await
        .unwrap();
    works(&of("localhost"), None, "by its name").await.unwrap();
    let pooled = server.pooled_url(db.name()).unwrap();
    works(&pooled, None, "behind a pooler").await.unwrap();
    tokio::task::block_in_place(|| server.restart()).unwrap();
    works(&pooled, None, "behind it, restarted").await.unwrap();
    works(&of("127.0.0.1"), None, "restarted").await.unwrap();
    works(&of("127.0.0.1"), Some("here"), "named")
        .await
        .unwrap();
    works(&of("127.0.0.1"), None, "its name forgotten")
        .await
        .unwrap();
    waits(&of("127.0.0.1"), Some("there"), "another name")
        .await
        .unwrap();
    tokio::task::block_in_place(|| {
        server.stop_immediate()?;
        server.restart()
    })
    .unwrap();
    // A crash, or a snapshot whose user forgot the name: undecided until one with the name came.
    waits(&of("127.0.0.1"), None, "without its name")
        .await
        .unwrap();
    works(&of("127.0.0.1"), Some("here"), "crashed")
        .await
        .unwrap();
    works(&of("127.0.0.1"), None, "known again").await.unwrap();
}

/// A proxy whose address stays, whatever is behind it.
struct Name {
    url: String,
    target: tokio::sync::watch::Sender<u16>,
}

impl Name {
    async fn of(server: &PgServer, database: &str) -> anyhow::Result<Self> {
        let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await?;
        let port = listener.local_addr()?.port();
        let (target, led) = tokio::sync::watch::channel(server.address().port());
        tokio::spawn(async move {
            while let Ok((mut client, _)) = listener.accept().await {
                let to = *led.borrow();
                tokio::spawn(async move {
                    if let Ok(mut server) = tokio::net::TcpStream::connect(("127.0.0.1", to)).await
                    {
                        // It ends with either side.
                        let _ = tokio::io::copy_bidirectional(&mut client, &mut server).await;
                    }
                });
            }
        });
        let url = format!("postgres://postgres@127.0.0.1:{port}/{database}");
        Ok(Self { url, target })
    }

    fn lead_to(&self, server: &PgServer) {
        self.target.send_replace(server.address().port());
    }
}

/// Restarts, crashes and failovers behind one address, and every other round another address.
async fn goes_on(rounds: usize) -> anyhow::Result<()> {
    let mut server = PgServer::start(PgVersion::any(), &[])?;
    let db = support::migrated(&server).await;
    let name = db.name().to_owned();
    let by_name = Name::of(&server, &name).await?;
    works(&by_name.url, None, "at first").await?;
    for round in 0..rounds {
        match round % 4 {
            0 => tokio::task::block_in_place(|| server.restart())?,
            1 => tokio::task::block_in_place(|| {
                server.stop_immediate()?;
                server.restart()
            })?,
            2 => {
                let alias = Name::of(&server, &name).await?;
                works(&alias.url, None, "by a new address").await?;
                continue;
            }
            _ => {
                let replica = tokio::task::block_in_place(|| server.start_replica(&[]))?;
                let old = std::mem::replace(&mut server, replica);
                tokio::task::block_in_place(|| old.stop_immediate())?;
                let client = connect(&server.url(&name)).await?;
                client.batch_execute("SELECT pg_promote()").await?;
                by_name.lead_to(&server);
            }
        }
        let says = format!("after change {round}");
        tokio::time::timeout(Duration::from_secs(90), works(&by_name.url, None, &says)).await??;
        posthaste_testkit::ran::count("changes of one site", 1);
    }
    drop(db);
    Ok(())
}

#[tokio::test(flavor = "multi_thread", worker_threads = 3)]
async fn restarts_failovers_and_new_addresses_of_one_site_refuse_nobody() {
    goes_on(12).await.unwrap();
}

#[tokio::test(flavor = "multi_thread", worker_threads = 3)]
async fn two_hundred_restarts_failovers_and_new_addresses_refuse_nobody() {
    goes_on(200).await.unwrap();
}

#[tokio::test(flavor = "multi_thread", worker_threads = 3)]
async fn a_site_with_a_name_goes_on_at_any_address_and_no_other_name_does() {
    let server = PgServer::start(PgVersion::any(), &[]).unwrap();
    let db = support::migrated(&server).await;
    works(db.url(), Some("production"), "at first")
        .await
        .unwrap();
    let copy = tokio::task::block_in_place(|| server.start_backup(&[])).unwrap();
    let moved = TestDb::of(&copy, db.name());
    waits(moved.url(), Some("staging"), "another site")
        .await
        .unwrap();
    waits(moved.url(), None, "a site without a name")
        .await
        .unwrap();
    works(moved.url(), Some("production"), "restored")
        .await
        .unwrap();
}
