//! Charts of the history of queues, from samples. Lines end where samples are missing, and a
//! description gives the same figures. No IO, no clock.

mod line;
mod scale;

use jiff::Timestamp;
use jiff::tz::TimeZone;

use crate::format;
use line::Point;

/// A sample of a queue: totals since the beginning, and the largest values since the previous
/// sample.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Sample {
    pub(crate) at: Timestamp,
    pub(crate) come: i64,
    pub(crate) done: i64,
    pub(crate) failed: i64,
    pub(crate) started: i64,
    /// Total time that started jobs had waited, in milliseconds.
    pub(crate) waited: i64,
    pub(crate) available: i64,
    pub(crate) running: i64,
    /// Time that the next job had waited, in seconds.
    pub(crate) oldest: Option<f64>,
}

/// The period of a chart.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Period {
    Hour,
    Day,
    Week,
}

impl Period {
    pub(crate) const ALL: [Self; 3] = [Self::Hour, Self::Day, Self::Week];

    /// Reads the name in an address; any other text is an hour.
    pub(crate) fn from_name(text: Option<&str>) -> Self {
        let named = |one: &Self| Some(one.name()) == text;
        Self::ALL.into_iter().find(named).unwrap_or(Self::Hour)
    }

    pub(crate) fn name(self) -> &'static str {
        match self {
            Self::Hour => "hour",
            Self::Day => "day",
            Self::Week => "week",
        }
    }

    pub(crate) fn seconds(self) -> f64 {
        match self {
            Self::Hour => 3_600.0,
            Self::Day => 86_400.0,
            Self::Week => 604_800.0,
        }
    }

    /// Returns the minutes between two of its samples.
    pub(crate) fn sample_minutes(self) -> i16 {
        match self {
            Self::Hour => 1,
            Self::Day => 10,
            Self::Week => 60,
        }
    }

    /// Returns the distance in seconds up to which samples are neighbours. At a larger distance a
    /// sample is missing.
    fn max_gap_seconds(self) -> f64 {
        f64::from(self.sample_minutes()) * 60.0 * 2.5
    }

    /// Returns the labels of its beginning, middle and end.
    fn time_labels(self, now: Timestamp) -> [String; 3] {
        let format = match self {
            Self::Hour => "%H:%M",
            Self::Day => "%a %H:%M",
            Self::Week => "%a %d %b",
        };
        let ago = |part: f64| {
            let ago = jiff::SignedDuration::from_secs_f64(self.seconds() * part);
            let at = now.checked_sub(ago).unwrap_or(now);
            at.to_zoned(TimeZone::UTC).strftime(format).to_string()
        };
        [ago(1.0), ago(0.5), format!("{} UTC", ago(0.0))]
    }
}

/// Charts of the same period.
#[derive(Clone, Debug)]
pub(crate) struct Charts {
    pub(crate) over: Period,
    /// The queue; `None` for the whole database.
    pub(crate) queue: Option<String>,
    /// The charts; empty if there are too few samples for a line.
    pub(crate) all: Vec<Chart>,
    pub(crate) times: [String; 3],
    /// A sentence about missing samples; empty if there are none.
    pub(crate) missed: String,
}

/// A chart of one scale.
#[derive(Clone, Debug)]
pub(crate) struct Chart {
    pub(crate) title: &'static str,
    /// The labels of the scale: its top, half of it, and zero.
    pub(crate) scale: [String; 3],
    pub(crate) lines: Vec<ChartLine>,
    /// The chart in words.
    pub(crate) description: String,
}

/// A line and its figures.
#[derive(Clone, Debug)]
pub(crate) struct ChartLine {
    pub(crate) name: &'static str,
    /// The CSS class of the line.
    pub(crate) class: &'static str,
    pub(crate) path: String,
    pub(crate) last: String,
    pub(crate) least: String,
    pub(crate) most: String,
}

/// The unit of a scale.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Unit {
    PerSecond,
    Jobs,
    Seconds,
}

/// A line before it is drawn: its name, its CSS class and its values.
type Series = (&'static str, &'static str, Vec<Point>);

impl Charts {
    /// Creates the charts of samples in the order of their times.
    pub(crate) fn new(
        queue: Option<&str>,
        samples: &[Sample],
        over: Period,
        now: Timestamp,
    ) -> Self {
        let all = match samples.len() {
            0 | 1 => Vec::new(),
            _ => [
                rate_series(samples, over),
                length_series(samples),
                wait_series(samples, over),
            ]
            .into_iter()
            .map(|(title, unit, series)| chart(title, unit, series, over, now))
            .collect(),
        };
        Self {
            over,
            queue: queue.map(str::to_owned),
            missed: missing_samples_text(samples, over, now),
            times: over.time_labels(now),
            all,
        }
    }

    /// Returns the address of this page with another period.
    pub(crate) fn link(&self, over: &Period) -> String {
        let over = ("over", over.name());
        match &self.queue {
            Some(queue) => {
                crate::address::with_fields("/queue", &[("queue", queue), over]) + "#charts"
            }
            None => crate::address::with_fields("/", &[over]) + "#charts",
        }
    }
}

