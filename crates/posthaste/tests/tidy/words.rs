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

/// Words that are being retired, with what is written instead, and how often each stands in a crate
/// at most: a count may only fall. [`CRATES`] has the order.
const RETIRING: [(&str, &str, [usize; 8]); 13] = [
    ("behind", "after", [61, 29, 30, 14, 30, 4, 32, 0]),
    ("kept", "cached", [169, 29, 146, 21, 10, 31, 1, 0]),
    ("lent", "pooled", [0, 0, 0, 0, 0, 0, 0, 0]),
    ("look", "poll, check or read", [72, 4, 0, 0, 4, 4, 1, 0]),
    (
        "looked",
        "polled, checked or read",
        [64, 2, 6, 0, 1, 2, 9, 0],
    ),
    ("looks", "polls, checks or reads", [13, 8, 0, 7, 0, 1, 4, 0]),
    (
        "meant",
        "intended, or suggestion",
        [16, 2, 1, 0, 2, 0, 0, 0],
    ),
    ("road", "path", [7, 0, 0, 0, 0, 0, 0, 0]),
    (
        "said",
        "configured, reported or answered",
        [20, 14, 0, 2, 0, 1, 0, 0],
    ),
    ("tame", "escape", [0, 0, 0, 0, 0, 0, 0, 0]),
    (
        "told",
        "configured, notified or reported",
        [19, 7, 3, 1, 1, 14, 2, 0],
    ),
    ("way", "path, or method", [136, 9, 1, 6, 0, 17, 6, 0]),
    ("whoever", "the one that", [0, 1, 0, 0, 0, 0, 0, 0]),
];
const CRATES: [&str; 8] = [
    "posthaste",
    "posthaste-cli",
    "posthaste-console",
    "posthaste-elastic",
    "posthaste-observe",
    "posthaste-relay",
    "posthaste-sync",
    "posthaste-tantivy",
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

#[test]
fn retiring_words_never_increase() {
    let mut found = String::new();
    for (at, krate) in CRATES.into_iter().enumerate() {
        let mut counts = [0; RETIRING.len()];
        let sources = ["src", "tests"].map(|part| format!("crates/{krate}/{part}"));
        for file in sources.iter().flat_map(|part| files(part, &["rs", "sql"])) {
            if file.ends_with("tidy/words.rs") {
                continue;
            }
            let text = read(&file).to_lowercase();
            for word in text.split(|one: char| !one.is_alphabetic()) {
                if let Some(n) = RETIRING.iter().position(|(retiring, ..)| *retiring == word) {
                    counts[n] += 1;
                }
            }
        }
        for ((word, instead, most), count) in RETIRING.iter().zip(counts) {
            if count > most[at] {
                found.push_str(&format!(
                    "{krate}: {word} {count} times, at most {}; write {instead}\n",
                    most[at]
                ));
            }
        }
    }
    assert!(found.is_empty(), "{found}");
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
fn retired_words_are_detected_in_names_and_sentences() {
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
