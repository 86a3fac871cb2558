//! Mails over TLS with a password to a real server. Its certificate is made here, and the relay
//! trusts it by SSL_CERT_FILE.

use std::path::PathBuf;

use posthaste_testkit::receivers::{Encrypts, Guarded, Receiver, Smtp, are_here};
use posthaste_testkit::{Child, Sql as _, TestDb, eventually, number};
use serde_json::Value;

use crate::stage::{self, BOUND, CommandOutput, Stage};

const USER: &str = "ada@example.com";
const PASSWORD: &str = "p:w @geheim%";
/// The login percent-encoded for a URL.
const LOGIN: &str = "ada%40example.com:p%3Aw%20%40geheim%25";

struct Setup {
    stage: Stage,
    database: TestDb,
    certificate: PathBuf,
    guarded: Guarded,
}

impl Setup {
    async fn new(test: &str, encrypts: Encrypts) -> anyhow::Result<Option<Self>> {
        if !are_here(test, &[Receiver::Smtp]) {
            return Ok(None);
        }
        let (stage, database) = (Stage::new()?, stage::database().await?);
        let made = rcgen::generate_simple_self_signed(vec!["127.0.0.1".to_owned()])?;
        let certificate = stage.write("certificate.pem", &made.cert.pem())?;
        let key = stage.write("key.pem", &made.signing_key.serialize_pem())?;
        Ok(Some(Self {
            guarded: Guarded {
                encrypts,
                certificate: certificate.clone(),
                key,
                user: USER,
                password: PASSWORD,
            },
            stage,
            database,
            certificate,
        }))
    }

    /// Starts a server that requires TLS, writes a route to it with this login, and enqueues a
    /// mail.
    async fn serve(&self, scheme: &str, login: &str) -> anyhow::Result<Smtp> {
        let server = Smtp::start_guarded(&self.guarded)?;
        let port = server.port();
        self.route(&format!("{scheme}://{login}@127.0.0.1:{port}"))
            .await?;
        Ok(server)
    }

    /// Writes a route to this address and enqueues a mail.
    async fn route(&self, to: &str) -> anyhow::Result<()> {
        let route = format!(
            "[route.mail]\nto = \"{to}\"\nmail_from = \"us@example.com\"\n\
             mail_to = \"them@example.com\"\n"
        );
        self.stage.write("posthaste.toml", &route)?;
        let client = self.database.client().await?;
        let enqueue = "SELECT posthaste.enqueue('welcome', queue => 'mail')";
        client.run(enqueue).await
    }

    /// Starts `relay` with these arguments; it trusts the certificate if `trusts` is set.
    fn relay(&self, arguments: &[&str], trusts: bool) -> anyhow::Result<Child> {
        let mut command = self.stage.command(&[&["relay", "run"], arguments].concat());
        command.env("DATABASE_URL", self.database.url());
        if trusts {
            command.env("SSL_CERT_FILE", &self.certificate);
        }
        Child::spawn(&mut command)
    }

    /// Runs a relay until it reports why nothing is sent. Checks that no attempt was counted and
    /// that no output has the password.
    async fn complaint(&self, trusts: bool) -> anyhow::Result<String> {
        let mut relay = self.relay(&[], trusts)?;
        let mut output = String::new();
        eventually(BOUND, "it says what is wrong", async || {
            let status = self.stage.run_on(&self.database, &["status", "--json"]);
            let status: Value = serde_json::from_str(&status.await?.good()?)?;
            let error = status["relays"][0]["last_error"].as_str();
            output = error.unwrap_or_default().to_owned();
            Ok(!output.is_empty())
        })
        .await?;
        relay.terminate()?;
        relay.exit(BOUND).await?;
        for line in relay
            .stdout()
            .iter()
            .chain(&relay.stderr())
            .chain([&output])
        {
            assert!(!line.contains("geheim"), "{line}");
        }
        let client = self.database.client().await?;
        let waiting = "SELECT count(*) FROM posthaste.job WHERE attempt = 0";
        assert_eq!(number(&client, waiting).await?, 1);
        Ok(output)
    }
}

async fn arrives(test: &str, encrypts: Encrypts, scheme: &str) -> anyhow::Result<()> {
    let Some(setup) = Setup::new(test, encrypts).await? else {
        return Ok(());
    };
    let server = setup.serve(scheme, LOGIN).await?;
    CommandOutput::by(setup.relay(&["--once"], true)?)
        .await?
        .good()?;
    let mails = server.effects()?;
    assert_eq!(mails.len(), 1);
    assert_eq!(mails[0].all["encrypted"], true);
    assert_eq!(mails[0].all["user"], USER);
    assert_eq!(server.logins(), ["PLAIN ada@example.com"]);
    Ok(())
}

#[tokio::test(flavor = "multi_thread")]
async fn mails_are_sent_with_a_password_after_starttls() -> anyhow::Result<()> {
    let test = "mails_are_sent_with_a_password_after_starttls";
    arrives(test, Encrypts::AfterStarttls, "smtp").await
}

#[tokio::test(flavor = "multi_thread")]
async fn mails_are_sent_with_a_password_over_implicit_tls() -> anyhow::Result<()> {
    let test = "mails_are_sent_with_a_password_over_implicit_tls";
    arrives(test, Encrypts::FromTheStart, "smtps").await
}

#[tokio::test(flavor = "multi_thread")]
async fn passwords_are_not_sent_after_a_stripped_starttls() -> anyhow::Result<()> {
    let test = "passwords_are_not_sent_after_a_stripped_starttls";
    let Some(setup) = Setup::new(test, Encrypts::Never).await? else {
        return Ok(());
    };
    let server = setup.serve("smtp", LOGIN).await?;
    let output = setup.complaint(true).await?;
    assert!(output.contains("STARTTLS"), "{output}");
    assert_eq!(server.logins(), Vec::<String>::new());
    Ok(())
}

const BOTH: [(Encrypts, &str); 2] = [
    (Encrypts::AfterStarttls, "smtp"),
    (Encrypts::FromTheStart, "smtps"),
];

#[tokio::test(flavor = "multi_thread")]
async fn servers_with_unknown_certificates_get_no_password() -> anyhow::Result<()> {
    let test = "servers_with_unknown_certificates_get_no_password";
    for (encrypts, scheme) in BOTH {
        let Some(setup) = Setup::new(test, encrypts).await? else {
            return Ok(());
        };
        let server = setup.serve(scheme, LOGIN).await?;
        let output = setup.complaint(false).await?;
        assert!(output.contains("certificate: UnknownIssuer"), "{output}");
        assert_eq!(server.logins(), Vec::<String>::new());
    }
    Ok(())
}

#[tokio::test(flavor = "multi_thread")]
async fn mails_wait_while_the_smtp_password_is_wrong() -> anyhow::Result<()> {
    let test = "mails_wait_while_the_smtp_password_is_wrong";
    for (encrypts, scheme) in BOTH {
        let Some(setup) = Setup::new(test, encrypts).await? else {
            return Ok(());
        };
        let server = setup.serve(scheme, "ada%40example.com:geheim").await?;
        let output = setup.complaint(true).await?;
        assert!(output.contains("uthentication"), "{output}");
        assert!(server.effects()?.is_empty());
    }
    Ok(())
}
