//! Where, when and on which server reports were measured.

use std::collections::BTreeSet;
use std::fmt::Write as _;

use super::Report;
use super::markdown::link;
use super::wrap::wrapped;

/// Where and when the reports were measured; what several of them share stands there once.
pub(super) fn circumstances(text: &mut String, reports: &[&(String, Report)]) {
    text.push_str(
        "\n## How it was measured\n\n| report | machine | revision | from | to |\n|---|---|---|---|---|\n",
    );
    for (file, report) in reports {
        let machine = &report.machine;
        let _ = writeln!(
            text,
            "| {} | {} cores ({}), {} GiB, kernel {}, data on {}, nice {} | {} | {} | {} |",
            link(file),
            machine.cores,
            machine.processor,
            machine.memory_bytes >> 30,
            machine.kernel,
            report.server.file_system,
            machine.nice,
            report.revision.as_deref().unwrap_or("unknown"),
            moment(&report.started_at),
            report.finished_at.as_deref().map_or("interrupted", moment),
        );
    }
    let servers: BTreeSet<String> = reports.iter().map(|(_, report)| server(report)).collect();
    let rules: BTreeSet<&str> = reports
        .iter()
        .map(|(_, report)| report.taint_rule.as_str())
        .collect();
    text.push('\n');
    for told in servers.iter().map(String::as_str).chain(rules) {
        let _ = writeln!(text, "{}", wrapped(&format!("- {told}"), "  "));
    }
}

fn server(report: &Report) -> String {
    let settings: Vec<String> = report
        .server
        .settings
        .iter()
        .map(|(name, value)| format!("{name} = {value}"))
        .collect();
    format!(
        "PostgreSQL {}: {}",
        report.server.version,
        settings.join(", ")
    )
}

/// A time without what is smaller than a minute.
fn moment(text: &str) -> &str {
    text.get(..16).unwrap_or(text)
}
