//! A section `[capture.<name>]`.

use anyhow::{Context as _, bail};
use posthaste_capture::Capture;
use posthaste_relay::Route;
use serde_json::Value;

use super::Settings;
use crate::connect::Address;

/// Reads a capture. A route that it names is read separately for it: the capture runs on another
/// thread than the route's relay and needs separate connections.
pub(super) fn read(
    name: &str,
    mut settings: Settings,
    route: impl Fn(&str) -> anyhow::Result<Option<Route>>,
) -> anyhow::Result<Capture> {
    super::fill_in_variables("capture", name, &mut settings, &["server"])?;
    let server = match settings.remove("server") {
        None => None,
        Some(Value::String(url)) => {
            let server = Address::parse(&url).with_context(|| format!("capture {name}: server"))?;
            Some(server.database())
        }
        Some(_) => bail!("capture {name}: server: must be a string"),
    };
    let named = settings.get("route").and_then(Value::as_str);
    let route = named.map(route).transpose()?.flatten();
    Ok(Capture::read(name, &settings, server, route.as_ref())?)
}
