//! Matches answers to requests on one connection. No I/O here.
//!
//! Requests are pipelined, so the bytes after COMMIT are not necessarily the answer to COMMIT.
//! Postgres answers every Query and every Sync with one ReadyForQuery, in order: counting both
//! sides finds the right answer.

use std::collections::HashMap;

use tokio::sync::oneshot;

use super::frames::Message;

/// Matches the request whose answer is lost.
#[derive(Clone, Debug)]
pub struct RequestMatcher(RequestPattern);

#[derive(Clone, Debug)]
enum RequestPattern {
    Commit,
    Statement(String),
    Nth(u64),
}

impl RequestMatcher {
    /// Matches the next COMMIT, alone or among several statements of a simple query.
    pub fn commit() -> Self {
        Self(RequestPattern::Commit)
    }

    /// Matches the next execution of a statement whose text contains this, ignoring case; prepared
    /// statements are matched by their text too.
    pub fn statement(text: &str) -> Self {
        Self(RequestPattern::Statement(text.to_lowercase()))
    }

    /// Matches the n-th request from now over all connections, where 1 is the next one: a simple
    /// query, or everything up to a Sync.
    pub fn nth(nth: u64) -> Self {
        Self(RequestPattern::Nth(nth))
    }
}

/// Waits for its request on any connection.
#[derive(Debug)]
pub(super) struct Interception {
    what: RequestPattern,
    told: oneshot::Sender<()>,
    end: End,
}

/// What happens to a connection whose answer was caught.
#[derive(Clone, Copy, Debug)]
enum End {
    Reset,
    Silence,
    Stall,
}

impl Interception {
    pub(super) fn new(request: RequestMatcher, told: oneshot::Sender<()>) -> Self {
        Self {
            what: request.0,
            told,
            end: End::Reset,
        }
    }

    /// Silences the connection instead of resetting it: neither side receives anything more.
    pub(super) fn silent(self) -> Self {
        Self {
            end: End::Silence,
            ..self
        }
    }

    /// Delivers the answer later instead of resetting the connection.
    pub(super) fn stalled(self) -> Self {
        Self {
            end: End::Stall,
            ..self
        }
    }

    fn catches_statement(&self, sql: &str) -> bool {
        match &self.what {
            RequestPattern::Commit => sql
                .split(';')
                .any(|part| starts_with_word(part.trim(), "commit")),
            RequestPattern::Statement(text) => sql.to_lowercase().contains(text),
            RequestPattern::Nth(_) => false,
        }
    }

    fn catches_request(&mut self) -> bool {
        let RequestPattern::Nth(left) = &mut self.what else {
            return false;
        };
        *left = left.saturating_sub(1);
        *left == 0
    }
}

/// What the proxy does with a message of the server.
#[derive(Debug)]
pub(super) enum Verdict {
    Forward,
    Swallow,
    /// The lost answer is complete: the server has executed the request.
    Reset(oneshot::Sender<()>),
    /// As `Reset`, but neither side is notified.
    Silence(oneshot::Sender<()>),
    /// The answer begins: it and everything after it is delivered later.
    Stall(oneshot::Sender<()>),
}

/// Counts the requests and answers of one connection.
#[derive(Debug, Default)]
pub(super) struct Exchange {
    /// Unanswered requests for encryption.
    pub(super) bare_bytes: u32,
    asked: u64,
    answered: u64,
    prepared: HashMap<Vec<u8>, String>,
    doomed: Option<(u64, Interception)>,
}

impl Exchange {
    /// Records a message of the client before it is forwarded.
    pub(super) fn client_sends(
        &mut self,
        message: &Message,
        interception: &mut Option<Interception>,
    ) {
        let caught = match message.tag {
            None if message.asks_for_encryption() => {
                self.bare_bytes += 1;
                return;
            }
            // The end of the startup is announced by ReadyForQuery, like an answer.
            None => {
                self.asked += 1;
                return;
            }
            Some(b'Q') => {
                self.asked += 1;
                let sql = text(message.body());
                take_if_caught(interception, |interception| {
                    interception.catches_request() || interception.catches_statement(&sql)
                })
                .map(|interception| (self.asked, interception))
            }
            Some(b'S' | b'F') => {
                self.asked += 1;
                take_if_caught(interception, Interception::catches_request)
                    .map(|interception| (self.asked, interception))
            }
            Some(b'P') => {
                let (name, rest) = c_string(message.body());
                self.prepared.insert(name.to_vec(), text(rest));
                return;
            }
            // The Sync that ends this request is still to come.
            Some(b'B') => {
                let (_portal, rest) = c_string(message.body());
                let sql = self
                    .prepared
                    .get(c_string(rest).0)
                    .map_or("", String::as_str);
                take_if_caught(interception, |interception| {
                    interception.catches_statement(sql)
                })
                .map(|interception| (self.asked + 1, interception))
            }
            _ => return,
        };
        if let Some((request, interception)) = caught {
            self.doomed = Some((request, interception));
        }
    }

