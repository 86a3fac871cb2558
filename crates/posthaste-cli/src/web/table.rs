//! The section `[console]` of posthaste.toml.

use std::path::Path;

use anyhow::{Context as _, bail};
use posthaste_console::Network;
use serde_json::Value;

use super::WebOptions;
use crate::file::{self, CONSOLE_SECTION, Settings};

impl WebOptions {
    /// Reads the section, `None` if the file does not have it.
    pub(crate) fn from_file(file: &Path) -> anyhow::Result<Option<Self>> {
        let Some(table) = file::read_section(file, CONSOLE_SECTION)? else {
            return Ok(None);
        };
        let folder = file.parent().unwrap_or(Path::new(""));
        let options =
            Self::from_table(table, folder).with_context(|| file.display().to_string())?;
        Ok(Some(options))
    }

    /// Reads a table; its files are relative to `folder`.
    fn from_table(table: Settings, folder: &Path) -> anyhow::Result<Self> {
        let mut options = Self {
            is_of_file: true,
            ..Self::default()
        };
        for (setting, value) in table {
            options
                .set_option(&setting, value, folder)
                .with_context(|| format!("{CONSOLE_SECTION}: {setting}"))?;
        }
        Ok(options)
    }

    /// Sets one option. Errors name the setting and never quote its value.
    fn set_option(&mut self, setting: &str, value: Value, folder: &Path) -> anyhow::Result<()> {
        match setting {
            "listen" => {
                let address = read_text(value)?.parse().ok();
                let address = address.context("must be an address such as 127.0.0.1:8088")?;
                self.listen = Some(address);
            }
            "operate" => self.operate = read_flag(&value)?,
            "token_file" => self.token_file = Some(folder.join(read_text(value)?)),
            "trust_proxy" => {
                let all = read_texts(value)?.into_iter();
                let all: Result<Vec<Network>, _> = all.map(|one| one.parse()).collect();
                self.trust_proxy = all?;
            }
            "user_header" => {
                let header = read_text(value)?.parse().ok();
                self.user_header = Some(header.context("must be the name of a header")?);
            }
            "operators" => self.operator = read_texts(value)?,
            "tls_cert" => self.tls_cert = Some(folder.join(read_text(value)?)),
            "tls_key" => self.tls_key = Some(folder.join(read_text(value)?)),
            "without_tls" => self.without_tls = read_flag(&value)?,
            "redact" => self.redact = read_texts(value)?,
            "name" => self.name = Some(read_text(value)?),
            "path_prefix" => self.path_prefix = Some(read_text(value)?.parse()?),
            _ => bail!(
                "is not a setting; known are listen, operate, token_file, trust_proxy, \
                 user_header, operators, tls_cert, tls_key, without_tls, redact, name, path_prefix"
            ),
        }
        Ok(())
    }
}

fn read_text(value: Value) -> anyhow::Result<String> {
    match value {
        Value::String(text) => Ok(text),
        _ => bail!("must be a string"),
    }
}

fn read_flag(value: &Value) -> anyhow::Result<bool> {
    value.as_bool().context("must be true or false")
}

