//! Rules of the source tree: where SQL may be, what deciding modules use, what documents claim.

mod circles;
mod columns;
pub mod documents;
mod guards;
mod layers;
mod logs;
mod pictures;
mod runbooks;
mod web;
mod words;

use std::fs;
use std::path::{Path, PathBuf};

use posthaste_testkit::{PgVersion, mutations};

use crate::support;

/// Words that begin a statement, and no sentence in this tree.
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

/// The crates that programs depend on, and that share these rules.
const LIBRARIES: [&str; 7] = [
    "crates/posthaste",
    "crates/posthaste-capture",
    "crates/posthaste-relay",
    "crates/posthaste-console",
    "crates/posthaste-observe",
    "crates/posthaste-sync",
    "crates/posthaste-tantivy",
];

/// What a module that decides must not use: anything whose answer changes between two calls.
const OUTSIDE: [&str; 15] = [
    "tokio",
    "deadpool",
    "crate::store",
    "crate::engine",
    "crate::parts",
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
async fn every_store_statement_is_used_and_prepares_on_every_version() {
    let code: String = library_sources().map(|file| read(&file)).collect();
    let statements = statements();
    assert!(statements.len() > 60, "statements are elsewhere");
    for (name, _) in &statements {
        let quoted = [format!("\"{name}\""), format!("\"store/{name}\"")];
        let is_used = !name.ends_with(".sql") || quoted.iter().any(|text| code.contains(text));
        assert!(is_used, "nobody uses {name}");
    }
    for version in PgVersion::tried() {
        let database = support::database(version).await;
        let client = database.client().await.unwrap();
        for (name, statement) in &statements {
            if let Err(error) = client.prepare(statement).await {
                panic!("{name} on {version:?}: {error:?}");
            }
        }
    }
}

/// Returns the statements of the libraries' stores: files with their names, and one-line
/// statements, which are in the code, without names.
pub fn statements() -> Vec<(String, String)> {
    let stores = LIBRARIES.map(|library| format!("{library}/src/store"));
    let written = stores.iter().flat_map(|store| files(store, &["sql"]));
    let mut all: Vec<(String, String)> = written
        .map(|file| {
            let name = file.file_name().unwrap().to_string_lossy().into_owned();
            (name, read(&file))
        })
        .collect();
    let sources = stores.iter().flat_map(|store| files(store, &["rs"]));
    for line in sources.flat_map(|file| lines_of_code(&file)) {
        let begins = |part: &&str| SQL.iter().any(|word| part.starts_with(word));
        // Strings of Rust are between every other pair of quotes; one that continues on the next
        // line is not a statement of one line.
        let parts: Vec<&str> = line.split('"').collect();
        let closed = parts.len().saturating_sub(1) / 2;
        let strings = parts.iter().copied().skip(1).step_by(2).take(closed);
        all.extend(
            strings
                .filter(begins)
                .filter(|one| one.contains("posthaste"))
                .map(|one| (one.to_owned(), one.to_owned())),
        );
    }
    all
}

fn lines_of_code(file: &Path) -> Vec<String> {
    let text = read(file);
    let code = text.split("#[cfg(test)]").next().unwrap_or_default();
    let is_code = |line: &&str| !line.trim_start().starts_with("//");
    code.lines().filter(is_code).map(str::to_owned).collect()
}

#[test]
fn only_the_store_contains_sql() {
    let stores = LIBRARIES.map(|library| root().join(library).join("src/store"));
    let found = lines_with(
        library_sources().filter(|file| !stores.iter().any(|store| file.starts_with(store))),
        |line| SQL.iter().any(|word| line.contains(&format!("\"{word}"))),
    );
    assert!(
        found.is_empty(),
        "move these statements to src/store:\n{found}"
    );
}

#[test]
fn the_store_never_interpolates_into_sql() {
    // The ledger of migrations is a constant; everything else is passed as $1.
    let found = lines_with(library_sources(), |line| {
        line.contains("format!")
            && SQL.iter().any(|word| line.contains(word))
            && !line.contains("{LEDGER_DDL}")
    });
    assert!(found.is_empty(), "names are data:\n{found}");
}

#[test]
fn deciding_modules_use_no_io_and_no_clock() {
    let mut deciding = sources("crates/posthaste/src/job", &["rs"]);
    deciding.extend(
        ["job.rs", "retry.rs", "claim/quarantine/pauses.rs"]
            .map(|name| root().join("crates/posthaste/src").join(name)),
    );
    deciding.push(root().join("crates/posthaste-sync/src/decide.rs"));
    deciding.extend(sources("crates/posthaste-observe/src/findings", &["rs"]));
    deciding.extend(
        [
            "facts.rs",
            "finding.rs",
            "findings.rs",
            "format.rs",
            "holders.rs",
            "snapshot.rs",
            "sums.rs",
        ]
        .map(|name| root().join("crates/posthaste-observe/src").join(name)),
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
    let found = lines_with(library_sources(), |line| {
        words.iter().any(|word| line.contains(word))
    });
    assert!(
        found.is_empty(),
        "that is the program's to decide:\n{found}"
    );
}

#[test]
fn all_crates_forbid_unsafe_code() {
    let manifest = read(&root().join("Cargo.toml"));
    assert!(manifest.contains("unsafe_code = \"forbid\""));
    let all = code(&["toml"]);
    for file in all.iter().filter(|file| file.ends_with("Cargo.toml")) {
        let text = read(file);
        assert!(
            text.contains("[lints]\nworkspace = true"),
            "{} leaves the lints out",
            file.display()
        );
    }
}

#[test]
fn files_above_400_lines_give_a_reason() {
    let mut all = code(&["rs", "sql", "sh", "py"]);
    all.extend(files("scripts", &["sh", "py"]));
    let long: Vec<String> = all
        .iter()
        // Mutations of SQL are no part of the schema.
        .map(|file| (file, mutations::apply(&read(file), &[]).unwrap()))
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

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn each_schema_file_states_its_purpose_and_is_installed() {
    let database = support::database(PgVersion::any()).await;
    let client = database.client().await.unwrap();
    let listed = read(&root().join("crates/posthaste/src/store/schema.rs"));
    let functions = files("crates/posthaste/sql/functions", &["sql"]);
    let mut all = files("crates/posthaste/sql/schema", &["sql"]);
    assert!(!all.is_empty() && functions.len() > 20);
    all.extend(functions.clone());
    for file in all {
        let text = read(&file);
        assert!(
            text.starts_with("-- "),
            "{} does not say what it is",
            file.display()
        );
        let name = shown(&file).replace("crates/posthaste/", "../../");
        assert!(
            listed.contains(&format!("include_str!(\"{name}\")")),
            "{name} is never applied"
        );
        // As it is in the file, without repetition.
        if functions.contains(&file)
            && let Err(error) = client.batch_execute(&text).await
        {
            panic!("{name} cannot be pasted into psql: {error:?}");
        }
    }
}

#[test]
fn the_expanded_schema_matches_the_installed_one() {
    let expanded = read(&root().join("crates/posthaste/sql/expanded.sql"));
    assert!(
        expanded == posthaste::migrations_sql(),
        "make it again: cargo run -p posthaste-cli -- migrate --print > \
         crates/posthaste/sql/expanded.sql"
    );
}

#[test]
fn no_file_mentions_unfinished_tasks() {
    let words = [
        "TODO",
        "FIXME",
        "XXX",
        "To be written",
        "todo!(",
        "unimplemented!(",
    ];
    let this = root().join("crates/posthaste/tests/tidy.rs");
    let all = code(&["rs", "sql"])
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

/// Returns the root of the workspace.
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

/// Returns the files of all crates with these extensions.
pub fn code(extensions: &[&str]) -> Vec<PathBuf> {
    let mut all = files("crates", extensions);
    all.extend(files("lab", extensions));
    all
}

/// Returns the files below a folder of the workspace with these extensions, sorted by name.
pub fn files(folder: &str, extensions: &[&str]) -> Vec<PathBuf> {
    let mut found = Vec::new();
    collect(&root().join(folder), &mut found);
    found.retain(|file| {
        file.extension()
            .is_some_and(|end| extensions.iter().any(|one| end == *one))
    });
    found.sort();
    found
}

/// Returns the code of the libraries.
fn library_sources() -> impl Iterator<Item = PathBuf> {
    let folders = LIBRARIES.iter().map(|library| format!("{library}/src"));
    folders.flat_map(|folder| sources(&folder, &["rs"]))
}

/// As [`files`]; fails if there are none.
fn sources(folder: &str, extensions: &[&str]) -> Vec<PathBuf> {
    let found = files(folder, extensions);
    assert!(!found.is_empty(), "nothing in {folder}");
    found
}

/// Folders of generated files.
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

/// Returns the lines of code (without comments) that satisfy the predicate, as `file:line: text`.
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
