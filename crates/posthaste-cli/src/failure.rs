//! Errors of commands as one line, with a remedy and without secrets.

use parking_lot::Mutex;
use posthaste::__private::{MIGRATE, NOT_INSTALLED, OR_CALL, READ_ONLY};
use tokio_postgres::error::{DbError, SqlState};

/// The exit code for invalid arguments.
pub(crate) const USAGE_EXIT_CODE: u8 = 2;

/// The result of a command that ran and reports its finding by an exit code.
#[derive(Debug, thiserror::Error)]
#[error("{line}")]
pub(crate) struct CommandExit {
    pub(crate) code: u8,
    pub(crate) line: String,
}

/// Returns the exit code of an error: 1, unless the command chose another.
pub(crate) fn exit_code(error: &anyhow::Error) -> u8 {
    error
        .downcast_ref::<CommandExit>()
        .map_or(1, |ended| ended.code)
}

/// The minimum length of a concealed password in bytes: hiding every `a` would make a message
/// unreadable.
const MIN_CONCEALED_BYTES: usize = 4;

static CONCEALED_SECRETS: Mutex<Vec<String>> = Mutex::new(Vec::new());

/// Replaces `secret` in all later results of [`error_line`] and [`redact`].
pub(crate) fn conceal(secret: &str) {
    if secret.len() >= MIN_CONCEALED_BYTES {
        CONCEALED_SECRETS.lock().push(secret.to_owned());
    }
}

/// Returns one line for `error`: its causes from the outermost inwards, up to one with a remedy.
pub(crate) fn error_line(error: &anyhow::Error) -> String {
    let mut causes: Vec<String> = Vec::new();
    for cause in error.chain() {
        if let Some(remedy) = common_remedy(cause) {
            // The remedy replaces the library's message about the same error.
            if let Some(refusal) = cause.downcast_ref::<DbError>() {
                causes.retain(|text| !text.contains(refusal.message()));
            }
            // A remedy is not redacted: a password that is a common word would hide parts of it.
            causes.push(one_line(&remedy));
            break;
        }
        let text = redact(&one_line(&cause_text(cause)));
        // A cause that the error above it already contains is not repeated.
        let bare = cause
            .downcast_ref::<DbError>()
            .map_or(text.as_str(), DbError::message);
        let repeated = causes.iter().any(|text| text.contains(bare));
        if !repeated && text != "db error" {
            causes.push(text);
        }
    }
    // The remedy for programs is left out: a person runs the command.
    causes.join(": ").replace(OR_CALL, "")
}

/// Returns one line for invalid arguments, with the commands that were probably intended.
pub(crate) fn usage_line(command: &str, error: &clap::Error, suggested: &[String]) -> String {
    let rendered = error.to_string();
    let mut lines = rendered
        .lines()
        .map(str::trim)
        .take_while(|text| !text.starts_with("Usage:") && !text.starts_with("For more information"))
        .filter(|text| !text.is_empty());
    let mut text = lines.next().unwrap_or_default().to_owned();
    if !suggested.is_empty() {
        // Our suggestions replace those of clap.
        return redact(&format!("{}. {}", one_line(&text), did_you_mean(suggested)));
    }
    for line in lines {
        let line = line.strip_prefix("tip: ").unwrap_or(line);
        let line = line.trim_start_matches('[').trim_end_matches(']');
        let is_argument = line.starts_with(['<', '-']);
        let between = match (text.ends_with(':'), is_argument) {
            (true, _) => " ",
            (false, true) => ", ",
            (false, false) => ". ",
        };
        text += between;
        text += &match between {
            ". " => capitalize(line),
            _ => line.to_owned(),
        };
    }
    let text = one_line(text.trim_end_matches('.'));
    redact(&format!("{text}. Try '{command} --help'."))
}

fn capitalize(text: &str) -> String {
    let mut letters = text.chars();
    let first = letters.next().map(|letter| letter.to_ascii_uppercase());
    first.into_iter().chain(letters).collect()
}

/// Returns one line for a missing command.
pub(crate) fn no_command_line(suggested: &[String]) -> String {
    format!("a command is missing. {}", did_you_mean(suggested))
}

fn did_you_mean(commands: &[String]) -> String {
    let commands = commands.iter().map(|words| format!("'posthaste {words}'"));
    let commands: Vec<String> = commands.collect();
    format!("Did you mean {}?", commands.join(" or "))
}

