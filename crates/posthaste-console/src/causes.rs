//! The causes of given-up jobs: their last errors, without the parts that differ from job to job.
//! No IO.

use std::collections::BTreeMap;

use crate::redact::Redactor;
use crate::store::LastError;

/// The longest cause, in characters, so that it fits into a filter.
const MAX_CAUSE_CHARS: usize = 300;
/// The character that matches any text.
const WILDCARD: char = '#';

/// Jobs of a queue and a name whose last errors have the same cause.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Cause {
    pub(crate) queue: String,
    pub(crate) name: String,
    pub(crate) error: String,
    pub(crate) jobs: i64,
}

/// Returns the causes of these errors, those with the most jobs first.
pub(crate) fn group_by_cause(errors: Vec<LastError>, secrets: &Redactor) -> Vec<Cause> {
    let mut jobs = BTreeMap::<(String, String, String), i64>::new();
    for one in errors {
        let error = replace_variable_parts(&secrets.redact_error(&one.error));
        *jobs.entry((one.queue, one.name, error)).or_default() += one.jobs;
    }
    let cause = |((queue, name, error), jobs)| Cause {
        queue,
        name,
        error,
        jobs,
    };
    let mut causes: Vec<Cause> = jobs.into_iter().map(cause).collect();
    causes.sort_by_key(|cause| std::cmp::Reverse(cause.jobs));
    causes
}

/// Replaces numbers, ids, hidden values and control characters of an error by [`WILDCARD`].
fn replace_variable_parts(error: &str) -> String {
    let mut folded = String::new();
    let mut rest = error;
    while let Some(first) = rest.chars().next() {
        let end = rest.find(|one| !is_of_word(one)).unwrap_or(rest.len());
        let end = end.max(first.len_utf8());
        let (word, after) = rest.split_at(end);
        let differs = |one: char| one.is_numeric() || one == '*' || one.is_control();
        let is_folded = word.contains(differs);
        if folded.len() + word.len() > MAX_CAUSE_CHARS {
            folded.push(WILDCARD);
            break;
        }
        match is_folded {
            true if folded.ends_with(WILDCARD) => {}
            true => folded.push(WILDCARD),
            false => folded.push_str(word),
        }
        rest = after;
    }
    folded
}

/// Returns whether a character belongs to a word; ids contain hyphens.
fn is_of_word(letter: char) -> bool {
    letter.is_alphanumeric() || letter == '_' || letter == '-'
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Settings;

    #[test]
    fn numbers_and_ids_do_not_distinguish_causes() {
        for (error, cause) in [
            ("refused", "refused"),
            ("timeout after 31 ms", "timeout after # ms"),
            ("timeout after 31ms", "timeout after #"),
            ("no row 9f86d081-88cf-4c1e-a1b2-000000000000", "no row #"),
            ("10.0.0.7:5432 is down", "#.#.#.#:# is down"),
            ("password=*** is wrong", "password=# is wrong"),
            ("one\n\ttwo", "one#two"),
            (
                "well-known na\u{ef}ve \u{1f4ee}",
                "well-known na\u{ef}ve \u{1f4ee}",
            ),
            ("", ""),
        ] {
            assert_eq!(replace_variable_parts(error), cause);
        }
        let long = replace_variable_parts(&"\u{90f5} ".repeat(300));
        assert!(
            long.len() <= MAX_CAUSE_CHARS + 1 && long.ends_with(WILDCARD),
            "{long}"
        );
    }

    #[test]
    fn causes_of_most_jobs_come_first_and_secrets_are_hidden() {
        let error = |name: &str, error: &str, jobs| LastError {
            queue: "mail".to_owned(),
            name: name.to_owned(),
            error: error.to_owned(),
            jobs,
        };
        let secrets = Redactor::new(&Settings::default());
        let errors = vec![
            error("send", "password=hunter is wrong", 3),
            error("send", "row 1 is missing", 2),
            error("send", "row 22 is missing", 2),
            error("poll", "row 3 is missing", 1),
        ];
        let causes = group_by_cause(errors, &secrets);
        let seen = causes.iter().map(|one| (&*one.name, &*one.error, one.jobs));
        let expected = [
            ("send", "row # is missing", 4),
            ("send", "password=# is wrong", 3),
            ("poll", "row # is missing", 1),
        ];
        assert_eq!(seen.collect::<Vec<_>>(), expected);
    }
}
