//! Formats arguments for people: indented, without the values of secret keys at any depth. It reads
//! the text that PostgreSQL prints token by token, so numbers keep their form and no text is nested
//! too deeply for it.

#[cfg(test)]
mod tests;

use std::collections::HashSet;

use posthaste_observe::redact::SecretKeys;

use crate::Settings;

/// The deepest level that is indented.
const MAX_INDENT_LEVEL: usize = 40;
/// The most characters of a string within arguments that are shown.
const MAX_STRING_CHARS: usize = 4_000;

/// A part of the output.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Piece {
    pub(crate) text: String,
    pub(crate) is_redacted: bool,
}

/// Hides the values of secret keys, and secrets within other values.
#[derive(Clone, Debug)]
pub(crate) struct Redactor(SecretKeys);

impl Redactor {
    pub(crate) fn new(settings: &Settings) -> Self {
        Self(SecretKeys::new(
            &settings.redacted,
            &settings.redacted_words,
        ))
    }

    /// Formats arguments on several lines, and returns how many values were left out.
    pub(crate) fn format_indented(&self, json: &str) -> (Vec<Piece>, usize) {
        Printer::new(&self.0, true).print(json)
    }

    /// Formats arguments on one line.
    pub(crate) fn format_on_one_line(&self, json: &str) -> Vec<Piece> {
        Printer::new(&self.0, false).print(json).0
    }

    /// Returns arguments on one line for a text search, without the values that are left out.
    pub(crate) fn searchable_text(&self, json: &str) -> String {
        let pieces = self.format_on_one_line(json).into_iter();
        let shown = pieces.filter(|piece| !piece.is_redacted);
        shown.map(|piece| piece.text).collect()
    }

    /// Hides secrets in the error of a program.
    pub(crate) fn redact_error(&self, text: &str) -> String {
        self.0.hide(text).into_owned()
    }
}

/// Keys whose value is the name of a pair, and keys whose value is the value of a pair.
const NAME_KEYS: [&str; 6] = ["name", "key", "field", "header", "param", "parameter"];
const VALUE_KEYS: [&str; 7] = [
    "value", "values", "val", "content", "text", "data", "default",
];

/// Finds objects such as `{"name": "password", "value": "…"}`, and returns the length of the text
/// after the beginning of each.
fn secret_pairs(json: &str, secrets: &SecretKeys) -> HashSet<usize> {
    let mut found = HashSet::new();
    let mut open: Vec<usize> = Vec::new();
    let (mut before, mut key) = ("", "");
    let mut left = json;
    while let Some((token, rest)) = next_token(left) {
        match token {
            "{" | "[" => open.push(rest.len()),
            "}" | "]" => drop(open.pop()),
            ":" => key = before,
            text if text.starts_with('"') && before == ":" => {
                let is_name = NAME_KEYS.contains(&decode_string(key).to_lowercase().as_str());
                if is_name && secrets.contain(&decode_string(text)) {
                    found.extend(open.last());
                }
            }
            _ => {}
        }
        (before, left) = (token, rest);
    }
    found
}

/// An open bracket.
#[derive(Clone, Copy, Debug)]
struct OpenBracket {
    is_object: bool,
    /// Whether it names a secret key, whose value is in it.
    is_secret_pair: bool,
}

struct Printer<'a> {
    secrets: &'a SecretKeys,
    is_indented: bool,
    pieces: Vec<Piece>,
    redacted: usize,
    secret_pairs: HashSet<usize>,
    open: Vec<OpenBracket>,
    /// Whether the next string is a key.
    wants_key: bool,
    /// Whether the next value is secret.
    is_secret: bool,
}

impl<'a> Printer<'a> {
    fn new(secrets: &'a SecretKeys, is_indented: bool) -> Self {
        Self {
            secrets,
            is_indented,
            pieces: Vec::new(),
            redacted: 0,
            secret_pairs: HashSet::new(),
            open: Vec::new(),
            wants_key: false,
            is_secret: false,
        }
    }

    fn print(mut self, json: &str) -> (Vec<Piece>, usize) {
        self.secret_pairs = secret_pairs(json, self.secrets);
        let mut left = json;
        while let Some((token, rest)) = next_token(left) {
            left = match self.is_secret && !matches!(token, ":" | "null" | "," | "}" | "]") {
                true => self.skip_value(left),
                false => {
                    self.print_token(token, rest);
                    rest
                }
            };
        }
        (self.pieces, self.redacted)
    }

