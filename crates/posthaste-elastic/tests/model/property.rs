//! The properties that must hold in every state of the model.

use std::cell::RefCell;
use std::collections::HashMap;

use posthaste_elastic::two_phase::{Fence, Progress, Request, Response, State};
use stateright::Property;

use super::document::{Doc, FRESH};
use super::machine::{Goal, Machine};
use super::scripts::{Omission, on_document, on_transaction};
use super::system::{System, World};

pub const MONEY: &str = "a document has what was committed, once";
pub const NOTHING: &str = "what was not committed moved nothing";
pub const FUNDS: &str = "nothing is spent that is not there";
pub const TOGETHER: &str = "documents that are set together agree";
pub const TRUTH: &str = "what an executor says of an end is so";
pub const ENDS: &str = "an undisturbed executor finishes";

pub fn all(system: &System) -> Vec<Property<System>> {
    let mut all = vec![
        Property::always(MONEY, |system: &System, world: &World| {
            let is_published = system.plan.omission == Some(Omission::Published);
            effects(system, world).all(|(state, held, settled)| match state {
                Some(State::Committed) if is_published => settled == 1,
                Some(State::Committed) => held == (settled == 0) && (0..=1).contains(&settled),
                Some(State::Finished) => !held && settled == 1,
                _ => true,
            })
        }),
        Property::always(NOTHING, |system: &System, world: &World| {
            let is_published = system.plan.omission == Some(Omission::Published);
            effects(system, world).all(|(state, held, settled)| match state {
                None | Some(State::Created | State::RolledBack) => !held && settled == 0,
                Some(State::Pending | State::Terminating) if is_published => {
                    settled == i8::from(held)
                }
                Some(State::Pending | State::Terminating) => settled == 0,
                _ => true,
            })
        }),
        Property::always(FUNDS, |system: &System, world: &World| {
            let is_published = system.plan.omission == Some(Omission::Published);
            let mut documents = world.documents.iter().enumerate();
            documents.all(|(at, cell)| match is_published {
                true => system.book.funds(at, cell.durable).balance >= 0,
                false => system.book.funds(at, cell.durable).available >= 0,
            })
        }),
        Property::always(TOGETHER, |_, world: &World| {
            let ended = |t| world.state(t).is_some_and(State::is_final);
            let open = !(0..world.transactions.len()).all(ended);
            let mut setters = world.documents.iter().map(|cell| cell.durable.set_by);
            let first = setters.next();
            open || setters.all(|by| Some(by) == first)
        }),
        Property::always(TRUTH, |_, world: &World| !world.lied),
        Property::always(ENDS, |system, world: &World| {
            let transactions: Vec<_> = world.transactions.iter().map(|t| t.durable).collect();
            let documents = world.documents.iter().map(|d| d.durable).collect();
            finishes(system, transactions, documents)
        }),
    ];
    if system.plan.omission.is_none() {
        // Without this, the properties above could hold because nothing happens.
        all.push(Property::sometimes(
            "something can be finished",
            |_, world: &World| {
                let mut transactions = world.transactions.iter();
                transactions.any(|transaction| transaction.durable == Some(State::Finished))
            },
        ));
    }
    all
}

/// Returns for each effect the state of its transaction, whether its document holds it, and how
/// often it was settled there.
fn effects<'a>(
    system: &'a System,
    world: &'a World,
) -> impl Iterator<Item = (Option<State>, bool, i8)> + 'a {
    (0..world.transactions.len()).flat_map(move |t| {
        let effects = 0..system.plan.transactions[t].effects().len();
        effects.map(move |effect| {
            let doc = world.documents[system.book.document(t, effect)].durable;
            (world.state(t), doc.held[t], doc.settled[t])
        })
    })
}

type Left = (Vec<Option<State>>, Vec<Doc>);

thread_local! {
    static KNOWN: RefCell<HashMap<(usize, Left), bool>> = RefCell::default();
}

/// Whether an undisturbed executor ends each transaction, starting from the durable states.
fn finishes(system: &System, transactions: Vec<Option<State>>, documents: Vec<Doc>) -> bool {
    let key = (system.book.number, (transactions, documents));
    if let Some(known) = KNOWN.with_borrow(|known| known.get(&key).copied()) {
        return known;
    }
    let mut left = key.1.clone();
    let all = (0..left.0.len()).all(|t| left.0[t].is_none() || finish(system, &mut left, t));
    KNOWN.with_borrow_mut(|known| known.insert(key, all));
    all
}

fn finish(system: &System, left: &mut Left, t: usize) -> bool {
    let mut machine = system.machine(t, Goal::Resume);
    if system.plan.omission == Some(Omission::Published) {
        machine = system.machine(t, Goal::SeedResume);
    }
    // Each refusal makes the executor start over; there are few refusals.
    for _ in 0..64 {
        let answers: Vec<Response> = ask(system, left, t, &machine);
        if let Progress::Ended(state) = machine.apply_answers(&answers) {
            return left.0[t] == Some(state);
        }
    }
    false
}

fn ask(system: &System, left: &mut Left, t: usize, machine: &Machine) -> Vec<Response> {
    let answer = |request: Request| {
        let effect = match request {
            Request::Read => return Response::State(left.0[t]),
            Request::Create | Request::Advance(..) | Request::Touch(_) => {
                let ran = on_transaction(left.0[t], request);
                left.0[t] = ran.left;
                return ran.answer;
            }
            Request::ReadMark(effect)
            | Request::Hold(effect, _)
            | Request::Settle(effect)
            | Request::Undo(effect) => effect,
        };
        let at = system.book.document(t, effect);
        let doc = &mut left.1[at];
        if matches!(request, Request::ReadMark(_)) {
            return Response::Mark(Fence(doc.marks[t]));
        }
        let ran = on_document(&system.book, system.plan.omission, at, *doc, t, request);
        *doc = ran.left;
        for mark in doc.marks.iter_mut().filter(|mark| **mark == FRESH) {
            *mark = u64::MAX - 1;
        }
        ran.answer
    };
    machine.requests().into_iter().map(answer).collect()
}
