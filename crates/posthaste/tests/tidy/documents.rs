//! Documents are held to what exists: files, commands, tests, statements and examples.

use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

use posthaste_testkit::{Child, PgVersion};

use super::{collect, read, root, shown};
use crate::support;

/// Where a name in a document may be meant to begin.
const STARTS: [&str; 4] = ["", "crates/posthaste", "crates/posthaste/src", "crates"];
/// Endings by which a name in a document is taken for a file.
const ENDINGS: [&str; 8] = [".rs", ".sql", ".md", ".toml", ".sh", ".py", ".json", ".yml"];

#[test]
fn the_readme_shows_the_example_that_runs() {
    let example = read(&root().join("crates/posthaste/examples/welcome.rs"));
    let shows = "// README shows what follows.\n";
    let body = example
        .split_once(shows)
        .expect("set-up, then what is shown")
        .1;
    let readme = read(&root().join("README.md"));
    let shown = blocks(&readme, "rust");
    assert_eq!(shown.len(), 1, "one block of Rust in README");
    assert_eq!(
        shown[0], body,
        "README shows examples/welcome.rs without its set-up"
    );
    let lines = body.lines().filter(|line| !line.is_empty()).count();
    assert!(lines <= 25, "about twenty lines of code, not {lines}");
}

#[test]
fn documents_name_only_files_that_exist() {
    let mut all = Vec::new();
    collect(&root(), &mut all);
    let all: Vec<String> = all.iter().map(|file| shown(file)).collect();
    let mut missing = Vec::new();
    for document in documents() {
        let text = read(&document);
        let folder = document.parent().unwrap();
        for link in links(&text) {
            if !link.contains("://") && !link.starts_with('#') {
                let file = folder.join(link.split('#').next().unwrap());
                if !file.exists() {
                    missing.push(format!("{}: ({link})", shown(&document)));
                }
            }
        }
        for name in ticked(&text).filter(|name| is_file_name(name)) {
            let name = name.trim_end_matches('/');
            let is_there = STARTS
                .iter()
                .any(|start| root().join(start).join(name).exists())
                || all.iter().any(|file| file.ends_with(&format!("/{name}")));
            if !is_there {
                missing.push(format!("{}: `{name}`", shown(&document)));
            }
        }
    }
    assert!(
        missing.is_empty(),
        "documents name what is not there:\n{}",
        missing.join("\n")
    );
}

#[test]
fn documents_cite_only_tests_that_exist() {
    let mut cited = 0;
    let mut missing = Vec::new();
    for document in documents() {
        let text = read(&document);
        for name in ticked(&text) {
            let Some((file, test)) = cited_test(name) else {
                continue;
            };
            cited += 1;
            if !has_test(&file, test) {
                missing.push(format!("{}: `{name}`", shown(&document)));
            }
        }
    }
    assert!(
        missing.is_empty(),
        "documents cite tests that are not there:\n{}",
        missing.join("\n")
    );
    assert!(cited > 20, "the guarantees cite their tests, found {cited}");
}

#[test]
fn documents_name_only_commands_that_exist() {
    let makefile = read(&root().join("Makefile"));
    let mut missing = Vec::new();
    for document in documents() {
        let text = read(&document);
        for target in ticked(&text).filter_map(|name| name.strip_prefix("make ")) {
            let target = target.split_whitespace().next().unwrap_or_default();
            if !makefile
                .lines()
                .any(|line| line.starts_with(&format!("{target}:")))
            {
                missing.push(format!("{}: `make {target}`", shown(&document)));
            }
        }
    }
    assert!(
        missing.is_empty(),
        "documents name targets that are not there:\n{}",
        missing.join("\n")
    );
}

