//! Authentication, the origin of requests, and the security headers of pages.

use posthaste_console::{Access, Role, Settings};
use posthaste_testkit::{Sql as _, TestDb, TestResult};
use reqwest::StatusCode;
use reqwest::header::{HeaderMap, HeaderName, HeaderValue};

use crate::support::{self, Console, connected, console, console_with, database, enqueue, state};

const TOKEN: &str = "a long secret";

async fn guarded(database: &TestDb) -> Console {
    let settings = Settings {
        access: Access::Token(TOKEN.to_owned()),
        role: Role::Operator,
        ..Settings::default()
    };
    console_with(database, settings).await
}

fn headers(all: &[(&'static str, &str)]) -> HeaderMap {
    let pairs = all.iter().map(|(name, value)| {
        (
            HeaderName::from_static(name),
            HeaderValue::from_str(value).unwrap(),
        )
    });
    pairs.collect()
}

#[tokio::test]
async fn cross_site_forms_are_refused_and_change_nothing() {
    let database = database().await;
    let client = database.client().await.unwrap();
    let id = enqueue(&client, "mail.send", "mail", "{}").await;
    let console = console(&database).await;
    let fields = [("id", id.to_string())];
    let fields: Vec<(&str, &str)> = fields
        .iter()
        .map(|(name, id)| (*name, id.as_str()))
        .collect();
    let own = console.base.as_str();
    for sent in [
        headers(&[]),
        headers(&[("origin", "https://evil.example")]),
        headers(&[("origin", "null")]),
        headers(&[("origin", own), ("sec-fetch-site", "cross-site")]),
        headers(&[("origin", own), ("sec-fetch-site", "same-site")]),
    ] {
        let answer = console
            .post_with("/jobs/cancel", &fields, sent.clone())
            .await;
        assert_eq!(answer.status(), StatusCode::FORBIDDEN, "{sent:?}");
    }
    assert_eq!(state(&client, id).await, "available");
    let same = headers(&[("sec-fetch-site", "same-origin")]);
    let answer = console.post_with("/jobs/cancel", &fields, same).await;
    assert_eq!(answer.status(), StatusCode::SEE_OTHER);
    assert_eq!(state(&client, id).await, "cancelled");
}

#[tokio::test]
async fn rebound_host_names_are_rejected() {
    let database = database().await;
    let console = console(&database).await;
    for host in ["evil.example", "127.0.0.1.evil.example", "10.1.2.3:80"] {
        let request = console.http.get(&console.base).header("host", host);
        let answer = request.send().await.unwrap();
        assert_eq!(answer.status(), StatusCode::FORBIDDEN, "{host}");
        assert!(!answer.text().await.unwrap().contains("Queues <small>"));
    }
    let request = console
        .http
        .get(&console.base)
        .header("host", "localhost:8080");
    assert_eq!(request.send().await.unwrap().status(), StatusCode::OK);
}

#[tokio::test]
async fn observers_see_no_buttons_and_are_refused_every_action() {
    let database = database().await;
    let client = database.client().await.unwrap();
    let id = enqueue(&client, "mail.send", "mail", "{}")
        .await
        .to_string();
    let console = console_with(&database, Settings::default()).await;
    for path in ["/", "/queues", "/jobs", &format!("/jobs/{id}")] {
        let page = console.page(path).await;
        assert!(page.contains("Observer") && !page.contains("method=\"post\" action=\"/queues"));
        assert!(!page.contains("data-key=\"c\""), "{path}");
    }
    let fields = [
        ("id", id.as_str()),
        ("queue", "mail"),
        ("rate", "1"),
        ("do", "retry"),
        ("filter", ""),
    ];
    for path in [
        "/jobs/cancel",
        "/jobs/retry",
        "/jobs/redrive",
        "/jobs/delete",
        "/periodic/run",
        "/periodic/off",
        "/periodic/on",
        "/queues/pause",
        "/queues/resume",
        "/queues/limit",
        "/queues/keep",
        "/sync/reindex",
        "/queues/drain",
        "/bulk",
    ] {
        let answer = console.post(path, &fields).await;
        assert_eq!(answer.status(), StatusCode::FORBIDDEN, "{path}");
    }
    assert_eq!(state(&client, id.parse().unwrap()).await, "available");
}

#[tokio::test]
async fn all_paths_but_login_and_health_need_a_token() {
    let database = database().await;
    let console = guarded(&database).await;
    for path in [
        "/", "/queues", "/jobs", "/jobs/1", "/dead", "/events", "/nothing", "/bulk",
    ] {
        let answer = console.get(path).await;
        assert_eq!(answer.status(), StatusCode::UNAUTHORIZED, "{path}");
        assert_eq!(answer.headers()["www-authenticate"], "Bearer");
    }
    let wrong = console.http.get(&console.base).bearer_auth("a long secre");
    assert_eq!(
        wrong.send().await.unwrap().status(),
        StatusCode::UNAUTHORIZED
    );
    let right = console.http.get(&console.base).bearer_auth(TOKEN);
    assert_eq!(right.send().await.unwrap().status(), StatusCode::OK);
    for path in [
        "/live",
        "/ready",
        "/login",
        "/assets/console.css",
        "/assets/console.js",
    ] {
        assert_eq!(console.get(path).await.status(), StatusCode::OK, "{path}");
    }
    let asks = console.http.get(format!("{}/jobs?filter=a", console.base));
    let answer = asks.header("accept", "text/html").send().await.unwrap();
    assert_eq!(
        answer.headers()["location"],
        "/login?back=%2Fjobs%3Ffilter%3Da"
    );
}

#[tokio::test]
async fn login_sets_an_http_only_session_cookie() -> TestResult {
    let database = database().await;
    let console = guarded(&database).await;
    let wrong = console
        .post("/login", &[("token", "x"), ("back", "/jobs")])
        .await;
    assert_eq!(wrong.status(), StatusCode::UNAUTHORIZED);
    assert!(wrong.headers().get("set-cookie").is_none());
    let right = console
        .post("/login", &[("token", TOKEN), ("back", "/jobs")])
        .await;
    assert_eq!(right.status(), StatusCode::SEE_OTHER);
    assert_eq!(right.headers()["location"], "/jobs");
    let cookie = right.headers()["set-cookie"].to_str().unwrap().to_owned();
    assert!(cookie.contains("HttpOnly; SameSite=Strict"), "{cookie}");
    assert!(!cookie.contains(TOKEN));
    let pair = cookie.split(';').next().unwrap();
    let page = console
        .http
        .get(&console.base)
        .header("cookie", pair)
        .send()
        .await?;
    assert_eq!(page.status(), StatusCode::OK);
    let forged = format!("{pair}0");
    let page = console
        .http
        .get(&console.base)
        .header("cookie", forged)
        .send()
        .await?;
    assert_eq!(page.status(), StatusCode::UNAUTHORIZED);
    let elsewhere = [("token", TOKEN), ("back", "//evil.example")];
    let answer = console.post("/login", &elsewhere).await;
    assert_eq!(answer.headers()["location"], "/");
    Ok(())
}

#[tokio::test]
async fn signing_out_ends_the_session_and_its_live_pages() {
    let database = database().await;
    let console = guarded(&database).await;
    let entered = console.post("/login", &[("token", TOKEN)]).await;
    let cookie = entered.headers()["set-cookie"].to_str().unwrap().to_owned();
    let pair = cookie.split(';').next().unwrap();
    let asks = async |path: &str| {
        let request = console.http.get(format!("{}{path}", console.base));
        request.header("cookie", pair).send().await.unwrap()
    };
    let mut stream = asks("/events").await;
    assert!(stream.chunk().await.unwrap().is_some());
    let sent = headers(&[("origin", &console.base), ("cookie", pair)]);
    let left = console.post_with("/logout", &[], sent).await;
    assert_eq!(left.status(), StatusCode::SEE_OTHER);
    assert_eq!(asks("/").await.status(), StatusCode::UNAUTHORIZED);
    let ends = async { while stream.chunk().await.unwrap().is_some() {} };
    let ended = tokio::time::timeout(crate::support::SOON, ends).await;
    assert!(ended.is_ok(), "figures are still sent");
    let sent = headers(&[("origin", &console.base), ("cookie", pair)]);
    let acted = console
        .post_with("/jobs/cancel", &[("id", "1")], sent)
        .await;
    assert_eq!(acted.status(), StatusCode::UNAUTHORIZED);
    let page = acted.text().await.unwrap();
    assert!(
        page.contains("href=\"/login\"") && page.contains("Not signed in"),
        "{page}"
    );
}

#[tokio::test]
async fn only_programs_may_act_without_a_same_origin_header() {
    let database = database().await;
    let client = database.client().await.unwrap();
    let id = enqueue(&client, "mail.send", "mail", "{}").await;
    let console = guarded(&database).await;
    let (bearer, number) = (format!("Bearer {TOKEN}"), id.to_string());
    let fields = [("id", number.as_str())];
    let from_a_site = headers(&[
        ("authorization", &bearer),
        ("origin", "https://evil.example"),
    ]);
    let answer = console
        .post_with("/jobs/cancel", &fields, from_a_site)
        .await;
    assert_eq!(answer.status(), StatusCode::FORBIDDEN);
    let program = headers(&[("authorization", &bearer)]);
    let answer = console.post_with("/jobs/cancel", &fields, program).await;
    assert_eq!(answer.status(), StatusCode::SEE_OTHER);
    assert_eq!(state(&client, id).await, "cancelled");
}

#[tokio::test]
async fn every_response_has_security_headers_and_a_fresh_nonce() -> TestResult {
    let database = database().await;
    let console = console(&database).await;
    let mut nonces = Vec::new();
    for path in [
        "/",
        "/jobs",
        "/nothing",
        "/jobs?limit=x",
        "/assets/console.js",
        "/login",
    ] {
        let answer = console.get(path).await;
        let sent = answer.headers().clone();
        let policy = sent["content-security-policy"].to_str().unwrap().to_owned();
        assert!(
            policy.starts_with("default-src 'none'; script-src 'nonce-"),
            "{path}: {policy}"
        );
        assert!(policy.contains("frame-ancestors 'none'") && policy.contains("base-uri 'none'"));
        assert!(!policy.contains("unsafe"), "{policy}");
        assert_eq!(sent["x-content-type-options"], "nosniff", "{path}");
        assert_eq!(sent["referrer-policy"], "same-origin", "{path}");
        let nonce = policy
            .split("nonce-")
            .nth(1)
            .unwrap()
            .split('\'')
            .next()
            .unwrap()
            .to_owned();
        let page = answer.text().await?;
        let own =
            page.matches("<script").count() + page.matches("<link rel=\"stylesheet\"").count();
        assert_eq!(
            page.matches(&format!("nonce=\"{nonce}\"")).count(),
            own,
            "{path}"
        );
        assert!(
            !page.contains(" style=") && !page.contains(" onclick="),
            "{path}"
        );
        nonces.push(nonce);
    }
    nonces.sort();
    nonces.dedup();
    assert_eq!(nonces.len(), 6);
    assert_eq!(
        console.get("/").await.headers()["cache-control"],
        "no-store"
    );
    let answer = console
        .http
        .delete(&console.base)
        .header("origin", &console.base)
        .send()
        .await;
    assert_eq!(answer.unwrap().status(), StatusCode::METHOD_NOT_ALLOWED);
    Ok(())
}

#[tokio::test]
async fn read_only_database_roles_get_a_remedy_instead_of_buttons() -> TestResult {
    let (database, client) = connected().await?;
    posthaste::grant_roles(&mut database.client().await?).await?;
    let role = format!("reader_{}", database.name());
    let login = format!("CREATE ROLE \"{role}\" LOGIN IN ROLE posthaste_observer");
    client.run(&login).await?;
    let id = enqueue(&client, "mail.send", "mail", "{}").await;
    let pool = database.pool_as(&role, 4)?;
    let console = support::console_of(pool, support::operator()).await;
    for path in ["/", "/queues", "/jobs", &format!("/jobs/{id}")] {
        let page = console.page(path).await;
        assert!(
            page.contains("can only read. To act, run"),
            "{path}: {page}"
        );
        assert!(!page.contains("data-key="), "{path} has buttons");
    }
    let refused = console.post("/queues/pause", &[("queue", "mail")]).await;
    assert_eq!(refused.status(), StatusCode::FORBIDDEN);
    let clear = format!("DROP OWNED BY \"{role}\"; DROP ROLE \"{role}\"");
    client.run(&clear).await?;
    Ok(())
}
