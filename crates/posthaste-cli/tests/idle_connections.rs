//! Many idle connections, and the requests that are served at the same time.

use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use anyhow::{Context as _, ensure};
use posthaste_testkit::{Child, Sql as _, TestDb, eventually, more_descriptors, number};
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::{TcpListener, TcpStream};

use crate::exporter::{got, served};
use crate::stage::{self, BOUND, Stage};

/// The limit of most service managers and containers.
const USUAL: &str = "ulimit -n 1024";
/// More connections than that limit.
const STRANGERS: usize = 1_100;
const SAID: &str = "too many connections";

/// The beginning of a request, and of a TLS handshake.
const REQUEST: &[u8] = b"GET /li";
const HANDSHAKE: &[u8] = b"\x16\x03\x01\x02\x00\x01";

/// Opens connections that send this beginning and then nothing.
async fn strangers(address: &str, begin: &[u8]) -> anyhow::Result<Vec<TcpStream>> {
    more_descriptors()?;
    let mut all = Vec::new();
    for _ in 0..STRANGERS {
        let mut stream = TcpStream::connect(address).await?;
        stream.write_all(begin).await?;
        all.push(stream);
    }
    Ok(all)
}

/// Waits until the server has closed them all.
async fn are_closed(strangers: Vec<TcpStream>) -> anyhow::Result<()> {
    for mut stream in strangers {
        let mut read = Vec::new();
        // Gracefully or not.
        let _ = tokio::time::timeout(BOUND, stream.read_to_end(&mut read))
            .await
            .context("a connection is not closed")?;
    }
    Ok(())
}

fn start(stage: &Stage, database: &TestDb, arguments: &[&str]) -> anyhow::Result<Child> {
    let mut command = stage.started_by(USUAL, arguments);
    Child::spawn(command.env("DATABASE_URL", database.url()))
}

async fn said_once(child: &mut Child) -> anyhow::Result<()> {
    child.error_line(SAID, BOUND).await?;
    let stderr = child.stderr();
    let lines = stderr.iter().filter(|line| line.contains(SAID));
    ensure!(lines.count() == 1, "{stderr:#?}");
    Ok(())
}

#[tokio::test(flavor = "multi_thread")]
async fn a_worker_survives_idle_connections() -> anyhow::Result<()> {
    let (stage, database) = (Stage::new()?, stage::database().await?);
    let work = ["work", "--listen", "127.0.0.1:0", "--exec", "*=true"];
    let mut child = start(&stage, &database, &work)?;
    let root = served(&mut child).await?;
    let strangers = strangers(root.trim_start_matches("http://"), REQUEST).await?;
    assert_eq!(got(&root, "/ready").await?.0, 200);
    let client = database.client().await?;
    let jobs = "SELECT posthaste.enqueue('n') FROM generate_series(1, 100)";
    client.run(jobs).await?;
    eventually(BOUND, "all are done", async || {
        Ok(number(&client, "SELECT count(*) FROM posthaste.job").await? == 0)
    })
    .await?;
    assert_eq!(got(&root, "/live").await?.0, 200);
    assert_eq!(
        number(&client, "SELECT count(*) FROM posthaste.attempt").await?,
        0
    );
    are_closed(strangers).await?;
    said_once(&mut child).await?;
    child.terminate()?;
    assert!(child.exit(BOUND).await?.success());
    Ok(())
}

#[tokio::test(flavor = "multi_thread")]
async fn exporters_and_consoles_survive_idle_connections() -> anyhow::Result<()> {
    let (stage, database) = (Stage::new()?, stage::database().await?);
    let mut child = start(&stage, &database, &["exporter", "--listen", "127.0.0.1:0"])?;
    let root = served(&mut child).await?;
    let waiting = strangers(root.trim_start_matches("http://"), REQUEST).await?;
    for path in ["/live", "/ready", "/metrics"] {
        assert_eq!(got(&root, path).await?.0, 200, "{path}");
    }
    drop(waiting);
    said_once(&mut child).await?;
    let mut child = start(&stage, &database, &["console", "--listen", "127.0.0.1:0"])?;
    let line = child.error_line("console at http://", BOUND).await?;
    let address = line.split("http://").nth(1).context("no address")?;
    let address = address.split('/').next().context("no address")?;
    let waiting = strangers(address, REQUEST).await?;
    assert_eq!(got(&format!("http://{address}"), "/").await?.0, 200);
    drop(waiting);
    said_once(&mut child).await?;
    Ok(())
}

