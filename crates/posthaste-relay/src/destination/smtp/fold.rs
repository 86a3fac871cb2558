//! The lines of a mail's headers, limited to the length that a mail may have (RFC 5322, 2.1.1).
//! Pure.

/// The length at which lines are folded, if they can be.
const PREFERRED_LINE_LENGTH: usize = 78;
/// The longest line that servers accept.
const MAX_LINE_LENGTH: usize = 998;
const LINE_END: &[u8] = b"\r\n";

/// Folds long lines of a mail's headers at blanks; the error names the first header that has no
/// blank where it needs one.
pub(super) fn fold_headers(mail: &[u8]) -> Result<Vec<u8>, String> {
    let body = mail.windows(4).position(|four| four == b"\r\n\r\n");
    let (headers, body) = mail.split_at(body.unwrap_or(mail.len()));
    let mut folded = Vec::with_capacity(mail.len() + 64);
    let mut rest = headers;
    let mut name = &[][..];
    while !rest.is_empty() {
        let end = rest.windows(2).position(|two| two == LINE_END);
        let (line, more) = rest.split_at(end.unwrap_or(rest.len()));
        if !line.starts_with(b" ") {
            name = line.split(|byte| *byte == b':').next().unwrap_or_default();
        }
        if !fold_line(line, &mut folded) {
            let name = String::from_utf8_lossy(name).to_lowercase();
            return Err(format!(
                "the header {name:?} has more than {MAX_LINE_LENGTH} bytes without a blank"
            ));
        }
        let break_after = more.len().min(LINE_END.len());
        folded.extend_from_slice(&more[..break_after]);
        rest = &more[break_after..];
    }
    folded.extend_from_slice(body);
    Ok(folded)
}

/// Adds a line, folded if it is long; returns false if a part of it remains too long.
fn fold_line(line: &[u8], folded: &mut Vec<u8>) -> bool {
    let mut line = line;
    while let Some(at) = Some(line)
        .filter(|line| line.len() > PREFERRED_LINE_LENGTH)
        .and_then(break_position)
    {
        if at > MAX_LINE_LENGTH {
            return false;
        }
        folded.extend_from_slice(&line[..at]);
        folded.extend_from_slice(LINE_END);
        line = &line[at..];
    }
    folded.extend_from_slice(line);
    line.len() <= MAX_LINE_LENGTH
}

/// Returns the last blank within the wanted length, else the first after it, that separates two
/// words of the header's value.
fn break_position(line: &[u8]) -> Option<usize> {
    let name = match line.first()? {
        b' ' => 0,
        _ => line.iter().position(|byte| *byte == b':')? + 1,
    };
    let value = name + line[name..].iter().position(|byte| *byte != b' ')?;
    let is_break = |at: &usize| line[*at] == b' ' && line[at + 1] != b' ';
    let mut breaks = (value..line.len() - 1).filter(is_break);
    let first = breaks.next()?;
    breaks
        .take_while(|at| *at <= PREFERRED_LINE_LENGTH)
        .last()
        .or(Some(first))
}

#[cfg(test)]
mod tests {
    use super::{MAX_LINE_LENGTH, PREFERRED_LINE_LENGTH, fold_headers};

    fn folded_headers(mail: &str) -> String {
        String::from_utf8(fold_headers(mail.as_bytes()).expect("folded")).expect("a text")
    }

    #[test]
    fn folds_long_headers_at_spaces_only() {
        let addresses: Vec<String> = (0..60).map(|n| format!("user{n}@example.com")).collect();
        let to = format!("To: {}", addresses.join(", "));
        let body = "x ".repeat(1_000);
        let mail = folded_headers(&format!("Subject: short\r\n{to}\r\nDate: d\r\n\r\n{body}"));
        let (headers, rest) = mail.split_once("\r\n\r\n").expect("a body");
        assert_eq!(rest, body);
        assert!(
            headers
                .lines()
                .all(|line| line.len() <= PREFERRED_LINE_LENGTH),
            "{headers}"
        );
        let unfolded = headers.replace("\r\n ", " ");
        assert_eq!(unfolded, format!("Subject: short\r\n{to}\r\nDate: d"));
        assert!(headers.contains("To: user0@example.com, "), "{headers}");
    }

    #[test]
    fn keeps_spaces_and_overlong_words() {
        let long = "w".repeat(500);
        let line = format!("X-A: a  b {long} c   {long}  d");
        assert_eq!(folded_headers(&line).replace("\r\n", ""), line);
        assert!(
            folded_headers(&line)
                .lines()
                .all(|line| line.len() <= 520 && !line.trim().is_empty())
        );
        let alone = format!("X-A: {long}");
        assert_eq!(folded_headers(&alone), alone, "its name stays with it");
        assert_eq!(folded_headers(""), "");
    }

    #[test]
    fn names_a_header_that_cannot_be_folded() {
        let mail = format!("Subject: a\r\n {}\r\nTo: b", "w".repeat(MAX_LINE_LENGTH));
        let error = fold_headers(mail.as_bytes()).unwrap_err();
        assert!(
            error.starts_with("the header \"subject\" has more than 998"),
            "{error}"
        );
    }
}
