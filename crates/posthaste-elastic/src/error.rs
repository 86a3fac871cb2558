//! The error type of the client. It describes the outcome of a call; the caller decides how to
//! react.

use std::fmt;
use std::time::Duration;

/// The most characters of a server's error that are repeated.
const MAX_QUOTED_CHARS: usize = 500;
/// Texts after which servers quote the document.
const PREVIEW_MARKERS: [&str; 2] = [
    ". Preview of field's value",
    ". Please correct the analyzer to not produce such terms",
];

/// The reason why a call did not succeed.
///
/// Its text is one line, and never contains addresses, passwords or keys.
#[derive(thiserror::Error)]
#[error("{call}: {reason}")]
pub struct Error {
    call: &'static str,
    kind: ErrorKind,
    reason: String,
    status: Option<u16>,
    retry_after: Option<Duration>,
    begun: bool,
}

/// The outcome of a failed call, or of one [operation](crate::Operation) among several.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum ErrorKind {
    /// The client refused the call before it sent anything.
    Invalid,
    /// The server rejects the credentials, or they lack a permission (401, 403).
    Denied,
    /// The server can never execute it as it is: the mapping forbids the document, the script fails
    /// (400 and similar).
    Refused,
    /// The document does not meet the [condition](crate::Condition) (409).
    Conflict,
    /// The document, script or pipeline does not exist (404).
    Missing,
    /// Neither an index nor an alias has this name.
    NoIndex,
    /// The index accepts no writes now: it is read-only because an operator made it so or because
    /// the disk is full.
    Blocked,
    /// The server is overloaded (429): send less at once, and later.
    TooMany,
    /// The request is larger than the server accepts (413): send less at once.
    TooLarge,
    /// The server is unreachable, or cannot execute the call now (5xx).
    Unavailable,
    /// No answer arrived within the time limit.
    TimedOut,
    /// The answer is longer than the client [reads](crate::Client::largest_answer): ask for less at
    /// once.
    TooLong,
    /// The connection broke before an answer arrived, or the answer is implausible.
    Unanswered,
}

impl ErrorKind {
    /// Returns the outcome for an HTTP status and the type of the server's error.
    pub(crate) fn from_status(status: u16, named: &str) -> Self {
        match (status, named) {
            (_, "cluster_block_exception") if status < 500 => Self::Blocked,
            (404, "index_not_found_exception") => Self::NoIndex,
            (401 | 403, _) => Self::Denied,
            (404, _) => Self::Missing,
            (409, _) => Self::Conflict,
            (413, _) => Self::TooLarge,
            (429, _) => Self::TooMany,
            // A proxy that stopped waiting may have forwarded the request.
            (408 | 500..=599, _) => Self::Unavailable,
            (100..=299, _) => Self::Unanswered,
            _ => Self::Refused,
        }
    }

    /// Whether the same call may succeed at another time.
    pub fn may_pass(self) -> bool {
        match self {
            Self::Blocked
            | Self::TooMany
            | Self::Unavailable
            | Self::TimedOut
            | Self::Unanswered => true,
            Self::Invalid
            | Self::Denied
            | Self::Refused
            | Self::Conflict
            | Self::Missing
            | Self::NoIndex
            | Self::TooLarge
            | Self::TooLong => false,
        }
    }

    /// Whether the server may execute the call, or may have executed it: now or at any later time.
    pub fn may_have_been_done(self) -> bool {
        matches!(
            self,
            Self::Unavailable | Self::TimedOut | Self::TooLong | Self::Unanswered
        )
    }
}

impl Error {
    pub(crate) fn invalid(call: &'static str, reason: impl Into<String>) -> Self {
        Self {
            begun: false,
            ..Self::new(call, ErrorKind::Invalid, reason)
        }
    }

    pub(crate) fn new(call: &'static str, kind: ErrorKind, reason: impl Into<String>) -> Self {
        Self {
            call,
            kind,
            reason: reason.into(),
            status: None,
            retry_after: None,
            begun: true,
        }
    }

    /// Describes a call that was not sent because no connection was established.
    pub(crate) fn not_sent(call: &'static str, reason: impl Into<String>) -> Self {
        Self {
            begun: false,
            ..Self::new(call, ErrorKind::Unavailable, reason)
        }
    }

