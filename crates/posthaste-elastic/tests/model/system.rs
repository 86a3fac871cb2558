//! In one file, because each action is read beside the state that it makes: the executors, the
//! store, and the faults between them, as stateright explores them.

use std::sync::atomic::{AtomicUsize, Ordering};

use posthaste_elastic::two_phase::{Fence, Progress, Request, Response, State};
use stateright::{Model, Property};

use super::cell::Cell;
use super::document::{Doc, Ledger, TRANSACTIONS};
use super::machine::{Goal, Machine};
use super::plan::Plan;
use super::property;
use super::scripts::{Omission, ScriptRun, on_document, on_transaction};

/// Attempts that may find documents held by others before an executor abandons its transaction.
const PATIENCE: u8 = 1;

/// The model.
#[derive(Clone, Debug)]
pub struct System {
    pub plan: Plan,
    pub book: Ledger,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Executor {
    /// `None` once it has stopped forever. Others stop by never acting again.
    pub machine: Option<Machine>,
    pub answers: Vec<Option<Response>>,
    attempts: u8,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct World {
    pub transactions: Vec<Cell<Option<State>>>,
    pub documents: Vec<Cell<Doc>>,
    pub executors: Vec<Executor>,
    /// Writes of transactions whose senders abandoned them and that may still be executed.
    pub late: Vec<(usize, Request)>,
    /// The final states of deleted transactions.
    pub pruned: Vec<Option<State>>,
    faults: u8,
    /// Whether an executor reported a wrong end of a transaction.
    pub lied: bool,
}

/// The delivery of a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Delivery {
    /// Read from the view with this number.
    Read(usize),
    /// Executed and answered.
    Made,
    /// Executed and answered; a copy receives no further writes.
    MadeWithStaleReplica,
    /// Executed, and the answer is lost.
    Lost,
    /// Abandoned, to be executed later or never.
    Late,
    /// Executed by an isolated primary.
    Isolated,
}

/// An action of the system.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Action {
    /// A request of an executor, by its index in the step.
    Request(usize, usize, Request, Delivery),
    /// A late write of a transaction is executed.
    Arrive(usize, Request),
    /// The isolated primary of a transaction returns, with its state or without.
    RejoinTransaction(usize, bool),
    /// The same for a document.
    RejoinDocument(usize, bool),
    /// An ended transaction is deleted.
    Prune(usize),
}

impl World {
    /// Returns the state of a transaction, or its final state before it was deleted.
    pub fn state(&self, t: usize) -> Option<State> {
        self.transactions[t].durable.or(self.pruned[t])
    }
}

/// Returns the effect that a request is about.
fn effect_of(request: Request) -> Option<usize> {
    match request {
        Request::ReadMark(at) | Request::Hold(at, _) | Request::Settle(at) | Request::Undo(at) => {
            Some(at)
        }
        _ => None,
    }
}

impl System {
    pub fn new(plan: Plan) -> Self {
        static NUMBER: AtomicUsize = AtomicUsize::new(0);
        assert!(plan.transactions.len() <= TRANSACTIONS);
        let book = Ledger {
            balances: plan.balances.clone(),
            transactions: plan.transactions.clone(),
            number: NUMBER.fetch_add(1, Ordering::Relaxed),
        };
        Self { plan, book }
    }

    pub fn machine(&self, t: usize, aim: Goal) -> Machine {
        let documents = self.plan.transactions[t].effects().len();
        Machine::new(aim, documents, PATIENCE)
    }

    fn run(&self, at: usize, doc: Doc, t: usize, request: Request) -> ScriptRun<Doc> {
        on_document(&self.book, self.plan.omission, at, doc, t, request)
    }

    /// Whether any copy may answer a request: reads, and a write that an omitted rule turns into a
    /// read.
    fn is_read(&self, request: Request) -> bool {
        let omission = self.plan.omission;
        match request {
            Request::Read | Request::ReadMark(_) => true,
            Request::Touch(State::Pending) => omission == Some(Omission::ReadBegin),
            _ => false,
        }
    }

    /// Whether a request counts as acknowledged because a rule is omitted.
    fn is_granted(&self, request: Request) -> bool {
        match (self.plan.omission, request) {
            (Some(Omission::NoBegin), Request::Touch(State::Pending)) => true,
            (Some(Omission::NoConfirm), Request::Touch(of)) => of != State::Pending,
            _ => false,
        }
    }

    /// Returns the request as it is sent.
    fn sent(&self, world: &World, t: usize, request: Request) -> Request {
        match (self.plan.omission, request) {
            (Some(Omission::LateLook), Request::Hold(effect, _)) => {
                let document = &world.documents[self.book.document(t, effect)];
                Request::Hold(effect, Fence(document.isolated_value().marks[t]))
            }
            _ => request,
        }
    }

