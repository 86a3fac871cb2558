//! The texts that create the schema: its steps, and its functions (sql/README.md).

use std::ops::Deref;
use std::sync::{LazyLock, OnceLock};

use super::mutations::without_mutations;
use super::repeat::expand_slots;

/// A sequence of statements.
pub(crate) struct Text {
    text: String,
    statement: OnceLock<String>,
    /// The files of which it was made.
    files: &'static [&'static str],
}

impl Text {
    pub(crate) fn new(text: String) -> Self {
        Self {
            text,
            statement: OnceLock::new(),
            files: &[],
        }
    }

    fn from_files(files: &'static [&'static str]) -> Self {
        Self {
            files,
            ..Self::new(expand_slots(&without_mutations(&files.concat())))
        }
    }

    /// Returns the text with its mutations, for tests.
    pub(crate) fn with_mutations(&self) -> String {
        expand_slots(&self.files.concat())
    }

    /// Returns the text as one statement, because many drivers send only one at a time.
    pub(crate) fn statement(&self) -> &str {
        self.statement.get_or_init(|| {
            let (head, tail) = ("DO $one$ BEGIN EXECUTE $whole$", "\n$whole$; END $one$");
            [head, &self.text, tail].concat()
        })
    }
}

impl Deref for Text {
    type Target = str;

    fn deref(&self) -> &str {
        &self.text
    }
}

/// A step of the schema: numbered, forward only. A released step never changes.
pub(crate) struct Step {
    pub(crate) name: &'static str,
    /// Creates and changes tables, types, sequences and indexes.
    pub(crate) before: Text,
    /// Creates what calls functions: views, rules, triggers and defaults.
    pub(crate) after: Text,
}

impl Step {
    pub(crate) fn number(&self) -> u32 {
        let digits = self.name.split('_').next();
        digits.and_then(|one| one.parse().ok()).unwrap_or(u32::MAX)
    }

    pub(crate) fn checksum(&self) -> String {
        checksum([&*self.before, &*self.after])
    }
}

/// The steps in order.
pub(crate) static STEPS: LazyLock<Vec<Step>> = LazyLock::new(|| {
    vec![Step {
        name: "0001_initial",
        before: Text::from_files(&[include_str!("../../sql/schema/0001_initial.sql")]),
        after: Text::from_files(&[include_str!("../../sql/schema/0001_initial_after.sql")]),
    }]
});

/// All functions, each `CREATE OR REPLACE`. Their order is irrelevant: bodies are not checked while
/// they are installed.
pub(crate) static FUNCTIONS: LazyLock<Text> = LazyLock::new(|| Text::from_files(SCHEMA_FILES));

/// The checksum of [`FUNCTIONS`].
pub(crate) static FUNCTIONS_CHECKSUM: LazyLock<String> = LazyLock::new(|| checksum([&**FUNCTIONS]));

const SCHEMA_FILES: &[&str] = &[
    include_str!("../../sql/functions/cancel.sql"),
    include_str!("../../sql/functions/checks.sql"),
    include_str!("../../sql/functions/claim.sql"),
    include_str!("../../sql/functions/complete.sql"),
    include_str!("../../sql/functions/confirm.sql"),
    include_str!("../../sql/functions/counts.sql"),
    include_str!("../../sql/functions/account.sql"),
    include_str!("../../sql/functions/enqueue.sql"),
    include_str!("../../sql/functions/expire.sql"),
    include_str!("../../sql/functions/find.sql"),
    include_str!("../../sql/functions/history.sql"),
    include_str!("../../sql/functions/lanes.sql"),
    include_str!("../../sql/functions/maintenance.sql"),
    include_str!("../../sql/functions/marks.sql"),
    include_str!("../../sql/functions/marks_scheduled.sql"),
    include_str!("../../sql/functions/notify.sql"),
    include_str!("../../sql/functions/operate.sql"),
    include_str!("../../sql/functions/ordering.sql"),
    include_str!("../../sql/functions/overflow.sql"),
    include_str!("../../sql/functions/periodic.sql"),
    include_str!("../../sql/functions/promote.sql"),
    include_str!("../../sql/functions/rate.sql"),
    include_str!("../../sql/functions/segments.sql"),
    include_str!("../../sql/functions/rebase.sql"),
    include_str!("../../sql/functions/relay.sql"),
    include_str!("../../sql/functions/rescue.sql"),
    include_str!("../../sql/functions/identity.sql"),
    include_str!("../../sql/functions/restored.sql"),
    include_str!("../../sql/functions/copied_database.sql"),
    include_str!("../../sql/functions/rows.sql"),
    include_str!("../../sql/functions/sample.sql"),
    include_str!("../../sql/functions/schedule.sql"),
    include_str!("../../sql/functions/scheduled.sql"),
    include_str!("../../sql/functions/search.sql"),
    include_str!("../../sql/functions/stats.sql"),
    include_str!("../../sql/functions/sync.sql"),
    include_str!("../../sql/functions/sync_parts.sql"),
    include_str!("../../sql/functions/sync_table.sql"),
    include_str!("../../sql/functions/sync_triggers.sql"),
    include_str!("../../sql/functions/window.sql"),
];

/// Returns the FNV-1a hash of all lines except empty ones and comments, without indentation. It
/// only distinguishes texts, and does not protect against deliberate changes.
fn checksum<'a>(texts: impl IntoIterator<Item = &'a str>) -> String {
    let lines = texts.into_iter().flat_map(str::lines).map(str::trim);
    let statements = lines.filter(|line| !line.is_empty() && !line.starts_with("--"));
    let bytes = statements.flat_map(|line| line.bytes().chain([b'\n']));
    let hash = bytes.fold(0xcbf2_9ce4_8422_2325_u64, |hash, byte| {
        (hash ^ u64::from(byte)).wrapping_mul(0x0100_0000_01b3)
    });
    format!("{hash:016x}")
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::store::mutations::PREFIXES;

    #[test]
    fn checksums_ignore_comments() {
        let expected = checksum(["SELECT 1;\n"]);
        assert_eq!(checksum(["-- One.\n\n  SELECT 1;"]), expected);
        assert_ne!(checksum(["SELECT 2;"]), expected);
        assert_ne!(checksum(["SELECT\n1;"]), expected);
    }

    #[test]
    fn the_installed_sql_has_no_repeat_markers_and_no_test_mutations() {
        let mut texts = vec![&**FUNCTIONS];
        for step in STEPS.iter() {
            texts.extend([&*step.before, &*step.after]);
        }
        for text in texts {
            let repeats = ["-- repeat:", "-- end\n", "/*slot*/", "$one$", "$whole$"];
            for mark in repeats.iter().chain(&PREFIXES) {
                assert!(!text.contains(mark), "{mark}");
            }
        }
    }

    #[test]
    fn steps_are_numbered_from_one_without_a_gap() {
        for (at, step) in STEPS.iter().enumerate() {
            assert_eq!(step.number() as usize, at + 1, "{}", step.name);
        }
    }
}
