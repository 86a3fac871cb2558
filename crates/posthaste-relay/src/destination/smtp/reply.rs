//! The meaning of a mail server's reply, by the step that it answers. Pure.

use crate::destination::answer::Answer;
use crate::destination::reason::{Failure, Reason};

/// The outcome of a mail.
#[derive(Debug, PartialEq)]
pub(super) enum MailOutcome {
    /// A reply; the connection can be used again.
    Answered(Answer),
    /// A reply that concerns the account: the server accepts no other mail either. The connection
    /// can be used again.
    Denied(Answer),
    /// The connection was lost, and the mail was not accepted.
    Gone(Reason),
    /// The connection was lost, and it is unknown whether the mail was accepted.
    Lost(String),
}

/// A step of a mail.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) enum MailStep {
    Sender,
    Recipient,
    Data,
    /// The text with its end: from here on the server may accept the mail without the client
    /// knowing.
    Text,
}

impl MailStep {
    /// Returns whether the reply lets the mail continue. After the text only 250 means that the
    /// mail was accepted.
    pub(super) fn accepts_code(self, code: u16) -> bool {
        match self {
            Self::Sender | Self::Text => code == 250,
            // 251: the recipient is not local, and the server forwards the mail.
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

/// Classifies a reply that does not let the mail continue; without a code there was none, or none
/// that can be parsed.
pub(super) fn classify(step: MailStep, code: Option<u16>, text: &str) -> MailOutcome {
    let name = step.name();
    let Some(code) = code else {
        let reason = format!("no answer to {name}: {text}");
        return match step {
            MailStep::Text => MailOutcome::Lost(reason),
            _ => MailOutcome::Gone(Reason::new(Failure::Connect, reason)),
        };
    };
    let reason = format!("the answer to {name} was {code}: {text}");
    let reason = reason.trim_end_matches([' ', ':']).to_owned();
    match code {
        // The server is shutting down, which concerns no mail.
        421 => MailOutcome::Gone(Reason::new(Failure::Connect, reason)),
        _ if concerns_our_account(step, code, text) => MailOutcome::Denied(Answer::denied(
            format!("{reason}; set a user of the route that may send"),
        )),
        400..=499 => MailOutcome::Answered(Answer::retry(reason_for_code(code, reason))),
        500..=599 => MailOutcome::Answered(Answer::rejected(reason_for_code(code, reason))),
        _ if step == MailStep::Text => MailOutcome::Lost(reason),
        _ => MailOutcome::Gone(reason.into()),
    }
}

/// Returns whether the server does not know the account, or requires another login or encryption
/// (RFC 4954, RFC 3207; RFC 3463 and RFC 5248 for the status in the text). 454 for a recipient
/// concerns that recipient: the server does not deliver there.
fn concerns_our_account(step: MailStep, code: u16, text: &str) -> bool {
    let status = text.split_whitespace().next().unwrap_or_default();
    match code {
        530 | 534 | 535 | 538 => true,
        454 => step != MailStep::Recipient,
        500..=599 => ACCOUNT_STATUSES.contains(&status),
        _ => false,
    }
}

/// Statuses that concern the account: a daily limit, credentials, a mechanism that is too weak, no
/// encryption, a disabled account.
const ACCOUNT_STATUSES: [&str; 6] = ["5.4.5", "5.7.8", "5.7.9", "5.7.10", "5.7.11", "5.7.13"];

/// Returns whether a refusal concerns the sender's address, and so every mail of a route with one
/// sender; not if the mail is too large.
pub(super) fn concerns_the_sender(step: MailStep, code: Option<u16>) -> bool {
    step == MailStep::Sender && code.is_some_and(|code| (500..600).contains(&code) && code != 552)
}

/// Returns a reason with the kind of failure of its code (RFC 5321, RFC 4954).
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

    const STEPS: [MailStep; 4] = [
        MailStep::Sender,
        MailStep::Recipient,
        MailStep::Data,
        MailStep::Text,
    ];

    #[test]
    fn a_mail_is_ambiguous_only_after_its_text_was_sent() {
        for step in STEPS {
            let lost = matches!(classify(step, None, "reset"), MailOutcome::Lost(_));
            assert_eq!(lost, step == MailStep::Text, "{step:?}");
            let odd = matches!(classify(step, Some(299), ""), MailOutcome::Lost(_));
            assert_eq!(odd, step == MailStep::Text, "{step:?}");
        }
        assert!((200..600).all(|code| MailStep::Text.accepts_code(code) == (code == 250)));
    }

    #[test]
    fn error_codes_map_to_failure_kinds() {
        let of = |code| match classify(MailStep::Recipient, Some(code), "so") {
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
                    454 if step != MailStep::Recipient => "denied",
                    400..=499 => "retry",
                    _ => "rejected",
                };
                assert_eq!(is(step, code, "so"), expected, "{step:?} {code}");
            }
            assert_eq!(is(step, 550, "5.7.13 the account is disabled"), "denied");
            assert_eq!(is(step, 550, "5.7.1 not here"), "rejected");
            assert_eq!(is(step, 550, "5.7.130 so"), "rejected");
        }
        assert!(concerns_the_sender(MailStep::Sender, Some(553)));
        for (step, code) in [
            (MailStep::Sender, 552),
            (MailStep::Sender, 451),
            (MailStep::Text, 550),
        ] {
            assert!(!concerns_the_sender(step, Some(code)), "{step:?} {code}");
        }
    }
}
