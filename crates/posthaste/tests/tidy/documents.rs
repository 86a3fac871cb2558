//! Documents are checked against what exists: files, commands, tests, statements and examples.

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};
use std::process::{Command, Output};
use std::time::Duration;

use posthaste_testkit::{Child, PgVersion};

use super::{LIBRARIES, collect, read, root, shown};
use crate::examples::example;
use crate::support;

/// The folders that a name in a document may be relative to.
const STARTS: [&str; 6] = [
    "",
    "crates/posthaste",
    "crates/posthaste/src",
    "crates/posthaste-relay",
    "crates/posthaste-relay/src",
    "crates",
];
/// Extensions by which a name in a document is recognized as a file.
const ENDINGS: [&str; 8] = [".rs", ".sql", ".md", ".toml", ".sh", ".py", ".json", ".yml"];

#[test]
fn the_readme_quotes_the_tested_example() {
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
fn rust_blocks_match_the_file_they_name() {
    let trimmed = |text: &str| {
        let lines: Vec<&str> = text.lines().map(str::trim).collect();
        lines.join("\n")
    };
    let mut blocks = 0;
    for document in documents() {
        let text = read(&document);
        for part in text.split("<!-- from: ").skip(1) {
            let (file, rest) = part.split_once(" -->\n```rust\n").expect("a block of Rust");
            let (block, _) = rest.split_once("```").expect("its end");
            let whole = trimmed(&read(&root().join(file)));
            let name = shown(&document);
            assert!(
                whole.contains(trimmed(block).trim()),
                "{name}: {file} has no\n{block}"
            );
            blocks += 1;
        }
    }
    assert!(blocks > 5, "{blocks} blocks");
}

/// A guide links each example of its kind; a fenced block after the link must be a part of it.
#[test]
fn guides_quote_examples_verbatim() {
    let guides = [
        ("drivers", "enqueue"),
        ("recipes", "delay"),
        ("relay", "receive"),
    ];
    let mut all = Vec::new();
    collect(&root().join("examples"), &mut all);
    let mut shown_blocks = 0;
    for (guide, program) in guides {
        let text = read(&root().join(format!("docs/guides/{guide}.md")));
        let is_of_kind = |file: &Path| file.file_stem().is_some_and(|stem| stem == program);
        let mut linked = BTreeSet::new();
        for part in text.split("(../../").skip(1) {
            let (file, rest) = part.split_once(')').expect("the end of a link");
            if !file.starts_with("examples/") || !is_of_kind(Path::new(file)) {
                continue;
            }
            linked.insert(file.to_owned());
            let Some(rest) = rest.strip_prefix("\n\n```") else {
                continue;
            };
            let (_, rest) = rest.split_once('\n').expect("a block");
            let (block, _) = rest.split_once("\n```").expect("its end");
            let whole = read(&root().join(file));
            assert!(whole.contains(block), "{guide}: {file} has no\n{block}");
            shown_blocks += 1;
        }
        let of_kind = all.iter().filter(|file| is_of_kind(file));
        let examples: BTreeSet<String> = of_kind.map(|file| shown(file)).collect();
        assert_eq!(linked, examples, "{guide} links each example");
    }
    assert!(
        shown_blocks > 5,
        "guides show examples, found {shown_blocks}"
    );
}

#[test]
fn documents_name_only_files_that_exist() {
    let mut all = Vec::new();
    collect(&root(), &mut all);
    let all: Vec<String> = all.iter().map(|file| shown(file)).collect();
    let mut missing = Vec::new();
    for document in documents() {
        let text = read(&document);
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
fn links_resolve_and_all_pages_are_in_the_summary() {
    let checked = script("links.sh");
    let stderr = String::from_utf8_lossy(&checked.stderr);
    assert!(checked.status.success(), "scripts/links.sh:\n{stderr}");
}

#[test]
fn documents_cite_only_tests_that_exist() {
    let mut cited = 0;
    let mut missing = Vec::new();
    for document in documents() {
        let text = read(&document);
        let ticked = ticked(&text).filter_map(|name| Some((name, cited_test(name)?)));
        // After "held by" only tests may follow.
        let held = held_by(&text);
        let held = held
            .iter()
            .map(|name| (name.as_str(), cited_test(name).unwrap_or_default()));
        for (name, (file, test)) in ticked.chain(held) {
            cited += 1;
            if !has_test(&file, test) {
                missing.push(format!("{}: {name}", shown(&document)));
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
fn the_evidence_page_is_up_to_date() {
    let made = script("evidence.sh");
    assert!(made.status.success(), "scripts/evidence.sh");
    assert!(
        made.stdout == read(&root().join("docs/evidence.md")).as_bytes(),
        "make it again: scripts/evidence.sh > docs/evidence.md"
    );
}

#[test]
fn every_stored_result_is_cited_by_a_page() {
    let mut results = super::files("docs/benchmarks", &["json"]);
    results.extend(super::files("docs/reports", &["json"]));
    assert!(results.len() > 2, "results are elsewhere: {results:?}");
    let pages = [
        "docs/why/benchmarks.md",
        "docs/why/mvcc.md",
        "docs/why/testing.md",
    ];
    let pages: String = pages.map(|page| read(&root().join(page))).concat();
    results.retain(|file| {
        let name = file.file_name().unwrap().to_string_lossy();
        !name.starts_with("quick-") && !pages.contains(&format!("/{name})"))
    });
    assert!(
        results.is_empty(),
        "newer results have replaced these; remove them, or cite them: {results:?}"
    );
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
fn decisions_are_numbered_reasoned_and_short() {
    let text = read(&root().join("docs/why/decisions.md"));
    let decisions: Vec<&str> = text.split("\n## ").skip(1).collect();
    assert!(decisions.len() >= 28, "found {}", decisions.len());
    for (at, decision) in decisions.iter().enumerate() {
        let title = decision.lines().next().unwrap();
        let number = at + 1;
        assert!(
            title.starts_with(&format!("{number}. ")),
            "{title} is not number {number}"
        );
        for part in ["**Decided", "**Why"] {
            let is_said =
                decision.contains(part) || part == "**Why" && decision.contains("**Rejected");
            assert!(is_said, "{title} lacks {part}");
        }
        let words = decision.split_whitespace().count();
        assert!(words <= 130, "{title} has {words} words");
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_statements_in_the_documents_run() {
    let database = support::database(PgVersion::any()).await;
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
    let database = support::database(PgVersion::any()).await;

    let mut welcome = Child::spawn(example("welcome").env("DATABASE_URL", database.url())).unwrap();
    welcome.line("welcome, Ada", within).await.unwrap();
    welcome.terminate().unwrap();
    assert!(welcome.exit(within).await.unwrap().success());

    let mut coins =
        Child::spawn(example("complete_in").env("DATABASE_URL", database.url())).unwrap();
    coins.line("100 jobs, 100 coins", within).await.unwrap();
    assert!(coins.exit(within).await.unwrap().success());

    let mut audit = Child::spawn(example("claims").env("DATABASE_URL", database.url())).unwrap();
    audit.line("1000 jobs, 1000 entries", within).await.unwrap();
    assert!(audit.exit(within).await.unwrap().success());
}

/// Returns README and similar files, and all pages below docs that the bench does not generate.
fn documents() -> Vec<PathBuf> {
    let mut found: Vec<PathBuf> = ["README.md", "CHANGELOG.md", "CONTRIBUTING.md"]
        .map(|name| root().join(name))
        .into();
    found.extend(
        super::files("docs", &["md"])
            .into_iter()
            .filter(|file| !file.ends_with("why/benchmarks.md")),
    );
    found
}

/// Returns the fenced blocks of a language.
fn blocks(text: &str, language: &str) -> Vec<String> {
    let fence = format!("```{language}\n");
    text.split(&fence)
        .skip(1)
        .filter_map(|rest| rest.split("```").next())
        .map(str::to_owned)
        .collect()
}

/// Runs a script of the workspace.
fn script(name: &str) -> Output {
    let script = root().join("scripts").join(name);
    Command::new("bash").arg(script).output().unwrap()
}

/// Returns the tests in comments `<!-- held by: … -->`. A long name may be broken after `::`.
fn held_by(text: &str) -> Vec<String> {
    let comments = text.split("<!-- held by:").skip(1);
    let names = comments.filter_map(|rest| rest.split("-->").next());
    names
        .flat_map(|names| {
            let words: Vec<&str> = names.split_whitespace().collect();
            let whole = words.join(" ").replace(":: ", "::");
            let names = whole.split(' ').filter(|name| !name.is_empty());
            names.map(str::to_owned).collect::<Vec<_>>()
        })
        .collect()
}

/// Returns the text between single back-ticks, outside of fenced blocks.
fn ticked(text: &str) -> impl Iterator<Item = &str> {
    let prose = text.split("```").step_by(2);
    prose
        .flat_map(|part| part.lines())
        .flat_map(|line| line.split('`').skip(1).step_by(2))
}

fn is_file_name(name: &str) -> bool {
    let plain = name
        .chars()
        .all(|c| c.is_ascii_alphanumeric() || "._-/".contains(c));
    let is_folder = [
        "crates/",
        "lab/",
        "docs/",
        "scripts/",
        "src/",
        "tests/",
        "examples/",
        "sql/",
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

/// Resolves a cited test. `crash::a_test` is one of the library's tests, `crash::undone::a_test` is
/// in a file below; a prefix `cli::`, `elastic::`, `testkit::` or `torture::` names another crate.
fn cited_test(name: &str) -> Option<(PathBuf, &str)> {
    let mut parts: Vec<&str> = name.split("::").collect();
    let plain = |part: &&str| {
        let mut letters = part.chars();
        !part.is_empty() && letters.all(|c| matches!(c, 'a'..='z' | '0'..='9' | '_'))
    };
    if parts.len() < 2
        || !parts.iter().all(plain)
        || parts[0].starts_with("posthaste")
        || parts[0] == "std"
    {
        return None;
    }
    let package = match parts[0] {
        "cli" => "crates/posthaste-cli",
        "elastic" => "crates/posthaste-elastic",
        "testkit" => "lab/testkit",
        "torture" => "lab/torture",
        _ => "",
    };
    if !package.is_empty() {
        parts.remove(0);
    }
    let test = parts.pop()?;
    let module = |package: &str| root().join(format!("{package}/tests/{}.rs", parts.join("/")));
    let mut libraries = LIBRARIES.iter().map(|library| module(library));
    let file = match package {
        "" => libraries.find(|file| has_test(file, test)),
        package => Some(module(package)),
    };
    Some((file.unwrap_or_else(|| module(LIBRARIES[0])), test))
}

fn has_test(file: &Path, test: &str) -> bool {
    file.exists() && {
        let text = read(file);
        let made = [format!(" {test},"), format!(" {test};")];
        text.contains(&format!("fn {test}("))
            || text.contains("on_both!") && made.iter().any(|one| text.contains(one))
    }
}
