//! Places in the write-ahead log.

use std::fmt;
use std::str::FromStr;

/// A place in the write-ahead log.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Lsn(pub u64);

impl fmt::Display for Lsn {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:X}/{:X}", self.0 >> 32, self.0 & 0xffff_ffff)
    }
}

impl FromStr for Lsn {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let halves = text.split_once('/').and_then(|(high, low)| {
            let half = |digits: &str| {
                let fits = (1..=8).contains(&digits.len()) && !digits.starts_with('+');
                fits.then(|| u64::from_str_radix(digits, 16).ok()).flatten()
            };
            Some(half(high)? << 32 | half(low)?)
        });
        halves
            .map(Self)
            .ok_or_else(|| format!("{text:?} is not a position in the write-ahead log"))
    }
}

#[cfg(test)]
mod tests {
    use super::Lsn;

    #[test]
    fn log_positions_round_trip() {
        for number in [0, 1, 0xffff_ffff, 0x1_0000_0000, u64::MAX] {
            let text = Lsn(number).to_string();
            assert_eq!(text.parse(), Ok(Lsn(number)), "{text}");
        }
        assert_eq!(Lsn(0x16_b374_d848).to_string(), "16/B374D848");
    }

    #[test]
    fn rejects_malformed_positions() {
        for text in [
            "",
            "0",
            "/",
            "0/",
            "/0",
            "0/0/0",
            "0/+1",
            "x/0",
            "0/123456789",
        ] {
            assert!(text.parse::<Lsn>().is_err(), "{text}");
        }
    }
}
