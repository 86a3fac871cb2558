//! A browser before a console.

use posthaste_testkit::eventually;
use posthaste_testkit::receivers::{self, Browser, Receiver};
use serde_json::{Value, json};
use thirtyfour::{By, Capabilities, WebDriver, WebElement};
use tokio_postgres::Client;

use crate::support::{Console, SOON};

/// What axe-core is asked for: what it found, each with where and why.
const AUDIT: &str = include_str!("audit.js");

/// One window of a browser, which is before a console.
pub struct Window {
    // None once it is closed.
    driver: Option<WebDriver>,
    pub base: String,
}

impl Window {
    /// Opens one before a console; none where the machine has no browser, which the ledger says.
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
        let wanted = wanted.as_object().cloned().expect("capabilities");
        let driver = WebDriver::new(browser.url(), Capabilities::from(wanted)).await;
        let window = Self {
            driver: Some(driver.expect("a session")),
            base: base.to_owned(),
        };
        window.is_wide(1_280, 900).await;
        Some(window)
    }

    pub async fn close(mut self) {
        let driver = self.driver.take().expect("a session");
        driver.quit().await.expect("the session ends");
    }

    fn driver(&self) -> &WebDriver {
        self.driver.as_ref().expect("a session")
    }

    /// The first that is so, as soon as there is one.
    async fn element(&self, css: &str) -> WebElement {
        let mut found = None;
        let what = format!("there is {css}");
        let finds = eventually(SOON, &what, async || {
            found = Some(self.driver().find(By::Css(css)).await?);
            Ok(true)
        });
        if let Err(error) = finds.await {
            panic!("{error:#}");
        }
        found.expect("an element")
    }

    /// Goes to a page, and waits until it has loaded.
    pub async fn go(&self, path: &str) {
        let address = format!("{}{path}", self.base);
        self.driver().goto(address).await.expect("a page");
    }

    /// What an expression is in the page.
    pub async fn value(&self, expression: &str) -> Value {
        let script = format!("return {expression};");
        let answer = self.driver().execute(script, Vec::new()).await;
        answer
            .unwrap_or_else(|error| panic!("{expression}: {error}"))
            .json()
            .clone()
    }

    /// All that can be read on the page, or in the first element that is so.
    pub async fn text(&self, css: &str) -> String {
        let element = self.element(css).await;
        element.text().await.expect("its text")
    }

    pub async fn count(&self, css: &str) -> usize {
        let all = self.driver().find_all(By::Css(css)).await;
        all.expect("a page").len()
    }

    /// Waits until an expression holds in the page, whichever page that is by then.
    pub async fn until(&self, what: &str, expression: &str) {
        // The page looks by itself for a second, which costs less than to ask it again and again.
        let script = format!(
            "const done = arguments[0]; const end = Date.now() + 1000; \
             const look = () => ({expression}) ? done(true) \
               : Date.now() > end ? done(false) : setTimeout(look, 20); look();"
        );
        let holds = eventually(SOON, what, async || {
            let answer = self
                .driver()
                .execute_async(script.clone(), Vec::new())
                .await?;
            Ok(answer.json() == &Value::Bool(true))
        });
        self.told(holds.await).await;
    }

    /// Waits until the page says this.
    pub async fn until_it_says(&self, text: &str) {
        let text = Value::from(text);
        let says = format!("document.body.innerText.includes({text})");
        self.until(&format!("it says {text}"), &says).await;
    }

    /// Clicks the first that is so, as a hand would: it must be seen, and nothing before it.
    pub async fn click(&self, css: &str) {
        let element = self.element(css).await;
        if let Err(error) = element.click().await {
            panic!("{css} cannot be clicked: {error}");
        }
    }

    /// Writes into a field what it then holds.
    pub async fn fill(&self, css: &str, text: &str) {
        let field = self.element(css).await;
        field.clear().await.expect("an empty field");
        field.send_keys(text).await.expect("a full field");
    }

    /// Presses keys where the focus is, once the page listens.
    pub async fn press(&self, keys: &str) {
        self.until("it has loaded", "document.readyState === 'complete'")
            .await;
        let focus = self.driver().active_element().await.expect("a focus");
        focus.send_keys(keys).await.expect("keys");
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

    /// From the next page on none of its scripts is run.
    pub async fn has_no_script(&self) {
        let off = json!({ "value": true });
        self.tell("Emulation.setScriptExecutionDisabled", off).await;
    }

    async fn tell(&self, method: &str, parameters: Value) {
        let answer = self.driver().cdp().send_raw(method, parameters).await;
        answer.unwrap_or_else(|error| panic!("{method}: {error}"));
    }

    /// What the browser complained of since it was asked before: faults of scripts, what the
    /// policy of the page forbids, what could not be loaded.
    pub async fn complaints(&self) -> Vec<String> {
        let log = self.driver().browser_log().await.expect("a log");
        let grave = log
            .into_iter()
            .filter(|entry| ["SEVERE", "WARNING"].contains(&entry.level.as_str()));
        grave.map(|entry| entry.message).collect()
    }

    /// What keeps people from using the page, by these rules of axe-core, or by all.
    pub async fn barriers(&self, rules: &[&str]) -> Vec<String> {
        let has_axe = self.value("typeof axe").await != "undefined";
        if !has_axe {
            let axe = Browser::axe().expect("axe-core");
            self.driver()
                .execute(axe, Vec::new())
                .await
                .expect("axe-core");
        }
        let found = self.driver().execute_async(AUDIT, vec![json!(rules)]).await;
        found.expect("an audit").convert().expect("a list")
    }

    /// Whether something stands out at the right of the page; and what.
    pub async fn stands_out(&self) -> Vec<String> {
        let found = self
            .driver()
            .execute(include_str!("stands_out.js"), Vec::new())
            .await;
        found.expect("widths").convert().expect("a list")
    }

    /// Waits until a query says true.
    pub async fn until_true(&self, client: &Client, sql: &str) {
        self.told(until_true(client, sql).await).await;
    }

    /// Waits until a job is in this state.
    pub async fn until_state(&self, client: &Client, id: i64, state: &str) {
        self.told(until_state(client, id, state).await).await;
    }

    /// Fails with what the page says where something did not come.
    async fn told(&self, came: anyhow::Result<()>) {
        if let Err(error) = came {
            let at = self.value("location.href").await;
            panic!("{error:#}: at {at}: {}", self.text("body").await);
        }
    }

    pub async fn picture(&self) -> Vec<u8> {
        self.driver().screenshot_as_png().await.expect("a picture")
    }
}

impl Drop for Window {
    /// A test that failed leaves its browser to the end of its process: to wait for it here would
    /// hold up the console, and with it the browser.
    fn drop(&mut self) {
        if let Some(driver) = self.driver.take() {
            let _ = driver.leak();
        }
    }
}

/// Waits until a query says true.
pub async fn until_true(client: &Client, sql: &str) -> anyhow::Result<()> {
    eventually(SOON, sql, async || {
        Ok(client.query_one(sql, &[]).await?.get::<_, bool>(0))
    })
    .await
}

/// Waits until a job is in this state.
pub async fn until_state(client: &Client, id: i64, state: &str) -> anyhow::Result<()> {
    let sql = format!("SELECT coalesce(max(state) = '{state}', false) FROM posthaste.find({id})");
    until_true(client, &sql).await
}
