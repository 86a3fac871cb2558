//! Messages of the output plugin pgoutput, version 1 of its protocol: committed transactions only.
//! Pure. Truncated or unknown bytes are an error, never a panic.

mod bytes;
#[cfg(test)]
mod tests;

use ::bytes::Bytes;

use crate::lsn::Lsn;
use bytes::MessageReader;

/// The description of a table, which the stream sends before its first change.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Relation {
    pub(crate) oid: u32,
    pub(crate) schema: String,
    pub(crate) name: String,
    pub(crate) identity: ReplicaIdentity,
    pub(crate) columns: Vec<Column>,
}

/// The replica identity: the columns of an old row.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum ReplicaIdentity {
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
pub(crate) enum OldRow {
    /// Values outside of the identity are nulls.
    Key(Tuple),
    Full(Tuple),
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum StreamMessage {
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
        old: Option<OldRow>,
        new: Tuple,
    },
    Delete {
        oid: u32,
        old: OldRow,
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
pub(crate) fn parse_message(message: Bytes) -> Result<StreamMessage, String> {
    let mut reader = MessageReader(message);
    let part = match reader.read_u8()? {
        b'B' => StreamMessage::Begin {
            commit: reader.read_lsn()?,
            at: reader.read_u64()?.cast_signed(),
            xid: reader.read_u32()?,
        },
        b'C' => {
            reader.skip_bytes(9)?;
            let end = reader.read_lsn()?;
            reader.skip_bytes(8)?;
            StreamMessage::Commit { end }
        }
        b'R' => StreamMessage::Relation(read_relation(&mut reader)?),
        b'I' => {
            let oid = reader.read_u32()?;
            reader.expect_byte(b'N')?;
            let new = read_tuple(&mut reader)?;
            StreamMessage::Insert { oid, new }
        }
        b'U' => read_update(&mut reader)?,
        b'D' => {
            let oid = reader.read_u32()?;
            let tag = reader.read_u8()?;
            let old = read_old_row(&mut reader, tag)?;
            StreamMessage::Delete { oid, old }
        }
        b'T' => {
            let count = reader.read_u32()?;
            reader.skip_bytes(1)?;
            let oids: Result<_, String> = (0..count).map(|_| reader.read_u32()).collect();
            StreamMessage::Truncate { oids: oids? }
        }
        b'M' => {
            let is_transactional = reader.read_u8()? & 1 == 1;
            reader.skip_bytes(8)?;
            let prefix = reader.read_c_string()?;
            let length = reader.read_u32()?;
            StreamMessage::Message {
                is_transactional,
                prefix,
                content: reader.take_bytes(length as usize)?,
            }
        }
        // Their contents are not needed.
        b'Y' | b'O' => return Ok(StreamMessage::Other),
        tag => return Err(format!("a message begins with the unknown byte {tag}")),
    };
    reader.require_end()?;
    Ok(part)
}

fn read_relation(reader: &mut MessageReader) -> Result<Relation, String> {
    let oid = reader.read_u32()?;
    let schema = match reader.read_c_string()? {
        named if named.is_empty() => "pg_catalog".to_owned(),
        named => named,
    };
    let name = reader.read_c_string()?;
    let identity = match reader.read_u8()? {
        b'd' | b'i' => ReplicaIdentity::Key,
        b'n' => ReplicaIdentity::Nothing,
        b'f' => ReplicaIdentity::Full,
        other => {
            return Err(format!(
                "the table has the unknown replica identity {other}"
            ));
        }
    };
    let count = reader.read_u16()?;
    let columns: Result<_, String> = (0..count)
        .map(|_| {
            let is_key = reader.read_u8()? & 1 == 1;
            let name = reader.read_c_string()?;
            let kind = reader.read_u32()?;
            reader.skip_bytes(4)?;
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

fn read_update(reader: &mut MessageReader) -> Result<StreamMessage, String> {
    let oid = reader.read_u32()?;
    let mut tag = reader.read_u8()?;
    let mut before = None;
    if tag != b'N' {
        before = Some(read_old_row(reader, tag)?);
        tag = reader.read_u8()?;
    }
    match tag {
        b'N' => Ok(StreamMessage::Update {
            oid,
            old: before,
            new: read_tuple(reader)?,
        }),
        other => Err(format!("a new row begins with the unknown byte {other}")),
    }
}

fn read_old_row(reader: &mut MessageReader, tag: u8) -> Result<OldRow, String> {
    match tag {
        b'K' => read_tuple(reader).map(OldRow::Key),
        b'O' => read_tuple(reader).map(OldRow::Full),
        other => Err(format!("an old row begins with the unknown byte {other}")),
    }
}

fn read_tuple(reader: &mut MessageReader) -> Result<Tuple, String> {
    let count = reader.read_u16()?;
    let value = |_| match reader.read_u8()? {
        b'n' => Ok(Value::Null),
        b'u' => Ok(Value::Unchanged),
        b't' => {
            let length = reader.read_u32()?;
            reader.read_utf8(length as usize).map(Value::Text)
        }
        other => Err(format!("a value begins with the unknown byte {other}")),
    };
    (0..count).map(value).collect()
}
