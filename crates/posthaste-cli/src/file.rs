//! posthaste.toml: routes, synced tables, captures, transactions over documents.

mod capture;

use std::collections::BTreeMap;
use std::io;
use std::path::Path;

use anyhow::{Context as _, anyhow, bail};
use posthaste_capture::Capture;
use posthaste_relay::Route;
use posthaste_sync::{IndexKind, Synced};
use serde_json::{Map, Value};

use crate::{failure, variables};

/// The default file.
pub(crate) const FILE: &str = "posthaste.toml";

/// The table of transactions over documents.
pub(crate) const TWO_PHASE: &str = "two_phase";
pub(crate) const CONSOLE: &str = "console";
/// The table of the supervisor of long transactions.
pub(crate) const TXWATCH: &str = "txwatch";
pub(crate) const SITE: &str = "site";
pub(crate) const OBSERVE: &str = "observe";

/// Indexes that are crates of their own.
#[cfg(feature = "tantivy")]
const INDEXES: &[&dyn IndexKind] = &[&posthaste_tantivy::Folders];
#[cfg(not(feature = "tantivy"))]
const INDEXES: &[&dyn IndexKind] = &[];

/// Settings of a route in which `${NAME}` stands for a variable of the environment; elsewhere
/// braces are places of templates.
const OF_ROUTES: [&str; 4] = ["to", "secrets", "credentials", "settings"];
/// The same of a synced table.
const OF_TABLES: [&str; 2] = ["index", "api_key"];

/// What a file says.
#[derive(Debug, Default)]
pub(crate) struct File {
    pub(crate) routes: Vec<Route>,
    pub(crate) tables: Vec<Synced>,
    pub(crate) captures: Vec<Capture>,
}

/// Which sections a command is about: those of others need be neither right nor have their secrets
/// in its environment.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Wanted<'a> {
    All,
    Tables,
    Captures,
    /// These; all, where none is named.
    Routes(&'a [String]),
}

impl Wanted<'_> {
    fn route(self, name: &str) -> bool {
        match self {
            Self::All => true,
            Self::Tables | Self::Captures => false,
            Self::Routes(named) => named.is_empty() || named.iter().any(|one| one == name),
        }
    }

    fn tables(self) -> bool {
        matches!(self, Self::All | Self::Tables)
    }

    fn captures(self) -> bool {
        matches!(self, Self::All | Self::Captures)
    }
}

/// What this file says, if it is there.
pub(crate) fn read(file: &Path, wanted: Wanted<'_>) -> anyhow::Result<Option<File>> {
    let Some(text) = text_of(file)? else {
        return Ok(None);
    };
    parse(&text, wanted)
        .map(Some)
        .with_context(|| file.display().to_string())
}

fn text_of(file: &Path) -> anyhow::Result<Option<String>> {
    match std::fs::read_to_string(file) {
        Ok(text) => Ok(Some(text)),
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(None),
        Err(error) => Err(anyhow!("{}: {}", file.display(), failure::reason(&error))),
    }
}

/// One table of the file, with variables of the environment in the place of `${NAME}`.
pub(crate) fn table(file: &Path, name: &str) -> anyhow::Result<Option<Settings>> {
    let Some(text) = text_of(file)? else {
        return Ok(None);
    };
    let read = || match parsed(&text)?.remove(name) {
        None => Ok(None),
        Some(Value::Object(settings)) => {
            let mut settings: Settings = settings.into_iter().collect();
            for (setting, value) in &mut settings {
                fill(value).with_context(|| format!("{name}: {setting}"))?;
            }
            Ok(Some(settings))
        }
        Some(_) => bail!("{name}: must be a table"),
    };
    read().with_context(|| file.display().to_string())
}

fn parsed(text: &str) -> anyhow::Result<Map<String, Value>> {
    // What the parser prints quotes the line, which may hold a secret.
    let file: toml::Table = toml::from_str(text).map_err(|error| {
        let line = error
            .span()
            .map_or(0, |span| text[..span.start].lines().count().max(1));
        anyhow!("line {line}: {}", error.message())
    })?;
    match serde_json::to_value(file)? {
        Value::Object(file) => Ok(file),
        _ => bail!("is not a table"),
    }
}

