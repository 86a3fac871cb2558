//! Arguments as people may see them: indented, with the values of secret keys left out at any
//! depth. It reads the text that Postgres prints, token by token, so that numbers stay as they are
//! and nothing nests too deep.

/// Deeper than this nothing is indented further.
const DEEPEST: usize = 40;
/// Of a text within arguments so much is shown.
const LONGEST_TEXT: usize = 4_000;

/// A part of what is shown.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Piece {
    pub(crate) text: String,
    pub(crate) is_redacted: bool,
}

/// Which keys are secret.
#[derive(Clone, Debug)]
pub(crate) struct Secrets(Vec<String>);

impl Secrets {
    pub(crate) fn new(patterns: &[String]) -> Self {
        let patterns = patterns.iter().map(|one| normal(one));
        Self(patterns.filter(|one| !one.is_empty()).collect())
    }

    fn are_in(&self, key: &str) -> bool {
        let key = normal(key);
        self.0.iter().any(|pattern| key.contains(pattern))
    }

    /// Arguments on lines of their own; how many values were left out.
    pub(crate) fn indented(&self, json: &str) -> (Vec<Piece>, usize) {
        Printer::new(self, true).print(json)
    }

    /// Arguments on one line.
    pub(crate) fn line(&self, json: &str) -> Vec<Piece> {
        Printer::new(self, false).print(json).0
    }

    /// Arguments on one line as a text to search in: what is left out is not there.
    pub(crate) fn text(&self, json: &str) -> String {
        let pieces = self.line(json).into_iter();
        let shown = pieces.filter(|piece| !piece.is_redacted);
        shown.map(|piece| piece.text).collect()
    }
}

/// Without what makes no difference.
fn normal(key: &str) -> String {
    let letters = key.chars().filter(|one| !"_-. ".contains(*one));
    letters.flat_map(char::to_lowercase).collect()
}

struct Printer<'a> {
    secrets: &'a Secrets,
    is_indented: bool,
    pieces: Vec<Piece>,
    redacted: usize,
    /// For each open bracket, whether it is an object's.
    open: Vec<bool>,
    /// The next text is a key.
    wants_key: bool,
    /// The value that follows is secret.
    is_secret: bool,
}

impl<'a> Printer<'a> {
    fn new(secrets: &'a Secrets, is_indented: bool) -> Self {
        Self {
            secrets,
            is_indented,
            pieces: Vec::new(),
            redacted: 0,
            open: Vec::new(),
            wants_key: false,
            is_secret: false,
        }
    }

    fn print(mut self, json: &str) -> (Vec<Piece>, usize) {
        let mut left = json;
        while let Some((token, rest)) = next(left) {
            left = match self.is_secret && !matches!(token, ":" | "null" | "," | "}" | "]") {
                true => self.leave_out(left),
                false => {
                    self.take(token, rest);
                    rest
                }
            };
        }
        (self.pieces, self.redacted)
    }

