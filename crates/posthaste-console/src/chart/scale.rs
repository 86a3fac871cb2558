//! The end of a scale, and its labels.

use super::Unit;
use crate::format;

/// Ends of scales of times, in seconds: they and their halves have labels in whole units.
const TIME_SCALE_ENDS: [f64; 16] = [
    0.2, 1.0, 2.0, 4.0, 10.0, 20.0, 60.0, 120.0, 240.0, 600.0, 1_200.0, 3_600.0, 7_200.0, 14_400.0,
    43_200.0, 86_400.0,
];

/// Returns the next round value at or above the largest value; it is never zero.
pub(super) fn scale_end(unit: Unit, most: f64) -> f64 {
    match unit {
        Unit::PerSecond => round_up(most.max(1.0)),
        // The label at half of the scale must be a whole number of jobs.
        Unit::Jobs => round_up(most.max(2.0)),
        Unit::Seconds => {
            let known = TIME_SCALE_ENDS.into_iter().find(|top| most <= *top);
            known.unwrap_or_else(|| round_up((most / 86_400.0).max(2.0)) * 86_400.0)
        }
    }
}

/// Rounds up to 1, 2, 4, 6 or 8 times a power of ten.
fn round_up(most: f64) -> f64 {
    let ten = 10_f64.powf(most.log10().floor());
    let steps = [1.0, 2.0, 4.0, 6.0, 8.0].map(|step| step * ten);
    let fits = |top: &f64| most <= top * (1.0 + 1e-9);
    steps.into_iter().find(fits).unwrap_or(ten * 10.0)
}

/// Formats a value for the description.
pub(super) fn value_text(unit: Unit, value: f64) -> String {
    match unit {
        Unit::PerSecond => format::rate(value),
        Unit::Jobs => format::count(value as i64),
        Unit::Seconds if value <= 0.0 => "0 s".to_owned(),
        Unit::Seconds if value < 0.95 => format::precise_duration(value),
        Unit::Seconds => format::age_with_seconds(value),
    }
}

/// Formats a value for the scale, in short.
pub(super) fn scale_label(unit: Unit, at: f64) -> String {
    match unit {
        Unit::Jobs | Unit::PerSecond if at >= 1_000_000.0 => {
            format!("{} M", format::rate(at / 1_000_000.0).replace(".0", ""))
        }
        Unit::Jobs | Unit::PerSecond if at >= 10_000.0 => {
            format!("{} k", format::rate(at / 1_000.0).replace(".0", ""))
        }
        Unit::PerSecond => format::rate(at).replace(".0", ""),
        _ => value_text(unit, at),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn scales_end_at_a_round_value_above_all_others() {
        let tops =
            [0.0, 1.0, 3.2, 41.0, 212.0, 9_000.0].map(|most| scale_end(Unit::PerSecond, most));
        assert_eq!(tops, [1.0, 1.0, 4.0, 60.0, 400.0, 10_000.0]);
        assert_eq!(scale_end(Unit::Jobs, 0.0), 2.0);
    }

    #[test]
    fn scale_labels_are_whole_numbers() {
        for most in [0.0, 3.0, 700.0, 12_345.0, 4.2e6, 9.9e9] {
            let top = scale_end(Unit::Jobs, most);
            assert!(top >= most && (top / 2.0).fract() == 0.0, "{top}");
        }
        for unit in [0.1, 5.0, 59.0, 100.0, 3_000.0, 50_000.0, 100_000.0, 6e5] {
            let top = scale_end(Unit::Seconds, unit);
            assert!(top >= unit);
            let labels = [top, top / 2.0].map(|at| scale_label(Unit::Seconds, at));
            assert!(labels.iter().all(|one| !one.contains('.')), "{labels:?}");
        }
    }

    #[test]
    fn large_numbers_are_abbreviated_on_scales() {
        let at = [0.0, 1.0, 0.5, 9_000.0, 20_000.0, 4e6].map(|at| scale_label(Unit::PerSecond, at));
        assert_eq!(at, ["0", "1", "0.5", "9,000", "20 k", "4 M"]);
        assert_eq!(scale_label(Unit::Seconds, 0.0), "0 s");
        assert_eq!(value_text(Unit::Seconds, 0.0042), "4 ms");
    }
}
