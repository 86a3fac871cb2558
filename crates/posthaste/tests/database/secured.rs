//! TLS to a server that accepts a program only over TLS.

use std::fs;
use std::os::unix::fs::{MetadataExt as _, PermissionsExt as _};
use std::path::{Path, PathBuf};

use posthaste::__private::is_direct;
use posthaste::connect;
use posthaste_testkit::{PgServer, PgVersion, Sql as _, TestDb, eventually};
use rcgen::{CertificateParams, DistinguishedName, DnType, KeyPair};
use sqlx::postgres::{PgConnectOptions, PgPool, PgSslMode};
use tokio_postgres::Client;

use super::{assert_runs_a_job_at_once, refusal, sleeper};
use crate::support::{SOON, database, migrated, number};

/// `app` can log in only over TLS, `certified` only with its certificate.
const RULES: &str = "host all postgres 127.0.0.1/32 trust\n\
                     hostssl all certified 127.0.0.1/32 cert\n\
                     hostssl all all 127.0.0.1/32 trust\n";

/// A server with TLS, its database, and the files of the authority and of the client certificate of
/// `certified`.
struct Secured {
    db: TestDb,
    server: PgServer,
    files: tempfile::TempDir,
}

impl Secured {
    async fn new() -> Self {
        let server = PgServer::start(PgVersion::V15, &[]).unwrap();
        let db = migrated(&server).await;
        let files = tempfile::tempdir().unwrap();
        // For the address, and for no name.
        let made = rcgen::generate_simple_self_signed(vec!["127.0.0.1".to_owned()]).unwrap();
        let (ours, key) = client_certificate();
        let (data, authority) = (server.data(), made.cert.pem());
        for (name, content) in [
            ("server.crt", &*authority),
            ("server.key", &made.signing_key.serialize_pem()),
            ("clients.crt", &ours),
            ("pg_hba.conf", RULES),
        ] {
            put(&data.join(name), content);
        }
        for (name, content) in [
            ("ca.pem", &authority),
            ("own.pem", &ours),
            ("own.key", &key),
        ] {
            fs::write(files.path().join(name), content).unwrap();
        }
        let client = db.client().await.unwrap();
        for statement in [
            "CREATE ROLE app SUPERUSER LOGIN",
            "CREATE ROLE certified SUPERUSER LOGIN",
            "ALTER SYSTEM SET ssl_ca_file = 'clients.crt'",
            "ALTER SYSTEM SET ssl = on",
            "SELECT pg_reload_conf()",
        ] {
            client.run(statement).await.unwrap();
        }
        let secured = Self { db, server, files };
        eventually(SOON, "the server speaks TLS", async || {
            let required = connect(&secured.url("app", "sslmode=require"))?;
            Ok(required.client().await.is_ok())
        })
        .await
        .unwrap();
        secured
    }

    fn url(&self, user: &str, parameters: &str) -> String {
        let (address, name) = (self.server.address(), self.db.name());
        format!("postgres://{user}:geheim@{address}/{name}?{parameters}")
    }

    fn file(&self, name: &str) -> PathBuf {
        self.files.path().join(name)
    }

    fn options(&self, host: &str, mode: PgSslMode) -> PgConnectOptions {
        PgConnectOptions::new_without_pgpass()
            .host(host)
            .port(self.server.address().port())
            .username("app")
            .password("geheim")
            .database(self.db.name())
            .ssl_mode(mode)
    }
}

/// Makes the certificate of the role `certified`, and its key.
fn client_certificate() -> (String, String) {
    let key = KeyPair::generate().unwrap();
    let mut asked = CertificateParams::default();
    asked.distinguished_name = DistinguishedName::new();
    let name = &mut asked.distinguished_name;
    name.push(DnType::CommonName, "certified");
    let made = asked.self_signed(&key).unwrap();
    (made.pem(), key.serialize_pem())
}

/// Writes a file of the server that only its account can read.
fn put(path: &Path, content: &str) {
    let owner = fs::metadata(path.parent().unwrap()).unwrap();
    fs::write(path, content).unwrap();
    fs::set_permissions(path, fs::Permissions::from_mode(0o600)).unwrap();
    std::os::unix::fs::chown(path, Some(owner.uid()), Some(owner.gid())).unwrap();
}

/// Counts connections of this role that are encrypted, or that are not.
async fn connections(client: &Client, role: &str, which: &str) -> i64 {
    let which = format!(
        "SELECT count(*) FROM pg_stat_ssl JOIN pg_stat_activity USING (pid) \
         WHERE usename = '{role}' AND {which}"
    );
    number(client, &which).await
}

