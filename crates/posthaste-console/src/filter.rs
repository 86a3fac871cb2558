//! Which jobs a page is about: a text that people type and send to each other, such as
//! `queue:mail state:retrying error:"refused"`. No IO.

mod since;

use std::str::FromStr as _;

use jiff::Timestamp;
use posthaste::State;

use crate::words;
pub(crate) use since::Since;

/// The longest filter that is read.
const LONGEST: usize = 1_000;

/// Conditions that must all hold.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Filter {
    pub(crate) queue: Option<String>,
    pub(crate) name: Option<String>,
    pub(crate) tag: Option<String>,
    pub(crate) state: Option<State>,
    /// A part of the last error.
    pub(crate) error: Option<String>,
    /// A part of the arguments, of those that are shown.
    pub(crate) text: Option<String>,
    /// Enqueued from then on; of jobs that were given up, given up from then on.
    pub(crate) since: Option<Since>,
    /// One job by its number.
    pub(crate) id: Option<i64>,
}

impl Filter {
    /// Whether a counter is about its jobs; there is none of a state, an error or a text.
    pub(crate) fn counts(&self, counter: &posthaste::Counter) -> bool {
        let is = |wanted: &Option<String>, is: &str| wanted.as_deref().is_none_or(|one| one == is);
        is(&self.queue, &counter.queue)
            && is(&self.name, &counter.name)
            && is(&self.tag, &counter.tag)
    }

    /// Reads what was typed at this time; else says what it does not understand.
    pub(crate) fn parse(typed: &str, now: Timestamp) -> Result<Self, String> {
        if typed.len() > LONGEST {
            return Err(format!("a filter has at most {LONGEST} bytes"));
        }
        Self::kept(typed, now)
    }

    /// Reads what was written down of a filter, which may be longer than what was typed.
    pub(crate) fn kept(typed: &str, now: Timestamp) -> Result<Self, String> {
        let mut filter = Self::default();
        for word in words(typed)? {
            filter.take(word, now)?;
        }
        Ok(filter)
    }

    fn take(
        &mut self,
        (key, value): (Option<String>, String),
        now: Timestamp,
    ) -> Result<(), String> {
        if value.contains('\0') {
            return Err("a filter must not contain NUL".to_owned());
        }
        let Some(key) = key else {
            match value.parse() {
                Ok(id) => self.id = Some(id),
                Err(_) => self.name = Some(value),
            }
            return Ok(());
        };
        match key.as_str() {
            "queue" => self.queue = Some(value),
            "name" => self.name = Some(value),
            "tag" => self.tag = Some(value),
            "error" => self.error = Some(value),
            "text" => self.text = Some(value),
            "since" => self.since = Some(Since::parse(value, now)?),
            "id" => {
                let id = value.parse();
                self.id = Some(id.map_err(|_| format!("id:{value} is not a number"))?);
            }
            "state" => {
                let state = State::from_str(&value);
                self.state = Some(state.map_err(|_| format!("{value} is not a state"))?);
            }
            _ => return Err(format!("{key} is not a condition{KEYS}")),
        }
        Ok(())
    }

    /// The LIKE pattern of the last error.
    pub(crate) fn error_pattern(&self) -> Option<String> {
        let part = self.error.as_ref()?;
        let mut pattern = String::from("%");
        for letter in part.chars() {
            if matches!(letter, '%' | '_' | '\\') {
                pattern.push('\\');
            }
            pattern.push(letter);
        }
        pattern.push('%');
        Some(pattern)
    }

    /// From when on.
    pub(crate) fn since_at(&self) -> Option<Timestamp> {
        self.since.as_ref().map(|since| since.at)
    }

    /// The same whenever it is read.
    pub(crate) fn resolved(&self) -> Self {
        let since = self.since.as_ref();
        Self {
            since: since.map(|since| Since::at(since.at)),
            ..self.clone()
        }
    }

    /// The same with another state.
    pub(crate) fn with_state(&self, state: Option<State>) -> Self {
        Self {
            state,
            ..self.clone()
        }
    }

    /// The options of `posthaste jobs` that say the same.
    pub(crate) fn options(&self) -> String {
        let state = self.state.map(|state| words::state(state).to_owned());
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
            Some(format!(" {option} {}", shell(value)))
        });
        given.collect()
    }
}

impl Filter {
    /// The conditions of a statement that says the same, of waiting jobs or of kept ones.
    pub(crate) fn conditions(&self, is_of_kept: bool) -> String {
        let state = self.state.map(|state| words::state(state).to_owned());
        let pattern = self.error_pattern();
        let since = self.since.as_ref().map(|since| since.at.to_string());
        let since_when = if is_of_kept { "died_at" } else { "enqueued_at" };
        let all = [
            ("queue", "=", &self.queue),
            ("name", "=", &self.name),
            ("tag", "=", &self.tag),
            ("state", "=", &state),
            ("last_error", "LIKE", &pattern),
            (since_when, ">=", &since),
        ];
        let conditions: Vec<String> = all
            .into_iter()
            .filter_map(|(column, is, value)| {
                let value = value.as_ref()?.replace('\'', "''");
                let value = words::plain(&value, LONGEST);
                Some(format!("{column} {is} '{value}'"))
            })
            .collect();
        match conditions.is_empty() {
            true => "true".to_owned(),
            false => conditions.join(" AND "),
        }
    }
}

