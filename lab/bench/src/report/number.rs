//! Formats numbers for readers.

/// Formats large numbers without decimals and in groups of three, small ones with as many decimals
/// as they need.
pub(super) fn number(value: f64) -> String {
    let decimals = match value.abs() {
        magnitude if magnitude == 0.0 || magnitude >= 100.0 => 0,
        magnitude if magnitude >= 10.0 => 1,
        magnitude if magnitude >= 0.01 => 2,
        _ => 4,
    };
    let plain = format!("{value:.decimals$}");
    let (whole, fraction) = plain
        .split_once('.')
        .map_or((plain.as_str(), ""), |(whole, fraction)| (whole, fraction));
    let (sign, digits) = whole
        .strip_prefix('-')
        .map_or(("", whole), |digits| ("-", digits));
    let mut grouped = String::new();
    for (place, digit) in digits.chars().enumerate() {
        if place > 0 && (digits.len() - place).is_multiple_of(3) {
            grouped.push(',');
        }
        grouped.push(digit);
    }
    if fraction.is_empty() {
        format!("{sign}{grouped}")
    } else {
        format!("{sign}{grouped}.{fraction}")
    }
}

#[cfg(test)]
mod tests {
    use super::number;

    #[test]
    fn numbers_are_short_and_grouped() {
        let written = [
            1_234_567.8,
            123.4,
            12.34,
            1.234,
            0.01234,
            0.001234,
            0.0,
            -4321.0,
        ]
        .map(number);
        assert_eq!(
            written,
            [
                "1,234,568",
                "123",
                "12.3",
                "1.23",
                "0.01",
                "0.0012",
                "0",
                "-4,321"
            ]
        );
    }
}
