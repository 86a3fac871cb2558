//! Modules form no circles: a reader follows the imports down and never returns. A module may use
//! its own parent.

use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;

use super::{files, read, root};

/// The crates whose modules are in layers.
pub const CRATES: [&str; 9] = [
    "posthaste",
    "posthaste-capture",
    "posthaste-cli",
    "posthaste-console",
    "posthaste-elastic",
    "posthaste-observe",
    "posthaste-relay",
    "posthaste-sync",
    "posthaste-tantivy",
];

/// The path of a module within its crate; empty for the root.
pub type Module = Vec<String>;

#[test]
fn modules_form_no_circles() {
    for krate in CRATES {
        let circle = largest_circle(&Imports::read_crate(krate));
        assert!(
            circle.is_empty(),
            "{krate}: these modules import each other: {circle:?}"
        );
    }
}

/// The imports of each module of a crate.
pub struct Imports {
    code: BTreeMap<Module, String>,
    reexports: BTreeMap<Module, BTreeMap<String, Vec<String>>>,
}

impl Imports {
    pub fn read_crate(krate: &str) -> Self {
        let source = format!("crates/{krate}/src");
        let folder = root().join(&source);
        let code: BTreeMap<Module, String> = files(&source, &["rs"])
            .into_iter()
            .map(|file| (module(file.strip_prefix(&folder).unwrap()), code(&file)))
            .collect();
        assert!(code.contains_key(&Module::new()), "{krate} has no root");
        let mut reexports = BTreeMap::new();
        for (module, text) in &code {
            let mut names = BTreeMap::new();
            for mut path in imports(text) {
                let alias = path.last().and_then(|last| last.split_once(" as "));
                let alias = alias.map(|(name, alias)| (name.to_owned(), alias.to_owned()));
                if let (Some((name, _)), Some(last)) = (&alias, path.last_mut()) {
                    last.clone_from(name);
                }
                let name = alias
                    .map(|(_, alias)| alias)
                    .or_else(|| path.last().cloned());
                names.extend(name.map(|name| (name, path)));
            }
            reexports.insert(module.clone(), names);
        }
        Self { code, reexports }
    }

    pub fn modules(&self) -> impl Iterator<Item = &Module> {
        self.code.keys()
    }

    /// Returns the modules that a module imports from, without its parent.
    pub fn used_by(&self, module: &Module) -> BTreeSet<Module> {
        let text = &self.code[module];
        let paths = imports(text).into_iter().chain(paths(text));
        let used = paths.filter_map(|path| self.resolve(&path, module, 0));
        used.filter(|other| other != module && !is_child(module, other))
            .collect()
    }

    /// Returns the module that defines a path, following re-exports.
    fn resolve(&self, path: &[String], here: &Module, depth: usize) -> Option<Module> {
        let (first, rest) = path.split_first()?;
        let (mut at, mut rest) = match first.as_str() {
            _ if depth > 8 => return None,
            "crate" => (Module::new(), rest),
            "self" => (here.clone(), rest),
            "super" => {
                let ups = path.iter().take_while(|part| *part == "super").count();
                let above = here.len().checked_sub(ups)?;
                (here[..above].to_vec(), &path[ups..])
            }
            _ if self.code.contains_key(&join(here, first)) => (here.clone(), path),
            _ => return None,
        };
        while let Some((next, after)) = rest.split_first() {
            let below = join(&at, next);
            if !self.code.contains_key(&below) {
                break;
            }
            (at, rest) = (below, after);
        }
        let Some((name, after)) = rest.split_first() else {
            return Some(at);
        };
        let target = self.reexports[&at].get(name).and_then(|target| {
            let path = [target.as_slice(), after].concat();
            self.resolve(&path, &at, depth + 1)
        });
        Some(target.unwrap_or(at))
    }
}

