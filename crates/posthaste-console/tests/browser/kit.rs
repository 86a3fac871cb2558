//! A browser with a page of a console.

use posthaste_testkit::receivers::{self, Browser, Receiver};
use posthaste_testkit::{Sql as _, eventually};
use serde_json::{Value, json};
use tokio_postgres::Client;

use super::driver::{Driver, Element};
use crate::support::{Console, SOON};

/// Runs axe-core, and returns its violations, each with its place and reason.
const AUDIT: &str = include_str!("audit.js");

/// A browser window with a page of a console.
pub struct Window {
    driver: Driver,
    pub base: String,
}

impl Window {
    /// Opens a console in a window; `None` if the machine has no browser, which the ledger records.
    pub async fn open(console: &Console, test: &str) -> Option<Self> {
        Self::before(&console.base, test).await
    }

    pub async fn before(base: &str, test: &str) -> Option<Self> {
        if !receivers::are_here(test, &[Receiver::Browser]) {
            return None;
        }
        let browser = Browser::shared().expect("a browser");
        let wanted = json!({
            "browserName": "chrome",
            "goog:loggingPrefs": { "browser": "ALL" },
            "goog:chromeOptions": browser.options().expect("its options"),
        });
        let driver = Driver::open(&browser.url(), wanted).await;
        let window = Self {
            driver: driver.expect("a session"),
            base: base.to_owned(),
        };
        window.is_wide(1_280, 900).await;
        Some(window)
    }

    /// Closes the window. After a failed test it ends with the process instead: waiting for it
    /// would delay the end of the console, and of the browser.
    pub async fn close(self) {
        self.driver.end().await.expect("the session ends");
    }

