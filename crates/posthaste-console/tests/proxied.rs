//! Users whom a proxy names: which peer counts as the proxy, and what each user may do.

use std::net::IpAddr;

use posthaste_console::{Access, Proxy, Settings};
use posthaste_testkit::TestDb;
use reqwest::StatusCode;
use reqwest::header::HeaderMap;
use tracing_subscriber::fmt::MakeWriter;

use crate::support::{Console, console_with, database, enqueue, state};

/// The address of the proxy in these tests; other clients use 127.0.0.1.
const PROXY: [u8; 4] = [127, 0, 0, 2];

async fn proxied(database: &TestDb) -> Console {
    let proxy = Proxy {
        networks: vec![IpAddr::from(PROXY).to_string().parse().unwrap()],
        header: "X-Forwarded-User".to_owned(),
        operators: vec!["ada".to_owned()],
    };
    let settings = Settings {
        access: Access::Proxy(proxy),
        ..Settings::default()
    };
    let console = console_with(database, settings).await;
    let http = reqwest::Client::builder()
        .redirect(reqwest::redirect::Policy::none())
        .local_address(IpAddr::from(PROXY))
        .no_proxy()
        .build()
        .unwrap();
    Console::at(console.base, http)
}

/// Returns the headers that the proxy sends with these names.
fn named(console: &Console, names: &[&str]) -> HeaderMap {
    let mut headers = HeaderMap::new();
    headers.insert("origin", console.base.parse().unwrap());
    for name in names {
        headers.append("x-forwarded-user", name.parse().unwrap());
    }
    headers
}

async fn status(http: &reqwest::Client, url: &str, headers: HeaderMap) -> (StatusCode, String) {
    let answer = http.get(url).headers(headers).send().await.unwrap();
    (answer.status(), answer.text().await.unwrap())
}

#[tokio::test]
async fn proxied_requests_are_authenticated_by_exactly_one_name() {
    let database = database().await;
    let console = proxied(&database).await;
    let jobs = format!("{}/jobs", console.base);
    let (code, page) = status(&console.http, &jobs, named(&console, &["ada"])).await;
    assert_eq!(code, StatusCode::OK, "{page}");
    assert!(page.contains("Operator · ada"), "{page}");
    let (code, page) = status(&console.http, &jobs, named(&console, &["eve"])).await;
    assert_eq!(code, StatusCode::OK);
    assert!(page.contains("Observer · eve"), "{page}");
    for names in [
        &[][..],
        &[""],
        &["  "],
        &["ada", "eve"],
        &["eve", "ada"],
        &["ada", "ada"],
        &["ada,eve"],
        &["ada; eve"],
    ] {
        let (code, page) = status(&console.http, &jobs, named(&console, names)).await;
        assert_eq!(code, StatusCode::UNAUTHORIZED, "{names:?}");
        assert!(
            !page.contains("Overview</a>ada") && !page.contains("· ada"),
            "{page}"
        );
    }
    // Neither a token nor a cookie bypasses the proxy.
    for (name, value) in [
        ("authorization", "Bearer "),
        ("cookie", "posthaste_console=1.00"),
        ("x-forwarded-for", "127.0.0.2"),
        ("forwarded", "for=127.0.0.2"),
    ] {
        let mut headers = HeaderMap::new();
        headers.insert(name, value.parse().unwrap());
        let (code, _) = status(&console.http, &jobs, headers).await;
        assert_eq!(code, StatusCode::UNAUTHORIZED, "{name}");
    }
}

#[tokio::test]
async fn requests_around_the_proxy_are_rejected() {
    let database = database().await;
    let client = database.client().await.unwrap();
    let id = enqueue(&client, "mail.send", "mail", "{}").await;
    let console = proxied(&database).await;
    let other = reqwest::Client::builder().no_proxy().build().unwrap();
    for path in ["/", "/jobs", "/login", "/events", "/assets/console.css"] {
        let mut headers = named(&console, &["ada"]);
        headers.insert("x-forwarded-for", "127.0.0.2".parse().unwrap());
        headers.insert("x-real-ip", "127.0.0.2".parse().unwrap());
        let url = format!("{}{path}", console.base);
        let (code, page) = status(&other, &url, headers).await;
        assert_eq!(code, StatusCode::FORBIDDEN, "{path}");
        assert!(page.contains("127.0.0.1 is another"), "{page}");
    }
    let outside = Console::at(console.base.clone(), other);
    let number = id.to_string();
    let fields = [("id", number.as_str())];
    let sent = named(&console, &["ada"]);
    let answer = outside.post_with("/jobs/cancel", &fields, sent).await;
    assert_eq!(answer.status(), StatusCode::FORBIDDEN);
    assert_eq!(state(&client, id).await, "available");
    for path in ["/live", "/ready"] {
        assert_eq!(outside.get(path).await.status(), StatusCode::OK, "{path}");
    }
}

/// The log while it is set.
#[derive(Clone, Default)]
struct Log(std::sync::Arc<std::sync::Mutex<Vec<u8>>>);

impl std::io::Write for Log {
    fn write(&mut self, bytes: &[u8]) -> std::io::Result<usize> {
        self.0.lock().unwrap().extend_from_slice(bytes);
        Ok(bytes.len())
    }

    fn flush(&mut self) -> std::io::Result<()> {
        Ok(())
    }
}

impl MakeWriter<'_> for Log {
    type Writer = Self;

    fn make_writer(&self) -> Self {
        self.clone()
    }
}

#[tokio::test]
async fn only_operators_act_and_the_log_names_them() {
    let log = Log::default();
    let subscriber = tracing_subscriber::fmt()
        .with_ansi(false)
        .with_writer(log.clone());
    let _logs = tracing::subscriber::set_default(subscriber.finish());
    let database = database().await;
    let client = database.client().await.unwrap();
    let id = enqueue(&client, "mail.send", "mail", "{}").await;
    let console = proxied(&database).await;
    let number = id.to_string();
    let fields = [("id", number.as_str())];
    for observer in ["eve", "Ada", "ada@example.com"] {
        let sent = named(&console, &[observer]);
        let answer = console.post_with("/jobs/cancel", &fields, sent).await;
        assert_eq!(answer.status(), StatusCode::FORBIDDEN, "{observer}");
        let page = status(&console.http, &console.base, named(&console, &[observer])).await;
        assert!(!page.1.contains("action=\"/queues/pause\""), "{observer}");
    }
    assert_eq!(state(&client, id).await, "available");
    let answer = console
        .post_with("/jobs/cancel", &fields, named(&console, &["ada"]))
        .await;
    assert_eq!(answer.status(), StatusCode::SEE_OTHER);
    assert_eq!(state(&client, id).await, "cancelled");
    let text = String::from_utf8(log.0.lock().unwrap().clone()).unwrap();
    let lines: Vec<&str> = text
        .lines()
        .filter(|line| line.contains("an action"))
        .collect();
    assert_eq!(lines.len(), 1, "{text}");
    assert!(
        lines[0].contains("who=\"ada\"") && lines[0].contains("peer=\"127.0.0.2\""),
        "{text}"
    );
}