    pub(crate) fn with_status(self, status: u16, retry_after: Option<Duration>) -> Self {
        Self {
            status: Some(status),
            retry_after,
            ..self
        }
    }

    /// Returns the outcome of the call.
    pub fn kind(&self) -> ErrorKind {
        self.kind
    }

    /// Whether the server may execute the call, or may have executed it: now or at any later time.
    ///
    /// If this is false, the call has changed nothing and will change nothing.
    pub fn may_have_been_done(&self) -> bool {
        self.begun && self.kind.may_have_been_done()
    }

    /// Whether the same call may succeed at another time.
    pub fn may_pass(&self) -> bool {
        self.kind.may_pass()
    }

    /// Returns the HTTP status of the answer, if there was one.
    pub fn status(&self) -> Option<u16> {
        self.status
    }

    /// Returns the delay that the server requests before the next call (`Retry-After`), if any.
    pub fn retry_after(&self) -> Option<Duration> {
        self.retry_after
    }
}

impl fmt::Debug for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut shown = f.debug_struct("Error");
        shown.field("call", &self.call).field("kind", &self.kind);
        shown.field("reason", &self.reason);
        shown.field("status", &self.status).finish_non_exhaustive()
    }
}

/// Returns a server's error as one line, without the document that it may quote.
pub(crate) fn quote_error(text: &str) -> String {
    let line = text.split_whitespace().collect::<Vec<_>>().join(" ");
    let ends = PREVIEW_MARKERS
        .iter()
        .filter_map(|preview| line.find(preview));
    let line = &line[..ends.min().unwrap_or(line.len())];
    let mut start: String = line.chars().take(MAX_QUOTED_CHARS).collect();
    if start.len() < line.len() {
        start.push('…');
    }
    start
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn http_statuses_map_to_call_outcomes() {
        use ErrorKind::*;
        for (status, named, kind) in [
            (400, "mapper_parsing_exception", Refused),
            (401, "security_exception", Denied),
            (403, "security_exception", Denied),
            (403, "cluster_block_exception", Blocked),
            (404, "index_not_found_exception", NoIndex),
            (404, "document_missing_exception", Missing),
            (409, "version_conflict_engine_exception", Conflict),
            (413, "", TooLarge),
            (429, "cluster_block_exception", Blocked),
            (429, "rejected_execution_exception", TooMany),
            (502, "", Unavailable),
            (503, "cluster_block_exception", Unavailable),
            (200, "", Unanswered),
            (301, "", Refused),
        ] {
            assert_eq!(
                ErrorKind::from_status(status, named),
                kind,
                "{status} {named}"
            );
        }
    }

    #[test]
    fn timeouts_and_server_errors_mean_the_call_may_have_been_done() {
        for status in 100..=599 {
            let kind = ErrorKind::from_status(status, "");
            let open = status < 300 || status == 408 || status >= 500;
            assert_eq!(kind.may_have_been_done(), open, "{status}");
        }
        let sent = Error::new("bulk", ErrorKind::TimedOut, "no answer in time");
        assert!(sent.may_have_been_done());
        assert!(!Error::not_sent("bulk", "refused").may_have_been_done());
        assert!(Error::not_sent("bulk", "refused").may_pass());
        assert!(!Error::invalid("bulk", "an id is empty").may_have_been_done());
    }

    #[test]
    fn server_errors_are_one_short_line_without_the_document() {
        let text = "failed to parse field [n] of type [long] in document with id 'b'. \
                    Preview of field's value: 'secret'";
        assert_eq!(
            quote_error(text),
            "failed to parse field [n] of type [long] in document with id 'b'"
        );
        let text = "Document contains at least one immense term in field=\"n\" (whose UTF8 \
                    encoding is longer than the max length 32766), all of which were skipped.  \
                    Please correct the analyzer to not produce such terms.  The prefix of the \
                    first immense term is: '[115, 101, 99]...'";
        assert!(quote_error(text).ends_with("all of which were skipped"));
        assert_eq!(quote_error(" two\n\tlines "), "two lines");
        assert!(quote_error(&"long ".repeat(500)).chars().count() == MAX_QUOTED_CHARS + 1);
    }
}
