//! The outcome of each message of a batch, from the events on its RabbitMQ channel. Pure.

use std::collections::HashMap;

use lapin::message::BasicReturnMessage;
use lapin::protocol::{AMQPError, AMQPErrorKind, AMQPHardError, AMQPSoftError};
use lapin::{BasicProperties, Confirmation, ErrorKind};

use super::{Publication, describe_error};
use crate::destination::answer::Answer;
use crate::destination::reason::{Failure, Reason};

/// The answers to a batch that was published on its own channel.
pub(super) struct BatchOutcome {
    /// `None`: the channel was closed because of another message, and this one is published again.
    /// Fewer than were published.
    pub(super) answers: Vec<Option<Answer>>,
    /// Whether the connection can be used again, regardless of the channel.
    pub(super) is_sound: bool,
}

enum PublishResult {
    Confirmed,
    NotConfirmed,
    Failed(lapin::Error),
}

/// Maps the events of the channel, or its failure, to an answer for each message.
pub(super) fn answers_from_outcomes(
    letters: &[&Publication<'_>],
    outcomes: Result<Vec<lapin::Result<Confirmation>>, Reason>,
) -> BatchOutcome {
    let outcomes = match outcomes {
        Ok(outcomes) => outcomes,
        Err(reason) => {
            return BatchOutcome {
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
    // Only some errors of a closed channel contain the reason.
    let closed = failed.iter().find_map(|error| channel_refusal(error));
    let denied_topic = closed.and_then(denied_topic).filter(|topic| {
        let lost = letters.iter().zip(&results);
        let mut lost = lost.filter(|(_, result)| matches!(result, PublishResult::Failed(_)));
        lost.any(|(letter, _)| letter.routing_key == *topic)
    });
    let lost = failed.first().map(|error| match closed {
        Some(refusal) => answer_from_refusal(refusal, failed.len() == 1),
        None => Answer::unavailable(self::reason_from_error(error)),
    });
    let is_sound = failed.is_empty() || closed.is_some();
    let answers = letters.iter().zip(&results).map(|(letter, result)| {
        match (
            message_id(&letter.properties).and_then(|id| returned.get(&id)),
            result,
        ) {
            (Some(reason), _) => {
                let reason = format!(
                    "{reason}, for the exchange {:?} and the routing key {:?}",
                    letter.exchange, letter.routing_key
                );
                Some(Answer::retry(Reason::new(Failure::NoRoute, reason)))
            }
            (None, PublishResult::Confirmed) => Some(Answer::Accepted),
            (None, PublishResult::NotConfirmed) => Some(Answer::backpressure(
                "RabbitMQ did not accept it: a queue is full or has failed",
            )),
            (None, PublishResult::Failed(_))
                if denied_topic.is_some_and(|topic| letter.routing_key != topic) =>
            {
                None
            }
            (None, PublishResult::Failed(_)) => Some(lost.clone().unwrap_or_else(|| {
                Answer::unavailable(Reason::new(Failure::Connect, "it was lost"))
            })),
        }
    });
    BatchOutcome {
        answers: answers.collect(),
        is_sound,
    }
}

/// Reads an outcome. A returned message arrives with the next confirmation, which may be that of
/// another message: its id identifies it.
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
        let id = message_id(&message.delivery.properties).unwrap_or_default();
        returned.insert(id, return_reason(&message));
    }
    match is_confirmed {
        true => PublishResult::Confirmed,
        false => PublishResult::NotConfirmed,
    }
}

fn return_reason(message: &BasicReturnMessage) -> String {
    match message.reply_code {
        312 => "RabbitMQ has no queue for it".to_owned(),
        code => format!("RabbitMQ returned it: {code} {}", message.reply_text),
    }
}

/// Returns the id by which a returned message is identified.
fn message_id(properties: &BasicProperties) -> Option<String> {
    let id = properties.message_id().as_ref();
    let id = id.or(properties.correlation_id().as_ref());
    id.map(ToString::to_string)
}

/// Returns the reason why the outcome is unknown.
pub(super) fn reason_from_error(error: &lapin::Error) -> Reason {
    let failure = match error.kind() {
        ErrorKind::ProtocolError(refusal) => failure_kind(refusal.kind()),
        _ => Failure::Connect,
    };
    Reason::new(failure, describe_error(error))
}

fn failure_kind(refusal: &AMQPErrorKind) -> Failure {
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

/// Returns why the broker closed the channel because of a message, not because of a problem of the
/// broker.
fn channel_refusal(error: &lapin::Error) -> Option<&AMQPError> {
    match error.kind() {
        ErrorKind::ProtocolError(refusal) if error.is_amqp_soft_error() => Some(refusal),
        _ => None,
    }
}

/// Returns the routing key that the account may not use, if others of the exchange may be allowed.
fn denied_topic(refusal: &AMQPError) -> Option<&str> {
    let is_denial = *refusal.kind() == AMQPErrorKind::Soft(AMQPSoftError::ACCESSREFUSED);
    let error = is_denial.then(|| refusal.get_message().as_str())?;
    let (_, topic) = error.split_once("access to topic '")?;
    let (topic, _) = topic.split_once("' in exchange")?;
    Some(topic)
}

/// Returns the answer after one message closed the channel for all. If it may be any of several,
/// they are sent again in parts to find it.
fn answer_from_refusal(refusal: &AMQPError, is_alone: bool) -> Answer {
    let reason = Reason::new(
        failure_kind(refusal.kind()),
        format!("RabbitMQ: {}", refusal.get_message()),
    );
    match refusal.kind() {
        // All go to the same exchange, which may still be declared.
        AMQPErrorKind::Soft(AMQPSoftError::NOTFOUND) => Answer::retry(reason),
        // The account may not write there, whatever the message.
        AMQPErrorKind::Soft(AMQPSoftError::ACCESSREFUSED) => Answer::denied(format!(
            "{reason}; grant it (rabbitmqctl set_permissions, set_topic_permissions)"
        )),
        // It is too large or malformed, and would be rejected again.
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

    use super::{BatchOutcome, answers_from_outcomes};
    use crate::destination::amqp::Publication;
    use crate::destination::answer::Answer;

    fn letter(id: &str) -> Publication<'_> {
        Publication {
            exchange: "",
            routing_key: id,
            properties: BasicProperties::default().with_message_id(id.into()),
            body: Cow::Borrowed(&[]),
        }
    }

    fn judged(outcomes: Vec<lapin::Result<Confirmation>>) -> BatchOutcome {
        let ids: Vec<String> = (0..outcomes.len()).map(|n| n.to_string()).collect();
        let letters: Vec<Publication<'_>> = ids.iter().map(|id| letter(id)).collect();
        answers_from_outcomes(&letters.iter().collect::<Vec<_>>(), Ok(outcomes))
    }

    fn kinds(outcomes: &BatchOutcome) -> String {
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
        outcomes.answers.iter().map(kind).collect()
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
    fn returned_messages_are_matched_by_id() {
        let with = |id: &str| Ok(Confirmation::Ack(Some(returned(id))));
        let plain = || Ok(Confirmation::Ack(None));
        let outcomes = judged(vec![with("3"), plain(), with("0"), plain()]);
        assert_eq!(
            (kinds(&outcomes).as_str(), outcomes.is_sound),
            ("laal", true)
        );
    }

    #[test]
    fn a_negative_confirmation_is_backpressure() {
        let outcomes = judged(vec![
            Ok(Confirmation::Ack(None)),
            Ok(Confirmation::Nack(None)),
        ]);
        assert_eq!((kinds(&outcomes).as_str(), outcomes.is_sound), ("an", true));
    }

    fn closed(by: AMQPSoftError, times: usize) -> BatchOutcome {
        closed_because(by, "why", times)
    }

    fn closed_because(by: AMQPSoftError, why: &str, times: usize) -> BatchOutcome {
        let error = lapin::Error::from(ErrorKind::ProtocolError(AMQPError::new(
            by.into(),
            why.into(),
        )));
        let mut outcomes = vec![Ok(Confirmation::Ack(None))];
        outcomes.extend((0..times).map(|_| Err(error.clone())));
        judged(outcomes)
    }

    #[test]
    fn a_closed_channel_rejects_a_lone_message_and_resends_several() {
        let is = |outcomes: BatchOutcome, expected: &str| {
            assert_eq!(
                (kinds(&outcomes).as_str(), outcomes.is_sound),
                (expected, true)
            );
        };
        is(closed(AMQPSoftError::PRECONDITIONFAILED, 1), "ar");
        is(closed(AMQPSoftError::PRECONDITIONFAILED, 2), "auu");
        is(closed(AMQPSoftError::NOTFOUND, 2), "all");
    }

    #[test]
    fn an_access_refusal_denies_its_topic_and_resends_the_others() {
        let is = |outcomes: BatchOutcome, expected: &str| {
            assert_eq!(
                (kinds(&outcomes).as_str(), outcomes.is_sound),
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
    fn lost_connections_are_not_reused() {
        let error = AMQPError::new(AMQPHardError::CONNECTIONFORCED.into(), "shutdown".into());
        let error = lapin::Error::from(ErrorKind::ProtocolError(error));
        let outcomes = judged(vec![Ok(Confirmation::Ack(None)), Err(error)]);
        assert_eq!(
            (kinds(&outcomes).as_str(), outcomes.is_sound),
            ("au", false)
        );
    }
}
