//! The report: raw rounds, settings and verdicts as JSON, and the table that is made from it.

mod archive;
mod circumstances;
mod figures;
mod markdown;
mod number;
mod wrap;

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

use crate::machine::Machine;
use crate::rounds::Run;
use crate::verdict::{Judgement, Verdict, Weight};

pub(crate) use archive::Archive;
pub(crate) use figures::figures as figures_of;
pub(crate) use markdown::{judgement_line, page};

/// Everything one invocation measured.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub(crate) struct Report {
    /// The version of this format.
    pub(crate) format: u32,
    pub(crate) started_at: String,
    pub(crate) finished_at: Option<String>,
    /// Whether it is a smoke run with small sizes, whose figures only prove that the bench runs.
    pub(crate) quick: bool,
    pub(crate) revision: Option<String>,
    pub(crate) machine: Machine,
    pub(crate) server: ServerFacts,
    pub(crate) taint_rule: String,
    pub(crate) bars: Vec<Bar>,
}

/// The server that all contestants used.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub(crate) struct ServerFacts {
    pub(crate) version: String,
    pub(crate) file_system: String,
    pub(crate) settings: BTreeMap<String, String>,
}

/// One bar: its contestants' runs and their verdicts.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub(crate) struct Bar {
    pub(crate) name: String,
    pub(crate) title: String,
    pub(crate) parameters: BTreeMap<String, String>,
    /// The number of clean rounds that the judgements need.
    pub(crate) rounds_wanted: u32,
    pub(crate) judgements: Vec<Judgement>,
    /// Missing contestants and other particulars of this run.
    #[serde(default)]
    pub(crate) notes: Vec<String>,
    /// The error that ended the measurement of the bar; such a bar is missed.
    pub(crate) failure: Option<String>,
    pub(crate) runs: Vec<Run>,
}

impl Bar {
    /// Creates a bar that has not been measured yet.
    pub(crate) fn new(name: &str, title: &str, rounds_wanted: u32) -> Self {
        Self {
            name: name.to_owned(),
            title: title.to_owned(),
            parameters: BTreeMap::new(),
            rounds_wanted,
            judgements: Vec::new(),
            notes: Vec::new(),
            failure: None,
            runs: Vec::new(),
        }
    }

    /// Records a size or setting of this bar.
    pub(crate) fn parameter(&mut self, name: &str, value: impl ToString) {
        self.parameters.insert(name.to_owned(), value.to_string());
    }

    /// Whether every requirement that must be passed was passed.
    pub(crate) fn passed(&self) -> bool {
        let required = || {
            self.judgements
                .iter()
                .filter(|judgement| judgement.weight == Weight::Bar)
        };
        self.failure.is_none()
            && required().count() > 0
            && required().all(|judgement| judgement.verdict == Verdict::Pass)
    }
}
