//! The rules of the house that a reader of files can hold: where SQL may stand, what deciding modules may know, what documents may claim.

pub mod documents;

use std::fs;
use std::path::{Path, PathBuf};

use posthaste_testkit::PgVersion;

use crate::support;

/// Words that begin a statement, as no sentence of ours does.
const SQL: [&str; 12] = [
    "SELECT ",
    "INSERT INTO",
    "UPDATE ",
    "DELETE FROM",
    "TRUNCATE",
    "WITH ",
    "LOCK TABLE",
    "COPY ",
    "BEGIN",
    "COMMIT",
    "LISTEN ",
    "NOTIFY ",
];

/// What a module that decides must not know: anything that answers differently when asked twice.
const OUTSIDE: [&str; 14] = [
    "tokio",
    "deadpool",
    "crate::store",
    "crate::engine",
    "std::fs",
    "std::io",
    "std::net",
    "std::env",
    "std::thread",
    "fastrand",
    "tracing",
    "Instant",
    "SystemTime",
    "Timestamp::now",
];

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn every_statement_of_the_store_is_used_and_prepares_on_every_version() {
    let sources = sources("crates/posthaste/src", &["rs"]);
    let code: String = sources.iter().map(|file| read(file)).collect();
    let statements = files("crates/posthaste/src/store", &["sql"]);
    assert!(
        statements.len() > 20,
        "statements are elsewhere: {statements:?}"
    );
    for version in PgVersion::ALL {
        let database = support::database(version).await;
        let client = database.client().await.unwrap();
        for file in &statements {
            let name = file.file_stem().unwrap().to_str().unwrap();
            let quoted = [format!("\"{name}.sql\""), format!("\"store/{name}.sql\"")];
            // `duty!` makes the file's name from the function's.
            let is_used = quoted.iter().any(|text| code.contains(text))
                || code.contains("duty!(") && code.contains(&format!("\n    {name}("));
            assert!(is_used, "nobody uses {}", file.display());
            if let Err(error) = client.prepare(&read(file)).await {
                panic!("{} on {version:?}: {error:?}", file.display());
            }
        }
    }
}

#[test]
fn only_the_store_speaks_sql() {
    let store = root().join("crates/posthaste/src/store");
    let found = lines_with(
        sources("crates/posthaste/src", &["rs"])
            .into_iter()
            .filter(|file| !file.starts_with(&store)),
        |line| SQL.iter().any(|word| line.contains(&format!("\"{word}"))),
    );
    assert!(
        found.is_empty(),
        "move these statements to .sql files in src/store:\n{found}"
    );
}

#[test]
fn the_store_splices_nothing_into_its_statements() {
    // The ledger of migrations is a constant; everything else goes by $1.
    let found = lines_with(
        sources("crates/posthaste/src", &["rs"]).into_iter(),
        |line| {
            line.contains("format!")
                && SQL.iter().any(|word| line.contains(word))
                && !line.contains("{LEDGER}")
        },
    );
    assert!(found.is_empty(), "names are data:\n{found}");
}

#[test]
fn deciding_modules_know_no_io_and_no_clock() {
    let mut deciding = sources("crates/posthaste/src/job", &["rs"]);
    deciding.extend(
        [
            "job.rs",
            "retry.rs",
            "sync/decide.rs",
            "work/suspect/patience.rs",
        ]
        .map(|name| root().join("crates/posthaste/src").join(name)),
    );
    deciding.extend(
        [
            "disagreement.rs",
            "document.rs",
            "execution.rs",
            "published.rs",
            "request.rs",
            "state.rs",
            "step.rs",
            "transaction.rs",
        ]
        .map(|name| {
            root()
                .join("crates/posthaste-elastic/src/two_phase")
                .join(name)
        }),
    );
    assert!(
        deciding.len() >= 4,
        "deciding modules have moved: {deciding:?}"
    );
    let found = lines_with(deciding.into_iter(), |line| {
        OUTSIDE.iter().any(|word| line.contains(word))
    });
    assert!(
        found.is_empty(),
        "these modules decide; pass what they need as arguments:\n{found}"
    );
}

#[test]
fn the_library_reads_no_environment_and_installs_no_logger() {
    let words = [
        "std::env",
        "env::var",
        "option_env!",
        "tracing_subscriber",
        "install_default",
        "process::exit",
    ];
    let found = lines_with(
        sources("crates/posthaste/src", &["rs"]).into_iter(),
        |line| words.iter().any(|word| line.contains(word)),
    );
    assert!(
        found.is_empty(),
        "that is the program's to decide:\n{found}"
    );
}