fn chart(
    title: &'static str,
    unit: Unit,
    series: Vec<Series>,
    over: Period,
    now: Timestamp,
) -> Chart {
    let values = series.iter().flat_map(|(_, _, points)| points);
    let most = values.filter_map(|point| point.value).fold(0.0, f64::max);
    let top = scale::scale_end(unit, most);
    let frame = line::ChartRange {
        top,
        now,
        seconds: over.seconds(),
        neighbours: over.max_gap_seconds(),
    };
    let lines = series
        .into_iter()
        .map(|(name, class, points)| ChartLine {
            name,
            class,
            path: frame.path(&points),
            last: value_text(unit, points.last().and_then(|point| point.value)),
            least: value_text(unit, reduce_values(&points, f64::min)),
            most: value_text(unit, reduce_values(&points, f64::max)),
        })
        .collect::<Vec<_>>();
    let each = lines.iter().map(|line| {
        let ChartLine {
            name, least, most, ..
        } = line;
        format!("{name} {}, between {least} and {most}", line.last)
    });
    Chart {
        title,
        scale: [top, top / 2.0, 0.0].map(|value| scale::scale_label(unit, value)),
        description: format!(
            "{title}, the last {}: {}",
            over.name(),
            each.collect::<Vec<_>>().join("; ")
        ),
        lines,
    }
}

fn value_text(unit: Unit, value: Option<f64>) -> String {
    value.map_or_else(|| "–".to_owned(), |value| scale::value_text(unit, value))
}

fn reduce_values(points: &[Point], choose: fn(f64, f64) -> f64) -> Option<f64> {
    let values = points.iter().filter_map(|point| point.value);
    values.reduce(choose)
}

/// Returns values that are computed from each two successive samples.
fn values_between(
    samples: &[Sample],
    over: Period,
    of: impl Fn(&Sample, &Sample) -> Option<f64>,
) -> Vec<Point> {
    let value = |before: &Sample, next: &Sample| {
        let seconds = format::seconds_between(before.at, next.at);
        // Totals never decrease: if one did, counting began again and the values between are
        // unknown.
        let anew =
            next.done < before.done || next.failed < before.failed || next.started < before.started;
        match !anew && seconds > 0.0 && seconds <= over.max_gap_seconds() {
            true => of(before, next),
            false => None,
        }
    };
    let pairs = samples.iter().zip(samples.iter().skip(1));
    let points = pairs.map(|(before, next)| Point {
        at: next.at,
        value: value(before, next),
    });
    points.collect()
}

fn rate_series(samples: &[Sample], over: Period) -> (&'static str, Unit, Vec<Series>) {
    let of = |total: fn(&Sample) -> i64| {
        values_between(samples, over, |before, next| {
            let seconds = format::seconds_between(before.at, next.at);
            // Workers report completions up to a second late, so this total may decrease by that
            // much.
            Some((total(next) - total(before)).max(0) as f64 / seconds)
        })
    };
    let series = vec![
        ("enqueued", "come", of(|one| one.come)),
        ("done", "done", of(|one| one.done)),
        ("failed attempts", "failed", of(|one| one.failed)),
    ];
    ("Jobs a second", Unit::PerSecond, series)
}

fn length_series(samples: &[Sample]) -> (&'static str, Unit, Vec<Series>) {
    let of = |total: fn(&Sample) -> i64| {
        let points = samples.iter().map(|one| Point {
            at: one.at,
            value: Some(total(one) as f64),
        });
        points.collect()
    };
    let series = vec![
        ("available", "come", of(|one| one.available)),
        ("running", "done", of(|one| one.running)),
    ];
    ("Jobs that wait and run", Unit::Jobs, series)
}

fn wait_series(samples: &[Sample], over: Period) -> (&'static str, Unit, Vec<Series>) {
    let oldest = samples.iter().map(|one| Point {
        at: one.at,
        // If no job waits, the next one would start at once.
        value: Some(one.oldest.unwrap_or(0.0)),
    });
    let mean = values_between(samples, over, |before, next| {
        let runs = next.started - before.started;
        let waited = (next.waited - before.waited).max(0) as f64 / 1_000.0;
        (runs > 0).then(|| waited / runs as f64)
    });
    let series = vec![
        ("oldest waiting job", "come", oldest.collect()),
        ("mean wait of started jobs", "done", mean),
    ];
    ("Wait until the start", Unit::Seconds, series)
}

/// Describes for how long samples are missing.
fn missing_samples_text(samples: &[Sample], over: Period, now: Timestamp) -> String {
    let begin = jiff::SignedDuration::from_secs_f64(over.seconds());
    let begin = now.checked_sub(begin).unwrap_or(now);
    let times = samples.iter().map(|one| one.at.clamp(begin, now));
    let times: Vec<Timestamp> = [begin].into_iter().chain(times).chain([now]).collect();
    let between = times.iter().zip(times.iter().skip(1));
    let gaps = between.map(|(one, next)| format::seconds_between(*one, *next));
    let seconds: f64 = gaps
        .filter(|seconds| *seconds > over.max_gap_seconds())
        .sum();
    match seconds > 0.0 && samples.len() > 1 {
        true => format!("For {} of it no sample was taken.", format::age(seconds)),
        false => String::new(),
    }
}

#[cfg(test)]
mod tests;
