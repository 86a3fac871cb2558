//! The address of an index, and the settings of its kind.

use std::collections::BTreeMap;
use std::sync::Arc;

#[cfg(feature = "elastic")]
use serde_json::Value;

use super::{Access, IndexKind, OpenIndex};
#[cfg(feature = "elastic")]
use crate::elastic::{Elastic, check_definition};
use crate::{Index, Postgres, Weight};
use posthaste::__private::lacks_feature;
use posthaste::settings::Fields;
use posthaste::{Database, Error};
#[cfg(feature = "elastic")]
use posthaste_elastic::is_index_name;

/// The location of an index.
pub(super) enum IndexTarget {
    /// In an index of another crate.
    Other {
        name: &'static str,
        /// The address after the colon.
        rest: String,
        open: OpenIndex,
    },
    Postgres {
        /// The URL of the index's database, if it is not the database of the rows.
        url: Option<String>,
        index: String,
        language: Option<String>,
        fields: Vec<(String, Weight)>,
    },
    #[cfg(feature = "elastic")]
    Elastic {
        /// The URL of the server, without the alias; a secret.
        url: String,
        alias: String,
        api_key: Option<String>,
        /// The definition that the index is created with.
        definition: Value,
    },
}

const ADDRESS_ERROR: &str = "index: must begin with tantivy: and a folder, or with postgres:, \
                         postgres://, http:// or https://";

impl IndexTarget {
    /// Parses an address, and takes the settings of its kind. The error describes valid addresses
    /// and does not quote this one.
    pub(super) fn read(
        address: &str,
        name: &str,
        settings: &mut Fields,
        kinds: &[&dyn IndexKind],
    ) -> Result<Self, String> {
        let of = |(scheme, rest)| {
            let kind = kinds.iter().find(|kind| kind.scheme() == scheme)?;
            Some((kind, rest))
        };
        if let Some((kind, rest)) = address.split_once(':').and_then(of) {
            let open = kind.read(rest, settings)?;
            return Ok(Self::Other {
                name: kind.name(),
                rest: rest.to_owned(),
                open,
            });
        }
        match address.split_once(':') {
            Some(("tantivy", _)) => {
                // Programs pass posthaste_tantivy::Folders to Synced::read_with.
                Err(format!("index: {}", lacks_feature("Tantivy", "tantivy")))
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
                    fields: read_weights(settings)?,
                })
            }
            #[cfg(feature = "elastic")]
            Some(("http" | "https", _)) => read_elastic(address, name, settings),
            _ => Err(ADDRESS_ERROR.into()),
        }
    }

    pub(super) fn name(&self) -> &'static str {
        match self {
            Self::Other { name, .. } => name,
            Self::Postgres { .. } => "Postgres",
            #[cfg(feature = "elastic")]
            Self::Elastic { .. } => "Elasticsearch or OpenSearch",
        }
    }

    /// Returns whether both are the same index, however their addresses are written. Two addresses
    /// of the same server or database may compare as different: a host name and its IP address, for
    /// example.
    pub(super) fn is_same(&self, other: &Self) -> bool {
        match (self, other) {
            (
                Self::Other { name, rest, .. },
                Self::Other {
                    name: other_name,
                    rest: other_rest,
                    ..
                },
            ) => name == other_name && folder_path(rest) == folder_path(other_rest),
            (
                Self::Postgres { url, index, .. },
                Self::Postgres {
                    url: other_url,
                    index: other_index,
                    ..
                },
            ) => {
                let urls = (url.as_deref(), other_url.as_deref());
                let is_one_database = match urls {
                    (Some(url), Some(other)) => url == other || same_database(url, other),
                    (url, other) => url == other,
                };
                index == other_index && is_one_database
            }
            #[cfg(feature = "elastic")]
            (
                Self::Elastic { url, alias, .. },
                Self::Elastic {
                    url: other_url,
                    alias: other_alias,
                    ..
                },
            ) => alias == other_alias && (url == other_url || same_server(url, other_url)),
            _ => false,
        }
    }

    pub(super) fn database(&self) -> Option<&str> {
        match self {
            Self::Postgres { url, .. } => url.as_deref(),
            Self::Other { .. } => None,
            #[cfg(feature = "elastic")]
            Self::Elastic { .. } => None,
        }
    }

    pub(super) fn open(&self, database: Database, access: Access) -> Result<Arc<dyn Index>, Error> {
        match self {
            Self::Other { open, .. } => open(access),
            Self::Postgres {
                index,
                language,
                fields,
                ..
            } => {
                let mut postgres = Postgres::new(database, index);
                if let Some(language) = language {
                    postgres = postgres.language(language);
                }
                let fields = fields.iter();
                let postgres = fields.fold(postgres, |all, (field, weight)| {
                    all.search_field(field, *weight)
                });
                Ok(Arc::new(postgres))
            }
            #[cfg(feature = "elastic")]
            Self::Elastic { .. } => match self.open_elastic()? {
                Some(index) => Ok(Arc::new(index)),
                None => Err(Error::config(ADDRESS_ERROR)),
            },
        }
    }

    /// Returns the index on a server; `None` for other kinds.
    #[cfg(feature = "elastic")]
    pub(super) fn open_elastic(&self) -> Result<Option<Elastic>, Error> {
        let Self::Elastic {
            url,
            alias,
            api_key,
            definition,
        } = self
        else {
            return Ok(None);
        };
        let wrong = |error: posthaste_elastic::Error| Error::config(error.to_string());
        let mut client =
            posthaste_elastic::Client::new(http_client_builder(), url).map_err(wrong)?;
        if let Some(key) = api_key {
            client = client.api_key(key).map_err(wrong)?;
        }
        let index = Elastic::new(client, alias);
        Ok(Some(index.definition(definition.clone())))
    }
}

