//! Words that were ours alone are retired: the field's word, or plain English, stands in their
//! place, in code as in documents.

use super::{code, files, read, root, shown};

/// What is retired, and what is written instead.
const RETIRED: [(&str, &str); 33] = [
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
    ("lent", "pooled"),
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
    ("tame", "escape"),
    ("unburnt", "without_attempt"),
    ("unsure", "ambiguous"),
    ("upkeep", "maintenance"),
    ("weakness", "unsafe setting"),
    ("weaknesses", "unsafe settings"),
    ("whereabouts", "identity"),
];

/// Words that are being retired, with what is written instead, and how often each stands in a crate
/// at most: a count may only fall. [`CRATES`] has the order.
const RETIRING: [(&str, &str, [usize; 8]); 11] = [
    ("behind", "after", [28, 19, 26, 12, 24, 4, 22, 0]),
    ("kept", "cached", [142, 24, 62, 17, 7, 29, 0, 0]),
    ("look", "poll, check or read", [30, 0, 0, 0, 4, 0, 1, 0]),
    (
        "looked",
        "polled, checked or read",
        [29, 1, 4, 0, 1, 2, 8, 0],
    ),
    ("looks", "polls, checks or reads", [6, 5, 0, 6, 0, 0, 0, 0]),
    ("meant", "intended, or suggestion", [6, 2, 0, 0, 2, 0, 0, 0]),
    ("road", "path", [0, 0, 0, 0, 0, 0, 0, 0]),
    (
        "said",
        "configured, reported or answered",
        [14, 10, 0, 0, 0, 0, 0, 0],
    ),
    (
        "told",
        "configured, notified or reported",
        [6, 1, 1, 0, 0, 6, 2, 0],
    ),
    ("way", "path, or method", [97, 5, 0, 6, 0, 12, 3, 0]),
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
fn counts_of_retiring_words_never_increase() {
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

/// Crates whose tests are named by plain claims: the subject first, then what it does.
const CLAIMING: [&str; 9] = [
    "posthaste",
    "posthaste-capture",
    "posthaste-cli",
    "posthaste-console",
    "posthaste-elastic",
    "posthaste-observe",
    "posthaste-relay",
    "posthaste-sync",
    "posthaste-tantivy",
];
/// Words with which no claim begins.
const NO_SUBJECTS: [&str; 8] = [
    "it", "its", "nobody", "nothing", "what", "which", "who", "whoever",
];
/// Words that a plain claim does without.
const NO_CLAIMS: [&str; 6] = ["somebody", "told", "vain", "whatever", "whichever", "whom"];

#[test]
fn test_names_are_plain_claims() {
    let (mut found, mut seen) = (String::new(), 0);
    for krate in CLAIMING {
        let parts = ["src", "tests"].map(|part| format!("crates/{krate}/{part}"));
        for file in parts.iter().flat_map(|part| files(part, &["rs"])) {
            for name in test_names(&read(&file)) {
                seen += 1;
                let mut words = name.split('_');
                if words
                    .next()
                    .is_some_and(|first| NO_SUBJECTS.contains(&first))
                    || words.any(|word| NO_CLAIMS.contains(&word))
                {
                    found.push_str(&format!("{}: {name}\n", shown(&file)));
                }
            }
        }
    }
    assert!(seen > 1_000, "tests are elsewhere");
    assert!(
        found.is_empty(),
        "name the subject and what it does:\n{found}"
    );
}

/// The names of the functions after `#[test]` and `#[tokio::test]`.
fn test_names(text: &str) -> Vec<String> {
    let mut is_test = false;
    let names = text.lines().map(str::trim).filter_map(|line| {
        is_test |= line.starts_with("#[test]") || line.starts_with("#[tokio::test");
        let (_, name) = line.split_once("fn ").filter(|_| is_test)?;
        is_test = false;
        Some(name.split(['(', '<']).next()?.to_owned())
    });
    names.collect()
}

#[test]
fn test_names_are_found() {
    let text = "#[test]\nfn a() {}\nfn b() {}\n#[tokio::test(x)]\n#[ignore]\nasync fn c() {}";
    assert_eq!(test_names(text), ["a", "c"]);
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