/// Returns the largest group of modules that reach each other.
fn largest_circle(imports: &Imports) -> Vec<String> {
    let modules: Vec<&Module> = imports.code.keys().collect();
    let used: BTreeMap<&Module, BTreeSet<Module>> = modules
        .iter()
        .map(|module| (*module, imports.used_by(module)))
        .collect();
    let reached = |start: &Module| {
        let mut reached: BTreeSet<Module> = BTreeSet::new();
        let mut open = vec![start.clone()];
        while let Some(module) = open.pop() {
            for next in &used[&module] {
                if reached.insert(next.clone()) {
                    open.push(next.clone());
                }
            }
        }
        reached
    };
    let reached: BTreeMap<&Module, BTreeSet<Module>> = modules
        .iter()
        .map(|module| (*module, reached(module)))
        .collect();
    let circle = |start: &Module| -> Vec<String> {
        let others = reached[start].iter();
        let mutual = others.filter(|other| reached[other].contains(start));
        mutual.map(|module| module.join("::")).collect()
    };
    let circles = modules.iter().map(|module| circle(module));
    circles.max_by_key(Vec::len).unwrap_or_default()
}

fn module(file: &Path) -> Module {
    let path = file.with_extension("");
    let parts = path.iter().map(|part| part.to_string_lossy().into_owned());
    let mut parts: Module = parts.collect();
    if matches!(
        parts.last().map(String::as_str),
        Some("mod" | "lib" | "main")
    ) {
        parts.pop();
    }
    parts
}

/// Returns a file without comments and unit tests.
fn code(file: &Path) -> String {
    let text = read(file);
    let end = ["\nmod tests {", "\npub(crate) mod tests {"]
        .iter()
        .filter_map(|tests| text.find(tests))
        .min();
    let lines = text[..end.unwrap_or(text.len())].lines();
    let lines = lines.filter(|line| !line.trim_start().starts_with("//"));
    lines.collect::<Vec<_>>().join("\n")
}

/// Returns the paths of `use` statements.
fn imports(text: &str) -> Vec<Vec<String>> {
    let statements = text.split("use ").skip(1).zip(text.split("use "));
    let statements = statements.filter(|(_, before)| {
        before.is_empty() || before.ends_with([' ', '\n']) // Not the end of another word.
    });
    let trees = statements.filter_map(|(after, _)| after.split_once(';'));
    trees.flat_map(|(tree, _)| expand(tree)).collect()
}

/// Returns the paths within code.
fn paths(text: &str) -> Vec<Vec<String>> {
    let is_path = |one: char| one.is_alphanumeric() || one == '_' || one == ':';
    let words = text.split(|one: char| !is_path(one));
    let paths = words.filter(|word| word.contains("::") && !word.ends_with("::"));
    paths
        .map(|path| path.split("::").map(str::to_owned).collect())
        .collect()
}

/// Returns the paths of a tree such as `a::{b, c::{d, e as f}}`.
fn expand(tree: &str) -> Vec<Vec<String>> {
    let Some((before, group)) = tree.split_once('{') else {
        let path = tree.split_whitespace().collect::<Vec<_>>().join(" ");
        return vec![
            path.split("::")
                .map(|part| part.trim().to_owned())
                .collect(),
        ];
    };
    let group = group.rsplit_once('}').map_or(group, |(inner, _)| inner);
    let (mut items, mut depth) = (vec![String::new()], 0);
    for letter in group.chars() {
        match letter {
            '{' => depth += 1,
            '}' => depth -= 1,
            _ => {}
        }
        match (letter, items.last_mut()) {
            (',', _) if depth == 0 => items.push(String::new()),
            (_, Some(item)) => item.push(letter),
            _ => {}
        }
    }
    let items = items.iter().filter(|item| !item.trim().is_empty());
    items
        .flat_map(|item| expand(&format!("{}{}", before.trim(), item.trim())))
        .collect()
}

fn join(module: &Module, name: &str) -> Module {
    [module.as_slice(), &[name.to_owned()]].concat()
}

fn is_child(one: &Module, parent: &Module) -> bool {
    one.split_last().is_some_and(|(_, above)| above == parent)
}

#[test]
fn imports_are_read_from_trees_and_paths() {
    let text = "use crate::{a::B, c::{self, D as E}};\nlet x = super::f::g(reuse x;);";
    let names = |paths: Vec<Vec<String>>| -> Vec<String> {
        paths.iter().map(|path| path.join("::")).collect()
    };
    assert_eq!(
        names(imports(text)),
        ["crate::a::B", "crate::c::self", "crate::c::D as E"]
    );
    assert!(names(paths(text)).contains(&"super::f::g".to_owned()));
}
