//! posthaste.toml: routes, synced tables, captures, and sections of single commands.

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
pub(crate) const DEFAULT_FILE: &str = "posthaste.toml";

/// The section of two-phase commits over documents.
pub(crate) const TWO_PHASE_SECTION: &str = "two_phase";
pub(crate) const CONSOLE_SECTION: &str = "console";
/// The section of the supervisor of long transactions.
pub(crate) const TXWATCH_SECTION: &str = "txwatch";
pub(crate) const SITE_SECTION: &str = "site";
pub(crate) const OBSERVE_SECTION: &str = "observe";

/// Index kinds that are separate crates.
#[cfg(feature = "tantivy")]
const INDEX_KINDS: &[&dyn IndexKind] = &[&posthaste_tantivy::Folders];
#[cfg(not(feature = "tantivy"))]
const INDEX_KINDS: &[&dyn IndexKind] = &[];

/// Settings of a route in which `${NAME}` is replaced by an environment variable. Braces in other
/// settings belong to templates.
const ROUTE_SETTINGS_WITH_VARIABLES: [&str; 4] = ["to", "secrets", "credentials", "settings"];
/// Settings of a synced table in which `${NAME}` is replaced.
const TABLE_SETTINGS_WITH_VARIABLES: [&str; 2] = ["index", "api_key"];

/// The routes, synced tables and captures of a file.
#[derive(Debug, Default)]
pub(crate) struct File {
    pub(crate) routes: Vec<Route>,
    pub(crate) tables: Vec<Synced>,
    pub(crate) captures: Vec<Capture>,
}

/// The sections that a command needs. Other sections may be invalid, and their environment
/// variables may be unset.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum NeededSections<'a> {
    All,
    Tables,
    Captures,
    /// The named routes; all routes if none is named.
    Routes(&'a [String]),
}

impl NeededSections<'_> {
    fn needs_route(self, name: &str) -> bool {
        match self {
            Self::All => true,
            Self::Tables | Self::Captures => false,
            Self::Routes(named) => named.is_empty() || named.iter().any(|one| one == name),
        }
    }

    fn needs_tables(self) -> bool {
        matches!(self, Self::All | Self::Tables)
    }

    fn needs_captures(self) -> bool {
        matches!(self, Self::All | Self::Captures)
    }
}

/// Reads a file, `None` if it does not exist.
pub(crate) fn read(file: &Path, wanted: NeededSections<'_>) -> anyhow::Result<Option<File>> {
    let Some(text) = read_text(file)? else {
        return Ok(None);
    };
    parse_sections(&text, wanted)
        .map(Some)
        .with_context(|| file.display().to_string())
}

fn read_text(file: &Path) -> anyhow::Result<Option<String>> {
    match std::fs::read_to_string(file) {
        Ok(text) => Ok(Some(text)),
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(None),
        Err(error) => Err(anyhow!(
            "{}: {}",
            file.display(),
            failure::io_error_text(&error)
        )),
    }
}

/// Reads one section of the file and replaces `${NAME}` by environment variables.
pub(crate) fn read_section(file: &Path, name: &str) -> anyhow::Result<Option<Settings>> {
    let Some(text) = read_text(file)? else {
        return Ok(None);
    };
    let read = || match parse_toml(&text)?.remove(name) {
        None => Ok(None),
        Some(Value::Object(settings)) => {
            let mut settings: Settings = settings.into_iter().collect();
            for (setting, value) in &mut settings {
                fill_in_value(value).with_context(|| format!("{name}: {setting}"))?;
            }
            Ok(Some(settings))
        }
        Some(_) => bail!("{name}: must be a table"),
    };
    read().with_context(|| file.display().to_string())
}

