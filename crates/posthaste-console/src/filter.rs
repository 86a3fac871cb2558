//! Filters of jobs, which people type and send to each other, such as:
//!
//! `queue:mail state:retrying error:"refused"`
//!
//! No IO.

mod since;
#[cfg(test)]
mod tests;

use std::str::FromStr;

use jiff::Timestamp;
use posthaste::State;

use crate::format;
pub(crate) use since::Moment;

/// The longest filter that is accepted, in bytes.
const MAX_FILTER_BYTES: usize = 1_000;

/// Conditions that must all hold.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Filter {
    pub(crate) queue: Option<String>,
    pub(crate) name: Option<String>,
    pub(crate) tag: Option<String>,
    pub(crate) state: Option<State>,
    /// A part of the last error.
    pub(crate) error: Option<String>,
    /// Whether `error` is the whole error instead, in which `#` matches any text.
    pub(crate) is_cause: bool,
    /// A part of the arguments that are shown.
    pub(crate) text: Option<String>,
    /// The ordering key.
    pub(crate) key: Option<String>,
    /// Whether queue, name, tag and key are prefixes of those that match.
    pub(crate) are_prefixes: [bool; 4],
    pub(crate) priority: Option<i32>,
    /// The id of the worker that runs them, or completed them.
    pub(crate) worker: Option<i64>,
    /// Jobs enqueued from then on; for jobs that were given up, given up from then on.
    pub(crate) since: Option<Moment>,
    /// Jobs enqueued, or given up, before then.
    pub(crate) until: Option<Moment>,
    /// A single job by its id.
    pub(crate) id: Option<i64>,
}

impl Filter {
    /// Returns whether a counter counts matching jobs, as far as counters distinguish jobs: see
    /// [`is_uncounted`](Self::is_uncounted).
    pub(crate) fn matches_counter(&self, counter: &posthaste::Counter) -> bool {
        let names = [&counter.queue, &counter.name, &counter.tag];
        let mut wanted = self.name_conditions().into_iter().zip(names);
        let are_equal = wanted.all(|((wanted, is_prefix), name)| match wanted {
            None => true,
            Some(beginning) if is_prefix => name.starts_with(beginning),
            Some(wanted) => wanted == name,
        });
        are_equal && self.priority.is_none_or(|one| one == counter.priority)
    }

    /// Parses a filter that was typed at this time. An error describes the part that is not
    /// understood.
    pub(crate) fn parse(typed: &str, now: Timestamp) -> Result<Self, String> {
        if typed.len() > MAX_FILTER_BYTES {
            return Err(format!("a filter has at most {MAX_FILTER_BYTES} bytes"));
        }
        Self::parse_stored(typed, now)
    }

    /// Parses a stored filter, which may be longer than a typed one.
    pub(crate) fn parse_stored(typed: &str, now: Timestamp) -> Result<Self, String> {
        let mut filter = Self::default();
        for word in split_words(typed)? {
            filter.add_condition(word, now)?;
        }
        Ok(filter)
    }

    /// Returns queue, name, tag and key, each with whether it is a prefix.
    fn name_conditions(&self) -> [(Option<&String>, bool); 4] {
        let [queue, name, tag, key] = self.are_prefixes;
        [
            (self.queue.as_ref(), queue),
            (self.name.as_ref(), name),
            (self.tag.as_ref(), tag),
            (self.key.as_ref(), key),
        ]
    }

    fn add_condition(&mut self, word: Word, now: Timestamp) -> Result<(), String> {
        let Word {
            key,
            text: mut value,
            is_prefix,
        } = word;
        if value.contains('\0') {
            return Err("a filter must not contain NUL".to_owned());
        }
        let key = match key {
            Some(key) => key,
            None if is_prefix => "name".to_owned(),
            None if value.parse::<i64>().is_ok() => "id".to_owned(),
            None => "name".to_owned(),
        };
        match PREFIX_KEYS.iter().position(|one| *one == key) {
            Some(at) => self.are_prefixes[at] = is_prefix,
            None if is_prefix => value.push('*'),
            None => {}
        }
        match key.as_str() {
            "queue" => self.queue = Some(value),
            "name" => self.name = Some(value),
            "tag" => self.tag = Some(value),
            "key" => self.key = Some(value),
            "priority" => self.priority = Some(parse_number("priority", &value)?),
            "worker" => self.worker = Some(parse_number("worker", &value)?),
            "error" | "cause" => (self.error, self.is_cause) = (Some(value), key == "cause"),
            "text" => self.text = Some(value),
            "since" => self.since = Some(Moment::parse("since", value, now)?),
            "until" => self.until = Some(Moment::parse("until", value, now)?),
            "id" => self.id = Some(parse_number("id", &value)?),
            "state" => {
                let state = State::from_str(&value);
                self.state = Some(state.map_err(|_| format!("{value} is not a state"))?);
            }
            _ => return Err(format!("{key} is not a condition{KNOWN_KEYS}")),
        }
        Ok(())
    }

