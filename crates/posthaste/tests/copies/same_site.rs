//! Changes that make no copy: no operator is needed.

use std::time::Duration;

use deadpool_postgres::{Manager, Pool};
use posthaste::WorkerHandle;
use posthaste_testkit::{PgServer, PgVersion, Sql as _, TestDb, TestResult, connect, eventually};
use tokio_postgres::NoTls;

use super::{Runs, of, start};
use crate::support::{self, SOON};

fn pool(url: &str) -> anyhow::Result<Pool> {
    let manager = Manager::new(url.parse()?, NoTls);
    Ok(Pool::builder(manager).max_size(2).build()?)
}

/// Checks that a worker that connects by this address runs a job.
async fn works(url: &str, site: Option<&str>, says: &str) -> anyhow::Result<()> {
    let (worker, runs) = start(&pool(url)?, site, &["default"]).await?;
    let client = pool(url)?.get().await?;
    client.run("SELECT posthaste.enqueue('job')").await?;
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

/// Checks that a worker that connects by this address waits.
async fn waits(url: &str, site: Option<&str>, says: &str) -> anyhow::Result<()> {
    let (worker, _) = start(&pool(url)?, site, &["default"]).await?;
    eventually(SOON, says, async || Ok(worker.refused().is_some())).await?;
    worker.stop().await?;
    Ok(())
}

#[tokio::test(flavor = "multi_thread", worker_threads = 3)]
async fn other_addresses_poolers_and_restarts_need_no_adoption() -> TestResult {
    let server = PgServer::start(PgVersion::any(), &[])?;
    let db = support::migrated(&server).await;
    let port = server.address().port();
    let of = |host: &str| format!("postgres://postgres@{host}:{port}/{}", db.name());
    works(&of("127.0.0.1"), None, "by its number").await?;
    works(&of("localhost"), None, "by its name").await?;
    let pooled = server.pooled_url(db.name()).unwrap();
    works(&pooled, None, "behind a pooler").await?;
    tokio::task::block_in_place(|| server.restart()).unwrap();
    works(&pooled, None, "behind it, restarted").await?;
    works(&of("127.0.0.1"), None, "restarted").await?;
    works(&of("127.0.0.1"), Some("here"), "named").await?;
    works(&of("127.0.0.1"), None, "its name forgotten").await?;
    waits(&of("127.0.0.1"), Some("there"), "another name").await?;
    tokio::task::block_in_place(|| {
        server.stop_immediate()?;
        server.restart()
    })
    .unwrap();
    // After a crash, or in a snapshot used without the name, a worker waits until one with the name
    // has come.
    waits(&of("127.0.0.1"), None, "without its name").await?;
    works(&of("127.0.0.1"), Some("here"), "crashed").await?;
    works(&of("127.0.0.1"), None, "known again").await?;
    Ok(())
}

/// A proxy with a fixed address and a variable server.
struct Name {
    port: u16,
    target: tokio::sync::watch::Sender<u16>,
}

impl Name {
    async fn of(server: &PgServer) -> anyhow::Result<Self> {
        Self::at("127.0.0.1:0", server).await
    }

    async fn at(address: &str, server: &PgServer) -> anyhow::Result<Self> {
        let listener = tokio::net::TcpListener::bind(address).await?;
        let port = listener.local_addr()?.port();
        let (target, led) = tokio::sync::watch::channel(server.address().port());
        tokio::spawn(async move {
            while let Ok((mut client, _)) = listener.accept().await {
                let to = *led.borrow();
                tokio::spawn(async move {
                    if let Ok(mut server) = tokio::net::TcpStream::connect(("127.0.0.1", to)).await
                    {
                        // Ends when either side disconnects.
                        let _ = tokio::io::copy_bidirectional(&mut client, &mut server).await;
                    }
                });
            }
        });
        Ok(Self { port, target })
    }

    fn url(&self, database: &str) -> String {
        format!("postgres://postgres@127.0.0.1:{}/{database}", self.port)
    }

    fn lead_to(&self, server: &PgServer) {
        self.target.send_replace(server.address().port());
    }
}

/// Makes a replica and promotes it in place of its server, which is stopped.
async fn fail_over(server: PgServer, database: &str) -> anyhow::Result<PgServer> {
    let replica = tokio::task::block_in_place(|| server.start_replica(&[]))?;
    let there = connect(&replica.url(database)).await?;
    let (receives, client) = (
        "SELECT pg_last_wal_replay_lsn() >= $1::text::pg_lsn",
        connect(&server.url(database)).await?,
    );
    let written = "SELECT pg_current_wal_insert_lsn()::text";
    let written: String = client.one(written).await?;
    eventually(SOON, "the replica has all", async || {
        there.one_with(receives, &[&written]).await
    })
    .await?;
    drop(client);
    tokio::task::block_in_place(move || {
        server.stop_immediate()?;
        drop(server);
        anyhow::Ok(())
    })?;
    there.run("SELECT pg_promote()").await?;
    Ok(replica)
}

/// A site whose server and addresses change: it works at one address, and at every other one that
/// it was given.
struct Site {
    server: PgServer,
    database: String,
    names: Vec<Name>,
}

impl Site {
    async fn change(&mut self, round: usize) -> anyhow::Result<()> {
        match round % 10 {
            0 => tokio::task::block_in_place(|| self.server.restart())?,
            4 => tokio::task::block_in_place(|| {
                self.server.stop_immediate()?;
                self.server.restart()
            })?,
            8 => {
                let replica = tokio::task::block_in_place(|| self.server.start_replica(&[]))?;
                let old = std::mem::replace(&mut self.server, replica);
                tokio::task::block_in_place(|| old.stop_immediate())?;
                let client = connect(&self.server.url(&self.database)).await?;
                client.run("SELECT pg_promote()").await?;
                self.names
                    .iter()
                    .for_each(|name| name.lead_to(&self.server));
            }
            1 | 5 | 9 => return self.works_at_first(round).await,
            // Another one of its addresses.
            _ => {}
        }
        let name = &self.names[round * 7 % self.names.len()];
        self.works(name, round).await
    }

    /// Works at an address that it never had.
    async fn works_at_first(&mut self, round: usize) -> anyhow::Result<()> {
        let name = Name::of(&self.server).await?;
        self.works(&name, round).await?;
        // The store forgets an address that is not used.
        self.names.truncate(12);
        self.names.insert(0, name);
        Ok(())
    }

    async fn works(&self, name: &Name, round: usize) -> anyhow::Result<()> {
        let says = format!("after change {round}");
        let url = name.url(&self.database);
        tokio::time::timeout(Duration::from_secs(90), works(&url, None, &says)).await??;
        posthaste_testkit::ran::count("changes of one site", 1);
        Ok(())
    }
}

async fn goes_on(rounds: usize) -> anyhow::Result<()> {
    let server = PgServer::start(PgVersion::any(), &[])?;
    let db = support::migrated(&server).await;
    let names = vec![Name::of(&server).await?];
    let database = db.name().to_owned();
    let mut site = Site {
        server,
        database,
        names,
    };
    for round in 0..rounds {
        site.change(round).await?;
    }
    drop(db);
    Ok(())
}

#[tokio::test(flavor = "multi_thread", worker_threads = 3)]
async fn restarts_failovers_and_new_addresses_need_no_adoption() {
    goes_on(12).await.unwrap();
}

/// `POSTHASTE_CHANGES` sets another number.
#[tokio::test(flavor = "multi_thread", worker_threads = 3)]
async fn many_changes_of_one_site_need_no_adoption() {
    let changes = std::env::var("POSTHASTE_CHANGES").ok();
    let changes = changes.map_or(200, |changes| changes.parse().expect("a number"));
    goes_on(changes).await.unwrap();
}

/// Runs a job by a worker that keeps running.
async fn runs_one(
    (worker, runs): &(WorkerHandle, Runs),
    server: &PgServer,
    database: &str,
    name: &'static str,
) -> anyhow::Result<()> {
    let client = connect(&server.url(database)).await?;
    let enqueue = "SELECT posthaste.enqueue($1)";
    client.execute(enqueue, &[&name]).await?;
    eventually(SOON, name, async || {
        if let Some(why) = worker.refused() {
            anyhow::bail!("{name}: {why}");
        }
        Ok(of(runs, name) > 0)
    })
    .await
}

#[tokio::test(flavor = "multi_thread", worker_threads = 3)]
async fn a_failover_to_another_listed_host_needs_no_adoption() -> anyhow::Result<()> {
    let server = PgServer::start(PgVersion::any(), &[])?;
    let db = support::migrated(&server).await;
    let name = db.name().to_owned();
    let (first, second) = (Name::of(&server).await?, Name::of(&server).await?);
    // No server answers at the second address before the failover.
    second.target.send_replace(1);
    let list = format!(
        "host=127.0.0.1,127.0.0.1 port={},{} user=postgres dbname={name}",
        first.port, second.port
    );
    let living = start(&pool(&list)?, None, &["default"]).await?;
    runs_one(&living, &server, &name, "before").await?;
    let server = fail_over(server, &name).await?;
    first.target.send_replace(1);
    second.lead_to(&server);
    runs_one(&living, &server, &name, "after").await?;
    // After a crash too, and by a process that has only the second host.
    tokio::task::block_in_place(|| {
        server.stop_immediate()?;
        server.restart()
    })?;
    living.0.stop().await?;
    works(&second.url(&name), None, "by the second host alone").await?;
    Ok(())
}

#[tokio::test(flavor = "multi_thread", worker_threads = 3)]
async fn a_host_name_with_a_new_address_needs_no_adoption() -> anyhow::Result<()> {
    let server = PgServer::start(PgVersion::any(), &[])?;
    let db = support::migrated(&server).await;
    let name = db.name().to_owned();
    let old = Name::at("127.0.0.2:0", &server).await?;
    let url = |number: &str| {
        let port = old.port;
        format!("host=db.internal hostaddr={number} port={port} user=postgres dbname={name}")
    };
    works(&url("127.0.0.2"), None, "at the first number").await?;
    let server = fail_over(server, &name).await?;
    let _new = Name::at(&format!("127.0.0.3:{}", old.port), &server).await?;
    works(&url("127.0.0.3"), None, "at the second number").await?;
    let copy = tokio::task::block_in_place(|| server.start_backup(&[]))?;
    let copied = Name::of(&copy).await?;
    waits(&copied.url(&name), None, "a copy elsewhere").await?;
    Ok(())
}

#[tokio::test(flavor = "multi_thread", worker_threads = 3)]
async fn running_processes_continue_at_a_forgotten_address() -> anyhow::Result<()> {
    let server = PgServer::start(PgVersion::any(), &[])?;
    let db = support::migrated(&server).await;
    let name = db.name().to_owned();
    let proxy = Name::of(&server).await?;
    let living = start(&pool(&proxy.url(&name))?, None, &["default"]).await?;
    runs_one(&living, &server, &name, "before").await?;
    let client = connect(&server.url(&name)).await?;
    // Forty others have come since, and one of them named the site.
    let others = "SELECT posthaste.enter_site(NULL, ARRAY[concat('db', n, ':5432/app')])
                    FROM generate_series(1, 40) n";
    client.run(others).await?;
    let named = "SELECT posthaste.enter_site('production', '{db40:5432/app}')";
    let refused: Option<String> = client.one(named).await?;
    assert_eq!(refused, None);
    drop(client);
    let copy = tokio::task::block_in_place(|| server.start_backup(&[]))?;
    let server = fail_over(server, &name).await?;
    proxy.lead_to(&server);
    runs_one(&living, &server, &name, "after").await?;
    living.0.stop().await?;
    // A process that connects to the copy first has followed no failover.
    proxy.lead_to(&copy);
    waits(&proxy.url(&name), None, "a new process").await?;
    Ok(())
}

#[tokio::test(flavor = "multi_thread", worker_threads = 3)]
async fn named_sites_work_at_any_address_and_reject_other_names() -> TestResult {
    let server = PgServer::start(PgVersion::any(), &[])?;
    let db = support::migrated(&server).await;
    works(db.url(), Some("production"), "at first").await?;
    let copy = tokio::task::block_in_place(|| server.start_backup(&[])).unwrap();
    let moved = TestDb::of(&copy, db.name());
    waits(moved.url(), Some("staging"), "another site").await?;
    waits(moved.url(), None, "a site without a name").await?;
    works(moved.url(), Some("production"), "restored").await?;
    Ok(())
}
