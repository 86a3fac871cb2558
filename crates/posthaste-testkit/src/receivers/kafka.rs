//! Kafka: one node that is broker and controller.

use std::ops::Deref;
use std::path::Path;
use std::process::Command;
use std::sync::OnceLock;

use anyhow::ensure;

use super::service::{Service, on_free_ports};
use super::{Receiver, installed, sources};
use crate::account::Account;
use crate::{ports, ran};

/// Enough for tests, and quick to start: nothing here runs long enough for an optimising compiler.
const JAVA: [&str; 4] = [
    "-XX:TieredStopAtLevel=1",
    "-XX:+UseSerialGC",
    "-Xms64m",
    "-Xmx256m",
];

/// A private Kafka. Topics come into being when somebody writes to them, with one partition unless told otherwise.
#[derive(Debug)]
pub struct Kafka {
    port: u16,
    service: Service,
}

impl Kafka {
    /// The broker that all tests of this process share; each uses topics of its own.
    pub fn shared() -> anyhow::Result<&'static Self> {
        static SHARED: OnceLock<Result<Kafka, String>> = OnceLock::new();
        SHARED
            .get_or_init(|| Self::start(&[]).map_err(|error| format!("{error:#}")))
            .as_ref()
            .map_err(|error| anyhow::anyhow!("{error}"))
    }

    /// Starts one of its own for a test that will stop or kill it, or that needs other settings.
    pub fn start(settings: &[(&str, &str)]) -> anyhow::Result<Self> {
        let kafka = on_free_ports(|| Self::start_once(settings))?;
        ran::note(Receiver::Kafka.name());
        Ok(kafka)
    }

    fn start_once(settings: &[(&str, &str)]) -> anyhow::Result<Self> {
        let java = Receiver::Kafka.find()?;
        // As ourselves: Java takes root, and the account of the servers may not be able to read the jars.
        let account = Account::Ourselves;
        let folder = Service::folder(account)?;
        let port = ports::free()?;
        let file = folder.path().join("server.properties");
        let own = settings_of(port, ports::free()?, &folder.path().join("data"));
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
        Ok(Self { port, service })
    }

    /// Where clients begin: `127.0.0.1:9092` and the like.
    pub fn bootstrap(&self) -> String {
        format!("127.0.0.1:{}", self.port)
    }

    /// Where it listens, also while it is stopped.
    pub fn port(&self) -> u16 {
        self.port
    }
}

/// Whoever must wait for several of something has one; what comes later wins.
fn settings_of(port: u16, controller: u16, data: &Path) -> String {
    format!(
        "process.roles=broker,controller\n\
         node.id=1\n\
         listeners=PLAINTEXT://127.0.0.1:{port},CONTROLLER://127.0.0.1:{controller}\n\
         advertised.listeners=PLAINTEXT://127.0.0.1:{port}\n\
         controller.listener.names=CONTROLLER\n\
         controller.quorum.voters=1@127.0.0.1:{controller}\n\
         listener.security.protocol.map=PLAINTEXT:PLAINTEXT,CONTROLLER:PLAINTEXT\n\
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
