//! Decides what the end of a command means for its job. Pure.

use std::os::unix::process::ExitStatusExt as _;
use std::process::ExitStatus;
use std::time::Duration;

use crate::consumer::Outcome;
use crate::handler::RetryLater;

/// `EX_DATAERR` of sysexits.h: the arguments are permanently invalid.
const DISCARD_EXIT_CODE: i32 = 65;
/// `EX_TEMPFAIL` of sysexits.h.
const RETRY_EXIT_CODE: i32 = 75;
/// Bytes of output that are held in memory.
const MAX_HELD_BYTES: usize = 8 << 10;
/// Characters of output that are added to an error; the store keeps 2,000 characters.
const MAX_QUOTED_CHARS: usize = 1_700;

/// How a command ended.
#[derive(Clone, Copy, Debug)]
pub(super) enum CommandEnd {
    Exited(i32),
    Killed(i32),
    OverTime(Duration),
}

impl CommandEnd {
    pub(super) fn from_status(status: ExitStatus) -> Self {
        match (status.code(), status.signal()) {
            (Some(code), _) => Self::Exited(code),
            (None, signal) => Self::Killed(signal.unwrap_or_default()),
        }
    }
}

/// Decides the outcome of a command.
pub(super) fn decide_outcome(end: CommandEnd, output: &OutputTail) -> Result<Outcome, RetryLater> {
    let how = match end {
        CommandEnd::Exited(0) => return Ok(Outcome::Done),
        CommandEnd::Exited(DISCARD_EXIT_CODE) => {
            let reason = output.append_to(&format!(
                "the command discarded the job (exit code {DISCARD_EXIT_CODE})"
            ));
            return Ok(Outcome::Discard { reason });
        }
        CommandEnd::Exited(RETRY_EXIT_CODE) => {
            format!("the command asked for a retry (exit code {RETRY_EXIT_CODE})")
        }
        CommandEnd::Exited(code) => format!("the command failed with exit code {code}"),
        CommandEnd::Killed(signal) => format!("the command was killed by signal {signal}"),
        CommandEnd::OverTime(limit) => {
            format!("the command ran longer than {} s", limit.as_secs_f32())
        }
    };
    Err(RetryLater::by_backoff(output.append_to(&how)))
}

/// The end of a command's output.
#[derive(Default)]
pub(super) struct OutputTail(Vec<u8>);

impl OutputTail {
    pub(super) fn push(&mut self, bytes: &[u8]) {
        self.0.extend_from_slice(bytes);
        if self.0.len() > MAX_HELD_BYTES {
            self.0.drain(..self.0.len() - MAX_HELD_BYTES);
        }
    }

    fn append_to(&self, how: &str) -> String {
        let text = String::from_utf8_lossy(&self.0);
        let text = text.trim();
        let skipped = text.chars().count().saturating_sub(MAX_QUOTED_CHARS);
        let last: String = text.chars().skip(skipped).collect();
        match (last.is_empty(), skipped) {
            (true, _) => how.to_owned(),
            (false, 0) => format!("{how}: {last}"),
            (false, _) => format!("{how}: …{last}"),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn tail(text: &str) -> OutputTail {
        let mut tail = OutputTail::default();
        tail.push(text.as_bytes());
        tail
    }

    #[test]
    fn exit_code_0_completes_and_65_discards() {
        let nothing = OutputTail::default();
        assert_eq!(
            decide_outcome(CommandEnd::Exited(0), &tail("loud")),
            Ok(Outcome::Done)
        );
        assert_eq!(
            decide_outcome(CommandEnd::Exited(65), &tail("no such account\n")),
            Ok(Outcome::Discard {
                reason: "the command discarded the job (exit code 65): no such account".into()
            })
        );
        for code in (1..=255).filter(|code| *code != 65) {
            assert!(
                decide_outcome(CommandEnd::Exited(code), &nothing).is_err(),
                "{code}"
            );
        }
        assert_eq!(
            decide_outcome(CommandEnd::Killed(9), &nothing),
            Err(RetryLater::by_backoff("the command was killed by signal 9"))
        );
        assert_eq!(
            decide_outcome(CommandEnd::OverTime(Duration::from_secs(2)), &tail("slow")),
            Err(RetryLater::by_backoff(
                "the command ran longer than 2 s: slow"
            ))
        );
    }

    #[test]
    fn long_output_keeps_its_end() {
        let mut tail = OutputTail::default();
        for _ in 0..100_000 {
            tail.push("äöü".as_bytes());
        }
        tail.push(b"the cause\n");
        let text = tail.append_to("failed");
        assert!(text.ends_with("the cause"), "{text}");
        assert!(text.starts_with("failed: …"), "{text}");
        assert!(text.chars().count() < 2000 && tail.0.len() <= MAX_HELD_BYTES);
    }
}
