//! What somebody sees of a frame, and what keys change: the queue that is chosen, the order,
//! whether it goes on. No IO.

use std::cmp::Ordering;

use crate::observe::frame::{Frame, QueueRow};
use crate::terminal::escape_name;

/// A key that means something.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Key {
    Quit,
    Down,
    Up,
    Sort,
    Hold,
    Help,
    Pause,
    Resume,
}

/// Makes keys of bytes: arrows are three of them.
#[derive(Debug, Default)]
pub(crate) struct Keys {
    /// What stands before the byte that comes.
    begun: Begun,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
enum Begun {
    #[default]
    Nothing,
    Escape,
    Sequence,
}

impl Keys {
    pub(crate) fn take(&mut self, byte: u8) -> Option<Key> {
        let begun = std::mem::take(&mut self.begun);
        match (begun, byte) {
            (_, 0x1b) => self.begun = Begun::Escape,
            (Begun::Escape, b'[' | b'O') => self.begun = Begun::Sequence,
            (Begun::Sequence, b'A') => return Some(Key::Up),
            (Begun::Sequence, b'B') => return Some(Key::Down),
            // A longer one goes on with these; its last letter means nothing here.
            (Begun::Sequence, b'0'..=b'?') => self.begun = Begun::Sequence,
            (Begun::Sequence, _) => {}
            (Begun::Nothing | Begun::Escape, byte) => return parse_key(byte),
        }
        None
    }
}

fn parse_key(byte: u8) -> Option<Key> {
    Some(match byte {
        b'q' | b'Q' => Key::Quit,
        b'j' => Key::Down,
        b'k' => Key::Up,
        b's' => Key::Sort,
        b' ' => Key::Hold,
        b'?' | b'h' => Key::Help,
        b'p' => Key::Pause,
        b'r' => Key::Resume,
        _ => return None,
    })
}

/// By what queues stand in order.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
enum Sort {
    #[default]
    Late,
    Available,
    Completed,
    Dead,
    Name,
}

impl Sort {
    fn next(self) -> Self {
        match self {
            Self::Late => Self::Available,
            Self::Available => Self::Completed,
            Self::Completed => Self::Dead,
            Self::Dead => Self::Name,
            Self::Name => Self::Late,
        }
    }

    fn name(self) -> &'static str {
        match self {
            Self::Late => "late",
            Self::Available => "available",
            Self::Completed => "completed",
            Self::Dead => "dead",
            Self::Name => "name",
        }
    }

    /// Of two that are alike, the one that was first stays so.
    fn compare(self, one: &QueueRow, other: &QueueRow) -> Ordering {
        let late = |line: &QueueRow| line.late_seconds.unwrap_or(-1.0);
        let rate = |line: &QueueRow| line.completed_a_second.unwrap_or(-1.0);
        match self {
            Self::Late => late(other).total_cmp(&late(one)),
            Self::Available => other.available.cmp(&one.available),
            Self::Completed => rate(other).total_cmp(&rate(one)),
            Self::Dead => other.dead.cmp(&one.dead),
            Self::Name => one.queue.cmp(&other.queue),
        }
    }
}

/// What is to be done to a queue.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Action {
    pub(crate) queue: String,
    pub(crate) pauses: bool,
}

/// What a key asks for.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Asked {
    Nothing,
    Quit,
    Act(Action),
}

#[derive(Debug)]
pub(crate) struct View {
    operates: bool,
    chosen: Option<String>,
    sort: Sort,
    is_held: bool,
    has_help: bool,
    message: Option<String>,
}

impl View {
    pub(crate) fn new(operates: bool) -> Self {
        Self {
            operates,
            chosen: None,
            sort: Sort::default(),
            is_held: false,
            has_help: false,
            message: None,
        }
    }

    /// Whether updates are paused.
    pub(crate) fn is_held(&self) -> bool {
        self.is_held
    }

    /// What came of an action, until the next key.
    pub(crate) fn show(&mut self, message: String) {
        self.message = Some(message);
    }

    /// Puts the queues of a frame in order.
    pub(crate) fn order(&self, frame: &mut Frame) {
        frame
            .queues
            .sort_by(|one, other| self.sort.compare(one, other));
    }

    pub(crate) fn press(&mut self, key: Key, frame: &mut Frame) -> Asked {
        self.message = None;
        if key != Key::Quit && std::mem::take(&mut self.has_help) {
            return Asked::Nothing;
        }
        match key {
            Key::Quit => return Asked::Quit,
            Key::Down => self.choose(frame, 1),
            Key::Up => self.choose(frame, -1),
            Key::Sort => {
                self.sort = self.sort.next();
                self.order(frame);
            }
            Key::Hold => self.is_held = !self.is_held,
            Key::Help => self.has_help = true,
            Key::Pause => return self.act(true),
            Key::Resume => return self.act(false),
        }
        Asked::Nothing
    }

    /// The next or the one before; the first where none is chosen, or the chosen one is gone.
    fn choose(&mut self, frame: &Frame, by: isize) {
        let chosen = self.chosen.as_deref();
        let at = frame
            .queues
            .iter()
            .position(|line| Some(&*line.queue) == chosen);
        let last = frame.queues.len().saturating_sub(1);
        let at = at.map_or(0, |at| at.saturating_add_signed(by).min(last));
        self.chosen = frame.queues.get(at).map(|line| line.queue.clone());
    }

    fn act(&mut self, pauses: bool) -> Asked {
        match &self.chosen {
            _ if !self.operates => {
                self.message = Some("read-only: start it with --operate to act".to_owned());
                Asked::Nothing
            }
            None => {
                self.message = Some("choose a queue first: j and k".to_owned());
                Asked::Nothing
            }
            Some(queue) => Asked::Act(Action {
                queue: queue.clone(),
                pauses,
            }),
        }
    }

