//! The named statements of one `locking/*.sql` file.
//!
//! The files are plain SQL that can be pasted into psql; a comment `-- name: claim` begins each
//! statement, and the bench refers to it by that name.

use std::collections::BTreeMap;

use anyhow::{Context, Result};

/// The statements of one file, by name.
#[derive(Debug, Clone)]
pub(crate) struct Statements {
    by_name: BTreeMap<&'static str, &'static str>,
}

impl Statements {
    /// Splits a file at its `-- name:` lines; the text before the first one is a description.
    pub(crate) fn parse(source: &'static str) -> Self {
        let mut by_name = BTreeMap::new();
        for section in source.split("\n-- name: ").skip(1) {
            let (name, body) = section.split_once('\n').unwrap_or((section, ""));
            by_name.insert(name.trim(), body.trim().trim_end_matches(';'));
        }
        Self { by_name }
    }

    /// Finds a statement; an unknown name is a bug of the bench, and the error lists the existing
    /// names.
    pub(crate) fn get(&self, name: &str) -> Result<&'static str> {
        self.by_name.get(name).copied().with_context(|| {
            let known: Vec<_> = self.by_name.keys().copied().collect();
            format!("no statement named {name}; there are {}", known.join(", "))
        })
    }

    /// The names in the file.
    pub(crate) fn names(&self) -> Vec<&'static str> {
        self.by_name.keys().copied().collect()
    }
}

#[cfg(test)]
mod tests {
    use super::Statements;

    #[test]
    fn names_begin_statements_and_leading_prose_is_ignored() {
        let statements = Statements::parse(
            "-- prose\n\n-- name: one\nSELECT 1;\n\n-- why\n-- name: two\nSELECT 2;\n",
        );
        assert_eq!(statements.names(), ["one", "two"]);
        assert_eq!(statements.get("two").unwrap_or_default(), "SELECT 2");
    }

    #[test]
    fn unknown_names_are_reported_with_the_existing_ones() {
        let error = Statements::parse("\n-- name: one\nSELECT 1;").get("three");
        assert!(error.is_err_and(|error| error.to_string().contains("there are one")));
    }

    #[test]
    fn both_rivals_have_the_same_statements() {
        let skip_locked = Statements::parse(include_str!("../locking/skip_locked.sql"));
        let update_shape = Statements::parse(include_str!("../locking/update_shape.sql"));
        assert_eq!(skip_locked.names(), update_shape.names());
    }
}