/// Parses the address of a server. Refuses a secret in an unexpected part before it could be
/// printed.
#[cfg(feature = "elastic")]
fn read_elastic(address: &str, name: &str, settings: &mut Fields) -> Result<IndexTarget, String> {
    if address.contains(['?', '#']) {
        return Err(
            "index: its address must end with the alias, without ? or #; set a key as api_key, and \
             write these characters in a password as %3F and %23"
                .into(),
        );
    }
    let (url, alias) = server_and_alias(address);
    let alias = alias.unwrap_or(name);
    // The number of an index is appended to the alias. An @ follows a password whose slash is not
    // written as %2F.
    let numbered_index = format!("{alias}-{}", u32::MAX);
    if alias.ends_with("-next") {
        return Err(
            "index: aliases that end with -next are reserved for indexes that are being built"
                .into(),
        );
    }
    if !is_index_name(&numbered_index) || alias.contains('@') {
        return Err(
            "index: its address must end with the name of an alias: lowercase letters, digits, - \
             and _, beginning with a letter or a digit; in a password, write / as %2F"
                .into(),
        );
    }
    let definition: BTreeMap<String, Value> = settings.take("definition")?.unwrap_or_default();
    let definition = Value::Object(definition.into_iter().collect());
    check_definition(&definition)?;
    Ok(IndexTarget::Elastic {
        url: url.to_owned(),
        alias: alias.to_owned(),
        api_key: settings.take("api_key")?,
        definition,
    })
}

#[cfg(feature = "elastic")]
fn http_client_builder() -> reqwest::ClientBuilder {
    reqwest::Client::builder().user_agent(concat!("posthaste/", env!("CARGO_PKG_VERSION")))
}

/// Splits an address into that of the server and the alias in its last segment.
#[cfg(feature = "elastic")]
fn server_and_alias(address: &str) -> (&str, Option<&str>) {
    let address = address.trim_end_matches('/');
    match address.rsplit_once('/') {
        // The two slashes before the host do not begin a path.
        Some((server, alias)) if !server.ends_with('/') => (server, Some(alias)),
        _ => (address, None),
    }
}

