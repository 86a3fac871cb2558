//! The job `file.digest`: reads one file and writes its size and SHA-256 beside its path.

use std::fs::File;
use std::io::{self, Read as _};
use std::os::unix::ffi::OsStringExt as _;
use std::os::unix::fs::OpenOptionsExt as _;
use std::path::{Path, PathBuf};

use rustix::fs::OFlags;
use rustix::io::Errno;
use sha2::{Digest as _, Sha256};

/// The result for a file.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum DigestResult {
    Digest {
        size: i64,
        sha256: [u8; 32],
    },
    /// A property of the file that a retry does not change.
    Problem(&'static str),
}

/// Reads `path`. An error may be temporary, so the job is retried.
pub(crate) fn digest_path(path: &Path) -> io::Result<DigestResult> {
    match digest_file(path) {
        Err(error) => permanent_error(&error)
            .map(DigestResult::Problem)
            .ok_or(error),
        found => found,
    }
}

/// Converts the listed path, which may have any bytes.
pub(crate) fn path_from_bytes(bytes: Vec<u8>) -> PathBuf {
    PathBuf::from(std::ffi::OsString::from_vec(bytes))
}

fn digest_file(path: &Path) -> io::Result<DigestResult> {
    // A pipe may have replaced the file since it was listed, and opening a pipe blocks without end.
    let flags = OFlags::NONBLOCK | OFlags::NOFOLLOW | OFlags::NOCTTY;
    let mut file = File::options()
        .read(true)
        .custom_flags(flags.bits().cast_signed())
        .open(path)?;
    if !file.metadata()?.is_file() {
        return Ok(DigestResult::Problem(NO_REGULAR_FILE));
    }
    let mut hasher = Sha256::new();
    let mut buffer = vec![0; 128 << 10];
    let mut size = 0;
    loop {
        match file.read(&mut buffer) {
            Ok(0) => break,
            Ok(n) => {
                hasher.update(&buffer[..n]);
                size += n as i64;
            }
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            Err(error) => return Err(error),
        }
    }
    Ok(DigestResult::Digest {
        size,
        sha256: hasher.finalize().into(),
    })
}

const NO_REGULAR_FILE: &str = "no longer a regular file";

fn permanent_error(error: &io::Error) -> Option<&'static str> {
    match error.kind() {
        io::ErrorKind::NotFound | io::ErrorKind::NotADirectory => Some("vanished"),
        io::ErrorKind::PermissionDenied => Some("permission denied"),
        _ => match Errno::from_io_error(error) {
            Some(Errno::LOOP | Errno::NXIO | Errno::ISDIR) => Some(NO_REGULAR_FILE),
            _ => None,
        },
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_empty_file_has_the_sha256_of_empty_input() -> io::Result<()> {
        let path = std::env::temp_dir().join(format!("posthaste-empty-{}", std::process::id()));
        File::create(&path)?;
        let found = digest_path(&path)?;
        std::fs::remove_file(&path)?;
        let DigestResult::Digest { size: 0, sha256 } = found else {
            return Err(io::Error::other(format!("{found:?}")));
        };
        assert_eq!(sha256[..4], [0xe3, 0xb0, 0xc4, 0x42]);
        assert_eq!(digest_path(&path)?, DigestResult::Problem("vanished"));
        Ok(())
    }

    #[test]
    fn non_regular_files_are_recorded_without_failing() -> io::Result<()> {
        assert_eq!(
            digest_path(Path::new("/dev/null"))?,
            DigestResult::Problem(NO_REGULAR_FILE)
        );
        assert_eq!(
            digest_path(&std::env::temp_dir())?,
            DigestResult::Problem(NO_REGULAR_FILE)
        );
        Ok(())
    }
}
