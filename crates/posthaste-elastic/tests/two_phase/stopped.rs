//! An executor stops after every step of every procedure, and another one continues.

use posthaste_elastic::two_phase::{
    Execution, Failure, Progress, Reason, State, Step, Transaction,
};

use super::{Coordinator, balances, coordinator, opened, state};

/// A procedure of a transaction.
#[derive(Clone, Copy, Debug)]
enum Operation {
    /// Create it and run it to its end.
    Create,
    /// Run a recorded transaction to its end.
    Resume,
    /// Roll a recorded transaction back.
    GiveUpCreated,
    /// Roll a transaction back that holds its documents.
    GiveUpHeld,
    /// Run a transaction to its end that takes more than is available.
    Insufficient,
}

const OPERATIONS: [Operation; 5] = [
    Operation::Create,
    Operation::Resume,
    Operation::GiveUpCreated,
    Operation::GiveUpHeld,
    Operation::Insufficient,
];

fn execution(operation: Operation) -> Execution {
    match operation {
        Operation::Create | Operation::Insufficient => Execution::for_new(2, 1),
        Operation::Resume => Execution::for_existing(2, 1),
        Operation::GiveUpCreated | Operation::GiveUpHeld => {
            Execution::for_rollback(2, Reason::Asked)
        }
    }
}

async fn steps(
    coordinator: &Coordinator,
    transaction: &Transaction,
    mut execution: Execution,
    most: usize,
) -> (Vec<Step>, Progress) {
    let mut made = Vec::new();
    let mut progress = Progress::Next;
    while made.len() < most && progress == Progress::Next {
        made.push(execution.step());
        progress = coordinator.run_step(transaction, &mut execution).await.0;
    }
    (made, progress)
}

/// Runs a transaction whose executor stops after this many steps. Returns the steps that it made,
/// and whether it had ended.
async fn stopped(
    coordinator: &Coordinator,
    operation: Operation,
    after: usize,
) -> (Vec<Step>, bool) {
    let name = format!("{operation:?}-{after}");
    let (from, to) = (format!("from-{name}"), format!("to-{name}"));
    opened(coordinator, &[(&from, 10), (&to, 0)]).await;
    let amount = if matches!(operation, Operation::Insufficient) {
        11
    } else {
        7
    };
    let transaction = Transaction::transfer(&name, &from, &to, amount).unwrap();
    match operation {
        Operation::Create | Operation::Insufficient => {}
        Operation::Resume | Operation::GiveUpCreated => {
            coordinator.create_transaction(&transaction).await.unwrap()
        }
        Operation::GiveUpHeld => {
            let (made, _) = steps(coordinator, &transaction, Execution::for_new(2, 1), 3).await;
            assert_eq!(made.last(), Some(&Step::Hold));
        }
    }
    let (made, progress) = steps(coordinator, &transaction, execution(operation), after).await;
    let ended = match coordinator.resume(&name).await {
        Ok(()) => Some(State::Finished),
        Err(Failure::RolledBack(_)) => Some(State::RolledBack),
        Err(Failure::Absent(_)) => None,
        Err(other) => panic!("{name}: {other}"),
    };
    assert_eq!(state(coordinator, &name).await, ended, "{name}");
    if let Progress::Ended(result) = progress {
        assert_eq!(Some(result), ended, "{name}");
    }
    let moved = if ended == Some(State::Finished) { 7 } else { 0 };
    let left = balances(coordinator, &[&from, &to]).await;
    assert_eq!(
        (left[&from], left[&to]),
        (10 - moved, moved),
        "{name} after {made:?}"
    );
    let given_up = made.contains(&Step::Abandon) || matches!(operation, Operation::Insufficient);
    assert!(ended != Some(State::Finished) || !given_up, "{name}");
    (made, matches!(progress, Progress::Ended(_)))
}

#[tokio::test]
async fn any_interrupted_transaction_can_be_completed_by_another() {
    let Some(coordinator) = coordinator("stopped").await else {
        return;
    };
    let mut all = Vec::new();
    for operation in OPERATIONS {
        let mut after = 0;
        loop {
            let (made, at_its_end) = stopped(&coordinator, operation, after).await;
            all.extend(made);
            if at_its_end {
                break;
            }
            after += 1;
        }
        println!("{operation:?}: stopped after each of {after} steps");
    }
    // Only the second executor makes this step, as it resumes.
    let seen = |step: &Step| all.contains(step) || *step == Step::Confirm;
    let sequences = posthaste_elastic::two_phase::Sequence::ALL.into_iter();
    let missed: Vec<_> = sequences
        .flat_map(|sequence| sequence.steps())
        .filter(|step| !seen(step))
        .collect();
    assert!(missed.is_empty(), "nobody stopped after {missed:?}");
}

/// The executor that continues after the decision also stops, after each of the steps.
#[tokio::test]
async fn resumed_transactions_may_stop_again() {
    let Some(coordinator) = coordinator("stopped-twice").await else {
        return;
    };
    for (operation, decision) in [
        (Operation::Create, Step::Commit),
        (Operation::GiveUpHeld, Step::Abandon),
    ] {
        for after in 1..=4 {
            let name = format!("{operation:?}-{after}");
            let (from, to) = (format!("from-{name}"), format!("to-{name}"));
            opened(&coordinator, &[(&from, 10), (&to, 0)]).await;
            let transaction = Transaction::transfer(&name, &from, &to, 7).unwrap();
            if matches!(operation, Operation::GiveUpHeld) {
                steps(&coordinator, &transaction, Execution::for_new(2, 1), 3).await;
            }
            let mut first = execution(operation);
            while {
                let step = first.step();
                coordinator.run_step(&transaction, &mut first).await;
                step != decision
            } {}
            let second = Execution::for_existing(2, 1);
            let (made, progress) = steps(&coordinator, &transaction, second, after).await;
            assert!(made.len() < 2 || made[1] == Step::Confirm, "{made:?}");
            assert_eq!(
                matches!(progress, Progress::Ended(_)),
                after == 4,
                "{made:?}"
            );
            let _ = coordinator.resume(&name).await;
            let moved = if decision == Step::Commit { 7 } else { 0 };
            let left = balances(&coordinator, &[&from, &to]).await;
            assert_eq!((left[&from], left[&to]), (10 - moved, moved), "{name}");
        }
    }
}