const KEYS: &str = "; known are queue, name, tag, state, error, text, since and id";

/// As it is typed.
impl std::fmt::Display for Filter {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let state = self.state.map(|state| words::state(state).to_owned());
        let id = self.id.map(|id| id.to_string());
        let since = self.since.as_ref().map(|since| since.typed.clone());
        let parts = [
            ("queue", &self.queue),
            ("state", &state),
            ("name", &self.name),
            ("tag", &self.tag),
            ("error", &self.error),
            ("text", &self.text),
            ("since", &since),
            ("id", &id),
        ];
        let mut is_first = true;
        for (key, value) in parts {
            let Some(value) = value else { continue };
            let space = if is_first { "" } else { " " };
            write!(f, "{space}{key}:{}", quoted(value))?;
            is_first = false;
        }
        Ok(())
    }
}

/// As a filter reads it back.
fn quoted(value: &str) -> String {
    let is_plain = |one: char| !one.is_whitespace() && one != '"' && one != '\\';
    match !value.is_empty() && value.chars().all(is_plain) {
        true => value.to_owned(),
        false => format!("\"{}\"", value.replace('\\', "\\\\").replace('"', "\\\"")),
    }
}

/// As a shell reads it back.
pub(crate) fn shell(value: &str) -> String {
    let is_plain = |one: char| one.is_ascii_alphanumeric() || "._-/:@".contains(one);
    match !value.is_empty() && value.chars().all(is_plain) {
        true => value.to_owned(),
        false => format!("'{}'", value.replace('\'', "'\\''")),
    }
}

/// Words with their keys; quotes keep spaces together.
fn words(typed: &str) -> Result<Vec<(Option<String>, String)>, String> {
    let mut words = Vec::new();
    let mut letters = typed.chars().peekable();
    loop {
        while letters.next_if(|one| one.is_whitespace()).is_some() {}
        if letters.peek().is_none() {
            return Ok(words);
        }
        let (mut key, mut word) = (None, String::new());
        while let Some(letter) = letters.next_if(|one| !one.is_whitespace()) {
            match letter {
                ':' if key.is_none() && !word.is_empty() => key = Some(std::mem::take(&mut word)),
                '"' => quote(&mut letters, &mut word)?,
                _ => word.push(letter),
            }
        }
        words.push((key, word));
    }
}

fn quote(letters: &mut impl Iterator<Item = char>, word: &mut String) -> Result<(), String> {
    loop {
        match letters.next() {
            None => return Err("a quote is not closed".to_owned()),
            Some('"') => return Ok(()),
            Some('\\') => word.extend(letters.next()),
            Some(letter) => word.push(letter),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(typed: &str) -> Result<Filter, String> {
        Filter::parse(typed, "2026-11-24T12:04:31Z".parse().unwrap())
    }

    #[test]
    fn a_filter_is_read_back_as_it_was() {
        let typed = r#"queue:mail state:retrying name:"a b" tag:"" error:"re\"f:u\\sed" text:7
                       since:11:30 id:4"#;
        let filter = read(typed).unwrap();
        assert_eq!(filter.queue.as_deref(), Some("mail"));
        assert_eq!(filter.state, Some(State::Retrying));
        assert_eq!(filter.error.as_deref(), Some("re\"f:u\\sed"));
        assert_eq!(filter.tag.as_deref(), Some(""));
        assert_eq!(read(&filter.to_string()).unwrap(), filter);
    }

    #[test]
    fn stored_filters_keep_their_meaning_over_time() {
        let typed = format!("since:2h error:{}", "\\".repeat(900));
        let filter = read(&typed).unwrap().resolved();
        let later = "2027-01-01T00:00:00Z".parse().unwrap();
        assert_eq!(Filter::kept(&filter.to_string(), later).unwrap(), filter);
        assert_eq!(filter.since.unwrap().typed, "2026-11-24T10:04:31Z");
    }

    #[test]
    fn a_word_alone_is_a_name_and_a_number_alone_is_a_job() {
        assert_eq!(
            read("mail.send").unwrap().name.as_deref(),
            Some("mail.send")
        );
        assert_eq!(read(" 4711 ").unwrap().id, Some(4711));
        assert_eq!(read("").unwrap(), Filter::default());
    }

    #[test]
    fn filter_errors_name_the_word() {
        let refusal = |typed: &str| read(typed).unwrap_err();
        assert_eq!(refusal("state:lost"), "lost is not a state");
        assert!(refusal("until:11:30").starts_with("until is not a condition"));
        assert!(refusal("since:noon").starts_with("since:noon is not a time"));
        assert_eq!(refusal("name:\"a"), "a quote is not closed");
        assert_eq!(refusal("id:x"), "id:x is not a number");
        assert!(refusal("name:a\0").contains("NUL"));
        assert!(refusal(&"a".repeat(1_001)).contains("at most"));
    }

    #[test]
    fn a_pattern_stands_for_what_was_typed_and_a_shell_reads_options_back() {
        let filter = read(r#"error:"50%_\\" queue:"it's""#).unwrap();
        assert_eq!(filter.error_pattern().as_deref(), Some("%50\\%\\_\\\\%"));
        assert!(
            filter.options().contains(r"--queue 'it'\''s'"),
            "{}",
            filter.options()
        );
    }
}
