//! Databases that belong to one test.

use std::sync::{OnceLock, mpsc};
use std::time::Duration;

use anyhow::Context;
use deadpool_postgres::{Manager, Pool};
use tokio::runtime::{Builder, Runtime};
use tokio::sync::OnceCell;
use tokio_postgres::{Client, NoTls};

use crate::{PgServer, unique};

/// How a template is copied: as files between two checkpoints, which takes half as much of the
/// processor as page by page.
const STRATEGY: &str = "file_copy";

/// A test that leaves its server held still must not wait for it for ever.
const DROP_BOUND: Duration = Duration::from_secs(30);

/// A name stands for a number of 64 bits.
const LOCK: &str = "SELECT pg_advisory_lock(hashtextextended($1, 0))";
const UNLOCK: &str = "SELECT pg_advisory_unlock(hashtextextended($1, 0))";
/// A template that is whole lets nobody in.
const READY: &str = "SELECT FROM pg_database WHERE datname = $1 AND NOT datallowconn";

/// Pools of tests go through PgBouncer in a process that has this variable.
const POOLED: &str = "POSTHASTE_TEST_POOLED";

/// A fresh database, dropped with everything in it when the value is.
#[derive(Debug)]
pub struct TestDb {
    admin_url: String,
    name: String,
    url: String,
    pooled_url: Option<String>,
    /// Over which it was made; none of one that was there already.
    admin: Option<Client>,
    /// What is said before the first client is handed out.
    greeting: Option<&'static str>,
    greeted: OnceCell<()>,
}

impl TestDb {
    /// A copy of a template database, which the first test of this program that names it prepares
    /// on this server. The first database of a server of the test's own is no copy: it is prepared
    /// in place.
    ///
    /// The copy has the tables, sequences and rows of the template but an oid of its own. The
    /// preparation must not leave connections to the template behind; those that are still there
    /// when it returns are ended.
    pub async fn from_template(
        server: &PgServer,
        template: &str,
        prepare: impl AsyncFnOnce(String) -> anyhow::Result<()>,
    ) -> anyhow::Result<Self> {
        let admin = connect_as_admin(server.url("postgres")).await?;
        if server.takes_first_database() {
            let database = Self::create(server, admin, "template0").await?;
            prepare(database.url.clone()).await?;
            let admin = database.admin.as_ref().context("no admin")?;
            end_sessions(admin, &database.name).await?;
            return Ok(database);
        }
        let template = format!("template_{template}_{}", program());
        // Of all processes, one prepares it; the others wait for its lock.
        admin.execute(LOCK, &[&template]).await?;
        let ready = admin.query_opt(READY, &[&template]).await?.is_some();
        let prepared = match ready {
            true => Ok(()),
            false => prepare_template(server, &admin, &template, prepare).await,
        };
        admin.execute(UNLOCK, &[&template]).await?;
        prepared?;
        Self::create(server, admin, &template).await
    }

    /// A database in which there is nothing yet.
    pub async fn empty(server: &PgServer) -> anyhow::Result<Self> {
        let admin = connect_as_admin(server.url("postgres")).await?;
        Self::create(server, admin, "template0").await
    }

    /// The database of this name that is on the server already.
    pub fn of(server: &PgServer, name: &str) -> Self {
        Self {
            admin_url: server.url("postgres"),
            url: server.url(name),
            pooled_url: None,
            name: name.to_owned(),
            admin: None,
            greeting: None,
            greeted: OnceCell::new(),
        }
    }

    async fn create(server: &PgServer, admin: Client, template: &str) -> anyhow::Result<Self> {
        let name = unique("test").replace('-', "_");
        admin
            .batch_execute(&format!(
                "CREATE DATABASE {} TEMPLATE {} STRATEGY {STRATEGY}",
                quoted(&name),
                quoted(template)
            ))
            .await
            .with_context(|| format!("copying {template}"))?;
        let pooled_url = match std::env::var_os(POOLED) {
            Some(_) => Some(server.pooled_url(&name)?),
            None => None,
        };
        Ok(Self {
            admin_url: server.url("postgres"),
            url: server.url(&name),
            pooled_url,
            name,
            admin: Some(admin),
            greeting: None,
            greeted: OnceCell::new(),
        })
    }

    /// The same, whose first [`client`](Self::client) says this before the test has it. A session
    /// that was opened by [`url`](Self::url) before it says nothing.
    #[must_use]
    pub fn greeted(mut self, statement: &'static str) -> Self {
        self.greeting = Some(statement);
        self
    }

    /// The name of the database.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// The URL of the database.
    pub fn url(&self) -> &str {
        &self.url
    }

    /// A new connection.
    pub async fn client(&self) -> anyhow::Result<Client> {
        let client = connect(&self.url).await?;
        if let Some(greeting) = self.greeting {
            let say = async || client.batch_execute(greeting).await;
            self.greeted.get_or_try_init(say).await?;
        }
        Ok(client)
    }

    /// A pool of at most this many connections; they go through PgBouncer where the process was
    /// told so by `POSTHASTE_TEST_POOLED`.
    pub fn pool(&self, size: usize) -> anyhow::Result<Pool> {
        let url = self.pooled_url.as_ref().unwrap_or(&self.url);
        Self::pool_of(url.parse()?, size)
    }

