//! The charts of a report: all algorithms on one time axis.

use serde::Serialize;

use super::Played;
use crate::degrade::figures::shown;
use crate::degrade::sample::PERIOD;
use crate::degrade::series::{SERIES, Series};

/// The largest number of points; wider screens cannot show more.
const MOST_POINTS: usize = 1_200;

/// The number of rows of a chart's table.
const ROWS: usize = 24;

/// The data for the page's script.
#[derive(Debug, PartialEq, Serialize)]
pub(super) struct Charts {
    names: Vec<String>,
    /// The time of all points, in seconds.
    at: Vec<f64>,
    /// The periods in which something held the horizon, in seconds.
    holds: Vec<(f64, f64)>,
    charts: Vec<Chart>,
}

#[derive(Debug, PartialEq, Serialize)]
struct Chart {
    title: &'static str,
    log: bool,
    /// One per algorithm, with one value per point.
    series: Vec<Vec<Option<f64>>>,
}

/// The numbers of one chart.
pub(super) struct Table {
    pub(super) title: &'static str,
    pub(super) names: Vec<String>,
    pub(super) rows: Vec<(String, Vec<String>)>,
}

impl Charts {
    /// Draws the charts of all runs. Points that are too close together are replaced by the highest
    /// of them.
    pub(super) fn draw(played: &[Played]) -> Self {
        let period = PERIOD.as_secs_f64();
        let samples = played.iter().flat_map(|one| &one.outcome.samples);
        let last = samples.map(|sample| sample.at_s).fold(0.0, f64::max);
        let slots = (last / period).round() as usize + 1;
        let width = slots.div_ceil(MOST_POINTS).max(1);
        let points = slots.div_ceil(width);
        let step = period * width as f64;
        let values = |one: &Played, series: &Series| {
            let mut values = vec![None; points];
            for sample in &one.outcome.samples {
                let slot = (sample.at_s / period).round() as usize / width;
                if let (Some(place), Some(value)) = (values.get_mut(slot), (series.read)(sample)) {
                    let highest: f64 = place.unwrap_or(value);
                    *place = Some(highest.max(value));
                }
            }
            values
        };
        let mut holds: Vec<(f64, f64)> = Vec::new();
        for hold in played.first().iter().flat_map(|one| &one.outcome.holds) {
            holds.push((hold.from_s, hold.to_s));
        }
        Self {
            names: played
                .iter()
                .map(|one| one.outcome.algorithm.clone())
                .collect(),
            at: (0..points).map(|point| point as f64 * step).collect(),
            holds,
            charts: SERIES
                .iter()
                .map(|of| Chart {
                    title: of.title,
                    log: of.is_log,
                    series: played.iter().map(|one| values(one, of)).collect(),
                })
                .collect(),
        }
    }

    /// A few points of each chart.
    pub(super) fn tables(&self) -> Vec<Table> {
        let stride = self.at.len().div_ceil(ROWS).max(1);
        let table = |chart: &Chart| Table {
            title: chart.title,
            names: self.names.clone(),
            rows: self
                .at
                .iter()
                .enumerate()
                .step_by(stride)
                .map(|(point, at)| {
                    let cell = |series: &Vec<Option<f64>>| {
                        // A point between two samples shows the earlier one.
                        let known = series.iter().take(point + 1).rev().flatten();
                        shown(known.copied().next())
                    };
                    (at.to_string(), chart.series.iter().map(cell).collect())
                })
                .collect(),
        };
        self.charts.iter().map(table).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::{Charts, MOST_POINTS};
    use crate::degrade::figures::tests::run;
    use crate::degrade::report::Played;

    fn played(seconds: f64) -> Played {
        let mut outcome = run(|at, sample| {
            sample.at_s = at * seconds / 100.0;
            sample.waiting = at as u64;
        });
        outcome.algorithm = "</script><b>mine".to_owned();
        Played {
            outcome,
            figures: None,
            judgements: Vec::new(),
            source: "",
        }
    }

    #[test]
    fn long_runs_are_downsampled_and_keep_their_peaks() {
        let charts = Charts::draw(&[played(5_000.0), played(50.0)]);
        assert!(charts.at.len() <= MOST_POINTS);
        let waiting = &charts.charts[0].series;
        let highest = |series: &[Option<f64>]| series.iter().flatten().fold(0.0, |a, b| b.max(a));
        assert_eq!((highest(&waiting[0]), highest(&waiting[1])), (99.0, 99.0));
        assert_eq!(charts.holds, [(20.0, 80.0)]);
        for table in charts.tables() {
            assert!(table.rows.len() <= 24 && table.rows.len() > 12);
        }
    }
}
