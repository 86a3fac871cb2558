//! A session of ChromeDriver over the WebDriver protocol. It is written by hand: the existing
//! libraries enable serde_json's key order for all programs of the workspace, or have a licence of
//! another kind.

use anyhow::{Context as _, bail};
use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use reqwest::{Client, Method};
use serde_json::{Value, json};

/// The key of an element's id in WebDriver's JSON.
const ELEMENT: &str = "element-6066-11e4-a52e-4f735466cecf";

/// A session, which exists in the browser until it is ended.
pub struct Driver {
    http: Client,
    /// The URL of the session.
    session: String,
}

/// An element of the current page.
pub struct Element<'a> {
    driver: &'a Driver,
    id: String,
}

impl Driver {
    pub async fn open(url: &str, wanted: Value) -> anyhow::Result<Self> {
        let http = Client::builder().no_proxy().build()?;
        let mut driver = Self {
            http,
            session: format!("{url}/session"),
        };
        let wanted = json!({ "capabilities": { "alwaysMatch": wanted } });
        let opened = driver.post("", wanted).await?;
        let id = opened["sessionId"].as_str().context("no session")?;
        driver.session = format!("{}/{id}", driver.session);
        Ok(driver)
    }

    pub async fn end(self) -> anyhow::Result<()> {
        self.ask(Method::DELETE, "", None).await.map(drop)
    }

    /// Opens a page, and waits until it has loaded.
    pub async fn go(&self, address: &str) -> anyhow::Result<()> {
        self.post("/url", json!({ "url": address })).await.map(drop)
    }

    /// Runs a script, and returns its result.
    pub async fn run(&self, script: &str) -> anyhow::Result<Value> {
        let script = json!({ "script": script, "args": [] });
        self.post("/execute/sync", script).await
    }

    /// Runs a script, and returns the value that it passes to its last argument, a callback.
    pub async fn run_until_done(&self, script: &str, given: Vec<Value>) -> anyhow::Result<Value> {
        let script = json!({ "script": script, "args": given });
        self.post("/execute/async", script).await
    }

    /// Sends a command of the Chrome DevTools Protocol.
    pub async fn tell(&self, method: &str, parameters: Value) -> anyhow::Result<()> {
        let command = json!({ "cmd": method, "params": parameters });
        self.post("/goog/cdp/execute", command).await.map(drop)
    }

    /// Returns the entries of the browser's log since the last call, as (level, message).
    pub async fn log(&self) -> anyhow::Result<Vec<(String, String)>> {
        let log = self.post("/se/log", json!({ "type": "browser" })).await?;
        let entries = log.as_array().context("no log")?.iter();
        let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
        Ok(entries
            .map(|entry| (text(&entry["level"]), text(&entry["message"])))
            .collect())
    }

    /// Returns a screenshot of the window, as PNG.
    pub async fn picture(&self) -> anyhow::Result<Vec<u8>> {
        let picture = self.ask(Method::GET, "/screenshot", None).await?;
        Ok(STANDARD.decode(picture.as_str().context("no picture")?)?)
    }

    /// Returns the first element that matches a selector.
    pub async fn find(&self, css: &str) -> anyhow::Result<Element<'_>> {
        let found = self.post("/element", selector(css)).await?;
        self.element(&found)
    }

    /// Returns how many elements match a selector.
    pub async fn count(&self, css: &str) -> anyhow::Result<usize> {
        let found = self.post("/elements", selector(css)).await?;
        Ok(found.as_array().context("no list of elements")?.len())
    }

    /// Returns the element that has the focus.
    pub async fn active(&self) -> anyhow::Result<Element<'_>> {
        let found = self.ask(Method::GET, "/element/active", None).await?;
        self.element(&found)
    }

    fn element(&self, found: &Value) -> anyhow::Result<Element<'_>> {
        let id = found[ELEMENT].as_str().context("no element")?.to_owned();
        Ok(Element { driver: self, id })
    }

    async fn post(&self, path: &str, body: Value) -> anyhow::Result<Value> {
        self.ask(Method::POST, path, Some(body)).await
    }

    async fn ask(&self, method: Method, path: &str, body: Option<Value>) -> anyhow::Result<Value> {
        let mut request = self.http.request(method, format!("{}{path}", self.session));
        if let Some(body) = body {
            request = request
                .header("content-type", "application/json")
                .body(body.to_string());
        }
        let answer = request.send().await?;
        let is_well = answer.status().is_success();
        let mut answer: Value = serde_json::from_str(&answer.text().await?)?;
        let value = answer["value"].take();
        if !is_well {
            bail!("{path}: {}: {}", value["error"], value["message"]);
        }
        Ok(value)
    }
}

impl Element<'_> {
    /// Returns its visible text.
    pub async fn text(&self) -> anyhow::Result<String> {
        let path = format!("/element/{}/text", self.id);
        let text = self.driver.ask(Method::GET, &path, None).await?;
        Ok(text.as_str().context("no text")?.to_owned())
    }

    /// Clicks it as a user would.
    pub async fn click(&self) -> anyhow::Result<()> {
        self.act("click", json!({})).await
    }

    pub async fn clear(&self) -> anyhow::Result<()> {
        self.act("clear", json!({})).await
    }

    pub async fn write(&self, keys: &str) -> anyhow::Result<()> {
        self.act("value", json!({ "text": keys })).await
    }

    async fn act(&self, what: &str, how: Value) -> anyhow::Result<()> {
        let path = format!("/element/{}/{what}", self.id);
        self.driver.post(&path, how).await.map(drop)
    }
}

fn selector(css: &str) -> Value {
    json!({ "using": "css selector", "value": css })
}