    /// A value of a secret key, however large.
    fn leave_out<'t>(&mut self, value: &'t str) -> &'t str {
        self.is_secret = false;
        self.redacted += 1;
        self.pieces.push(Piece {
            text: "redacted".to_owned(),
            is_redacted: true,
        });
        after_value(value)
    }

    fn take(&mut self, token: &str, rest: &str) {
        match token {
            "{" | "[" => {
                let is_empty = next(rest).is_some_and(|(token, _)| matches!(token, "}" | "]"));
                self.push(token);
                self.open.push(token == "{");
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
                self.wants_key = self.open.last() == Some(&true);
                self.push(",");
                match self.is_indented {
                    true => self.line_break(),
                    false => self.push(" "),
                }
            }
            ":" => self.push(": "),
            text if text.starts_with('"') && self.wants_key => {
                self.wants_key = false;
                self.is_secret = self.secrets.are_in(&unquoted(text));
                self.push(&cut(text));
            }
            text if text.starts_with('"') => self.text(text),
            other => {
                self.is_secret = false;
                self.push(other);
            }
        }
    }

    /// A text may hold JSON that holds a secret.
    fn text(&mut self, text: &str) {
        let inner = unquoted(text);
        let is_json = inner.trim_start().starts_with(['{', '[']);
        if is_json && Printer::new(self.secrets, false).print(&inner).1 > 0 {
            self.leave_out(text);
        } else {
            self.push(&cut(text));
        }
    }

    fn ends_with(&self, any: [&str; 2]) -> bool {
        let last = self.pieces.last();
        last.is_some_and(|last| !last.is_redacted && any.iter().any(|one| last.text.ends_with(one)))
    }

    fn line_break(&mut self) {
        if self.is_indented {
            let deep = self.open.len().min(DEEPEST);
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

/// A text, or the beginning of a long one.
fn cut(text: &str) -> String {
    match text.char_indices().nth(LONGEST_TEXT) {
        Some((at, _)) => format!("{}…\"", &text[..at]),
        None => text.to_owned(),
    }
}

/// A text as it was intended.
fn unquoted(text: &str) -> String {
    serde_json::from_str(text).unwrap_or_else(|_| text.to_owned())
}

/// The first token of a JSON text, and what follows it.
fn next(text: &str) -> Option<(&str, &str)> {
    let text = text.trim_start();
    let first = text.chars().next()?;
    let length = match first {
        '{' | '}' | '[' | ']' | ',' | ':' => 1,
        '"' => text_length(text),
        _ => {
            let end = text.find(|one: char| one.is_whitespace() || "{}[],:\"".contains(one));
            end.unwrap_or(text.len())
        }
    };
    Some(text.split_at(length))
}

fn text_length(text: &str) -> usize {
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

/// What follows the value that comes first.
fn after_value(text: &str) -> &str {
    let mut deep = 0_usize;
    let mut left = text;
    while let Some((token, rest)) = next(left) {
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

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Settings;

    fn secrets() -> Secrets {
        Secrets::new(&Settings::default().redacted)
    }

    fn shown(json: &str) -> String {
        let pieces = secrets().line(json).into_iter();
        let marked = pieces.map(|piece| match piece.is_redacted {
            true => "***".to_owned(),
            false => piece.text,
        });
        marked.collect()
    }

    #[test]
    fn values_of_secret_keys_are_left_out_at_any_depth_and_whatever_they_are() {
        let json =
            r#"{"a": [{"API-Key": "x"}, {"b": {"userPassword": {"c": ["x", "}"]}}}], "d": 1}"#;
        let left = r#"{"a": [{"API-Key": ***}, {"b": {"userPassword": ***}}], "d": 1}"#;
        assert_eq!(shown(json), left);
        assert_eq!(
            shown(r#"{"token": null, "b": 2}"#),
            r#"{"token": null, "b": 2}"#
        );
        assert_eq!(
            shown(r#"{"token": 7, "b": 2}"#),
            r#"{"token": ***, "b": 2}"#
        );
        let deep = format!("{}{}", "[".repeat(50_000), r#"{"secret": 7}"#);
        assert!(shown(&deep).ends_with(r#"{"secret": ***}"#));
    }

    #[test]
    fn a_key_in_other_letters_and_a_secret_in_a_text_of_json_are_left_out() {
        assert_eq!(
            shown(r#"{"\u0070ASS\"word": "x"}"#),
            r#"{"\u0070ASS\"word": "x"}"#
        );
        assert_eq!(
            shown(r#"{"\u0070ASSword": "x"}"#),
            r#"{"\u0070ASSword": ***}"#
        );
        let within = r#"{"body": "{\"user\": {\"password\": \"x\"}}", "n": "[1]"}"#;
        assert_eq!(shown(within), r#"{"body": ***, "n": "[1]"}"#);
    }

    #[test]
    fn numbers_stay_as_they_are_and_lines_are_indented() {
        let json = r#"{"n": 129.00, "big": 123456789012345678901234567890, "e": {}, "l": [1, []]}"#;
        let (pieces, redacted) = secrets().indented(json);
        assert_eq!(redacted, 0);
        let lines = "{\n  \"n\": 129.00,\n  \"big\": 123456789012345678901234567890,\n  \
                     \"e\": {},\n  \"l\": [\n    1,\n    []\n  ]\n}";
        assert_eq!(pieces[0].text, lines);
    }

    #[test]
    fn redaction_of_malformed_json_ends_and_shows_no_secret() {
        for json in [
            "",
            "{",
            "{\"secret\": \"x",
            "{\"secret\"",
            "\"\\",
            "}}]]",
            "{\"token\":{",
        ] {
            assert!(!shown(json).contains('x'), "{json}");
        }
    }
}