    fn read(&self, world: &World, t: usize, request: Request, view: usize) -> Response {
        match (request, effect_of(request)) {
            (_, Some(effect)) => {
                let cell = &world.documents[self.book.document(t, effect)];
                Response::Mark(Fence(cell.views()[view].marks[t]))
            }
            (Request::Read, _) => Response::State(*world.transactions[t].views()[view]),
            (request, _) => on_transaction(*world.transactions[t].views()[view], request).answer,
        }
    }

    /// Executes a write by one of the deliveries. `None` if this delivery makes no difference.
    fn write(
        &self,
        world: &mut World,
        t: usize,
        request: Request,
        delivery: Delivery,
    ) -> Option<Response> {
        match effect_of(request) {
            Some(effect) => {
                let at = self.book.document(t, effect);
                let cell = &mut world.documents[at];
                write(cell, delivery, |doc| self.run(at, *doc, t, request))
            }
            None => {
                let cell = &mut world.transactions[t];
                write(cell, delivery, |state| on_transaction(*state, request))
            }
        }
    }

    fn deliveries(&self, world: &World, t: usize, request: Request) -> Vec<Delivery> {
        let effect = effect_of(request).map(|effect| self.book.document(t, effect));
        let (views, is_isolated, is_stale) = match effect {
            Some(at) => world.documents[at].shape(),
            None => world.transactions[t].shape(),
        };
        if self.is_granted(request) {
            return vec![Delivery::Made];
        }
        if self.is_read(request) {
            return (0..views).map(Delivery::Read).collect();
        }
        let (faults, left) = (self.plan.faults, world.faults > 0);
        let mut deliveries = vec![Delivery::Made];
        let mut may =
            |is_possible: bool, delivery| deliveries.extend(is_possible.then_some(delivery));
        may(
            left && faults.stale && !is_stale,
            Delivery::MadeWithStaleReplica,
        );
        may(left && faults.lost, Delivery::Lost);
        may(left && faults.late, Delivery::Late);
        may(is_isolated || left && faults.isolated, Delivery::Isolated);
        deliveries
    }

    /// Whether a transaction may be deleted: it has ended, and no creator or late creation is left.
    fn may_prune(&self, world: &World, t: usize) -> bool {
        let ended = world.transactions[t].durable.is_some_and(State::is_final);
        let executors = self.plan.executors.iter().zip(&world.executors);
        let mut makers = executors
            .filter(|((of, aim, _), _)| *of == t && *aim == Goal::Create)
            .map(|(_, executor)| executor.machine.is_some());
        let is_made = world.late.contains(&(t, Request::Create)) || makers.any(|is_there| is_there);
        let is_early = self.plan.omission == Some(Omission::EarlyPrune);
        self.plan.prunes && ended && (is_early || !is_made)
    }

    /// Delivers a request of an executor, and passes the answer to it.
    fn request(
        &self,
        world: &mut World,
        who: usize,
        at: usize,
        request: Request,
        delivery: Delivery,
    ) -> bool {
        let t = self.plan.executors[who].0;
        let effect = effect_of(request).map(|effect| self.book.document(t, effect));
        let was_isolated = match effect {
            Some(at) => world.documents[at].isolated.is_some(),
            None => world.transactions[t].isolated.is_some(),
        };
        let answer = match delivery {
            Delivery::Read(view) => Some(self.read(world, t, request, view)),
            Delivery::Made if self.is_granted(request) => Some(Response::Acknowledged),
            Delivery::Late => {
                world.late.push((t, request));
                Some(Response::Ambiguous)
            }
            delivery => self.write(world, t, request, delivery),
        };
        let Some(answer) = answer else { return false };
        let is_fault = match delivery {
            Delivery::Read(_) | Delivery::Made => false,
            Delivery::Isolated => !was_isolated,
            _ => true,
        };
        world.faults -= u8::from(is_fault);
        self.take(world, who, at, answer);
        true
    }

    fn take(&self, world: &mut World, who: usize, at: usize, answer: Response) {
        let t = self.plan.executors[who].0;
        let state_now = world.state(t);
        let executor = &mut world.executors[who];
        executor.answers[at] = Some(answer);
        let Some(answers) = executor.answers.iter().copied().collect::<Option<Vec<_>>>() else {
            return;
        };
        let Some(machine) = &mut executor.machine else {
            return;
        };
        match machine.apply_answers(&answers) {
            Progress::Next => {}
            Progress::Again if executor.attempts > 1 => executor.attempts -= 1,
            Progress::Ended(state) => {
                world.lied |= state_now != Some(state);
                executor.machine = None;
            }
            _ => executor.machine = None,
        }
        let requests = executor
            .machine
            .as_ref()
            .map_or(0, |machine| machine.requests().len());
        executor.answers = vec![None; requests];
        executor.attempts *= u8::from(executor.machine.is_some());
    }
}

