//! What the answer of a mail server means, by the step that it answers. Pure.

use super::server::Sent;
use crate::destination::Answer;

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
            _ => Sent::Gone(reason),
        };
    };
    let reason = format!("the answer to {name} was {code}: {text}");
    let reason = reason.trim_end_matches([' ', ':']).to_owned();
    match code {
        // The server goes down, or does not know us (any more): that is nobody's mail.
        421 | 530 | 534 | 535 | 538 => Sent::Gone(reason),
        400..=499 => Sent::Answered(Answer::Retry {
            reason,
            after: None,
        }),
        500..=599 => Sent::Answered(Answer::Rejected { reason }),
        _ if step == Step::Text => Sent::Lost(reason),
        _ => Sent::Gone(reason),
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
    fn a_refusal_is_about_the_mail_unless_the_server_goes_or_does_not_know_us() {
        for step in STEPS {
            for code in 400..600 {
                let reason = format!("the answer to {} was {code}: so", step.name());
                let expected = match code {
                    421 | 530 | 534 | 535 | 538 => Sent::Gone(reason),
                    400..=499 => Sent::Answered(Answer::Retry {
                        reason,
                        after: None,
                    }),
                    _ => Sent::Answered(Answer::Rejected { reason }),
                };
                assert_eq!(judge(step, Some(code), "so"), expected);
            }
        }
    }
}
