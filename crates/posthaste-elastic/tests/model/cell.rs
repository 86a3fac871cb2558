//! One document of the store: its durable state, and other states that reads may return.

/// A document with its copies.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Cell<T> {
    /// The state after all acknowledged writes.
    pub durable: T,
    /// The state on an isolated primary: it answers reads and runs scripts, and none of its writes
    /// is acknowledged.
    pub isolated: Option<Isolated<T>>,
    /// The state on a stale copy that no write reaches any more.
    pub stale: Option<T>,
}

/// An isolated primary.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Isolated<T> {
    /// Its state of the document.
    pub value: T,
    /// No replica was promoted in its place, so it may return with its state.
    pub may_return: bool,
}

impl<T: Clone + PartialEq> Cell<T> {
    pub fn new(value: T) -> Self {
        Self {
            durable: value,
            isolated: None,
            stale: None,
        }
    }

    /// Returns the states that a read may return.
    pub fn views(&self) -> Vec<&T> {
        let isolated = self.isolated.as_ref().map(|isolated| &isolated.value);
        let mut views = vec![&self.durable];
        for view in isolated.into_iter().chain(&self.stale) {
            if !views.contains(&view) {
                views.push(view);
            }
        }
        views
    }

    /// Returns how many different views there are, whether a primary is isolated, and whether a
    /// copy is stale.
    pub fn shape(&self) -> (usize, bool, bool) {
        let is_stale = self.stale.is_some();
        (self.views().len(), self.isolated.is_some(), is_stale)
    }

    /// Makes an acknowledged write: an isolated primary has been replaced by then.
    pub fn write(&mut self, value: T) {
        self.durable = value;
        if let Some(isolated) = &mut self.isolated {
            isolated.may_return = false;
        }
    }

    /// Returns the state of the isolated primary; the durable state if it becomes isolated only
    /// now.
    pub fn isolated_value(&self) -> &T {
        let isolated = self.isolated.as_ref();
        isolated.map_or(&self.durable, |isolated| &isolated.value)
    }

    /// Makes a write that only the isolated primary has.
    pub fn write_behind(&mut self, value: T) {
        let may_return = self.isolated.as_ref().is_none_or(|old| old.may_return);
        self.isolated = Some(Isolated { value, may_return });
    }

    /// Ends the isolation of the primary: it returns with its state, or without.
    pub fn rejoin(&mut self, with: bool) {
        match self.isolated.take() {
            Some(isolated) if with => self.durable = isolated.value,
            _ => {}
        }
    }
}
