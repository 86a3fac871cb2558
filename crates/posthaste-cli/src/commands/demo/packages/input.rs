//! The packages: Debian's list of packages, or lines of JSON.

use std::collections::BTreeMap;
use std::fs::File;
use std::io::{self, BufRead as _, BufReader, BufWriter, Write as _};
use std::path::Path;
use std::process::{Command, Stdio};

use anyhow::{Context as _, bail};
use serde::{Deserialize, Serialize};

use crate::failure;

/// A package; other fields of a line are ignored.
#[derive(Debug, Default, Deserialize, PartialEq, Serialize)]
pub(super) struct Package {
    pub(super) name: String,
    pub(super) release: Option<String>,
    pub(super) section: Option<String>,
    pub(super) summary: Option<String>,
    pub(super) details: Option<String>,
}

/// Writes the output of `apt-cache dumpavail` as lines of JSON and returns their number. `None` if
/// the program does not exist.
pub(super) fn write_apt_packages(to: &Path) -> anyhow::Result<Option<u64>> {
    let mut asked = Command::new("apt-cache");
    asked
        .arg("dumpavail")
        .stdin(Stdio::null())
        .stderr(Stdio::null());
    let mut asked = match asked.stdout(Stdio::piped()).spawn() {
        Ok(asked) => asked,
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
        Err(error) => return Err(error).context("cannot run apt-cache"),
    };
    let output = asked.stdout.take().context("apt-cache has no output")?;
    let mut output = BufReader::new(output);
    let mut lines = LineFileWriter::create(to)?;
    let (mut line, mut stanza) = (Vec::new(), String::new());
    loop {
        line.clear();
        let is_end = output.read_until(b'\n', &mut line)? == 0;
        let text = String::from_utf8_lossy(&line);
        if !text.trim().is_empty() {
            stanza.push_str(&text);
            continue;
        }
        if let Some(package) = parse_package(&stanza) {
            lines.write_package(&package)?;
        }
        stanza.clear();
        if is_end {
            break;
        }
    }
    if !asked.wait()?.success() {
        bail!("apt-cache dumpavail failed");
    }
    lines
        .finish()
        .map(|lines| Some(lines).filter(|lines| *lines > 0))
}

/// Copies a file of lines of JSON and returns their number.
pub(super) fn copy_package_lines(file: &Path, to: &Path) -> anyhow::Result<u64> {
    let place = file.display();
    let text = File::open(file).map_err(|error| {
        anyhow::anyhow!("cannot read {place}: {}", failure::io_error_text(&error))
    })?;
    let mut lines = LineFileWriter::create(to)?;
    for (n, line) in BufReader::new(text).lines().enumerate() {
        let line = line.with_context(|| place.to_string())?;
        if line.trim().is_empty() {
            continue;
        }
        let package: Result<Package, _> = serde_json::from_str(&line);
        let package = package.map_err(|error| {
            anyhow::anyhow!(
                "{place}, line {}: {error}. Each line is an object with a name, and perhaps \
                 release, section, summary and details.",
                n + 1
            )
        })?;
        lines.write_package(&package)?;
    }
    lines.finish()
}

/// A file of JSON lines that replaces the old one as a whole.
struct LineFileWriter<'a> {
    to: &'a Path,
    file: BufWriter<File>,
    lines: u64,
}

impl<'a> LineFileWriter<'a> {
    fn create(to: &'a Path) -> anyhow::Result<Self> {
        let draft = to.with_extension("new");
        let file = File::create(&draft);
        let file = file.with_context(|| format!("cannot write {}", draft.display()))?;
        Ok(Self {
            to,
            file: BufWriter::new(file),
            lines: 0,
        })
    }

    fn write_package(&mut self, package: &Package) -> anyhow::Result<()> {
        serde_json::to_writer(&mut self.file, package)?;
        self.file.write_all(b"\n")?;
        self.lines += 1;
        Ok(())
    }

    fn finish(mut self) -> anyhow::Result<u64> {
        self.file.flush()?;
        std::fs::rename(self.to.with_extension("new"), self.to)?;
        Ok(self.lines)
    }
}

/// Parses a paragraph of Debian's control format; lines that begin with a space continue the last
/// field.
fn parse_package(stanza: &str) -> Option<Package> {
    let mut fields: BTreeMap<&str, String> = BTreeMap::new();
    let mut last = "";
    for line in stanza.lines() {
        match line.split_once(':') {
            Some((field, value)) if !line.starts_with(' ') => {
                last = field;
                fields.insert(field, value.trim().to_owned());
            }
            _ => {
                if let Some(value) = fields.get_mut(last) {
                    value.push('\n');
                    value.push_str(line.trim());
                }
            }
        }
    }
    let mut description = None;
    for field in ["Description", "Description-en"] {
        description = fields.remove(field).or(description);
    }
    let description = description.unwrap_or_default();
    let (summary, more) = description.split_once('\n').unwrap_or((&description, ""));
    let tags = fields.remove("Tag").unwrap_or_default();
    let about: Vec<&str> = [more, &*tags]
        .into_iter()
        .filter(|text| !text.is_empty())
        .collect();
    Some(Package {
        name: fields.remove("Package")?,
        release: fields.remove("Version"),
        section: fields.remove("Section"),
        summary: Some(summary.to_owned()),
        details: Some(about.join("\n")),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_paragraph_is_parsed_as_a_package() {
        let stanza = "Package: a\nVersion: 1:2.0-1\nTag: x::y,\n z\nDescription: does: things\n \
                      and more\nSection: net\n";
        let text = |text: &str| Some(text.to_owned());
        let expected = Package {
            name: "a".into(),
            release: text("1:2.0-1"),
            section: text("net"),
            summary: text("does: things"),
            details: text("and more\nx::y,\nz"),
        };
        assert_eq!(parse_package(stanza), Some(expected));
        assert_eq!(parse_package("Version: 1\n"), None);
    }
}
