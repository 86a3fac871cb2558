//! ChromeDriver, which starts a browser for each session.

use std::ops::Deref;
use std::path::PathBuf;
use std::sync::LazyLock;

use anyhow::Context;

use super::service::{Service, retry_on_free_ports};
use super::{Receiver, installed, program};
use crate::account::Account;
use crate::{ports, ran};

/// The browser without a window, which needs a quarter less CPU time, else the full browser; by the
/// names of the distributions and of its developers.
const PROGRAMS: [&str; 5] = [
    "chromium-headless-shell",
    "chromium",
    "chromium-browser",
    "google-chrome",
    "google-chrome-stable",
];

/// Prevent the browser from contacting other machines, storing its history and requiring privileges
/// that a container does not have.
const ARGUMENTS: [&str; 13] = [
    "--headless=new",
    "--no-sandbox",
    "--disable-gpu",
    "--disable-quic",
    "--disable-dev-shm-usage",
    "--disable-breakpad",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-extensions",
    "--disable-sync",
    "--no-first-run",
    "--no-default-browser-check",
    "--hide-scrollbars",
];

/// A private ChromeDriver. The browsers of its sessions end with it.
#[derive(Debug)]
pub struct Browser {
    port: u16,
    service: Service,
}

impl Browser {
    /// Returns the driver that the tests of this process share.
    pub fn shared() -> anyhow::Result<&'static Self> {
        static SHARED: LazyLock<Result<Browser, String>> =
            LazyLock::new(|| Browser::start().map_err(|error| format!("{error:#}")));
        SHARED.as_ref().map_err(|error| anyhow::anyhow!("{error}"))
    }

    /// Starts a driver.
    pub fn start() -> anyhow::Result<Self> {
        let browser = retry_on_free_ports(Self::start_once)?;
        ran::note(Receiver::Browser.name());
        Ok(browser)
    }

    fn start_once() -> anyhow::Result<Self> {
        let program = program("chromedriver")?;
        let account = Account::for_servers()?;
        let folder = Service::folder(account)?;
        let port = ports::free()?;
        let home = folder.path().to_owned();
        let service = Service::start("ChromeDriver", folder, "started successfully", move || {
            let mut command = account.command(&program);
            command
                .arg(format!("--port={port}"))
                .env("HOME", &home)
                .env("TMPDIR", &home)
                .env_remove("DBUS_SESSION_BUS_ADDRESS")
                .env_remove("XDG_CONFIG_HOME")
                .env_remove("XDG_CACHE_HOME");
            command
        })?;
        Ok(Self { port, service })
    }

    /// The URL where a WebDriver client creates sessions.
    pub fn url(&self) -> String {
        format!("http://127.0.0.1:{}", self.port)
    }

    /// The `goog:chromeOptions` of a session.
    pub fn options(&self) -> anyhow::Result<serde_json::Value> {
        Ok(serde_json::json!({ "binary": chromium()?, "args": ARGUMENTS }))
    }

    /// The source of axe-core, which checks a page for accessibility problems.
    pub fn axe_source() -> anyhow::Result<String> {
        let file = find_axe()?;
        std::fs::read_to_string(&file).with_context(|| format!("reading {}", file.display()))
    }
}

impl Deref for Browser {
    type Target = Service;

    fn deref(&self) -> &Service {
        &self.service
    }
}

/// Finds ChromeDriver, if the browser and axe-core are installed too.
pub(super) fn find() -> anyhow::Result<PathBuf> {
    find_axe()?;
    chromium()?;
    program("chromedriver")
}

fn chromium() -> anyhow::Result<PathBuf> {
    let found = PROGRAMS.iter().find_map(|name| program(name).ok());
    found.map_or_else(|| program("chromium"), Ok)
}

fn find_axe() -> anyhow::Result<PathBuf> {
    installed("axe", "node_modules/axe-core/axe.min.js")
}
