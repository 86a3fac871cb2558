//! The scripts on the server, and their variants without one of the rules.

use posthaste_elastic::two_phase::{Fence, Request, Response, State};

use super::document::{Doc, FRESH, Ledger};

/// An omitted rule.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Omission {
    /// R3: a hold is accepted with any mark.
    NoMarks,
    /// R3: the marks are read after the transaction is known to be pending.
    LateLook,
    /// R3: the transaction is not confirmed as pending.
    NoBegin,
    /// R3: it is confirmed by a read.
    ReadBegin,
    /// R3: marks are counters, not random.
    CountedMarks,
    /// R4: an undo that finds nothing writes nothing.
    SilentUndo,
    /// R4: a settle that finds nothing writes nothing.
    SilentSettle,
    /// R5: an existing hold counts without a write.
    HeldCounts,
    /// R6: a decision that was read counts as acknowledged.
    NoConfirm,
    /// Several open transactions may set one document.
    SharedSet,
    /// Amounts that other transactions reserved may be spent.
    SpendReserved,
    /// The published scripts.
    Published,
    /// A transaction is deleted while a process may still create it.
    EarlyPrune,
}

/// The result of a script: the state, the answer, and whether it wrote. An isolated primary also
/// gives answers that need no write.
pub struct ScriptRun<T> {
    pub left: T,
    pub answer: Response,
    pub wrote: bool,
}

impl<T> ScriptRun<T> {
    fn law((left, answer): (T, Response)) -> Self {
        Self {
            left,
            answer,
            wrote: answer == Response::Acknowledged,
        }
    }

    fn silent(left: T, answer: Response) -> Self {
        Self {
            left,
            answer,
            wrote: false,
        }
    }
}

/// Runs a script on a transaction.
pub fn on_transaction(state: Option<State>, request: Request) -> ScriptRun<Option<State>> {
    let is_there = |from: State| state == Some(from);
    ScriptRun::law(match request {
        Request::Create if state.is_none() => (Some(State::Pending), Response::Acknowledged),
        Request::Advance(from, event) if is_there(from) => {
            (from.next(event).ok(), Response::Acknowledged)
        }
        Request::Touch(of) if is_there(of) => (state, Response::Acknowledged),
        _ => (state, Response::Elsewhere),
    })
}

/// Runs a transaction's script on a document.
pub fn on_document(
    book: &Ledger,
    omission: Option<Omission>,
    at: usize,
    doc: Doc,
    t: usize,
    request: Request,
) -> ScriptRun<Doc> {
    let lawful = |request| ScriptRun::law(book.run(at, doc, t, request));
    let unchecked_hold = |fits: bool, mark: Fence| {
        let mut left = doc;
        let takes = doc.held[t] || fits && mark.0 == doc.marks[t];
        left.held[t] |= takes;
        match takes {
            true => ScriptRun::law((left, Response::Acknowledged)),
            false => ScriptRun::silent(doc, Response::Elsewhere),
        }
    };
    match (omission, request) {
        (Some(Omission::Published), _) => published(doc, t, request),
        (Some(Omission::NoMarks), Request::Hold(effect, _)) => {
            lawful(Request::Hold(effect, Fence(doc.marks[t])))
        }
        (Some(Omission::HeldCounts), Request::Hold(..)) if doc.held[t] => {
            ScriptRun::silent(doc, Response::Acknowledged)
        }
        (Some(Omission::SilentUndo), Request::Undo(_)) if !doc.held[t] => {
            ScriptRun::silent(doc, Response::Acknowledged)
        }
        (Some(Omission::SilentSettle), Request::Settle(_)) if !doc.held[t] => {
            ScriptRun::silent(doc, Response::Acknowledged)
        }
        (Some(Omission::CountedMarks), Request::Settle(_) | Request::Undo(_)) => {
            let mut ran = lawful(request);
            for (mark, old) in ran.left.marks.iter_mut().zip(doc.marks) {
                *mark = if *mark == FRESH { old + 1 } else { *mark };
            }
            ran
        }
        (Some(Omission::SharedSet), Request::Hold(_, mark)) => unchecked_hold(true, mark),
        (Some(Omission::SpendReserved), Request::Hold(_, mark)) => {
            let add = book.effect(t, at).map_or(0, |effect| effect.add);
            unchecked_hold(book.unpack(at, doc).balance + add >= 0, mark)
        }
        _ => lawful(request),
    }
}

/// Runs a published script: the balance changes with the hold, and a script with nothing to do
/// answers "noop", which counts.
fn published(doc: Doc, t: usize, request: Request) -> ScriptRun<Doc> {
    let mut left = doc;
    match request {
        Request::Hold(..) if !doc.held[t] => left.settled[t] += 1,
        Request::Undo(_) if doc.held[t] => left.settled[t] -= 1,
        _ => {}
    }
    left.held[t] = matches!(request, Request::Hold(..));
    match left.held == doc.held {
        true => ScriptRun::silent(doc, Response::Elsewhere),
        false => ScriptRun::law((left, Response::Acknowledged)),
    }
}
