//! A short version of the torture: `make torture` runs for half an hour, these tests for some
//! seconds on each server.
#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::print_stdout,
    reason = "a test that cannot go on fails, and says what it saw"
)]

mod noticed;
mod resumed;
mod survived;
mod transfers;

use std::path::{Path, PathBuf};

use posthaste_torture::Environment;

/// A folder that is removed with the test, and the program of the workers.
struct Place(PathBuf);

impl Place {
    fn new(name: &str) -> Self {
        let path =
            std::env::temp_dir().join(format!("posthaste-torture-{name}-{}", std::process::id()));
        std::fs::create_dir_all(&path).unwrap();
        Self(path)
    }

    fn environment(&self, name: &str) -> Environment {
        Environment {
            folder: self.0.join(name),
            program: program().to_owned(),
        }
    }
}

fn program() -> &'static Path {
    Path::new(env!("CARGO_BIN_EXE_posthaste-torture"))
}

impl Drop for Place {
    fn drop(&mut self) {
        // Logs of a round with findings are preserved.
        if !std::thread::panicking() {
            let _ = std::fs::remove_dir_all(&self.0);
        }
    }
}
