//! posthaste.toml: the routes by which jobs leave, and the relays that they make.

use std::collections::BTreeMap;
use std::fmt;
use std::io;
use std::path::Path;
use std::time::Duration;

use anyhow::{Context as _, anyhow, bail};
use deadpool_postgres::Pool;
use futures_util::future::try_join_all;
use posthaste::relay::{Relay, Route};
use serde_json::Value;
use tokio_postgres::types::Type;

use crate::connect::Address;
use crate::failure;

/// Where routes are looked for.
pub(crate) const FILE: &str = "posthaste.toml";

/// The table of transactions over documents.
pub(crate) const TRANSACTIONS: &str = "transactions";

/// For rows that jobs refer to, of all routes together.
const CONNECTIONS: usize = 4;

/// Settings in which `${NAME}` stands for a variable of the environment; elsewhere braces are places of templates.
const FROM_ENVIRONMENT: [&str; 5] = ["to", "secret", "secrets", "credentials", "settings"];

/// A route whose relay is at it.
pub(crate) struct Started {
    pub(crate) name: String,
    pub(crate) queue: String,
    pub(crate) label: String,
    pub(crate) relay: Relay,
}

impl fmt::Display for Started {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "route {}: {} to {}", self.name, self.queue, self.label)
    }
}

/// All routes of a file; an error when it is not there.
pub(crate) fn read(file: &Path) -> anyhow::Result<Vec<Route>> {
    match text_of(file)? {
        Some(text) => parse(&text).with_context(|| file.display().to_string()),
        None => bail!(
            "there is no file {}. Write one, with [route.<name>], queue = and to =, or name another with --config.",
            file.display()
        ),
    }
}

/// The routes of the current folder's file, if it has one.
pub(crate) fn of_this_folder() -> anyhow::Result<Vec<Route>> {
    let text = text_of(Path::new(FILE))?;
    text.map_or_else(|| Ok(Vec::new()), |text| parse(&text).context(FILE))
}

/// Begins to take jobs for each of them, all at once: a destination that is silent delays its own route only. Rows that jobs refer to are read in the
/// same database.
pub(crate) async fn start(routes: Vec<Route>, address: &Address) -> anyhow::Result<Vec<Started>> {
    let pool = address.pool(CONNECTIONS)?;
    try_join_all(routes.into_iter().map(|route| start_one(route, &pool))).await
}

async fn start_one(route: Route, pool: &Pool) -> anyhow::Result<Started> {
    let (name, queue) = (route.name().to_owned(), route.queue().to_owned());
    let label = route.label();
    if let Some(how_long) = route.keep() {
        let kept = keep(pool, &queue, how_long).await;
        kept.with_context(|| format!("route {name}: keep"))?;
    }
    let relay = route.relay().database(pool.clone()).start().await;
    let relay = relay.with_context(|| format!("route {name} did not start"))?;
    Ok(Started {
        name,
        queue,
        label,
        relay,
    })
}

/// Has the queue keep its done jobs for so long.
async fn keep(pool: &Pool, queue: &str, how_long: Duration) -> anyhow::Result<()> {
    let how_long = format!("{} s", how_long.as_secs_f64());
    let keep = include_str!("commands/queues/keep.sql");
    let client = pool.get().await?;
    client
        .query_typed(keep, &[(&queue, Type::TEXT), (&how_long, Type::TEXT)])
        .await?;
    Ok(())
}

fn text_of(file: &Path) -> anyhow::Result<Option<String>> {
    match std::fs::read_to_string(file) {
        Ok(text) => Ok(Some(text)),
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(None),
        Err(error) => Err(anyhow!("{}: {}", file.display(), failure::reason(&error))),
    }
}

/// One table of the file, with variables of the environment in the place of `${NAME}`; what is secret in it is printed nowhere.
pub(crate) fn table(file: &Path, name: &str) -> anyhow::Result<Option<BTreeMap<String, Value>>> {
    let Some(text) = text_of(file)? else {
        return Ok(None);
    };
    let read = || match parsed(&text)?.remove(name) {
        None => Ok(None),
        Some(Value::Object(settings)) => {
            let mut settings: BTreeMap<String, Value> = settings.into_iter().collect();
            for (setting, value) in &mut settings {
                fill(value).with_context(|| format!("{name}: {setting}"))?;
            }
            Ok(Some(settings))
        }
        Some(_) => bail!("{name}: must be a table"),
    };
    read().with_context(|| file.display().to_string())
}

fn parsed(text: &str) -> anyhow::Result<serde_json::Map<String, Value>> {
    // What the parser prints quotes the line, which may hold a secret.
    let file: toml::Table = toml::from_str(text).map_err(|error| {
        let line = error
            .span()
            .map_or(0, |span| text[..span.start].lines().count().max(1));
        anyhow!("line {line}: {}", error.message())
    })?;
    match serde_json::to_value(file)? {
        Value::Object(file) => Ok(file),
        _ => bail!("is no table"),
    }
}

fn parse(text: &str) -> anyhow::Result<Vec<Route>> {
    let mut file = parsed(text)?;
    // Read by the command that it is for.
    file.remove(TRANSACTIONS);
    let routes = file.remove("route");
    if let Some(unknown) = file.keys().next() {
        bail!("{unknown}: is not known here; there are [route.<name>] and [{TRANSACTIONS}]");
    }
    let Some(Value::Object(routes)) = routes else {
        bail!("has no route. Write [route.<name>], queue = and to =.");
    };
    let mut read: Vec<Route> = Vec::with_capacity(routes.len());
    for (name, settings) in routes {
        let Value::Object(settings) = settings else {
            bail!("route.{name}: must be a table");
        };
        let mut settings: BTreeMap<String, Value> = settings.into_iter().collect();
        for setting in FROM_ENVIRONMENT {
            if let Some(value) = settings.get_mut(setting) {
                fill(value).with_context(|| format!("route {name}: {setting}"))?;
                hide(setting, value);
            }
        }
        let route = Route::read(&name, &settings)?;
        if let Some(other) = read.iter().find(|other| other.queue() == route.queue()) {
            bail!(
                "routes {} and {name} both relay the queue {}. Give each a queue of its own.",
                other.name(),
                route.queue()
            );
        }
        read.push(route);
    }
    Ok(read)
}

