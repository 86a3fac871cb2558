//! Redis, with the settings of a test.

use std::ops::Deref;

use anyhow::{Context as _, bail};
use serde_json::Value;

use super::Receiver;
use super::service::{Service, retry_on_free_ports};
use crate::account::Account;
use crate::{ports, ran};

/// A private Redis. It starts fast enough for one per test.
#[derive(Debug)]
pub struct Redis {
    port: u16,
    service: Service,
}

impl Redis {
    /// Starts a Redis with these settings, such as `("appendonly", "yes")`. Without settings it
    /// stores nothing on disk.
    pub fn start(settings: &[(&str, &str)]) -> anyhow::Result<Self> {
        let redis = retry_on_free_ports(|| Self::start_once(settings))?;
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

    /// The port where it listens, also while it is stopped.
    pub fn port(&self) -> u16 {
        self.port
    }

    /// Sends a command and returns the answer as JSON. Bytes that are not UTF-8 become text with
    /// replacement characters.
    pub fn ask(&self, command: &[&str]) -> anyhow::Result<Value> {
        // Only version 3 of the protocol distinguishes numbers, texts and maps.
        let client = redis::Client::open(format!("{}?protocol=resp3", self.url()))?;
        let mut connection = client.get_connection()?;
        let mut call = redis::Cmd::new();
        let answer = call.arg(command).query::<redis::Value>(&mut connection);
        json(answer.with_context(|| format!("{command:?}"))?)
    }
}

fn json(answer: redis::Value) -> anyhow::Result<Value> {
    let list = |all: Vec<redis::Value>| all.into_iter().map(json).collect::<anyhow::Result<_>>();
    Ok(match answer {
        redis::Value::Nil => Value::Null,
        redis::Value::Okay => "OK".into(),
        redis::Value::Int(number) => number.into(),
        redis::Value::Double(number) => number.into(),
        redis::Value::Boolean(is) => is.into(),
        redis::Value::SimpleString(text) | redis::Value::VerbatimString { text, .. } => text.into(),
        redis::Value::BulkString(bytes) => String::from_utf8_lossy(&bytes).into(),
        redis::Value::Array(all) | redis::Value::Set(all) => Value::Array(list(all)?),
        redis::Value::Map(pairs) => {
            let pair = |(key, value)| match json(key)? {
                Value::String(key) => Ok((key, json(value)?)),
                other => Ok((other.to_string(), json(value)?)),
            };
            let pairs: anyhow::Result<_> = pairs.into_iter().map(pair).collect();
            Value::Object(pairs?)
        }
        other => bail!("an answer that is no JSON: {other:?}"),
    })
}

impl Deref for Redis {
    type Target = Service;

    fn deref(&self) -> &Service {
        &self.service
    }
}
