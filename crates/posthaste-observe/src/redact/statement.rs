//! Hides literals in SQL statements.

/// Characters of a statement that are shown.
const MAX_CHARS: usize = 200;

/// Returns at most 200 characters of a statement on one line, without comments and with `?` in
/// place of each literal. If a literal is not closed, nothing after its beginning is shown.
pub fn statement(statement: &str) -> String {
    let mut shown = String::new();
    let mut rest = statement;
    while let Some(letter) = rest.chars().next() {
        if shown.chars().count() > MAX_CHARS {
            break;
        }
        let before = shown.chars().next_back();
        rest = match letter {
            '\'' => {
                // E'', B'', X'' and U&'' are literals; their prefix has already been shown.
                let escapes = matches!(before, Some('e' | 'E'));
                shown.push('?');
                skip_quoted(&rest[1..], escapes)
            }
            '"' => {
                let end = rest[1..].find('"').map_or(rest.len(), |at| at + 2);
                shown.push_str(&rest[..end]);
                &rest[end..]
            }
            '$' => match dollar_tag(rest) {
                Some(tag) => {
                    shown.push('?');
                    let body = &rest[tag.len()..];
                    body.find(tag).map_or("", |at| &body[at + tag.len()..])
                }
                None => {
                    shown.push('$');
                    &rest[1..]
                }
            },
            '-' if rest.starts_with("--") => rest.find('\n').map_or("", |at| &rest[at..]),
            '/' if rest.starts_with("/*") => rest.find("*/").map_or("", |at| &rest[at + 2..]),
            digit if digit.is_ascii_digit() && !before.is_some_and(belongs_to_name) => {
                shown.push('?');
                rest.trim_start_matches(|one: char| one.is_alphanumeric() || one == '.')
            }
            space if space.is_whitespace() => {
                if before.is_some_and(|before| before != ' ') {
                    shown.push(' ');
                }
                &rest[space.len_utf8()..]
            }
            other => {
                shown.push(other);
                &rest[other.len_utf8()..]
            }
        };
    }
    match shown.char_indices().nth(MAX_CHARS) {
        Some((end, _)) => format!("{}…", &shown[..end]),
        None => shown.trim_end().to_owned(),
    }
}

/// Returns whether a digit after this character belongs to a name. `$1` keeps its number: it is a
/// parameter, not a value.
fn belongs_to_name(letter: char) -> bool {
    letter.is_alphanumeric() || letter == '_' || letter == '$'
}

fn skip_quoted(rest: &str, escapes: bool) -> &str {
    let mut letters = rest.char_indices().peekable();
    while let Some((at, letter)) = letters.next() {
        match letter {
            '\\' if escapes => {
                letters.next();
            }
            // Whether this backslash escapes depends on standard_conforming_strings.
            '\\' if letters.peek().is_some_and(|(_, next)| *next == '\'') => return "",
            '\'' if letters.peek().is_some_and(|(_, next)| *next == '\'') => {
                letters.next();
            }
            '\'' => return &rest[at + 1..],
            _ => {}
        }
    }
    ""
}

/// Returns the `$$` or `$tag$` at the beginning.
fn dollar_tag(rest: &str) -> Option<&str> {
    let end = rest[1..].find('$')? + 2;
    let tag = &rest[..end];
    let name = &tag[1..end - 1];
    let is_name = name.chars().all(|one| one.is_alphanumeric() || one == '_')
        && !name.starts_with(|one: char| one.is_ascii_digit());
    is_name.then_some(tag)
}

#[cfg(test)]
mod tests {
    use super::statement as redact;

    #[test]
    fn literals_and_comments_are_hidden() {
        for (statement, shown) in [
            ("select 1", "select ?"),
            (
                "select * FROM t1 WHERE a = 'it''s' AND b = $1",
                "select * FROM t1 WHERE a = ? AND b = $1",
            ),
            (r"select E'a\'b', 'c'", "select E?, ?"),
            ("DO $x$ secret $x$; select 2", "DO ?; select ?"),
            (
                "select\n  \"odd 'name\" -- secret\n, 1.5e3",
                "select \"odd 'name\" , ?",
            ),
            ("select /* secret */ 0xff", "select ?"),
            ("select 'never closed", "select ?"),
            (r"select 'a\', 'secret'", "select ?"),
            ("SET password TO $$ secret", "SET password TO ?"),
        ] {
            assert_eq!(redact(statement), shown, "{statement}");
        }
    }

    #[test]
    fn long_statements_are_cut() {
        let shown = redact(&"é".repeat(1_000));
        assert_eq!(shown.chars().count(), 201);
    }
}