pub(crate) fn parse(text: &str, wanted: Wanted<'_>) -> anyhow::Result<File> {
    let mut file = parsed(text)?;
    // Read by the commands that they are for.
    for other in [TWO_PHASE, CONSOLE, TXWATCH, OBSERVE, SITE] {
        file.remove(other);
    }
    let routes = tables(&mut file, "route")?;
    let synced = tables(&mut file, "sync")?;
    let captures = tables(&mut file, "capture")?;
    if let Some(unknown) = file.keys().next() {
        bail!(
            "{unknown}: is not a section; known are [route.<name>], [sync.<name>], \
             [capture.<name>], [{TWO_PHASE}], [{CONSOLE}], [{OBSERVE}], [{SITE}] and [{TXWATCH}]"
        );
    }
    let mut read = File::default();
    require_routes(&routes, wanted)?;
    let described = routes.clone();
    for (name, mut settings) in routes.into_iter().filter(|(name, _)| wanted.route(name)) {
        fill_in("route", &name, &mut settings, &OF_ROUTES)?;
        read.routes.push(Route::read(&name, &settings)?);
    }
    for (name, mut settings) in synced.into_iter().filter(|_| wanted.tables()) {
        fill_in("sync", &name, &mut settings, &OF_TABLES)?;
        let table = Synced::read_with(&name, &settings, INDEXES)?;
        // Each would take the other's documents for orphans.
        let mut known = read.tables.iter();
        if let Some(other) = known.find(|other| other.shares_index_with(&table)) {
            let other = other.name();
            bail!("syncs {other} and {name} have the same index. Give each one of its own.");
        }
        read.tables.push(table);
    }
    for (name, settings) in captures.into_iter().filter(|_| wanted.captures()) {
        let route = |named: &str| route_of(&described, named);
        read.captures.push(capture::read(&name, settings, route)?);
    }
    Ok(read)
}

/// The route that a capture sends by.
fn route_of(routes: &[(String, Settings)], named: &str) -> anyhow::Result<Option<Route>> {
    let Some((name, settings)) = routes.iter().find(|(name, _)| name == named) else {
        return Ok(None);
    };
    let mut settings = settings.clone();
    fill_in("route", name, &mut settings, &OF_ROUTES)?;
    Ok(Some(Route::read(name, &settings)?))
}

/// Those that are named are there, and each has a queue of its own, also of those that are not
/// wanted.
fn require_routes(routes: &[(String, Settings)], wanted: Wanted<'_>) -> anyhow::Result<()> {
    let mut queues: BTreeMap<&str, &str> = BTreeMap::new();
    for (name, settings) in routes {
        let queue = settings
            .get("queue")
            .and_then(Value::as_str)
            .unwrap_or(name);
        if let Some(other) = queues.insert(queue, name) {
            bail!(
                "routes {other} and {name} both relay the queue {queue}. Give each a queue of its \
                 own."
            );
        }
    }
    let names: Vec<&str> = routes.iter().map(|(name, _)| &**name).collect();
    let Wanted::Routes(named) = wanted else {
        return Ok(());
    };
    match named.iter().find(|one| !names.contains(&&***one)) {
        Some(unknown) if !names.is_empty() => {
            bail!(
                "no route is named {unknown}; the file has {}",
                names.join(", ")
            )
        }
        _ => Ok(()),
    }
}

pub(crate) type Settings = BTreeMap<String, Value>;

/// The tables below this one.
fn tables(file: &mut Map<String, Value>, kind: &str) -> anyhow::Result<Vec<(String, Settings)>> {
    let all = match file.remove(kind) {
        None => return Ok(Vec::new()),
        Some(Value::Object(all)) => all,
        Some(_) => bail!("{kind}: must be tables. Write [{kind}.<name>]."),
    };
    all.into_iter()
        .map(|(name, settings)| match settings {
            Value::Object(settings) => Ok((name, settings.into_iter().collect())),
            _ => bail!("{kind}.{name}: must be a table"),
        })
        .collect()
}

