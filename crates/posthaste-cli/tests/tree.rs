//! Folders of files with unusual names.

use std::ffi::OsStr;
use std::fs;
use std::os::unix::ffi::OsStrExt as _;
use std::os::unix::fs::{PermissionsExt as _, symlink};
use std::path::{Path, PathBuf};

/// Names that caused errors in programs.
const ODD: [&[u8]; 10] = [
    b"new\nline",
    b"not utf-8 \xff\xfe",
    b"two  spaces ",
    b"back\\slash",
    b"quote'and\"quote",
    b"-n",
    b"--help",
    b"\xe2\x98\x83 snow",
    b"*?[a-z]$HOME`",
    b"\t\r\x7f",
];

/// Makes `folder` with `files` regular files below it, some with unusual names, and with links and
/// a pipe that must not be followed or opened.
pub(crate) fn make(folder: &Path, files: usize) -> anyhow::Result<()> {
    fs::create_dir(folder)?;
    for (n, name) in ODD.iter().enumerate() {
        fs::write(
            folder.join(OsStr::from_bytes(name)),
            vec![b'x'; n * n * 1_000],
        )?;
    }
    for n in ODD.len()..files {
        let below = folder
            .join(format!("folder {}", n % 13))
            .join(OsStr::from_bytes(b"deeper\n\xf0"));
        fs::create_dir_all(&below)?;
        let content = format!("file {n}\n").repeat(n % 50);
        fs::write(below.join(format!("{n}")), content)?;
    }
    symlink(folder.join("-n"), folder.join("link to a file"))?;
    symlink("/etc", folder.join("link to a folder"))?;
    symlink("nowhere", folder.join("dangling link"))?;
    rustix::fs::mkfifoat(rustix::fs::CWD, folder.join("pipe"), rustix::fs::Mode::RUSR)?;
    Ok(())
}

/// A file that only root can read.
pub(crate) fn close_one(folder: &Path) -> anyhow::Result<PathBuf> {
    let path = folder.join("closed");
    fs::write(&path, "not for you")?;
    fs::set_permissions(&path, fs::Permissions::from_mode(0o000))?;
    Ok(path)
}
