//! The meaning of Kafka's delivery reports. Pure.

use rdkafka::error::{KafkaError, RDKafkaErrorCode};

use crate::destination::answer::Answer;
use crate::destination::reason::{Failure, Reason};

/// The longest name of a topic.
const MAX_TOPIC_LENGTH: usize = 249;

/// Returns the answer to a message from the error of its report. A broker refuses all records of a
/// request together, without naming the cause.
pub(super) fn answer_from_error(error: &KafkaError, is_alone: bool) -> Answer {
    use RDKafkaErrorCode::{
        ClusterAuthorizationFailed, InvalidMessageSize, InvalidRecord, InvalidTopic,
        MessageSizeTooLarge, MessageTimedOut, NotEnoughReplicas, NotEnoughReplicasAfterAppend,
        PolicyViolation, SaslAuthenticationFailed, TopicAuthorizationFailed, UnknownPartition,
        UnknownTopic, UnknownTopicOrPartition,
    };
    let reason = Reason::new(failure_kind(error), describe_error(error));
    match error.rdkafka_error_code() {
        Some(InvalidTopic) => Answer::rejected(reason),
        Some(MessageSizeTooLarge | InvalidMessageSize | InvalidRecord) if is_alone => {
            Answer::rejected(reason)
        }
        Some(UnknownTopic | UnknownTopicOrPartition | UnknownPartition | PolicyViolation) => {
            Answer::retry(reason)
        }
        // The account may not write there, whatever the record.
        Some(TopicAuthorizationFailed) => Answer::denied(format!(
            "{reason}: grant the account WRITE and DESCRIBE on the topic"
        )),
        Some(ClusterAuthorizationFailed) => Answer::denied(format!(
            "{reason}: grant the account IDEMPOTENT_WRITE on the cluster"
        )),
        Some(SaslAuthenticationFailed) => Answer::denied(reason),
        // The client retries until its own timeout if a broker has too few replicas or no leader:
        // no record is the cause.
        Some(MessageTimedOut | NotEnoughReplicas | NotEnoughReplicasAfterAppend) => {
            Answer::backpressure(reason)
        }
        _ => Answer::unavailable(reason),
    }
}

fn failure_kind(error: &KafkaError) -> Failure {
    use RDKafkaErrorCode::{
        AllBrokersDown, BrokerTransportFailure, ClusterAuthorizationFailed, InvalidMessageSize,
        InvalidTopic, MessageSizeTooLarge, MessageTimedOut, NotEnoughReplicas,
        NotEnoughReplicasAfterAppend, OperationTimedOut, PolicyViolation, QueueFull,
        RequestTimedOut, SaslAuthenticationFailed, TopicAuthorizationFailed, UnknownPartition,
        UnknownTopic, UnknownTopicOrPartition,
    };
    match error.rdkafka_error_code() {
        Some(MessageSizeTooLarge | InvalidMessageSize) => Failure::TooLarge,
        Some(InvalidTopic | UnknownTopic | UnknownTopicOrPartition | UnknownPartition) => {
            Failure::NoRoute
        }
        Some(
            TopicAuthorizationFailed
            | ClusterAuthorizationFailed
            | SaslAuthenticationFailed
            | PolicyViolation,
        ) => Failure::Auth,
        Some(MessageTimedOut | OperationTimedOut | RequestTimedOut) => Failure::Timeout,
        Some(NotEnoughReplicas | NotEnoughReplicasAfterAppend | QueueFull) => Failure::Full,
        Some(AllBrokersDown | BrokerTransportFailure) => Failure::Connect,
        Some(_) => Failure::Error,
        None => Failure::Other,
    }
}

/// Returns why a topic of this name can never exist.
pub(super) fn topic_problem(topic: &str) -> Option<&'static str> {
    let is_legal = |c: char| c.is_ascii_alphanumeric() || matches!(c, '.' | '_' | '-');
    if topic.is_empty() || topic.len() > MAX_TOPIC_LENGTH {
        return Some("does not have 1 to 249 characters");
    }
    if topic == "." || topic == ".." {
        return Some("is the name of a directory");
    }
    (!topic.chars().all(is_legal))
        .then_some("has characters other than letters, digits, dots, dashes and underscores")
}

/// Returns why a route may not set a header of this name: a reader would find two.
pub(super) fn header_objection(name: &str) -> Option<String> {
    matches!(name, "id" | "name").then(|| "is set by the relay".into())
}

