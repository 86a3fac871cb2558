//! Modules stand in layers: a reader follows the imports down and never comes back up.

use super::{files, lines_of_code, read, root};

/// The modules of a crate as its `lib.rs` groups them, the lowest first.
fn layers(krate: &str) -> Vec<Vec<String>> {
    let text = read(&root().join(krate).join("src/lib.rs"));
    let groups = text.split("\n\n").map(|group| {
        let lines = group.lines().map(|line| line.trim_start_matches("pub "));
        let modules = lines.filter_map(|line| line.strip_prefix("mod ")?.strip_suffix(';'));
        modules.map(str::to_owned).collect()
    });
    groups
        .filter(|group: &Vec<String>| !group.is_empty())
        .collect()
}

/// What a line imports, or names by its path.
fn named(line: &str) -> impl Iterator<Item = &str> {
    line.split("crate::").skip(1).flat_map(|rest| {
        let one = rest
            .split(|c: char| !c.is_alphanumeric() && c != '_')
            .next();
        let several = rest
            .strip_prefix('{')
            .and_then(|rest| rest.split('}').next());
        let several = several.unwrap_or_default().split(',');
        let several = several.filter_map(|one| one.trim().split("::").next());
        one.into_iter().chain(several)
    })
}

#[test]
fn modules_import_only_lower_layers() {
    let core = layers("crates/posthaste");
    let layer = |module: &str| {
        let holds = |layer: &Vec<String>| layer.iter().any(|one| one == module);
        core.iter().position(holds)
    };
    assert!(layer("store") < layer("claim") && layer("claim") < layer("engine"));
    let found: Vec<String> = ["crates/posthaste", "crates/posthaste-observe"]
        .into_iter()
        .flat_map(upward)
        .collect();
    assert!(
        found.is_empty(),
        "these import back up:\n{}",
        found.join("\n")
    );
}

/// Modules of a crate that import what does not stand below them.
fn upward(krate: &str) -> Vec<String> {
    let layers = layers(krate);
    let layer = |module: &str| {
        layers
            .iter()
            .position(|layer| layer.iter().any(|one| one == module))
    };
    let source = root().join(krate).join("src");
    let mut found = Vec::new();
    for file in files(&format!("{krate}/src"), &["rs"]) {
        let place = file
            .strip_prefix(&source)
            .unwrap()
            .to_string_lossy()
            .into_owned();
        let module = place.split('/').next().unwrap().trim_end_matches(".rs");
        // Tests may look at anything.
        if module == "lib" || place.ends_with("tests.rs") {
            continue;
        }
        let this = layer(module).unwrap_or_else(|| panic!("lib.rs has no module {module}"));
        for line in lines_of_code(&file) {
            let up = named(&line).filter(|other| *other != module);
            let up = up.filter(|other| layer(other).is_some_and(|other| other >= this));
            found.extend(up.map(|other| format!("{place}: {other}")));
        }
    }
    found
}
