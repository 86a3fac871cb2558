//! `posthaste console`: the web console.

use std::net::SocketAddr;
use std::path::PathBuf;

use anyhow::{Context as _, bail};
use posthaste_console::{Access, Role, Settings, router};
use serde_json::json;
use tokio::net::TcpListener;

use crate::database::Database;
use crate::failure;
use crate::signals::Signals;
use crate::terminal::Terminal;

/// Serve the web console until Ctrl-C; by itself to this machine only, and only to look
#[derive(clap::Args)]
pub(crate) struct Arguments {
    /// Serve it at this address; one that other machines reach needs --token-file and --without-tls
    #[arg(long, value_name = "ADDRESS", default_value = "127.0.0.1:8088")]
    listen: SocketAddr,

    /// Let people act: pause, retry, cancel, redrive, delete and re-index; the database's user needs
    /// the rights
    #[arg(long)]
    operate: bool,

    /// Ask for the token in this file before showing anything
    #[arg(long, value_name = "FILE")]
    token_file: Option<PathBuf>,

    /// Serve other machines without TLS, because a proxy in front of it does that
    #[arg(long, requires = "token_file")]
    without_tls: bool,

    /// Hide arguments whose keys contain this too. May be given many times
    #[arg(long, value_name = "KEY")]
    redact: Vec<String>,
}

/// It serves all pages; one more connection is for the snapshot that they share.
const CONNECTIONS: usize = 3;
/// A shorter token could be guessed.
const SHORTEST_TOKEN: usize = 16;

impl Arguments {
    /// Whether the options fit together; asked before a database is.
    pub(crate) fn check(&self) -> anyhow::Result<()> {
        let elsewhere = !self.listen.ip().is_loopback();
        if elsewhere && (self.token_file.is_none() || !self.without_tls) {
            bail!(
                "{} can be reached from other machines: give --token-file, put a proxy that speaks TLS before it, and say --without-tls; or listen at 127.0.0.1.",
                self.listen
            );
        }
        Ok(())
    }

    fn access(&self) -> anyhow::Result<Access> {
        let Some(file) = &self.token_file else {
            return Ok(Access::Loopback);
        };
        let token = std::fs::read_to_string(file)
            .map_err(|error| anyhow::anyhow!("{}: {}", file.display(), failure::reason(&error)))?;
        let token = token.trim();
        failure::conceal(token);
        if token.len() < SHORTEST_TOKEN {
            bail!(
                "{}: a token has {SHORTEST_TOKEN} letters at least: head -c 24 /dev/urandom | base64 makes one.",
                file.display()
            );
        }
        Ok(Access::Token(token.to_owned()))
    }

    fn settings(&self) -> anyhow::Result<Settings> {
        let mut settings = Settings {
            access: self.access()?,
            ..Settings::default()
        };
        if self.operate {
            settings.role = Role::Operator;
        }
        settings.redacted.extend(self.redact.iter().cloned());
        Ok(settings)
    }
}

pub(crate) async fn run(
    arguments: &Arguments,
    database: &Database,
    terminal: &Terminal,
    signals: &Signals,
) -> anyhow::Result<()> {
    let settings = arguments.settings()?;
    // A database that cannot be reached at the start is a mistake to be told; one that is lost
    // later comes back.
    let client = database.address().connect().await?;
    posthaste::check_schema(&client).await?;
    drop(client);
    let listener = TcpListener::bind(arguments.listen).await;
    let listener = listener.map_err(|error| {
        let reason = failure::reason(&error);
        anyhow::anyhow!("cannot listen at {}: {reason}", arguments.listen)
    })?;
    let address = listener.local_addr().context("listening")?;
    let role = match settings.role {
        Role::Observer => "to look at; --operate lets people act too",
        Role::Operator => "to look at and to act",
    };
    let console = router(database.address().pool(CONNECTIONS)?, settings);
    // Its log says from where somebody acted.
    let console = console.into_make_service_with_connect_info::<SocketAddr>();
    let url = format!("http://{address}/");
    let text = format!("console at {url}, {role}; Ctrl-C stops");
    terminal.event("listening", &text, &json!({ "url": url }))?;
    tokio::select! {
        served = axum::serve(listener, console).into_future() => Ok(served?),
        () = signals.stop().cancelled() => Ok(()),
        error = database.gone() => Err(error),
    }
}
