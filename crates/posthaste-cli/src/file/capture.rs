//! A section `[capture.<name>]`.

use anyhow::{Context as _, bail};
use posthaste_capture::Capture;
use serde_json::Value;

use super::Settings;
use crate::connect::Address;

pub(super) fn read(name: &str, mut settings: Settings) -> anyhow::Result<Capture> {
    super::fill_in("capture", name, &mut settings, &["server"])?;
    let server = match settings.remove("server") {
        None => None,
        Some(Value::String(url)) => {
            let server = Address::parse(&url).with_context(|| format!("capture {name}: server"))?;
            Some(server.database())
        }
        Some(_) => bail!("capture {name}: server: must be a string"),
    };
    Ok(Capture::read(name, &settings, server)?)
}
