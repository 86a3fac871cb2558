//! The jobs that an operation applies to.

use crate::error::Error;
use crate::job::{JobId, State};

/// Selects the jobs of a call of [`Client`](crate::Client): all conditions that are set must hold.
/// Without conditions, it selects all jobs that the call applies to.
///
/// ```
/// use posthaste::{Filter, State};
///
/// let filter = Filter::new()
///     .queue("mail")
///     .state(State::Dead)
///     .error_like("%timeout%")
///     .limit(10_000);
/// ```
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Filter {
    pub(crate) ids: Option<Vec<JobId>>,
    pub(crate) queue: Option<String>,
    pub(crate) name: Option<String>,
    pub(crate) tag: Option<String>,
    pub(crate) state: Option<State>,
    pub(crate) error: Option<String>,
    pub(crate) limit: Option<u32>,
    pub(crate) oldest_first: bool,
}

impl Filter {
    /// The default limit of a list.
    pub(crate) const DEFAULT_LIST_LIMIT: u32 = 50;
    /// The default limit of jobs that are retried or redriven.
    pub(crate) const DEFAULT_CHANGE_LIMIT: u32 = 1_000;

    /// Creates a filter without conditions.
    pub fn new() -> Self {
        Self::default()
    }

    /// Selects only these jobs.
    pub fn ids(mut self, ids: impl IntoIterator<Item = JobId>) -> Self {
        self.ids = Some(ids.into_iter().collect());
        self
    }

    /// Selects only jobs of this queue.
    pub fn queue(mut self, queue: impl Into<String>) -> Self {
        self.queue = Some(queue.into());
        self
    }

    /// Selects only jobs of this name.
    pub fn name(mut self, name: impl Into<String>) -> Self {
        self.name = Some(name.into());
        self
    }

    /// Selects only jobs with this tag.
    pub fn tag(mut self, tag: impl Into<String>) -> Self {
        self.tag = Some(tag.into());
        self
    }

    /// Selects only jobs in this state, which must be one that the call applies to.
    pub fn state(mut self, state: State) -> Self {
        self.state = Some(state);
        self
    }

    /// Selects only jobs whose last error matches this pattern of SQL's `LIKE`: `%` matches any
    /// text, `_` one character, and `\` before them the characters themselves.
    pub fn error_like(mut self, pattern: impl Into<String>) -> Self {
        self.error = Some(pattern.into());
        self
    }

    /// Limits the number of jobs. The default is the number of [`ids`](Self::ids), or else 50 for a
    /// list and 1,000 for jobs that are retried or redriven.
    pub fn limit(mut self, jobs: u32) -> Self {
        self.limit = Some(jobs);
        self
    }

    /// Lists the oldest jobs first instead of the newest. Retry and redrive begin with the oldest
    /// in any case.
    pub fn oldest_first(mut self) -> Self {
        self.oldest_first = true;
        self
    }

    /// Returns the limit or its default.
    pub(crate) fn limit_or(&self, else_this: u32) -> u32 {
        let named = self.ids.as_ref().map(Vec::len);
        let named = named.map(|jobs| u32::try_from(jobs).unwrap_or(u32::MAX));
        self.limit.or(named).unwrap_or(else_this)
    }

    /// Rejects conditions that the database would reject or that can never match.
    pub(crate) fn check(&self, states: &[State]) -> Result<(), Error> {
        for (field, text) in [
            ("queue", &self.queue),
            ("name", &self.name),
            ("tag", &self.tag),
            ("error", &self.error),
        ] {
            if text.as_ref().is_some_and(|text| text.contains('\0')) {
                return Err(Error::invalid(field, "must not contain NUL"));
            }
        }
        let escapes = |pattern: &String| {
            let backslashes = pattern.bytes().rev().take_while(|byte| *byte == b'\\');
            backslashes.count() % 2 == 1
        };
        if self.error.as_ref().is_some_and(escapes) {
            let reason = "must not end with a single backslash: write two for one";
            return Err(Error::invalid("error", reason));
        }
        match self.state {
            Some(state) if !states.contains(&state) => {
                let names: Vec<&str> = states.iter().map(|state| state.name()).collect();
                let reason = format!("{state} is not one of {}", names.join(", "));
                Err(Error::invalid("state", reason))
            }
            _ => Ok(()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::Filter;
    use crate::job::{JobId, State};

    #[test]
    fn limits_default_to_the_number_of_ids() {
        let three = Filter::new().ids([1, 2, 3].map(JobId));
        assert_eq!(three.limit_or(50), 3);
        assert_eq!(three.limit(2).limit_or(50), 2);
        assert_eq!(Filter::new().limit_or(50), 50);
    }

    #[test]
    fn names_the_field_that_the_database_would_reject() {
        let refused = |filter: Filter| match filter.check(&[State::Dead, State::Expired]) {
            Ok(()) => String::new(),
            Err(error) => {
                assert!(error.is_invalid(), "{error}");
                error.to_string()
            }
        };
        let new = Filter::new;
        assert_eq!(
            refused(new().state(State::Running)),
            "state: running is not one of dead, expired"
        );
        assert_eq!(refused(new().queue("a\0")), "queue: must not contain NUL");
        for (pattern, is_refused) in [
            ("\\", true),
            ("a\\\\", false),
            ("\\\\\\", true),
            ("", false),
        ] {
            let reason = refused(new().error_like(pattern));
            assert_eq!(reason.starts_with("error: "), is_refused, "{pattern}");
        }
        assert_eq!(refused(new().state(State::Dead).tag("")), "");
    }
}