impl Model for System {
    type State = World;
    type Action = Action;

    fn init_states(&self) -> Vec<World> {
        let executors = self.plan.executors.iter();
        let created = |t: usize| {
            !executors
                .clone()
                .any(|(of, aim, _)| *of == t && *aim == Goal::Create)
        };
        let transactions = 0..self.plan.transactions.len();
        vec![World {
            transactions: transactions
                .map(|t| Cell::new(created(t).then_some(State::Created)))
                .collect(),
            documents: vec![Cell::new(Doc::default()); self.plan.balances.len()],
            executors: executors
                .clone()
                .map(|(t, aim, attempts)| {
                    let machine = self.machine(*t, *aim);
                    Executor {
                        answers: vec![None; machine.requests().len()],
                        machine: Some(machine),
                        attempts: *attempts,
                    }
                })
                .collect(),
            late: Vec::new(),
            pruned: vec![None; self.plan.transactions.len()],
            faults: self.plan.faults.budget,
            lied: false,
        }]
    }

    fn actions(&self, world: &World, actions: &mut Vec<Action>) {
        for (who, executor) in world.executors.iter().enumerate() {
            let Some(machine) = &executor.machine else {
                continue;
            };
            let requests = machine.requests().into_iter().enumerate();
            let open = requests.filter(|(at, _)| executor.answers[*at].is_none());
            // Reads change nothing, so one order of them suffices.
            let open = open.take(if machine.is_looking() { 1 } else { usize::MAX });
            let t = self.plan.executors[who].0;
            for (at, request) in open {
                let request = self.sent(world, t, request);
                let deliveries = self.deliveries(world, t, request).into_iter();
                actions
                    .extend(deliveries.map(|delivery| Action::Request(who, at, request, delivery)));
            }
        }
        actions.extend(
            world
                .late
                .iter()
                .map(|(t, request)| Action::Arrive(*t, *request)),
        );
        for (at, cell) in world.transactions.iter().enumerate() {
            let deliveries = rejoins(cell).into_iter();
            actions.extend(deliveries.map(|with| Action::RejoinTransaction(at, with)));
        }
        for (at, cell) in world.documents.iter().enumerate() {
            let deliveries = rejoins(cell).into_iter();
            actions.extend(deliveries.map(|with| Action::RejoinDocument(at, with)));
        }
        let old = (0..world.transactions.len()).filter(|t| self.may_prune(world, *t));
        actions.extend(old.map(Action::Prune));
    }

    fn next_state(&self, world: &World, action: Action) -> Option<World> {
        let mut next = world.clone();
        match action {
            Action::Request(who, at, request, delivery) => {
                if !self.request(&mut next, who, at, request, delivery) {
                    return None;
                }
            }
            Action::Arrive(t, request) => {
                let at = next.late.iter().position(|late| *late == (t, request))?;
                next.late.remove(at);
                self.write(&mut next, t, request, Delivery::Made);
            }
            Action::Prune(t) => {
                next.pruned[t] = next.transactions[t].durable;
                next.transactions[t].write(None);
            }
            Action::RejoinTransaction(at, with) => next.transactions[at].rejoin(with),
            Action::RejoinDocument(at, with) => next.documents[at].rejoin(with),
        }
        self.tidy(&mut next);
        Some(next)
    }

    fn properties(&self) -> Vec<Property<Self>> {
        property::all(self)
    }
}

fn rejoins<T>(cell: &Cell<T>) -> Vec<bool> {
    let isolated = cell.isolated.iter();
    isolated
        .flat_map(|isolated| {
            [true, false]
                .into_iter()
                .filter(|with| !with || isolated.may_return)
        })
        .collect()
}

fn write<T: Clone + PartialEq>(
    cell: &mut Cell<T>,
    delivery: Delivery,
    run: impl Fn(&T) -> ScriptRun<T>,
) -> Option<Response> {
    if delivery == Delivery::Isolated {
        let ran = run(cell.isolated_value());
        match (ran.wrote, &cell.isolated) {
            (true, _) => cell.write_behind(ran.left),
            // Nothing shows that it was isolated.
            (false, None) => return None,
            (false, Some(_)) => return Some(ran.answer),
        }
        return Some(Response::Ambiguous);
    }
    let ran = run(&cell.durable);
    if !ran.wrote {
        return (delivery == Delivery::Made).then_some(ran.answer);
    }
    if delivery == Delivery::MadeWithStaleReplica {
        if ran.left == cell.durable {
            return None;
        }
        cell.stale = Some(cell.durable.clone());
    }
    cell.write(ran.left);
    Some(match delivery {
        Delivery::Lost => Response::Ambiguous,
        _ => ran.answer,
    })
}
