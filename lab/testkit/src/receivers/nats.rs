//! NATS with JetStream.

use std::ops::Deref;

use super::Receiver;
use super::service::{Service, on_free_ports};
use crate::account::Account;
use crate::{ports, ran};

/// A private NATS server, which starts in a moment: every test can have its own.
#[derive(Debug)]
pub struct Nats {
    port: u16,
    service: Service,
}

impl Nats {
    /// Starts one whose streams lie in its folder.
    pub fn start() -> anyhow::Result<Self> {
        let nats = on_free_ports(Self::start_once)?;
        ran::note(Receiver::Nats.name());
        Ok(nats)
    }

    fn start_once() -> anyhow::Result<Self> {
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
                .arg(&streams);
            command
        })?;
        Ok(Self { port, service })
    }

    /// Its URL.
    pub fn url(&self) -> String {
        format!("nats://127.0.0.1:{}", self.port)
    }

    /// Where it listens, also while it is stopped.
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
