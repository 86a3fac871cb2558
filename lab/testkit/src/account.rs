//! The account that servers run under: Postgres refuses to run as root.

use std::ffi::OsStr;
use std::fs;
use std::os::unix::process::CommandExt;
use std::path::Path;
use std::process::{Command, Stdio};

use anyhow::Context;

use crate::child;

/// The account that runs the servers.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Account {
    /// The account that runs the tests.
    Ourselves,
    /// An unprivileged user, because the tests run as root.
    Other { uid: u32, gid: u32 },
}

impl Account {
    /// Returns our own account, or the user `postgres` (else `nobody`) if we are root.
    pub(crate) fn for_servers() -> anyhow::Result<Self> {
        if !rustix::process::geteuid().is_root() {
            return Ok(Self::Ourselves);
        }
        let users = fs::read_to_string("/etc/passwd").context("reading /etc/passwd")?;
        ["postgres", "nobody"]
            .iter()
            .find_map(|name| find_user(&users, name))
            .context("Postgres refuses root, and there is no user postgres or nobody to run it as")
    }

    /// Creates a command that runs as this account, in a separate process group and without our
    /// `PG*` environment.
    ///
    /// With a separate group, Ctrl-C in a terminal does not stop servers before the tests that use
    /// them.
    pub(crate) fn command(self, program: impl AsRef<OsStr>) -> Command {
        let mut command = child::command(program);
        command
            .current_dir("/")
            .process_group(0)
            .stdin(Stdio::null());
        for (name, _) in std::env::vars_os() {
            if name.as_encoded_bytes().starts_with(b"PG") {
                command.env_remove(name);
            }
        }
        if let Self::Other { uid, gid } = self {
            command.uid(uid).gid(gid);
        }
        command
    }

    /// Makes this account the owner of a folder.
    pub(crate) fn make_owner_of(self, folder: &Path) -> std::io::Result<()> {
        match self {
            Self::Ourselves => Ok(()),
            Self::Other { uid, gid } => std::os::unix::fs::chown(folder, Some(uid), Some(gid)),
        }
    }

    /// Returns whether this account can write to a folder. A home folder of mode 0700 above it
    /// makes it inaccessible.
    pub(crate) fn can_write(self, folder: &Path) -> bool {
        self.command("test")
            .arg("-w")
            .arg(folder)
            .stderr(Stdio::null())
            .status()
            .is_ok_and(|status| status.success())
    }
}

/// Finds a user in the lines of a passwd file.
fn find_user(users: &str, name: &str) -> Option<Account> {
    let fields: Vec<&str> = users
        .lines()
        .map(|line| line.split(':').collect::<Vec<_>>())
        .find(|f| f.first() == Some(&name))?;
    Some(Account::Other {
        uid: fields.get(2)?.parse().ok()?,
        gid: fields.get(3)?.parse().ok()?,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn users_are_found_by_their_full_name() {
        let users = "postgresql:x:7:8::/:/bin/sh\npostgres:x:101:104::/:/bin/sh\n";
        assert!(matches!(
            find_user(users, "postgres"),
            Some(Account::Other { uid: 101, gid: 104 })
        ));
        assert!(find_user(users, "nobody").is_none());
    }
}
