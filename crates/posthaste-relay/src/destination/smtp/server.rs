//! A mail server: its address, the connection, and the SMTP dialogue. Each step of a mail is sent
//! separately, so that the step in flight is known when a connection breaks.

use std::sync::OnceLock;
use std::time::Duration;

use lettre::transport::smtp::Error as SmtpError;
use lettre::transport::smtp::authentication::{Credentials, Mechanism};
use lettre::transport::smtp::client::{AsyncSmtpConnection, TlsParameters};
use lettre::transport::smtp::commands::{Data, Mail as MailFrom, Rcpt, Rset};
use lettre::transport::smtp::extension::{ClientId, Extension, MailBodyParameter, MailParameter};
use lettre::transport::smtp::response::Response;
use percent_encoding::percent_decode_str;
use posthaste::Error;
use url::Url;

use super::mail::Mail;
use super::reply::{MailOutcome, MailStep, classify, concerns_the_sender};
use crate::destination::answer::Answer;
use crate::destination::reason::{Failure, Reason};

/// Timeout of a connection attempt: an address may drop packets silently.
const CONNECT_TIMEOUT: Duration = Duration::from_secs(10);

/// When the connection is encrypted.
#[derive(Clone, Copy, Debug, PartialEq)]
enum Tls {
    Never,
    Opportunistic,
    Required,
    Implicit,
}

pub(super) struct MailServer {
    host: String,
    port: u16,
    tls: Tls,
    user: Option<Credentials>,
    parameters: OnceLock<TlsParameters>,
}

/// A connection between two mails.
pub(super) struct Session(AsyncSmtpConnection);

impl MailServer {
    /// Parses `smtp://` or `smtps://`, see [`Smtp::new`](super::Smtp::new).
    pub(super) fn new(url: &str) -> Result<Self, Error> {
        // The address may hold a password: the error does not repeat it.
        let wrong = || Error::invalid("url", "must be smtp://host:port or smtps://host:port");
        let url = Url::parse(url).map_err(|_| wrong())?;
        let host = url
            .host_str()
            .filter(|host| !host.is_empty())
            .ok_or_else(wrong)?;
        let user = credentials_from_url(&url).ok_or_else(wrong)?;
        let tls = match (url.scheme(), url.query()) {
            ("smtps", None) => Tls::Implicit,
            ("smtp", Some("tls=required")) => Tls::Required,
            ("smtp", Some("tls=offered")) => Tls::Opportunistic,
            ("smtp", Some("tls=never")) => Tls::Never,
            // A password is sent unencrypted only if that is configured.
            ("smtp", None) if user.is_some() => Tls::Required,
            ("smtp", None) => Tls::Opportunistic,
            _ => return Err(wrong()),
        };
        let port = match (tls, &user) {
            (Tls::Implicit, _) => 465,
            (_, Some(_)) => 587,
            (_, None) => 25,
        };
        Ok(Self {
            host: host
                .trim_start_matches('[')
                .trim_end_matches(']')
                .to_owned(),
            port: url.port().unwrap_or(port),
            tls,
            user,
            parameters: OnceLock::new(),
        })
    }

    /// Returns the address and port, without user and password.
    pub(super) fn label(&self) -> String {
        format!("{}:{}", self.host, self.port)
    }

    /// Connects, encrypts and logs in. Any error concerns the server: no mail was begun.
    pub(super) async fn connect(&self) -> Result<Session, Reason> {
        let opened = tokio::time::timeout(CONNECT_TIMEOUT, self.open_session());
        let opened = opened
            .await
            .unwrap_or_else(|_| Err((Failure::Timeout, "no answer in time".into())));
        opened
            .map_err(|(failure, reason)| Reason::new(failure, format!("cannot connect: {reason}")))
    }

