//! Medians, spreads and percentiles of small samples.

use serde::{Deserialize, Serialize};

/// A median with the extremes around it.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
pub(crate) struct Spread {
    pub(crate) median: f64,
    pub(crate) lowest: f64,
    pub(crate) highest: f64,
}

impl Spread {
    /// Computes the spread; `None` for an empty sample.
    pub(crate) fn of(sample: &[f64]) -> Option<Self> {
        let sorted = sorted(sample);
        Some(Self {
            median: median(&sorted)?,
            lowest: *sorted.first()?,
            highest: *sorted.last()?,
        })
    }
}

/// The value below which `share` of the sample lies (nearest rank); zero for an empty sample.
pub(crate) fn percentile(sample: &[f64], share: f64) -> f64 {
    let sorted = sorted(sample);
    let rank = (share * sorted.len() as f64).ceil() as usize;
    sorted
        .get(rank.saturating_sub(1))
        .or(sorted.last())
        .copied()
        .unwrap_or_default()
}

/// The greatest value; zero for an empty sample.
pub(crate) fn greatest(sample: &[f64]) -> f64 {
    sample.iter().copied().reduce(f64::max).unwrap_or_default()
}

/// Splits a sample in the order of time into `parts` slices of nearly equal length.
pub(crate) fn slices(sample: &[f64], parts: usize) -> Vec<&[f64]> {
    let bound = |part: usize| part * sample.len() / parts.max(1);
    (0..parts)
        .filter_map(|part| sample.get(bound(part)..bound(part + 1)))
        .collect()
}

fn median(sorted: &[f64]) -> Option<f64> {
    let middle = sorted.len() / 2;
    let upper = *sorted.get(middle)?;
    if sorted.len() % 2 == 1 {
        return Some(upper);
    }
    sorted
        .get(middle.checked_sub(1)?)
        .map(|lower| (lower + upper) / 2.0)
}

fn sorted(sample: &[f64]) -> Vec<f64> {
    let mut sorted = sample.to_vec();
    sorted.sort_by(f64::total_cmp);
    sorted
}

#[cfg(test)]
mod tests {
    use super::{Spread, greatest, percentile, slices};

    #[test]
    fn the_median_of_an_odd_sample_is_its_middle() {
        let spread = Spread {
            median: 3.0,
            lowest: 1.0,
            highest: 9.0,
        };
        assert_eq!(Spread::of(&[9.0, 1.0, 3.0]), Some(spread));
    }

    #[test]
    fn the_median_of_an_even_sample_is_the_mean_of_its_middles() {
        assert_eq!(
            Spread::of(&[4.0, 1.0, 2.0, 9.0]).map(|spread| spread.median),
            Some(3.0)
        );
    }

    #[test]
    fn an_empty_sample_has_no_spread() {
        assert_eq!(Spread::of(&[]), None);
        assert_eq!(percentile(&[], 0.5), 0.0);
        assert_eq!(greatest(&[]), 0.0);
    }

    #[test]
    fn percentiles_are_values_of_the_sample() {
        let sample: Vec<f64> = (1..=200).rev().map(f64::from).collect();
        assert_eq!(percentile(&sample, 0.5), 100.0);
        assert_eq!(percentile(&sample, 0.99), 198.0);
        assert_eq!(percentile(&sample, 1.0), 200.0);
        assert_eq!(percentile(&[7.0], 0.99), 7.0);
    }

    #[test]
    fn slices_cover_the_sample_in_order() {
        let sample = [1.0, 2.0, 3.0, 4.0, 5.0, 6.0, 7.0];
        let parts = slices(&sample, 3);
        assert_eq!(parts, [&sample[0..2], &sample[2..4], &sample[4..7]]);
    }
}
