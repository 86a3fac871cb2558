//! One pass over some documents: what the index shows is compared with Postgres, and what differs is written.

use std::collections::HashMap;
use std::sync::Arc;

use super::decide::{Reason, Seen, Step, Truth, decide};
use super::halves::{Halves, halves};
use super::index::{Index, Proof, Trouble, Write, Written};
use super::source::{Body, Row, RowVersion, Source};

/// What is asked for one document.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Wish {
    /// Its id.
    pub id: String,
    /// It is to be written although the index has its version: because it would be made otherwise than it was.
    pub force: bool,
    /// The version of its deletion, if that is what happened.
    pub deleted: Option<i64>,
}

/// What became of one wish.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Fate {
    /// The index was seen to be true: nothing more is to be done.
    Done(Reason),
    /// The index was written. Whether that is true is for a later pass to see.
    Written(Reason),
    /// This document is in the way of itself: it cannot be made, is refused, or Postgres has lost it.
    Failed(String),
    /// It could not be tried.
    PutOff(String),
}

impl Fate {
    /// What became of a wish of which this became in one index and that in another: the worse of both.
    fn and(self, other: Self) -> Self {
        let badness = |fate: &Self| match fate {
            Self::Done(_) => 0,
            Self::Written(_) => 1,
            Self::PutOff(_) => 2,
            Self::Failed(_) => 3,
        };
        if badness(&other) > badness(&self) {
            other
        } else {
            self
        }
    }
}

/// How a pass goes about it.
#[derive(Clone, Copy, Debug)]
pub struct Pass<'a> {
    /// Where the rows are.
    pub source: &'a dyn Source,
    /// Where the documents belong.
    pub index: &'a dyn Index,
    /// What counts as being there.
    pub proof: Proof,
    /// About so many bytes of documents go in one write.
    pub bytes: usize,
}

/// So many documents are made at once: what is in memory beyond one write.
const MADE_AT_ONCE: usize = 250;

impl Pass<'_> {
    /// Goes over these; one fate for each, in their order. Wishes for the same document share one.
    ///
    /// Where the index stands for [others](Index::targets), each of them must be seen to be true.
    pub async fn run(&self, wishes: &[Wish]) -> Vec<Fate> {
        let run = self.run_each(wishes).await;
        run.unwrap_or_else(|Trouble(reason)| vec![Fate::PutOff(reason); wishes.len()])
    }

    async fn run_each(&self, wishes: &[Wish]) -> Result<Vec<Fate>, Trouble> {
        let targets = self.index.targets().await?;
        let Some((first, others)) = targets.split_first() else {
            return Ok(self.run_one(wishes).await);
        };
        let over = |index| Pass { index, ..*self };
        let mut fates = over(&**first).run_one(wishes).await;
        for other in others {
            let beside = over(&**other).run_one(wishes).await;
            let both = fates.into_iter().zip(beside);
            fates = both.map(|(one, other)| one.and(other)).collect();
        }
        // What was begun meanwhile lacks what was seen in the others alone.
        let after = self.index.targets().await?;
        let labels = |all: &[Arc<dyn Index>]| -> Vec<String> {
            all.iter().map(|index| index.label()).collect()
        };
        if labels(&after) != labels(&targets) {
            let done = fates
                .iter_mut()
                .filter(|fate| matches!(fate, Fate::Done(_)));
            done.for_each(|fate| *fate = Fate::PutOff("another index was begun meanwhile".into()));
        }
        Ok(fates)
    }

    async fn run_one(&self, wishes: &[Wish]) -> Vec<Fate> {
        let mut run = Run::new(*self, wishes);
        if let Err(Trouble(reason)) = run.go().await {
            let untried = run.documents.iter_mut().filter(|one| one.fate.is_none());
            untried.for_each(|one| one.fate = Some(Fate::PutOff(reason.clone())));
        }
        let fates = wishes.iter().map(|wish| {
            let fate = &run.documents[run.places[&wish.id]].fate;
            // Every way through has one; a document that had none would be looked at again.
            let nothing = || Fate::PutOff("was not looked at".into());
            fate.clone().unwrap_or_else(nothing)
        });
        fates.collect()
    }
}