    /// Leaves out the value of a secret key, regardless of its size, and returns the text after it.
    fn skip_value<'t>(&mut self, value: &'t str) -> &'t str {
        self.is_secret = false;
        self.redacted += 1;
        self.pieces.push(Piece {
            text: "redacted".to_owned(),
            is_redacted: true,
        });
        after_value(value)
    }

    fn print_token(&mut self, token: &str, rest: &str) {
        match token {
            "{" | "[" => {
                let is_empty =
                    next_token(rest).is_some_and(|(token, _)| matches!(token, "}" | "]"));
                self.push(token);
                self.open.push(OpenBracket {
                    is_object: token == "{",
                    is_secret_pair: self.secret_pairs.contains(&rest.len()),
                });
                self.wants_key = token == "{";
                if !is_empty {
                    self.line_break();
                }
            }
            "}" | "]" => {
                self.open.pop();
                self.wants_key = false;
                self.is_secret = false;
                if !self.ends_with(["{", "["]) {
                    self.line_break();
                }
                self.push(token);
            }
            "," => {
                self.is_secret = false;
                self.wants_key = self.open.last().is_some_and(|open| open.is_object);
                self.push(",");
                match self.is_indented {
                    true => self.line_break(),
                    false => self.push(" "),
                }
            }
            ":" => self.push(": "),
            text if text.starts_with('"') && self.wants_key => {
                self.wants_key = false;
                let key = decode_string(text);
                let is_pair = self.open.last().is_some_and(|open| open.is_secret_pair);
                let is_value = VALUE_KEYS.contains(&key.to_lowercase().as_str());
                self.is_secret = self.secrets.contain(&key) || is_pair && is_value;
                self.print_redacted(text, &key);
            }
            text if text.starts_with('"') => self.print_string(text),
            other => {
                self.is_secret = false;
                self.push(other);
            }
        }
    }

    /// Prints a string, which may contain JSON with secrets.
    fn print_string(&mut self, text: &str) {
        let inner = decode_string(text);
        let is_json = inner.trim_start().starts_with(['{', '[', '"']);
        if is_json && inner.len() < text.len() && self.finds_secrets(&inner) {
            self.skip_value(text);
        } else {
            self.print_redacted(text, &inner);
        }
    }

    fn finds_secrets(&self, json: &str) -> bool {
        Printer::new(self.secrets, false).print(json).1 > 0
    }

    /// Prints a string, with secrets replaced.
    fn print_redacted(&mut self, text: &str, inner: &str) {
        match self.secrets.hide(inner) {
            hidden if hidden == inner => self.push(&truncate(text)),
            hidden => {
                self.redacted += 1;
                self.push(&truncate(&serde_json::Value::from(&*hidden).to_string()));
            }
        }
    }

    fn ends_with(&self, any: [&str; 2]) -> bool {
        let last = self.pieces.last();
        last.is_some_and(|last| !last.is_redacted && any.iter().any(|one| last.text.ends_with(one)))
    }

    fn line_break(&mut self) {
        if self.is_indented {
            let deep = self.open.len().min(MAX_INDENT_LEVEL);
            self.push(&format!("\n{}", "  ".repeat(deep)));
        }
    }

    fn push(&mut self, text: &str) {
        match self.pieces.last_mut() {
            Some(last) if !last.is_redacted => last.text.push_str(text),
            _ => self.pieces.push(Piece {
                text: text.to_owned(),
                is_redacted: false,
            }),
        }
    }
}

/// Returns a string, or the beginning of a long one.
fn truncate(text: &str) -> String {
    match text.char_indices().nth(MAX_STRING_CHARS) {
        Some((at, _)) => format!("{}…\"", &text[..at]),
        None => text.to_owned(),
    }
}

/// Decodes a JSON string; any other text is returned as it is.
fn decode_string(text: &str) -> String {
    serde_json::from_str(text).unwrap_or_else(|_| text.to_owned())
}

/// Splits a JSON text after its first token; `None` at the end.
fn next_token(text: &str) -> Option<(&str, &str)> {
    let text = text.trim_start();
    let first = text.chars().next()?;
    let length = match first {
        '{' | '}' | '[' | ']' | ',' | ':' => 1,
        '"' => string_length(text),
        _ => {
            let end = text.find(|one: char| one.is_whitespace() || "{}[],:\"".contains(one));
            end.unwrap_or(text.len())
        }
    };
    Some(text.split_at(length))
}

fn string_length(text: &str) -> usize {
    let mut is_escaped = false;
    for (at, byte) in text.bytes().enumerate().skip(1) {
        match byte {
            _ if is_escaped => is_escaped = false,
            b'\\' => is_escaped = true,
            b'"' => return at + 1,
            _ => {}
        }
    }
    text.len()
}

/// Returns the text after the first value.
fn after_value(text: &str) -> &str {
    let mut deep = 0_usize;
    let mut left = text;
    while let Some((token, rest)) = next_token(left) {
        left = rest;
        match token {
            "{" | "[" => deep += 1,
            "}" | "]" => deep = deep.saturating_sub(1),
            _ => {}
        }
        if deep == 0 {
            return left;
        }
    }
    ""
}