    /// What is drawn.
    pub(crate) fn lines(
        &self,
        frame: &Frame,
        title: &str,
        columns: usize,
        rows: usize,
    ) -> Vec<String> {
        if self.has_help {
            let help = self.help();
            let cut = |line: &str| line.chars().take(columns).collect();
            return help.lines().take(rows).map(cut).collect();
        }
        let title = match &self.message {
            Some(message) => escape_name(message),
            None => {
                let held = if self.is_held { ", held" } else { "" };
                format!("{title}{held}, by {}", self.sort.name())
            }
        };
        frame.lines(&title, columns, rows, self.chosen.as_deref())
    }

    fn help(&self) -> String {
        let acts = match self.operates {
            true => "p        pause the chosen queue\nr        resume it\n",
            false => "p, r     pause and resume a queue, with --operate\n",
        };
        format!(
            "keys\n\nj, down  the next queue\nk, up    the queue before\n\
             s        sort: late, available, completed, dead, name\n\
             space    pause and continue updates\n{acts}?        this\nq        quit\n\n\
             any key goes back"
        )
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn keys(bytes: &[u8]) -> Vec<Key> {
        let mut keys = Keys::default();
        bytes.iter().filter_map(|byte| keys.take(*byte)).collect()
    }

    fn frame(queues: &[(&str, f64, i64)]) -> Frame {
        let line = |(queue, late, available): &(&str, f64, i64)| QueueRow {
            queue: (*queue).to_owned(),
            late_seconds: Some(*late),
            is_worked: true,
            is_paused: false,
            completed_a_second: None,
            available: *available,
            running: 0,
            scheduled: 0,
            retrying: 0,
            dead: 0,
            expired: 0,
        };
        Frame {
            queues: queues.iter().map(line).collect(),
            ..Frame::default()
        }
    }

    #[test]
    fn arrow_keys_are_three_byte_sequences() {
        use Key::{Down, Help, Quit, Up};
        assert_eq!(keys(b"jk?q"), [Down, Up, Help, Quit]);
        assert_eq!(keys(b"\x1b[A\x1b[B\x1bOA\x1bOB"), [Up, Down, Up, Down]);
        // Of other sequences no letter is a key; a lone escape is none either.
        assert_eq!(keys(b"\x1b[5~\x1b[1;5Cj\x1b\x1bq\x1bq"), [Down, Quit, Quit]);
        assert_eq!(keys(b"\x00\xff\r\nxyz"), []);
    }

    #[test]
    fn the_selection_survives_sorting() {
        let mut frame = frame(&[("a", 3.0, 1), ("b", 2.0, 9), ("c", 1.0, 5)]);
        let mut view = View::new(false);
        for _ in 0..2 {
            view.press(Key::Down, &mut frame);
        }
        assert_eq!(view.chosen.as_deref(), Some("b"));
        view.press(Key::Sort, &mut frame);
        let order: Vec<&str> = frame.queues.iter().map(|line| &*line.queue).collect();
        assert_eq!(order, ["b", "c", "a"]);
        let lines = view.lines(&frame, "posthaste", 200, 30);
        assert!(
            lines.iter().any(|line| line.starts_with("> b ")),
            "{lines:?}"
        );
        for _ in 0..5 {
            view.press(Key::Up, &mut frame);
        }
        assert_eq!(view.chosen.as_deref(), Some("b"), "it is the first");
        view.press(Key::Down, &mut super::tests::frame(&[]));
        assert_eq!(view.chosen, None);
    }

    #[test]
    fn actions_need_the_option_and_a_selected_queue() {
        let mut frame = frame(&[("a", 3.0, 1)]);
        let mut view = View::new(false);
        view.press(Key::Down, &mut frame);
        assert_eq!(view.press(Key::Pause, &mut frame), Asked::Nothing);
        let lines = view.lines(&frame, "posthaste", 200, 30);
        assert!(lines[0].contains("--operate"), "{lines:?}");
        let mut operates = View::new(true);
        assert_eq!(operates.press(Key::Pause, &mut frame), Asked::Nothing);
        operates.press(Key::Down, &mut frame);
        let action = |pauses| {
            let queue = "a".to_owned();
            Asked::Act(Action { queue, pauses })
        };
        assert_eq!(operates.press(Key::Pause, &mut frame), action(true));
        assert_eq!(operates.press(Key::Resume, &mut frame), action(false));
        // No key acts while the help is shown.
        operates.press(Key::Help, &mut frame);
        assert_eq!(operates.press(Key::Pause, &mut frame), Asked::Nothing);
        assert_eq!(operates.press(Key::Pause, &mut frame), action(true));
    }

    #[test]
    fn the_selected_queue_stays_visible() {
        let names: Vec<String> = (0..50).map(|at| format!("q{at}")).collect();
        let lines: Vec<_> = names.iter().map(|name| (&**name, 1.0, 1)).collect();
        let mut frame = frame(&lines);
        let mut view = View::new(false);
        for _ in 0..40 {
            view.press(Key::Down, &mut frame);
        }
        let lines = view.lines(&frame, "posthaste", 80, 20);
        assert!(lines.len() <= 20, "{lines:?}");
        assert!(
            lines.iter().any(|line| line.starts_with("> q39 ")),
            "{lines:?}"
        );
        assert!(
            lines.iter().any(|line| line.starts_with("and ")),
            "{lines:?}"
        );
    }
}
