//! Messages of the output plugin pgoutput, version 1 of its protocol: committed transactions only.
//! Pure. Truncated or unknown bytes are an error, never a panic.

mod bytes;
#[cfg(test)]
mod tests;

use ::bytes::Bytes;

use crate::lsn::Lsn;
use bytes::Reader;

/// The description of a table, which the stream sends before its first change.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Relation {
    pub(crate) oid: u32,
    pub(crate) schema: String,
    pub(crate) name: String,
    pub(crate) identity: Identity,
    pub(crate) columns: Vec<Column>,
}

/// The replica identity: the columns of an old row.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Identity {
    Key,
    Nothing,
    Full,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Column {
    pub(crate) name: String,
    pub(crate) kind: u32,
    /// It belongs to the replica identity.
    pub(crate) is_key: bool,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Value {
    Null,
    /// A large value that the change kept, and that the log does not contain.
    Unchanged,
    Text(String),
}

pub(crate) type Tuple = Vec<Value>;

/// The row before a change.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Old {
    /// Values outside of the identity are nulls.
    Key(Tuple),
    Full(Tuple),
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Part {
    Begin {
        commit: Lsn,
        /// Microseconds since 2000.
        at: i64,
        xid: u32,
    },
    Commit {
        end: Lsn,
    },
    Relation(Relation),
    Insert {
        oid: u32,
        new: Tuple,
    },
    Update {
        oid: u32,
        old: Option<Old>,
        new: Tuple,
    },
    Delete {
        oid: u32,
        old: Old,
    },
    Truncate {
        oids: Vec<u32>,
    },
    Message {
        is_transactional: bool,
        prefix: String,
        content: Bytes,
    },
    /// The name of a type, or the origin of a transaction.
    Other,
}

/// Whether a message is a change, by its first byte.
pub(crate) fn is_change(message: &[u8]) -> bool {
    matches!(message.first(), Some(b'I' | b'U' | b'D' | b'T' | b'M'))
}

/// Reads a whole message.
pub(crate) fn read(message: Bytes) -> Result<Part, String> {
    let mut reader = Reader(message);
    let part = match reader.byte()? {
        b'B' => Part::Begin {
            commit: reader.lsn()?,
            at: reader.long()?.cast_signed(),
            xid: reader.int()?,
        },
        b'C' => {
            reader.skip(9)?;
            let end = reader.lsn()?;
            reader.skip(8)?;
            Part::Commit { end }
        }
        b'R' => Part::Relation(relation(&mut reader)?),
        b'I' => {
            let oid = reader.int()?;
            reader.expect(b'N')?;
            let new = tuple(&mut reader)?;
            Part::Insert { oid, new }
        }
        b'U' => update(&mut reader)?,
        b'D' => {
            let oid = reader.int()?;
            let tag = reader.byte()?;
            let old = old(&mut reader, tag)?;
            Part::Delete { oid, old }
        }
        b'T' => {
            let count = reader.int()?;
            reader.skip(1)?;
            let oids: Result<_, String> = (0..count).map(|_| reader.int()).collect();
            Part::Truncate { oids: oids? }
        }
        b'M' => {
            let is_transactional = reader.byte()? & 1 == 1;
            reader.skip(8)?;
            let prefix = reader.text()?;
            let length = reader.int()?;
            Part::Message {
                is_transactional,
                prefix,
                content: reader.take(length as usize)?,
            }
        }
        // Their contents are not needed.
        b'Y' | b'O' => return Ok(Part::Other),
        tag => return Err(format!("a message begins with the unknown byte {tag}")),
    };
    reader.end()?;
    Ok(part)
}

fn relation(reader: &mut Reader) -> Result<Relation, String> {
    let oid = reader.int()?;
    let schema = match reader.text()? {
        named if named.is_empty() => "pg_catalog".to_owned(),
        named => named,
    };
    let name = reader.text()?;
    let identity = match reader.byte()? {
        b'd' | b'i' => Identity::Key,
        b'n' => Identity::Nothing,
        b'f' => Identity::Full,
        other => {
            return Err(format!(
                "the table has the unknown replica identity {other}"
            ));
        }
    };
    let count = reader.short()?;
    let columns: Result<_, String> = (0..count)
        .map(|_| {
            let is_key = reader.byte()? & 1 == 1;
            let name = reader.text()?;
            let kind = reader.int()?;
            reader.skip(4)?;
            Ok(Column { name, kind, is_key })
        })
        .collect();
    Ok(Relation {
        oid,
        schema,
        name,
        identity,
        columns: columns?,
    })
}

fn update(reader: &mut Reader) -> Result<Part, String> {
    let oid = reader.int()?;
    let mut tag = reader.byte()?;
    let mut before = None;
    if tag != b'N' {
        before = Some(old(reader, tag)?);
        tag = reader.byte()?;
    }
    match tag {
        b'N' => Ok(Part::Update {
            oid,
            old: before,
            new: tuple(reader)?,
        }),
        other => Err(format!("a new row begins with the unknown byte {other}")),
    }
}

fn old(reader: &mut Reader, tag: u8) -> Result<Old, String> {
    match tag {
        b'K' => tuple(reader).map(Old::Key),
        b'O' => tuple(reader).map(Old::Full),
        other => Err(format!("an old row begins with the unknown byte {other}")),
    }
}

fn tuple(reader: &mut Reader) -> Result<Tuple, String> {
    let count = reader.short()?;
    let value = |_| match reader.byte()? {
        b'n' => Ok(Value::Null),
        b'u' => Ok(Value::Unchanged),
        b't' => {
            let length = reader.int()?;
            reader.utf8(length as usize).map(Value::Text)
        }
        other => Err(format!("a value begins with the unknown byte {other}")),
    };
    (0..count).map(value).collect()
}
