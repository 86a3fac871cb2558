//! The Elasticsearch or OpenSearch server of two-phase commits over documents: `--elastic`, or
//! `[two_phase]` of posthaste.toml.

use std::path::{Path, PathBuf};

use anyhow::{Context as _, bail};
use posthaste_elastic::Client;
use posthaste_elastic::two_phase::Coordinator;
use serde_json::Value;

use crate::failure;
use crate::file::{self, DEFAULT_FILE, TWO_PHASE_SECTION};

/// Options for the server of documents and transactions.
#[derive(clap::Args)]
pub(crate) struct ServerOptions {
    /// URL of Elasticsearch or OpenSearch, such as https://user:password@host:9200 (default: from
    /// [two_phase] in posthaste.toml)
    #[arg(
        long,
        global = true,
        env = "POSTHASTE_ELASTIC",
        hide_env_values = true,
        value_name = "URL"
    )]
    elastic: Option<String>,

    /// Index of the documents (default: from the file, or 'documents')
    // Commands have positional documents: clap derives the name of an argument from its field.
    #[arg(long = "documents", global = true, value_name = "INDEX")]
    documents_index: Option<String>,

    /// Index of the transactions (default: from the file, or 'transactions')
    #[arg(long = "transactions", global = true, value_name = "INDEX")]
    transactions_index: Option<String>,

    /// File with [two_phase], and with [console] for the console (default: posthaste.toml)
    #[arg(long, global = true, value_name = "FILE")]
    config: Option<PathBuf>,
}

/// The settings of `[two_phase]`.
#[derive(Debug, Default)]
struct TwoPhaseSettings {
    elastic: Option<String>,
    api_key: Option<String>,
    documents: Option<String>,
    transactions: Option<String>,
}

impl TwoPhaseSettings {
    fn from_table(table: impl IntoIterator<Item = (String, Value)>) -> anyhow::Result<Self> {
        let mut settings = Self::default();
        for (setting, value) in table {
            let place = match setting.as_str() {
                "elastic" => &mut settings.elastic,
                "api_key" => &mut settings.api_key,
                "documents" => &mut settings.documents,
                "transactions" => &mut settings.transactions,
                _ => bail!(
                    "{TWO_PHASE_SECTION}: {setting}: is not a setting; known are elastic, api_key, \
                     documents, \
                     transactions"
                ),
            };
            let Value::String(value) = value else {
                bail!("{TWO_PHASE_SECTION}: {setting}: must be a string");
            };
            if setting == "api_key" {
                failure::conceal(&value);
            }
            *place = Some(value);
        }
        Ok(settings)
    }
}

impl ServerOptions {
    /// Uses this file and `POSTHASTE_ELASTIC`, without options.
    pub(crate) fn from_file(config: Option<PathBuf>) -> Self {
        Self {
            elastic: std::env::var("POSTHASTE_ELASTIC").ok(),
            documents_index: None,
            transactions_index: None,
            config,
        }
    }

    /// Returns the file with the settings; a file named by `--config` must exist.
    pub(crate) fn file(&self) -> anyhow::Result<&Path> {
        match &self.config {
            Some(named) if !named.exists() => bail!("{} does not exist.", named.display()),
            Some(named) => Ok(named),
            None => Ok(Path::new(DEFAULT_FILE)),
        }
    }

    /// Makes a coordinator without a request to the server. Fails if no server is configured.
    pub(crate) fn coordinator(&self) -> anyhow::Result<Coordinator> {
        match self.optional_coordinator()? {
            Some(coordinator) => Ok(coordinator),
            None => bail!(
                "no Elasticsearch or OpenSearch: give --elastic URL, set POSTHASTE_ELASTIC, \
                 or write [two_phase] with elastic = into {}.",
                self.file()?.display()
            ),
        }
    }

    /// Makes a coordinator, `None` if no server is configured.
    pub(crate) fn optional_coordinator(&self) -> anyhow::Result<Option<Coordinator>> {
        let file = self.file()?;
        let table = file::read_section(file, TWO_PHASE_SECTION)?;
        let settings = TwoPhaseSettings::from_table(table.unwrap_or_default())
            .with_context(|| file.display().to_string())?;
        // An empty variable counts as unset.
        let given = self.elastic.as_ref().filter(|url| !url.is_empty());
        let Some(url) = given.or(settings.elastic.as_ref()) else {
            return Ok(None);
        };
        if let Some(password) = file::url_password(url) {
            failure::conceal(password);
        }
        let kind =
            reqwest::Client::builder().user_agent(concat!("posthaste/", env!("CARGO_PKG_VERSION")));
        let mut client = Client::new(kind, url)?;
        // The key belongs to the server of the file: it is not sent to another server.
        if let (None, Some(key)) = (given, &settings.api_key) {
            client = client.api_key(key)?;
        }
        let name = |typed: &Option<String>, configured: Option<String>, usual: &str| {
            typed
                .clone()
                .or(configured)
                .unwrap_or_else(|| usual.to_owned())
        };
        let documents = name(&self.documents_index, settings.documents, "documents");
        let transactions = name(
            &self.transactions_index,
            settings.transactions,
            "transactions",
        );
        Ok(Some(Coordinator::new(client, &documents, &transactions)))
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn describe(table: Value) -> anyhow::Result<TwoPhaseSettings> {
        TwoPhaseSettings::from_table(table.as_object().cloned().unwrap_or_default())
    }

    #[test]
    fn elastic_settings_are_read_and_errors_quote_no_value() {
        let all = json!({"elastic": "http://h:9200", "api_key": "geheim", "documents": "accounts"});
        let all = describe(all).unwrap();
        assert_eq!(all.elastic.as_deref(), Some("http://h:9200"));
        assert_eq!(
            (all.documents.as_deref(), all.transactions),
            (Some("accounts"), None)
        );
        for (wrong, part) in [
            (json!({"url": "geheim"}), "two_phase: url: is not a setting"),
            (json!({"elastic": ["geheim"]}), "elastic: must be a string"),
        ] {
            let error = format!("{:#}", describe(wrong).unwrap_err());
            assert!(error.contains(part) && !error.contains("geheim"), "{error}");
        }
    }
}
