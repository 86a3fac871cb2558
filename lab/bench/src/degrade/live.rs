//! Shows a run in the terminal: the charts of its report, with all algorithms overlaid. Without a
//! terminal, prints a line every ten seconds.

use std::io::{IsTerminal, Stderr, stderr};

use anyhow::Result;
use ratatui::backend::CrosstermBackend;
use ratatui::layout::{Constraint, Layout, Rect};
use ratatui::style::{Color, Style, Stylize};
use ratatui::symbols::Marker;
use ratatui::text::Line;
use ratatui::widgets::{Axis, Block, Chart, Dataset, GraphType, Paragraph};
use ratatui::{Frame, Terminal, TerminalOptions, Viewport};

use super::figures::shown;
use super::sample::Sample;
use super::series::{SERIES, Series};

/// Seconds between two lines.
const LINE_EVERY: f64 = 10.0;

/// The height of the charts in lines.
const HEIGHT: u16 = 26;

const COLORS: [Color; 8] = [
    Color::Cyan,
    Color::Yellow,
    Color::Green,
    Color::Magenta,
    Color::Red,
    Color::Blue,
    Color::LightCyan,
    Color::LightYellow,
];

/// The display of a run.
pub(crate) enum LiveView {
    Charts(Box<Charts>),
    /// With the time of the next line, in seconds of the run.
    Lines(f64),
}

/// Charts of all samples until now.
pub(crate) struct Charts {
    terminal: Terminal<CrosstermBackend<Stderr>>,
    history: History,
}

/// The samples of all algorithms until now.
#[derive(Debug, Default)]
pub(crate) struct History {
    runs: Vec<Run>,
    last: Option<Sample>,
}

/// One algorithm: seconds and values for each chart.
#[derive(Debug)]
struct Run {
    name: String,
    points: [Vec<(f64, f64)>; SERIES.len()],
}

impl LiveView {
    /// Opens charts if the terminal supports them, else lines.
    pub(crate) fn open() -> Self {
        let lines = Self::Lines(0.0);
        if !stderr().is_terminal() {
            return lines;
        }
        let options = TerminalOptions {
            viewport: Viewport::Inline(HEIGHT),
        };
        match Terminal::with_options(CrosstermBackend::new(stderr()), options) {
            Ok(terminal) => Self::Charts(Box::new(Charts {
                terminal,
                history: History::default(),
            })),
            Err(_) => lines,
        }
    }

    /// Shows one more sample.
    pub(crate) fn show(&mut self, sample: &Sample) -> Result<()> {
        match self {
            Self::Lines(next) => {
                // The time restarts with another algorithm.
                if sample.at_s >= *next || sample.at_s + LINE_EVERY < *next {
                    eprintln!("  {}", sample.line());
                    *next = sample.at_s + LINE_EVERY;
                }
            }
            Self::Charts(charts) => {
                charts.history.add(sample);
                charts.terminal.draw(|frame| charts.history.draw(frame))?;
            }
        }
        Ok(())
    }
}

impl History {
    fn add(&mut self, sample: &Sample) {
        if self
            .runs
            .last()
            .is_none_or(|run| run.name != sample.algorithm)
        {
            self.runs.push(Run {
                name: sample.algorithm.clone(),
                points: Default::default(),
            });
        }
        if let Some(run) = self.runs.last_mut() {
            for (points, series) in run.points.iter_mut().zip(&SERIES) {
                if let Some(value) = (series.read)(sample) {
                    points.push((sample.at_s, scaled(value, series)));
                }
            }
        }
        self.last = Some(sample.clone());
    }

    fn draw(&self, frame: &mut Frame) {
        let [charts, line] =
            Layout::vertical([Constraint::Min(0), Constraint::Length(1)]).areas(frame.area());
        let rows = Layout::vertical([Constraint::Ratio(1, 2); 2]).split(charts);
        let cells = rows.iter().flat_map(|row| {
            let cells = Layout::horizontal([Constraint::Ratio(1, 3); 3]).split(*row);
            cells.to_vec()
        });
        for (index, cell) in cells.enumerate() {
            match SERIES.get(index) {
                Some(series) => self.draw_chart(frame, cell, index, series),
                None => self.draw_legend(frame, cell),
            }
        }
        if let Some(sample) = &self.last {
            frame.render_widget(Paragraph::new(sample.line()), line);
        }
    }

