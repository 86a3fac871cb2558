//! The programs of a crate's examples, for its tests.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::SystemTime;

/// Returns the program of an example. `make test` builds them before the tests; if this binary runs
/// alone, old ones are rebuilt.
pub fn example(name: &str) -> Command {
    let tests = std::env::current_exe().unwrap();
    let program = tests
        .ancestors()
        .nth(2)
        .unwrap()
        .join("examples")
        .join(name);
    if !is_up_to_date(&program) {
        let mut cargo = cargo();
        // As the suite is built: with the features of one package everything would be built anew.
        cargo.args(["build", "--quiet", "--workspace"]);
        cargo.args(["--examples", "--all-features"]);
        if !cfg!(debug_assertions) {
            cargo.arg("--release");
        }
        let folder = env!("CARGO_MANIFEST_DIR");
        let built = cargo.current_dir(folder).status().unwrap();
        assert!(built.success(), "the examples do not build");
    }
    Command::new(program)
}

/// Returns a cargo command as if started by hand: the variables that name the package of a test
/// would cause `ring` and all its dependents to be rebuilt, and again after the test.
pub fn cargo() -> Command {
    let mut cargo = Command::new(env!("CARGO"));
    for (name, _) in std::env::vars_os() {
        let is_of_the_test = ["CARGO_PKG_", "CARGO_MANIFEST_"]
            .iter()
            .any(|of| name.to_string_lossy().starts_with(of));
        if is_of_the_test {
            cargo.env_remove(name);
        }
    }
    cargo
}

fn is_up_to_date(program: &Path) -> bool {
    let crates = Path::new(env!("CARGO_MANIFEST_DIR")).parent().unwrap();
    let mut made_from = Vec::new();
    for one in fs::read_dir(crates).unwrap().flatten() {
        for folder in ["src", "sql"] {
            collect(&one.path().join(folder), &mut made_from);
        }
    }
    collect(
        &crates.join(env!("CARGO_PKG_NAME")).join("examples"),
        &mut made_from,
    );
    changed(program).is_some_and(|made| made_from.iter().all(|file| changed(file) < Some(made)))
}

fn changed(file: &Path) -> Option<SystemTime> {
    file.metadata().and_then(|file| file.modified()).ok()
}

/// Collects the Rust and SQL files below a folder.
fn collect(folder: &Path, found: &mut Vec<PathBuf>) {
    for entry in fs::read_dir(folder).into_iter().flatten().flatten() {
        let path = entry.path();
        if path.is_dir() {
            collect(&path, found);
        } else if path
            .extension()
            .is_some_and(|end| end == "rs" || end == "sql")
        {
            found.push(path);
        }
    }
}