/// Puts variables into these settings and keeps what is secret out of everything that is printed.
fn fill_in(kind: &str, name: &str, settings: &mut Settings, which: &[&str]) -> anyhow::Result<()> {
    for setting in which {
        if let Some(value) = settings.get_mut(*setting) {
            fill(value).with_context(|| format!("{kind} {name}: {setting}"))?;
            hide(setting, value);
        }
    }
    Ok(())
}

/// Puts variables of the environment where `${NAME}` stands.
fn fill(value: &mut Value) -> anyhow::Result<()> {
    match value {
        Value::String(text) => {
            let filled = variables::filled(text, |name| std::env::var(name).ok())?;
            filled.secrets.iter().for_each(|one| failure::conceal(one));
            *text = filled.text;
        }
        Value::Array(list) => list.iter_mut().try_for_each(fill)?,
        Value::Object(table) => table.values_mut().try_for_each(fill)?,
        _ => {}
    }
    Ok(())
}

/// Keeps what is secret out of everything that is printed.
fn hide(setting: &str, value: &Value) {
    match value {
        Value::Array(list) => list.iter().for_each(|one| hide(setting, one)),
        Value::Object(table) => table
            .iter()
            .filter(|(name, _)| name.contains("password") || name.contains("secret"))
            .for_each(|(name, value)| hide(name, value)),
        Value::String(text) if setting == "to" || setting == "index" => {
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
    use super::{File, Wanted, password_of};

    fn parse(text: &str) -> anyhow::Result<File> {
        super::parse(text, Wanted::All)
    }

    #[test]
    fn a_password_is_found_in_an_address() {
        let password = password_of("sidekiq+rediss://u:p@w@h:1/0?a=b:c@d");
        assert_eq!(password, Some("p@w"));
        assert_eq!(password_of("redis://h:1/0"), None);
        assert_eq!(password_of("stdout:"), None);
    }

    #[test]
    fn reads_all_routes_of_a_file() {
        let routes = parse(
            "[sync.s]\nindex = \"postgres:\"\n[route.a]\nto = \"stdout:\"\n[route.b]\n\
             queue = \"q\"\nto = \"stdout:\"\nheaders = {x = \"{name}\"}\n",
        );
        let routes = routes.unwrap().routes;
        let names: Vec<_> = routes.iter().map(|one| (one.name(), one.queue())).collect();
        assert_eq!(names, [("a", "a"), ("b", "q")]);
    }

    #[test]
    fn unrelated_tables_may_be_wrong_or_missing() {
        let file = "[route.a]\nto = 'stdout:'\n[route.b]\nto = '${POSTHASTE_IS_NOT_THERE}'\n\
                    [sync.s]\nindex = 'postgres:'\napi_key = '${POSTHASTE_IS_NOT_THERE}'";
        let of = |wanted: Wanted<'_>| super::parse(file, wanted);
        let a = of(Wanted::Routes(&["a".to_owned()])).unwrap();
        assert_eq!((a.routes.len(), a.tables.len()), (1, 0));
        for wanted in [Wanted::All, Wanted::Tables, Wanted::Routes(&[])] {
            let error = format!("{:#}", of(wanted).unwrap_err());
            assert!(error.contains("POSTHASTE_IS_NOT_THERE"), "{error}");
        }
        let error = of(Wanted::Routes(&["c".to_owned()])).unwrap_err();
        assert_eq!(error.to_string(), "no route is named c; the file has a, b");
        let only = super::parse(
            "[route.b]\nto = '${NOT}'\n[sync.s]\nindex = 'postgres:'",
            Wanted::Tables,
        );
        assert_eq!(only.unwrap().tables.len(), 1);
    }

    #[test]
    fn a_webhook_is_signed_and_reaches_what_it_may() {
        let _ = rustls::crypto::ring::default_provider().install_default();
        let route = |more: &str| parse(&format!("[route.a]\nto = 'https://h.example/x'\n{more}"));
        let more = "secrets = ['whsec_AAECAwQFBgcICQoLDA0ODxAREhMUFRYXGBkaGxwdHh8=']\n\
                    networks = ['10.0.0.0/8']\nrequest_time_limit = '5s'\nrequests = 9\n\
                    again_on_client_errors = true";
        assert_eq!(route(more).unwrap().routes[0].name(), "a");
        let error = format!("{:#}", route("secrets = ['geheim']").unwrap_err());
        assert!(error.contains("route a: secrets: each must be"), "{error}");
        assert!(!error.contains("geheim"), "{error}");
    }

    #[test]
    fn rejects_two_syncs_of_one_index_in_any_spelling() {
        let both = |a: &str, b: &str| {
            let file = format!("[sync.a]\nindex = '{a}'\n[sync.b]\nindex = '{b}'");
            parse(&file).map(|file| file.tables.len())
        };
        let mut apart = vec![
            ("postgres:", "postgres:"),
            ("postgres:", "postgres:c"),
            ("postgres://h/search", "postgres://h/search"),
            ("postgres:b", "postgres://h/b"),
            ("https://h:9200", "https://h:9200"),
            ("https://h:9200/c", "https://h:9201/c"),
            ("http://h:9200/c", "http://i:9200/c"),
        ];
        let mut same = vec![
            ("postgres:", "postgres:a"),
            ("postgres:b", "postgres:"),
            ("postgres:c", "postgres:c"),
            ("https://h", "https://h/a"),
            ("https://h/c", "https://h:443/c/"),
            ("https://one:geheim@h/c", "https://other:geheim@H/c"),
        ];
        if cfg!(feature = "tantivy") {
            apart.push(("tantivy:c", "tantivy:d"));
            same.push(("tantivy:///c", "tantivy:/c/"));
        }
        for (a, b) in apart {
            assert_eq!(both(a, b).unwrap(), 2, "{a} {b}");
        }
        for (a, b) in same {
            let error = format!("{:#}", both(a, b).unwrap_err());
            let part = "syncs a and b have the same index";
            assert!(error.contains(part) && !error.contains("geheim"), "{error}");
        }
    }

    #[test]
    fn file_errors_name_the_key_and_quote_no_value() {
        for (text, expected) in [
            ("[routes.a]", "routes: is not a section"),
            ("route = 'geheim'", "route: must be tables"),
            ("sync = 'geheim'", "sync: must be tables"),
            ("[sync]\na = 'geheim'", "sync.a: must be a table"),
            (
                "[sync.a]\nindex = 'redis://:geheim@h'",
                "sync a: index: must begin with",
            ),
            (
                "[sync.a]\nindex = 'postgres:'\ncolour = 'geheim'",
                "sync a: colour: is not a setting of a synced table in Postgres",
            ),
            ("[route]\na = 'geheim'", "route.a: must be a table"),
            ("[route.a]\nto = 'geheim", "line 2: "),
            ("[route.a]\nto = 'geheim'", "route a: to: must begin with"),
            (
                "[route.a]\nto = 'stdout:'\nx = 'geheim'",
                "route a: x: is not a setting",
            ),
            (
                "[route.a]\nto = 'stdout:'\n[route.b]\nto = 'stdout:'\nqueue = 'a'",
                "routes a and b both relay the queue a",
            ),
            ("[route.a]\nto = '${POSTHASTE_IS_NOT_THERE}'", "route a: to"),
            ("[route.a]\nto=1979-05-27", "route a: to: must be a string"),
        ] {
            let error = format!("{:#}", parse(text).unwrap_err());
            assert!(error.contains(expected), "{text}: {error}");
            assert!(!error.contains("geheim"), "{error}");
        }
    }
}
