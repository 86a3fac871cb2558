//! Kafka: one node that is both broker and controller.

use std::net::Ipv4Addr;
use std::ops::Deref;
use std::path::Path;
use std::process::Command;
use std::sync::OnceLock;
use std::sync::atomic::{AtomicUsize, Ordering};

use anyhow::{Context, ensure};
use serde_json::{Value, json};

use super::service::{Service, retry_on_free_ports};
use super::{Receiver, installed, sources};
use crate::account::Account;
use crate::shared::{read_port, server_of_run, take_numbered};
use crate::{Proxy, ports, ran};

/// Quick to start; nothing here runs long enough to gain from an optimising compiler.
const JAVA: [&str; 4] = [
    "-XX:TieredStopAtLevel=1",
    "-XX:+UseSerialGC",
    "-Xms64m",
    "-Xmx256m",
];

/// The number of tests that can put a proxy in front of the broker; each costs the broker a
/// listener with two threads.
const LISTENERS: usize = 16;

/// A private Kafka. Topics are created by the first write, with one partition by default; the
/// shared one creates none automatically.
#[derive(Debug)]
pub struct Kafka {
    port: u16,
    listeners: Vec<Listener>,
    /// The number of listeners in use; for a shared server, the run counts them.
    opened: Option<AtomicUsize>,
    service: Service,
}

/// A listener that advertises another port, on which a proxy listens.
#[derive(Clone, Copy, Debug)]
struct Listener {
    listens: u16,
    advertises: u16,
}

impl Kafka {
    /// Returns the broker that all tests of the run share, or else all of this process; each test
    /// uses separate topics.
    pub fn shared() -> anyhow::Result<&'static Self> {
        static SHARED: OnceLock<Result<Kafka, String>> = OnceLock::new();
        SHARED
            .get_or_init(|| server_of_run("kafka", Self::attach, Self::start_shared))
            .as_ref()
            .map_err(|error| anyhow::anyhow!("{error}"))
    }

    /// Starts a broker to be shared, where a missing topic is an error.
    pub(crate) fn start_shared() -> anyhow::Result<Self> {
        Self::start_with(&[("auto.create.topics.enable", "false")], LISTENERS)
    }

    /// The description by which other processes find this server.
    pub(crate) fn description(&self) -> Value {
        let listeners = self.listeners.iter();
        let listeners: Vec<_> = listeners.map(|one| [one.listens, one.advertises]).collect();
        json!({"port": self.port, "folder": self.service.path(), "listeners": listeners})
    }

    fn attach(found: &Value) -> anyhow::Result<Self> {
        let folder = found["folder"].as_str().context("no folder")?;
        let listeners: Vec<[u16; 2]> = serde_json::from_value(found["listeners"].clone())?;
        let listeners = listeners.into_iter();
        let listener = |[listens, advertises]: [u16; 2]| Listener {
            listens,
            advertises,
        };
        Ok(Self {
            port: read_port(found, "port")?,
            listeners: listeners.map(listener).collect(),
            opened: None,
            service: Service::of_the_run("Kafka", folder.into()),
        })
    }

    /// Starts a private broker for a test that stops or kills it, or that needs other settings.
    pub fn start(settings: &[(&str, &str)]) -> anyhow::Result<Self> {
        Self::start_with(settings, 0)
    }

    fn start_with(settings: &[(&str, &str)], listeners: usize) -> anyhow::Result<Self> {
        let kafka = retry_on_free_ports(|| Self::start_once(settings, listeners))?;
        ran::note(Receiver::Kafka.name());
        Ok(kafka)
    }

    fn start_once(settings: &[(&str, &str)], listeners: usize) -> anyhow::Result<Self> {
        let java = Receiver::Kafka.find()?;
        // Under our account: Java runs as root, and the account of the servers may not be able to
        // read the JARs.
        let account = Account::Ourselves;
        let folder = Service::folder(account)?;
        let port = ports::free()?;
        let file = folder.path().join("server.properties");
        let listener = |_| -> anyhow::Result<Listener> {
            let (listens, advertises) = (ports::free()?, ports::free()?);
            Ok(Listener {
                listens,
                advertises,
            })
        };
        let listeners = (0..listeners)
            .map(listener)
            .collect::<anyhow::Result<Vec<_>>>()?;
        let own = settings_of(
            port,
            ports::free()?,
            &listeners,
            &folder.path().join("data"),
        );
        let theirs = settings
            .iter()
            .map(|(name, value)| format!("{name}={value}\n"));
        std::fs::write(&file, own + &theirs.collect::<String>())?;

        let jars = format!("{}/*", installed("kafka", "lib")?.display());
        let logging = sources("kafka").join("log4j2.properties");
        let run = move |class: &str, arguments: &[&str]| {
            let mut command: Command = account.command(&java);
            command
                .args(JAVA)
                .arg(format!("-Dlog4j2.configurationFile={}", logging.display()))
                .args(["-cp", &jars, class])
                .args(arguments)
                .arg(&file);
            command
        };
        let id = ["format", "-t", "cG9zdGhhc3RlLXRlc3RzIQ", "-c"];
        let formatted = run("kafka.tools.StorageTool", &id).output()?;
        ensure!(formatted.status.success(), "{formatted:?}");
        let service = Service::start("Kafka", folder, "Kafka Server started", move || {
            run("kafka.Kafka", &[])
        })?;
        Ok(Self {
            port,
            listeners,
            opened: Some(AtomicUsize::default()),
            service,
        })
    }

    /// Starts a proxy in front of the shared broker, on one of a few listeners. A broker advertises
    /// an address to its clients, so that they would bypass any other proxy.
    pub async fn proxy(&self) -> anyhow::Result<Proxy> {
        let at = match &self.opened {
            Some(opened) => opened.fetch_add(1, Ordering::Relaxed),
            None => take_numbered("kafka-listener", self.listeners.len())?,
        };
        let listener = self.listeners.get(at);
        let listener = listener.context("there is no listener left")?;
        let target = (Ipv4Addr::LOCALHOST, listener.listens).into();
        Proxy::start_at(listener.advertises, target, true).await
    }

    /// The address for clients, such as `127.0.0.1:9092`.
    pub fn bootstrap(&self) -> String {
        format!("127.0.0.1:{}", self.port)
    }

    /// The port where it listens, also while it is stopped.
    pub fn port(&self) -> u16 {
        self.port
    }
}

