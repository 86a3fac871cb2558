//! Finds Postgres installations on this machine.

use std::cmp::Reverse;
use std::ffi::OsString;
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context as _, anyhow, bail};

/// The oldest supported major version of Postgres.
const OLDEST_MAJOR: u32 = 15;

/// Directories of packages with several versions: the parts before and after the version.
const VERSIONED_DIRECTORIES: [(&str, &str, &str); 3] = [
    ("/usr/lib/postgresql", "", "bin"),
    ("/usr", "pgsql-", "bin"),
    ("/opt/homebrew/opt", "postgresql@", "bin"),
];

/// One Postgres installation.
#[derive(Clone, Debug)]
pub(crate) struct Binaries {
    /// The directory that holds `postgres` and `initdb`.
    pub(crate) directory: PathBuf,
    pub(crate) major: u32,
}

impl Binaries {
    pub(crate) fn program(&self, name: &str) -> PathBuf {
        self.directory.join(name)
    }

    /// Finds an installation: `asked` if given, else the first on `PATH`, else the newest package.
    /// An existing data directory needs the major version `made_by`.
    pub(crate) fn find(asked: Option<&Path>, made_by: Option<u32>) -> anyhow::Result<Self> {
        if let Some(directory) = asked {
            return Self::find_in_requested_directory(directory, made_by);
        }
        let found: Vec<Self> = candidate_directories()
            .into_iter()
            .filter_map(|directory| Self::find_in_directory(&directory).ok())
            .collect();
        let suits = |binaries: &&Self| match made_by {
            Some(major) => binaries.major == major,
            None => binaries.major >= OLDEST_MAJOR,
        };
        if let Some(binaries) = found.iter().find(suits) {
            return Ok(binaries.clone());
        }
        match (found.first(), made_by) {
            (_, Some(major)) => bail!(
                "the private database here was created by Postgres {major}, which is not \
                 installed. Install postgresql-{major}, or point --pg-bin at its bin directory."
            ),
            (Some(old), None) => bail!(
                "only Postgres {} was found, and posthaste needs {OLDEST_MAJOR} or newer. \
                 Install it, point --pg-bin at its bin directory, or set DATABASE_URL.",
                old.major
            ),
            (None, None) => bail!(
                "no Postgres found in PATH or below /usr/lib/postgresql. Install it (apt-get \
                 install postgresql), point --pg-bin at its bin directory, or set DATABASE_URL."
            ),
        }
    }

    fn find_in_requested_directory(directory: &Path, made_by: Option<u32>) -> anyhow::Result<Self> {
        let shown = directory.display();
        let binaries = Self::find_in_directory(directory).map_err(|error| {
            anyhow!(
                "--pg-bin {shown} contains no Postgres: {error}. Set it to the bin directory of a \
                 Postgres."
            )
        })?;
        match made_by {
            Some(major) if binaries.major != major => bail!(
                "the private database here was created by Postgres {major}, but --pg-bin {shown} \
                 is Postgres {}. Point it at Postgres {major}.",
                binaries.major
            ),
            None if binaries.major < OLDEST_MAJOR => bail!(
                "--pg-bin {shown} is Postgres {}, but posthaste needs {OLDEST_MAJOR} or newer.",
                binaries.major
            ),
            _ => Ok(binaries),
        }
    }

    fn find_in_directory(directory: &Path) -> anyhow::Result<Self> {
        let directory = std::path::absolute(directory)?;
        let whole = ["postgres", "initdb"]
            .iter()
            .all(|name| directory.join(name).is_file());
        anyhow::ensure!(whole, "postgres and initdb are missing");
        let output = Command::new(directory.join("postgres"))
            .arg("--version")
            .output()
            .context("postgres does not run")?;
        let text = String::from_utf8_lossy(&output.stdout);
        let major = major_of(&text).context("postgres does not report its version")?;
        Ok(Self { directory, major })
    }
}

/// Returns the major version in the output of `postgres --version`.
fn major_of(text: &str) -> Option<u32> {
    let version = text.split_once("(PostgreSQL)")?.1.trim_start();
    let digits = version.split(|c: char| !c.is_ascii_digit()).next()?;
    digits.parse().ok()
}

fn candidate_directories() -> Vec<PathBuf> {
    let path = std::env::var_os("PATH").unwrap_or_default();
    let mut directories: Vec<PathBuf> = std::env::split_paths(&path)
        .filter(|directory| directory.join("postgres").is_file())
        .collect();
    let mut packaged: Vec<(u32, PathBuf)> = VERSIONED_DIRECTORIES
        .iter()
        .flat_map(|(root, prefix, suffix)| versions_below(Path::new(root), prefix, suffix))
        .collect();
    packaged.sort_by_key(|(version, _)| Reverse(*version));
    directories.extend(packaged.into_iter().map(|(_, directory)| directory));
    directories
}

fn versions_below(root: &Path, prefix: &str, suffix: &str) -> Vec<(u32, PathBuf)> {
    let Ok(entries) = std::fs::read_dir(root) else {
        return Vec::new();
    };
    entries
        .filter_map(|entry| {
            let name: OsString = entry.ok()?.file_name();
            let version = name.to_str()?.strip_prefix(prefix)?.parse().ok()?;
            Some((version, root.join(&name).join(suffix)))
        })
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_major_version_is_parsed_from_package_version_strings() {
        let debian = "postgres (PostgreSQL) 15.18 (Debian 15.18-0+deb12u1)\n";
        assert_eq!(major_of(debian), Some(15));
        assert_eq!(major_of("postgres (PostgreSQL) 18beta1\n"), Some(18));
        assert_eq!(major_of("mysqld 8\n"), None);
    }
}
