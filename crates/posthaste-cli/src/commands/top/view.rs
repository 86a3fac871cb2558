//! The view of a frame and its state, which keys change: the chosen queue, the order, and whether
//! updates are paused. No IO.

use std::cmp::Ordering;

use ratatui::crossterm::event::{Event, KeyCode, KeyModifiers};
use ratatui::text::Text;

use super::screen::is_control;
use crate::observe::frame::{Frame, QueueRow};

/// The order of queues.
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

    /// Compares two queues; the sort is stable, so equal ones retain their order.
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

/// An action on a queue.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Action {
    pub(crate) queue: String,
    pub(crate) pauses: bool,
}

/// The request of a key.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum KeyRequest {
    Nothing,
    Quit,
    Suspend,
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

    /// Shows the result of an action until the next key.
    pub(crate) fn show_message(&mut self, message: String) {
        self.message = Some(message);
    }

    /// Sorts the queues of a frame.
    pub(crate) fn sort_queues(&self, frame: &mut Frame) {
        frame
            .queues
            .sort_by(|one, other| self.sort.compare(one, other));
    }

    pub(crate) fn handle_key(&mut self, event: &Event, frame: &mut Frame) -> KeyRequest {
        if is_control(event, 'z') {
            return KeyRequest::Suspend;
        }
        let Some(key) = event.as_key_press_event() else {
            return KeyRequest::Nothing;
        };
        let is_quit = matches!(key.code, KeyCode::Char('q' | 'Q'));
        self.message = None;
        if key.modifiers.contains(KeyModifiers::CONTROL)
            || !is_quit && std::mem::take(&mut self.has_help)
        {
            return KeyRequest::Nothing;
        }
        match key.code {
            KeyCode::Char('q' | 'Q') => return KeyRequest::Quit,
            KeyCode::Char('j') | KeyCode::Down => self.move_choice(frame, 1),
            KeyCode::Char('k') | KeyCode::Up => self.move_choice(frame, -1),
            KeyCode::Char('s') => {
                self.sort = self.sort.next();
                self.sort_queues(frame);
            }
            KeyCode::Char(' ') => self.is_held = !self.is_held,
            KeyCode::Char('?' | 'h') => self.has_help = true,
            KeyCode::Char('p') => return self.request_action(true),
            KeyCode::Char('r') => return self.request_action(false),
            _ => {}
        }
        KeyRequest::Nothing
    }

    /// Chooses the next or the previous queue; the first one if none is chosen or the chosen one is
    /// gone.
    fn move_choice(&mut self, frame: &Frame, by: isize) {
        let chosen = self.chosen.as_deref();
        let at = frame
            .queues
            .iter()
            .position(|line| Some(&*line.queue) == chosen);
        let last = frame.queues.len().saturating_sub(1);
        let at = at.map_or(0, |at| at.saturating_add_signed(by).min(last));
        self.chosen = frame.queues.get(at).map(|line| line.queue.clone());
    }

    fn request_action(&mut self, pauses: bool) -> KeyRequest {
        match &self.chosen {
            _ if !self.operates => {
                self.message = Some("read-only: start with --operate to change queues".to_owned());
                KeyRequest::Nothing
            }
            None => {
                self.message = Some("select a queue first: j and k".to_owned());
                KeyRequest::Nothing
            }
            Some(queue) => KeyRequest::Act(Action {
                queue: queue.clone(),
                pauses,
            }),
        }
    }

    /// Returns the text for this number of rows.
    pub(crate) fn text(&self, frame: &Frame, title: &str, rows: usize) -> Text<'static> {
        if self.has_help {
            return self.help().into();
        }
        let title = match &self.message {
            Some(message) => message.clone(),
            None => {
                let held = if self.is_held { ", updates paused" } else { "" };
                format!("{title}{held}, by {}", self.sort.name())
            }
        };
        frame.lines(&title, rows, self.chosen.as_deref()).into()
    }

    fn help(&self) -> String {
        let acts = match self.operates {
            true => "p        pause the selected queue\nr        resume it\n",
            false => "p, r     pause and resume a queue, with --operate\n",
        };
        format!(
            "keys\n\nj, down  next queue\nk, up    previous queue\ns        sort: late, available, \
             completed, dead, name\nspace    pause and resume updates\n{acts}?        this help\nq \
             quit\n\nany key closes this help"
        )
    }
}

#[cfg(test)]
mod tests {
    use ratatui::crossterm::event::KeyEvent;

