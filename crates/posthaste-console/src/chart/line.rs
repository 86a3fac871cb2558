//! Values as the path of an SVG line.

use std::fmt::Write;

use jiff::Timestamp;

use crate::format;

/// The size of a chart's drawing, which is stretched to its place on the page.
const WIDTH: f64 = 600.0;
const HEIGHT: f64 = 100.0;

/// A value at a time, if one is known.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) struct Point {
    pub(super) at: Timestamp,
    pub(super) value: Option<f64>,
}

/// The range of a chart: its highest value, and the seconds before its last time.
pub(super) struct ChartRange {
    pub(super) top: f64,
    pub(super) now: Timestamp,
    pub(super) seconds: f64,
    /// The distance in seconds up to which points are joined.
    pub(super) neighbours: f64,
}

impl ChartRange {
    /// Returns the path through points in the order of their times. A point without a neighbour is
    /// a dot.
    pub(super) fn path(&self, points: &[Point]) -> String {
        let mut path = String::new();
        let mut last: Option<Timestamp> = None;
        let mut is_alone = false;
        for point in points {
            let Some((x, y)) = point
                .value
                .and_then(|value| self.coordinates(point.at, value))
            else {
                end_path(&mut path, is_alone);
                (last, is_alone) = (None, false);
                continue;
            };
            let is_joined =
                last.is_some_and(|last| format::seconds_between(last, point.at) <= self.neighbours);
            if !is_joined {
                end_path(&mut path, is_alone);
            }
            is_alone = !is_joined;
            last = Some(point.at);
            // Writing to a string never fails.
            let _ = write!(path, "{}{x:.1} {y:.1}", if is_joined { 'L' } else { 'M' });
        }
        end_path(&mut path, is_alone);
        path
    }

    /// Returns the coordinates of a value; `None` before the chart begins.
    fn coordinates(&self, at: Timestamp, value: f64) -> Option<(f64, f64)> {
        let ago = format::seconds_between(at, self.now).max(0.0);
        let part = (value / self.top).clamp(0.0, 1.0);
        let x = WIDTH - ago / self.seconds * WIDTH;
        (ago <= self.seconds && part.is_finite()).then_some((x, HEIGHT - part * HEIGHT))
    }
}

/// Ends a path; a line without length is drawn as a dot.
fn end_path(path: &mut String, is_alone: bool) {
    if is_alone {
        path.push_str("h0");
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn path(points: &[(i64, Option<f64>)]) -> String {
        let frame = ChartRange {
            top: 10.0,
            now: Timestamp::from_second(600).unwrap(),
            seconds: 600.0,
            neighbours: 150.0,
        };
        let points = points.iter().map(|(at, value)| Point {
            at: Timestamp::from_second(*at).unwrap(),
            value: *value,
        });
        frame.path(&points.collect::<Vec<_>>())
    }

    #[test]
    fn lines_run_from_left_to_right_and_up() {
        assert_eq!(path(&[]), "");
        let drawn = path(&[(0, Some(0.0)), (60, Some(5.0)), (120, Some(10.0))]);
        assert_eq!(drawn, "M0.0 100.0L60.0 50.0L120.0 0.0");
    }

    #[test]
    fn points_around_a_missing_sample_are_not_joined() {
        let drawn = path(&[(0, Some(1.0)), (60, Some(1.0)), (300, Some(2.0))]);
        assert_eq!(drawn, "M0.0 90.0L60.0 90.0M300.0 80.0h0");
        let drawn = path(&[(0, Some(1.0)), (300, Some(2.0)), (360, Some(2.0))]);
        assert_eq!(drawn, "M0.0 90.0h0M300.0 80.0L360.0 80.0");
    }

    #[test]
    fn unknown_values_are_not_drawn() {
        let drawn = path(&[(0, Some(1.0)), (60, None), (120, Some(1.0)), (180, None)]);
        assert_eq!(drawn, "M0.0 90.0h0M120.0 90.0h0");
        assert_eq!(path(&[(60, None)]), "");
        assert_eq!(path(&[(60, Some(f64::NAN))]), "");
    }

    #[test]
    fn lines_stay_within_the_chart() {
        assert_eq!(path(&[(-60, Some(1.0))]), "");
        let drawn = path(&[(600, Some(99.0)), (660, Some(-1.0))]);
        assert_eq!(drawn, "M600.0 0.0L600.0 100.0");
    }
}