    /// Returns the LIKE pattern of the last error.
    pub(crate) fn error_pattern(&self) -> Option<String> {
        let error = escape_like(self.error.as_ref()?);
        Some(match self.is_cause {
            true => error.replace('#', "%"),
            false => format!("%{error}%"),
        })
    }

    /// Returns the LIKE patterns of queue, name, tag and key.
    pub(crate) fn name_patterns(&self) -> [Option<String>; 4] {
        self.name_conditions().map(|(name, is_prefix)| {
            let any = if is_prefix { "%" } else { "" };
            name.map(|name| escape_like(name) + any)
        })
    }

    /// Returns whether options of the command can express the filter.
    pub(crate) fn is_expressible_as_options(&self) -> bool {
        let has_more = self.priority.is_some() || self.key.is_some() || self.worker.is_some();
        self.are_prefixes == [false; 4] && !has_more && !self.is_timed()
    }

    /// Returns whether it has a condition by which counters do not distinguish jobs.
    pub(crate) fn is_uncounted(&self) -> bool {
        self.error.is_some() || self.key.is_some() || self.worker.is_some() || self.is_timed()
    }

    fn is_timed(&self) -> bool {
        self.since.is_some() || self.until.is_some()
    }

    /// Returns the time before which jobs match.
    pub(crate) fn until_at(&self) -> Option<Timestamp> {
        self.until.as_ref().map(|until| until.at)
    }

    /// Returns the time from which jobs match.
    pub(crate) fn since_at(&self) -> Option<Timestamp> {
        self.since.as_ref().map(|since| since.at)
    }

    /// Returns the filter with absolute times, so that its meaning does not depend on when it is
    /// read.
    pub(crate) fn with_absolute_times(&self) -> Self {
        let at = |time: &Option<Moment>| time.as_ref().map(|time| Moment::absolute(time.at));
        Self {
            since: at(&self.since),
            until: at(&self.until),
            ..self.clone()
        }
    }

    /// Returns the filter with another state.
    pub(crate) fn with_state(&self, state: Option<State>) -> Self {
        Self {
            state,
            ..self.clone()
        }
    }

    /// Returns the options of `posthaste jobs` that express the filter.
    pub(crate) fn options(&self) -> String {
        let state = self.state.map(|state| format::state_name(state).to_owned());
        let pattern = self.error_pattern();
        let options = [
            ("--queue", &self.queue),
            ("--name", &self.name),
            ("--tag", &self.tag),
            ("--state", &state),
            ("--error", &pattern),
        ];
        let given = options.into_iter().filter_map(|(option, value)| {
            let value = value.as_ref()?;
            Some(format!(" {option} {}", quote_for_shell(value)))
        });
        given.collect()
    }
}

impl Filter {
    /// Returns SQL conditions that express the filter, for waiting jobs or for given-up ones.
    pub(crate) fn conditions(&self, is_of_given_up: bool) -> String {
        let state = self.state.map(|state| format::state_name(state).to_owned());
        let pattern = self.error_pattern();
        let since = self.since_at().map(|at| at.to_string());
        let until = self.until_at().map(|at| at.to_string());
        let since_when = if is_of_given_up {
            "died_at"
        } else {
            "enqueued_at"
        };
        let patterns = self.name_patterns();
        let name = |at: usize, exact| match self.are_prefixes[at] {
            true => ("LIKE", &patterns[at]),
            false => ("=", exact),
        };
        let (queue, of_name) = (name(0, &self.queue), name(1, &self.name));
        let (tag, key) = (name(2, &self.tag), name(3, &self.key));
        let priority = self.priority.map(|one| one.to_string());
        let all = [
            ("queue", queue.0, queue.1),
            ("name", of_name.0, of_name.1),
            ("tag", tag.0, tag.1),
            ("ordering_key", key.0, key.1),
            ("priority", "=", &priority),
            ("state", "=", &state),
            ("last_error", "LIKE", &pattern),
            (since_when, ">=", &since),
            (since_when, "<", &until),
        ];
        let conditions: Vec<String> = all
            .into_iter()
            .filter_map(|(column, is, value)| {
                let value = value.as_ref()?.replace('\'', "''");
                let value = format::one_line(&value, MAX_FILTER_BYTES);
                Some(format!("{column} {is} '{value}'"))
            })
            .collect();
        match conditions.is_empty() {
            true => "true".to_owned(),
            false => conditions.join(" AND "),
        }
    }
}

