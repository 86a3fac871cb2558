//! A run: rounds one after the other. The result is on disk after each, so that an interrupted run
//! continues with the missing rounds.

use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context, bail};
use serde::{Deserialize, Serialize};

use crate::plan::Plan;
use crate::round::{self, Environment, Round};

/// The state of a run.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct State {
    /// The plan.
    pub plan: Plan,
    /// The tested commit.
    pub commit: String,
    /// The completed rounds.
    pub rounds: Vec<Round>,
}

impl State {
    /// Continues the run of this folder, or begins one. Refuses a plan that differs from the
    /// current run's; the seed is that of the run.
    pub fn resume(folder: &Path, mut plan: Plan, commit: &str) -> anyhow::Result<Self> {
        let begun = match std::fs::read(file(folder)) {
            Ok(text) => Some(serde_json::from_slice::<Self>(&text)?),
            Err(_) => None,
        };
        let Some(begun) = begun else {
            return Ok(Self {
                plan,
                commit: commit.to_owned(),
                rounds: Vec::new(),
            });
        };
        plan.seed = begun.plan.seed;
        if plan != begun.plan || begun.commit != commit {
            bail!(
                "another run is under way in {}: finish it as it was begun, or forget it (--fresh)",
                folder.display()
            );
        }
        Ok(begun)
    }

    /// The number of rounds that are left.
    pub fn missing(&self) -> usize {
        self.plan.rounds.len() - self.rounds.len()
    }

    /// Runs the next round. Keeps its logs if it found something.
    pub async fn next(&mut self, folder: &Path, program: &Path) -> anyhow::Result<&Round> {
        let number = self.rounds.len();
        let plan = self.plan.rounds.get(number).context("no round is left")?;
        let environment = Environment {
            folder: folder.join(format!("round-{}", number + 1)),
            program: program.to_owned(),
        };
        let seed = self.plan.seed.wrapping_add(number as u64);
        let round = round::play(&environment, plan, seed, None).await?;
        if round.is_clean() {
            std::fs::remove_dir_all(&environment.folder)?;
        }
        self.rounds.push(round);
        self.save(folder)?;
        self.rounds.last().context("the round")
    }

    fn save(&self, folder: &Path) -> anyhow::Result<()> {
        let new = folder.join("state.new");
        std::fs::write(&new, serde_json::to_vec(self)?)?;
        Ok(std::fs::rename(new, file(folder))?)
    }

    /// Deletes the state of a run that is complete or no longer wanted.
    pub fn forget(folder: &Path) -> anyhow::Result<()> {
        match std::fs::remove_file(file(folder)) {
            Err(error) if error.kind() != std::io::ErrorKind::NotFound => Err(error.into()),
            _ => Ok(()),
        }
    }
}

fn file(folder: &Path) -> PathBuf {
    folder.join("state.json")
}

/// The tested commit, according to git.
pub fn commit() -> String {
    let here = Path::new(env!("CARGO_MANIFEST_DIR"));
    let output = Command::new("git")
        .args(["describe", "--always", "--dirty", "--abbrev=12"])
        .current_dir(here)
        .output();
    output
        .ok()
        .filter(|output| output.status.success())
        .and_then(|output| String::from_utf8(output.stdout).ok())
        .map_or_else(|| "unknown".into(), |text| text.trim().to_owned())
}
