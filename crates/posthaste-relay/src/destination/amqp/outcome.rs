//! What became of each message of a batch, by what RabbitMQ said on its channel. Pure.

use std::collections::HashMap;

use lapin::message::BasicReturnMessage;
use lapin::protocol::{AMQPError, AMQPErrorKind, AMQPHardError, AMQPSoftError};
use lapin::{BasicProperties, Confirmation, ErrorKind};

use super::{Letter, said};
use crate::destination::answer::Answer;
use crate::destination::reason::{Failure, Reason};

/// The answers to a batch that was published on a channel of its own.
pub(super) struct Verdicts {
    /// None: the channel was closed for another message, and this one is published once more.
    /// Fewer than were published.
    pub(super) answers: Vec<Option<Answer>>,
    /// The connection is as it was, whatever became of the channel.
    pub(super) is_sound: bool,
}

enum PublishResult {
    Confirmed,
    NotConfirmed,
    Failed(lapin::Error),
}

/// By what the channel said of each, or by why there is nothing to be known.
pub(super) fn of(
    letters: &[&Letter<'_>],
    outcomes: Result<Vec<lapin::Result<Confirmation>>, Reason>,
) -> Verdicts {
    let outcomes = match outcomes {
        Ok(outcomes) => outcomes,
        Err(reason) => {
            return Verdicts {
                answers: vec![Some(Answer::unavailable(reason)); letters.len()],
                is_sound: false,
            };
        }
    };
    let mut returned = HashMap::new();
    let results: Vec<PublishResult> = outcomes
        .into_iter()
        .map(|outcome| publish_result(outcome, &mut returned))
        .collect();
    let failed: Vec<&lapin::Error> = results
        .iter()
        .filter_map(|result| match result {
            PublishResult::Failed(error) => Some(error),
            _ => None,
        })
        .collect();
    // Of a channel that was closed only some of the errors say why.
    let closed = failed.iter().find_map(|error| refusal(error));
    let denied_topic = closed.and_then(denied_topic).filter(|topic| {
        let lost = letters.iter().zip(&results);
        let mut lost = lost.filter(|(_, result)| matches!(result, PublishResult::Failed(_)));
        lost.any(|(letter, _)| letter.routing_key == *topic)
    });
    let lost = failed.first().map(|error| match closed {
        Some(refusal) => by_refusal(refusal, failed.len() == 1),
        None => Answer::unavailable(self::failed(error)),
    });
    let is_sound = failed.is_empty() || closed.is_some();
    let answers = letters.iter().zip(&results).map(|(letter, result)| {
        match (
            id(&letter.properties).and_then(|id| returned.get(&id)),
            result,
        ) {
            (Some(reason), _) => {
                let reason = format!(
                    "{reason}, for the exchange {:?} and the routing key {:?}",
                    letter.exchange, letter.routing_key
                );
                Some(Answer::retry(Reason::of(Failure::NoRoute, reason)))
            }
            (None, PublishResult::Confirmed) => Some(Answer::Accepted),
            (None, PublishResult::NotConfirmed) => Some(Answer::full(
                "RabbitMQ did not take it: a queue is full, or has failed",
            )),
            (None, PublishResult::Failed(_))
                if denied_topic.is_some_and(|topic| letter.routing_key != topic) =>
            {
                None
            }
            (None, PublishResult::Failed(_)) => Some(lost.clone().unwrap_or_else(|| {
                Answer::unavailable(Reason::of(Failure::Connect, "it was lost"))
            })),
        }
    });
    Verdicts {
        answers: answers.collect(),
        is_sound,
    }
}

/// A message that comes back is handed over with the next confirmation, which may be another one's:
/// its own id says whose it is.
fn publish_result(
    outcome: lapin::Result<Confirmation>,
    returned: &mut HashMap<String, String>,
) -> PublishResult {
    let confirmation = match outcome {
        Ok(confirmation) => confirmation,
        Err(error) => return PublishResult::Failed(error),
    };
    let is_confirmed = confirmation.is_ack();
    if let Some(message) = confirmation.take_message() {
        let id = id(&message.delivery.properties).unwrap_or_default();
        returned.insert(id, why(&message));
    }
    match is_confirmed {
        true => PublishResult::Confirmed,
        false => PublishResult::NotConfirmed,
    }
}

fn why(message: &BasicReturnMessage) -> String {
    match message.reply_code {
        312 => "RabbitMQ has no queue for it".to_owned(),
        code => format!("RabbitMQ returned it: {code} {}", message.reply_text),
    }
}

/// What a message that comes back is known by.
fn id(properties: &BasicProperties) -> Option<String> {
    let id = properties.message_id().as_ref();
    let id = id.or(properties.correlation_id().as_ref());
    id.map(ToString::to_string)
}

/// Why nothing is known of what was sent.
pub(super) fn failed(error: &lapin::Error) -> Reason {
    let failure = match error.kind() {
        ErrorKind::ProtocolError(refusal) => kind(refusal.kind()),
        _ => Failure::Connect,
    };
    Reason::of(failure, said(error))
}

fn kind(refusal: &AMQPErrorKind) -> Failure {
    match refusal {
        AMQPErrorKind::Soft(AMQPSoftError::ACCESSREFUSED)
        | AMQPErrorKind::Hard(AMQPHardError::NOTALLOWED) => Failure::Auth,
        AMQPErrorKind::Soft(AMQPSoftError::NOTFOUND | AMQPSoftError::NOROUTE) => Failure::NoRoute,
        AMQPErrorKind::Soft(AMQPSoftError::CONTENTTOOLARGE) => Failure::TooLarge,
        AMQPErrorKind::Soft(AMQPSoftError::PRECONDITIONFAILED) => Failure::Refused,
        AMQPErrorKind::Hard(AMQPHardError::RESOURCEERROR) => Failure::Full,
        AMQPErrorKind::Hard(AMQPHardError::CONNECTIONFORCED) => Failure::Connect,
        _ => Failure::Error,
    }
}

/// Why the broker closed the channel, which it does for a message and not because it is in trouble
/// itself.
fn refusal(error: &lapin::Error) -> Option<&AMQPError> {
    match error.kind() {
        ErrorKind::ProtocolError(refusal) if error.is_amqp_soft_error() => Some(refusal),
        _ => None,
    }
}

/// The routing key that the account may not use, where others of the exchange may be allowed.
fn denied_topic(refusal: &AMQPError) -> Option<&str> {
    let is_denial = *refusal.kind() == AMQPErrorKind::Soft(AMQPSoftError::ACCESSREFUSED);
    let said = is_denial.then(|| refusal.get_message().as_str())?;
    let (_, topic) = said.split_once("access to topic '")?;
    let (topic, _) = topic.split_once("' in exchange")?;
    Some(topic)
}

/// One message closed the channel for all of them. Where it may be any of several, they are sent
/// again in parts until it is found.
fn by_refusal(refusal: &AMQPError, is_alone: bool) -> Answer {
    let reason = Reason::of(
        kind(refusal.kind()),
        format!("RabbitMQ: {}", refusal.get_message()),
    );
    match refusal.kind() {
        // They all go to the same exchange. It may be declared yet.
        AMQPErrorKind::Soft(AMQPSoftError::NOTFOUND) => Answer::retry(reason),
        // Whichever the message: the account may not write there.
        AMQPErrorKind::Soft(AMQPSoftError::ACCESSREFUSED) => Answer::denied(format!(
            "{reason}; grant it (rabbitmqctl set_permissions, set_topic_permissions)"
        )),
        // It is too large, or something in it cannot be read: it will be so the next time.
        AMQPErrorKind::Soft(AMQPSoftError::PRECONDITIONFAILED) if is_alone => {
            Answer::rejected(reason)
        }
        _ if is_alone => Answer::retry(reason),
        _ => Answer::unavailable(reason),
    }
}

#[cfg(test)]
mod tests {
    use std::borrow::Cow;

    use lapin::message::{BasicReturnMessage, Delivery};
    use lapin::protocol::{AMQPError, AMQPHardError, AMQPSoftError};
    use lapin::{BasicProperties, Confirmation, ErrorKind};

    use super::{Verdicts, of};
    use crate::destination::amqp::Letter;
    use crate::destination::answer::Answer;

    fn letter(id: &str) -> Letter<'_> {
        Letter {
            exchange: "",
            routing_key: id,
            properties: BasicProperties::default().with_message_id(id.into()),
            body: Cow::Borrowed(&[]),
        }
    }

    fn judged(outcomes: Vec<lapin::Result<Confirmation>>) -> Verdicts {
        let ids: Vec<String> = (0..outcomes.len()).map(|n| n.to_string()).collect();
        let letters: Vec<Letter<'_>> = ids.iter().map(|id| letter(id)).collect();
        of(&letters.iter().collect::<Vec<_>>(), Ok(outcomes))
    }

    fn kinds(verdicts: &Verdicts) -> String {
        let kind = |answer: &Option<Answer>| match answer {
            None => '-',
            Some(answer) if answer.is_denial() => 'd',
            Some(Answer::Accepted) => 'a',
            Some(Answer::Rejected { .. }) => 'r',
            Some(Answer::Retry { .. }) => 'l',
            Some(Answer::Unavailable { .. }) => 'u',
            Some(Answer::Backpressure { .. }) => 'n',
            Some(Answer::Ambiguous { .. }) => '?',
        };
        verdicts.answers.iter().map(kind).collect()
    }

    fn returned(id: &str) -> BasicReturnMessage {
        let mut delivery = Delivery::mock(0, "".into(), "key".into(), false, Vec::new());
        delivery.properties = letter(id).properties;
        BasicReturnMessage {
            delivery,
            reply_code: 312,
            reply_text: "NO_ROUTE".into(),
        }
    }

    #[test]
    fn a_message_that_comes_back_with_anothers_confirmation_is_known_by_its_id() {
        let with = |id: &str| Ok(Confirmation::Ack(Some(returned(id))));
        let plain = || Ok(Confirmation::Ack(None));
        let verdicts = judged(vec![with("3"), plain(), with("0"), plain()]);
        assert_eq!(
            (kinds(&verdicts).as_str(), verdicts.is_sound),
            ("laal", true)
        );
    }

    #[test]
    fn a_queue_that_is_full_counts_as_no_attempt() {
        let verdicts = judged(vec![
            Ok(Confirmation::Ack(None)),
            Ok(Confirmation::Nack(None)),
        ]);
        assert_eq!((kinds(&verdicts).as_str(), verdicts.is_sound), ("an", true));
    }

    fn closed(by: AMQPSoftError, times: usize) -> Verdicts {
        closed_because(by, "why", times)
    }

    fn closed_because(by: AMQPSoftError, why: &str, times: usize) -> Verdicts {
        let error = lapin::Error::from(ErrorKind::ProtocolError(AMQPError::new(
            by.into(),
            why.into(),
        )));
        let mut outcomes = vec![Ok(Confirmation::Ack(None))];
        outcomes.extend((0..times).map(|_| Err(error.clone())));
        judged(outcomes)
    }

    #[test]
    fn only_the_message_for_which_a_channel_was_closed_is_refused() {
        let is = |verdicts: Verdicts, expected: &str| {
            assert_eq!(
                (kinds(&verdicts).as_str(), verdicts.is_sound),
                (expected, true)
            );
        };
        is(closed(AMQPSoftError::PRECONDITIONFAILED, 1), "ar");
        is(closed(AMQPSoftError::PRECONDITIONFAILED, 2), "auu");
        is(closed(AMQPSoftError::NOTFOUND, 2), "all");
    }

    #[test]
    fn a_missing_right_counts_as_no_attempt_and_touches_no_other_topic() {
        let is = |verdicts: Verdicts, expected: &str| {
            assert_eq!(
                (kinds(&verdicts).as_str(), verdicts.is_sound),
                (expected, true)
            );
        };
        is(closed(AMQPSoftError::ACCESSREFUSED, 1), "ad");
        is(closed(AMQPSoftError::ACCESSREFUSED, 2), "add");
        let of_topic = |topic: &str| {
            let why = format!(
                "ACCESS_REFUSED - write access to topic '{topic}' in exchange 'amq.topic' in vhost \
                 '/' refused for user 'app'"
            );
            closed_because(AMQPSoftError::ACCESSREFUSED, &why, 3)
        };
        // The letters of these tests have the keys 0, 1, 2 and 3.
        is(of_topic("2"), "a-d-");
        is(of_topic("0"), "addd");
    }

    #[test]
    fn a_connection_that_is_lost_is_not_used_again() {
        let error = AMQPError::new(AMQPHardError::CONNECTIONFORCED.into(), "shutdown".into());
        let error = lapin::Error::from(ErrorKind::ProtocolError(error));
        let verdicts = judged(vec![Ok(Confirmation::Ack(None)), Err(error)]);
        assert_eq!(
            (kinds(&verdicts).as_str(), verdicts.is_sound),
            ("au", false)
        );
    }
}
