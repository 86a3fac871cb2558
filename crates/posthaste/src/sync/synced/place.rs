//! The address of an index, and what only its kind can be told.

use std::collections::BTreeMap;
#[cfg(feature = "tantivy")]
use std::path::PathBuf;
use std::sync::Arc;

use deadpool_postgres::Pool;
#[cfg(feature = "elastic")]
use serde_json::Value;

use super::Access;
use crate::error::Error;
#[cfg(feature = "elastic")]
use crate::error::ErrorKind;
use crate::settings::Fields;
use crate::sync::{Index, Postgres, Weight};

/// Where documents are kept.
pub(super) enum Place {
    #[cfg(feature = "tantivy")]
    Tantivy {
        folder: PathBuf,
        fields: BTreeMap<String, f32>,
    },
    Postgres {
        /// Of another database.
        url: Option<String>,
        index: String,
        language: Option<String>,
        fields: Vec<(String, Weight)>,
    },
    #[cfg(feature = "elastic")]
    Elastic {
        /// Of the server, without the alias; a secret.
        url: String,
        alias: String,
        api_key: Option<String>,
        /// What an index is made with.
        definition: BTreeMap<String, Value>,
    },
}

const ADDRESSES: &str = "index: must begin with tantivy: and a folder, or with postgres:, postgres://, http:// or https://";

impl Place {
    /// Reads an address, and the settings that belong to it. The error says what it must be and not what it is.
    pub(super) fn read(address: &str, name: &str, settings: &mut Fields) -> Result<Self, String> {
        match address.split_once(':') {
            #[cfg(feature = "tantivy")]
            Some(("tantivy", folder)) => {
                let folder = folder.strip_prefix("//").unwrap_or(folder);
                if folder.is_empty() {
                    return Err("index: names no folder".into());
                }
                Ok(Self::Tantivy {
                    folder: folder.into(),
                    fields: settings.take("fields")?.unwrap_or_default(),
                })
            }
            Some(("postgres" | "postgresql", rest)) => {
                let url = rest.starts_with("//").then(|| address.to_owned());
                let index = match rest {
                    "" => name,
                    _ if url.is_some() => name,
                    index => index,
                };
                Ok(Self::Postgres {
                    index: index.to_owned(),
                    url,
                    language: settings.take("language")?,
                    fields: weights(settings)?,
                })
            }
            #[cfg(feature = "elastic")]
            Some(("http" | "https", _)) => {
                let (url, alias) = server_and_alias(address);
                Ok(Self::Elastic {
                    url: url.to_owned(),
                    alias: alias.unwrap_or(name).to_owned(),
                    api_key: settings.take("api_key")?,
                    definition: settings.take("definition")?.unwrap_or_default(),
                })
            }
            _ => Err(ADDRESSES.into()),
        }
    }

    pub(super) fn name(&self) -> &'static str {
        match self {
            #[cfg(feature = "tantivy")]
            Self::Tantivy { .. } => "Tantivy",
            Self::Postgres { .. } => "Postgres",
            #[cfg(feature = "elastic")]
            Self::Elastic { .. } => "Elasticsearch or OpenSearch",
        }
    }

    pub(super) fn database(&self) -> Option<&str> {
        match self {
            Self::Postgres { url, .. } => url.as_deref(),
            #[cfg(feature = "tantivy")]
            Self::Tantivy { .. } => None,
            #[cfg(feature = "elastic")]
            Self::Elastic { .. } => None,
        }
    }

    #[cfg_attr(
        not(feature = "tantivy"),
        expect(unused_variables, reason = "Postgres is written by anybody")
    )]
    pub(super) fn open(&self, pool: Pool, access: Access) -> Result<Arc<dyn Index>, Error> {
        match self {
            #[cfg(feature = "tantivy")]
            Self::Tantivy { folder, fields } => {
                let index = crate::sync::Tantivy::at(folder);
                let index = fields
                    .iter()
                    .fold(index, |index, (field, boost)| index.field(field, *boost));
                let index = match access {
                    Access::Write => index.open()?,
                    Access::Read => index.open_to_read()?,
                };
                Ok(Arc::new(index))
            }
            Self::Postgres {
                index,
                language,
                fields,
                ..
            } => {
                let mut postgres = Postgres::new(pool, index);
                if let Some(language) = language {
                    postgres = postgres.language(language);
                }
                let fields = fields.iter();
                let postgres =
                    fields.fold(postgres, |all, (field, weight)| all.field(field, *weight));
                Ok(Arc::new(postgres))
            }
            #[cfg(feature = "elastic")]
            Self::Elastic {
                url,
                alias,
                api_key,
                definition,
            } => {
                let wrong = |error: posthaste_elastic::Error| ErrorKind::Config(error.to_string());
                let mut client =
                    posthaste_elastic::Client::new(client_kind(), url).map_err(wrong)?;
                if let Some(key) = api_key {
                    client = client.api_key(key).map_err(wrong)?;
                }
                let definition = definition.clone().into_iter().collect();
                let index = crate::sync::Elastic::new(client, alias);
                Ok(Arc::new(index.definition(Value::Object(definition))))
            }
        }
    }
}

#[cfg(feature = "elastic")]
fn client_kind() -> reqwest::ClientBuilder {
    reqwest::Client::builder().user_agent(concat!("posthaste/", env!("CARGO_PKG_VERSION")))
}

/// The address of the server, and what its last part says of the alias.
#[cfg(feature = "elastic")]
fn server_and_alias(address: &str) -> (&str, Option<&str>) {
    let address = address.trim_end_matches('/');
    match address.rsplit_once('/') {
        // The two before the host are no part of a path.
        Some((server, alias)) if !server.ends_with('/') => (server, Some(alias)),
        _ => (address, None),
    }
}

fn weights(settings: &mut Fields) -> Result<Vec<(String, Weight)>, String> {
    let wrong = || "fields: must be a table of A, B, C or D".to_owned();
    let fields: Option<BTreeMap<String, String>> = settings.take("fields").map_err(|_| wrong())?;
    let weight = |(field, weight): (String, String)| {
        let weight = match &*weight {
            "A" => Weight::A,
            "B" => Weight::B,
            "C" => Weight::C,
            "D" => Weight::D,
            _ => return Err(wrong()),
        };
        Ok((field, weight))
    };
    fields.unwrap_or_default().into_iter().map(weight).collect()
}

#[cfg(all(test, feature = "elastic"))]
mod tests {
    use super::server_and_alias;

    #[test]
    fn the_last_part_of_an_address_is_the_alias() {
        for (address, server, alias) in [
            ("http://h:9200", "http://h:9200", None),
            ("https://u:p@h/", "https://u:p@h", None),
            ("https://h:9200/pages", "https://h:9200", Some("pages")),
            ("https://h/behind/pages/", "https://h/behind", Some("pages")),
        ] {
            assert_eq!(server_and_alias(address), (server, alias), "{address}");
        }
    }
}