    /// A pool whose connections act as this role.
    pub fn pool_as(&self, role: &str, size: usize) -> anyhow::Result<Pool> {
        let mut config: tokio_postgres::Config = self.url.parse()?;
        config.options(format!("-c role={role}"));
        Self::pool_of(config, size)
    }

    fn pool_of(config: tokio_postgres::Config, size: usize) -> anyhow::Result<Pool> {
        let manager = Manager::new(config, NoTls);
        Ok(Pool::builder(manager)
            .max_size(size)
            .runtime(deadpool_postgres::Runtime::Tokio1)
            .build()?)
    }
}

impl Drop for TestDb {
    fn drop(&mut self) {
        let Ok(runtime) = admin_runtime() else {
            return;
        };
        let admin = self.admin.take().filter(|admin| !admin.is_closed());
        let (admin_url, url) = (self.admin_url.clone(), self.url.clone());
        let name = self.name.clone();
        let (removed, is_over) = mpsc::channel::<()>();
        runtime.spawn(async move {
            // The server may be stopped by now, and it takes its databases along when it goes.
            let remove = remove(admin, &admin_url, &url, &name);
            let _ = tokio::time::timeout(DROP_BOUND, remove).await;
            drop(removed);
        });
        // It ends when the other end is dropped.
        let _ = is_over.recv();
    }
}

async fn remove(
    admin: Option<Client>,
    admin_url: &str,
    url: &str,
    name: &str,
) -> anyhow::Result<()> {
    let admin = match admin {
        Some(admin) => admin,
        None => connect(admin_url).await?,
    };
    // DROP DATABASE refuses while there are prepared transactions, FORCE or not.
    let prepared = "SELECT gid FROM pg_prepared_xacts WHERE database = $1";
    let prepared = admin.query(prepared, &[&name]).await?;
    if !prepared.is_empty() {
        // Only who is connected to the database may end them.
        let client = connect(url).await?;
        for row in prepared {
            let gid: String = row.get(0);
            let roll_back = format!("ROLLBACK PREPARED '{}'", gid.replace('\'', "''"));
            client.batch_execute(&roll_back).await?;
        }
    }
    let drop = format!("DROP DATABASE {} WITH (FORCE)", quoted(name));
    Ok(admin.batch_execute(&drop).await?)
}

/// Where the connections live that make and remove databases: a database outlives the runtime of
/// its test, and is dropped where none can be entered.
fn admin_runtime() -> anyhow::Result<&'static Runtime> {
    static RUNTIME: OnceLock<Option<Runtime>> = OnceLock::new();
    let start = || {
        let mut builder = Builder::new_multi_thread();
        builder.worker_threads(1).enable_all().build().ok()
    };
    let runtime = RUNTIME.get_or_init(start).as_ref();
    runtime.context("no runtime")
}

/// Connects to a server; the connection is driven where it outlives the test.
async fn connect_as_admin(url: String) -> anyhow::Result<Client> {
    let connecting = admin_runtime()?.spawn(async move { connect(&url).await });
    connecting.await?
}

/// Connects to a database and drives the connection on the current runtime.
pub async fn connect(url: &str) -> anyhow::Result<Client> {
    let (client, connection) = tokio_postgres::connect(url, NoTls)
        .await
        .context("connecting")?;
    // How a connection ends is told to the one that uses its client.
    tokio::spawn(connection);
    Ok(client)
}

async fn prepare_template(
    server: &PgServer,
    admin: &Client,
    name: &str,
    prepare: impl AsyncFnOnce(String) -> anyhow::Result<()>,
) -> anyhow::Result<()> {
    let template = quoted(name);
    // Half of one may be there from a preparation that failed.
    admin
        .batch_execute(&format!("DROP DATABASE IF EXISTS {template} WITH (FORCE)"))
        .await?;
    admin
        .batch_execute(&format!(
            "CREATE DATABASE {template} TEMPLATE template0 STRATEGY {STRATEGY}"
        ))
        .await?;
    prepare(server.url(name))
        .await
        .with_context(|| format!("preparing {name}"))?;
    // A client that was dropped just now may still have its session, and a database in use cannot
    // be copied.
    admin
        .batch_execute(&format!(
            "ALTER DATABASE {template} ALLOW_CONNECTIONS false"
        ))
        .await?;
    end_sessions(admin, name).await
}

async fn end_sessions(admin: &Client, database: &str) -> anyhow::Result<()> {
    let end = "SELECT pg_terminate_backend(pid, 10000) FROM pg_stat_activity WHERE datname = $1";
    admin.execute(end, &[&database]).await?;
    Ok(())
}

/// The test program that runs, without its folder: it has templates of its own.
fn program() -> String {
    let program = std::env::current_exe().ok();
    let name = program.as_deref().and_then(|program| program.file_name());
    name.map_or_else(String::new, |name| name.to_string_lossy().into_owned())
}

/// A name chosen by a test, as an identifier.
fn quoted(name: &str) -> String {
    format!("\"{}\"", name.replace('"', "\"\""))
}