const KNOWN_KEYS: &str = "; known are queue, name, tag, key, priority, worker, state, error, \
                    cause, text, since, until and id";
/// Keys whose values may end in `*`.
const PREFIX_KEYS: [&str; 4] = ["queue", "name", "tag", "key"];

fn parse_number<T: FromStr>(key: &str, value: &str) -> Result<T, String> {
    value
        .parse()
        .map_err(|_| format!("{key}:{value} is not a number"))
}

/// Formats the filter as it is typed.
impl std::fmt::Display for Filter {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let state = self.state.map(|state| format::state_name(state).to_owned());
        let id = self.id.map(|id| id.to_string());
        let priority = self.priority.map(|one| one.to_string());
        let worker = self.worker.map(|one| one.to_string());
        let typed = |time: &Option<Moment>| time.as_ref().map(|time| time.typed.clone());
        let (since, until) = (typed(&self.since), typed(&self.until));
        let parts = [
            ("queue", &self.queue),
            ("state", &state),
            ("name", &self.name),
            ("tag", &self.tag),
            ("key", &self.key),
            ("priority", &priority),
            ("worker", &worker),
            (if self.is_cause { "cause" } else { "error" }, &self.error),
            ("text", &self.text),
            ("since", &since),
            ("until", &until),
            ("id", &id),
        ];
        let mut is_first = true;
        for (key, value) in parts {
            let Some(value) = value else { continue };
            let space = if is_first { "" } else { " " };
            let names = PREFIX_KEYS.iter().position(|one| *one == key);
            let is_prefix = names.is_some_and(|at| self.are_prefixes[at]);
            let any = if is_prefix { "*" } else { "" };
            write!(f, "{space}{key}:{}{any}", quote_value(value))?;
            is_first = false;
        }
        Ok(())
    }
}

/// Escapes a text for a LIKE pattern.
fn escape_like(text: &str) -> String {
    let mut pattern = String::new();
    for letter in text.chars() {
        if matches!(letter, '%' | '_' | '\\') {
            pattern.push('\\');
        }
        pattern.push(letter);
    }
    pattern
}

/// Quotes a value for a filter.
fn quote_value(value: &str) -> String {
    let is_plain = |one: char| !one.is_whitespace() && !"\"\\*".contains(one);
    match !value.is_empty() && value.chars().all(is_plain) {
        true => value.to_owned(),
        false => format!("\"{}\"", value.replace('\\', "\\\\").replace('"', "\\\"")),
    }
}

/// Quotes a value for a shell.
pub(crate) fn quote_for_shell(value: &str) -> String {
    let is_plain = |one: char| one.is_ascii_alphanumeric() || "._-/:@".contains(one);
    match !value.is_empty() && value.chars().all(is_plain) {
        true => value.to_owned(),
        false => format!("'{}'", value.replace('\'', "'\\''")),
    }
}

/// A word of a filter, with its key.
struct Word {
    key: Option<String>,
    text: String,
    /// Whether it ended with a `*` outside of quotes.
    is_prefix: bool,
}

/// Splits a filter into words with their keys. Quotes keep spaces together.
fn split_words(typed: &str) -> Result<Vec<Word>, String> {
    let mut words = Vec::new();
    let mut letters = typed.chars().peekable();
    loop {
        while letters.next_if(|one| one.is_whitespace()).is_some() {}
        if letters.peek().is_none() {
            return Ok(words);
        }
        let (mut key, mut word) = (None, String::new());
        let mut is_prefix = false;
        while let Some(letter) = letters.next_if(|one| !one.is_whitespace()) {
            is_prefix = letter == '*' && letters.peek().is_none_or(|one| one.is_whitespace());
            match letter {
                '*' if is_prefix => {}
                ':' if key.is_none() && !word.is_empty() => key = Some(std::mem::take(&mut word)),
                '"' => read_quoted(&mut letters, &mut word)?,
                _ => word.push(letter),
            }
        }
        words.push(Word {
            key,
            text: word,
            is_prefix,
        });
    }
}

fn read_quoted(letters: &mut impl Iterator<Item = char>, word: &mut String) -> Result<(), String> {
    loop {
        match letters.next() {
            None => return Err("a quote is not closed".to_owned()),
            Some('"') => return Ok(()),
            Some('\\') => word.extend(letters.next()),
            Some(letter) => word.push(letter),
        }
    }
}
