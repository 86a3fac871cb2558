//! SMTP: mails to a server that delivers them.

mod fold;
mod mail;
mod reply;
mod server;

use std::time::{Duration, Instant};

use futures_util::future::BoxFuture;
use parking_lot::{Mutex, MutexGuard};
use posthaste::Error;
use uuid::Uuid;

use crate::destination::answer::Answer;
use crate::destination::contract::Destination;
use crate::destination::partial_answers::PartialAnswers;
use crate::message::Message;
use mail::Mail;
use reply::MailOutcome;
use server::{MailServer, Session};

/// Idle time after which the server may have closed a connection.
const MAX_IDLE_TIME: Duration = Duration::from_secs(30);
/// The most idle connections between batches.
const MAX_IDLE_SESSIONS: usize = 32;

/// A mail server: each message is a mail.
///
/// | part of the mail | source |
/// |---|---|
/// | `Message-ID` | the delivery id, at the sender's domain: the same at each attempt |
/// | `From` | the header `from`; else the destination's |
/// | `To`, `Cc`, `Bcc`, `Reply-To` | the headers of these names, each a list of addresses; `To` else the destination's |
/// | `Subject` | the header `subject`; else the message's kind |
/// | `Date` | when the job was enqueued |
/// | `Content-Type` | the header `content-type`; else `text/plain; charset=utf-8` |
/// | text | the payload |
/// | bytes that are not text | base64, by default as `application/octet-stream` |
/// | other headers | the mapping's; no trace context |
///
/// | answer | outcome |
/// |---|---|
/// | 250 after the text | accepted |
/// | 5xx, also for one recipient | rejected permanently; it was delivered to no recipient |
/// | 4xx | retried |
/// | no connection, 421, no answer before the text | the server is down: no attempt is counted |
/// | 530, 534, 535, 538, 454 unless for a recipient | account denied: no attempt is counted |
/// | 5.4.5, 5.7.8 to 5.7.11, 5.7.13 | account denied: no attempt is counted |
/// | 5xx for the destination's own sender | account denied: no attempt is counted |
/// | no answer to the text | ambiguous: [`OnAmbiguous`](crate::OnAmbiguous) decides |
/// | an address or a header with a line break or NUL, or with more than 998 bytes without a blank | rejected permanently, unsent |
///
/// **SMTP does not detect duplicates.** A mail is sent once for each attempt, and again each time
/// that the outcome is ambiguous and the route resends: its reader may see two mails with the same
/// `Message-ID`. A relay that ends in the middle of a mail, by its grace period or by a kill, also
/// leaves the outcome ambiguous.
///
/// The mails of a batch are sent over one connection, one after the other; each batch has its own
/// connection. Mail servers may be slow: the relay's
/// [`time_limit`](crate::RelayBuilder::time_limit) applies to the whole batch.
///
/// ```
/// use posthaste_relay::{Mapping, Relay, Smtp, Template, OnAmbiguous};
/// # fn main() -> Result<(), posthaste::Error> {
/// let mapping = Mapping::default()
///     .header("to", Template::parse("{json:kwargs.name} <{kwargs.address}>")?)
///     .header("subject", Template::text("Welcome"))
///     .payload(Template::parse("Dear {kwargs.name},\nwelcome.\n")?);
/// let smtp = Smtp::new("smtp://mail.example.com:25")?.from("us@example.com");
/// let relay = Relay::to(smtp).mapping(mapping).on_ambiguous(OnAmbiguous::Discard);
/// # Ok(()) }
/// ```
pub struct Smtp {
    server: MailServer,
    from: Option<String>,
    to: Option<String>,
    idle_session: Mutex<Vec<(Session, Instant)>>,
    known: PartialAnswers,
}

impl Smtp {
    /// Sends to this server: `smtps://user:password@host` encrypts from the start (port 465),
    /// `smtp://user:password@host` requires STARTTLS (port 587), and `smtp://host` encrypts if the
    /// server offers it (port 25); `?tls=required`, `?tls=offered` and `?tls=never` override this.
    /// TLS is rustls, with the provider that the program installed, else ring; the system's trusted
    /// certificates are used.
    pub fn new(url: &str) -> Result<Self, Error> {
        Ok(Self {
            server: MailServer::new(url)?,
            from: None,
            to: None,
            idle_session: Mutex::default(),
            known: PartialAnswers::default(),
        })
    }

