//! A copy of the workspace that is built with all mutants of the capture.

use std::collections::HashMap;
use std::fs;
use std::os::unix::fs::symlink;
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context as _, ensure};
use serde_json::Value;

use super::list::Mutant;

/// The environment variable that names the chosen mutant.
pub(super) const BUG: &str = "POSTHASTE_BROKEN";

const CRATE: &str = "crates/posthaste-capture";

/// The module that reads the chosen mutant, and caches values for one of the mutants.
const CHOICE: &str = r#"//! Which variant is broken.

use std::collections::HashMap;
use std::sync::Mutex;

use crate::pgoutput::Relation;

pub(crate) fn is(name: &str) -> bool {
    std::env::var("POSTHASTE_BROKEN").as_deref() == Ok(name)
}

pub(crate) fn kept(relation: Relation) -> Relation {
    static KEPT: Mutex<Option<HashMap<u32, Relation>>> = Mutex::new(None);
    let mut kept = KEPT.lock().unwrap();
    let kept = kept.get_or_insert_with(HashMap::new);
    kept.entry(relation.oid).or_insert(relation).clone()
}
"#;

/// The test programs of the copy.
pub(super) struct Programs {
    library: PathBuf,
    integration: PathBuf,
}

impl Programs {
    pub(super) fn of(&self, test: &str) -> &Path {
        match test.starts_with("capture::") {
            true => &self.integration,
            false => &self.library,
        }
    }
}

fn workspace() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../..")
}

/// Returns the source file with this mutant only.
pub(super) fn edited(mutant: &Mutant) -> anyhow::Result<String> {
    let file = workspace().join(CRATE).join("src").join(mutant.file);
    edit(fs::read_to_string(file)?, mutant)
}

fn edit(mut text: String, mutant: &Mutant) -> anyhow::Result<String> {
    let chosen = format!("crate::mutant::is({:?})", mutant.name);
    for (from, to) in mutant.edits {
        let count = text.matches(from).count();
        ensure!(
            count == 1,
            "{from:?} stands {count} times in {}",
            mutant.file
        );
        text = text.replace(from, &to.replace("BUG", &chosen));
    }
    Ok(text)
}

/// Builds the tests of a copy with all these mutants.
pub(super) fn build(mutants: &[Mutant]) -> anyhow::Result<Programs> {
    let target = std::env::var_os("CARGO_TARGET_DIR");
    let target = target.map_or_else(|| workspace().join("target"), PathBuf::from);
    fs::create_dir_all(&target)?;
    let target = target.canonicalize()?;
    let tree = target.join("mutants/capture");
    copy(&workspace().canonicalize()?, &tree, mutants)?;
    let mut cargo = Command::new(std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into()));
    cargo
        .current_dir(&tree)
        .args([
            "test",
            "--no-run",
            "--offline",
            "--locked",
            "--all-features",
        ])
        .args(["--package", "posthaste-capture", "--message-format", "json"])
        .env("CARGO_TARGET_DIR", &target)
        .env_remove("CARGO_MANIFEST_DIR");
    let built = cargo.output().context("cargo")?;
    let errors = String::from_utf8_lossy(&built.stderr);
    ensure!(built.status.success(), "the copy is no program: {errors}");
    let messages = String::from_utf8(built.stdout)?;
    let mut programs = HashMap::new();
    for line in messages.lines() {
        let message: Value = serde_json::from_str(line)?;
        if let Some(program) = message["executable"].as_str() {
            let kind = message["target"]["kind"][0].as_str().unwrap_or_default();
            programs.insert(kind.to_owned(), PathBuf::from(program));
        }
    }
    let mut program = |kind: &str| programs.remove(kind).context(kind.to_owned());
    Ok(Programs {
        library: program("lib")?,
        integration: program("test")?,
    })
}

/// Copies the workspace: everything except the capture is a link to the original.
fn copy(from: &Path, tree: &Path, mutants: &[Mutant]) -> anyhow::Result<()> {
    if tree.exists() {
        fs::remove_dir_all(tree)?;
    }
    fs::create_dir_all(tree.join("crates"))?;
    let is_left_out = |name: &str| matches!(name, "crates" | "target" | ".git");
    for entry in fs::read_dir(from)? {
        let entry = entry?;
        if !is_left_out(&entry.file_name().to_string_lossy()) {
            symlink(entry.path(), tree.join(entry.file_name()))?;
        }
    }
    for entry in fs::read_dir(from.join("crates"))? {
        let entry = entry?;
        if entry.file_name() != "posthaste-capture" {
            symlink(entry.path(), tree.join("crates").join(entry.file_name()))?;
        }
    }
    copy_folder(&from.join(CRATE), &tree.join(CRATE))?;
    let source = tree.join(CRATE).join("src");
    for mutant in mutants {
        let file = source.join(mutant.file);
        let text = edit(fs::read_to_string(&file)?, mutant)?;
        fs::write(&file, text)?;
    }
    fs::write(source.join("mutant.rs"), CHOICE)?;
    let library = source.join("lib.rs");
    let text = fs::read_to_string(&library)?;
    Ok(fs::write(library, text + "\nmod mutant;\n")?)
}

fn copy_folder(from: &Path, to: &Path) -> anyhow::Result<()> {
    fs::create_dir_all(to)?;
    for entry in fs::read_dir(from)? {
        let entry = entry?;
        let there = to.join(entry.file_name());
        match entry.file_type()?.is_dir() {
            true => copy_folder(&entry.path(), &there)?,
            false => {
                fs::copy(entry.path(), there)?;
            }
        }
    }
    Ok(())
}
