//! Log lines have the fields and the messages that the page of logs lists, and no others.

use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;

use super::{files, read, root, shown};

const PAGE: &str = "docs/operate/logs.md";
/// Fields that the command adds to each line.
const OF_EVERY_LINE: [&str; 4] = ["timestamp", "level", "message", "target"];
/// The levels whose messages are listed, with their headings.
const LISTED: [(&str, &str); 2] = [("error", "### Errors"), ("warn", "### Warnings")];
const LEVELS: [&str; 5] = ["error", "warn", "info", "debug", "trace"];

/// A call of one of the macros of `tracing`.
#[derive(Debug)]
struct Call {
    place: String,
    /// The level; for a span with its suffix, such as `info_span`.
    kind: String,
    fields: Vec<String>,
    /// `None` for a span.
    message: Option<String>,
}

#[test]
fn all_log_fields_errors_and_warnings_are_documented() {
    let page = read(&root().join(PAGE));
    let calls: Vec<Call> = sources().iter().flat_map(|file| calls(file)).collect();
    assert!(calls.len() > 80, "lines are logged elsewhere: {calls:?}");

    let mut used: BTreeSet<&str> = OF_EVERY_LINE.into();
    for call in &calls {
        used.extend(call.fields.iter().map(String::as_str));
    }
    let table = section(&page, "## Fields");
    assert_eq!(used, first_column(table), "used, and on {PAGE}");

    for (level, heading) in LISTED {
        let listed = first_column(section(&page, heading));
        let mut unseen = listed.clone();
        for call in calls.iter().filter(|call| call.kind == level) {
            let message = call.message.as_deref();
            let message = message.unwrap_or_else(|| panic!("no message: {call:?}"));
            let fitting = listed.iter().filter(|one| fits(message, one));
            let fitting: Vec<_> = fitting.collect();
            let place = &call.place;
            assert!(
                !fitting.is_empty(),
                "{PAGE} has no {level} `{message}` of {place}"
            );
            for one in fitting {
                unseen.remove(one);
            }
        }
        assert!(unseen.is_empty(), "nobody logs at {level}: {unseen:?}");
    }
}

