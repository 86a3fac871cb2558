//! The process of `posthaste console`. Its pages and actions have separate tests.

mod file;
mod killed;

use anyhow::Context as _;
use posthaste_testkit::{Child, TestDb, eventually, number};

use crate::stage::{self, BOUND, Stage};

/// Starts a console with these options and returns its URL.
async fn console(
    stage: &Stage,
    database: &TestDb,
    options: &[&str],
) -> anyhow::Result<(Child, String)> {
    let mut arguments = vec!["console", "--listen", "127.0.0.1:0"];
    arguments.extend(options);
    let mut child = stage.spawn_on(database, &arguments)?;
    let line = child.error_line("console at http://", BOUND).await?;
    let address = line.split("console at ").nth(1).context("no address")?;
    let url = address.split('/').take(3).collect::<Vec<_>>().join("/");
    Ok((child, url))
}

fn client() -> anyhow::Result<reqwest::Client> {
    let _ = rustls::crypto::ring::default_provider().install_default();
    let redirect = reqwest::redirect::Policy::none();
    Ok(reqwest::Client::builder()
        .no_proxy()
        .redirect(redirect)
        .build()?)
}

#[tokio::test(flavor = "multi_thread")]
async fn the_console_is_read_only_unless_enabled() -> anyhow::Result<()> {
    let (stage, database) = (Stage::new()?, stage::database().await?);
    stage
        .run_on(&database, &["jobs", "enqueue", "a", "--queue", "mail"])
        .await?
        .good()?;
    let (mut child, url) = console(&stage, &database, &[]).await?;
    let page = client()?.get(&url).send().await?;
    assert_eq!(page.status(), 200);
    assert!(page.text().await?.contains("mail"));
    let pause = client()?
        .post(format!("{url}/queues/pause"))
        .header("origin", &url);
    let pause = pause.header("content-type", "application/x-www-form-urlencoded");
    assert_eq!(pause.body("queue=mail").send().await?.status(), 403);
    let paused = "SELECT count(*) FROM posthaste.queue WHERE paused_at IS NOT NULL";
    assert_eq!(number(&database.client().await?, paused).await?, 0);
    child.terminate()?;
    assert!(child.exit(BOUND).await?.success());
    Ok(())
}

#[tokio::test(flavor = "multi_thread")]
async fn operator_actions_take_effect_and_are_logged() -> anyhow::Result<()> {
    let (stage, database) = (Stage::new()?, stage::database().await?);
    stage
        .run_on(&database, &["jobs", "enqueue", "a", "--queue", "mail"])
        .await?
        .good()?;
    let (mut child, url) = console(&stage, &database, &["--operate"]).await?;
    let pause = client()?
        .post(format!("{url}/queues/pause"))
        .header("origin", &url);
    let pause = pause.header("content-type", "application/x-www-form-urlencoded");
    let status = pause.body("queue=mail").send().await?.status();
    assert!(status.is_redirection() || status.is_success(), "{status}");
    let observer = database.client().await?;
    let paused = "SELECT count(*) FROM posthaste.queue WHERE paused_at IS NOT NULL";
    eventually(BOUND, "it is paused", async || {
        Ok(number(&observer, paused).await? == 1)
    })
    .await?;
    child.error_line("mail", BOUND).await?;
    Ok(())
}

#[tokio::test(flavor = "multi_thread")]
async fn remote_clients_need_a_token_and_a_proxy() -> anyhow::Result<()> {
    let (stage, database) = (Stage::new()?, stage::database().await?);
    let refused = ["console", "--listen", "0.0.0.0:0"];
    let failure = stage.run_on(&database, &refused).await?.failure()?;
    assert!(
        failure.contains("can be reached from other machines"),
        "{failure}"
    );
    stage.write("short", "abc\n")?;
    let short = ["console", "--token-file", "short"];
    let failure = stage.run_on(&database, &short).await?.failure()?;
    assert!(failure.contains("16 characters"), "{failure}");
    stage.write("token", "a-long-secret-token-of-ours\n")?;
    let (child, url) = console(&stage, &database, &["--token-file", "token"]).await?;
    let asked = client()?.get(&url).send().await?;
    assert_ne!(asked.status(), 200, "nobody gets in without it");
    let asked = client()?
        .get(&url)
        .bearer_auth("a-long-secret-token-of-ours");
    assert_eq!(asked.send().await?.status(), 200);
    let stderr = child.stderr().join("\n");
    assert!(!stderr.contains("a-long-secret"), "{stderr}");
    Ok(())
}

/// Returns a certificate for this machine and its key, in PEM.
fn certificate() -> anyhow::Result<(String, String)> {
    let names = vec!["127.0.0.1".to_owned(), "localhost".to_owned()];
    let made = rcgen::generate_simple_self_signed(names)?;
    Ok((made.cert.pem(), made.signing_key.serialize_pem()))
}