    /// Returns the first element that matches, as soon as one exists.
    async fn element(&self, css: &str) -> Element<'_> {
        let mut found = None;
        let what = format!("there is {css}");
        let finds = eventually(SOON, &what, async || {
            found = Some(self.driver.find(css).await?);
            Ok(true)
        });
        if let Err(error) = finds.await {
            panic!("{error:#}");
        }
        found.expect("an element")
    }

    /// Opens a page, and waits until it has loaded.
    pub async fn go(&self, path: &str) {
        let address = format!("{}{path}", self.base);
        self.driver.go(&address).await.expect("a page");
    }

    /// Evaluates an expression in the page.
    pub async fn value(&self, expression: &str) -> Value {
        let script = format!("return {expression};");
        let answer = self.driver.run(&script).await;
        answer.unwrap_or_else(|error| panic!("{expression}: {error:#}"))
    }

    /// Returns the visible text of the first element that matches.
    pub async fn text(&self, css: &str) -> String {
        let element = self.element(css).await;
        element.text().await.expect("its text")
    }

    pub async fn count(&self, css: &str) -> usize {
        self.driver.count(css).await.expect("a page")
    }

    /// Waits until an expression is true in the page, which may change.
    pub async fn until(&self, what: &str, expression: &str) {
        // The page itself polls for a second, which costs less than many requests.
        let script = format!(
            "const done = arguments[0]; const end = Date.now() + 1000; \
             const poll = () => ({expression}) ? done(true) \
               : Date.now() > end ? done(false) : setTimeout(poll, 20); poll();"
        );
        let holds = eventually(SOON, what, async || {
            let answer = self.driver.run_until_done(&script, Vec::new()).await?;
            Ok(answer == Value::Bool(true))
        });
        self.expect(holds.await).await;
    }

    /// Waits until the page contains this text.
    pub async fn until_it_says(&self, text: &str) {
        let text = Value::from(text);
        let says = format!("document.body.innerText.includes({text})");
        self.until(&format!("it says {text}"), &says).await;
    }

    /// Clicks the first element that matches as a user would: it must be visible and not covered.
    pub async fn click(&self, css: &str) {
        let element = self.element(css).await;
        if let Err(error) = element.click().await {
            panic!("{css} cannot be clicked: {error:#}");
        }
    }

    /// Replaces the text of a field.
    pub async fn fill(&self, css: &str, text: &str) {
        let field = self.element(css).await;
        field.clear().await.expect("an empty field");
        field.write(text).await.expect("a full field");
    }

    /// Presses keys at the focus, once the page has loaded.
    pub async fn press(&self, keys: &str) {
        self.until("it has loaded", "document.readyState === 'complete'")
            .await;
        let focus = self.driver.active().await.expect("a focus");
        focus.write(keys).await.expect("keys");
    }

    pub async fn is_wide(&self, width: u32, height: u32) {
        let size = json!({
            "width": width, "height": height, "deviceScaleFactor": 1, "mobile": false,
        });
        self.tell("Emulation.setDeviceMetricsOverride", size).await;
    }

    pub async fn is_dark(&self, dark: bool) {
        let scheme = if dark { "dark" } else { "light" };
        let features = json!([
            { "name": "prefers-color-scheme", "value": scheme },
            { "name": "prefers-reduced-motion", "value": "reduce" },
        ]);
        self.tell(
            "Emulation.setEmulatedMedia",
            json!({ "features": features }),
        )
        .await;
    }

    /// Disables scripts from the next page on.
    pub async fn has_no_script(&self) {
        let off = json!({ "value": true });
        self.tell("Emulation.setScriptExecutionDisabled", off).await;
    }

    async fn tell(&self, method: &str, parameters: Value) {
        let answer = self.driver.tell(method, parameters).await;
        answer.unwrap_or_else(|error| panic!("{method}: {error:#}"));
    }

    /// Returns the browser's complaints since the last call: errors of scripts, violations of the
    /// page's policy, and failed loads.
    pub async fn complaints(&self) -> Vec<String> {
        let log = self.driver.log().await.expect("a log").into_iter();
        log.filter(|(level, _)| ["SEVERE", "WARNING"].contains(&level.as_str()))
            .map(|(_, message)| message)
            .collect()
    }

    /// Returns the accessibility violations of the page, by these rules of axe-core, or by all.
    pub async fn barriers(&self, rules: &[&str]) -> Vec<String> {
        let has_axe = self.value("typeof axe").await != "undefined";
        if !has_axe {
            let axe = Browser::axe_source().expect("axe-core");
            self.driver.run(&axe).await.expect("axe-core");
        }
        let found = self.driver.run_until_done(AUDIT, vec![json!(rules)]).await;
        lines(&found.expect("an audit"))
    }

    /// Returns the elements that extend beyond the right edge of the page.
    pub async fn stands_out(&self) -> Vec<String> {
        let found = self.driver.run(include_str!("stands_out.js")).await;
        lines(&found.expect("widths"))
    }

    /// Waits until a query returns true.
    pub async fn until_true(&self, client: &Client, sql: &str) {
        self.expect(until_true(client, sql).await).await;
    }

    /// Waits until a job is in this state.
    pub async fn until_state(&self, client: &Client, id: i64, state: &str) {
        self.expect(until_state(client, id, state).await).await;
    }

    /// Fails with the page's text if the expected state was not reached.
    async fn expect(&self, came: anyhow::Result<()>) {
        if let Err(error) = came {
            let at = self.value("location.href").await;
            panic!("{error:#}: at {at}: {}", self.text("body").await);
        }
    }

    pub async fn picture(&self) -> Vec<u8> {
        self.driver.picture().await.expect("a picture")
    }
}

/// Converts a list of strings from a script.
fn lines(list: &Value) -> Vec<String> {
    let list = list.as_array().expect("a list").iter();
    list.map(|one| one.as_str().expect("a text").to_owned())
        .collect()
}

/// Waits until a query returns true.
pub async fn until_true(client: &Client, sql: &str) -> anyhow::Result<()> {
    eventually(SOON, sql, async || client.one::<bool>(sql).await).await
}

/// Waits until a job is in this state.
pub async fn until_state(client: &Client, id: i64, state: &str) -> anyhow::Result<()> {
    let sql = format!("SELECT coalesce(max(state) = '{state}', false) FROM posthaste.find({id})");
    until_true(client, &sql).await
}
