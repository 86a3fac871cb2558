//! A terminal that is drawn on again and again, and is afterwards as it was before.

use std::io::{self, IsTerminal as _, Read as _, Write as _};

use rustix::termios::{self, LocalModes, OptionalActions, Termios};
use tokio::sync::mpsc::UnboundedSender;

use super::view::{Key, Keys};

/// Beside what was there, and without a cursor.
const BEGIN: &str = "\x1b[?1049h\x1b[?25l";
const END: &str = "\x1b[?25h\x1b[?1049l";
/// Where a terminal does not say how large it is.
const USUAL: (usize, usize) = (80, 24);

/// The screen, until it is dropped.
pub(crate) struct Screen {
    /// How keys were read before.
    keys: Option<Termios>,
}

impl Screen {
    /// Takes the screen; keys that somebody presses go to `pressed`.
    pub(crate) fn open(pressed: UnboundedSender<Key>) -> io::Result<Self> {
        let mut out = io::stdout().lock();
        out.write_all(BEGIN.as_bytes())?;
        out.flush()?;
        Ok(Self {
            keys: read_keys(pressed),
        })
    }

    /// Columns and rows.
    pub(crate) fn size() -> (usize, usize) {
        match termios::tcgetwinsize(io::stdout()) {
            Ok(size) if size.ws_col > 0 && size.ws_row > 0 => {
                (usize::from(size.ws_col), usize::from(size.ws_row))
            }
            _ => USUAL,
        }
    }

    /// These lines, in place of those before. They act on no terminal.
    pub(crate) fn draw(&self, lines: &[String]) -> io::Result<()> {
        let mut text = String::from("\x1b[H");
        for (n, line) in lines.iter().enumerate() {
            let (begin, end) = match line {
                line if line.starts_with("ALERT ") => ("\x1b[1;31m", "\x1b[0m"),
                line if line.starts_with("> ") => ("\x1b[1m", "\x1b[0m"),
                line if line.starts_with("queue ") => ("\x1b[7m", "\x1b[0m"),
                _ => ("", ""),
            };
            let next = if n > 0 { "\r\n" } else { "" };
            text.push_str(&format!("{next}{begin}{line}{end}\x1b[K"));
        }
        text.push_str("\x1b[J");
        let mut out = io::stdout().lock();
        out.write_all(text.as_bytes())?;
        out.flush()
    }
}

impl Drop for Screen {
    fn drop(&mut self) {
        if let Some(before) = &self.keys {
            let _ = termios::tcsetattr(io::stdin(), OptionalActions::Now, before);
        }
        let mut out = io::stdout().lock();
        let _ = out.write_all(END.as_bytes()).and_then(|()| out.flush());
    }
}

/// Hears single keys from now on, if somebody is there to press them.
fn read_keys(pressed: UnboundedSender<Key>) -> Option<Termios> {
    if !io::stdin().is_terminal() {
        return None;
    }
    let before = termios::tcgetattr(io::stdin()).ok()?;
    let mut single = before.clone();
    // Ctrl-C stays a signal.
    single.local_modes -= LocalModes::ICANON | LocalModes::ECHO;
    termios::tcsetattr(io::stdin(), OptionalActions::Now, &single).ok()?;
    // It waits for a key for as long as the process lives: nobody joins it.
    std::thread::spawn(move || {
        let mut keys = Keys::default();
        for byte in io::stdin().lock().bytes().map_while(Result::ok) {
            if let Some(key) = keys.take(byte)
                && pressed.send(key).is_err()
            {
                return;
            }
        }
    });
    Some(before)
}
