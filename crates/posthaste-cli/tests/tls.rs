//! `sslmode` with a server that has a self-signed certificate and rejects connections without TLS.

use std::fs;
use std::os::unix::fs::{MetadataExt as _, PermissionsExt as _};
use std::path::{Path, PathBuf};
use std::sync::Arc;

use posthaste_testkit::{Child, PgServer, PgVersion, Sql as _, eventually};

use crate::stage::{BOUND, CommandOutput, Stage};

const ONLY_TLS: &str = "hostssl all all 127.0.0.1/32 trust\n";

#[tokio::test(flavor = "multi_thread")]
async fn tls_is_used_when_offered_and_verified_when_required() -> anyhow::Result<()> {
    let stage = Stage::new()?;
    let server = PgServer::start(PgVersion::V15, &[])?;
    let certificate = require_tls(&server, &stage).await?;
    let with = |mode: &str| format!("{}{mode}", server.url("postgres"));
    for mode in ["", "?sslmode=allow", "?sslmode=prefer", "?sslmode=require"] {
        stage
            .run_with_url(&with(mode), &["migrate"])
            .await?
            .good()?;
    }
    let plain = stage
        .run_with_url(&with("?sslmode=disable"), &["status"])
        .await?
        .failure()?;
    assert!(plain.contains("no encryption"), "{plain}");
    let address = server.address();
    let unknown = stage
        .run_with_url(&with("?sslmode=verify-full"), &["status"])
        .await?
        .failure()?;
    let start =
        format!("error: cannot connect to Postgres at {address}: invalid peer certificate: ");
    assert!(unknown.starts_with(&start), "{unknown}");
    assert!(
        unknown.contains("Set SSL_CERT_FILE or sslrootcert"),
        "{unknown}"
    );
    let mut command = stage.command(&["status"]);
    command
        .env("DATABASE_URL", with("?sslmode=verify-full"))
        .env("SSL_CERT_FILE", &certificate);
    CommandOutput::by(Child::spawn(&mut command)?)
        .await?
        .good()?;
    // The certificate is valid for the address, not for the name.
    let asked = |mode: &str| with(&format!("{mode}sslrootcert={}", certificate.display()));
    let by_name = |mode: &str| asked(mode).replace("127.0.0.1", "localhost");
    for url in [
        asked("?sslmode=verify-full&"),
        asked("?sslmode=require&"),
        by_name("?sslmode=verify-ca&"),
        by_name("?"),
    ] {
        stage.run_with_url(&url, &["status"]).await?.good()?;
    }
    let other = by_name("?sslmode=verify-full&");
    let other = stage.run_with_url(&other, &["status"]).await?.failure()?;
    assert!(other.contains("not valid for"), "{other}");
    let foreign = with("?sslmode=require&sslcrl=mine");
    let foreign = stage.run_with_url(&foreign, &["status"]).await?.failure()?;
    assert!(foreign.contains("has sslcrl,"), "{foreign}");
    Ok(())
}

/// Gives the server a self-signed certificate and makes it reject connections without TLS.
pub(crate) async fn require_tls(server: &PgServer, stage: &Stage) -> anyhow::Result<PathBuf> {
    let made = rcgen::generate_simple_self_signed(vec!["127.0.0.1".to_owned()])?;
    let (data, certificate) = (server.data(), made.cert.pem());
    let owner = fs::metadata(&data)?;
    let files = [
        ("server.crt", certificate.clone()),
        ("server.key", made.signing_key.serialize_pem()),
        ("pg_hba.conf", ONLY_TLS.to_owned()),
    ];
    let client = posthaste_testkit::connect(&server.url("postgres")).await?;
    for (name, content) in files {
        put(&data.join(name), &content, owner.uid(), owner.gid())?;
    }
    client.run("ALTER SYSTEM SET ssl = on").await?;
    client.run("SELECT pg_reload_conf()").await?;
    eventually(
        BOUND,
        "the server refuses what is not encrypted",
        async || {
            Ok(posthaste_testkit::connect(&server.url("postgres"))
                .await
                .is_err())
        },
    )
    .await?;
    stage.write("authority.pem", &certificate)
}

fn put(path: &Path, content: &str, uid: u32, gid: u32) -> anyhow::Result<()> {
    fs::write(path, content)?;
    fs::set_permissions(path, fs::Permissions::from_mode(0o600))?;
    std::os::unix::fs::chown(path, Some(uid), Some(gid))?;
    Ok(())
}

/// Returns a TLS acceptor with this certificate.
pub(crate) fn acceptor(
    made: &rcgen::CertifiedKey<rcgen::KeyPair>,
) -> anyhow::Result<tokio_rustls::TlsAcceptor> {
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    let key = rustls::pki_types::PrivateKeyDer::try_from(made.signing_key.serialize_der());
    let config = rustls::ServerConfig::builder_with_provider(provider)
        .with_safe_default_protocol_versions()?
        .with_no_client_auth()
        .with_single_cert(
            vec![made.cert.der().clone()],
            key.map_err(anyhow::Error::msg)?,
        )?;
    Ok(Arc::new(config).into())
}
