//! The folder of the private Postgres and the user that it runs as.
//!
//! Postgres refuses to run as root, and the user that it runs as instead may not be able to reach
//! the current directory (a home folder of mode 0700). The folder is chosen by trying to access it
//! as that user; permission bits are not read.

use std::fs::{self, File};
use std::io::{self, Write as _};
use std::os::unix::ffi::OsStrExt as _;
use std::os::unix::fs::{MetadataExt as _, OpenOptionsExt as _, PermissionsExt as _};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use anyhow::{Context as _, anyhow, bail};
use sha2::{Digest as _, Sha256};

use super::binaries::Binaries;
use crate::failure;

/// The folder in the current directory.
pub(crate) const FOLDER_NAME: &str = ".posthaste";

/// The folder that is used if the unprivileged user cannot reach the current directory.
const STATE_FOLDER: &str = "/var/lib/posthaste";

/// The user of the server's processes, if it is not the current user.
#[derive(Clone, Copy, Debug)]
pub(crate) struct ServerUser {
    pub(crate) uid: u32,
    pub(crate) gid: u32,
}

/// The folder of one private Postgres.
#[derive(Clone, Debug)]
pub(crate) struct Home {
    pub(crate) folder: PathBuf,
    /// `None`: the current user.
    pub(crate) user: Option<ServerUser>,
}

impl Home {
    /// Returns the home of the current directory without making it.
    pub(crate) fn in_current_directory() -> anyhow::Result<Self> {
        let here = std::env::current_dir().context("the current directory no longer exists")?;
        let beside = here.join(FOLDER_NAME);
        if !rustix::process::geteuid().is_root() {
            return Ok(Self {
                folder: beside,
                user: None,
            });
        }
        let user = owner_of(&beside.join("data")).map_or_else(unprivileged_user, Ok)?;
        let folder = if can_access(&here, user)? {
            beside
        } else {
            let hash = Sha256::digest(here.as_os_str().as_bytes());
            let name: String = hash
                .iter()
                .take(8)
                .map(|byte| format!("{byte:02x}"))
                .collect();
            Path::new(STATE_FOLDER).join(name)
        };
        let user = owner_of(&folder.join("data")).unwrap_or(user);
        Ok(Self {
            folder,
            user: Some(user),
        })
    }

    pub(crate) fn exists(&self) -> bool {
        self.data().join("PG_VERSION").exists()
    }

    pub(crate) fn data(&self) -> PathBuf {
        self.folder.join("data")
    }

    pub(crate) fn log(&self) -> PathBuf {
        self.folder.join("log")
    }

    /// Returns the major version that made the data directory.
    pub(crate) fn made_by(&self) -> Option<u32> {
        let text = fs::read_to_string(self.data().join("PG_VERSION")).ok()?;
        text.trim().parse().ok()
    }

    /// Makes the folder. Other users may enter it, since the server's user must reach its data;
    /// files with secrets have mode 0600.
    pub(crate) fn make(&self) -> anyhow::Result<()> {
        let made = fs::create_dir_all(&self.folder).and_then(|()| match self.user {
            Some(_) => fs::set_permissions(&self.folder, fs::Permissions::from_mode(0o755)),
            None => Ok(()),
        });
        made.map_err(|error| self.not_writable_error(&error))
    }

    /// Returns the error for a folder that cannot be written.
    pub(crate) fn not_writable_error(&self, error: &io::Error) -> anyhow::Error {
        let (folder, reason) = (self.folder.display(), failure::io_error_text(error));
        anyhow!(
            "cannot write {folder}: {reason}. Run posthaste in a writable folder, or set \
             DATABASE_URL."
        )
    }

    /// Writes a file atomically, readable by the current user only.
    pub(crate) fn write(&self, name: &str, content: &[u8]) -> io::Result<()> {
        let draft = self.folder.join(format!("{name}.new"));
        let mut file = File::options()
            .write(true)
            .create(true)
            .truncate(true)
            .mode(0o600)
            .open(&draft)?;
        file.write_all(content)?;
        file.sync_all()?;
        fs::rename(draft, self.folder.join(name))
    }

