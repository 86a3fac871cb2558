//! The private folder of a server or worker, and the watchdog that removes it.

use std::fs::DirBuilder;
use std::os::unix::fs::DirBuilderExt;
use std::path::{Path, PathBuf};

use anyhow::bail;

use crate::account::Account;
use crate::watchdog::Watchdog;

#[derive(Debug)]
pub(crate) struct Folder {
    path: PathBuf,
    watchdog: Option<Watchdog>,
}

impl Folder {
    /// Creates a folder that this account can use, in the first of the usual places that works. The
    /// watchdog removes it and ends its users when we end.
    pub(crate) fn create(
        account: Account,
        watch: fn(&Path) -> anyhow::Result<Watchdog>,
    ) -> anyhow::Result<Self> {
        let places = [
            std::env::temp_dir(),
            "/var/tmp".into(),
            "/var/lib/posthaste".into(),
        ];
        Self::create_below(&places, account, watch)
    }

    /// As [`create`](Self::create), in the first of these places that works.
    pub(crate) fn create_below(
        places: &[PathBuf],
        account: Account,
        watch: fn(&Path) -> anyhow::Result<Watchdog>,
    ) -> anyhow::Result<Self> {
        for place in places {
            // The watchdog compares and removes paths as they are given, so it gets the canonical
            // one.
            let Ok(place) = place.canonicalize() else {
                continue;
            };
            let path = place.join(format!(
                "posthaste-test-{}-{:08x}",
                std::process::id(),
                fastrand::u32(..)
            ));
            if DirBuilder::new().mode(0o700).create(&path).is_err() {
                continue;
            }
            let watchdog = Some(watch(&path)?);
            let folder = Self { path, watchdog };
            account.make_owner_of(&folder.path)?;
            if account.can_write(&folder.path) {
                return Ok(folder);
            }
        }
        bail!("the servers' account can reach none of {places:?}")
    }

    /// A folder that another process owns and removes.
    pub(crate) fn of_another(path: PathBuf) -> Self {
        Self {
            path,
            watchdog: None,
        }
    }

    pub(crate) fn path(&self) -> &Path {
        &self.path
    }

    pub(crate) fn data_folder(&self) -> PathBuf {
        self.path.join("data")
    }

    pub(crate) fn log_file(&self) -> PathBuf {
        self.path.join("log")
    }

    pub(crate) fn pid_file(&self) -> PathBuf {
        self.data_folder().join("postmaster.pid")
    }

    /// Makes the watchdog stop the server and remove the folder now.
    pub(crate) fn remove(&mut self) {
        self.watchdog = None;
    }
}