#[tokio::test(flavor = "multi_thread")]
async fn url_ssl_modes_behave_as_in_libpq() {
    let secured = Secured::new().await;
    let client = secured.db.client().await.unwrap();
    let ca = format!("sslrootcert={}", secured.file("ca.pem").display());
    let app = |parameters: &str| secured.url("app", parameters);
    let full = app(&format!("sslmode=verify-full&{ca}"));
    assert_runs_a_job_at_once(connect(&full).unwrap(), &client).await;
    let (worker, _) = sleeper(connect(&full).unwrap()).await;
    eventually(SOON, "the worker connects", async || {
        Ok(connections(&client, "app", "ssl").await > 1)
    })
    .await
    .unwrap();
    assert_eq!(connections(&client, "app", "NOT ssl").await, 0);
    worker.stop().await.unwrap();

    // The certificate is for the address, and not for the name.
    let by_name = |url: String| url.replace("127.0.0.1", "localhost");
    for url in [
        app(""),
        app("sslmode=require"),
        by_name(app(&format!("sslmode=verify-ca&{ca}"))),
        by_name(app(&ca)),
    ] {
        drop(connect(&url).unwrap().client().await.unwrap());
    }
    let message = refusal(connect(&by_name(full)).unwrap()).await;
    assert!(message.contains("not valid for name"), "{message}");
    let message = refusal(connect(&app("sslmode=verify-full")).unwrap()).await;
    assert!(message.contains("invalid peer certificate"), "{message}");
    let message = refusal(connect(&app("sslmode=disable")).unwrap()).await;
    assert!(message.contains("no encryption"), "{message}");
}

#[tokio::test(flavor = "multi_thread")]
async fn sqlx_pools_use_tls_as_configured() {
    let secured = Secured::new().await;
    let client = secured.db.client().await.unwrap();
    let ca = secured.file("ca.pem");
    let full = |host| secured.options(host, PgSslMode::VerifyFull);
    let text = fs::read(&ca).unwrap();
    for options in [
        full("127.0.0.1").ssl_root_cert(&ca),
        full("127.0.0.1").ssl_root_cert_from_pem(text),
        secured
            .options("localhost", PgSslMode::VerifyCa)
            .ssl_root_cert(&ca),
        secured.options("localhost", PgSslMode::Require),
        secured.options("localhost", PgSslMode::Prefer),
    ] {
        assert_runs_a_job_at_once(PgPool::connect_lazy_with(options), &client).await;
    }
    let other = full("localhost").ssl_root_cert(&ca);
    let message = refusal(PgPool::connect_lazy_with(other)).await;
    assert!(message.contains("not valid for name"), "{message}");
    let absent = full("127.0.0.1").ssl_root_cert("/absent.pem");
    let message = refusal(PgPool::connect_lazy_with(absent)).await;
    assert!(
        message.starts_with("sslrootcert /absent.pem cannot be read: "),
        "{message}"
    );
}

#[tokio::test]
async fn root_certificates_require_tls() {
    let db = database(PgVersion::V15).await;
    let files = tempfile::tempdir().unwrap();
    let ca = files.path().join("ca.pem");
    let made = rcgen::generate_simple_self_signed(vec!["127.0.0.1".to_owned()]).unwrap();
    fs::write(&ca, made.cert.pem()).unwrap();
    drop(connect(db.url()).unwrap().client().await.unwrap());
    let begin = if db.url().contains('?') { '&' } else { '?' };
    let url = format!("{}{begin}sslrootcert={}", db.url(), ca.display());
    let message = refusal(connect(&url).unwrap()).await;
    assert!(message.contains("TLS"), "{message}");
    let options: PgConnectOptions = db.url().parse().unwrap();
    let options = options.ssl_mode(PgSslMode::Prefer).ssl_root_cert(&ca);
    let message = refusal(&PgPool::connect_lazy_with(options)).await;
    assert!(message.contains("TLS"), "{message}");
}

#[tokio::test(flavor = "multi_thread")]
async fn client_certificates_are_presented_to_the_server() {
    let secured = Secured::new().await;
    let client = secured.db.client().await.unwrap();
    let (own, key) = (secured.file("own.pem"), secured.file("own.key"));
    let shown = format!("sslcert={}&sslkey={}", own.display(), key.display());
    let certified = |parameters: &str| secured.url("certified", parameters);
    let url = certified(&format!("sslmode=require&{shown}"));
    assert_runs_a_job_at_once(connect(&url).unwrap(), &client).await;
    let options = secured.options("127.0.0.1", PgSslMode::Require);
    let options = options.username("certified");
    let (text, secret) = (fs::read(&own).unwrap(), fs::read(&key).unwrap());
    for shown in [
        options.clone().ssl_client_cert(&own).ssl_client_key(&key),
        options
            .ssl_client_cert_from_pem(text)
            .ssl_client_key_from_pem(secret),
    ] {
        assert_runs_a_job_at_once(PgPool::connect_lazy_with(shown), &client).await;
    }
    let message = refusal(connect(&certified("sslmode=require")).unwrap()).await;
    assert!(
        message.contains("requires a valid client certificate"),
        "{message}"
    );
    let wrong = format!("sslmode=require&sslcert={0}&sslkey={0}", own.display());
    let message = connect(&certified(&wrong)).unwrap_err().to_string();
    assert!(
        message.starts_with("sslkey ") && message.contains("cannot be read"),
        "{message}"
    );
}

#[tokio::test(flavor = "multi_thread")]
async fn connections_over_tls_are_direct() {
    let secured = Secured::new().await;
    for parameters in ["sslmode=require", "sslmode=prefer"] {
        let address = connect(&secured.url("app", parameters)).unwrap();
        let client = address.client().await.unwrap();
        assert!(is_direct(&client).await, "{parameters}");
    }
}
