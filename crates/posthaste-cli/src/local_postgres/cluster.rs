//! Makes the data directory of the private server, and its database.

use std::fs;
use std::os::unix::fs::DirBuilderExt as _;

use anyhow::{Context as _, bail};
use tokio_postgres::error::SqlState;

use super::DATABASE_USER;
use super::binaries::Binaries;
use super::home::Home;
use crate::connect::Address;

const DRAFT_PREFIX: &str = "data.new-";

/// Makes a data directory under a temporary name, then renames it. A process that is killed while
/// it does so leaves no incomplete database.
pub(crate) fn make_data_directory(home: &Home, binaries: &Binaries) -> anyhow::Result<()> {
    home.check_runs(binaries)?;
    remove_drafts(home);
    let name = uuid::Uuid::new_v4().simple();
    let draft = home.folder.join(format!("{DRAFT_PREFIX}{name}"));
    let secret = home.folder.join("password.for-initdb");
    let password = uuid::Uuid::new_v4().simple().to_string();
    home.write("password", password.as_bytes())?;
    fs::DirBuilder::new().mode(0o700).create(&draft)?;
    home.write("password.for-initdb", password.as_bytes())?;
    if let Some(user) = home.user {
        for path in [&draft, &secret] {
            std::os::unix::fs::lchown(path, Some(user.uid), Some(user.gid))?;
        }
    }
    let output = home
        .command(&binaries.program("initdb"))
        .args([
            "--username",
            DATABASE_USER,
            "--auth",
            "scram-sha-256",
            "--encoding",
            "UTF8",
            "--no-locale",
        ])
        .arg("--pwfile")
        .arg(&secret)
        .arg("--pgdata")
        .arg(&draft)
        .output()
        .context("cannot run initdb")?;
    fs::remove_file(&secret)?;
    if !output.status.success() {
        let stderr = String::from_utf8_lossy(&output.stderr);
        bail!(
            "initdb could not create a data directory in {}: {}",
            home.folder.display(),
            stderr.trim()
        );
    }
    fs::rename(&draft, home.data()).context("cannot move the new data directory into place")
}

/// Removes the drafts of killed processes. An initdb may still be writing to one, so each draft has
/// a different name, and one that cannot be removed now is removed later.
fn remove_drafts(home: &Home) {
    let Ok(entries) = fs::read_dir(&home.folder) else {
        return;
    };
    for entry in entries.flatten() {
        if entry
            .file_name()
            .as_encoded_bytes()
            .starts_with(DRAFT_PREFIX.as_bytes())
        {
            let _ = fs::remove_dir_all(entry.path());
        }
    }
}

/// Makes the database of the commands, unless it exists.
pub(crate) async fn make_database(port: u16, password: &str) -> anyhow::Result<()> {
    let client = Address::private_server(port, "postgres", password)?
        .connect()
        .await?;
    match client.batch_execute(include_str!("database.sql")).await {
        Err(error) if error.code() != Some(&SqlState::DUPLICATE_DATABASE) => Err(error)
            .context("cannot create the database posthaste in the private Postgres server"),
        _ => Ok(()),
    }
}
