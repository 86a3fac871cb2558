//! Long transactions on several servers: the steps of `posthaste txwatch`, selected by rules. No IO
//! and no clock.

mod describe;
mod plan;
mod rule;

pub use describe::{Action, LongTransaction, Outcome, action, long_transaction, sentence};
pub use plan::{Decision, Key, Past, Plan, Seen, Step, plan};
pub use rule::{Policy, Rule};
