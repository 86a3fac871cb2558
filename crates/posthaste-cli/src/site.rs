//! The site of this process: `[site]` of posthaste.toml, or `POSTHASTE_SITE`.

use std::path::Path;

use anyhow::{Context as _, bail};
use posthaste::__private::SiteRefusal;
use serde_json::Value;

use crate::connect::Address;
use crate::file::{self, DEFAULT_FILE, SITE_SECTION};

/// The variable that overrides the file.
const SITE_VARIABLE: &str = "POSTHASTE_SITE";
/// The site of all private servers: the port differs at each start, and no other site uses them.
const PRIVATE_SITE: &str = "private";

/// Returns the name of the site, `None` if it is not configured.
pub(crate) fn configured_site(address: &Address) -> anyhow::Result<Option<String>> {
    if address.is_private() {
        return Ok(Some(PRIVATE_SITE.to_owned()));
    }
    match std::env::var(SITE_VARIABLE) {
        Ok(name) if !name.is_empty() => Ok(Some(name)),
        _ => site_in_file(Path::new(DEFAULT_FILE)),
    }
}

/// Adds this site to the refused sites, if its worker would wait in this database.
pub(crate) async fn record_refusal(
    address: &Address,
    refused: &mut Vec<String>,
) -> anyhow::Result<()> {
    if let Some(SiteRefusal { site, .. }) = refusal(address).await?
        && !refused.contains(&site)
    {
        refused.push(site);
    }
    Ok(())
}

/// Returns why a worker of this site would wait in this database; `None` if it would not, or that
/// cannot be read.
async fn refusal(address: &Address) -> anyhow::Result<Option<SiteRefusal>> {
    let site = configured_site(address)?;
    let pool = address.pool(1)?;
    let refused = posthaste::__private::site_refusal(&pool, site.as_deref()).await;
    Ok(refused.unwrap_or_default())
}

/// Fails in a copy that this site has not adopted, for commands that write to destinations of the
/// original.
pub(crate) async fn require_adopted(address: &Address) -> anyhow::Result<()> {
    match refusal(address).await? {
        None => Ok(()),
        Some(SiteRefusal { reason, .. }) => bail!(
            "{reason}: nothing is sent from here until 'posthaste adopt' takes over the store, or \
             [site] sets the name of its owner"
        ),
    }
}

fn site_in_file(file: &Path) -> anyhow::Result<Option<String>> {
    let Some(mut table) = file::read_section(file, SITE_SECTION)? else {
        return Ok(None);
    };
    let read = |name| match name {
        None => Ok(None),
        Some(Value::String(name)) if !name.is_empty() => Ok(Some(name)),
        Some(_) => bail!("name: must be a string"),
    };
    let name = table.remove("name");
    let name = match table.keys().next() {
        Some(unknown) => Err(anyhow::anyhow!(
            "{unknown}: is not a setting; the only setting is name"
        )),
        None => read(name),
    };
    name.with_context(|| format!("{}: {SITE_SECTION}", file.display()))
}

#[cfg(test)]
mod tests {
    use super::site_in_file;

    #[test]
    fn site_files_name_the_site_or_fail_with_a_clear_error() {
        let file = std::env::temp_dir().join(posthaste_testkit::unique("posthaste-site"));
        assert_eq!(site_in_file(&file).unwrap(), None);
        for (text, known) in [
            ("[site]\nname = \"production\"", "Ok(Some(\"production\"))"),
            ("[site]", "Ok(None)"),
            ("", "Ok(None)"),
            ("[site]\nname = 7", "name: must be a string"),
            ("[site]\nname = \"\"", "name: must be a string"),
            (
                "[site]\nnam = \"x\"",
                "nam: is not a setting; the only setting is name",
            ),
        ] {
            std::fs::write(&file, text).unwrap();
            let read = format!("{:?}", site_in_file(&file));
            assert!(read.contains(known), "{text}: {read}");
        }
        std::fs::remove_file(&file).unwrap();
    }
}
