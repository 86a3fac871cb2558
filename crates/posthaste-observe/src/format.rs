//! Formats figures, times and names as tools print them. No IO, no clock.

use jiff::Timestamp;
use jiff::tz::TimeZone;
use posthaste::State;

/// Formats a duration in the unit that people would use.
pub fn age(seconds: f64) -> String {
    match seconds {
        ..0.95 => format!("{:.1} s", seconds.max(0.0)),
        ..59.5 => format!("{seconds:.0} s"),
        ..3_570.0 => format!("{:.0} min", seconds / 60.0),
        ..172_800.0 => format!("{:.0} h", seconds / 3_600.0),
        _ => format!("{:.0} d", seconds / 86_400.0),
    }
}

/// Formats a duration as [`age`], and adds the seconds below ten minutes.
pub fn age_with_seconds(seconds: f64) -> String {
    match (seconds / 60.0, seconds % 60.0) {
        (1.0..10.0, rest) if rest >= 1.0 => {
            format!("{:.0} min {rest:.0} s", (seconds / 60.0).floor())
        }
        _ => age(seconds),
    }
}

/// Formats the duration of a run, with milliseconds below a second.
pub fn precise_duration(seconds: f64) -> String {
    match seconds {
        ..0.001 => format!("{:.1} ms", seconds.max(0.0) * 1_000.0),
        ..1.0 => format!("{:.0} ms", seconds * 1_000.0),
        ..60.0 => format!("{seconds:.1} s"),
        _ => age(seconds),
    }
}

/// Formats a number with thousands separators.
pub fn count(number: i64) -> String {
    let digits = number.unsigned_abs().to_string();
    let mut grouped = String::new();
    for (at, digit) in digits.chars().enumerate() {
        if at > 0 && (digits.len() - at).is_multiple_of(3) {
            grouped.push(',');
        }
        grouped.push(digit);
    }
    if number < 0 {
        grouped.insert(0, '-');
    }
    grouped
}

/// Formats a number with the singular or plural word.
pub fn pluralize(number: impl TryInto<i64>, one: &str, many: &str) -> String {
    let number = number.try_into().unwrap_or(i64::MAX);
    let word = if number == 1 { one } else { many };
    format!("{} {word}", count(number))
}

/// Formats a rate per second.
pub fn rate(per_second: f64) -> String {
    match per_second {
        ..0.05 => "0".to_owned(),
        ..10.0 => format!("{per_second:.1}"),
        _ => count(per_second.round() as i64),
    }
}

/// Formats a number of bytes in binary units.
pub fn bytes(number: i64) -> String {
    let number = number as f64;
    match number {
        ..1024.0 => format!("{number} B"),
        ..1_048_576.0 => format!("{:.1} KiB", number / 1_024.0),
        ..1_073_741_824.0 => format!("{:.1} MiB", number / 1_048_576.0),
        _ => format!("{:.1} GiB", number / 1_073_741_824.0),
    }
}

/// Formats a time of day in UTC, with the date if it is not today.
pub fn time(at: Timestamp, now: Timestamp) -> String {
    let (at, now) = (at.to_zoned(TimeZone::UTC), now.to_zoned(TimeZone::UTC));
    let format = if at.date() == now.date() {
        "%H:%M:%S"
    } else {
        "%Y-%m-%d %H:%M:%S"
    };
    at.strftime(format).to_string()
}

/// Returns the seconds from one time to a later one.
pub fn seconds_between(from: Timestamp, to: Timestamp) -> f64 {
    to.duration_since(from).as_secs_f64()
}

/// Returns the name of a state, as in the database and the command line.
pub fn state_name(state: State) -> &'static str {
    match state {
        State::Scheduled => "scheduled",
        State::Available => "available",
        State::Blocked => "blocked",
        State::Running => "running",
        State::Retrying => "retrying",
        State::Awaiting => "awaiting",
        State::Quarantined => "quarantined",
        State::Completed => "completed",
        State::Dead => "dead",
        State::Discarded => "discarded",
        State::Expired => "expired",
        State::Cancelled => "cancelled",
    }
}

/// Isolates right-to-left names in a sentence (U+2068, U+2069), so that the rest keeps its
/// direction.
pub fn isolate_right_to_left(sentence: &str) -> String {
    let mut isolated = String::with_capacity(sentence.len());
    let mut rest = sentence;
    while let Some(begin) = rest.find(is_right_to_left) {
        let name = &rest[begin..];
        let ends = |one: char| one.is_ascii_alphabetic() || ".,;:".contains(one);
        let name = &name[..name.find(ends).unwrap_or(name.len())];
        let end = name.rfind(is_right_to_left).map_or(0, |at| {
            at + name[at..].chars().next().map_or(0, char::len_utf8)
        });
        isolated.push_str(&rest[..begin]);
        isolated.push('\u{2068}');
        isolated.push_str(&name[..end]);
        isolated.push('\u{2069}');
        rest = &rest[begin + end..];
    }
    isolated + rest
}

fn is_right_to_left(one: char) -> bool {
    matches!(one, '\u{590}'..='\u{8ff}' | '\u{fb1d}'..='\u{fdff}' | '\u{fe70}'..='\u{fefc}')
}

/// Marks above and below one letter; more would overlap other lines.
const MAX_MARKS_PER_LETTER: usize = 4;

/// Drops combining marks that pile up on a letter.
fn limit_marks(text: &str) -> impl Iterator<Item = char> {
    let mut marks = 0;
    text.chars().filter(move |one| {
        let is_mark = matches!(one,
            '\u{300}'..='\u{36f}' | '\u{483}'..='\u{489}' | '\u{1ab0}'..='\u{1aff}'
            | '\u{1dc0}'..='\u{1dff}' | '\u{20d0}'..='\u{20ff}' | '\u{fe20}'..='\u{fe2f}');
        marks = if is_mark { marks + 1 } else { 0 };
        marks <= MAX_MARKS_PER_LETTER
    })
}