#[test]
fn each_decision_has_its_number_and_its_parts() {
    let mut decisions = super::files("docs/decisions", &["md"]);
    decisions.sort();
    assert!(!decisions.is_empty());
    for (at, file) in decisions.iter().enumerate() {
        let (name, text) = (file.file_name().unwrap().to_string_lossy(), read(file));
        let number = format!("{:04}", at + 1);
        assert!(
            name.starts_with(&format!("{number}-")),
            "{name} is not the next number {number}"
        );
        for part in ["## Context", "## Decision", "## Consequences"] {
            assert!(text.contains(part), "{name} lacks {part}");
        }
        assert!(text.lines().count() <= 70, "{name} is longer than a page");
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_statements_in_the_documents_run() {
    let database = support::database(PgVersion::V15).await;
    let client = database.client().await.unwrap();
    let given = "CREATE ROLE app; CREATE TABLE annotation (id bigserial, body text)";
    client.batch_execute(given).await.unwrap();
    let mut run = 0;
    for document in documents() {
        for block in blocks(&read(&document), "sql") {
            if let Err(error) = client.batch_execute(&block).await {
                panic!("{}: {error:?}\n{block}", shown(&document));
            }
            run += 1;
        }
    }
    assert!(run > 5, "the documents show statements, found {run}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_examples_run() {
    let within = Duration::from_secs(60);
    let database = support::database(PgVersion::V15).await;

    let mut welcome = Child::spawn(example("welcome").env("DATABASE_URL", database.url())).unwrap();
    welcome.line("welcome, Ada", within).await.unwrap();
    welcome.terminate().unwrap();
    assert!(welcome.exit(within).await.unwrap().success());

    let mut coins =
        Child::spawn(example("complete_in").env("DATABASE_URL", database.url())).unwrap();
    coins.line("100 jobs, 100 coins", within).await.unwrap();
    assert!(coins.exit(within).await.unwrap().success());

    let mut audit = Child::spawn(example("consumer").env("DATABASE_URL", database.url())).unwrap();
    audit.line("1000 jobs, 1000 entries", within).await.unwrap();
    assert!(audit.exit(within).await.unwrap().success());
}

/// The program of an example. `cargo test` builds them beside the tests; a run of this binary alone leaves old ones.
pub fn example(name: &str) -> Command {
    let tests = std::env::current_exe().unwrap();
    let program = tests
        .ancestors()
        .nth(2)
        .unwrap()
        .join("examples")
        .join(name);
    if !is_up_to_date(&program) {
        let mut cargo = Command::new(env!("CARGO"));
        cargo.args(["build", "--quiet", "--package", "posthaste"]);
        cargo.args(["--examples", "--all-features"]);
        if !cfg!(debug_assertions) {
            cargo.arg("--release");
        }
        let built = cargo.current_dir(root()).status().unwrap();
        assert!(built.success(), "the examples do not build");
    }
    Command::new(program)
}

fn is_up_to_date(program: &Path) -> bool {
    let changed = |file: &Path| file.metadata().and_then(|file| file.modified()).ok();
    let mut made_from = super::files("crates/posthaste/src", &["rs", "sql"]);
    made_from.extend(super::files("crates/posthaste/migrations", &["sql"]));
    made_from.extend(super::files("crates/posthaste/examples", &["rs"]));
    changed(program).is_some_and(|made| made_from.iter().all(|file| changed(file) < Some(made)))
}

/// README and its like, and everything below docs but the pages that the bench generates.
fn documents() -> Vec<PathBuf> {
    let mut found: Vec<PathBuf> = ["README.md", "CHANGELOG.md", "CONTRIBUTING.md"]
        .map(|name| root().join(name))
        .into();
    found.extend(
        super::files("docs", &["md"])
            .into_iter()
            .filter(|file| !file.ends_with("benchmarks.md")),
    );
    found
}

/// Fenced blocks of a language.
fn blocks(text: &str, language: &str) -> Vec<String> {
    let fence = format!("```{language}\n");
    text.split(&fence)
        .skip(1)
        .filter_map(|rest| rest.split("```").next())
        .map(str::to_owned)
        .collect()
}

/// Text between single back-ticks, outside of fenced blocks.
fn ticked(text: &str) -> impl Iterator<Item = &str> {
    let prose = text.split("```").step_by(2);
    prose
        .flat_map(|part| part.lines())
        .flat_map(|line| line.split('`').skip(1).step_by(2))
}

fn links(text: &str) -> impl Iterator<Item = &str> {
    text.split("](")
        .skip(1)
        .filter_map(|rest| rest.split(')').next())
}

fn is_file_name(name: &str) -> bool {
    let plain = name
        .chars()
        .all(|c| c.is_ascii_alphanumeric() || "._-/".contains(c));
    let is_folder = [
        "crates/",
        "docs/",
        "scripts/",
        "src/",
        "tests/",
        "examples/",
        "migrations/",
    ]
    .iter()
    .any(|start| name.starts_with(start));
    plain
        && !name.starts_with(['/', '.'])
        && (is_folder
            || ENDINGS
                .iter()
                .any(|end| name.ends_with(end) && name != *end))
}

/// `crash::a_test` is of this crate's tests, `crash::undone::a_test` of a file below; `cli::`, `elastic::`, `testkit::` and `torture::` in front name the other crates.
fn cited_test(name: &str) -> Option<(PathBuf, &str)> {
    let mut parts: Vec<&str> = name.split("::").collect();
    let plain = |part: &&str| {
        let mut letters = part.chars();
        !part.is_empty() && letters.all(|c| matches!(c, 'a'..='z' | '0'..='9' | '_'))
    };
    if parts.len() < 2 || !parts.iter().all(plain) || ["posthaste", "std"].contains(&parts[0]) {
        return None;
    }
    let package = match parts[0] {
        "cli" => "crates/posthaste-cli",
        "elastic" => "crates/posthaste-elastic",
        "testkit" => "crates/posthaste-testkit",
        "torture" => "crates/posthaste-torture",
        _ => "crates/posthaste",
    };
    if package != "crates/posthaste" {
        parts.remove(0);
    }
    let test = parts.pop()?;
    let module = format!("{package}/tests/{}.rs", parts.join("/"));
    Some((root().join(module), test))
}

/// A function of that name, or one that the macro `on_both!` makes.
fn has_test(file: &Path, test: &str) -> bool {
    file.exists() && {
        let text = read(file);
        let made = [format!(" {test},"), format!(" {test};")];
        text.contains(&format!("fn {test}("))
            || text.contains("on_both!") && made.iter().any(|one| text.contains(one))
    }
}