fn parse_toml(text: &str) -> anyhow::Result<Map<String, Value>> {
    // The parser's own output quotes the line, which may contain a secret.
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

pub(crate) fn parse_sections(text: &str, wanted: NeededSections<'_>) -> anyhow::Result<File> {
    let mut file = parse_toml(text)?;
    // Sections that single commands read.
    for other in [
        TWO_PHASE_SECTION,
        CONSOLE_SECTION,
        TXWATCH_SECTION,
        OBSERVE_SECTION,
        SITE_SECTION,
    ] {
        file.remove(other);
    }
    let routes = take_sections(&mut file, "route")?;
    let synced = take_sections(&mut file, "sync")?;
    let captures = take_sections(&mut file, "capture")?;
    if let Some(unknown) = file.keys().next() {
        bail!(
            "{unknown}: is not a section; known are [route.<name>], [sync.<name>], \
             [capture.<name>], [{TWO_PHASE_SECTION}], [{CONSOLE_SECTION}], [{OBSERVE_SECTION}], \
             [{SITE_SECTION}] and [{TXWATCH_SECTION}]"
        );
    }
    let mut read = File::default();
    require_routes(&routes, wanted)?;
    let described = routes.clone();
    for (name, mut settings) in routes
        .into_iter()
        .filter(|(name, _)| wanted.needs_route(name))
    {
        fill_in_variables(
            "route",
            &name,
            &mut settings,
            &ROUTE_SETTINGS_WITH_VARIABLES,
        )?;
        read.routes.push(Route::read(&name, &settings)?);
    }
    for (name, mut settings) in synced.into_iter().filter(|_| wanted.needs_tables()) {
        fill_in_variables("sync", &name, &mut settings, &TABLE_SETTINGS_WITH_VARIABLES)?;
        let table = Synced::read_with(&name, &settings, INDEX_KINDS)?;
        // Each sync would delete the other's documents as orphans.
        let mut known = read.tables.iter();
        if let Some(other) = known.find(|other| other.shares_index_with(&table)) {
            let other = other.name();
            bail!("syncs {other} and {name} have the same index. Give each sync a separate index.");
        }
        read.tables.push(table);
    }
    for (name, settings) in captures.into_iter().filter(|_| wanted.needs_captures()) {
        let route = |named: &str| capture_route(&described, named);
        read.captures.push(capture::read(&name, settings, route)?);
    }
    Ok(read)
}

/// Reads the route by which a capture sends.
fn capture_route(routes: &[(String, Settings)], named: &str) -> anyhow::Result<Option<Route>> {
    let Some((name, settings)) = routes.iter().find(|(name, _)| name == named) else {
        return Ok(None);
    };
    let mut settings = settings.clone();
    fill_in_variables("route", name, &mut settings, &ROUTE_SETTINGS_WITH_VARIABLES)?;
    Ok(Some(Route::read(name, &settings)?))
}

/// Checks that all named routes exist and that no two routes of the file share a queue.
fn require_routes(routes: &[(String, Settings)], wanted: NeededSections<'_>) -> anyhow::Result<()> {
    let mut queues: BTreeMap<&str, &str> = BTreeMap::new();
    for (name, settings) in routes {
        let queue = settings
            .get("queue")
            .and_then(Value::as_str)
            .unwrap_or(name);
        if let Some(other) = queues.insert(queue, name) {
            bail!(
                "routes {other} and {name} both relay the queue {queue}. Give each route a \
                 separate queue."
            );
        }
    }
    let names: Vec<&str> = routes.iter().map(|(name, _)| &**name).collect();
    let NeededSections::Routes(named) = wanted else {
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

/// Removes the sections `[kind.<name>]` from the file and returns them.
fn take_sections(
    file: &mut Map<String, Value>,
    kind: &str,
) -> anyhow::Result<Vec<(String, Settings)>> {
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

/// Replaces `${NAME}` in these settings, and conceals their secrets in all output.
fn fill_in_variables(
    kind: &str,
    name: &str,
    settings: &mut Settings,
    which: &[&str],
) -> anyhow::Result<()> {
    for setting in which {
        if let Some(value) = settings.get_mut(*setting) {
            fill_in_value(value).with_context(|| format!("{kind} {name}: {setting}"))?;
            conceal_setting(setting, value);
        }
    }
    Ok(())
}

/// Replaces `${NAME}` by environment variables and conceals those that are secret.
fn fill_in_value(value: &mut Value) -> anyhow::Result<()> {
    match value {
        Value::String(text) => {
            let filled = variables::fill_variables(text, |name| std::env::var(name).ok())?;
            filled.secrets.iter().for_each(|one| failure::conceal(one));
            *text = filled.text;
        }
        Value::Array(list) => list.iter_mut().try_for_each(fill_in_value)?,
        Value::Object(table) => table.values_mut().try_for_each(fill_in_value)?,
        _ => {}
    }
    Ok(())
}

/// Conceals passwords and secrets in all output.
fn conceal_setting(setting: &str, value: &Value) {
    match value {
        Value::Array(list) => list.iter().for_each(|one| conceal_setting(setting, one)),
        Value::Object(table) => table
            .iter()
            .filter(|(name, _)| name.contains("password") || name.contains("secret"))
            .for_each(|(name, value)| conceal_setting(name, value)),
        Value::String(text) if setting == "to" || setting == "index" => {
            if let Some(password) = url_password(text) {
                failure::conceal(password);
            }
        }
        Value::String(text) => failure::conceal(text),
        _ => {}
    }
}

pub(crate) fn url_password(url: &str) -> Option<&str> {
    let (_, rest) = url.split_once("://")?;
    let authority = rest.split(['/', '?', '#']).next()?;
    let (user, _) = authority.rsplit_once('@')?;
    user.split_once(':').map(|(_, password)| password)
}

#[cfg(test)]
mod tests;