    /// Sets the sender if no header does.
    pub fn from(self, address: impl Into<String>) -> Self {
        let from = Some(address.into());
        Self { from, ..self }
    }

    /// Sets the recipients if no header does.
    pub fn to(self, addresses: impl Into<String>) -> Self {
        let to = Some(addresses.into());
        Self { to, ..self }
    }

    async fn send_all(&self, batch: &[Message]) -> Vec<Answer> {
        let mut answers = Vec::with_capacity(batch.len());
        let mut session = None;
        for message in batch {
            let answer = match Mail::from_message(message, self.from.as_deref(), self.to.as_deref())
            {
                Ok(mail) => self.send_one(&mut session, message.id, &mail).await,
                Err(reason) => Answer::rejected(reason),
            };
            self.known.record_answer(message.id, &answer);
            answers.push(answer.clone());
            if matches!(answer, Answer::Unavailable { .. }) || answer.is_denial() {
                // The server is down or denies the account: nothing else is sent, and no message
                // overtakes.
                answers.resize(batch.len(), answer);
                break;
            }
        }
        if let Some(session) = session {
            self.keep_idle(session);
        }
        answers
    }

    /// Sends a mail over this connection, an idle one, or a new one. Meanwhile no other mail uses
    /// the connection: if the future is dropped, so is the connection.
    async fn send_one(&self, held: &mut Option<Session>, id: Uuid, mail: &Mail) -> Answer {
        let risk = Answer::Ambiguous {
            reason: "the connection broke after the server had received the text".into(),
        };
        loop {
            let used = held.take().or_else(|| self.idle_session());
            let was_used = used.is_some();
            let mut session = match used {
                Some(session) => session,
                None => match self.server.connect().await {
                    Ok(session) => session,
                    Err(reason) => return Answer::unavailable(reason),
                },
            };
            let sent = session
                .send(mail, || self.known.record_answer(id, &risk))
                .await;
            match sent {
                MailOutcome::Answered(answer) | MailOutcome::Denied(answer) => {
                    *held = Some(session).filter(Session::is_usable);
                    return answer;
                }
                // The server closed the connection between two mails.
                MailOutcome::Gone(_) if was_used => {}
                MailOutcome::Gone(reason) => return Answer::unavailable(reason),
                MailOutcome::Lost(reason) => {
                    let reason = reason.into();
                    return Answer::Ambiguous { reason };
                }
            }
        }
    }

    fn keep_idle(&self, session: Session) {
        let mut sessions = self.sessions();
        if sessions.len() < MAX_IDLE_SESSIONS {
            sessions.push((session, Instant::now()));
        }
    }

    fn idle_session(&self) -> Option<Session> {
        let mut sessions = self.sessions();
        sessions.retain(|(_, since)| since.elapsed() < MAX_IDLE_TIME);
        sessions.pop().map(|(session, _)| session)
    }

    fn sessions(&self) -> MutexGuard<'_, Vec<(Session, Instant)>> {
        self.idle_session.lock()
    }
}

impl Destination for Smtp {
    fn label(&self) -> String {
        format!("smtp at {}", self.server.label())
    }

    fn send<'a>(&'a self, batch: &'a [Message]) -> BoxFuture<'a, Vec<Answer>> {
        Box::pin(async move {
            let answers = self.send_all(batch).await;
            self.known.remove_answers(batch);
            answers
        })
    }

    fn header_objection(&self, name: &str) -> Option<String> {
        mail::header_objection(name)
    }

    fn rejection_reason(&self, message: &Message) -> Option<String> {
        Mail::from_message(message, self.from.as_deref(), self.to.as_deref()).err()
    }

    fn recall_answer(&self, id: Uuid) -> Option<Answer> {
        self.known.take_answer(id)
    }

    fn can_deduplicate(&self) -> bool {
        false
    }

    fn probe(&self) -> BoxFuture<'_, Result<(), String>> {
        Box::pin(async {
            // Idle connections may be as dead as the one that caused this probe.
            self.sessions().clear();
            let session = self.server.connect().await?;
            self.keep_idle(session);
            Ok(())
        })
    }
}