/// Replaces concealed secrets and the passwords of connection strings in `text`.
pub(crate) fn redact(text: &str) -> String {
    let mut text = posthaste_observe::redact::address_passwords(text);
    for secret in CONCEALED_SECRETS.lock().iter() {
        text = text.replace(secret, "***");
    }
    text
}

/// Returns the message of an IO error as a part of a sentence: in lower case, without the error
/// number.
pub(crate) fn io_error_text(error: &(dyn std::error::Error + 'static)) -> String {
    let text = error.to_string();
    let text = text.split(" (os error").next().unwrap_or_default();
    let mut letters = text.chars();
    match letters.next() {
        Some(first) => first.to_lowercase().chain(letters).collect(),
        None => "no reason given".to_owned(),
    }
}

fn one_line(text: &str) -> String {
    text.split_whitespace().collect::<Vec<_>>().join(" ")
}

fn cause_text(cause: &(dyn std::error::Error + 'static)) -> String {
    let Some(refusal) = cause.downcast_ref::<DbError>() else {
        return match cause.downcast_ref::<std::io::Error>() {
            Some(_) => io_error_text(cause),
            None => cause.to_string(),
        };
    };
    let mut text = refusal.message().to_owned();
    for more in [refusal.detail(), refusal.hint()].into_iter().flatten() {
        text.push_str(". ");
        text.push_str(more.trim_end_matches('.'));
    }
    text
}

/// Whether the error is a missing part of the posthaste schema: the whole schema, or a part that an
/// older version lacks.
pub(crate) fn lacks_schema(error: &anyhow::Error) -> bool {
    error.chain().any(|cause| {
        cause
            .downcast_ref::<DbError>()
            .is_some_and(is_missing_object)
    })
}

fn is_missing_object(refusal: &DbError) -> bool {
    let absent = [
        SqlState::UNDEFINED_TABLE,
        SqlState::UNDEFINED_COLUMN,
        SqlState::INVALID_SCHEMA_NAME,
        SqlState::UNDEFINED_FUNCTION,
    ];
    let message = refusal.message();
    // A message of the schema's functions is about a table of the user.
    let is_ours = message.starts_with("posthaste: ");
    absent.contains(refusal.code()) && message.contains("posthaste") && !is_ours
}

/// Returns the remedy of an error that has the same one for all commands.
fn common_remedy(cause: &(dyn std::error::Error + 'static)) -> Option<String> {
    if let Some(refusal) = cause.downcast_ref::<DbError>() {
        let code = refusal.code();
        if is_missing_object(refusal) {
            return Some(format!("{NOT_INSTALLED}; {MIGRATE}"));
        }
        if *code == SqlState::INSUFFICIENT_PRIVILEGE {
            return Some(format!(
                "Postgres refused: {}. Have its owner or a superuser grant the right ('posthaste \
                 doctor' lists missing rights), or connect as another user.",
                redact(refusal.message())
            ));
        }
        if *code == SqlState::READ_ONLY_SQL_TRANSACTION
            || refusal.message().contains("recovery is in progress")
            || refusal.message().contains("during recovery")
        {
            let message = redact(refusal.message());
            return Some(format!("Postgres refused: {message}; {READ_ONLY}"));
        }
    }
    let lost = cause
        .downcast_ref::<tokio_postgres::Error>()
        .is_some_and(tokio_postgres::Error::is_closed);
    lost.then(|| "the connection to Postgres was lost. Run the command again.".to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn passwords_in_addresses_are_never_shown() {
        assert_eq!(
            redact("no route to postgres://ann:s3cret@db.example:5432/app?x=y today"),
            "no route to postgres://ann:***@db.example:5432/app?x=y today"
        );
        assert_eq!(
            redact("postgres://ann:p@ss@db/app"),
            "postgres://ann:***@db/app"
        );
        assert_eq!(redact("see http://[::1]:80/"), "see http://[::1]:80/");
    }

    #[test]
    fn concealed_values_are_never_shown() {
        conceal("correct horse");
        assert_eq!(redact("wrote correct horse twice"), "wrote *** twice");
    }

    #[test]
    fn causes_become_one_line_without_repetition() {
        let error = anyhow::anyhow!("the disk\nis full")
            .context("cannot write x: the disk is full")
            .context("stopped");
        assert_eq!(
            error_line(&error),
            "stopped: cannot write x: the disk is full"
        );
    }
}
