use posthaste::{Counter, Counters, Oldest};
use ratatui::buffer::Buffer;
use ratatui::layout::Rect;
use ratatui::style::{Color, Modifier};
use ratatui::text::Text;
use ratatui::widgets::Widget as _;

use super::*;

fn counter(queue: &str, available: i64, completed: i64) -> Counter {
    let mut counter = Counter::default();
    counter.queue = queue.into();
    (counter.available, counter.completed_total) = (available, completed);
    counter
}

fn snapshot(jobs: Vec<Counter>, late: &[(&str, f64, bool)]) -> Snapshot {
    let oldest = late.iter().map(|(queue, seconds, is_worked)| {
        let mut oldest = Oldest::default();
        oldest.queue = (*queue).into();
        (oldest.seconds, oldest.is_worked) = (*seconds, *is_worked);
        oldest
    });
    let mut counters = Counters::default();
    (counters.jobs, counters.oldest) = (jobs, oldest.collect());
    let mut snapshot = Snapshot {
        counters,
        ..Snapshot::default()
    };
    let server = &mut snapshot.server;
    (server.version_number, server.fsync) = (180_000, true);
    snapshot
}

fn frame(snapshot: &Snapshot, then: Option<&CompletedTotals>) -> Frame {
    let now = CompletedTotals::new(snapshot, 12.0);
    Frame::new(snapshot, &now, then, &Thresholds::default())
}

/// Draws the frame on a screen of this size.
fn drawn(frame: &Frame, columns: u16, rows: u16, chosen: Option<&str>) -> Buffer {
    let area = Rect::new(0, 0, columns, rows);
    let mut buffer = Buffer::empty(area);
    let lines = frame.lines("posthaste", rows.into(), chosen);
    Text::from(lines).render(area, &mut buffer);
    buffer
}

fn rows(buffer: &Buffer) -> Vec<String> {
    let rows = buffer.content.chunks(buffer.area.width.into());
    let text = rows.map(|row| row.iter().map(|cell| cell.symbol()).collect::<String>());
    text.map(|row| row.trim_end().to_owned()).collect()
}

#[test]
fn queues_are_sorted_by_lateness_then_length() {
    let jobs = ["short", "long", "late"].map(|queue| {
        let available = i64::try_from(queue.len()).unwrap_or_default();
        counter(queue, available, 0)
    });
    let seen = snapshot(jobs.into(), &[("late", 70.0, false), ("long", 3.0, true)]);
    let frame = frame(&seen, None);
    let order: Vec<&str> = frame.queues.iter().map(|line| &*line.queue).collect();
    assert_eq!(order, ["late", "long", "short"]);
    let lines = rows(&drawn(&frame, 200, 50, None));
    let late = lines.iter().find(|line| line.starts_with("late"));
    let late = late.map(String::as_str).unwrap_or_default();
    assert!(
        late.contains("1 min") && late.ends_with("no worker"),
        "{late}"
    );
}

#[test]
fn rates_are_computed_since_the_previous_read() {
    let then = CompletedTotals {
        at: 10.0,
        queues: BTreeMap::from([("mail".into(), 100), ("restored".into(), 500)]),
    };
    let jobs = ["mail", "restored", "new"].map(|queue| counter(queue, 1, 150));
    let frame = frame(&snapshot(jobs.into(), &[]), Some(&then));
    let of = |queue: &str| {
        let line = frame.queues.iter().find(|line| line.queue == queue);
        line.and_then(|line| line.completed_a_second)
    };
    assert_eq!(of("mail"), Some(25.0));
    assert_eq!(of("restored"), Some(75.0));
    assert_eq!(of("new"), None);
    assert_eq!(frame.completed_a_second, Some(100.0));
}

#[test]
fn small_screens_show_the_most_overdue_queues_and_the_number_hidden() {
    let jobs = (0..40).map(|n| counter(&format!("q{n}\x1b[2J"), 1, 0));
    let seen = snapshot(jobs.collect(), &[("q7\x1b[2J", 5.0, true)]);
    let frame = frame(&seen, None);
    for (columns, height) in [(40, 12), (80, 24), (10, 8)] {
        let lines = frame.lines("posthaste", height.into(), None);
        assert!(lines.len() <= height.into(), "{lines:?}");
        let lines = rows(&drawn(&frame, columns, height, None));
        assert!(lines.iter().any(|line| line.starts_with("q7")), "{lines:?}");
        assert!(
            lines.iter().any(|line| line.starts_with("and ")),
            "{lines:?}"
        );
        assert!(!lines.concat().contains('\x1b'), "{lines:?}");
    }
}

#[test]
fn names_of_wide_letters_keep_columns_aligned() {
    let jobs = ["\u{90f5}\u{4fbf}", "mail", "\u{1f4ee}"].map(|queue| counter(queue, 7, 0));
    let frame = frame(&snapshot(jobs.into(), &[]), None);
    let buffer = drawn(&frame, 120, 20, None);
    let at = |y: u16| (0..120).find(|x| buffer[(*x, y)].symbol() == "7");
    let columns: Vec<_> = (0..20).filter_map(at).collect();
    assert_eq!(columns.len(), 3, "{:?}", rows(&buffer));
    assert!(columns.iter().all(|x| *x == columns[0]), "{columns:?}");
    // A character of two columns does not fit in one.
    let narrow = rows(&drawn(&frame, 3, 20, None));
    assert!(narrow.contains(&"\u{90f5}".to_owned()), "{narrow:?}");
}

#[test]
fn errors_are_red_and_the_selected_queue_bold() {
    let jobs = ["ERROR a", "b"].map(|queue| counter(queue, 1, 0));
    let seen = snapshot(jobs.into(), &[("b", 900.0, false)]);
    let buffer = drawn(&frame(&seen, None), 120, 20, Some("b"));
    let lines = rows(&buffer);
    let style = |start: &str| {
        let at = lines.iter().position(|line| line.starts_with(start));
        let at = at.and_then(|at| u16::try_from(at).ok());
        at.map(|y| (buffer[(0, y)].fg, buffer[(0, y)].modifier))
    };
    let error = Some((Color::Red, Modifier::BOLD));
    assert_eq!(style("ERROR worker.none"), error, "{lines:?}");
    assert_eq!(style("> b"), Some((Color::Reset, Modifier::BOLD)));
    assert_eq!(style("ERROR a"), Some((Color::Reset, Modifier::empty())));
    assert_eq!(style("queue "), Some((Color::Reset, Modifier::REVERSED)));
}
