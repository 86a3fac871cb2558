//! A document in a few bytes. The library's `Document` runs the scripts; the results are cached.

use std::cell::RefCell;
use std::collections::HashMap;

use posthaste_elastic::two_phase::{Document, Effect, Fence, Hold, Request, Response, Transaction};

/// The number of transactions in a model.
pub const TRANSACTIONS: usize = 2;

/// The distinguishable state of a document.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct Doc {
    /// Whether it holds each transaction.
    pub held: [bool; TRANSACTIONS],
    /// How often each transaction was settled on it. The balance follows from that.
    pub settled: [i8; TRANSACTIONS],
    /// The mark in the slot of each transaction; equal if they share a slot.
    pub marks: [u64; TRANSACTIONS],
    /// The transaction that set it last, counted from one; zero if none did.
    pub set_by: u8,
}

/// The mark of the settle or undo that is running: it differs from all marks that were seen.
pub const FRESH: u64 = u64::MAX;

type Call = (usize, Doc, usize, Request);

thread_local! {
    static KNOWN: RefCell<HashMap<Call, (Doc, Response)>> = RefCell::default();
    static FUNDS: RefCell<HashMap<(usize, Doc), Funds>> = RefCell::default();
}

/// The balance of a document, and the available part of it.
#[derive(Clone, Copy, Debug)]
pub struct Funds {
    pub balance: i64,
    pub available: i64,
}

/// The documents and transactions of a model, by which the few bytes are interpreted.
#[derive(Clone, Debug)]
pub struct Ledger {
    /// The opening balance of each document.
    pub balances: Vec<i64>,
    pub transactions: Vec<Transaction>,
    /// Identifies the ledger in the cache.
    pub number: usize,
}

impl Ledger {
    /// Returns the number of the document that the effect is on.
    pub fn document(&self, transaction: usize, effect: usize) -> usize {
        let name = &self.transactions[transaction].effects()[effect].document;
        name[1..].parse().expect("documents are called d0, d1, …")
    }

    /// Returns the effect of a transaction on a document, if it has one.
    pub fn effect(&self, transaction: usize, document: usize) -> Option<&Effect> {
        let mut effects = self.transactions[transaction].effects().iter();
        effects.find(|effect| effect.document[1..].parse() == Ok(document))
    }

    /// Runs a script on a document.
    pub fn run(
        &self,
        at: usize,
        doc: Doc,
        transaction: usize,
        request: Request,
    ) -> (Doc, Response) {
        let call = (self.number << 8 | at, doc, transaction, request);
        if let Some(known) = KNOWN.with_borrow(|known| known.get(&call).copied()) {
            return known;
        }
        let result = self.work_out(at, doc, transaction, request);
        KNOWN.with_borrow_mut(|known| known.insert(call, result));
        result
    }

    fn work_out(&self, at: usize, doc: Doc, t: usize, request: Request) -> (Doc, Response) {
        let id = self.transactions[t].id();
        let effect = self.effect(t, at).expect("no effect there");
        let mut document = self.unpack(at, doc);
        let answer = match request {
            Request::Hold(_, mark) => match document.hold(id, effect, mark) {
                Ok(()) => Response::Acknowledged,
                Err(obstacle) => Response::Rejected(obstacle),
            },
            Request::Settle(_) => {
                document.settle(id, Fence(FRESH));
                Response::Acknowledged
            }
            Request::Undo(_) => {
                document.undo(id, Fence(FRESH));
                Response::Acknowledged
            }
            other => panic!("{other:?} is not for a document"),
        };
        (self.pack(at, doc, t, request, &document), answer)
    }

    /// Returns the funds of the document that these bytes stand for.
    pub fn funds(&self, at: usize, doc: Doc) -> Funds {
        let key = (self.number << 8 | at, doc);
        if let Some(known) = FUNDS.with_borrow(|known| known.get(&key).copied()) {
            return known;
        }
        let document = self.unpack(at, doc);
        let funds = Funds {
            balance: document.balance,
            available: document.available(),
        };
        FUNDS.with_borrow_mut(|known| known.insert(key, funds));
        funds
    }

    /// Returns the document that these bytes stand for.
    pub fn unpack(&self, at: usize, doc: Doc) -> Document {
        let mut document = Document {
            balance: self.balances[at],
            ..Document::default()
        };
        for (t, transaction) in self.transactions.iter().enumerate() {
            let Some(effect) = self.effect(t, at) else {
                continue;
            };
            document.balance += effect.add * i64::from(doc.settled[t]);
            let mark = Fence(doc.marks[t]);
            document.fences.insert(Fence::slot(transaction.id()), mark);
            if doc.held[t] {
                document.holds.push(Hold {
                    id: transaction.id().clone(),
                    add: effect.add,
                    set: effect.set.clone(),
                });
            }
            if usize::from(doc.set_by) == t + 1 {
                document.data = effect.set.clone();
            }
        }
        document
    }

    /// Packs the result of a script. The model is valid only if these bytes stand for that result.
    fn pack(&self, at: usize, before: Doc, t: usize, request: Request, left: &Document) -> Doc {
        let mut doc = before;
        for (other, transaction) in self.transactions.iter().enumerate() {
            let id = transaction.id();
            doc.held[other] = left.holds.iter().any(|hold| hold.id == *id);
            if self.effect(other, at).is_some() {
                doc.marks[other] = left.fence(id).0;
            }
        }
        let sets = self
            .effect(t, at)
            .is_some_and(|effect| !effect.set.is_empty());
        if matches!(request, Request::Settle(_)) && before.held[t] {
            doc.settled[t] += 1;
            doc.set_by = if sets { t as u8 + 1 } else { doc.set_by };
        }
        let result = self.unpack(at, doc);
        assert_eq!((result.balance, &result.data), (left.balance, &left.data));
        assert_eq!(result.available(), left.available());
        doc
    }
}
