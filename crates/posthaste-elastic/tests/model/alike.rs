//! Normalizes states that differ only in names, so that far fewer have to be explored.

use std::hash::{DefaultHasher, Hash, Hasher};

use posthaste_elastic::two_phase::{Request, Response};

use super::cell::Cell;
use super::document::{Doc, FRESH};
use super::system::{System, World};

impl System {
    /// Replaces the fresh mark by the smallest unused number, because only equality of marks
    /// matters. Also sorts identical executors, and late writes.
    pub fn tidy(&self, world: &mut World) {
        for at in 0..world.documents.len() {
            if !has_fresh(&world.documents[at]) {
                continue;
            }
            let unseen = (1..).find(|number| !self.is_seen(world, at, *number));
            let document = &mut world.documents[at];
            let stale = document
                .isolated
                .as_mut()
                .map(|isolated| &mut isolated.value);
            for doc in stale.into_iter().chain([&mut document.durable]) {
                for mark in doc.marks.iter_mut().filter(|mark| **mark == FRESH) {
                    *mark = unseen.unwrap_or_default();
                }
            }
        }
        world.late.sort_by_cached_key(number);
        let mut from = 0;
        for alike in self.plan.executors.chunk_by(|one, other| one == other) {
            let to = from + alike.len();
            world.executors[from..to].sort_by_cached_key(number);
            from = to;
        }
    }

    /// Whether a document's mark may still be compared with this one.
    fn is_seen(&self, world: &World, at: usize, mark: u64) -> bool {
        let is_here = |t: usize, effect: usize| self.book.document(t, effect) == at;
        let document = &world.documents[at];
        let executors = world.executors.iter().zip(&self.plan.executors);
        let mut seen = executors.flat_map(|(executor, (t, ..))| {
            let marks = executor.machine.iter().flat_map(|machine| machine.marks());
            let marks = marks.enumerate().filter(|(effect, _)| is_here(*t, *effect));
            let answers = executor.answers.iter().enumerate();
            let answers = answers.filter_map(move |(effect, answer)| match answer {
                Some(Response::Mark(mark)) if is_here(*t, effect) => Some(*mark),
                _ => None,
            });
            marks.map(|(_, mark)| *mark).chain(answers)
        });
        let views = document.views();
        let mut late = world.late.iter();
        views.iter().any(|doc| doc.marks.contains(&mark))
            || seen.any(|seen| seen.0 == mark)
            || late.any(|(t, request)| match request {
                Request::Hold(effect, of) => is_here(*t, *effect) && of.0 == mark,
                _ => false,
            })
    }
}

/// Whether the document has a fresh mark.
fn has_fresh(document: &Cell<Doc>) -> bool {
    let stale = document.isolated.iter().map(|isolated| &isolated.value);
    let mut docs = stale.chain([&document.durable]);
    docs.any(|doc| doc.marks.contains(&FRESH))
}

/// Returns a number to sort by.
fn number<T: Hash>(thing: &T) -> u64 {
    let mut hasher = DefaultHasher::new();
    thing.hash(&mut hasher);
    hasher.finish()
}
