//! The login of a replication connection.

use fallible_iterator::FallibleIterator as _;
use postgres_protocol::authentication::{md5_hash, sasl};
use postgres_protocol::message::backend::Message;
use postgres_protocol::message::frontend;
use posthaste::__private::ReplicationLogin;

use super::{Feed, error_from_response};
use crate::error::Error;

/// Settings for the text of values, whatever the role and the database set.
const SESSION_OPTIONS: &str = "-c datestyle=ISO -c intervalstyle=postgres -c timezone=UTC \
                       -c extra_float_digits=1 -c bytea_output=hex -c statement_timeout=0 \
                       -c idle_in_transaction_session_timeout=0";

impl Feed {
    pub(super) async fn exchange_login(&mut self, login: &ReplicationLogin) -> Result<(), Error> {
        let parameters = [
            ("user", &*login.user),
            ("database", &*login.database),
            ("replication", "database"),
            ("client_encoding", "UTF8"),
            ("application_name", "posthaste capture"),
            ("options", SESSION_OPTIONS),
        ];
        frontend::startup_message(parameters, &mut self.write).map_err(Error::io)?;
        self.flush().await?;
        let mut scram = None;
        loop {
            match self.read_message().await? {
                Message::AuthenticationCleartextPassword => {
                    let password = require_password(login)?;
                    self.send_password_message(password).await?;
                }
                Message::AuthenticationMd5Password(body) => {
                    let user = login.user.as_bytes();
                    let hash = md5_hash(user, require_password(login)?, body.salt());
                    self.send_password_message(hash.as_bytes()).await?;
                }
                Message::AuthenticationSasl(body) => {
                    let mut offered = body.mechanisms();
                    let is_known = offered.any(|one| Ok(one == sasl::SCRAM_SHA_256));
                    if !is_known.map_err(Error::io)? {
                        return Err(Error::lost(
                            "the server offers no supported authentication method",
                        ));
                    }
                    let binding = sasl::ChannelBinding::unsupported();
                    let begun = sasl::ScramSha256::new(require_password(login)?, binding);
                    let (name, write) = (sasl::SCRAM_SHA_256, &mut self.write);
                    frontend::sasl_initial_response(name, begun.message(), write)
                        .map_err(Error::io)?;
                    self.flush().await?;
                    scram = Some(begun);
                }
                Message::AuthenticationSaslContinue(body) => {
                    let scram = scram.as_mut().ok_or_else(unknown_request_error)?;
                    scram.update(body.data()).map_err(Error::io)?;
                    let answered = frontend::sasl_response(scram.message(), &mut self.write);
                    answered.map_err(Error::io)?;
                    self.flush().await?;
                }
                Message::AuthenticationSaslFinal(body) => {
                    let scram = scram.as_mut().ok_or_else(unknown_request_error)?;
                    scram.finish(body.data()).map_err(Error::io)?;
                }
                Message::ErrorResponse(body) => return Err(error_from_response(&body)),
                Message::ReadyForQuery(_) => return Ok(()),
                Message::AuthenticationOk
                | Message::ParameterStatus(_)
                | Message::BackendKeyData(_)
                | Message::NoticeResponse(_) => {}
                _ => return Err(unknown_request_error()),
            }
        }
    }

    async fn send_password_message(&mut self, password: &[u8]) -> Result<(), Error> {
        frontend::password_message(password, &mut self.write).map_err(Error::io)?;
        self.flush().await
    }
}

fn require_password(login: &ReplicationLogin) -> Result<&[u8], Error> {
    let password = login.password.as_deref();
    password.ok_or_else(|| Error::lost("the server asks for a password, and there is none"))
}

fn unknown_request_error() -> Error {
    Error::lost("the server sent an unknown authentication request")
}
