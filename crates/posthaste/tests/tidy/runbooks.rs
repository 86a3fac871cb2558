//! Each alert and each finding links to its remedy.

use std::collections::BTreeSet;

use super::{read, root};

/// Returns the anchor of a heading: lower case, blanks become hyphens, and other punctuation is
/// removed.
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

/// Returns the ids of findings, their levels and their meanings, as posthaste-observe declares
/// them.
fn findings() -> Vec<(String, String, String)> {
    let text = read(&root().join("crates/posthaste-observe/src/finding.rs"));
    let (_, kinds) = text.split_once("\nkinds! {\n").unwrap();
    let (kinds, _) = kinds.split_once("\n}\n").unwrap();
    let parts: Vec<&str> = kinds.split('"').collect();
    let kinds = parts.chunks_exact(6);
    let read = |kind: &[&str]| {
        let level = kind[2].trim().to_lowercase();
        (kind[1].to_owned(), level, kind[5].to_owned())
    };
    kinds.map(read).collect()
}

#[test]
fn every_finding_has_a_section_with_level_and_meaning() {
    let page = read(&root().join("docs/operate/doctor.md"));
    let findings = findings();
    assert!(findings.len() > 40, "{findings:?}");
    let sections = page.lines().filter_map(|line| line.strip_prefix("### "));
    let sections: Vec<&str> = sections.collect();
    let unique: BTreeSet<&str> = sections.iter().copied().collect();
    assert_eq!(sections.len(), unique.len(), "a section appears twice");
    let ids: BTreeSet<&str> = findings.iter().map(|(id, ..)| id.as_str()).collect();
    assert_eq!(ids, unique, "found, and docs/operate/doctor.md");
    let expected = findings
        .iter()
        .map(|(id, level, meaning)| format!("\n### {id}\n\n**{level}**: {meaning}\n"));
    let missing: Vec<String> = expected.filter(|begin| !page.contains(begin)).collect();
    assert!(
        missing.is_empty(),
        "docs/operate/doctor.md lacks:{}",
        missing.concat()
    );
}

#[test]
fn every_alert_links_a_runbook() {
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
