//! A separate clock for a server, which a test sets: libfaketime, loaded into the server.

use std::path::{Path, PathBuf};
use std::process::Command;
use std::{env, fs};

use anyhow::{Context, bail};

/// Names the library if it is not in Debian's place.
const LIBRARY_VARIABLE: &str = "POSTHASTE_FAKETIME";

#[derive(Debug)]
pub(super) struct Clock {
    library: PathBuf,
    file: PathBuf,
}

impl Clock {
    /// Creates a clock that shows the machine's time. Its file is in this folder.
    pub(super) fn new(folder: &Path) -> anyhow::Result<Self> {
        let clock = Self {
            library: find_library()?,
            file: folder.join("clock"),
        };
        clock.set_offset(0)?;
        Ok(clock)
    }

    /// Sets the clock this many seconds ahead of the machine's, or back if negative. Each process
    /// of the server reads the file whenever it reads the time.
    pub(super) fn set_offset(&self, seconds: i64) -> anyhow::Result<()> {
        let next = self.file.with_extension("next");
        fs::write(&next, format!("{seconds:+}\n")).context("a clock")?;
        // A rename, so that no process reads half a time.
        fs::rename(&next, &self.file).context("a clock")
    }

    /// Makes a program and its children use this clock. Clocks that measure durations are not
    /// changed.
    pub(super) fn apply_to(&self, command: &mut Command) {
        command
            .env("LD_PRELOAD", &self.library)
            .env("FAKETIME_TIMESTAMP_FILE", &self.file)
            .env("FAKETIME_NO_CACHE", "1")
            .env("FAKETIME_DONT_FAKE_MONOTONIC", "1");
    }
}

impl Drop for Clock {
    /// The library leaves shared memory for each server that did not end by itself.
    fn drop(&mut self) {
        let Ok(left) = fs::read_dir("/dev/shm") else {
            return;
        };
        for file in left.flatten() {
            let name = file.file_name();
            let Some(process) = name.to_str().and_then(process_of) else {
                continue;
            };
            if !Path::new("/proc").join(process).exists() {
                let _ = fs::remove_file(file.path());
            }
        }
    }
}

/// The process ID in the name of the library's shared memory.
fn process_of(name: &str) -> Option<&str> {
    let number = name
        .strip_prefix("faketime_shm_")
        .or_else(|| name.strip_prefix("sem.faketime_sem_"))?;
    (!number.is_empty() && number.bytes().all(|byte| byte.is_ascii_digit())).then_some(number)
}

fn find_library() -> anyhow::Result<PathBuf> {
    if let Some(named) = env::var_os(LIBRARY_VARIABLE) {
        return Ok(named.into());
    }
    let machine = env::consts::ARCH;
    let places = [
        format!("/usr/lib/{machine}-linux-gnu/faketime/libfaketime.so.1"),
        "/usr/lib/faketime/libfaketime.so.1".into(),
        "/usr/lib64/faketime/libfaketime.so.1".into(),
    ];
    match places.iter().find(|place| Path::new(place).exists()) {
        Some(place) => Ok(place.into()),
        None => bail!(
            "no libfaketime in {places:?}: run scripts/setup.sh test, or name it in \
             {LIBRARY_VARIABLE}"
        ),
    }
}
