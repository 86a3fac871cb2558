//! OpenSearch: one node, with the modules for scripted updates, pipelines and updates by query.

use std::io::{Read as _, Write as _};
use std::net::{Ipv4Addr, TcpStream};
use std::ops::Deref;
use std::path::Path;
use std::sync::OnceLock;
use std::time::{Duration, Instant};

use anyhow::{Context, ensure};
use serde_json::{Value, json};

use super::service::{Service, retry_on_free_ports};
use super::{Receiver, installed, sources};
use crate::account::Account;
use crate::shared::{read_port, server_of_run};
use crate::{ports, ran};

/// Quick to start; nothing here runs long enough to gain from an optimising compiler.
const QUICK_START_OPTIONS: [&str; 1] = ["-XX:TieredStopAtLevel=1"];
/// The options of the server's start script that a single node with console output needs.
const JAVA_OPTIONS: [&str; 7] = [
    "-XX:+UseSerialGC",
    "-Xms512m",
    "-Xmx512m",
    "-XX:-OmitStackTraceInFastThrow",
    "-Djava.security.manager=allow",
    "-Dlog4j.shutdownHookEnabled=false",
    "-Dlog4j2.disable.jmx=true",
];

/// The limit for a node that has recovered its indexes to listen.
const LISTEN_TIMEOUT: Duration = Duration::from_secs(60);

/// A private OpenSearch of one node. It takes approximately ten seconds to start, so tests share
/// one, each with separate indexes.
#[derive(Debug)]
pub struct OpenSearch {
    port: u16,
    service: Service,
}

impl OpenSearch {
    /// The largest request to the shared server, in bytes.
    pub const LARGEST_REQUEST: usize = 2 << 20;

