//! What the answer of a mail server means, by the step that it answers. Pure.

use crate::destination::answer::Answer;
use crate::destination::reason::{Failure, Reason};

/// What came of a mail.
#[derive(Debug, PartialEq)]
pub(super) enum MailOutcome {
    /// An answer; the connection goes on.
    Answered(Answer),
    /// An answer that is about us: nothing else is taken from us either. The connection goes on.
    Denied(Answer),
    /// The connection is gone, and the mail was not taken.
    Gone(Reason),
    /// The connection is gone, and nobody knows whether the mail was taken.
    Lost(String),
}

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
    pub(super) fn accepts_code(self, code: u16) -> bool {
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
pub(super) fn classify(step: Step, code: Option<u16>, text: &str) -> MailOutcome {
    let name = step.name();
    let Some(code) = code else {
        let reason = format!("no answer to {name}: {text}");
        return match step {
            Step::Text => MailOutcome::Lost(reason),
            _ => MailOutcome::Gone(Reason::new(Failure::Connect, reason)),
        };
    };
    let reason = format!("the answer to {name} was {code}: {text}");
    let reason = reason.trim_end_matches([' ', ':']).to_owned();
    match code {
        // The server goes down: that is nobody's mail.
        421 => MailOutcome::Gone(Reason::new(Failure::Connect, reason)),
        _ if concerns_our_account(step, code, text) => MailOutcome::Denied(Answer::denied(
            format!("{reason}; give the route a user who may send"),
        )),
        400..=499 => MailOutcome::Answered(Answer::retry(reason_for_code(code, reason))),
        500..=599 => MailOutcome::Answered(Answer::rejected(reason_for_code(code, reason))),
        _ if step == Step::Text => MailOutcome::Lost(reason),
        _ => MailOutcome::Gone(reason.into()),
    }
}

/// Whether the server does not know us, or wants another login or encryption before it takes
/// anything (RFC 4954, RFC 3207; RFC 3463 and RFC 5248 for the status in the text). 454 for a
/// recipient is about that recipient: it is not carried there.
fn concerns_our_account(step: Step, code: u16, text: &str) -> bool {
    let status = text.split_whitespace().next().unwrap_or_default();
    match code {
        530 | 534 | 535 | 538 => true,
        454 => step != Step::Recipient,
        500..=599 => ACCOUNT_STATUSES.contains(&status),
        _ => false,
    }
}

/// Statuses that are about the one who sends: too much for today, credentials, a mechanism that is
/// too weak, no encryption, an account that is disabled.
const ACCOUNT_STATUSES: [&str; 6] = ["5.4.5", "5.7.8", "5.7.9", "5.7.10", "5.7.11", "5.7.13"];

/// Whether a refusal is about the sender's address, and so about each mail of a route that has one
/// sender: not if the mail is too large.
pub(super) fn concerns_the_sender(step: Step, code: Option<u16>) -> bool {
    step == Step::Sender && code.is_some_and(|code| (500..600).contains(&code) && code != 552)
}

/// A reason with what its code says of the kind of failure (RFC 5321, RFC 4954).
fn reason_for_code(code: u16, reason: String) -> Reason {
    match code {
        452 | 450 => Reason::new(Failure::Full, reason),
        454 => Reason::new(Failure::Auth, reason),
        550 | 551 | 553 => Reason::new(Failure::NoRoute, reason),
        552 => Reason::new(Failure::TooLarge, reason),
        _ => reason.into(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const STEPS: [Step; 4] = [Step::Sender, Step::Recipient, Step::Data, Step::Text];

    #[test]
    fn a_mail_is_ambiguous_only_after_its_text_was_sent() {
        for step in STEPS {
            let lost = matches!(classify(step, None, "reset"), MailOutcome::Lost(_));
            assert_eq!(lost, step == Step::Text, "{step:?}");
            let odd = matches!(classify(step, Some(299), ""), MailOutcome::Lost(_));
            assert_eq!(odd, step == Step::Text, "{step:?}");
        }
        assert!((200..600).all(|code| Step::Text.accepts_code(code) == (code == 250)));
    }

    #[test]
    fn error_codes_map_to_failure_kinds() {
        let of = |code| match classify(Step::Recipient, Some(code), "so") {
            MailOutcome::Answered(answer) => answer.failure().map(Failure::name),
            MailOutcome::Denied(answer) => answer.failure().map(Failure::name),
            MailOutcome::Gone(reason) => Answer::unavailable(reason).failure().map(Failure::name),
            MailOutcome::Lost(_) => None,
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
    fn refusals_concern_the_mail_unless_the_server_or_account_fails() {
        let is = |step, code, text: &str| match classify(step, Some(code), text) {
            MailOutcome::Gone(_) => "gone",
            MailOutcome::Denied(answer) if answer.is_denial() => "denied",
            MailOutcome::Answered(Answer::Retry { .. }) => "retry",
            MailOutcome::Answered(Answer::Rejected { .. }) => "rejected",
            other => panic!("{other:?}"),
        };
        for step in STEPS {
            for code in 400..600 {
                let expected = match code {
                    421 => "gone",
                    530 | 534 | 535 | 538 => "denied",
                    454 if step != Step::Recipient => "denied",
                    400..=499 => "retry",
                    _ => "rejected",
                };
                assert_eq!(is(step, code, "so"), expected, "{step:?} {code}");
            }
            assert_eq!(is(step, 550, "5.7.13 the account is disabled"), "denied");
            assert_eq!(is(step, 550, "5.7.1 not here"), "rejected");
            assert_eq!(is(step, 550, "5.7.130 so"), "rejected");
        }
        assert!(concerns_the_sender(Step::Sender, Some(553)));
        for (step, code) in [(Step::Sender, 552), (Step::Sender, 451), (Step::Text, 550)] {
            assert!(!concerns_the_sender(step, Some(code)), "{step:?} {code}");
        }
    }
}