/// Reads a string or a list of strings.
fn read_texts(value: Value) -> anyhow::Result<Vec<String>> {
    match value {
        Value::Array(all) => all.into_iter().map(read_text).collect(),
        one => Ok(vec![read_text(one)?]),
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn parse_table(table: Value) -> anyhow::Result<WebOptions> {
        let table = table.as_object().cloned().unwrap_or_default();
        let options =
            WebOptions::from_table(table.into_iter().collect(), Path::new("/etc/posthaste"))?;
        options.check()?;
        Ok(options)
    }

    #[test]
    fn the_console_table_and_the_options_set_the_same() {
        let options = parse_table(json!({
            "listen": "0.0.0.0:443", "trust_proxy": ["10.0.0.7", "fd00::/8"],
            "user_header": "Remote-User", "operators": "ada", "tls_cert": "c.pem",
            "tls_key": "/k.pem", "redact": ["iban"], "operate": false,
            "path_prefix": "/posthaste/",
        }));
        let options = options.unwrap();
        assert_eq!(options.address().port(), 443);
        assert_eq!(options.trust_proxy.len(), 2);
        assert_eq!(options.operator, ["ada"]);
        assert_eq!(options.path_prefix.unwrap().to_string(), "/posthaste");
        assert_eq!(options.tls_cert.unwrap(), Path::new("/etc/posthaste/c.pem"));
        assert_eq!(options.tls_key.unwrap(), Path::new("/k.pem"));
    }

    #[test]
    fn flags_override_posthaste_toml() {
        let table = json!({
            "listen": "0.0.0.0:443", "trust_proxy": "10.0.0.7", "operators": "ada",
            "tls_cert": "c.pem", "tls_key": "k.pem", "redact": "iban",
        });
        let typed = WebOptions {
            listen: "0.0.0.0:80".parse().ok(),
            token_file: Some("token".into()),
            without_tls: true,
            redact: vec!["pin".to_owned()],
            ..WebOptions::default()
        };
        let options = typed.or_from_file(parse_table(table.clone()).unwrap());
        options.check().unwrap();
        assert_eq!(options.address().port(), 80);
        assert!(options.trust_proxy.is_empty() && options.operator.is_empty());
        assert!(options.tls_cert.is_none() && options.tls_key.is_none());
        assert_eq!(options.redact, ["pin", "iban"]);
        // Without options on the command line, those of the file for authentication and TLS apply.
        let options = WebOptions::default().or_from_file(parse_table(table).unwrap());
        options.check().unwrap();
        assert_eq!(options.trust_proxy.len(), 1);
        assert_eq!(options.tls_cert.unwrap(), Path::new("/etc/posthaste/c.pem"));
    }

    #[test]
    fn console_table_errors_name_the_key_and_quote_no_value() {
        for (table, expected) in [
            (
                json!({"listen": "geheim"}),
                "console: listen: must be an address",
            ),
            (
                json!({"operate": "geheim"}),
                "operate: must be true or false",
            ),
            (json!({"geheim": 1}), "is not a setting; known are listen"),
            (
                json!({"trust_proxy": "0.0.0.0/0"}),
                "trust_proxy: it must be an address",
            ),
            (
                json!({"path_prefix": "geheim"}),
                "path_prefix: it must be a path such as /posthaste",
            ),
            (json!({"trust_proxy": [1]}), "trust_proxy: must be a string"),
            (
                json!({"user_header": "no header"}),
                "must be the name of a header",
            ),
            (
                json!({"operators": "geheim"}),
                "operators needs trust_proxy",
            ),
            (
                json!({"user_header": "x-user"}),
                "user_header needs trust_proxy",
            ),
            (
                json!({"tls_cert": "geheim"}),
                "give both tls_cert and tls_key",
            ),
            (
                json!({"tls_cert": "a", "tls_key": "b", "without_tls": true}),
                "tls_cert and without_tls exclude each other",
            ),
            (
                json!({"token_file": "geheim", "trust_proxy": "10.0.0.1"}),
                "token_file and trust_proxy exclude each other",
            ),
            (
                json!({"listen": "0.0.0.0:1"}),
                "give token_file or trust_proxy",
            ),
            (
                json!({"listen": "0.0.0.0:1", "token_file": "geheim"}),
                "tls_cert with tls_key, or without_tls",
            ),
            (
                json!({"listen": "[::]:1", "without_tls": true}),
                "can be reached from other machines",
            ),
        ] {
            let error = format!("{:#}", parse_table(table.clone()).unwrap_err());
            assert!(error.contains(expected), "{table}: {error}");
            let quoted = error.replace("console: geheim:", "");
            assert!(!quoted.contains("geheim"), "{error}");
        }
    }
}
