//! What arguments may look like, judged on their JSON text before anything is sent: one pass, no allocation.

/// Bytes of arguments as the database prints them.
const MAX_BYTES: usize = 1 << 20;
/// Levels of nesting.
const MAX_DEPTH: usize = 64;
/// Powers of ten: `1e131071` is a few bytes here and 128 KiB when the database prints it.
const MAX_EXPONENT: i64 = 400;

/// Checks well-formed JSON text. The error is a reason for people, without the arguments themselves.
pub(super) fn check(json: &str) -> Result<(), String> {
    let bytes = json.as_bytes();
    if bytes.first() != Some(&b'{') {
        return Err("must be a JSON object".into());
    }
    let mut depth = 0usize;
    let mut printed = 0usize;
    let mut at = 0;
    while let Some(&byte) = bytes.get(at) {
        let start = at;
        match byte {
            b'"' => at = string(bytes, at)?,
            b'-' | b'0'..=b'9' => at = number(bytes, at)?,
            b'{' | b'[' => {
                depth += 1;
                if depth > MAX_DEPTH {
                    return Err(format!("must not be nested deeper than {MAX_DEPTH} levels"));
                }
                at += 1;
            }
            b'}' | b']' => {
                depth = depth.saturating_sub(1);
                at += 1;
            }
            // The database prints a space after each of them.
            b',' | b':' => {
                printed += 1;
                at += 1;
            }
            _ => at += 1,
        }
        printed += at - start;
        if printed > MAX_BYTES {
            return Err("must be at most 1 MiB as text".into());
        }
    }
    Ok(())
}

/// Passes over a string that starts at `at`; refuses what jsonb cannot hold.
fn string(bytes: &[u8], mut at: usize) -> Result<usize, String> {
    at += 1;
    let mut high_surrogate = false;
    while let Some(&byte) = bytes.get(at) {
        let unicode = (byte == b'\\' && bytes.get(at + 1) == Some(&b'u'))
            .then(|| hex4(bytes, at + 2))
            .flatten();
        match unicode {
            Some(0) => return Err("must not contain NUL".into()),
            Some(0xD800..=0xDBFF) if !high_surrogate => {
                high_surrogate = true;
                at += 6;
                continue;
            }
            Some(0xDC00..=0xDFFF) if high_surrogate => high_surrogate = false,
            Some(0xD800..=0xDFFF) => return Err("must not contain a lone surrogate".into()),
            _ if high_surrogate => return Err("must not contain a lone surrogate".into()),
            _ => {}
        }
        at += match byte {
            b'"' => return Ok(at + 1),
            b'\\' if unicode.is_some() => 6,
            b'\\' => 2,
            _ => 1,
        };
    }
    Err("must be complete JSON".into())
}

fn hex4(bytes: &[u8], at: usize) -> Option<u32> {
    u32::from_str_radix(std::str::from_utf8(bytes.get(at..at + 4)?).ok()?, 16).ok()
}

/// Passes over a number that starts at `at`; refuses magnitudes that explode when printed.
fn number(bytes: &[u8], start: usize) -> Result<usize, String> {
    let is_part = |byte: &u8| matches!(byte, b'0'..=b'9' | b'-' | b'+' | b'.' | b'e' | b'E');
    let end = start
        + bytes[start..]
            .iter()
            .take_while(|byte| is_part(byte))
            .count();
    let text = &bytes[start..end];
    let Some(e) = text.iter().position(|byte| matches!(byte, b'e' | b'E')) else {
        return Ok(end);
    };
    let exponent = std::str::from_utf8(&text[e + 1..])
        .ok()
        .and_then(|digits| digits.parse::<i64>().ok())
        .unwrap_or(i64::MAX);
    if exponent.saturating_abs() > MAX_EXPONENT {
        return Err(format!(
            "must not contain a number beyond 1e±{MAX_EXPONENT}"
        ));
    }
    Ok(end)
}

#[cfg(test)]
mod tests {
    use super::check;

    fn nested(levels: usize) -> String {
        format!("{}1{}", "{\"a\":".repeat(levels), "}".repeat(levels))
    }

    #[test]
    fn ordinary_arguments_pass() {
        for json in [
            "{}",
            r#"{"a":[1,-2.5e10,"x\n\"y\u00e9"],"b":{"c":null}}"#,
            r#"{"clef":"\ud834\udd1e"}"#,
        ] {
            assert_eq!(check(json), Ok(()), "{json}");
        }
        assert_eq!(check(&nested(64)), Ok(()));
    }

    #[test]
    fn what_the_database_cannot_hold_is_refused_with_its_reason() {
        for (json, reason) in [
            ("[1]".to_owned(), "object"),
            ("7".to_owned(), "object"),
            (r#"{"a":"x\u0000"}"#.to_owned(), "NUL"),
            (r#"{"\u0000":1}"#.to_owned(), "NUL"),
            (r#"{"a":"\ud800"}"#.to_owned(), "surrogate"),
            (r#"{"a":"\udc00"}"#.to_owned(), "surrogate"),
            (r#"{"a":"\ud800x"}"#.to_owned(), "surrogate"),
            (r#"{"a":1e131071}"#.to_owned(), "number"),
            (r#"{"a":1E-16000}"#.to_owned(), "number"),
            (r#"{"a":1e99999999999999999999}"#.to_owned(), "number"),
            (nested(65), "nested"),
            (format!("{{\"a\":\"{}\"}}", "x".repeat(1 << 20)), "1 MiB"),
        ] {
            let error = check(&json).expect_err(reason);
            assert!(error.contains(reason), "{error} should mention {reason}");
        }
    }

    #[test]
    fn an_escaped_backslash_before_u0000_is_not_nul() {
        assert_eq!(check(r#"{"a":"\\u0000"}"#), Ok(()));
    }
}