    fn draw_chart(&self, frame: &mut Frame, cell: Rect, index: usize, series: &Series) {
        let points = || self.runs.iter().filter_map(|run| run.points.get(index));
        let all = || points().flatten();
        let seconds = all().map(|point| point.0).fold(1.0, f64::max);
        let lowest = match series.is_log {
            true => all().map(|point| point.1).fold(f64::INFINITY, f64::min),
            false => 0.0,
        };
        let lowest = if lowest.is_finite() { lowest } else { 0.0 };
        let highest = all().map(|point| point.1).fold(lowest + 1.0, f64::max);
        let datasets = points().zip(colors()).map(|(points, color)| {
            Dataset::default()
                .marker(Marker::Braille)
                .graph_type(GraphType::Line)
                .style(Style::new().fg(color))
                .data(points)
        });
        let label = |value: f64| shown(Some(unscaled(value, series)));
        let chart = Chart::new(datasets.collect())
            .block(Block::bordered().title(series.title))
            .x_axis(
                Axis::default()
                    .bounds([0.0, seconds])
                    .labels(["0 s".to_owned(), format!("{seconds:.0} s")]),
            )
            .y_axis(
                Axis::default()
                    .bounds([lowest, highest])
                    .labels([label(lowest), label(highest)]),
            );
        frame.render_widget(chart, cell);
    }

    fn draw_legend(&self, frame: &mut Frame, cell: Rect) {
        let names = self.runs.iter().zip(colors());
        let lines: Vec<Line> = names
            .map(|(run, color)| Line::from(format!("━━ {}", run.name)).fg(color))
            .collect();
        let legend = Paragraph::new(lines).block(Block::bordered().title("Algorithms"));
        frame.render_widget(legend, cell);
    }
}

fn colors() -> impl Iterator<Item = Color> {
    COLORS.into_iter().cycle()
}

/// The height of a value in a chart.
fn scaled(value: f64, series: &Series) -> f64 {
    match series.is_log {
        true => value.max(0.001).log10(),
        false => value,
    }
}

fn unscaled(height: f64, series: &Series) -> f64 {
    match series.is_log {
        true => 10_f64.powf(height),
        false => height,
    }
}

#[cfg(test)]
mod tests {
    use anyhow::Result;
    use ratatui::Terminal;
    use ratatui::backend::TestBackend;
    use ratatui::buffer::Buffer;

    use super::{HEIGHT, History};
    use crate::degrade::sample::Sample;

    fn sample(algorithm: &str, at_s: f64, waiting: u64) -> Sample {
        Sample {
            algorithm: algorithm.to_owned(),
            at_s,
            waiting,
            claim_p50_ms: Some(at_s + 1.0),
            ..Sample::default()
        }
    }

    fn drawn(history: &History) -> Result<Buffer> {
        let mut terminal = Terminal::new(TestBackend::new(120, HEIGHT))?;
        terminal.draw(|frame| history.draw(frame))?;
        Ok(terminal.backend().buffer().clone())
    }

    fn lines(buffer: &Buffer) -> Vec<String> {
        let width = usize::from(buffer.area.width);
        let rows = buffer.content.chunks(width);
        rows.map(|row| row.iter().map(|cell| cell.symbol()).collect())
            .collect()
    }

    /// The rows of the first chart in which a column has a dot.
    fn dots(buffer: &Buffer, column: usize) -> Vec<usize> {
        let is_dot = |letter: char| ('\u{2801}'..='\u{28ff}').contains(&letter);
        let rows = lines(buffer).into_iter().take(12).enumerate();
        let with_dot = rows.filter(|(_, row)| row.chars().nth(column).is_some_and(is_dot));
        with_dot.map(|(row, _)| row).collect()
    }

    #[test]
    fn charts_show_all_algorithms_over_one_time_axis() -> Result<()> {
        let mut history = History::default();
        for second in 0..=60 {
            history.add(&sample(
                "que",
                f64::from(second),
                u64::from(second as u32) * 50,
            ));
        }
        for second in 0..=30 {
            history.add(&sample("posthaste", f64::from(second), 0));
        }
        let buffer = drawn(&history)?;
        let text = lines(&buffer).join("\n");
        for part in [
            "Jobs that wait",
            "Dead rows",
            "━━ que",
            "━━ posthaste",
            "3000",
            "60 s",
        ] {
            assert!(text.contains(part), "{part} is missing:\n{text}");
        }
        let last = lines(&buffer).pop().unwrap_or_default();
        assert!(last.starts_with("posthaste"), "{last}");
        Ok(())
    }

    #[test]
    fn a_growing_queue_rises_to_the_right() -> Result<()> {
        let mut history = History::default();
        for second in 0..=60 {
            history.add(&sample(
                "que",
                f64::from(second),
                u64::from(second as u32) * 50,
            ));
        }
        let buffer = drawn(&history)?;
        let (left, right) = (dots(&buffer, 8), dots(&buffer, 37));
        assert!(!left.is_empty() && !right.is_empty(), "{left:?} {right:?}");
        assert!(left.iter().min() > right.iter().max(), "{left:?} {right:?}");
        Ok(())
    }

    #[test]
    fn samples_without_a_claim_leave_a_gap() -> Result<()> {
        let mut history = History::default();
        let mut idle = sample("que", 1.0, 0);
        idle.claim_p50_ms = None;
        history.add(&idle);
        assert!(history.runs[0].points[1].is_empty());
        assert_eq!(history.runs[0].points[0], [(1.0, 0.0)]);
        drawn(&history)?;
        Ok(())
    }
}