    /// Returns the server that all tests of the run share, or else all of this process.
    pub fn shared() -> anyhow::Result<&'static Self> {
        static SHARED: OnceLock<Result<OpenSearch, String>> = OnceLock::new();
        SHARED
            .get_or_init(|| server_of_run("opensearch", Self::attach, Self::start_shared))
            .as_ref()
            .map_err(|error| anyhow::anyhow!("{error}"))
    }

    /// Starts a server to be shared.
    pub(crate) fn start_shared() -> anyhow::Result<Self> {
        let largest = format!("{}b", Self::LARGEST_REQUEST);
        Self::start(&[("http.max_content_length", &largest)])
    }

    /// Starts a private server for a test that stops or kills it, or that needs other settings.
    pub fn start(settings: &[(&str, &str)]) -> anyhow::Result<Self> {
        Self::start_with(&QUICK_START_OPTIONS, settings)
    }

    /// As [`start`](Self::start), for measurements: with the optimising compiler, and slower to
    /// start.
    pub fn start_optimised(settings: &[(&str, &str)]) -> anyhow::Result<Self> {
        Self::start_with(&[], settings)
    }

    /// The description by which other processes find this server.
    pub(crate) fn description(&self) -> Value {
        json!({"port": self.port, "folder": self.service.path()})
    }

    fn attach(found: &Value) -> anyhow::Result<Self> {
        let folder = found["folder"].as_str().context("no folder")?;
        Ok(Self {
            port: read_port(found, "port")?,
            service: Service::of_the_run("OpenSearch", folder.into()),
        })
    }

    fn start_with(java: &[&'static str], settings: &[(&str, &str)]) -> anyhow::Result<Self> {
        let server = retry_on_free_ports(|| Self::start_once(java, settings))?;
        ran::note(Receiver::OpenSearch.name());
        Ok(server)
    }

    fn start_once(options: &[&'static str], settings: &[(&str, &str)]) -> anyhow::Result<Self> {
        let java = Receiver::OpenSearch.find()?;
        let jars = installed("opensearch", "lib")?;
        let home = jars.parent().context("jars lie in a folder")?.to_owned();
        // OpenSearch refuses to run as root.
        let account = Account::for_servers()?;
        let folder = Service::folder(account)?;
        let port = ports::free()?;
        let conf = folder.path().join("config");
        // The server writes a key store next to its settings.
        std::fs::create_dir(&conf)?;
        account.make_owner_of(&conf)?;
        let (settings_file, logging) = ("opensearch.yml", "log4j2.properties");
        let text = settings_of(port, ports::free()?, folder.path(), settings);
        std::fs::write(conf.join(settings_file), text)?;
        std::fs::copy(sources("opensearch").join(logging), conf.join(logging))?;
        // Independent of the umask.
        for file in [settings_file, logging] {
            account.make_owner_of(&conf.join(file))?;
        }

        let options = options.to_vec();
        // A node logs this when it has recovered its indexes; their shards follow later.
        let service = Service::start("OpenSearch", folder, "recovered [", move || {
            let mut command = account.command(&java);
            command
                .args(JAVA_OPTIONS)
                .args(&options)
                .arg(format!("-Dopensearch.path.home={}", home.display()))
                .arg(format!("-Dopensearch.path.conf={}", conf.display()))
                .arg("-cp")
                .arg(jars.join("*"))
                .arg("org.opensearch.bootstrap.OpenSearch");
            command
        })?;
        connect_when_listening(port)?;
        Ok(Self { port, service })
    }

    /// Restarts it in its place, and waits until its indexes can be read and written.
    pub fn restart(&self) -> anyhow::Result<()> {
        self.service.restart()?;
        let mut connection = connect_when_listening(self.port)?;
        connection.write_all(
            b"GET /_cluster/health?wait_for_status=yellow&timeout=60s HTTP/1.1\r\n\
              Host: localhost\r\nConnection: close\r\n\r\n",
        )?;
        let mut answer = String::new();
        connection.read_to_string(&mut answer)?;
        ensure!(answer.contains("\"timed_out\":false"), "{answer}");
        Ok(())
    }

    /// Its URL.
    pub fn url(&self) -> String {
        format!("http://127.0.0.1:{}", self.port)
    }

    /// The port where it listens, also while it is stopped.
    pub fn port(&self) -> u16 {
        self.port
    }
}

/// Connects to a node that has recovered its indexes: it listens shortly afterwards.
fn connect_when_listening(port: u16) -> anyhow::Result<TcpStream> {
    let begun = Instant::now();
    loop {
        match TcpStream::connect((Ipv4Addr::LOCALHOST, port)) {
            Ok(connection) => return Ok(connection),
            Err(error) if begun.elapsed() > LISTEN_TIMEOUT => return Err(error.into()),
            Err(_) => std::thread::sleep(Duration::from_millis(20)),
        }
    }
}

/// The settings of a test override these.
fn settings_of(port: u16, transport: u16, folder: &Path, settings: &[(&str, &str)]) -> String {
    let transport = transport.to_string();
    let port = port.to_string();
    let (data, logs) = (folder.join("data"), folder.join("logs"));
    let (data, logs) = (data.to_string_lossy(), logs.to_string_lossy());
    let ours: [(&str, &str); 9] = [
        ("cluster.name", "posthaste"),
        ("node.name", "one"),
        ("network.host", "127.0.0.1"),
        ("http.port", &port),
        ("transport.port", &transport),
        ("discovery.type", "single-node"),
        ("path.data", &data),
        ("path.logs", &logs),
        // A nearly full disk of the machine must not make it refuse a test's writes.
        ("cluster.routing.allocation.disk.threshold_enabled", "false"),
    ];
    let mut text = String::new();
    let replaced = |name: &str| settings.iter().any(|(other, _)| *other == name);
    for (name, value) in ours.iter().filter(|(name, _)| !replaced(name)) {
        text.push_str(&format!("{name}: {value:?}\n"));
    }
    for (name, value) in settings {
        text.push_str(&format!("{name}: {value:?}\n"));
    }
    text
}

impl Deref for OpenSearch {
    type Target = Service;

    fn deref(&self) -> &Service {
        &self.service
    }
}
