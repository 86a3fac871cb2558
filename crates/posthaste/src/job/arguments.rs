//! Validates arguments on their JSON text before anything is sent, in one pass and without
//! allocation.

/// The largest arguments, in bytes as the database prints them.
const MAX_BYTES: usize = 1 << 20;
/// The most levels of nesting.
const MAX_DEPTH: usize = 64;
/// The largest exponent of ten: `1e131071` is a few bytes here and 128 KiB when the database prints
/// it.
const MAX_EXPONENT: u64 = 400;
/// The most digits after the decimal point that the database's `numeric` can store.
const MAX_DECIMALS: usize = 16_383;

/// Checks well-formed JSON text, and returns the most bytes that the database prints for it. The
/// error is a reason for people and does not contain the arguments.
pub(super) fn check(json: &str) -> Result<i32, String> {
    let bytes = json.as_bytes();
    if bytes.first() != Some(&b'{') {
        return Err("must be a JSON object".into());
    }
    let mut depth = 0usize;
    let mut printed = 0usize;
    let mut at = 0;
    while let Some(&byte) = bytes.get(at) {
        let mut counted = at;
        match byte {
            b'"' => at = skip_string(bytes, at)?,
            b'-' | b'0'..=b'9' => {
                let number = skip_number(bytes, at)?;
                printed += number.printed;
                at = number.end;
                counted = at;
            }
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
        printed += at - counted;
        if printed > MAX_BYTES {
            return Err("must be at most 1 MiB as text".into());
        }
    }
    i32::try_from(printed).map_err(|error| error.to_string())
}

/// Skips a string that starts at `at`. Rejects strings that jsonb cannot store.
fn skip_string(bytes: &[u8], mut at: usize) -> Result<usize, String> {
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

/// The extent of a number in the text.
struct NumberExtent {
    /// The place after the number.
    end: usize,
    /// Bytes of the number as the database prints it, without an exponent: 401 for `1e400`.
    printed: usize,
}

/// Skips a number that starts at `start`. Rejects numbers that are too long when printed, and
/// numbers that the database cannot store.
fn skip_number(bytes: &[u8], start: usize) -> Result<NumberExtent, String> {
    let is_part = |byte: &&u8| matches!(byte, b'0'..=b'9' | b'-' | b'+' | b'.' | b'e' | b'E');
    let text = &bytes[start..];
    let text = &text[..text.iter().take_while(is_part).count()];
    let e = text.iter().position(|byte| matches!(byte, b'e' | b'E'));
    let exponent = e.map_or(Some(0), |e| parse_digits(&text[e + 1..]));
    let Some(exponent) = exponent.filter(|exponent| exponent.unsigned_abs() <= MAX_EXPONENT) else {
        return Err(number_too_large());
    };
    Ok(NumberExtent {
        end: start + text.len(),
        printed: printed_length(&text[..e.unwrap_or(text.len())], exponent)?,
    })
}

/// Returns the bytes of a number when it is printed without its exponent.
fn printed_length(mantissa: &[u8], exponent: i64) -> Result<usize, String> {
    let sign = usize::from(mantissa.first() == Some(&b'-'));
    let point = mantissa.iter().position(|byte| *byte == b'.');
    let whole = point.unwrap_or(mantissa.len()) - sign;
    let decimals = point.map_or(0, |point| mantissa.len() - point - 1);
    let decimals = usize::try_from(to_i64(decimals) - exponent).unwrap_or(0);
    if decimals > MAX_DECIMALS {
        return Err(format!(
            "must not contain a number with more than {MAX_DECIMALS} decimals"
        ));
    }
    let digits = || mantissa.iter().filter(|byte| byte.is_ascii_digit());
    let mut before_point = 0;
    // Zero has no first digit.
    if let Some(zeros) = digits().position(|digit| *digit != b'0') {
        before_point = to_i64(whole) - to_i64(zeros) + exponent;
        let power = (before_point - 1).unsigned_abs();
        let is_one = || digits().filter(|digit| **digit != b'0').eq(b"1");
        let is_more = before_point > 0 && power == MAX_EXPONENT && !is_one();
        if power > MAX_EXPONENT || is_more {
            return Err(number_too_large());
        }
    }
    let before_point = usize::try_from(before_point).unwrap_or(0).max(1);
    Ok(sign + before_point + usize::from(decimals > 0) + decimals)
}

fn number_too_large() -> String {
    format!("must not contain a number beyond 1e±{MAX_EXPONENT}")
}

fn parse_digits(digits: &[u8]) -> Option<i64> {
    std::str::from_utf8(digits).ok()?.parse().ok()
}

/// Converts a length; the texts here are never as long as the maximum.
fn to_i64(length: usize) -> i64 {
    i64::try_from(length).unwrap_or(i64::MAX)
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
            assert!(check(json).is_ok(), "{json}");
        }
        assert!(check(&nested(64)).is_ok());
    }

    #[test]
    fn rejects_arguments_that_the_database_cannot_store() {
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
    fn numbers_are_measured_as_postgres_prints_them() {
        for (text, printed) in [
            ("0", 1),
            ("-7", 2),
            ("-1.50", 5),
            ("1e400", 401),
            ("1.5e3", 4),
            ("12.345e1", 6),
            ("1e-400", 402),
            ("0.001e3", 1),
            ("0.5", 3),
            ("-0.05E+1", 4),
            ("0e400", 1),
            ("0e-3", 5),
        ] {
            let number = super::skip_number(text.as_bytes(), 0).map(|one| (one.end, one.printed));
            assert_eq!(number, Ok((text.len(), printed)), "{text}");
        }
    }

    #[test]
    fn rejects_numbers_that_expand_beyond_the_limit() {
        let numbers = |count: usize| format!("{{\"a\":[{}1]}}", "1e400,".repeat(count));
        assert!(check(&numbers(2_600)).is_ok());
        let error = check(&numbers(2_700)).expect_err("1.08 MB");
        assert!(error.contains("1 MiB"), "{error}");
    }

    #[test]
    fn numbers_are_bounded_by_value_not_by_spelling() {
        let zeros = |count: usize| "0".repeat(count);
        for fine in [
            format!("1{}", zeros(400)),
            format!("0.{}1", zeros(399)),
            format!("0.5{}", zeros(16_382)),
            format!("1{}e-400", zeros(800)),
        ] {
            assert!(check(&format!("{{\"a\":{fine}}}")).is_ok(), "{fine}");
        }
        for (large, reason) in [
            (format!("1{}", zeros(131_072)), "beyond"),
            (format!("1{}e400", zeros(400)), "beyond"),
            ("1.1e400".to_owned(), "beyond"),
            ("2e400".to_owned(), "beyond"),
            ("0.1e-400".to_owned(), "beyond"),
            (format!("0.5{}", zeros(16_383)), "decimals"),
            (format!("0.5{}e-400", zeros(16_000)), "decimals"),
        ] {
            let error = check(&format!("{{\"a\":{large}}}")).expect_err(reason);
            assert!(error.contains(reason), "{error}");
        }
    }

    #[test]
    fn an_escaped_backslash_before_u0000_is_not_nul() {
        assert!(check(r#"{"a":"\\u0000"}"#).is_ok());
    }
}
