//! Indexes in other places: on a server with TLS, in another database.

use std::net::SocketAddr;

use posthaste_testkit::elastic::FakeElastic;
use posthaste_testkit::{Child, TestDb, number};
use tokio::io::copy_bidirectional;
use tokio::net::{TcpListener, TcpStream};

use super::{TABLE, good, with_pages};
use crate::stage::{self, CommandOutput, Stage};
use crate::tls;

const NO_PROXY: (&str, &str) = ("NO_PROXY", "127.0.0.1");

#[tokio::test(flavor = "multi_thread")]
async fn search_servers_over_tls_need_a_trusted_certificate() -> anyhow::Result<()> {
    let fake = FakeElastic::start(1).await?;
    let made = rcgen::generate_simple_self_signed(vec!["127.0.0.1".to_owned()])?;
    let server = format!("https://{}", behind_tls(&made, &fake).await?);
    let (stage, database, _client) = with_pages(&format!("{server}/pages")).await?;
    let certificate = stage.write("authority.pem", &made.cert.pem())?;
    let certificate = certificate.display().to_string();
    let trusting = [NO_PROXY, ("SSL_CERT_FILE", certificate.as_str())];
    let prepare = [
        "two-phase",
        "prepare",
        "--replicas",
        "0",
        "--elastic",
        &server,
    ];
    for stranger in [&["sync", "audit"][..], &prepare] {
        let output = run(&stage, &database, stranger, &[NO_PROXY]).await?;
        let output = output.failure()?;
        assert!(output.contains("invalid peer certificate"), "{output}");
    }
    assert_eq!(fake.requests(), 0);
    for friend in [
        &["sync", "reindex", "pages", "--all"][..],
        &["sync", "run", "--once"],
        &prepare,
    ] {
        run(&stage, &database, friend, &trusting).await?.good()?;
    }
    let audit = run(&stage, &database, &["sync", "audit"], &trusting).await?;
    assert_eq!(audit.good()?, "pages: 20 rows, 20 documents; equal");
    Ok(())
}

async fn run(
    stage: &Stage,
    database: &TestDb,
    arguments: &[&str],
    environment: &[(&str, &str)],
) -> anyhow::Result<CommandOutput> {
    let mut command = stage.command(arguments);
    command.env("DATABASE_URL", database.url());
    CommandOutput::by(Child::spawn(command.envs(environment.iter().copied()))?).await
}

/// Serves the fake over TLS with this certificate.
async fn behind_tls(
    made: &rcgen::CertifiedKey<rcgen::KeyPair>,
    fake: &FakeElastic,
) -> anyhow::Result<SocketAddr> {
    let acceptor = tls::acceptor(made)?;
    let server = fake.url().replace("http://", "");
    let listener = TcpListener::bind("127.0.0.1:0").await?;
    let address = listener.local_addr()?;
    tokio::spawn(async move {
        while let Ok((socket, _)) = listener.accept().await {
            let (acceptor, server) = (acceptor.clone(), server.clone());
            tokio::spawn(async move {
                // A client that does not trust it disconnects.
                let mut asked = acceptor.accept(socket).await?;
                let mut answered = TcpStream::connect(server).await?;
                copy_bidirectional(&mut asked, &mut answered).await
            });
        }
    });
    Ok(address)
}

#[tokio::test(flavor = "multi_thread")]
async fn indexes_in_another_database_match_the_rows() -> anyhow::Result<()> {
    let (stage, database, client) = with_pages("postgres:").await?;
    let elsewhere = stage::database().await?;
    let index = format!("{TABLE}index = '{}'\n", elsewhere.url());
    stage.write("posthaste.toml", &index)?;
    let ours = async |arguments: &[&str]| good(&stage, &database, arguments).await;
    ours(&["sync", "reindex", "pages", "--all"]).await?;
    ours(&["sync", "run", "--once"]).await?;
    assert_eq!(
        ours(&["sync", "audit"]).await?,
        "pages: 20 rows, 20 documents; equal"
    );
    let there = elsewhere.client().await?;
    let documents = "SELECT count(*) FROM posthaste.search";
    assert_eq!(number(&there, documents).await?, 20);
    assert_eq!(number(&client, documents).await?, 0);
    assert!(
        ours(&["sync", "search", "page 7"])
            .await?
            .contains("7  words | old page 7")
    );
    Ok(())
}