    pub(crate) fn read(&self, name: &str) -> Option<String> {
        let text = fs::read_to_string(self.folder.join(name)).ok()?;
        Some(text.trim().to_owned())
    }

    /// Returns a command that runs a program of the server as the server's user in a separate
    /// process group: a Ctrl-C of the terminal must reach this process alone, or Postgres would
    /// stop before jobs are released.
    pub(crate) fn command(&self, program: &Path) -> Command {
        use std::os::unix::process::CommandExt as _;
        let mut command = Command::new(program);
        if let Some(user) = self.user {
            command.uid(user.uid).gid(user.gid);
        }
        for (name, _) in std::env::vars_os() {
            if name.as_bytes().starts_with(b"PG") {
                command.env_remove(name);
            }
        }
        command
            .env("LC_ALL", "C")
            .process_group(0)
            .current_dir("/")
            .stdin(Stdio::null());
        command
    }

    /// Fails if the server's user cannot run these programs, before they make anything.
    pub(crate) fn check_runs(&self, binaries: &Binaries) -> anyhow::Result<()> {
        let status = self
            .command(&binaries.program("postgres"))
            .arg("--version")
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .status();
        match status {
            Ok(status) if status.success() => Ok(()),
            _ => bail!(
                "the user that Postgres runs as (uid {}) cannot run {}. Make it readable for that \
                 user (chmod -R a+rX), or set --pg-bin to another directory.",
                self.user.map_or(0, |user| user.uid),
                binaries.program("postgres").display()
            ),
        }
    }
}

/// Returns the owner of `path`, `None` if that is root or the path does not exist.
fn owner_of(path: &Path) -> Option<ServerUser> {
    let metadata = fs::metadata(path).ok()?;
    (metadata.uid() != 0).then(|| ServerUser {
        uid: metadata.uid(),
        gid: metadata.gid(),
    })
}

fn unprivileged_user() -> anyhow::Result<ServerUser> {
    let users = fs::read_to_string("/etc/passwd").context("cannot read /etc/passwd")?;
    ["postgres", "nobody"]
        .iter()
        .find_map(|name| user_named(&users, name))
        .context(
            "Postgres refuses to run as root, and this system has neither a user postgres nor \
             nobody. Run posthaste as an ordinary user, or set DATABASE_URL",
        )
}

fn user_named(users: &str, name: &str) -> Option<ServerUser> {
    users.lines().find_map(|line| {
        let mut fields = line.split(':');
        if fields.next()? != name {
            return None;
        }
        let uid = fields.nth(1)?.parse().ok()?;
        let gid = fields.next()?.parse().ok()?;
        (uid != 0).then_some(ServerUser { uid, gid })
    })
}

/// Whether `user` can enter `folder`, by starting a process there.
fn can_access(folder: &Path, user: ServerUser) -> anyhow::Result<bool> {
    use std::os::unix::process::CommandExt as _;
    let status = Command::new("/bin/sh")
        .args(["-c", "exit 0"])
        .uid(user.uid)
        .gid(user.gid)
        .current_dir(folder)
        .stdin(Stdio::null())
        .status();
    match status {
        Ok(status) => Ok(status.success()),
        Err(error) if error.kind() == io::ErrorKind::PermissionDenied => Ok(false),
        Err(error) => Err(error).with_context(|| {
            let folder = folder.display();
            format!("cannot check whether user {} can enter {folder}", user.uid)
        }),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn server_users_come_from_passwd_and_are_never_root() {
        let users = "root:x:0:0::/:/bin/sh\nnobody:x:65534:65533::/:/bin/false\ntoor:x:0:0::/:\n";
        let nobody = user_named(users, "nobody").map(|user| (user.uid, user.gid));
        assert_eq!(nobody, Some((65534, 65533)));
        assert!(user_named(users, "toor").is_none());
        assert!(user_named(users, "postgres").is_none());
    }
}
