//! Each alert and each finding leads to what to do.

use std::collections::BTreeSet;

use super::{files, read, root};

/// Lower case, blanks to lines, and nothing else that is no letter: as pages name their headings.
fn anchor(heading: &str) -> String {
    let kept = |letter: &char| letter.is_alphanumeric() || "_- ".contains(*letter);
    let name: String = heading.to_lowercase().chars().filter(kept).collect();
    name.replace(' ', "-")
}

fn headings(page: &str, level: &str) -> Vec<String> {
    let page = read(&root().join(page));
    let lines = page.lines().filter_map(|line| line.strip_prefix(level));
    lines.map(|heading| anchor(heading.trim())).collect()
}

/// The words for programs in the code of the doctor: first arguments of `wrong(` and `hint(`.
fn findings() -> BTreeSet<String> {
    let folder = "crates/posthaste-cli/src/commands/doctor";
    let mut found = BTreeSet::new();
    for file in files(folder, &["rs"]) {
        let text = read(&file);
        let code = text
            .split("#[cfg(test)]\nmod tests {")
            .next()
            .unwrap_or_default();
        for call in ["wrong(", "hint("] {
            for (at, _) in code.match_indices(call) {
                let rest = code[at + call.len()..].trim_start();
                let word = rest
                    .strip_prefix('"')
                    .and_then(|rest| rest.split('"').next());
                // Else it is where the function is made.
                let is_made = rest.starts_with("about:");
                assert!(word.is_some() || is_made, "{}: {rest:.60}", file.display());
                found.extend(word.map(str::to_owned));
            }
        }
    }
    found
}

#[test]
fn every_finding_of_the_doctor_has_a_runbook() {
    let findings = findings();
    assert!(findings.len() > 20, "{findings:?}");
    let sections = headings("docs/operate/doctor.md", "### ");
    let runbooks: BTreeSet<String> = sections.iter().cloned().collect();
    assert_eq!(sections.len(), runbooks.len(), "one stands there twice");
    assert_eq!(findings, runbooks, "found, and docs/operate/doctor.md");
}

#[test]
fn every_alert_names_a_runbook_of_its_own() {
    let rules = read(&root().join("docs/operate/prometheus/posthaste.rules.yml"));
    let headings = headings("docs/operate/runbooks.md", "## ");
    let mut seen = BTreeSet::new();
    let alerts: Vec<&str> = rules.split("- alert: ").skip(1).collect();
    assert!(alerts.len() > 3, "{rules}");
    for alert in alerts {
        let name = alert.lines().next().unwrap_or_default();
        let runbook = alert.split_once("runbook: docs/operate/runbooks.md#");
        let (_, rest) = runbook.unwrap_or_else(|| panic!("{name} has no runbook"));
        let anchor = rest.lines().next().unwrap_or_default().to_owned();
        assert!(headings.contains(&anchor), "{name}: no section {anchor}");
        assert!(seen.insert(anchor), "{name} has that of another alert");
        let page = read(&root().join("docs/operate/runbooks.md"));
        assert!(
            page.contains(&format!("`{name}`")),
            "no section says {name}"
        );
    }
}
