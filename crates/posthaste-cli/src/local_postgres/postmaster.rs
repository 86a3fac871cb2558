//! Reads `postmaster.pid`, and checks whether its server is running.

use std::fs;
use std::path::{Path, PathBuf};

use rustix::process::{Pid, Signal};

/// The server process of a data directory.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Postmaster {
    pub(crate) pid: i32,
    pub(crate) port: u16,
}

/// The state that `postmaster.pid` shows.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum PostmasterState {
    /// There is no file: no server runs.
    Absent,
    /// The file is a remainder: no server of this data directory runs.
    Stale,
    /// A process that runs in this data directory.
    Running(Postmaster),
    /// A server that has not written its port yet.
    Starting,
}

/// Reads the file in `data`.
pub(crate) fn read_pid_file(data: &Path) -> PostmasterState {
    let Ok(text) = fs::read_to_string(data.join("postmaster.pid")) else {
        return PostmasterState::Absent;
    };
    let mut lines = text.lines();
    let Some(pid) = lines.next().and_then(|line| line.trim().parse().ok()) else {
        return PostmasterState::Starting;
    };
    if !is_server_of(pid, data) {
        return PostmasterState::Stale;
    }
    let named = lines.next().map(PathBuf::from);
    let port = lines.nth(1).and_then(|line| line.trim().parse().ok());
    match (named, port) {
        (Some(named), Some(port)) if same_folder(&named, data) => {
            PostmasterState::Running(Postmaster { pid, port })
        }
        (_, None) => PostmasterState::Starting,
        _ => PostmasterState::Stale,
    }
}

/// Sends the server a signal: `fast` rolls open transactions back; without it the server ends as in
/// a crash, which recovery repairs at the next start.
pub(crate) fn signal_shutdown(pid: i32, fast: bool) {
    let signal = if fast { Signal::INT } else { Signal::QUIT };
    if let Some(pid) = Pid::from_raw(pid) {
        // The process may have ended just before.
        let _ = rustix::process::kill_process(pid, signal);
    }
}

/// Whether a process is a server of `data`. After a reboot another program may have the process id.
/// A server's working directory is its data directory; without /proc any running process is
/// accepted, and the connection that follows an adoption proves it.
fn is_server_of(pid: i32, data: &Path) -> bool {
    let Some(id) = Pid::from_raw(pid) else {
        return false;
    };
    if let Ok(cwd) = fs::read_link(format!("/proc/{pid}/cwd")) {
        return same_folder(&cwd, data);
    }
    !Path::new("/proc/self").exists() && rustix::process::test_kill_process(id).is_ok()
}

fn same_folder(one: &Path, other: &Path) -> bool {
    match (fs::canonicalize(one), fs::canonicalize(other)) {
        (Ok(one), Ok(other)) => one == other,
        _ => false,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn folder(name: &str, content: &str) -> std::io::Result<PathBuf> {
        let folder = std::env::temp_dir().join(format!("{name}-{}", std::process::id()));
        fs::create_dir_all(&folder)?;
        fs::write(folder.join("postmaster.pid"), content)?;
        Ok(folder)
    }

    #[test]
    fn pid_files_of_other_programs_are_stale() -> std::io::Result<()> {
        let own = std::process::id();
        let data = folder("stranger", &format!("{own}\n/elsewhere\n0\n5432\n"))?;
        assert_eq!(read_pid_file(&data), PostmasterState::Stale);
        fs::remove_dir_all(data)
    }

    #[test]
    fn a_missing_pid_file_means_stopped() {
        assert_eq!(
            read_pid_file(Path::new("/nonexistent")),
            PostmasterState::Absent
        );
    }
}