    async fn open_session(&self) -> Result<Session, (Failure, String)> {
        let lost = |reason| (Failure::Connect, reason);
        let parameters = match self.tls {
            Tls::Implicit => Some(self.tls_parameters().map_err(lost)?),
            _ => None,
        };
        let us = ClientId::default();
        let connection = AsyncSmtpConnection::connect_tokio1(
            (self.host.as_str(), self.port),
            Some(CONNECT_TIMEOUT),
            &us,
            parameters,
            None,
        );
        let mut connection = connection
            .await
            .map_err(|error| lost(describe_error(&error)))?;
        let encrypts = match self.tls {
            Tls::Never | Tls::Implicit => false,
            Tls::Opportunistic => connection.can_starttls(),
            Tls::Required => true,
        };
        if encrypts {
            let parameters = self.tls_parameters().map_err(lost)?;
            let begun = connection.starttls(parameters, &us).await;
            begun.map_err(|error| lost(describe_error(&error)))?;
        }
        if let Some(user) = &self.user {
            let known = connection.auth(&[Mechanism::Plain, Mechanism::Login], user);
            known.await.map_err(|error| match error.status() {
                Some(_) => (Failure::Auth, describe_error(&error)),
                None => lost(describe_error(&error)),
            })?;
        }
        Ok(Session(connection))
    }

    /// Returns the parameters. The system's trusted certificates are read once, and only if needed.
    fn tls_parameters(&self) -> Result<TlsParameters, String> {
        if let Some(parameters) = self.parameters.get() {
            return Ok(parameters.clone());
        }
        let parameters =
            TlsParameters::new(self.host.clone()).map_err(|error| describe_error(&error))?;
        Ok(self.parameters.get_or_init(|| parameters).clone())
    }
}

impl Session {
    /// Sends a mail. Calls `risks` before the server may accept it without the client knowing.
    pub(super) async fn send(&mut self, mail: &Mail, risks: impl FnOnce()) -> MailOutcome {
        let parameters = match self.mail_parameters(mail) {
            Ok(parameters) => parameters,
            Err(reason) => return MailOutcome::Answered(Answer::rejected(reason)),
        };
        let begin = MailFrom::new(Some(mail.sender.clone()), parameters);
        let begun = reply_code(self.0.command(begin).await);
        if let Err(stopped) = self.handle_reply(MailStep::Sender, begun, mail).await {
            return stopped;
        }
        for recipient in &mail.recipients {
            let name = Rcpt::new(recipient.clone(), Vec::new());
            let named = reply_code(self.0.command(name).await);
            if let Err(stopped) = self.handle_reply(MailStep::Recipient, named, mail).await {
                return stopped;
            }
        }
        let data = reply_code(self.0.command(Data).await);
        if let Err(stopped) = self.handle_reply(MailStep::Data, data, mail).await {
            return stopped;
        }
        risks();
        let taken = reply_code(self.0.message(&mail.text).await);
        match self.handle_reply(MailStep::Text, taken, mail).await {
            Ok(()) => MailOutcome::Answered(Answer::Accepted),
            Err(stopped) => stopped,
        }
    }

    /// Handles the reply to a step. An error ends the mail; the connection is then ready for the
    /// next one, or closed.
    async fn handle_reply(
        &mut self,
        step: MailStep,
        answer: Result<u16, NegativeReply>,
        mail: &Mail,
    ) -> Result<(), MailOutcome> {
        let (code, text) = match answer {
            Ok(code) if step.accepts_code(code) => return Ok(()),
            Ok(code) => (Some(code), String::new()),
            Err(NegativeReply { code, text }) => (code, text),
        };
        let stopped = match classify(step, code, &hide_addresses(text, mail)) {
            MailOutcome::Answered(Answer::Rejected { reason })
                if mail.has_our_sender && concerns_the_sender(step, code) =>
            {
                let advice = "set a sender (mail_from) that this server accepts";
                MailOutcome::Denied(Answer::denied(format!("{reason}; {advice}")))
            }
            stopped => stopped,
        };
        // Resets the dialogue for the next mail; if that fails, the connection ends.
        if let MailOutcome::Answered(_) | MailOutcome::Denied(_) = stopped
            && self.0.command(Rset).await.is_err()
        {
            self.0.abort().await;
        }
        Err(stopped)
    }

    /// Returns whether another mail can be sent over it.
    pub(super) fn is_usable(&self) -> bool {
        !self.0.has_broken()
    }

