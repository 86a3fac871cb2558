//! Databases that each belong to one test.

use std::sync::{OnceLock, mpsc};
use std::time::Duration;

use anyhow::Context;
use deadpool_postgres::{Manager, Pool};
use tokio::runtime::{Builder, Runtime};
use tokio::sync::OnceCell;
use tokio_postgres::{Client, NoTls};

use crate::{PgServer, unique};

/// The strategy for copying a template: as files between two checkpoints, which needs half the CPU
/// time of a copy page by page.
const COPY_STRATEGY: &str = "file_copy";

/// The limit for dropping a database: a test may leave its server paused.
const DROP_TIMEOUT: Duration = Duration::from_secs(30);

/// Locks a name by its 64-bit hash.
const LOCK_NAME: &str = "SELECT pg_advisory_lock(hashtextextended($1, 0))";
const UNLOCK_NAME: &str = "SELECT pg_advisory_unlock(hashtextextended($1, 0))";
/// Finds a complete template: it allows no connections.
const FIND_READY_TEMPLATE: &str = "SELECT FROM pg_database WHERE datname = $1 AND NOT datallowconn";

/// If this variable is set, the pools of tests connect through PgBouncer.
const POOLED_VARIABLE: &str = "POSTHASTE_TEST_POOLED";

/// A new database, which is dropped with its contents when the value is dropped.
#[derive(Debug)]
pub struct TestDb {
    admin_url: String,
    name: String,
    url: String,
    pooled_url: Option<String>,
    /// The connection that created the database; `None` if the database existed before.
    admin: Option<Client>,
    /// A statement that runs before the first client is returned.
    greeting: Option<&'static str>,
    greeted: OnceCell<()>,
}

impl TestDb {
    /// Creates a copy of a template database. The first test of this program that names the
    /// template prepares it on this server. The first database of a server that belongs to one test
    /// is not a copy: it is prepared in place.
    ///
    /// The copy has the tables, sequences and rows of the template but a different OID. The
    /// preparation must close its connections to the template; connections that are still open when
    /// it returns are terminated.
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
        let template = format!("template_{template}_{}", program_name());
        // One process prepares the template; the others wait for its lock.
        admin.execute(LOCK_NAME, &[&template]).await?;
        let ready = admin
            .query_opt(FIND_READY_TEMPLATE, &[&template])
            .await?
            .is_some();
        let prepared = match ready {
            true => Ok(()),
            false => prepare_template(server, &admin, &template, prepare).await,
        };
        admin.execute(UNLOCK_NAME, &[&template]).await?;
        prepared?;
        Self::create(server, admin, &template).await
    }

    /// Creates an empty database.
    pub async fn empty(server: &PgServer) -> anyhow::Result<Self> {
        let admin = connect_as_admin(server.url("postgres")).await?;
        Self::create(server, admin, "template0").await
    }

    /// The database of this name, which already exists on the server.
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
                "CREATE DATABASE {} TEMPLATE {} STRATEGY {COPY_STRATEGY}",
                quote_identifier(&name),
                quote_identifier(template)
            ))
            .await
            .with_context(|| format!("copying {template}"))?;
        let pooled_url = match std::env::var_os(POOLED_VARIABLE) {
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

    /// Makes the first [`client`](Self::client) run this statement before the test gets it. A
    /// session that was opened by [`url`](Self::url) before does not run it.
    #[must_use]
    pub fn with_first_statement(mut self, statement: &'static str) -> Self {
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

    /// Opens a new connection.
    pub async fn client(&self) -> anyhow::Result<Client> {
        let client = connect(&self.url).await?;
        if let Some(greeting) = self.greeting {
            let say = async || client.batch_execute(greeting).await;
            self.greeted.get_or_try_init(say).await?;
        }
        Ok(client)
    }

    /// Creates a pool of at most this many connections. They go through PgBouncer if
    /// `POSTHASTE_TEST_POOLED` is set.
    pub fn pool(&self, size: usize) -> anyhow::Result<Pool> {
        let url = self.pooled_url.as_ref().unwrap_or(&self.url);
        Self::create_pool(url.parse()?, size)
    }

    /// Creates a pool whose connections act as this role.
    pub fn pool_as(&self, role: &str, size: usize) -> anyhow::Result<Pool> {
        let mut config: tokio_postgres::Config = self.url.parse()?;
        config.options(format!("-c role={role}"));
        Self::create_pool(config, size)
    }

    fn create_pool(config: tokio_postgres::Config, size: usize) -> anyhow::Result<Pool> {
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
            // The server may be stopped already. Its databases are removed with it.
            let remove = drop_database(admin, &admin_url, &url, &name);
            let _ = tokio::time::timeout(DROP_TIMEOUT, remove).await;
            drop(removed);
        });
        // The receiver returns when the sender is dropped.
        let _ = is_over.recv();
    }
}

