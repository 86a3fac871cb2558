//! A document in a few bytes. What scripts do to it is done by the library's own `Document`, and
//! remembered.

use std::cell::RefCell;
use std::collections::HashMap;

use posthaste_elastic::two_phase::{Document, Effect, Fence, Hold, Request, Response, Transaction};

/// As many transactions as the model plays with.
pub const TRANSACTIONS: usize = 2;

/// The distinguishable state of a document.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct Doc {
    /// Which transactions it holds.
    pub held: [bool; TRANSACTIONS],
    /// How often each of them happened to it. The balance follows from it.
    pub settled: [i8; TRANSACTIONS],
    /// The mark in the slot of each; equal where they share one.
    pub marks: [u64; TRANSACTIONS],
    /// Who set it last, counted from one.
    pub set_by: u8,
}

/// The mark of the settle or undo that is being run: like none that anybody has seen.
pub const FRESH: u64 = u64::MAX;

type Call = (usize, Doc, usize, Request);

thread_local! {
    static KNOWN: RefCell<HashMap<Call, (Doc, Response)>> = RefCell::default();
    static FUNDS: RefCell<HashMap<(usize, Doc), Funds>> = RefCell::default();
}

/// What a document has.
#[derive(Clone, Copy, Debug)]
pub struct Funds {
    pub balance: i64,
    pub available: i64,
}

/// The documents and transactions of a model, which say what the few bytes stand for.
#[derive(Clone, Debug)]
pub struct Ledger {
    /// What each document had at first.
    pub balances: Vec<i64>,
    pub transactions: Vec<Transaction>,
    /// Tells books apart in what is remembered.
    pub number: usize,
}

impl Ledger {
    /// The document that the effect is on, by its number.
    pub fn document(&self, transaction: usize, effect: usize) -> usize {
        let name = &self.transactions[transaction].effects()[effect].document;
        name[1..].parse().expect("documents are called d0, d1, …")
    }

    /// The effect of a transaction on a document, if it has one.
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

    /// What the document has that these bytes stand for.
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

    /// The document that these bytes stand for.
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

    /// In few bytes again. That these stand for what the script left is what the model is worth.
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
