//! Servers that all test processes of a run share.
//!
//! A launcher, `posthaste-test-run`, names a folder in `POSTHASTE_SERVERS`. A test that needs a
//! server creates `NAME.wanted` there and waits for `NAME.json`, which describes the server, or for
//! `NAME.failed`, which has the reason why it did not start. `data-VERSION.json` names a data
//! folder without a server, to be copied. A process without the variable starts its servers by
//! itself.

use std::fs::{self, OpenOptions};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::{Duration, Instant};

use anyhow::{Context, bail};
use serde_json::Value;

use crate::postgres::{PgServer, PgVersion};
use crate::ran;
use crate::receivers::{Kafka, OpenSearch, RabbitMq};

/// The variable that names the folder of the run.
pub const SERVERS: &str = "POSTHASTE_SERVERS";

/// The prefix of a version's name for the data folder that `initdb` made of it, to be copied.
const DATA_PREFIX: &str = "data-";
const START_TIMEOUT: Duration = Duration::from_secs(240);
const ANSWER_POLL: Duration = Duration::from_millis(10);
/// Time between two reads of the folder of a run, which contains thousands of files in the end.
const FOLDER_POLL: Duration = Duration::from_millis(100);

/// Returns the server of this name that the run shares, or one of this process if there is no run.
pub(crate) fn server_of_run<T>(
    name: &str,
    attach: impl FnOnce(&Value) -> anyhow::Result<T>,
    start: impl FnOnce() -> anyhow::Result<T>,
) -> Result<T, String> {
    let server = match run_folder() {
        Some(folder) => request_server(&folder, name).and_then(|found| {
            ran::note(name);
            attach(&found)
        }),
        None => start(),
    };
    server.map_err(|error| format!("{error:#}"))
}

/// The data folder that `initdb` made of this version for the run; `None` if there is no run.
pub(crate) fn data_folder_of_run(version: PgVersion) -> anyhow::Result<Option<PathBuf>> {
    let Some(folder) = run_folder() else {
        return Ok(None);
    };
    let found = request_server(&folder, &format!("{DATA_PREFIX}{}", version.name()))?;
    let made = found["folder"].as_str().context("no folder")?;
    Ok(Some(Path::new(made).join("data")))
}

/// Takes the first of this many numbered things that no test of the run has taken.
pub(crate) fn take_numbered(name: &str, count: usize) -> anyhow::Result<usize> {
    let taken = (0..count).find(|number| is_first(&format!("{name}-{number}")));
    taken.with_context(|| format!("no {name} is left of {count}"))
}

/// Whether this is the first request for it in the run; always true without a run.
pub(crate) fn is_first(name: &str) -> bool {
    run_folder().is_none_or(|folder| create_new_file(&folder.join(format!("{name}.taken"))))
}

/// Returns a unique name for a database, a queue or an index.
pub fn unique(name: &str) -> String {
    static COUNT: AtomicU32 = AtomicU32::new(0);
    let (us, count) = (std::process::id(), COUNT.fetch_add(1, Ordering::Relaxed));
    format!("{name}-{us}-{count}-{:04x}", fastrand::u16(..))
}

fn create_new_file(file: &Path) -> bool {
    let created = OpenOptions::new().write(true).create_new(true).open(file);
    created.is_ok()
}

/// Reads a number of a description.
pub(crate) fn read_port(description: &Value, key: &str) -> anyhow::Result<u16> {
    let number = description[key]
        .as_u64()
        .and_then(|number| number.try_into().ok());
    number.with_context(|| format!("no {key} in {description}"))
}

fn run_folder() -> Option<PathBuf> {
    std::env::var_os(SERVERS).map(PathBuf::from)
}

fn request_server(folder: &Path, name: &str) -> anyhow::Result<Value> {
    let file = |end: &str| folder.join(format!("{name}.{end}"));
    let found = || fs::read(file("json")).ok();
    if let Some(text) = found() {
        return Ok(serde_json::from_slice(&text)?);
    }
    fs::write(file("wanted"), "").context("asking for a server of the run")?;
    let deadline = Instant::now() + START_TIMEOUT;
    loop {
        if let Some(text) = found() {
            return Ok(serde_json::from_slice(&text)?);
        }
        if let Ok(why) = fs::read_to_string(file("failed")) {
            bail!("{why}");
        }
        if Instant::now() > deadline {
            bail!("no {name} within {START_TIMEOUT:?}");
        }
        std::thread::sleep(ANSWER_POLL);
    }
}

/// Starts the servers that are requested in this folder, while the folder exists. The servers end
/// with the process.
pub(crate) fn serve(folder: &Path) {
    while let Ok(entries) = fs::read_dir(folder) {
        for entry in entries.flatten() {
            let file = entry.path();
            let wanted = file.extension().is_some_and(|end| end == "wanted");
            let started = file.with_extension("started");
            if wanted && fs::rename(&file, &started).is_ok() {
                std::thread::spawn(move || answer_request(&started));
            }
        }
        std::thread::sleep(FOLDER_POLL);
    }
}

/// Answers a request. Files are created complete and never changed: a second process that requests
/// the same server finds the answer.
fn answer_request(started: &Path) {
    let name = started.file_stem().and_then(|name| name.to_str());
    let (json, failed) = (
        started.with_extension("json"),
        started.with_extension("failed"),
    );
    if !create_new_file(&started.with_extension("begun")) {
        return;
    }
    let (text, file) = match start_server(name.unwrap_or_default()) {
        Ok(description) => (description.to_string(), json),
        Err(error) => (format!("{error:#}"), failed),
    };
    let part = started.with_extension("part");
    let _ = fs::write(&part, text).and_then(|()| fs::rename(&part, file));
}

/// Starts a server for the rest of this process, and returns its description.
fn start_server(name: &str) -> anyhow::Result<Value> {
    let version = |name: &str| {
        PgVersion::PROMISED
            .into_iter()
            .find(|one| one.name() == name)
    };
    if let Some(version) = version(name) {
        return Ok(leak(PgServer::start_itself(version)?).description());
    }
    if let Some(version) = name.strip_prefix(DATA_PREFIX).and_then(version) {
        return Ok(leak(PgServer::create_data_folder(version)?).description());
    }
    match name {
        "kafka" => Ok(leak(Kafka::start_shared()?).description()),
        "rabbitmq" => Ok(leak(RabbitMq::start()?).description()),
        "opensearch" => Ok(leak(OpenSearch::start_shared()?).description()),
        other => bail!("unknown server {other:?}"),
    }
}

fn leak<T>(server: T) -> &'static T {
    Box::leak(Box::new(server))
}