/// Returns the feature that the settings need and the client lacks, by its list of features. The
/// client itself reports missing TLS or SASL when it connects, or never.
pub(super) fn missing_feature(
    features: &str,
    protocol: &str,
    mechanism: Option<&str>,
) -> Option<String> {
    let has = |feature: &str| features.split(',').any(|one| one.trim() == feature);
    if protocol.ends_with("ssl") && !has("ssl") {
        return Some(
            "security.protocol: the Kafka client of this program does not support TLS; use a \
             listener without TLS (plaintext, sasl_plaintext)"
                .into(),
        );
    }
    let mechanism = mechanism?;
    let family = mechanism.split('-').next().unwrap_or_default();
    let is_there = has(&format!("sasl_{}", family.to_lowercase()));
    (!is_there).then(|| {
        let known = features
            .split(',')
            .filter_map(|one| one.trim().strip_prefix("sasl_"));
        let known: Vec<String> = known.map(str::to_uppercase).collect();
        format!(
            "sasl.mechanism: the Kafka client of this program supports only {}",
            known.join(", ")
        )
    })
}

/// Describes an error.
pub(super) fn describe_error(error: &KafkaError) -> String {
    match error.rdkafka_error_code() {
        Some(code) => format!("Kafka: {code}"),
        None => format!("Kafka: {error}"),
    }
}

#[cfg(test)]
mod tests {
    use rdkafka::error::{KafkaError, RDKafkaErrorCode};

    use super::{answer_from_error, missing_feature, topic_problem};
    use crate::destination::answer::Answer;

    #[test]
    fn an_oversized_record_is_rejected_only_if_it_was_sent_alone() {
        let error = KafkaError::MessageProduction(RDKafkaErrorCode::MessageSizeTooLarge);
        assert!(matches!(
            answer_from_error(&error, true),
            Answer::Rejected { .. }
        ));
        assert!(matches!(
            answer_from_error(&error, false),
            Answer::Unavailable { .. }
        ));
    }

    #[test]
    fn a_missing_permission_counts_no_attempt() {
        for code in [
            RDKafkaErrorCode::TopicAuthorizationFailed,
            RDKafkaErrorCode::ClusterAuthorizationFailed,
            RDKafkaErrorCode::SaslAuthenticationFailed,
        ] {
            let answer = answer_from_error(&KafkaError::MessageProduction(code), true);
            assert!(answer.is_denial(), "{answer:?}");
        }
    }

    #[test]
    fn error_codes_map_to_failure_kinds() {
        use RDKafkaErrorCode as Code;
        for (code, failure) in [
            (Code::MessageSizeTooLarge, "too_large"),
            (Code::UnknownTopicOrPartition, "no_route"),
            (Code::TopicAuthorizationFailed, "auth"),
            (Code::MessageTimedOut, "timeout"),
            (Code::NotEnoughReplicas, "full"),
            (Code::BrokerTransportFailure, "connect"),
            (Code::Unknown, "error"),
        ] {
            let answer = answer_from_error(&KafkaError::MessageProduction(code), true);
            let error = answer
                .failure()
                .map(crate::destination::reason::Failure::name);
            assert_eq!(error, Some(failure), "{code:?}");
        }
    }

    #[test]
    fn missing_topics_are_retried_and_missing_replicas_are_backpressure() {
        let of = |code| answer_from_error(&KafkaError::MessageProduction(code), false);
        assert!(matches!(
            of(RDKafkaErrorCode::UnknownTopicOrPartition),
            Answer::Retry { .. }
        ));
        for code in [
            RDKafkaErrorCode::MessageTimedOut,
            RDKafkaErrorCode::NotEnoughReplicas,
        ] {
            assert!(matches!(of(code), Answer::Backpressure { .. }));
        }
    }

    #[test]
    fn missing_client_features_are_reported() {
        let without = "gzip,snappy,sasl,regex,lz4,sasl_plain,plugins";
        let with = "gzip,ssl,sasl,sasl_scram,sasl_plain,sasl_oauthbearer";
        for (protocol, mechanism, setting) in [
            ("ssl", None, "security.protocol: "),
            ("sasl_ssl", Some("PLAIN"), "security.protocol: "),
            ("sasl_plaintext", Some("SCRAM-SHA-512"), "sasl.mechanism: "),
            ("", Some("OAUTHBEARER"), "sasl.mechanism: "),
        ] {
            let error = missing_feature(without, protocol, mechanism).expect(protocol);
            assert!(error.starts_with(setting), "{error}");
            assert_eq!(missing_feature(with, protocol, mechanism), None);
        }
        for (protocol, mechanism) in [("", None), ("sasl_plaintext", Some("PLAIN"))] {
            assert_eq!(missing_feature(without, protocol, mechanism), None);
        }
        let error = missing_feature(without, "", Some("SCRAM-SHA-256")).unwrap_or_default();
        assert!(error.ends_with("supports only PLAIN"), "{error}");
    }

    #[test]
    fn invalid_topic_names_are_reported() {
        assert_eq!(topic_problem("mail.sent_2-b"), None);
        for bad in ["", ".", "..", "a b", "a/b", "ä", "a\0", &"x".repeat(250)] {
            assert!(topic_problem(bad).is_some(), "{bad:?}");
        }
    }
}
