//! The reports, `docs/benchmarks/<date>.json`, which are never overwritten, and the page made from
//! them, `docs/why/benchmarks.md`.

use std::fs;
use std::path::{Path, PathBuf};

use anyhow::{Context, Result};

use super::{Report, page};

/// The folder of JSON reports and the generated page.
#[derive(Debug, Clone)]
pub(crate) struct Archive {
    docs: PathBuf,
}

impl Archive {
    /// An archive below a `docs` folder.
    pub(crate) fn below(docs: &Path) -> Self {
        Self {
            docs: docs.to_owned(),
        }
    }

    /// Returns a path that no report has yet. A smoke run has a separate name, so that it can
    /// neither replace a full report nor be mistaken for one.
    pub(crate) fn vacant(&self, date: &str, quick: bool) -> Result<PathBuf> {
        let folder = self.reports();
        fs::create_dir_all(&folder)
            .with_context(|| format!("cannot create {}", folder.display()))?;
        let stem = if quick {
            format!("quick-{date}")
        } else {
            date.to_owned()
        };
        let names = std::iter::once(format!("{stem}.json"))
            .chain((2..).map(|count| format!("{stem}-{count}.json")));
        names
            .map(|name| folder.join(name))
            .find(|path| !path.exists())
            .context("there is always another number")
    }

    /// Writes a report atomically, so that an interrupted run leaves the bars that were finished.
    pub(crate) fn write(path: &Path, report: &Report) -> Result<()> {
        let mut text = serde_json::to_string_pretty(report)?;
        text.push('\n');
        replace(path, &text)
    }

    /// Generates the page from all full reports, newest last; returns its path.
    pub(crate) fn write_page(&self) -> Result<PathBuf> {
        let folder = self.docs.join("why");
        fs::create_dir_all(&folder)
            .with_context(|| format!("cannot create {}", folder.display()))?;
        let path = folder.join("benchmarks.md");
        replace(&path, &page(&self.full_reports()?))?;
        Ok(path)
    }

    fn full_reports(&self) -> Result<Vec<(String, Report)>> {
        let mut reports = Vec::new();
        for entry in fs::read_dir(self.reports())? {
            let path = entry?.path();
            let Some(name) = path.file_name().and_then(|name| name.to_str()) else {
                continue;
            };
            if path.extension().is_none_or(|extension| extension != "json") {
                continue;
            }
            let text = fs::read_to_string(&path)?;
            let report: Report = serde_json::from_str(&text)
                .with_context(|| format!("{} is not a report", path.display()))?;
            if !report.quick {
                reports.push((name.to_owned(), report));
            }
        }
        reports.sort_by(|(_, one), (_, other)| one.started_at.cmp(&other.started_at));
        Ok(reports)
    }

    fn reports(&self) -> PathBuf {
        self.docs.join("benchmarks")
    }
}

fn replace(path: &Path, text: &str) -> Result<()> {
    let draft = path.with_extension("draft");
    fs::write(&draft, text).with_context(|| format!("cannot write {}", draft.display()))?;
    fs::rename(&draft, path)?;
    Ok(())
}

#[cfg(test)]
mod tests {
    use std::fs;
    use std::path::Path;

    use super::Archive;
    use crate::report::markdown::tests::sample;

    struct Folder(std::path::PathBuf);

    impl Folder {
        fn new(name: &str) -> std::io::Result<Self> {
            let path =
                std::env::temp_dir().join(format!("posthaste-bench-{name}-{}", std::process::id()));
            fs::create_dir_all(&path)?;
            Ok(Self(path))
        }
    }

    impl Drop for Folder {
        fn drop(&mut self) {
            let _ = fs::remove_dir_all(&self.0);
        }
    }

    #[test]
    fn a_second_report_of_a_day_gets_a_number_and_the_first_stays() -> anyhow::Result<()> {
        let folder = Folder::new("second")?;
        let archive = Archive::below(&folder.0);
        let first = archive.vacant("2026-11-21", false)?;
        Archive::write(&first, &sample())?;
        assert!(first.ends_with("benchmarks/2026-11-21.json"));
        assert!(
            archive
                .vacant("2026-11-21", false)?
                .ends_with("benchmarks/2026-11-21-2.json")
        );
        Ok(())
    }

    #[test]
    fn a_smoke_run_never_reaches_the_page() -> anyhow::Result<()> {
        let folder = Folder::new("smoke")?;
        let archive = Archive::below(&folder.0);
        Archive::write(&archive.vacant("2026-11-20", false)?, &sample())?;
        let quick = archive.vacant("2026-11-21", true)?;
        assert!(quick.ends_with("benchmarks/quick-2026-11-21.json"));
        let mut smoke = sample();
        smoke.quick = true;
        smoke.started_at = "2026-11-21T00:00:00Z".to_owned();
        Archive::write(&quick, &smoke)?;
        let text = fs::read_to_string(archive.write_page()?)?;
        assert!(text.contains("2026-11-20.json") && !text.contains("quick"));
        Ok(())
    }

    #[test]
    fn reports_round_trip() -> anyhow::Result<()> {
        let text = serde_json::to_string(&sample())?;
        assert_eq!(
            serde_json::from_str::<crate::report::Report>(&text)?,
            sample()
        );
        Ok(())
    }

    #[test]
    fn the_page_matches_the_reports() -> anyhow::Result<()> {
        let docs = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs");
        let reports = Archive::below(&docs).full_reports()?;
        assert!(
            crate::report::page(&reports) == fs::read_to_string(docs.join("why/benchmarks.md"))?,
            "make it again: posthaste-bench report"
        );
        let runs = |bar: &str| {
            let bars = reports.iter().flat_map(|(_, report)| &report.bars);
            let of_it = bars.filter(|one| one.name == bar).collect::<Vec<_>>();
            of_it.into_iter().flat_map(|one| one.runs.clone())
        };
        for bar in crate::bars::ORDER {
            for (figure, _) in crate::bars::figures(bar) {
                let is_there = runs(bar).any(|run| run.figures.contains_key(*figure));
                assert!(is_there, "no report has {figure} of {bar}");
            }
        }
        Ok(())
    }
}
