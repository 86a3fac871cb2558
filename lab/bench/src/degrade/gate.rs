//! Checks the bounds of an algorithm: on growth within one run, never on milliseconds, so that the
//! result does not depend on the machine.

use serde::{Deserialize, Serialize};

use super::figures::{Change, Figures, shown};
use super::run::Outcome;
use super::scenario::Limits;

/// The greatest delay of a producer in seconds; a later one has not offered the load.
const LATEST: f64 = 10.0;

/// The share of tainted samples above which a run proves nothing about time.
const MOST_TAINTED: f64 = 0.5;

/// The result for one bound.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub(crate) struct Judgement {
    pub(crate) algorithm: String,
    pub(crate) bound: String,
    pub(crate) verdict: Verdict,
    /// The figure and the bound, or the reason why there is no figure.
    pub(crate) reason: String,
}

/// Results in ascending order of precedence: one broken bound breaks the gate.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(crate) enum Verdict {
    Kept,
    Undecided,
    Broken,
}

impl Verdict {
    /// The exit code of the process.
    pub(crate) fn exit_code(self) -> u8 {
        match self {
            Self::Kept => 0,
            Self::Broken => 1,
            Self::Undecided => 2,
        }
    }

    fn word(self) -> &'static str {
        match self {
            Self::Kept => "kept",
            Self::Broken => "BROKEN",
            Self::Undecided => "cannot be judged",
        }
    }
}

impl Judgement {
    /// The result in one line for the terminal.
    pub(crate) fn line(&self) -> String {
        let Self {
            algorithm,
            bound,
            verdict,
            reason,
        } = self;
        format!("{algorithm}: {bound} {}: {reason}", verdict.word())
    }
}

/// The result over all bounds; undecided without a bound.
pub(crate) fn overall(judgements: &[Judgement]) -> Verdict {
    let verdicts = judgements.iter().map(|judgement| judgement.verdict);
    verdicts.max().unwrap_or(Verdict::Undecided)
}

/// Judges one run.
pub(crate) fn judge(
    outcome: &Outcome,
    figures: Option<&Figures>,
    limits: Limits,
) -> Vec<Judgement> {
    let name = &outcome.algorithm;
    let answer = |bound: &str, verdict, reason: String| Judgement {
        algorithm: name.clone(),
        bound: bound.to_owned(),
        verdict,
        reason,
    };
    let mut all = Vec::new();
    if outcome.lost > 0 {
        let lost = format!("{} jobs are lost", outcome.lost);
        all.push(answer("every job", Verdict::Broken, lost));
    }
    let figures = match (unusable(outcome, figures), figures) {
        (None, Some(figures)) => figures,
        (reason, _) => {
            let reason = reason.unwrap_or_else(|| "nothing held the horizon".to_owned());
            all.push(answer("the run", Verdict::Undecided, reason));
            return all;
        }
    };
    let mut add = |bound, judged: Option<(Verdict, String)>| {
        all.extend(judged.map(|(verdict, reason)| answer(bound, verdict, reason)));
    };
    add(
        "claim_blocks",
        factor(figures.claim_blocks, limits.claim_blocks),
    );
    add("dead_tuples", growth(figures.dead, limits.dead_tuples));
    let timed = |judged: Option<(Verdict, String)>| {
        let (verdict, reason) = judged?;
        if figures.tainted <= MOST_TAINTED {
            return Some((verdict, reason));
        }
        let share = figures.tainted * 100.0;
        let tainted = format!("the machine did much else in {share:.0} % of the samples");
        Some((Verdict::Undecided, format!("{reason}, but {tainted}")))
    };
    add(
        "claim_p50",
        timed(factor(figures.claim_p50_ms, limits.claim_p50)),
    );
    add("queue", timed(growth(figures.waiting, limits.queue)));
    let within = limits.recovers_within.map(|span| span.0.as_secs_f64());
    add("recovers_within", timed(recovery(figures, within)));
    all
}

/// The reason why a run proves nothing at all.
fn unusable(outcome: &Outcome, figures: Option<&Figures>) -> Option<String> {
    if let Some(failure) = &outcome.failure {
        return Some(failure.clone());
    }
    if let Some(reason) = outcome.holds.iter().find_map(|hold| hold.let_go.as_ref()) {
        return Some(format!("a holder let go: {reason}"));
    }
    let late = figures.map_or(0.0, |figures| figures.late_s);
    (late > LATEST).then(|| format!("the producer fell behind by {late:.0} s"))
}

fn factor(change: Change, most: Option<f64>) -> Option<(Verdict, String)> {
    let most = most?;
    Some(match change.factor() {
        None => (Verdict::Undecided, "not measured".to_owned()),
        Some(factor) => {
            let (before, under) = (shown(change.before), shown(change.under));
            let said = format!("{before} became {under}, {factor:.2} times; at most {most}");
            (at_most(factor, most), said)
        }
    })
}

