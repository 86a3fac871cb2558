//! The meaning of Redis' errors for a message, the server and the account. Pure.

use redis::{ErrorKind, RedisError};

use crate::destination::answer::Answer;
use crate::destination::reason::{Failure, Reason};

/// Codes of a server that accepts nothing now, or is not the right server, whatever the message.
/// After a failover a stable address leads to another server than the open connection.
const BACKPRESSURE_CODES: [&str; 12] = [
    "ASK",
    "BUSY",
    "CLUSTERDOWN",
    "LOADING",
    "MASTERDOWN",
    "MISCONF",
    "MOVED",
    "NOREPLICAS",
    // The call that loads the script was refused.
    "NOSCRIPT",
    "OOM",
    "READONLY",
    "TRYAGAIN",
];

/// Codes of an error for an account that lacks a permission.
const DENIED_CODES: [&str; 4] = ["DENIED", "NOAUTH", "NOPERM", "WRONGPASS"];
/// The same as text: Redis 7.0 returns it for a command within a script.
const DENIED_IN_SCRIPT_TEXT: &str = "The user executing the script can't";
/// The error for a command that was renamed or does not exist, whatever the message.
const UNKNOWN_COMMAND_TEXT: &str = "unknown command";
/// The error of a server with too many connections.
const TOO_MANY_CLIENTS_TEXT: &str = "max number of clients";

/// Describes an error without the address and the arguments: the error for an unknown command
/// repeats its arguments.
pub(super) fn describe_error(error: &RedisError) -> String {
    match (error.code(), error.detail()) {
        (Some(code), Some(detail)) => {
            let detail = detail.split(", with args beginning with").next();
            format!("Redis: {code} {}", detail.unwrap_or_default())
        }
        _ => format!("Redis: {error}"),
    }
}

/// Returns the reason why the outcome is unknown.
pub(super) fn reason_from_error(error: &RedisError) -> Reason {
    Reason::new(failure_kind(error), describe_error(error))
}

fn failure_kind(error: &RedisError) -> Failure {
    match error.code() {
        _ if is_denial(error) => Failure::Auth,
        _ if error.is_timeout() => Failure::Timeout,
        None if error.is_io_error() || error.is_connection_dropped() => Failure::Connect,
        Some(_) => Failure::Error,
        None => Failure::Other,
    }
}

/// Returns whether the error has one of these codes, also within the error of a script before
/// version 7.
fn has_code(error: &RedisError, codes: &[&str]) -> bool {
    let Some(code) = error.code() else {
        return false;
    };
    let within = || {
        let detail = error.detail().filter(|_| code == "ERR")?;
        detail
            .split_whitespace()
            .find_map(|word| word.strip_prefix('-'))
    };
    codes.contains(&code) || within().is_some_and(|code| codes.contains(&code))
}

/// Returns whether the account lacks a permission, or is unknown.
fn is_denial(error: &RedisError) -> bool {
    let has = |text: &str| error.detail().is_some_and(|detail| detail.contains(text));
    error.kind() == ErrorKind::AuthenticationFailed
        || has_code(error, &DENIED_CODES)
        || has(DENIED_IN_SCRIPT_TEXT)
}

/// Returns the answer to a message for the server's error.
pub(super) fn answer_from_refusal(error: &RedisError) -> Answer {
    let has = |text: &str| {
        error
            .detail()
            .is_some_and(|detail| detail.starts_with(text))
    };
    match error.code() {
        _ if is_denial(error) => Answer::denied(format!(
            "{}; grant the user of the route's URL this command on the receiver's keys \
             (ACL SETUSER)",
            describe_error(error)
        )),
        // The receiver's queue has another type; other messages may pass.
        Some("WRONGTYPE") => Answer::retry(describe_error(error)),
        // It accepts the same message later, or after a change of its settings.
        _ if has_code(error, &BACKPRESSURE_CODES)
            || has(UNKNOWN_COMMAND_TEXT)
            || has(TOO_MANY_CLIENTS_TEXT) =>
        {
            Answer::backpressure(describe_error(error))
        }
        _ => Answer::unavailable(Reason::new(failure_kind(error), describe_error(error))),
    }
}

#[cfg(test)]
mod tests {
    use super::{BACKPRESSURE_CODES, answer_from_refusal};
    use crate::destination::answer::Answer;

    /// Returns the answer to a message for this error.
    fn answer(error: &str) -> Answer {
        let line = format!("-{error}\r\n");
        let value = redis::parse_redis_value(line.as_bytes()).expect("an answer");
        answer_from_refusal(&value.extract_error().expect_err("a refusal"))
    }

    #[test]
    fn redis_server_errors_count_no_attempt_even_in_scripts() {
        for code in BACKPRESSURE_CODES {
            let plain = answer(&format!("{code} why it is so"));
            let script =
                format!("ERR Error running script (call to f_1): @user_script:3: -{code} why");
            for answer in [plain, answer(&script)] {
                let Answer::Backpressure { reason } = answer else {
                    panic!("{code}: {answer:?}");
                };
                assert!(reason.contains(code), "{reason}");
            }
        }
        for denied in [
            "NOPERM this user has no permissions to run the 'lpush' command",
            "ERR The user executing the script can't run this command or subcommand script: f",
            "ERR Error running script (call to f_1): @user_script:3: -NOPERM The user executing",
            "NOAUTH Authentication required.",
            "WRONGPASS invalid username-password pair or user is disabled.",
            "DENIED Redis is running in protected mode",
        ] {
            let answer = answer(denied);
            assert!(answer.is_denial(), "{answer:?}");
        }
        for lacking in [
            "ERR unknown command 'EVAL', with args beginning with: 'geheim'",
            "ERR max number of clients reached",
        ] {
            let answer = answer(lacking);
            assert!(matches!(answer, Answer::Backpressure { .. }), "{answer:?}");
            assert!(!answer.is_denial(), "{answer:?}");
        }
        let later = answer("WRONGTYPE Operation against a key");
        assert!(matches!(later, Answer::Retry { .. }), "{later:?}");
        let unknown = answer("ERR something - else");
        assert!(matches!(unknown, Answer::Unavailable { .. }), "{unknown:?}");
    }

    #[test]
    fn redis_errors_map_to_failure_kinds() {
        for (error, failure) in [
            ("OOM command not allowed", "full"),
            ("NOAUTH Authentication required.", "auth"),
            ("WRONGPASS invalid username-password pair", "auth"),
            ("WRONGTYPE Operation against a key", "error"),
            ("ERR something - else", "error"),
        ] {
            let kind = answer(error)
                .failure()
                .map(crate::destination::reason::Failure::name);
            assert_eq!(kind, Some(failure), "{error}");
        }
    }

    #[test]
    fn unknown_command_errors_hide_their_arguments() {
        let error = "ERR unknown command 'LPUSH', with args beginning with: 'queue:a' 'geheim'";
        let Answer::Backpressure { reason } = answer(error) else {
            panic!("{:?}", answer(error));
        };
        assert_eq!(&*reason, "Redis: ERR unknown command 'LPUSH'");
    }
}
