//! Words that were ours alone are retired: the field's word, or plain English, stands in their
//! place, in code as in documents.

use super::{code, files, read, root, shown};

/// What is retired, and what is written instead.
const RETIRED: [(&str, &str); 31] = [
    ("bell", "notifier"),
    ("bells", "notifications"),
    ("buried", "dead-lettered"),
    ("burns", "counts as an attempt"),
    ("burnt", "counted"),
    ("bury", "dead-letter"),
    ("claimable", "available"),
    ("crawls", "waits for a look"),
    ("deaf", "does not listen"),
    ("ear", "listener"),
    ("fate", "outcome"),
    ("generation", "segment"),
    ("generations", "segments"),
    ("hearts", "liveness"),
    ("incarnation", "epoch"),
    ("notnow", "Backpressure"),
    ("parked", "scheduled"),
    ("recognise", "check_identity"),
    ("rung", "notified"),
    ("stirring", "queues_with_work"),
    ("suspect", "quarantined"),
    ("suspects", "quarantined jobs"),
    ("tallied", "stats"),
    ("tallies", "stats"),
    ("tally", "stats"),
    ("unburnt", "without_attempt"),
    ("unsure", "ambiguous"),
    ("upkeep", "maintenance"),
    ("weakness", "unsafe setting"),
    ("weaknesses", "unsafe settings"),
    ("whereabouts", "identity"),
];

/// Names that libraries gave.
const OF_LIBRARIES: [&str; 1] = ["run_upkeep"];

#[test]
fn retired_words_are_gone() {
    let this = root().join("crates/posthaste/tests/tidy/words.rs");
    let mut all = code(&["rs", "sql", "toml"]);
    all.extend(files(
        "examples",
        &["sql", "py", "rb", "go", "js", "mjs", "ts", "toml"],
    ));
    all.extend(files("scripts", &["sh", "py"]));
    // The figures of older versions stand in their reports as they were.
    let figures = root().join("docs/why/benchmarks.md");
    all.extend(
        files("docs", &["md", "svg"])
            .into_iter()
            .filter(|file| *file != figures),
    );
    all.extend(
        ["README.md", "CHANGELOG.md", "CONTRIBUTING.md", "Makefile"].map(|name| root().join(name)),
    );
    assert!(all.len() > 500, "files are elsewhere");
    let mut found = String::new();
    for file in all.into_iter().filter(|file| *file != this) {
        for (at, line) in read(&file).lines().enumerate() {
            for (word, instead) in retired(line) {
                let place = format!("{}:{}", shown(&file), at + 1);
                found.push_str(&format!(
                    "{place}: {word}, now {instead}: {}\n",
                    line.trim()
                ));
            }
        }
    }
    assert!(found.is_empty(), "these words are retired:\n{found}");
}

/// The retired words of a line, whole or as parts of names.
fn retired(line: &str) -> impl Iterator<Item = &'static (&'static str, &'static str)> {
    let is_theirs = OF_LIBRARIES.iter().any(|name| line.contains(name));
    let ours = if is_theirs { "" } else { line };
    let words = ours.split(|one: char| !one.is_alphabetic());
    words.filter_map(|word| {
        let is_it = |retired: &str| retired.eq_ignore_ascii_case(word);
        RETIRED.iter().find(|(retired, _)| is_it(retired))
    })
}

#[test]
fn a_retired_word_is_found_in_names_and_sentences() {
    for line in [
        "It is Parked.",
        "posthaste.parked_6",
        "fn bury_next()",
        "Answer::NotNow",
    ] {
        assert_eq!(retired(line).count(), 1, "{line}");
    }
    assert_eq!(retired("nearly a yearly rebellion").count(), 0);
}