/// The single node has one replica of everything; later settings override earlier ones.
fn settings_of(port: u16, controller: u16, listeners: &[Listener], data: &Path) -> String {
    let of_listeners = |text: &dyn Fn(usize, &Listener) -> String| -> String {
        let listeners = listeners.iter().enumerate();
        listeners.map(|(n, listener)| text(n, listener)).collect()
    };
    let listening =
        of_listeners(&|n, listener| format!(",PROXIED{n}://127.0.0.1:{}", listener.listens));
    let advertised =
        of_listeners(&|n, listener| format!(",PROXIED{n}://127.0.0.1:{}", listener.advertises));
    let protocols = of_listeners(&|n, _| format!(",PROXIED{n}:PLAINTEXT"));
    format!(
        "process.roles=broker,controller\n\
         node.id=1\n\
         listeners=PLAINTEXT://127.0.0.1:{port},CONTROLLER://127.0.0.1:{controller}{listening}\n\
         advertised.listeners=PLAINTEXT://127.0.0.1:{port}{advertised}\n\
         controller.listener.names=CONTROLLER\n\
         controller.quorum.voters=1@127.0.0.1:{controller}\n\
         listener.security.protocol.map=PLAINTEXT:PLAINTEXT,CONTROLLER:PLAINTEXT{protocols}\n\
         num.network.threads=1\n\
         log.dirs={}\n\
         offsets.topic.replication.factor=1\n\
         offsets.topic.num.partitions=1\n\
         transaction.state.log.replication.factor=1\n\
         transaction.state.log.min.isr=1\n\
         transaction.state.log.num.partitions=1\n\
         share.coordinator.state.topic.replication.factor=1\n\
         share.coordinator.state.topic.min.isr=1\n\
         group.initial.rebalance.delay.ms=0\n\
         auto.create.topics.enable=true\n",
        data.display()
    )
}

impl Deref for Kafka {
    type Target = Service;

    fn deref(&self) -> &Service {
        &self.service
    }
}
