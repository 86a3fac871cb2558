//! What Kafka's reports of delivery say of a message. Pure.

use rdkafka::error::{KafkaError, RDKafkaErrorCode};

use crate::relay::destination::Answer;

/// The longest name of a topic.
const LONGEST: usize = 249;

/// What became of a message, by the error that its report has. A broker refuses the records that came in one request together: for which of them, it does not say.
pub(super) fn answer(error: &KafkaError, is_alone: bool) -> Answer {
    use RDKafkaErrorCode::{
        InvalidMessageSize, InvalidRecord, InvalidTopic, MessageSizeTooLarge, MessageTimedOut,
        NotEnoughReplicas, NotEnoughReplicasAfterAppend, PolicyViolation, TopicAuthorizationFailed,
        UnknownPartition, UnknownTopic, UnknownTopicOrPartition,
    };
    let reason = said(error);
    match error.rdkafka_error_code() {
        Some(InvalidTopic) => Answer::Refused { reason },
        Some(MessageSizeTooLarge | InvalidMessageSize | InvalidRecord) if is_alone => {
            Answer::Refused { reason }
        }
        Some(
            UnknownTopic
            | UnknownTopicOrPartition
            | UnknownPartition
            | TopicAuthorizationFailed
            | PolicyViolation,
        ) => Answer::Later {
            reason,
            after: None,
        },
        // The client goes on until its own time is over where a broker says that it has too few replicas, or no leader: no record is to blame for that.
        Some(MessageTimedOut | NotEnoughReplicas | NotEnoughReplicasAfterAppend) => {
            Answer::NotNow { reason }
        }
        _ => Answer::unanswered(reason),
    }
}

/// Why there is no such topic, and never will be.
pub(super) fn problem_of_topic(topic: &str) -> Option<&'static str> {
    let is_legal = |c: char| c.is_ascii_alphanumeric() || matches!(c, '.' | '_' | '-');
    if topic.is_empty() || topic.len() > LONGEST {
        return Some("is not of 1 to 249 characters");
    }
    if topic == "." || topic == ".." {
        return Some("is a folder's name");
    }
    (!topic.chars().all(is_legal))
        .then_some("has other characters than letters, digits, dots, dashes and underscores")
}

/// What went wrong.
pub(super) fn said(error: &KafkaError) -> String {
    match error.rdkafka_error_code() {
        Some(code) => format!("Kafka: {code}"),
        None => format!("Kafka: {error}"),
    }
}

#[cfg(test)]
mod tests {
    use rdkafka::error::{KafkaError, RDKafkaErrorCode};

    use super::{answer, problem_of_topic};
    use crate::relay::destination::Answer;

    #[test]
    fn neighbours_of_a_record_that_is_too_large_are_not_refused_with_it() {
        let error = KafkaError::MessageProduction(RDKafkaErrorCode::MessageSizeTooLarge);
        assert!(matches!(answer(&error, true), Answer::Refused { .. }));
        assert!(matches!(answer(&error, false), Answer::Unanswered { .. }));
    }

    #[test]
    fn a_topic_that_there_is_not_may_be_created_yet_and_a_broker_that_is_away_burns_nothing() {
        let of = |code| answer(&KafkaError::MessageProduction(code), false);
        assert!(matches!(
            of(RDKafkaErrorCode::UnknownTopicOrPartition),
            Answer::Later { .. }
        ));
        for code in [
            RDKafkaErrorCode::MessageTimedOut,
            RDKafkaErrorCode::NotEnoughReplicas,
        ] {
            assert!(matches!(of(code), Answer::NotNow { .. }));
        }
    }

    #[test]
    fn names_that_no_topic_can_have_are_told() {
        assert_eq!(problem_of_topic("mail.sent_2-b"), None);
        for bad in ["", ".", "..", "a b", "a/b", "ä", "a\0", &"x".repeat(250)] {
            assert!(problem_of_topic(bad).is_some(), "{bad:?}");
        }
    }
}
