//! Redis, with the settings that a test asks for.

use std::ops::Deref;
use std::process::Command;

use anyhow::ensure;
use serde_json::Value;

use super::service::{Service, on_free_ports};
use super::{Receiver, program};
use crate::account::Account;
use crate::{ports, ran};

/// A private Redis, which starts in a moment: every test can have its own.
#[derive(Debug)]
pub struct Redis {
    port: u16,
    service: Service,
}

impl Redis {
    /// Starts one with these settings, such as `("appendonly", "yes")`. Without any it keeps
    /// nothing beyond its end.
    pub fn start(settings: &[(&str, &str)]) -> anyhow::Result<Self> {
        let redis = on_free_ports(|| Self::start_once(settings))?;
        ran::note(Receiver::Redis.name());
        Ok(redis)
    }

    fn start_once(settings: &[(&str, &str)]) -> anyhow::Result<Self> {
        let program = Receiver::Redis.find()?;
        let account = Account::for_servers()?;
        let folder = Service::folder(account)?;
        let port = ports::free()?;
        let mut arguments: Vec<String> = ["--bind", "127.0.0.1", "--save", "", "--port"]
            .map(str::to_owned)
            .into();
        arguments.push(port.to_string());
        arguments.push("--dir".to_owned());
        arguments.push(folder.path().display().to_string());
        for (name, value) in settings {
            arguments.extend([format!("--{name}"), (*value).to_owned()]);
        }
        let service = Service::start("Redis", folder, "Ready to accept connections", move || {
            let mut command = account.command(&program);
            command.args(&arguments);
            command
        })?;
        Ok(Self { port, service })
    }

    /// The URL of its first database.
    pub fn url(&self) -> String {
        format!("redis://127.0.0.1:{}/0", self.port)
    }

    /// Where it listens, also while it is stopped.
    pub fn port(&self) -> u16 {
        self.port
    }

    /// What it answers to a command, by redis-cli; what that does not write as JSON, such as a list
    /// of clients, as a text.
    pub fn ask(&self, command: &[&str]) -> anyhow::Result<Value> {
        let output = Command::new(program("redis-cli")?)
            .args(["-e", "--json", "-h", "127.0.0.1", "-p"])
            .arg(self.port.to_string())
            .args(command)
            .output()?;
        let said = String::from_utf8_lossy(&output.stdout);
        ensure!(output.status.success(), "{command:?}: {output:?}");
        Ok(serde_json::from_str(&said).unwrap_or_else(|_| said.as_ref().into()))
    }
}

impl Deref for Redis {
    type Target = Service;

    fn deref(&self) -> &Service {
        &self.service
    }
}