async fn drop_database(
    admin: Option<Client>,
    admin_url: &str,
    url: &str,
    name: &str,
) -> anyhow::Result<()> {
    let admin = match admin {
        Some(admin) => admin,
        None => connect(admin_url).await?,
    };
    // DROP DATABASE refuses while prepared transactions exist, even with FORCE.
    let prepared = "SELECT gid FROM pg_prepared_xacts WHERE database = $1";
    let prepared = admin.query(prepared, &[&name]).await?;
    if !prepared.is_empty() {
        // Only a session of this database can end them.
        let client = connect(url).await?;
        for row in prepared {
            let gid: String = row.get(0);
            let roll_back = format!("ROLLBACK PREPARED '{}'", gid.replace('\'', "''"));
            client.batch_execute(&roll_back).await?;
        }
    }
    let drop = format!("DROP DATABASE {} WITH (FORCE)", quote_identifier(name));
    Ok(admin.batch_execute(&drop).await?)
}

/// The runtime of the connections that create and drop databases. A database outlives the runtime
/// of its test, and may be dropped where no runtime can be entered.
fn admin_runtime() -> anyhow::Result<&'static Runtime> {
    static RUNTIME: OnceLock<Option<Runtime>> = OnceLock::new();
    let start = || {
        let mut builder = Builder::new_multi_thread();
        builder.worker_threads(1).enable_all().build().ok()
    };
    let runtime = RUNTIME.get_or_init(start).as_ref();
    runtime.context("no runtime")
}

/// Connects to a server. The connection is driven by a runtime that outlives the test.
async fn connect_as_admin(url: String) -> anyhow::Result<Client> {
    let connecting = admin_runtime()?.spawn(async move { connect(&url).await });
    connecting.await?
}

/// Connects to a database and drives the connection on the current runtime.
pub async fn connect(url: &str) -> anyhow::Result<Client> {
    let (client, connection) = tokio_postgres::connect(url, NoTls)
        .await
        .context("connecting")?;
    // The user of the client gets the errors of the connection.
    tokio::spawn(connection);
    Ok(client)
}

async fn prepare_template(
    server: &PgServer,
    admin: &Client,
    name: &str,
    prepare: impl AsyncFnOnce(String) -> anyhow::Result<()>,
) -> anyhow::Result<()> {
    let template = quote_identifier(name);
    // A preparation that failed may have left an incomplete template.
    admin
        .batch_execute(&format!("DROP DATABASE IF EXISTS {template} WITH (FORCE)"))
        .await?;
    admin
        .batch_execute(&format!(
            "CREATE DATABASE {template} TEMPLATE template0 STRATEGY {COPY_STRATEGY}"
        ))
        .await?;
    prepare(server.url(name))
        .await
        .with_context(|| format!("preparing {name}"))?;
    // The session of a client that was just dropped may still exist, and a database in use cannot
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

/// The name of the running test program, without its folder. Each program has separate templates.
fn program_name() -> String {
    let program = std::env::current_exe().ok();
    let name = program.as_deref().and_then(|program| program.file_name());
    name.map_or_else(String::new, |name| name.to_string_lossy().into_owned())
}

/// Quotes a name that a test chose as an identifier.
fn quote_identifier(name: &str) -> String {
    format!("\"{}\"", name.replace('"', "\"\""))
}
