//! One document of the store: what is durable, and what else may be seen of it.

/// A document with its copies.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Cell<T> {
    /// What acknowledged writes made of it.
    pub durable: T,
    /// What a primary that is cut off makes of it: it answers reads and runs scripts, and none of
    /// its writes is acknowledged.
    pub isolated: Option<Isolated<T>>,
    /// What a copy still says that no write reaches any more.
    pub stale: Option<T>,
}

/// A primary that is cut off.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Isolated<T> {
    /// What it believes.
    pub value: T,
    /// Nobody was promoted in its place, so it may yet come back with what it has.
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

    /// What a read may see.
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

    /// How many different views there are, whether a primary is cut off, and whether a copy has
    /// been superseded.
    pub fn shape(&self) -> (usize, bool, bool) {
        let is_stale = self.stale.is_some();
        (self.views().len(), self.isolated.is_some(), is_stale)
    }

    /// A write that will be acknowledged; who was cut off has been replaced.
    pub fn write(&mut self, value: T) {
        self.durable = value;
        if let Some(isolated) = &mut self.isolated {
            isolated.may_return = false;
        }
    }

    /// What the primary that is cut off goes by; the same as all others, if it is cut off only now.
    pub fn isolated_value(&self) -> &T {
        let isolated = self.isolated.as_ref();
        isolated.map_or(&self.durable, |isolated| &isolated.value)
    }

    /// A write that only the primary sees that is cut off.
    pub fn write_behind(&mut self, value: T) {
        let may_return = self.isolated.as_ref().is_none_or(|old| old.may_return);
        self.isolated = Some(Isolated { value, may_return });
    }

    /// The primary comes back: with what it has, or without.
    pub fn rejoin(&mut self, with: bool) {
        match self.isolated.take() {
            Some(isolated) if with => self.durable = isolated.value,
            _ => {}
        }
    }
}
