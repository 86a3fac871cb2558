//! `posthaste init`: writes an initial posthaste.toml.

use std::fs::OpenOptions;
use std::io::{ErrorKind, Write as _};
use std::path::PathBuf;

use anyhow::{anyhow, bail};
use serde_json::json;

use crate::failure;
use crate::file::DEFAULT_FILE;
use crate::terminal::Terminal;

/// Write a working posthaste.toml, with all other settings as comments
#[derive(clap::Args)]
pub(crate) struct Arguments {
    /// File to write
    #[arg(long, value_name = "FILE", default_value = DEFAULT_FILE)]
    config: PathBuf,
}

const TEMPLATE: &str = include_str!("init/posthaste.toml");

pub(crate) fn run(arguments: &Arguments, terminal: &Terminal) -> anyhow::Result<()> {
    let file = arguments.config.display();
    // Never overwrites an existing file, even if two processes run at once.
    let created = OpenOptions::new()
        .write(true)
        .create_new(true)
        .open(&arguments.config);
    let written = created.and_then(|mut new| new.write_all(TEMPLATE.as_bytes()));
    match written {
        Ok(()) => {}
        Err(error) if error.kind() == ErrorKind::AlreadyExists => {
            bail!("{file} already exists and was not changed.");
        }
        Err(error) => return Err(anyhow!("{file}: {}", failure::io_error_text(&error))),
    }
    let text = format!("wrote {file}; 'posthaste up' runs it");
    terminal.print_result(text, &json!({ "file": file.to_string() }))
}

#[cfg(test)]
mod tests {
    use super::TEMPLATE;
    use crate::file;

    /// Returns the file without the `#` before settings.
    fn with_all() -> String {
        let lines = TEMPLATE.lines().map(|line| {
            let setting = line.strip_prefix("# ").unwrap_or(line);
            let is_setting = setting.starts_with('[') || setting.contains(" = ");
            if is_setting { setting } else { line }
        });
        lines.collect::<Vec<_>>().join("\n")
    }

    #[test]
    fn the_generated_file_parses_with_and_without_comments() {
        let read = |text: &str| toml::from_str::<toml::Table>(text).unwrap();
        assert_eq!(read(TEMPLATE).len(), 1);
        let all = read(&with_all());
        assert_eq!(all["route"].as_table().unwrap().len(), 3);
        assert_eq!(all["sync"].as_table().unwrap().len(), 1);
        assert_eq!(all["capture"].as_table().unwrap().len(), 1);
        assert!(TEMPLATE.lines().all(|line| line.chars().count() <= 100));
        let _ = rustls::crypto::ring::default_provider().install_default();
        let secret = "whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw";
        let all = with_all().replace("${WEBHOOK_SECRET}", secret);
        let file = file::parse_sections(
            &all.replace("${REDIS_PASSWORD}", "geheim"),
            file::NeededSections::All,
        )
        .unwrap();
        assert_eq!((file.routes.len(), file.tables.len()), (3, 1));
    }
}
