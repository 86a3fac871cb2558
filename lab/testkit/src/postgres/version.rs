//! The versions that the tests run on, and the folders of their programs.

use std::path::{Path, PathBuf};
use std::str::FromStr;

use anyhow::{Context, bail};

use crate::account::Account;

/// Names two versions, such as `16 17`, that replace the oldest and the newest: the same tests on
/// the versions in between.
const INSTEAD_VARIABLE: &str = "POSTHASTE_PG_INSTEAD";

/// A major version of Postgres.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum PgVersion {
    /// The oldest version that is supported.
    V15,
    /// A version in between; its programs are a server without client tools.
    V16,
    /// A version in between; its programs are a server without client tools.
    V17,
    /// The newest version that is supported.
    V18,
}

impl PgVersion {
    /// The oldest and the newest version.
    pub const ALL: [Self; 2] = [Self::V15, Self::V18];

    /// The versions for a claim about the store: the newest, and also the oldest if
    /// `POSTHASTE_TEST_NEWEST` is not set, as in `make test-full`. A claim that depends on the
    /// version is tested on [`ALL`](Self::ALL).
    pub fn tried() -> impl Iterator<Item = Self> {
        let all = Self::ALL.into_iter();
        all.filter(|version| *version == Self::V18 || !is_newest_alone())
    }

    /// The version for a claim that holds equally on all: the newest, or the oldest if
    /// `POSTHASTE_TEST_NEWEST` is not set, as in `make test-full`. Tests that run only in
    /// `make test-full` therefore use the oldest. Tests that need TLS, ICU or JIT name the oldest,
    /// whose programs have them.
    pub fn any() -> Self {
        match is_newest_alone() {
            true => Self::V18,
            false => Self::V15,
        }
    }

    /// All supported versions.
    pub const PROMISED: [Self; 4] = [Self::V15, Self::V16, Self::V17, Self::V18];

    /// The name in the ledger of what ran.
    pub fn name(self) -> &'static str {
        match self {
            Self::V15 => "pg15",
            Self::V16 => "pg16",
            Self::V17 => "pg17",
            Self::V18 => "pg18",
        }
    }

    /// The version that runs instead of this one: itself, unless `POSTHASTE_PG_INSTEAD` names
    /// another.
    pub fn played_by(self) -> anyhow::Result<Self> {
        match std::env::var(INSTEAD_VARIABLE) {
            Ok(names) => self.replacement(&names),
            Err(_) => Ok(self),
        }
    }

    fn replacement(self, names: &str) -> anyhow::Result<Self> {
        let named: Vec<Option<Self>> = names
            .split_whitespace()
            .map(|name| Self::PROMISED.into_iter().find(|v| v.number() == name))
            .collect();
        let (Self::V15 | Self::V18, [Some(oldest), Some(newest)]) = (self, &*named) else {
            bail!(
                "{INSTEAD_VARIABLE} stands for the oldest and the newest and names two of 15 to \
                 18, not {names:?}"
            );
        };
        Ok(if self == Self::V15 { *oldest } else { *newest })
    }

    fn number(self) -> &'static str {
        &self.name()[2..]
    }

    /// The folder of its programs: that of `POSTHASTE_PG15_BIN` and so on, else the system's, else
    /// the one that `scripts/setup.sh` installs.
    pub fn bin(self) -> anyhow::Result<PathBuf> {
        let account = Account::for_servers()?;
        let number = self.number();
        let variable = format!("POSTHASTE_PG{number}_BIN");
        let banner = format!("(PostgreSQL) {number}.");
        let candidates = match std::env::var_os(&variable) {
            Some(folder) => vec![PathBuf::from(folder)],
            None => vec![
                format!("/usr/lib/postgresql/{number}/bin").into(),
                Path::new(env!("CARGO_MANIFEST_DIR"))
                    .join(format!("../../.tools/pg{number}/pgbin")),
            ],
        };
        // Links are resolved here, under our account: the servers' account may not be able to
        // access them.
        let found = candidates
            .iter()
            .filter_map(|folder| folder.canonicalize().ok())
            .find(|folder| runs(account, folder, &banner));
        match found {
            Some(folder) => Ok(folder),
            None => bail!(
                "no programs of {} that the servers' account can run in {candidates:?}: \
                 run scripts/setup.sh {}, or name their folder in {variable}",
                self.name(),
                if Self::ALL.contains(&self) {
                    "test"
                } else {
                    "torture"
                }
            ),
        }
    }

    /// A program of this version, else of the newest, whose client tools support older servers too.
    pub(super) fn tool(self, bin: &Path, name: &str) -> anyhow::Result<PathBuf> {
        let own = bin.join(name);
        Ok(if own.exists() {
            own
        } else {
            Self::V18.bin()?.join(name)
        })
    }
}

impl FromStr for PgVersion {
    type Err = anyhow::Error;

    /// Parses `15` to `18`.
    fn from_str(number: &str) -> anyhow::Result<Self> {
        let mut promised = Self::PROMISED.into_iter();
        let found = promised.find(|version| version.number() == number);
        found.with_context(|| format!("{number:?} is none of 15 to 18"))
    }
}

/// Whether claims that do not depend on the version are tested on the newest version only.
fn is_newest_alone() -> bool {
    std::env::var_os("POSTHASTE_TEST_NEWEST").is_some()
}

fn runs(account: Account, folder: &Path, banner: &str) -> bool {
    account
        .command(folder.join("postgres"))
        .arg("--version")
        .output()
        .is_ok_and(|output| String::from_utf8_lossy(&output.stdout).contains(banner))
}

#[cfg(test)]
mod tests {
    use super::PgVersion;

    #[test]
    fn two_available_versions_replace_the_oldest_and_the_newest() {
        let instead = |version: PgVersion, names| version.replacement(names).ok();
        assert_eq!(instead(PgVersion::V15, "16 17"), Some(PgVersion::V16));
        assert_eq!(instead(PgVersion::V18, "16 17"), Some(PgVersion::V17));
        for names in ["16", "16 19", "14 17", ""] {
            assert_eq!(instead(PgVersion::V15, names), None, "{names}");
        }
    }
}
