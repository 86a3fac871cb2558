//! The console under the path of a reverse proxy.

use std::collections::BTreeSet;

use posthaste_console::{Access, Settings};
use reqwest::StatusCode;

use crate::support::{console_with, database, enqueue, operator, state};

const PREFIX: &str = "/tools/posthaste";

fn prefixed() -> Settings {
    Settings {
        path_prefix: PREFIX.parse().unwrap(),
        ..operator()
    }
}

/// Returns the values of all attributes of a page that are addresses.
fn addresses(page: &str) -> impl Iterator<Item = String> {
    let names = ["href", "action", "formaction", "src", "data-live"];
    let parts = names.map(|name| {
        page.split(&format!(" {name}=\""))
            .skip(1)
            .collect::<Vec<_>>()
    });
    let values = parts.concat().into_iter().map(|one| one.split('"').next());
    let values = values.flatten().map(|one| one.replace("&#38;", "&"));
    values.collect::<Vec<_>>().into_iter()
}

#[tokio::test]
async fn links_of_a_prefixed_console_stay_under_the_prefix() {
    let database = database().await;
    let client = database.client().await.unwrap();
    enqueue(&client, "mail.send", "mail", r#"{"to": "href=\"/x\""}"#).await;
    let console = console_with(&database, prefixed()).await;
    let mut left = vec![format!("{PREFIX}/")];
    let mut met = BTreeSet::new();
    while let Some(address) = left.pop() {
        let path = address.split(['?', '#']).next().unwrap().to_owned();
        if !met.insert(path) {
            continue;
        }
        let page = console.page(&address).await;
        for address in addresses(&page) {
            if address.starts_with('#') || address.starts_with("data:") {
                continue;
            }
            let inner = address.strip_prefix(PREFIX);
            assert!(inner.is_some_and(|one| one.starts_with('/')), "{address}");
            let is_page =
                !page.contains(&format!("action=\"{address}\"")) && !address.ends_with("/events");
            left.extend(is_page.then_some(address));
        }
    }
    assert!(met.len() > 16, "{met:?}");
    let answer = console.get(PREFIX).await;
    assert_eq!(answer.status(), StatusCode::TEMPORARY_REDIRECT);
    assert_eq!(answer.headers()["location"], format!("{PREFIX}/"));
}

#[tokio::test]
async fn actions_of_a_prefixed_console_redirect_under_the_prefix() {
    let database = database().await;
    let client = database.client().await.unwrap();
    let id = enqueue(&client, "mail.send", "mail", "{}")
        .await
        .to_string();
    let console = console_with(&database, prefixed()).await;
    let fields = [("id", id.as_str()), ("back", "/jobs?filter=queue%3Amail")];
    let sent = console
        .post(&format!("{PREFIX}/jobs/cancel"), &fields)
        .await;
    assert_eq!(sent.status(), StatusCode::SEE_OTHER);
    let to = format!("{PREFIX}/jobs?filter=queue%3Amail");
    assert_eq!(sent.headers()["location"], to.as_str());
    let cookie = sent.headers()["set-cookie"].to_str().unwrap();
    assert!(cookie.contains(&format!("; Path={PREFIX}/;")), "{cookie}");
    assert_eq!(state(&client, id.parse().unwrap()).await, "cancelled");
    // A proxy may remove the prefix from its requests.
    let page = console.page(&format!("/jobs/{id}")).await;
    assert!(page.contains(&format!("href=\"{PREFIX}/jobs\"")), "{page}");
}

#[tokio::test]
async fn sessions_of_a_prefixed_console_belong_to_the_prefix() {
    let database = database().await;
    let settings = Settings {
        access: Access::Token("a long secret".to_owned()),
        ..prefixed()
    };
    let console = console_with(&database, settings).await;
    let asked = console.http.get(format!("{}{PREFIX}/queues", console.base));
    let asked = asked.header("accept", "text/html").send().await.unwrap();
    let login = format!("{PREFIX}/login?back=%2Fqueues");
    assert_eq!(asked.headers()["location"], login.as_str());
    let fields = [("token", "a long secret"), ("back", "/queues")];
    let sent = console.post(&format!("{PREFIX}/login"), &fields).await;
    assert_eq!(
        sent.headers()["location"],
        format!("{PREFIX}/queues").as_str()
    );
    let cookie = sent.headers()["set-cookie"].to_str().unwrap();
    assert!(cookie.contains(&format!("; Path={PREFIX}/;")), "{cookie}");
    for (path, expected) in [
        ("/queues", 401),
        ("/tools/posthaste/queues", 401),
        ("/login", 200),
    ] {
        assert_eq!(
            console.get(path).await.status().as_u16(),
            expected,
            "{path}"
        );
    }
}
