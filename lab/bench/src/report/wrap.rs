//! Wraps the lines of a page at blanks.

/// The largest width of a line.
const COLUMNS: usize = 100;

/// Wraps a text to at most 100 columns where it has blanks. Lines after the first begin with
/// `indent`.
pub(super) fn wrapped(text: &str, indent: &str) -> String {
    let (mut lines, mut width) = (String::new(), 0);
    for word in text.split(' ') {
        let length = word.chars().count();
        if width > 0 && width + 1 + length > COLUMNS {
            lines.push('\n');
            lines.push_str(indent);
            width = indent.len();
        } else if width > 0 {
            lines.push(' ');
            width += 1;
        }
        lines.push_str(word);
        width += length;
    }
    lines
}

#[cfg(test)]
mod tests {
    use super::{COLUMNS, wrapped};

    #[test]
    fn lines_break_at_blanks_and_lose_no_word() {
        let text = format!("- {}{}", "a word — ".repeat(40), "x".repeat(120));
        let lines = wrapped(&text, "  ");
        assert_eq!(lines.replace("\n  ", " "), text);
        let wide = lines.lines().filter(|line| line.chars().count() > COLUMNS);
        assert_eq!(wide.count(), 1, "only what has no blank");
        assert_eq!(wrapped("short", ""), "short");
    }
}