/// One document of a pass.
struct Document {
    wish: Wish,
    seen: Option<Seen>,
    is_made: bool,
    fate: Option<Fate>,
}

impl Document {
    /// What is known of it, given its row.
    fn truth(&self, row: Option<(i64, bool)>) -> Truth {
        match (row, self.wish.deleted) {
            (Some((version, true)), _) => Truth::Live { version },
            (Some((version, false)), None) => Truth::Hidden { version },
            (Some((version, false)), Some(deleted)) if deleted <= version => {
                Truth::Hidden { version }
            }
            (_, Some(version)) => Truth::Dead { version },
            (None, None) => Truth::Gone,
        }
    }
}

struct Run<'a> {
    pass: Pass<'a>,
    documents: Vec<Document>,
    places: HashMap<String, usize>,
    /// Tells our writes from those of others.
    token: i64,
}

/// What is to be written next.
#[derive(Default)]
struct Batch {
    writes: Vec<(usize, Reason, Write)>,
    bytes: usize,
}

impl<'a> Run<'a> {
    fn new(pass: Pass<'a>, wishes: &[Wish]) -> Self {
        let mut documents: Vec<Document> = Vec::with_capacity(wishes.len());
        let mut places = HashMap::with_capacity(wishes.len());
        for wish in wishes {
            let place = *places.entry(wish.id.clone()).or_insert(documents.len());
            let Some(known) = documents.get_mut(place) else {
                documents.push(Document {
                    wish: wish.clone(),
                    seen: None,
                    is_made: false,
                    fate: None,
                });
                continue;
            };
            known.wish.force |= wish.force;
            known.wish.deleted = known.wish.deleted.max(wish.deleted);
        }
        Self {
            pass,
            documents,
            places,
            token: fastrand::i64(1..),
        }
    }

    async fn go(&mut self) -> Result<(), Trouble> {
        // The index before Postgres: what it has then that Postgres has not was never committed, or is lost.
        let ids: Vec<String> = self
            .documents
            .iter()
            .map(|one| one.wish.id.clone())
            .collect();
        let seen = self.pass.index.read(&ids, self.pass.proof).await?;
        for (document, seen) in self.documents.iter_mut().zip(seen) {
            document.seen = seen;
        }
        let mut batch = Batch::default();
        // What the index lacks is made in any case; of the rest the versions are asked first, because most is true already.
        let (lacking, shown): (Vec<String>, Vec<String>) = ids.into_iter().partition(|id| {
            let document = &self.documents[self.places[id]];
            document.seen.is_none()
        });
        let mut to_make = lacking;
        let versions = self.versions(&shown).await?;
        for id in shown {
            let at = self.places[&id];
            let document = &self.documents[at];
            if document.fate.is_none() {
                let row = versions.get(&id);
                let truth = document.truth(row.map(|row| (row.version, row.is_live)));
                match decide(truth, document.seen, document.wish.force) {
                    Step::Write(..) => to_make.push(id),
                    step => self.take(at, step, None, &mut batch).await?,
                }
            }
        }
        for ids in to_make.chunks(MADE_AT_ONCE) {
            for row in self.rows(ids).await? {
                self.made(row, &mut batch).await?;
            }
            for id in ids {
                self.unmade(self.places[id], &mut batch).await?;
            }
        }
        self.flush(&mut batch).await?;
        self.see_forced().await
    }

    /// The row may be a newer one than the one that was decided on: it is decided again.
    async fn made(&mut self, row: Row, batch: &mut Batch) -> Result<(), Trouble> {
        let Some(&at) = self.places.get(&row.id) else {
            return Ok(());
        };
        let document = &mut self.documents[at];
        document.is_made = true;
        let text = match row.body {
            Body::Unmade(reason) => {
                document.fate = Some(Fate::Failed(reason));
                return Ok(());
            }
            Body::Document(text) => Some(text),
            Body::Hidden => None,
        };
        let truth = document.truth(Some((row.version, text.is_some())));
        let step = decide(truth, document.seen, document.wish.force);
        self.take(at, step, text, batch).await
    }

