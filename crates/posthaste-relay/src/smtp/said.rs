//! What the answer of a mail server means, by the step that it answers. Pure.

use super::server::Sent;
use crate::destination::Answer;
use crate::reason::{Failure, Reason};

/// A step of a mail.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) enum Step {
    Sender,
    Recipient,
    Data,
    /// The text with its end: from here on the server may have the mail without our knowing.
    Text,
}

impl Step {
    /// Whether the answer lets the mail go on. Nothing but 250 after the text says that the mail
    /// was taken.
    pub(super) fn is_passed_by(self, code: u16) -> bool {
        match self {
            Self::Sender | Self::Text => code == 250,
            // 251: it is not for here, and is carried on.
            Self::Recipient => matches!(code, 250 | 251),
            Self::Data => code == 354,
        }
    }

    fn name(self) -> &'static str {
        match self {
            Self::Sender => "MAIL",
            Self::Recipient => "RCPT",
            Self::Data => "DATA",
            Self::Text => "the text",
        }
    }
}

/// What an answer means that does not let the mail go on; without a code there was none, or none
/// that can be read.
pub(super) fn judge(step: Step, code: Option<u16>, text: &str) -> Sent {
    let name = step.name();
    let Some(code) = code else {
        let reason = format!("no answer to {name}: {text}");
        return match step {
            Step::Text => Sent::Lost(reason),
            _ => Sent::Gone(Reason::of(Failure::Connect, reason)),
        };
    };
    let reason = format!("the answer to {name} was {code}: {text}");
    let reason = reason.trim_end_matches([' ', ':']).to_owned();
    match code {
        // The server goes down, or does not know us (any more): that is nobody's mail.
        421 | 530 | 534 | 535 | 538 => Sent::Gone(of_loss(code, reason)),
        400..=499 => Sent::Answered(Answer::retry(of_code(code, reason))),
        500..=599 => Sent::Answered(Answer::rejected(of_code(code, reason))),
        _ if step == Step::Text => Sent::Lost(reason),
        _ => Sent::Gone(reason.into()),
    }
}

/// Why the server takes no mail of ours: it goes down, or does not know us.
fn of_loss(code: u16, reason: String) -> Reason {
    let failure = match code {
        421 => Failure::Connect,
        _ => Failure::Auth,
    };
    Reason::of(failure, reason)
}

/// A reason with what its code says of the kind of failure (RFC 5321, RFC 4954).
fn of_code(code: u16, reason: String) -> Reason {
    match code {
        452 | 450 => Reason::of(Failure::Full, reason),
        454 => Reason::of(Failure::Auth, reason),
        550 | 551 | 553 => Reason::of(Failure::NoRoute, reason),
        552 => Reason::of(Failure::TooLarge, reason),
        _ => reason.into(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const STEPS: [Step; 4] = [Step::Sender, Step::Recipient, Step::Data, Step::Text];

    #[test]
    fn only_after_the_text_is_it_unknown_whether_the_mail_was_taken() {
        for step in STEPS {
            let lost = matches!(judge(step, None, "reset"), Sent::Lost(_));
            assert_eq!(lost, step == Step::Text, "{step:?}");
            let odd = matches!(judge(step, Some(299), ""), Sent::Lost(_));
            assert_eq!(odd, step == Step::Text, "{step:?}");
        }
        assert!((200..600).all(|code| Step::Text.is_passed_by(code) == (code == 250)));
    }

    #[test]
    fn each_code_has_its_kind_of_failure() {
        let of = |code| match judge(Step::Recipient, Some(code), "so") {
            Sent::Answered(answer) => answer.failure().map(Failure::name),
            Sent::Gone(reason) => Answer::unavailable(reason).failure().map(Failure::name),
            Sent::Lost(_) => None,
        };
        for (code, failure) in [
            (421, "connect"),
            (535, "auth"),
            (450, "full"),
            (451, "error"),
            (550, "no_route"),
            (552, "too_large"),
            (554, "refused"),
        ] {
            assert_eq!(of(code), Some(failure), "{code}");
        }
    }

    #[test]
    fn a_refusal_is_about_the_mail_unless_the_server_goes_or_does_not_know_us() {
        for step in STEPS {
            for code in 400..600 {
                let reason = format!("the answer to {} was {code}: so", step.name());
                let expected = match code {
                    421 | 530 | 534 | 535 | 538 => Sent::Gone(of_loss(code, reason)),
                    400..=499 => Sent::Answered(Answer::retry(of_code(code, reason))),
                    _ => Sent::Answered(Answer::rejected(of_code(code, reason))),
                };
                assert_eq!(judge(step, Some(code), "so"), expected);
            }
        }
    }
}
