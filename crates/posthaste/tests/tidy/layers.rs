//! Modules are in layers: a reader follows the imports down and never returns.

use super::circles::{CRATES, Imports};
use super::{read, root};

/// Returns the modules of a crate as its root groups them, the lowest first.
fn layers(krate: &str) -> Vec<Vec<String>> {
    let source = root().join("crates").join(krate).join("src");
    let lib = source.join("lib.rs");
    let text = read(&if lib.exists() {
        lib
    } else {
        source.join("main.rs")
    });
    let groups = text.split("\n\n").map(|group| {
        let lines = group.lines().map(|line| line.trim_start_matches("pub "));
        let modules = lines.filter_map(|line| line.strip_prefix("mod ")?.strip_suffix(';'));
        modules.map(str::to_owned).collect()
    });
    groups
        .filter(|group: &Vec<String>| !group.is_empty())
        .collect()
}

fn position(layers: &[Vec<String>], module: &str) -> Option<usize> {
    layers
        .iter()
        .position(|layer| layer.iter().any(|one| one == module))
}

#[test]
fn modules_import_only_lower_layers() {
    let core = layers("posthaste");
    let layer = |module| position(&core, module);
    assert!(layer("store") < layer("claim") && layer("claim") < layer("engine"));
    let found: Vec<String> = CRATES.into_iter().flat_map(upward).collect();
    assert!(
        found.is_empty(),
        "these import back up:\n{}",
        found.join("\n")
    );
}

/// Returns the modules of a crate that import from a module that is not below them.
fn upward(krate: &str) -> Vec<String> {
    let layers = layers(krate);
    let imports = Imports::read_crate(krate);
    let mut found = Vec::new();
    for module in imports.modules() {
        // The root is above all modules, and tests may use anything.
        let Some(top) = module
            .first()
            .filter(|_| !module.ends_with(&["tests".into()]))
        else {
            continue;
        };
        let this = position(&layers, top).unwrap_or_else(|| panic!("{krate} has no module {top}"));
        let used = imports.used_by(module);
        let used = used.iter().filter_map(|one| one.first());
        let up = used.filter(|other| *other != top);
        let up = up.filter(|other| position(&layers, other).is_some_and(|other| other >= this));
        found.extend(up.map(|other| format!("{krate}: {}: {other}", module.join("::"))));
    }
    found
}