    /// There was no row for it, if it is not made by now.
    async fn unmade(&mut self, at: usize, batch: &mut Batch) -> Result<(), Trouble> {
        let document = &mut self.documents[at];
        if document.is_made || document.fate.is_some() {
            return Ok(());
        }
        if document.seen.is_some() {
            // Deleted between the two looks: its deletion has a job of its own.
            document.fate = Some(Fate::PutOff("was deleted meanwhile".into()));
            return Ok(());
        }
        let step = decide(document.truth(None), None, document.wish.force);
        self.take(at, step, None, batch).await
    }

    async fn take(
        &mut self,
        at: usize,
        step: Step,
        document: Option<String>,
        batch: &mut Batch,
    ) -> Result<(), Trouble> {
        let (mark, reason) = match step {
            Step::Write(mark, reason) | Step::Delete(mark, reason) => (mark, reason),
            Step::Done(reason) => {
                self.documents[at].fate = Some(Fate::Done(reason));
                return Ok(());
            }
            Step::Ahead(mark) => {
                let version = mark.version;
                let problem = format!(
                    "the index has version {version}, which Postgres does not know: if commits were lost, posthaste.sync_raise() goes beyond it"
                );
                self.documents[at].fate = Some(Fate::Failed(problem));
                return Ok(());
            }
        };
        let bytes = document.as_ref().map_or(0, String::len);
        if !batch.writes.is_empty() && batch.bytes + bytes > self.pass.bytes {
            self.flush(batch).await?;
        }
        batch.bytes += bytes;
        let write = Write {
            id: self.documents[at].wish.id.clone(),
            mark,
            token: self.token,
            document,
        };
        batch.writes.push((at, reason, write));
        Ok(())
    }

    async fn flush(&mut self, batch: &mut Batch) -> Result<(), Trouble> {
        let Batch { writes, .. } = std::mem::take(batch);
        if writes.is_empty() {
            return Ok(());
        }
        let (places, writes): (Vec<_>, Vec<_>) = writes
            .into_iter()
            .map(|(at, reason, write)| ((at, reason), write))
            .unzip();
        let answers = self.pass.index.write(&writes).await?;
        for (((at, reason), write), answer) in places.into_iter().zip(writes).zip(answers) {
            let document = &mut self.documents[at];
            document.fate = Some(match answer {
                Written::Taken | Written::Older => Fate::Written(reason),
                Written::Refused { reason } => Fate::Failed(reason),
                Written::Later { reason } => Fate::PutOff(reason),
            });
            document.seen = Some(Seen {
                mark: write.mark,
                token: write.token,
                is_live: write.document.is_some(),
            });
        }
        Ok(())
    }

    /// What was written on purpose is done when it is seen with our token: nothing else tells it from the same version as it was before.
    async fn see_forced(&mut self) -> Result<(), Trouble> {
        let forced = Fate::Written(Reason::Forced);
        let of = |one: &&mut Document| one.fate.as_ref() == Some(&forced);
        let mut written: Vec<&mut Document> = self.documents.iter_mut().filter(of).collect();
        if written.is_empty() {
            return Ok(());
        }
        let ids: Vec<String> = written.iter().map(|one| one.wish.id.clone()).collect();
        // Not seen is not failed: the job comes again.
        let Ok(seen) = self.pass.index.read(&ids, self.pass.proof).await else {
            return Ok(());
        };
        for (document, seen) in written.iter_mut().zip(seen) {
            if seen.is_some() && seen == document.seen {
                document.fate = Some(Fate::Done(Reason::Forced));
            }
        }
        Ok(())
    }

    /// Versions by id; a row of which none can be read has failed.
    async fn versions(&mut self, ids: &[String]) -> Result<HashMap<String, RowVersion>, Trouble> {
        let source = self.pass.source;
        let Halves { read, unreadable } = halves(ids, |part| source.versions(part)).await?;
        self.failed(unreadable);
        Ok(read.into_iter().map(|row| (row.id.clone(), row)).collect())
    }

    async fn rows(&mut self, ids: &[String]) -> Result<Vec<Row>, Trouble> {
        let source = self.pass.source;
        let Halves { read, unreadable } = halves(ids, |part| source.rows(part)).await?;
        self.failed(unreadable);
        Ok(read)
    }

    fn failed(&mut self, unreadable: Vec<(String, String)>) {
        for (id, reason) in unreadable {
            self.documents[self.places[&id]].fate = Some(Fate::Failed(reason));
        }
    }
}