fn growth(change: Change, most: Option<f64>) -> Option<(Verdict, String)> {
    let most = most?;
    Some(match change.growth() {
        None => (Verdict::Undecided, "not measured".to_owned()),
        Some(growth) => {
            let (before, under) = (shown(change.before), shown(change.under));
            let said = format!("{before} became {under}; at most {most} more");
            (at_most(growth, most), said)
        }
    })
}

fn recovery(figures: &Figures, within: Option<f64>) -> Option<(Verdict, String)> {
    let within = within?;
    let watched = figures.watched_s;
    Some(match figures.recovered_s {
        Some(taken) => (
            at_most(taken, within),
            format!("in {taken:.1} s; at most {within:.1}"),
        ),
        None if watched >= within => (
            Verdict::Broken,
            format!("not in {watched:.1} s; at most {within:.1}"),
        ),
        None => (
            Verdict::Undecided,
            format!("watched for {watched:.1} s alone, of {within:.1}"),
        ),
    })
}

fn at_most(figure: f64, most: f64) -> Verdict {
    if figure <= most {
        Verdict::Kept
    } else {
        Verdict::Broken
    }
}

#[cfg(test)]
mod tests {
    use super::{Judgement, Verdict, judge, overall};
    use crate::degrade::figures::Figures;
    use crate::degrade::figures::tests::run;
    use crate::degrade::run::Outcome;
    use crate::degrade::scenario::Limits;
    use crate::degrade::span::Span;

    const LIMITS: Limits = Limits {
        claim_blocks: Some(1.5),
        claim_p50: Some(2.0),
        queue: Some(100.0),
        dead_tuples: Some(0.0),
        recovers_within: Some(Span::seconds(5)),
    };

    fn judged(outcome: &Outcome) -> Vec<Judgement> {
        judge(outcome, Figures::read(outcome, 100).as_ref(), LIMITS)
    }

    fn verdict(all: &[Judgement], bound: &str) -> Option<Verdict> {
        let found = all.iter().find(|judgement| judgement.bound == bound);
        found.map(|judgement| judgement.verdict)
    }

    #[test]
    fn steady_runs_keep_all_bounds() {
        let all = judged(&run(|_, _| {}));
        assert_eq!(all.len(), 5);
        assert_eq!(overall(&all).exit_code(), 0);
    }

    #[test]
    fn each_bound_is_broken_by_its_figure() {
        type Change = fn(&mut crate::degrade::sample::Sample);
        let cases: [(&str, Change); 5] = [
            ("claim_blocks", |sample| sample.claim_blocks = Some(16.0)),
            ("claim_p50", |sample| sample.claim_p50_ms = Some(2.1)),
            ("queue", |sample| sample.waiting = 101),
            ("dead_tuples", |sample| sample.dead = 1),
            ("recovers_within", |sample| sample.waiting = 1),
        ];
        for (bound, change) in cases {
            // Growth after the hold breaks only the last bound.
            let from = if bound == "recovers_within" {
                80.0
            } else {
                20.0
            };
            let until = if bound == "recovers_within" {
                86.0
            } else {
                80.0
            };
            let all = judged(&run(|at, sample| {
                if (from..until).contains(&at) {
                    change(sample);
                }
            }));
            let broken = all.iter().filter(|one| one.verdict == Verdict::Broken);
            let broken: Vec<&str> = broken.map(|one| one.bound.as_str()).collect();
            assert_eq!(broken, [bound]);
            assert_eq!(overall(&all).exit_code(), 1);
        }
    }

    #[test]
    fn other_work_of_the_machine_leaves_blocks_and_rows_to_be_judged() {
        let all = judged(&run(|_, sample| {
            sample.tainted = true;
            sample.claim_blocks = Some(10.0);
        }));
        assert_eq!(verdict(&all, "claim_blocks"), Some(Verdict::Kept));
        assert_eq!(verdict(&all, "dead_tuples"), Some(Verdict::Kept));
        for timed in ["claim_p50", "queue", "recovers_within"] {
            assert_eq!(verdict(&all, timed), Some(Verdict::Undecided), "{timed}");
        }
        assert_eq!(overall(&all).exit_code(), 2);
    }

    #[test]
    fn runs_that_deviate_from_the_plan_are_not_judged() {
        let mut let_go = run(|_, _| {});
        let_go.holds[0].let_go = Some("gone".to_owned());
        let mut failed = run(|_, _| {});
        failed.failure = Some("a worker has ended".to_owned());
        let late = run(|_, sample| sample.late_s = 11.0);
        let mut free = run(|_, _| {});
        free.holds.clear();
        for outcome in [let_go, failed, late, free] {
            assert_eq!(overall(&judged(&outcome)), Verdict::Undecided);
        }
        assert_eq!(overall(&[]), Verdict::Undecided);
    }

    #[test]
    fn lost_jobs_always_break_the_gate() {
        let mut lost = run(|_, _| {});
        lost.lost = 2;
        lost.failure = Some("a worker has ended".to_owned());
        assert_eq!(overall(&judged(&lost)).exit_code(), 1);
    }
}