    use super::*;

    const CONTROL: KeyModifiers = KeyModifiers::CONTROL;

    fn key(code: KeyCode) -> Event {
        Event::Key(code.into())
    }

    fn letter(letter: char) -> Event {
        key(KeyCode::Char(letter))
    }

    fn drawn(view: &View, frame: &Frame, rows: usize) -> Vec<String> {
        let text = view.text(frame, "posthaste", rows);
        text.lines.iter().map(ToString::to_string).collect()
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
    fn control_and_unknown_keys_select_nothing() {
        let mut frame = frame(&[("a", 3.0, 1)]);
        let mut view = View::new(true);
        let mut press = |event: &Event| {
            let asked = view.handle_key(event, &mut frame);
            (asked, view.chosen.clone())
        };
        let control = |letter| Event::Key(KeyEvent::new(KeyCode::Char(letter), CONTROL));
        // Ctrl-J is a line feed.
        for event in [control('j'), control('q'), letter('x'), key(KeyCode::Esc)] {
            assert_eq!(press(&event), (KeyRequest::Nothing, None), "{event:?}");
        }
        assert_eq!(press(&Event::Resize(80, 24)), (KeyRequest::Nothing, None));
        assert_eq!(press(&control('z')), (KeyRequest::Suspend, None));
        assert_eq!(press(&letter('q')), (KeyRequest::Quit, None));
        let chosen = (KeyRequest::Nothing, Some("a".to_owned()));
        assert_eq!(press(&key(KeyCode::Down)), chosen);
    }

    #[test]
    fn the_selection_survives_sorting() {
        let mut frame = frame(&[("a", 3.0, 1), ("b", 2.0, 9), ("c", 1.0, 5)]);
        let mut view = View::new(false);
        for _ in 0..2 {
            view.handle_key(&key(KeyCode::Down), &mut frame);
        }
        assert_eq!(view.chosen.as_deref(), Some("b"));
        view.handle_key(&letter('s'), &mut frame);
        let order: Vec<&str> = frame.queues.iter().map(|line| &*line.queue).collect();
        assert_eq!(order, ["b", "c", "a"]);
        let lines = drawn(&view, &frame, 30);
        assert!(
            lines.iter().any(|line| line.starts_with("> b ")),
            "{lines:?}"
        );
        for _ in 0..5 {
            view.handle_key(&key(KeyCode::Up), &mut frame);
        }
        assert_eq!(view.chosen.as_deref(), Some("b"), "it is the first");
        view.handle_key(&key(KeyCode::Down), &mut super::tests::frame(&[]));
        assert_eq!(view.chosen, None);
    }

    #[test]
    fn actions_need_the_option_and_a_selected_queue() {
        let mut frame = frame(&[("a", 3.0, 1)]);
        let mut view = View::new(false);
        view.handle_key(&key(KeyCode::Down), &mut frame);
        assert_eq!(
            view.handle_key(&letter('p'), &mut frame),
            KeyRequest::Nothing
        );
        let lines = drawn(&view, &frame, 30);
        assert!(lines[0].contains("--operate"), "{lines:?}");
        let mut operates = View::new(true);
        assert_eq!(
            operates.handle_key(&letter('p'), &mut frame),
            KeyRequest::Nothing
        );
        operates.handle_key(&key(KeyCode::Down), &mut frame);
        let action = |pauses| {
            let queue = "a".to_owned();
            KeyRequest::Act(Action { queue, pauses })
        };
        assert_eq!(operates.handle_key(&letter('p'), &mut frame), action(true));
        assert_eq!(operates.handle_key(&letter('r'), &mut frame), action(false));
        // No key acts while the help is shown.
        operates.handle_key(&letter('?'), &mut frame);
        assert_eq!(
            operates.handle_key(&letter('p'), &mut frame),
            KeyRequest::Nothing
        );
        assert_eq!(operates.handle_key(&letter('p'), &mut frame), action(true));
    }

    #[test]
    fn the_selected_queue_stays_visible() {
        let names: Vec<String> = (0..50).map(|at| format!("q{at}")).collect();
        let lines: Vec<_> = names.iter().map(|name| (&**name, 1.0, 1)).collect();
        let mut frame = frame(&lines);
        let mut view = View::new(false);
        for _ in 0..40 {
            view.handle_key(&key(KeyCode::Down), &mut frame);
        }
        let lines = drawn(&view, &frame, 20);
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