#[test]
fn log_calls_are_parsed_in_every_form() {
    let text = r#"
        tracing::warn!(target: T, %error, a.b = ?x(1, "p, q"), "one, \"two\" {state}");
        tracing::info_span!("job", name = &*job.name);"#;
    let calls = calls_in("x.rs", text);
    assert_eq!(calls[0].fields, ["error", "a.b"]);
    let message = calls[0].message.as_deref();
    assert_eq!(message, Some(r#"one, \"two\" {state}"#));
    assert_eq!((&*calls[1].kind, &calls[1].message), ("info_span", &None));
    assert_eq!(calls[1].fields, ["name"]);
    assert!(fits("a {b} c {d}", "a one c two") && fits("a", "a"));
    assert!(!fits("a {b} c", "a one d") && !fits("a {b} c", "b one c") && !fits("a", "ab"));
}

/// Returns the code of the libraries and of the command, without its tests.
fn sources() -> Vec<std::path::PathBuf> {
    let all = files("crates", &["rs"]).into_iter();
    all.filter(|file| shown(file).contains("/src/")).collect()
}

fn calls(file: &Path) -> Vec<Call> {
    let text = read(file);
    let code = text
        .split("#[cfg(test)]\nmod tests {")
        .next()
        .unwrap_or_default();
    calls_in(&shown(file), code)
}

fn calls_in(place: &str, code: &str) -> Vec<Call> {
    let mut found = Vec::new();
    for level in LEVELS {
        for bare in [format!(" {level}!("), format!("({level}!(")] {
            assert!(!code.contains(&bare), "{place}: say tracing::{level}!");
        }
    }
    for (at, macro_name) in code
        .match_indices("tracing::")
        .chain(code.match_indices("line!("))
    {
        let rest = &code[at + macro_name.trim_end_matches('(').trim_end_matches('!').len()..];
        // `line!(level, …)` of the ticket, which expands to `tracing::$level!(…)`.
        let (kind, arguments) = match macro_name {
            "tracing::" => match rest.split_once("!(") {
                Some((kind, arguments)) if kind.chars().all(is_name_character) => (kind, arguments),
                _ => continue,
            },
            _ => ("line", &rest[2..]),
        };
        let mut parts = arguments_of(arguments);
        let kind = match kind {
            "line" => parts.remove(0).to_owned(),
            kind => kind.to_owned(),
        };
        let is_span = kind.ends_with("span");
        let texts = parts.iter().filter(|part| part.starts_with('"'));
        let message = texts.map(|text| in_one_line(text.trim_matches('"'))).next();
        let fields = parts.iter().filter_map(|part| field(part)).collect();
        found.push(Call {
            place: place.to_owned(),
            kind,
            fields,
            message: message.filter(|_| !is_span),
        });
    }
    found
}

/// Joins the lines of a text that continues after a backslash.
fn in_one_line(text: &str) -> String {
    let mut lines = text.split("\\\n");
    let first = lines.next().unwrap_or_default().to_owned();
    lines.fold(first, |all, line| all + line.trim_start())
}

fn is_name_character(letter: char) -> bool {
    letter.is_ascii_lowercase() || letter == '_' || letter == '$'
}

/// Returns the parts between the commas of a call, up to its end.
fn arguments_of(text: &str) -> Vec<&str> {
    let (mut parts, mut begin, mut depth) = (Vec::new(), 0, 0);
    let (mut is_text, mut is_escaped) = (false, false);
    for (at, letter) in text.char_indices() {
        let ends = !is_text && depth == 0 && matches!(letter, ',' | ')');
        if ends {
            parts.push(text[begin..at].trim());
            begin = at + 1;
            if letter == ')' {
                break;
            }
        }
        match letter {
            '"' if !is_escaped => is_text = !is_text,
            '(' | '[' | '{' if !is_text => depth += 1,
            ')' | ']' | '}' if !is_text => depth -= 1,
            _ => {}
        }
        is_escaped = is_text && letter == '\\' && !is_escaped;
    }
    parts.retain(|part| !part.is_empty());
    parts
}

/// Returns the name of a field, of `name = …`, `%name` or `name`.
fn field(part: &str) -> Option<String> {
    if part.starts_with('"') || part.starts_with("target:") || part.contains("$(") {
        return None;
    }
    let name = part.split(" =").next().unwrap_or_default();
    Some(name.trim_start_matches(['%', '?']).to_owned())
}

/// Whether this pattern can produce the message of the page.
fn fits(pattern: &str, message: &str) -> bool {
    let mut parts = pattern.split('{');
    let first = parts.next().unwrap_or_default();
    let Some(mut rest) = message.strip_prefix(first) else {
        return false;
    };
    let mut is_open = false;
    for part in parts {
        let fixed = part.split_once('}').map_or("", |(_, fixed)| fixed);
        let Some(at) = rest.find(fixed) else {
            return false;
        };
        rest = &rest[at + fixed.len()..];
        is_open = fixed.is_empty();
    }
    rest.is_empty() || is_open
}

/// Returns the text below a heading, up to the next one.
fn section<'a>(page: &'a str, heading: &str) -> &'a str {
    let (_, below) = page.split_once(&format!("{heading}\n")).expect(heading);
    below.split("\n#").next().unwrap_or_default()
}

/// Returns everything between back-ticks in the first column of a table.
fn first_column(text: &str) -> BTreeSet<&str> {
    let rows = text.lines().filter(|line| line.starts_with('|'));
    let columns = rows.filter_map(|line| line.split('|').nth(1));
    let named = columns.flat_map(|column| column.split('`').skip(1).step_by(2));
    let mut seen = BTreeMap::new();
    for name in named {
        assert!(seen.insert(name, ()).is_none(), "`{name}` appears twice");
    }
    seen.into_keys().collect()
}