#[test]
fn every_use_of_unsafe_code_is_forbidden() {
    let manifest = read(&root().join("Cargo.toml"));
    assert!(manifest.contains("unsafe_code = \"forbid\""));
    for file in files("crates", &["toml"]) {
        let text = read(&file);
        assert!(
            text.contains("[lints]\nworkspace = true"),
            "{} leaves the lints out",
            file.display()
        );
    }
}

#[test]
fn a_file_beyond_400_lines_says_why_on_its_first() {
    let mut all = files("crates", &["rs", "sql", "sh", "py"]);
    all.extend(files("scripts", &["sh", "py"]));
    let long: Vec<String> = all
        .iter()
        .map(|file| (file, read(file)))
        .filter(|(_, text)| text.lines().count() > 400)
        .filter(|(_, text)| {
            !text
                .lines()
                .next()
                .is_some_and(|first| first.to_lowercase().contains("because"))
        })
        .map(|(file, text)| format!("{}: {} lines", shown(file), text.lines().count()))
        .collect();
    assert!(
        long.is_empty(),
        "split them, or say \"… because …\" on line one:\n{}",
        long.join("\n")
    );
}

#[test]
fn each_migration_begins_with_a_comment_and_is_applied() {
    let printed = posthaste::migrations_sql();
    let steps = files("crates/posthaste/migrations", &["sql"]);
    assert!(!steps.is_empty());
    for file in steps {
        let text = read(&file);
        assert!(
            text.starts_with("-- "),
            "{} does not say what it is",
            file.display()
        );
        assert!(
            printed.contains(&text),
            "{} is never applied",
            file.display()
        );
    }
}

#[test]
fn no_file_mentions_a_task_left_undone() {
    let words = [
        "TODO",
        "FIXME",
        "XXX",
        "To be written",
        "todo!(",
        "unimplemented!(",
    ];
    let this = root().join("crates/posthaste/tests/tidy.rs");
    let all = files("crates", &["rs", "sql"])
        .into_iter()
        .filter(|file| *file != this);
    let found: Vec<String> = all
        .filter(|file| words.iter().any(|word| read(file).contains(word)))
        .map(|file| shown(&file))
        .collect();
    assert!(
        found.is_empty(),
        "do it or write it into an issue: {found:?}"
    );
}

/// The workspace.
fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR"))
        .join("../..")
        .canonicalize()
        .unwrap()
}

fn read(file: &Path) -> String {
    fs::read_to_string(file).unwrap_or_else(|error| panic!("{}: {error}", file.display()))
}

fn shown(file: &Path) -> String {
    file.strip_prefix(root())
        .unwrap_or(file)
        .display()
        .to_string()
}

/// Files below a folder of the workspace whose names end so, in the order of their names.
fn files(folder: &str, extensions: &[&str]) -> Vec<PathBuf> {
    let mut found = Vec::new();
    collect(&root().join(folder), &mut found);
    found.retain(|file| {
        file.extension()
            .is_some_and(|end| extensions.iter().any(|one| end == *one))
    });
    found.sort();
    found
}

/// As [`files`]; there must be some.
fn sources(folder: &str, extensions: &[&str]) -> Vec<PathBuf> {
    let found = files(folder, extensions);
    assert!(!found.is_empty(), "nothing in {folder}");
    found
}

/// Folders that no author writes into.
const MADE: [&str; 5] = ["target", ".git", ".posthaste", ".tools", "node_modules"];

fn collect(folder: &Path, found: &mut Vec<PathBuf>) {
    let Ok(entries) = fs::read_dir(folder) else {
        return;
    };
    for entry in entries.flatten() {
        let path = entry.path();
        if !path.is_dir() {
            found.push(path);
        } else if !MADE.iter().any(|name| path.ends_with(name)) {
            collect(&path, found);
        }
    }
}

/// Lines of code (comments left out) for which something holds, as `file:line: text`.
fn lines_with(files: impl Iterator<Item = PathBuf>, holds: impl Fn(&str) -> bool) -> String {
    let mut found = String::new();
    for file in files {
        for (at, line) in read(&file).lines().enumerate() {
            if !line.trim_start().starts_with("//") && holds(line) {
                found.push_str(&format!("{}:{}: {}\n", shown(&file), at + 1, line.trim()));
            }
        }
    }
    found
}