    fn mail_parameters(&self, mail: &Mail) -> Result<Vec<MailParameter>, &'static str> {
        let knows = |extension| self.0.server_info().supports_feature(extension);
        let mut parameters = Vec::new();
        if mail.has_utf8_addresses() {
            if !knows(Extension::SmtpUtfEight) {
                return Err("the server accepts only ASCII addresses");
            }
            parameters.push(MailParameter::SmtpUtfEight);
        }
        if !mail.text.is_ascii() {
            if !knows(Extension::EightBitMime) {
                return Err("the server accepts ASCII only");
            }
            parameters.push(MailParameter::Body(MailBodyParameter::EightBitMime));
        }
        Ok(parameters)
    }
}

/// A negative reply, or the reason why there is none.
struct NegativeReply {
    code: Option<u16>,
    text: String,
}

fn reply_code(answer: Result<Response, SmtpError>) -> Result<u16, NegativeReply> {
    match answer {
        Ok(response) => Ok(response.code().into()),
        Err(error) => Err(NegativeReply {
            code: error.status().map(u16::from),
            text: describe_error(&error),
        }),
    }
}

/// Describes an error by its deepest cause.
fn describe_error(error: &SmtpError) -> String {
    let mut deepest: &dyn std::error::Error = error;
    while let Some(deeper) = deepest.source() {
        deepest = deeper;
    }
    deepest.to_string()
}

/// Hides addresses: servers repeat them, and they are arguments of jobs.
fn hide_addresses(text: String, mail: &Mail) -> String {
    let addresses = mail.recipients.iter().chain([&mail.sender]);
    addresses.fold(text, |text, address| {
        text.replace(&address.to_string(), "…")
    })
}

/// Returns the user and password of a URL; the outer `None` if they cannot be decoded.
fn credentials_from_url(url: &Url) -> Option<Option<Credentials>> {
    let decoded = |text: &str| {
        let text = percent_decode_str(text).decode_utf8();
        text.ok().map(|text| text.into_owned())
    };
    match (url.username(), url.password()) {
        ("", None) => Some(None),
        (user, Some(password)) => Some(Some(Credentials::new(decoded(user)?, decoded(password)?))),
        (_, None) => None,
    }
}

#[cfg(test)]
mod tests {
    use super::{MailServer, Tls};

    fn read(url: &str) -> Option<(u16, Tls, bool)> {
        let server = MailServer::new(url).ok()?;
        assert_eq!(server.host, "mail.example.com");
        Some((server.port, server.tls, server.user.is_some()))
    }

    #[test]
    fn smtp_urls_select_the_connection_and_protect_passwords() {
        for (url, expected) in [
            ("smtp://mail.example.com", (25, Tls::Opportunistic, false)),
            (
                "smtp://mail.example.com:2525",
                (2525, Tls::Opportunistic, false),
            ),
            ("smtp://a:b@mail.example.com", (587, Tls::Required, true)),
            (
                "smtp://a%40b:c@mail.example.com?tls=offered",
                (587, Tls::Opportunistic, true),
            ),
            (
                "smtp://mail.example.com?tls=required",
                (25, Tls::Required, false),
            ),
            ("smtp://mail.example.com?tls=never", (25, Tls::Never, false)),
            ("smtps://a:b@mail.example.com", (465, Tls::Implicit, true)),
        ] {
            assert_eq!(read(url), Some(expected), "{url}");
        }
    }

    #[test]
    fn invalid_smtp_addresses_are_refused_without_leaking() {
        for wrong in [
            "",
            "geheim",
            "http://geheim.example.com",
            "smtp://",
            "smtp://u@geheim.example.com",
            "smtp://u:geheim@h?tls=perhaps",
            "smtps://u:geheim@h?tls=never",
            "smtp://u:%ffgeheim@h",
        ] {
            let error = MailServer::new(wrong).err().unwrap().to_string();
            assert!(!error.contains("geheim"), "{error}");
        }
        let server = MailServer::new("smtp://ann:geheim@h:1").unwrap();
        assert_eq!(server.label(), "h:1");
    }
}