/// Replaces the certificate and its key, and closes the key to other users.
fn put(stage: &Stage, pair: &(String, String)) -> anyhow::Result<()> {
    use std::os::unix::fs::PermissionsExt as _;
    for (name, text, mode) in [("cert.pem", &pair.0, 0o644), ("key.pem", &pair.1, 0o600)] {
        let new = stage.write(&format!("{name}.new"), text)?;
        std::fs::set_permissions(&new, std::fs::Permissions::from_mode(mode))?;
        std::fs::rename(&new, stage.folder.join(name))?;
    }
    Ok(())
}

/// Returns a client that trusts this certificate only.
fn trusting(pem: &str) -> anyhow::Result<reqwest::Client> {
    let _ = rustls::crypto::ring::default_provider().install_default();
    let trusted = reqwest::Certificate::from_pem(pem.as_bytes())?;
    let client = reqwest::Client::builder().no_proxy();
    let client = client.redirect(reqwest::redirect::Policy::none());
    Ok(client.tls_certs_only([trusted]).build()?)
}

const TLS: [&str; 4] = ["--tls-cert", "cert.pem", "--tls-key", "key.pem"];

/// Starts a console with these options and returns its port.
async fn started(
    stage: &Stage,
    database: &TestDb,
    options: &[&str],
) -> anyhow::Result<(Child, String)> {
    let mut child = stage.spawn_on(database, options)?;
    let line = child.error_line("console at http", BOUND).await?;
    let address = line.split("://").nth(1).context("no address")?;
    let port = address.split('/').next().context("no port")?;
    let port = port.rsplit(':').next().context("no port")?;
    Ok((child, port.to_owned()))
}

#[tokio::test(flavor = "multi_thread")]
async fn tls_consoles_serve_remote_clients_by_token_with_secure_cookies() -> anyhow::Result<()> {
    let (stage, database) = (Stage::new()?, stage::database().await?);
    let pair = certificate()?;
    put(&stage, &pair)?;
    stage.write("token", "a-long-secret-token-of-ours\n")?;
    let listen = ["console", "--listen", "0.0.0.0:0", "--token-file", "token"];
    let all = [&listen[..], &TLS[..]].concat();
    let (mut child, port) = started(&stage, &database, &all).await?;
    let url = format!("https://127.0.0.1:{port}");
    let http = trusting(&pair.0)?;
    assert_eq!(http.get(&url).send().await?.status(), 401);
    // The login has no Origin header. Its cookie is Secure because the console itself serves TLS.
    let enter = http.post(format!("{url}/login"));
    let enter = enter.header("content-type", "application/x-www-form-urlencoded");
    let enter = enter.header("sec-fetch-site", "same-origin");
    let entered = enter
        .body("token=a-long-secret-token-of-ours")
        .send()
        .await?;
    assert_eq!(entered.status(), 303);
    let cookie = entered.headers()["set-cookie"].to_str()?.to_owned();
    assert!(cookie.ends_with("; Secure"), "{cookie}");
    let pair = cookie.split(';').next().unwrap_or_default();
    let page = http.get(&url).header("cookie", pair).send().await?;
    assert_eq!(page.status(), 200);
    // A client that speaks plain HTTP gets no page and blocks no other client.
    let plain = client()?.get(url.replace("https", "http")).send().await;
    assert!(plain.is_err(), "{plain:?}");
    let silent = tokio::net::TcpStream::connect(format!("127.0.0.1:{port}")).await?;
    let page = http.get(&url).header("cookie", pair).send().await?;
    assert_eq!(page.status(), 200, "while somebody's handshake hangs");
    drop(silent);
    let stranger = trusting(&certificate()?.0)?.get(&url).send().await;
    assert!(stranger.is_err(), "{stranger:?}");
    child.terminate()?;
    assert!(child.exit(BOUND).await?.success());
    Ok(())
}

#[tokio::test(flavor = "multi_thread")]
async fn certificates_are_reloaded_and_invalid_ones_ignored() -> anyhow::Result<()> {
    let (stage, database) = (Stage::new()?, stage::database().await?);
    let (first, second) = (certificate()?, certificate()?);
    put(&stage, &first)?;
    let all = [&["console", "--listen", "127.0.0.1:0"][..], &TLS[..]].concat();
    let (mut child, port) = started(&stage, &database, &all).await?;
    let url = format!("https://localhost:{port}");
    let shows = async |pair: &(String, String)| -> anyhow::Result<bool> {
        // A new client each time: a client would reuse its connection.
        Ok(trusting(&pair.0)?.get(&url).send().await.is_ok())
    };
    assert!(shows(&first).await? && !shows(&second).await?);
    put(&stage, &(second.0.clone(), first.1.clone()))?;
    assert!(shows(&first).await?, "that key is none of it");
    child
        .error_line("a new certificate cannot be used", BOUND)
        .await?;
    put(&stage, &("no pem".to_owned(), second.1.clone()))?;
    assert!(shows(&first).await?);
    put(&stage, &second)?;
    assert!(shows(&second).await? && !shows(&first).await?);
    let stderr = child.stderr().join("\n");
    assert!(!stderr.contains("PRIVATE KEY"), "{stderr}");
    Ok(())
}

