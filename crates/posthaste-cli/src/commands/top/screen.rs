//! The terminal while frames are drawn on it; restored afterwards.

use std::io::{self, stdout};
use std::time::Duration;

use ratatui::crossterm::event::{self, Event, KeyCode, KeyModifiers};
use ratatui::crossterm::terminal::EnterAlternateScreen;
use ratatui::crossterm::{execute, terminal};
use ratatui::layout::Rect;
use ratatui::{DefaultTerminal, Frame, TerminalOptions, Viewport};
use rustix::process::{Signal, kill_current_process_group};
use tokio::signal::unix::{SignalKind, signal};
use tokio::sync::mpsc::UnboundedSender;

/// The size of a terminal that does not report one.
const DEFAULT_SIZE: Rect = Rect::new(0, 0, 80, 24);
/// How long to wait for SIGCONT: the kernel does not stop a process that no shell could continue.
const STOP_TIMEOUT: Duration = Duration::from_secs(1);

/// The screen; dropping it restores the terminal.
pub(crate) struct Screen(DefaultTerminal);

impl Screen {
    /// Takes over the screen; sends keys and changes of its size to `events`.
    pub(crate) fn open(events: UnboundedSender<Event>) -> io::Result<Self> {
        let screen = Self(take_over_terminal()?);
        // The thread waits for keys for the lifetime of the process and is never joined.
        std::thread::spawn(move || {
            while let Ok(event) = event::read() {
                let is_sent = match is_control(&event, 'c') {
                    true => kill_current_process_group(Signal::INT).is_ok(),
                    false => events.send(event).is_ok(),
                };
                if !is_sent {
                    return;
                }
            }
        });
        Ok(screen)
    }

    pub(crate) fn draw(&mut self, render: impl FnOnce(&mut Frame)) -> io::Result<()> {
        self.0.draw(render).map(|_| ())
    }

    /// Restores the terminal and stops the process, as Ctrl-Z stops other programs, until it is
    /// continued.
    pub(crate) async fn suspend(&mut self) -> io::Result<()> {
        let mut continued = signal(SignalKind::from_raw(Signal::CONT.as_raw()))?;
        self.0.show_cursor()?;
        ratatui::try_restore()?;
        kill_current_process_group(Signal::TSTP)?;
        let _ = tokio::time::timeout(STOP_TIMEOUT, continued.recv()).await;
        self.0 = take_over_terminal()?;
        Ok(())
    }
}

impl Drop for Screen {
    fn drop(&mut self) {
        let _ = ratatui::try_restore();
    }
}

/// Whether this is a control key. In raw mode the terminal sends no signals for them.
pub(crate) fn is_control(event: &Event, letter: char) -> bool {
    event.as_key_press_event().is_some_and(|key| {
        key.code == KeyCode::Char(letter) && key.modifiers == KeyModifiers::CONTROL
    })
}

fn take_over_terminal() -> io::Result<DefaultTerminal> {
    let viewport = match terminal::size() {
        Ok((1.., 1..)) => Viewport::Fullscreen,
        _ => Viewport::Fixed(DEFAULT_SIZE),
    };
    let terminal = ratatui::try_init_with_options(TerminalOptions { viewport })?;
    execute!(stdout(), EnterAlternateScreen).inspect_err(|_| ratatui::restore())?;
    Ok(terminal)
}
