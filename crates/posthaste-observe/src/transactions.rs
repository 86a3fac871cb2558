//! Long transactions on several servers: the steps of `posthaste txwatch`, selected by rules. No IO
//! and no clock.

mod describe;
mod plan;
mod rule;

pub use describe::{
    Action, LongTransaction, Outcome, describe_action, describe_transaction, transaction_sentence,
};
pub use plan::{Decision, HolderKey, ObservedHolder, Plan, Step, StepHistory, plan_steps};
pub use rule::{Policy, Rule};
