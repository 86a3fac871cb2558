//! The versions that the tests run on, and where their programs are.

use std::path::{Path, PathBuf};

use anyhow::bail;

use crate::account::Account;

/// A major version of Postgres.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum PgVersion {
    /// The oldest version that is supported.
    V15,
    /// The newest version that is supported.
    V18,
}

impl PgVersion {
    /// Every version that the tests run on.
    pub const ALL: [Self; 2] = [Self::V15, Self::V18];

    /// The name in the ledger of what ran.
    pub fn name(self) -> &'static str {
        match self {
            Self::V15 => "pg15",
            Self::V18 => "pg18",
        }
    }

    /// The folder of its programs: the one that `POSTHASTE_PG15_BIN` or `POSTHASTE_PG18_BIN` names, else the
    /// system's, else the one that `scripts/setup.sh` installs.
    pub fn bin(self) -> anyhow::Result<PathBuf> {
        let account = Account::for_servers()?;
        let (variable, banner) = match self {
            Self::V15 => ("POSTHASTE_PG15_BIN", "(PostgreSQL) 15."),
            Self::V18 => ("POSTHASTE_PG18_BIN", "(PostgreSQL) 18."),
        };
        let candidates = match std::env::var_os(variable) {
            Some(folder) => vec![PathBuf::from(folder)],
            None => self.usual_places(),
        };
        // Links are followed here, as ourselves: the servers' account may not be able to walk up to them.
        let found = candidates
            .iter()
            .filter_map(|folder| folder.canonicalize().ok())
            .find(|folder| runs(account, folder, banner));
        match found {
            Some(folder) => Ok(folder),
            None => bail!(
                "no programs of {} that the servers' account can run in {candidates:?}: \
                 run scripts/setup.sh test, or name their folder in {variable}",
                self.name()
            ),
        }
    }

    fn usual_places(self) -> Vec<PathBuf> {
        match self {
            Self::V15 => vec!["/usr/lib/postgresql/15/bin".into()],
            Self::V18 => vec![
                "/usr/lib/postgresql/18/bin".into(),
                Path::new(env!("CARGO_MANIFEST_DIR")).join("../../.tools/pg18/pgbin"),
            ],
        }
    }
}

fn runs(account: Account, folder: &Path, banner: &str) -> bool {
    account
        .command(folder.join("postgres"))
        .arg("--version")
        .output()
        .is_ok_and(|output| String::from_utf8_lossy(&output.stdout).contains(banner))
}