#[tokio::test(flavor = "multi_thread")]
async fn tls_consoles_survive_connections_without_a_handshake() -> anyhow::Result<()> {
    let (stage, database) = (Stage::new()?, stage::database().await?);
    let made = rcgen::generate_simple_self_signed(vec!["127.0.0.1".to_owned()])?;
    stage.write("cert.pem", &made.cert.pem())?;
    stage.write("key.pem", &made.signing_key.serialize_pem())?;
    let console = [
        "console",
        "--listen",
        "127.0.0.1:0",
        "--tls-cert",
        "cert.pem",
        "--tls-key",
    ];
    let mut child = start(&stage, &database, &[&console[..], &["key.pem"]].concat())?;
    let line = child.error_line("console at https://", BOUND).await?;
    let address = line.split("https://").nth(1).context("no address")?;
    let address = address.split('/').next().context("no address")?;
    let waiting = strangers(address, HANDSHAKE).await?;
    let _ = rustls::crypto::ring::default_provider().install_default();
    let trusted = reqwest::Certificate::from_pem(made.cert.pem().as_bytes())?;
    let client = reqwest::Client::builder()
        .no_proxy()
        .tls_certs_only([trusted])
        .build()?;
    let answer = client.get(format!("https://{address}/")).send().await?;
    assert_eq!(answer.status(), 200);
    drop(waiting);
    said_once(&mut child).await?;
    Ok(())
}

/// Answers webhooks at all addresses of this machine without closing connections.
struct Hosts {
    port: u16,
    /// The maximum number of connections that were open at once.
    most: Arc<AtomicUsize>,
}

impl Hosts {
    async fn start() -> anyhow::Result<Self> {
        let listener = TcpListener::bind("0.0.0.0:0").await?;
        let port = listener.local_addr()?.port();
        let (open, most) = (Arc::new(AtomicUsize::new(0)), Arc::new(AtomicUsize::new(0)));
        let highest = Arc::clone(&most);
        tokio::spawn(async move {
            while let Ok((stream, _)) = listener.accept().await {
                let now = open.fetch_add(1, Ordering::SeqCst) + 1;
                highest.fetch_max(now, Ordering::SeqCst);
                let open = Arc::clone(&open);
                tokio::spawn(async move {
                    let _ = answer(stream).await;
                    open.fetch_sub(1, Ordering::SeqCst);
                });
            }
        });
        Ok(Self { port, most })
    }
}

async fn answer(mut stream: TcpStream) -> std::io::Result<()> {
    let mut request = Vec::new();
    while stream.read_buf(&mut request).await? > 0 {
        // The body is a single object.
        if request.ends_with(b"}") {
            request.clear();
            stream.write_all(b"HTTP/1.1 204 No Content\r\n\r\n").await?;
        }
    }
    Ok(())
}

fn open_files(pid: u32) -> anyhow::Result<usize> {
    Ok(Path::new("/proc")
        .join(pid.to_string())
        .join("fd")
        .read_dir()?
        .count())
}

#[tokio::test(flavor = "multi_thread")]
async fn a_relay_to_many_hosts_keeps_few_connections() -> anyhow::Result<()> {
    more_descriptors()?;
    let (stage, database, hosts) = (
        Stage::new()?,
        stage::database().await?,
        Hosts::start().await?,
    );
    let route = "[route.out]\nto = 'http://127.0.0.1:1/'\nreceiver_queue = '{kwargs.url}'\n\
                 networks = ['127.0.0.0/8']\nrequests = 20\nbatch = 5\n";
    stage.write("posthaste.toml", route)?;
    let relay = ["relay", "run", "--listen", "127.0.0.1:0"];
    let mut command = stage.started_by("ulimit -n 200", &relay);
    let mut child = Child::spawn(command.env("DATABASE_URL", database.url()))?;
    let root = served(&mut child).await?;
    let client = database.client().await?;
    let enqueue = format!(
        "SELECT posthaste.enqueue('e', jsonb_build_object('url', format(
             'http://127.1.%s.%s:{}/', g / 250, g % 250 + 1)), queue => 'out')
           FROM generate_series(1, 1000) g",
        hosts.port
    );
    client.run(&enqueue).await?;
    eventually(BOUND, "all are done", async || {
        Ok(number(&client, "SELECT count(*) FROM posthaste.job").await? == 0)
    })
    .await?;
    assert_eq!(got(&root, "/ready").await?.0, 200);
    // Idle ones are a quarter of the file descriptors at most; the others are in use.
    let most = hosts.most.load(Ordering::SeqCst);
    ensure!(most <= 50 + 2 * 20, "{most} connections at once");
    ensure!(open_files(child.pid())? < 150);
    assert_eq!(
        number(&client, "SELECT count(*) FROM posthaste.attempt").await?,
        0
    );
    let stderr = child.stderr();
    ensure!(
        !stderr.iter().any(|line| line.contains("ulimit")),
        "{stderr:#?}"
    );
    Ok(())
}
