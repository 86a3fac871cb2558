//! Repeats parts of the schema for each slot; the source has them for one slot (sql/README.md).
//! Pure.

/// Follows a number that is the slot's and not part of a name.
const SLOT_MARK: &str = " /*slot*/";

/// Returns the text with each part between `-- repeat: slots 0..5` and `-- end` once per slot.
pub(crate) fn expand_slots(text: &str) -> String {
    let mut whole = String::with_capacity(3 * text.len());
    let mut lines = text.lines();
    while let Some(line) = lines.next() {
        let Some((first, last)) = parse_slots(line) else {
            push_line(&mut whole, line);
            continue;
        };
        let part: Vec<&str> = lines
            .by_ref()
            .take_while(|line| line.trim() != "-- end")
            .collect();
        for slot in first..=last {
            for line in &part {
                push_line(&mut whole, &line_for_slot(line, first, slot));
            }
        }
    }
    whole
}

fn push_line(text: &mut String, line: &str) {
    text.push_str(line);
    text.push('\n');
}

/// Parses the first and the last slot of a head line.
fn parse_slots(line: &str) -> Option<(u32, u32)> {
    let (_, range) = line.trim().strip_prefix("-- repeat: ")?.split_once(' ')?;
    let (first, last) = range.split_once("..")?;
    Some((first.parse().ok()?, last.parse().ok()?))
}

/// Converts a line from the first slot to this one. A number in a name is the slot's if it follows
/// a letter and `_`, and no letter or digit follows: `ready_0`, `ready_0_lane`.
fn line_for_slot(line: &str, first: u32, slot: u32) -> String {
    let in_names = format!("_{first}");
    let mut made = String::with_capacity(line.len());
    let mut rest = line;
    while let Some(at) = rest.find(&in_names) {
        let (before, after) = (&rest[..at], &rest[at + in_names.len()..]);
        made.push_str(before);
        let is_part = before.ends_with(|one: char| one.is_ascii_lowercase())
            && !after.starts_with(|one: char| one.is_ascii_alphanumeric());
        if is_part {
            made.push_str(&format!("_{slot}"));
        } else {
            made.push_str(&in_names);
        }
        rest = after;
    }
    made.push_str(rest);
    made.replace(&format!("{first}{SLOT_MARK}"), &slot.to_string())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn text_without_a_heading_is_kept() {
        let text = "-- repeat this, please\nSELECT 0 AS ready_0;\n-- end of it\n";
        assert_eq!(expand_slots(text), text);
    }

    #[test]
    fn parts_are_repeated_per_slot_in_order() {
        let text = "a\n-- repeat: slots 6..7\nb_6;\nc;\n-- end\nd_6\n";
        assert_eq!(expand_slots(text), "a\nb_6;\nc;\nb_7;\nc;\nd_6\n");
    }

    #[test]
    fn a_branch_within_a_function_is_repeated_too() {
        let text = "CASE k\n  -- repeat: slots 0..1\n  WHEN 0 /*slot*/ THEN x_0(0);\n  -- end\nEND";
        let made = "CASE k\n  WHEN 0 THEN x_0(0);\n  WHEN 1 THEN x_1(0);\nEND\n";
        assert_eq!(expand_slots(text), made);
    }

    #[test]
    fn only_trailing_or_marked_numbers_are_slot_numbers() {
        let cases = [
            ("ready_0", "ready_3"),
            ("ready_0_lane (x)", "ready_3_lane (x)"),
            ("'posthaste.ready_0'", "'posthaste.ready_3'"),
            ("a_0, b_0", "a_3, b_3"),
            ("a_01", "a_01"),
            ("a_0x", "a_0x"),
            ("1_0", "1_0"),
            ("a_1", "a_1"),
            ("0", "0"),
            ("x = 0 /*slot*/ AND y = 0", "x = 3 AND y = 0"),
        ];
        for (written, made) in cases {
            assert_eq!(line_for_slot(written, 0, 3), made);
        }
    }

    #[test]
    fn numbers_of_several_digits_are_counted_up() {
        let text = "-- repeat: cells 9..10\npace_9;\n-- end\n";
        assert_eq!(expand_slots(text), "pace_9;\npace_10;\n");
    }
}