#[tokio::test(flavor = "multi_thread")]
async fn unusable_certificates_fail_at_startup_and_readable_keys_warn() -> anyhow::Result<()> {
    use std::os::unix::fs::PermissionsExt as _;
    let (stage, database) = (Stage::new()?, stage::database().await?);
    let (pair, other) = (certificate()?, certificate()?);
    put(&stage, &pair)?;
    stage.write("other.pem", &other.1)?;
    stage.write("text.pem", "geheim")?;
    let start = ["console", "--listen", "127.0.0.1:0", "--tls-cert"];
    for (cert, key, expected) in [
        ("none.pem", "key.pem", "none.pem: no such file"),
        (
            "text.pem",
            "key.pem",
            "text.pem: contains none in PEM format",
        ),
        (
            "cert.pem",
            "text.pem",
            "text.pem: contains none in PEM format",
        ),
        ("cert.pem", "none.pem", "none.pem: no such file"),
        (
            "cert.pem",
            "other.pem",
            "other.pem does not match the certificate in cert.pem",
        ),
        ("key.pem", "key.pem", "key.pem: contains none in PEM format"),
    ] {
        let all = [&start[..], &[cert, "--tls-key", key]].concat();
        let failure = stage.run_on(&database, &all).await?.failure()?;
        assert!(failure.contains(expected), "{cert} {key}: {failure}");
        assert!(
            !failure.contains("geheim") && failure.lines().count() == 1,
            "{failure}"
        );
    }
    let half = [&start[..], &["cert.pem"]].concat();
    let failure = stage.run_on(&database, &half).await?.failure()?;
    assert!(
        failure.contains("give both --tls-cert and --tls-key"),
        "{failure}"
    );
    let key = stage.folder.join("key.pem");
    std::fs::set_permissions(&key, std::fs::Permissions::from_mode(0o644))?;
    let all = [&start[..3], &TLS[..]].concat();
    let (child, _) = started(&stage, &database, &all).await?;
    child
        .stderr()
        .iter()
        .find(|line| line.contains("chmod 600 key.pem"))
        .context("no warning about a key that is readable by all")?;
    Ok(())
}

#[tokio::test(flavor = "multi_thread")]
async fn users_named_by_a_trusted_proxy_are_admitted_and_logged() -> anyhow::Result<()> {
    let (stage, database) = (Stage::new()?, stage::database().await?);
    for (options, expected) in [
        (
            &["--listen", "0.0.0.0:0", "--trust-proxy", "127.0.0.1"][..],
            "--without-tls",
        ),
        (&["--trust-proxy", "0.0.0.0/0"][..], "it must be an address"),
        (&["--operator", "ada"][..], "--operator needs --trust-proxy"),
        (&["--user-header", "no header"][..], "--user-header"),
    ] {
        let all = [&["console"][..], options].concat();
        let refused = stage.run_on(&database, &all).await?;
        assert_ne!(refused.code, Some(0));
        assert!(refused.err.contains(expected), "{options:?}: {refused:?}");
    }
    stage
        .run_on(&database, &["jobs", "enqueue", "a", "--queue", "mail"])
        .await?
        .good()?;
    let all = [
        "console",
        "--listen",
        "0.0.0.0:0",
        "--trust-proxy",
        "127.0.0.2",
        "--user-header",
        "Remote-User",
        "--operator",
        "ada@example.com",
        "--without-tls",
    ];
    let (mut child, port) = started(&stage, &database, &all).await?;
    let url = format!("http://127.0.0.1:{port}");
    let _ = rustls::crypto::ring::default_provider().install_default();
    let redirect = reqwest::redirect::Policy::none();
    let proxy = reqwest::Client::builder().no_proxy().redirect(redirect);
    let proxy = proxy
        .local_address(std::net::IpAddr::from([127, 0, 0, 2]))
        .build()?;
    let pause = |http: &reqwest::Client, who: &str| {
        let pause = http
            .post(format!("{url}/queues/pause"))
            .header("origin", &url);
        let pause = pause.header("content-type", "application/x-www-form-urlencoded");
        pause.header("remote-user", who).body("queue=mail").send()
    };
    let outside = pause(&client()?, "ada@example.com").await?;
    assert_eq!(outside.status(), 403, "not from the proxy");
    assert_eq!(pause(&proxy, "eve@example.com").await?.status(), 403);
    assert_eq!(pause(&proxy, "").await?.status(), 401);
    let usual = proxy
        .get(&url)
        .header("x-forwarded-user", "ada@example.com");
    assert_eq!(usual.send().await?.status(), 401, "another header");
    let paused = "SELECT count(*) FROM posthaste.queue WHERE paused_at IS NOT NULL";
    assert_eq!(number(&database.client().await?, paused).await?, 0);
    assert_eq!(pause(&proxy, "ada@example.com").await?.status(), 303);
    assert_eq!(number(&database.client().await?, paused).await?, 1);
    let line = child.error_line("an action", BOUND).await?;
    assert!(
        line.contains("ada@example.com") && line.contains("127.0.0.2"),
        "{line}"
    );
    Ok(())
}