/// Puts variables of the environment where `${NAME}` stands.
fn fill(value: &mut Value) -> anyhow::Result<()> {
    match value {
        Value::String(text) => *text = filled(text, |name| std::env::var(name).ok())?,
        Value::Array(list) => list.iter_mut().try_for_each(fill)?,
        Value::Object(table) => table.values_mut().try_for_each(fill)?,
        _ => {}
    }
    Ok(())
}

fn filled(text: &str, variable: impl Fn(&str) -> Option<String>) -> anyhow::Result<String> {
    let mut filled = String::new();
    let mut rest = text;
    while let Some((before, after)) = rest.split_once("${") {
        let (name, after) = after.split_once('}').context("a ${ without a }")?;
        let value = variable(name);
        filled.push_str(before);
        filled.push_str(&value.with_context(|| format!("there is no variable {name}"))?);
        rest = after;
    }
    filled.push_str(rest);
    Ok(filled)
}

/// Keeps what is secret out of everything that is printed.
fn hide(setting: &str, value: &Value) {
    match value {
        Value::Array(list) => list.iter().for_each(|one| hide(setting, one)),
        Value::Object(table) => table
            .iter()
            .filter(|(name, _)| name.contains("password") || name.contains("secret"))
            .for_each(|(name, value)| hide(name, value)),
        Value::String(text) if setting == "to" => {
            if let Some(password) = password_of(text) {
                failure::conceal(password);
            }
        }
        Value::String(text) => failure::conceal(text),
        _ => {}
    }
}

pub(crate) fn password_of(url: &str) -> Option<&str> {
    let (_, rest) = url.split_once("://")?;
    let authority = rest.split(['/', '?', '#']).next()?;
    let (user, _) = authority.rsplit_once('@')?;
    user.split_once(':').map(|(_, password)| password)
}

#[cfg(test)]
mod tests {
    use super::{filled, parse, password_of};

    #[test]
    fn variables_stand_where_they_are_named() {
        let of = |name: &str| (name == "A").then(|| "x".to_owned());
        assert_eq!(filled("a${A}b${A}$c", of).unwrap(), "axbx$c");
        assert!(filled("${B}", of).unwrap_err().to_string().contains('B'));
        assert!(filled("${A", of).is_err());
    }

    #[test]
    fn a_password_is_found_in_an_address() {
        let password = password_of("sidekiq+rediss://u:p@w@h:1/0?a=b:c@d");
        assert_eq!(password, Some("p@w"));
        assert_eq!(password_of("redis://h:1/0"), None);
        assert_eq!(password_of("stdout:"), None);
    }

    #[test]
    fn a_file_is_its_routes() {
        let routes = parse(
            "[route.a]\nto = \"stdout:\"\n[route.b]\nqueue = \"q\"\nto = \"stdout:\"\nheaders = {x = \"{name}\"}\n",
        );
        let routes = routes.unwrap();
        let names: Vec<_> = routes.iter().map(|one| (one.name(), one.queue())).collect();
        assert_eq!(names, [("a", "a"), ("b", "q")]);
    }

    #[test]
    fn a_webhook_is_signed_and_reaches_what_it_may() {
        let _ = rustls::crypto::ring::default_provider().install_default();
        let route = |more: &str| {
            parse(&format!(
                "[route.a]\nto = 'https://h.example/x'\ntype = 'mail.{{name}}'\n{more}"
            ))
        };
        let more = "secrets = ['whsec_AAECAwQFBgcICQoLDA0ODxAREhMUFRYXGBkaGxwdHh8=']\nnetworks = ['10.0.0.0/8']\nrequest_time_limit = '5s'\nrequests = 9\nagain_on_client_errors = true";
        assert_eq!(route(more).unwrap()[0].name(), "a");
        let error = format!("{:#}", route("secrets = ['geheim']").unwrap_err());
        assert!(error.contains("route a: secrets: each must be"), "{error}");
        assert!(!error.contains("geheim"), "{error}");
    }

    #[test]
    fn what_is_wrong_is_named_and_never_quoted() {
        for (text, said) in [
            ("", "has no route"),
            ("[routes.a]", "routes: is not known here"),
            ("route = 'geheim'", "has no route"),
            ("[route]\na = 'geheim'", "route.a: must be a table"),
            ("[route.a]\nto = 'geheim", "line 2: "),
            ("[route.a]\nto = 'geheim'", "route a: to: must begin with"),
            (
                "[route.a]\nto = 'stdout:'\nx = 'geheim'",
                "route a: x: is no setting",
            ),
            (
                "[route.a]\nto = 'stdout:'\n[route.b]\nto = 'stdout:'\nqueue = 'a'",
                "routes a and b both relay the queue a",
            ),
            ("[route.a]\nto = '${POSTHASTE_IS_NOT_THERE}'", "route a: to"),
            ("[route.a]\nto = 1979-05-27", "route a: to: must be a text"),
        ] {
            let error = format!("{:#}", parse(text).unwrap_err());
            assert!(error.contains(said), "{text}: {error}");
            assert!(!error.contains("geheim"), "{error}");
        }
    }
}
