//! PgBouncer in front of a test server, in transaction mode: each transaction may use a different
//! session of the server.

use std::net::{Ipv4Addr, TcpStream};
use std::path::PathBuf;
use std::time::{Duration, Instant};

use anyhow::{Context, bail};

use crate::account::Account;
use crate::child::Child;
use crate::folder::Folder;
use crate::ports;
use crate::watchdog::Watchdog;

/// Names the program; without it, the system's is used. Debian's is 1.18, which does not support
/// named statements in transaction mode.
const PROGRAM_VARIABLE: &str = "POSTHASTE_PGBOUNCER";
const USUAL_PLACES: [&str; 3] = [
    "/usr/sbin/pgbouncer",
    "/usr/bin/pgbouncer",
    "/usr/local/bin/pgbouncer",
];
const START_BOUND: Duration = Duration::from_secs(60);
const READY_POLL: Duration = Duration::from_millis(5);

/// A pooler, which ends with its owner or with the test process.
#[derive(Debug)]
pub(crate) struct Pooler {
    port: u16,
    _process: Child,
    // Dropped last: it contains the settings.
    _folder: Folder,
}

impl Pooler {
    /// Starts a pooler in front of the server at this port.
    pub(crate) fn start(account: Account, server: u16) -> anyhow::Result<Self> {
        let program = find_program()?;
        let folder = Folder::create(account, Watchdog::over_folder)?;
        // Another process may take the port between the check and the start.
        let mut last = None;
        for _ in 0..5 {
            let port = ports::free()?;
            let settings = folder.path().join("pgbouncer.ini");
            std::fs::write(&settings, settings_text(port, server))?;
            account.make_owner_of(&settings)?;
            let mut command = account.command(&program);
            let process = Child::spawn(command.arg("--quiet").arg(&settings))?;
            match wait_until_ready(port, &process) {
                Ok(()) => {
                    return Ok(Self {
                        port,
                        _process: process,
                        _folder: folder,
                    });
                }
                Err(error) => last = Some(error),
            }
        }
        Err(last.unwrap_or_else(|| anyhow::anyhow!("no port was tried")))
    }

    /// The URL of a database through the pooler.
    pub(crate) fn url(&self, database: &str) -> String {
        format!("postgres://postgres@127.0.0.1:{}/{database}", self.port)
    }
}

/// Sessions are used in rotation, so a client that depends on session state fails at once.
fn settings_text(port: u16, server: u16) -> String {
    format!(
        "[databases]\n\
         * = host=127.0.0.1 port={server} user=postgres\n\
         [pgbouncer]\n\
         listen_addr = 127.0.0.1\n\
         listen_port = {port}\n\
         unix_socket_dir =\n\
         auth_type = any\n\
         pool_mode = transaction\n\
         server_round_robin = 1\n\
         server_tls_sslmode = prefer\n\
         default_pool_size = 16\n\
         max_client_conn = 1000\n\
         server_idle_timeout = 30\n"
    )
}

fn wait_until_ready(port: u16, process: &Child) -> anyhow::Result<()> {
    let deadline = Instant::now() + START_BOUND;
    while TcpStream::connect((Ipv4Addr::LOCALHOST, port)).is_err() {
        if Instant::now() > deadline || !crate::is_alive(process.pid()) {
            bail!("PgBouncer did not start");
        }
        std::thread::sleep(READY_POLL);
    }
    Ok(())
}

fn find_program() -> anyhow::Result<PathBuf> {
    if let Some(program) = std::env::var_os(PROGRAM_VARIABLE) {
        return Ok(program.into());
    }
    let found = USUAL_PLACES.iter().map(PathBuf::from).find(|p| p.exists());
    found.with_context(|| {
        format!(
            "no PgBouncer in {USUAL_PLACES:?}: run scripts/setup.sh test, or name the program in \
             {PROGRAM_VARIABLE}"
        )
    })
}