/// Formats a text on one line, cut after `most` characters. Control and direction characters become
/// visible signs.
pub fn one_line(text: &str, most: usize) -> String {
    let mut escaped: String = limit_marks(text).take(most).map(visible_char).collect();
    if text.chars().nth(most).is_some() {
        escaped.push('…');
    }
    escaped
}

/// Formats a text as [`one_line`], and keeps its line breaks.
pub fn several_lines(text: &str, most: usize) -> String {
    let keep = |one: char| if one == '\n' { one } else { visible_char(one) };
    let mut escaped: String = limit_marks(text).take(most).map(keep).collect();
    if text.chars().nth(most).is_some() {
        escaped.push('…');
    }
    escaped
}

/// Replaces control and direction characters by visible signs.
fn visible_char(one: char) -> char {
    match one {
        '\t' => ' ',
        '\0'..='\u{1f}' => char::from_u32(u32::from(one) + 0x2400).unwrap_or('·'),
        '\u{7f}'..='\u{9f}' | '\u{200b}'..='\u{200f}' | '\u{2028}'..='\u{202e}' => '·',
        '\u{2066}'..='\u{2069}' | '\u{feff}' => '·',
        _ => one,
    }
}

/// Returns whether a terminal interprets it instead of showing it, or it changes the direction of
/// text.
fn is_terminal_control(letter: char) -> bool {
    letter.is_control() || matches!(letter, '\u{202a}'..='\u{202e}' | '\u{2066}'..='\u{2069}')
}

/// Escapes a text of several lines that may quote others, so that nothing in it controls a
/// terminal.
pub fn escape_control(text: &str) -> String {
    let lines = text.split('\n').map(escape_name);
    lines.collect::<Vec<_>>().join("\n")
}

/// Escapes a name, an error or a tag from outside on one line: characters that control a terminal
/// are replaced by escapes.
pub fn escape_name(name: &str) -> String {
    let mut shown = String::with_capacity(name.len());
    for letter in name.chars() {
        match is_terminal_control(letter) {
            true => shown.extend(letter.escape_default()),
            false => shown.push(letter),
        }
    }
    shown
}

/// Escapes control and direction characters that a JSON encoder leaves as they are.
pub fn escape_controls_in_json(line: &str) -> String {
    let mut shown = String::with_capacity(line.len());
    for letter in line.chars() {
        match is_terminal_control(letter) {
            true => shown.push_str(&format!("\\u{:04x}", u32::from(letter))),
            false => shown.push(letter),
        }
    }
    shown
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ages_use_a_readable_unit() {
        let texts = [-1.0, 0.24, 41.0, 720.0, 7_200.0, 864_000.0].map(age);
        assert_eq!(texts, ["0.0 s", "0.2 s", "41 s", "12 min", "2 h", "10 d"]);
    }

    #[test]
    fn ages_below_ten_minutes_include_seconds() {
        let texts = [41.0, 120.0, 134.2, 720.0].map(age_with_seconds);
        assert_eq!(texts, ["41 s", "2 min", "2 min 14 s", "12 min"]);
    }

    #[test]
    fn numbers_have_thousands_separators() {
        let texts = [0, 12, 999, 1_000, 18_402, 1_234_567, -1_000].map(count);
        assert_eq!(
            texts,
            ["0", "12", "999", "1,000", "18,402", "1,234,567", "-1,000"]
        );
    }

    #[test]
    fn control_characters_are_displayed_escaped() {
        assert_eq!(one_line("a\u{1b}[31m\r\nb\u{202e}c\0", 100), "a␛[31m␍␊b·c␀");
        assert_eq!(one_line("abcdef", 3), "abc…");
        assert_eq!(several_lines("a\n\u{7}b", 9), "a\n␇b");
    }

    #[test]
    fn right_to_left_names_are_isolated_and_marks_do_not_pile_up() {
        let name = "\u{631}\u{633}\u{627} \u{626}\u{644}";
        let sentence = format!("Queue {name}: 300 jobs, {name}");
        let isolated = isolate_right_to_left(&sentence);
        let name = format!("\u{2068}{name}\u{2069}");
        assert_eq!(isolated, format!("Queue {name}: 300 jobs, {name}"));
        assert_eq!(super::isolate_right_to_left("Queue mail"), "Queue mail");
        let piled = format!("a{}b", "\u{300}".repeat(50));
        assert_eq!(one_line(&piled, 100), format!("a{}b", "\u{300}".repeat(4)));
    }

    #[test]
    fn times_of_another_day_include_the_date() {
        let at: Timestamp = "2026-11-24T12:04:31Z".parse().unwrap();
        let next: Timestamp = "2026-11-25T12:04:31Z".parse().unwrap();
        assert_eq!(time(at, at), "12:04:31");
        assert_eq!(time(at, next), "2026-11-24 12:04:31");
    }

    #[test]
    fn control_characters_are_escaped_for_terminals() {
        let name = "a\u{1b}[2J\nb\u{9b}c\u{202e}d";
        assert_eq!(escape_name(name), r"a\u{1b}[2J\nb\u{9b}c\u{202e}d");
        assert_eq!(escape_control("one\ntwo\r"), "one\ntwo\\r");
        let json = escape_controls_in_json(&serde_json::to_string(name).unwrap());
        assert!(!json.chars().any(is_terminal_control), "{json}");
        assert_eq!(serde_json::from_str::<String>(&json).unwrap(), name);
    }
}