/// Removes two slashes before the path and slashes after it, which do not matter.
fn folder_path(rest: &str) -> &str {
    rest.strip_prefix("//")
        .unwrap_or(rest)
        .trim_end_matches('/')
}

/// Returns whether two addresses have the same database, for any users.
fn same_database(one: &str, other: &str) -> bool {
    let target = |url: &str| {
        let config: tokio_postgres::Config = url.parse().ok()?;
        let ports = config.get_ports();
        // A single port applies to every host.
        let port = |at: usize| ports.get(at).or(ports.first()).copied().unwrap_or(5432);
        let hosts = config.get_hosts().iter().cloned().enumerate();
        let hosts: Vec<_> = hosts.map(|(at, host)| (host, port(at))).collect();
        let name = config.get_dbname().or(config.get_user())?;
        Some((hosts, name.to_owned()))
    };
    target(one).is_some_and(|one| target(other).is_some_and(|other| one == other))
}

/// Returns whether two addresses have the same server, for any users.
#[cfg(feature = "elastic")]
fn same_server(one: &str, other: &str) -> bool {
    let target = |url: &str| {
        let url = reqwest::Url::parse(url).ok()?;
        let host = url.host_str()?.to_owned();
        let path = url.path().trim_end_matches('/').to_owned();
        Some((host, url.port_or_known_default(), path))
    };
    target(one).is_some_and(|one| target(other).is_some_and(|other| one == other))
}

fn read_weights(settings: &mut Fields) -> Result<Vec<(String, Weight)>, String> {
    let wrong = || "fields: must give each field a weight of A, B, C or D".to_owned();
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
    use serde_json::json;

    use super::{Fields, IndexTarget, server_and_alias};

    fn read(
        address: &str,
        name: &str,
        settings: &serde_json::Value,
    ) -> Result<IndexTarget, String> {
        let settings = settings.as_object().cloned().unwrap_or_default();
        let mut settings = Fields::new(settings.into_iter().collect());
        IndexTarget::read(address, name, &mut settings, &[])
    }

    #[test]
    fn rejects_index_names_that_may_hold_secrets() {
        for wrong in [
            "https://h:9200/pages?key=geheim",
            "https://h:9200/?key=geheim",
            "https://h:9200/pages#geheim",
            "https://u:gehe/im@h",
            "https://u:1/geheim@h",
            "https://u:1/geheim@h:9200",
            "https://h:9200/Geheim",
            "https://h:9200/geheim*",
            "https://h:9200/_geheim",
            "https://h:9200/geheim,pages",
            &format!("https://h:9200/geheim{}", "m".repeat(250)),
        ] {
            let Err(reason) = read(wrong, "pages", &json!({})) else {
                panic!("{wrong} was taken");
            };
            assert!(reason.starts_with("index: its address"), "{reason}");
            assert!(
                !reason.contains("geheim") && !reason.contains("im@"),
                "{reason}"
            );
        }
        // The name of the sync is not a valid index name here.
        assert!(read("https://h:9200", "_pages", &json!({})).is_err());
        for right in [
            "https://u:g%2Fe@h:9200/pages-2",
            "http://h",
            "http://h/way/größe",
        ] {
            assert!(read(right, "pages", &json!({})).is_ok(), "{right}");
        }
    }

    #[test]
    fn invalid_definitions_are_refused_when_read() {
        for wrong in [
            json!({"definition": "geheim"}),
            json!({"definition": {"mappings": "geheim"}}),
            json!({"definition": {"settings": [1]}}),
            json!({"definition": {"aliases": 1}}),
        ] {
            let Err(reason) = read("http://h", "pages", &wrong) else {
                panic!("{wrong} was taken");
            };
            assert!(reason.starts_with("definition: "), "{reason}");
            assert!(!reason.contains("geheim"), "{reason}");
        }
    }

    #[test]
    fn the_last_path_segment_is_the_alias() {
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