    /// Records a message of the server and decides what happens to it.
    pub(super) fn server_sends(&mut self, message: &Message) -> Verdict {
        let doomed = self
            .doomed
            .as_ref()
            .is_some_and(|(request, _)| *request == self.answered + 1);
        let stalls = |(_, interception): &mut (u64, Interception)| {
            doomed && matches!(interception.end, End::Stall)
        };
        if let Some((_, interception)) = self.doomed.take_if(stalls) {
            self.answered += u64::from(message.tag == Some(b'Z'));
            return Verdict::Stall(interception.told);
        }
        if message.tag == Some(b'Z') {
            self.answered += 1;
            if doomed && let Some((_, interception)) = self.doomed.take() {
                return match interception.end {
                    End::Silence => Verdict::Silence(interception.told),
                    End::Reset | End::Stall => Verdict::Reset(interception.told),
                };
            }
        }
        if doomed {
            Verdict::Swallow
        } else {
            Verdict::Forward
        }
    }
}

fn take_if_caught(
    interception: &mut Option<Interception>,
    catches: impl FnOnce(&mut Interception) -> bool,
) -> Option<Interception> {
    interception.take_if(catches)
}

/// Splits at the first zero byte: a string, and the bytes after it.
fn c_string(bytes: &[u8]) -> (&[u8], &[u8]) {
    let end = bytes
        .iter()
        .position(|byte| *byte == 0)
        .unwrap_or(bytes.len());
    (&bytes[..end], bytes.get(end + 1..).unwrap_or_default())
}

fn text(bytes: &[u8]) -> String {
    String::from_utf8_lossy(c_string(bytes).0).into_owned()
}

fn starts_with_word(text: &str, word: &str) -> bool {
    text.split(|c: char| !c.is_alphanumeric())
        .next()
        .is_some_and(|first| first.eq_ignore_ascii_case(word))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn message(tag: u8, body: &[u8]) -> Message {
        let mut bytes = vec![tag, 0, 0, 0, 0];
        bytes.extend(body);
        Message {
            tag: Some(tag),
            bytes,
        }
    }

    fn armed(request: RequestMatcher) -> Option<Interception> {
        Some(Interception::new(request, oneshot::channel().0))
    }

    #[test]
    fn only_the_answer_to_the_commit_is_lost_when_requests_are_pipelined() {
        let mut exchange = Exchange::default();
        let mut interception = armed(RequestMatcher::commit());
        exchange.client_sends(
            &Message {
                tag: None,
                bytes: vec![0, 0, 0, 8, 0, 3, 0, 0],
            },
            &mut interception,
        );
        assert!(matches!(
            exchange.server_sends(&message(b'Z', b"I")),
            Verdict::Forward
        ));
        for sql in [
            &b"BEGIN\0"[..],
            b"SELECT committed\0",
            b"COMMIT\0",
            b"SELECT 2\0",
        ] {
            exchange.client_sends(&message(b'Q', sql), &mut interception);
        }
        assert!(interception.is_none());
        for _ in 0..2 {
            assert!(matches!(
                exchange.server_sends(&message(b'C', b"")),
                Verdict::Forward
            ));
            assert!(matches!(
                exchange.server_sends(&message(b'Z', b"")),
                Verdict::Forward
            ));
        }
        assert!(matches!(
            exchange.server_sends(&message(b'C', b"")),
            Verdict::Swallow
        ));
        assert!(matches!(
            exchange.server_sends(&message(b'Z', b"")),
            Verdict::Reset(_)
        ));
    }

    #[test]
    fn prepared_statements_are_caught_at_execution() {
        let mut exchange = Exchange::default();
        let mut interception = armed(RequestMatcher::statement("posthaste.CLAIM"));
        exchange.client_sends(
            &message(b'P', b"s1\0SELECT * FROM posthaste.claim($1)\0\0\0"),
            &mut interception,
        );
        exchange.client_sends(&message(b'S', b""), &mut interception);
        assert!(matches!(
            exchange.server_sends(&message(b'Z', b"")),
            Verdict::Forward
        ));
        exchange.client_sends(&message(b'B', b"\0s1\0rest"), &mut interception);
        exchange.client_sends(&message(b'S', b""), &mut interception);
        assert!(matches!(
            exchange.server_sends(&message(b'2', b"")),
            Verdict::Swallow
        ));
        assert!(matches!(
            exchange.server_sends(&message(b'Z', b"")),
            Verdict::Reset(_)
        ));
    }

    #[test]
    fn the_nth_request_is_counted_from_now() {
        let mut exchange = Exchange::default();
        let mut interception = None;
        exchange.client_sends(&message(b'Q', b"SELECT 1\0"), &mut interception);
        interception = armed(RequestMatcher::nth(2));
        exchange.client_sends(&message(b'Q', b"SELECT 2\0"), &mut interception);
        exchange.client_sends(&message(b'S', b""), &mut interception);
        for _ in 0..2 {
            assert!(matches!(
                exchange.server_sends(&message(b'Z', b"")),
                Verdict::Forward
            ));
        }
        assert!(matches!(
            exchange.server_sends(&message(b'Z', b"")),
            Verdict::Reset(_)
        ));
    }
}
