//! A row enters a segment by `posthaste.enter_ready()` or `posthaste.enter_scheduled()`. Statements
//! that run for each job contain a copy of the first one, because a call costs a snapshot.

use super::{files, read, root};

/// The beginning of a copy of the guard.
const GUARD: &str = "pg_try_advisory_xact_lock_shared(1885893473, c.g::integer)";
/// The functions by which every other row enters.
const ENTRIES: [&str; 3] = ["enter_ready()", "enter_scheduled()", "turn_end_rows("];
/// It holds the exclusive lock of the overflow, whose slots no enqueuer enters.
const EXCEPT: &str = "FUNCTION posthaste.move_to_overflow(";

/// Returns the SQL that may write rows, with one blank between words.
fn sources() -> Vec<(String, String)> {
    let folders = ["sql/functions", "sql/schema", "src/store"];
    let files = folders.map(|folder| files(&format!("crates/posthaste/{folder}"), &["sql"]));
    files
        .into_iter()
        .flatten()
        .map(|file| {
            let name = file.strip_prefix(root()).unwrap().display().to_string();
            let text = read(&file);
            let lines = text
                .lines()
                .filter(|line| !line.trim_start().starts_with("--"));
            let words: Vec<&str> = lines.flat_map(str::split_whitespace).collect();
            (name, words.join(" "))
        })
        .collect()
}

#[test]
fn all_copies_of_the_guard_are_identical() {
    let mut guards = Vec::new();
    for (name, text) in sources() {
        for (at, _) in text.match_indices(GUARD) {
            let (guard, _) = text[at..]
                .split_once("<= c.g")
                .expect("an end of the guard");
            // Both forms evaluate the cursor only after the lock.
            guards.push((name.clone(), guard.replace(" THEN ", " AND ")));
        }
    }
    let places: Vec<&str> = guards.iter().map(|(name, _)| &**name).collect();
    assert_eq!(places.len(), 3, "the guard is spelled out in {places:?}");
    for (name, guard) in &guards {
        assert_eq!(guard, &guards[0].1, "{name} has another guard");
    }
    let current = "FROM (SELECT pg_sequence_last_value('posthaste.ready_current'::regclass) AS g";
    for (name, text) in sources().iter().filter(|(_, text)| text.contains(GUARD)) {
        assert!(text.contains(current), "{name} enters another segment");
    }
}

#[test]
fn every_insert_is_guarded() {
    let mut writers = 0;
    for (name, text) in sources() {
        // Functions end with their own quote, statements and rules with a semicolon or the end of
        // the file.
        let parts = text
            .split("$f$;")
            .flat_map(|part| part.split("CREATE OR REPLACE "));
        let writing = parts.filter(|part| part.contains("INSERT INTO posthaste.store "));
        for part in writing.filter(|part| !part.contains(EXCEPT)) {
            writers += 1;
            let is_guarded =
                ENTRIES.iter().any(|entry| part.contains(entry)) || part.contains(GUARD);
            let head: String = part.chars().take(80).collect();
            assert!(
                is_guarded,
                "{name}: this writes rows past the guard: {head}"
            );
        }
    }
    assert!(writers >= 12, "only {writers} statements write rows");
}
