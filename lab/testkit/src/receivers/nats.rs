//! NATS with JetStream.

use std::ops::Deref;

use super::Receiver;
use super::service::{Service, retry_on_free_ports};
use crate::account::Account;
use crate::{ports, ran};

/// A private NATS server. It starts fast enough for one per test.
#[derive(Debug)]
pub struct Nats {
    port: u16,
    service: Service,
}

impl Nats {
    /// Starts a server whose streams are stored in its folder.
    pub fn start() -> anyhow::Result<Self> {
        Self::start_with(&[])
    }

    /// As [`start`](Self::start), with these additional arguments.
    pub fn start_with(arguments: &[&str]) -> anyhow::Result<Self> {
        let nats = retry_on_free_ports(|| Self::start_once(arguments))?;
        ran::note(Receiver::Nats.name());
        Ok(nats)
    }

    /// Starts a cluster of three servers, any of which may store a stream.
    pub fn start_cluster() -> anyhow::Result<[Self; 3]> {
        let start = || {
            let ports = [ports::free()?, ports::free()?, ports::free()?];
            let routes = ports
                .map(|port| format!("nats-route://127.0.0.1:{port}"))
                .join(",");
            let start = |at: usize| {
                let (name, cluster) = (format!("n{at}"), format!("nats://127.0.0.1:{}", ports[at]));
                let arguments = ["--server_name", &name, "--cluster", &cluster];
                let together = ["--cluster_name", "posthaste", "--routes", &routes];
                let arguments = [arguments, together].concat();
                Self::start_once(&arguments)
            };
            anyhow::Ok([start(0)?, start(1)?, start(2)?])
        };
        let cluster = retry_on_free_ports(start)?;
        ran::note(Receiver::Nats.name());
        Ok(cluster)
    }

    fn start_once(arguments: &[&str]) -> anyhow::Result<Self> {
        let arguments: Vec<String> = arguments.iter().map(|&one| one.to_owned()).collect();
        let program = Receiver::Nats.find()?;
        let account = Account::for_servers()?;
        let folder = Service::folder(account)?;
        let port = ports::free()?;
        let streams = folder.path().to_owned();
        let service = Service::start("NATS", folder, "Server is ready", move || {
            let mut command = account.command(&program);
            command
                .args(["--addr", "127.0.0.1", "--port", &port.to_string()])
                .args(["--jetstream", "--store_dir"])
                .arg(&streams)
                .args(&arguments);
            command
        })?;
        Ok(Self { port, service })
    }

    /// Its URL.
    pub fn url(&self) -> String {
        format!("nats://127.0.0.1:{}", self.port)
    }

    /// The port where it listens, also while it is stopped.
    pub fn port(&self) -> u16 {
        self.port
    }
}

impl Deref for Nats {
    type Target = Service;

    fn deref(&self) -> &Service {
        &self.service
    }
}
