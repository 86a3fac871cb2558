//! Several documents change together or not at all, by operations on single documents only.
//!
//! Elasticsearch and OpenSearch change one document at a time. A [`Transaction`] is recorded as a
//! separate document; each document that it touches then *holds* it, the transaction is *committed*
//! once all of them do, and each document is *settled*. A failure before the commit is undone. The
//! states have the six names of the protocol that Elastic published; the rules differ, because that
//! protocol loses money if a request is late, an answer is lost or an executor pauses.
//!
//! * R1: evidence is an acknowledged write to the document itself: not a read, nor an answer that
//!   nothing had to be done (`Evidence` in `request.rs`).
//! * R2: states only go forward, each by a script that compares ([`State::next`]).
//! * R3: a hold contains the document's mark, read before the transaction was last acknowledged as
//!   pending (`SeenMarks`, `ValidMarks` in `request.rs`).
//! * R4: settle and undo always write, and leave a new mark ([`Document::settle`],
//!   [`Document::undo`]).
//! * R5: an existing hold counts only once it was written again ([`Document::hold`]).
//! * R6: a process that finds a transaction decided has that acknowledged before it acts on it
//!   ([`Step::Confirm`]).
//! * R7: a transaction that cannot be executed is refused before anything is written
//!   ([`Transaction::new`]).
//!
//! None of the rules depends on a clock. `tests/model` checks them exhaustively within bounds, and
//! shows for each rule that money is lost without it.

mod adopt;
mod audit;
mod coordinator;
mod disagreement;
mod document;
mod execution;
mod failure;
mod index_check;
mod list;
mod prepare;
mod prune;
mod published;
mod read;
mod recover;
mod request;
mod state;
mod step;
mod store;
mod stored;
mod stuck;
mod transaction;
mod view;

pub use adopt::Adopted;
pub use audit::AuditReport;
pub use coordinator::Coordinator;
pub use disagreement::{Disagreement, Fault};
pub use document::{Document, FENCE_SLOTS, Fence, Hold, MAX_HOLDS, Obstacle, Past};
pub use execution::{Execution, Progress, Reason};
pub use failure::Failure;
pub use list::Listed;
pub use prune::Pruned;
pub use recover::Recovered;
pub use request::{Request, Response};
pub use state::{Event, IllegalTransition, State};
pub use step::{Sequence, Step};
pub use stored::Record;
pub use stuck::{Blocker, Stuck};
pub use transaction::{
    Effect, MAX_AMOUNT, MAX_EFFECTS, MAX_SET_BYTES, Refusal, Transaction, TransactionId,
};
pub use view::DocumentView;
