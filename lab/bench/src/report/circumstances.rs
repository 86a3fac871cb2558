//! The machine, revision and server of the reports.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Write as _;

use super::Report;
use super::markdown::link;
use super::wrap::wrapped;

/// Settings that determine the speed of a server; others are in the reports.
const OF_SPEED: [&str; 12] = [
    "autovacuum",
    "autovacuum_naptime",
    "checkpoint_timeout",
    "fsync",
    "full_page_writes",
    "jit",
    "maintenance_work_mem",
    "max_wal_size",
    "min_wal_size",
    "shared_buffers",
    "synchronous_commit",
    "work_mem",
];

/// Describes the machines and servers of the reports; those that several share are described once.
pub(super) fn circumstances(text: &mut String, reports: &[&(String, Report)]) {
    text.push_str("\n## How it was measured\n\n");
    let mut machines: BTreeMap<String, Vec<String>> = BTreeMap::new();
    for (file, report) in reports {
        let interrupted = if report.finished_at.is_none() {
            ", interrupted"
        } else {
            ""
        };
        let revision = report.revision.as_deref().unwrap_or("unknown");
        machines
            .entry(machine(report))
            .or_default()
            .push(format!("{} ({revision}{interrupted})", link(file)));
    }
    let machines = machines
        .iter()
        .map(|(machine, files)| format!("{machine}: {}", files.join(", ")));
    let servers: BTreeSet<String> = reports.iter().map(|(_, report)| server(report)).collect();
    let rules: BTreeSet<String> = reports
        .iter()
        .map(|(_, report)| report.taint_rule.clone())
        .collect();
    for told in machines.chain(servers).chain(rules) {
        let _ = writeln!(text, "{}", wrapped(&format!("- {told}"), "  "));
    }
}

fn machine(report: &Report) -> String {
    let machine = &report.machine;
    format!(
        "{} cores ({}), {} GiB, kernel {}, data on {}, nice {}",
        machine.cores,
        machine.processor,
        machine.memory_bytes >> 30,
        machine.kernel,
        report.server.file_system,
        machine.nice,
    )
}

fn server(report: &Report) -> String {
    let settings: Vec<String> = report
        .server
        .settings
        .iter()
        .filter(|(name, _)| OF_SPEED.contains(&name.as_str()))
        .map(|(name, value)| format!("{name} = {value}"))
        .collect();
    format!(
        "PostgreSQL {}: {}",
        report.server.version,
        settings.join(", ")
    )
}
