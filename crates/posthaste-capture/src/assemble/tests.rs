use bytes::{BufMut as _, Bytes, BytesMut};
use uuid::Uuid;

use super::Assembler;
use crate::copying::{CopiedTable, TouchedRows};
use crate::event::Event;
use crate::lsn::Lsn;
use crate::pgoutput::{Column, Relation, ReplicaIdentity, Value};
use crate::position::{Position, Timelines};
use crate::source::{CapturedTable, Source, TableName};

const EPOCH: Uuid = Uuid::from_u128(1);

fn source() -> Source {
    Source::Tables(vec![CapturedTable {
        table: TableName::read("public.t").unwrap(),
        columns: Vec::new(),
        filter: None,
        operations: Vec::new(),
        key: Vec::new(),
    }])
}

fn begin(commit: u64) -> Bytes {
    let mut message = BytesMut::from(&b"B"[..]);
    message.put_u64(commit);
    message.put_i64(0);
    message.put_u32(7);
    message.freeze()
}

fn commit(end: u64) -> Bytes {
    let mut message = BytesMut::from(&b"C\0"[..]);
    message.put_u64(0);
    message.put_u64(end);
    message.put_i64(0);
    message.freeze()
}

fn table(oid: u32, schema: &str) -> Bytes {
    let mut message = BytesMut::from(&b"R"[..]);
    message.put_u32(oid);
    message.put_slice(schema.as_bytes());
    message.put_slice(b"\0t\0d\0\x01\x01id\0\0\0\0\x17\xff\xff\xff\xff");
    message.freeze()
}

fn insert(oid: u32, id: u8) -> Bytes {
    let mut message = BytesMut::from(&b"I"[..]);
    message.put_u32(oid);
    message.put_slice(b"N\0\x01t\0\0\0\x01");
    message.put_u8(id);
    message.freeze()
}

fn truncate(oids: &[u32]) -> Bytes {
    let mut message = BytesMut::from(&b"T"[..]);
    message.put_u32(oids.len() as u32);
    message.put_u8(0);
    oids.iter().for_each(|oid| message.put_u32(*oid));
    message.freeze()
}

fn position(commit: u64, record: u64, row: u16) -> Position {
    Position {
        commit: Lsn(commit),
        record: Lsn(record),
        row,
    }
}

/// What becomes of these messages, with their records, beyond a mark.
fn events(marked: Position, messages: &[(u64, Bytes)]) -> Vec<Event> {
    let source = source();
    let timelines = Timelines::parse(1, "").unwrap();
    let mut assembler = Assembler::new(&source, EPOCH, timelines, marked);
    let steps = messages.iter().map(|(record, message)| {
        let step = assembler.read_message(Lsn(*record), message.clone());
        step.unwrap().events
    });
    steps.flatten().collect()
}

fn places(events: &[Event]) -> Vec<Position> {
    events.iter().map(|event| event.position).collect()
}

fn two_transactions() -> Vec<(u64, Bytes)> {
    // The second one began first: its records stand before and after those of the first.
    vec![
        (20, begin(30)),
        (20, table(1, "public")),
        (20, insert(1, b'1')),
        (20, insert(1, b'2')),
        (25, insert(1, b'3')),
        (30, commit(31)),
        (10, begin(40)),
        (10, insert(1, b'4')),
        (35, insert(1, b'5')),
        (40, commit(41)),
    ]
}

#[test]
fn rows_of_one_record_have_distinct_positions_and_ids() {
    let all = events(Position::default(), &two_transactions());
    let expected = [
        position(30, 20, 0),
        position(30, 20, 1),
        position(30, 25, 0),
        position(40, 10, 0),
        position(40, 35, 0),
    ];
    assert_eq!(places(&all), expected);
    assert!(places(&all).is_sorted());
    let mut ids: Vec<Uuid> = all.iter().map(|event| event.id).collect();
    ids.sort_unstable();
    ids.dedup();
    assert_eq!(ids.len(), all.len());
}

#[test]
fn unmarked_events_are_repeated_and_marked_ones_are_not() {
    let all = events(Position::default(), &two_transactions());
    for done in 1..=all.len() {
        let rest = events(all[done - 1].position, &two_transactions());
        assert_eq!(rest, all[done..], "after {done}");
    }
}

#[test]
fn truncations_are_one_event_per_table() {
    let messages = [
        (20, begin(30)),
        (20, table(1, "public")),
        (20, table(2, "other")),
        (20, truncate(&[1, 1, 2])),
    ];
    let all = events(Position::default(), &messages);
    assert_eq!(places(&all), [position(30, 20, 0), position(30, 20, 1)]);
    assert_ne!(all[0].id, all[1].id);
    assert_eq!(all[1].name, "other.t");
    assert_eq!(events(all[0].position, &messages), all[1..]);
}

#[test]
fn rows_of_posthaste_take_a_row_number_but_are_not_captured() {
    let messages = [
        (20, begin(30)),
        (20, table(1, "posthaste")),
        (20, table(2, "public")),
        (20, insert(1, b'1')),
        (20, insert(2, b'2')),
    ];
    let all = events(Position::default(), &messages);
    assert_eq!(places(&all), [position(30, 20, 1)]);
}

#[test]
fn unreadable_changes_stop_until_they_are_skipped() {
    let source = source();
    let read = |marked: Position| {
        let timelines = Timelines::parse(1, "").unwrap();
        let mut assembler = Assembler::new(&source, EPOCH, timelines, marked);
        assembler.read_message(Lsn(20), begin(30)).unwrap();
        assembler.read_message(Lsn(20), table(1, "public")).unwrap();
        let broken = assembler.read_message(Lsn(21), Bytes::from_static(b"I\0\0\0\x01Nx"));
        broken.and_then(|_| assembler.read_message(Lsn(22), insert(1, b'1')))
    };
    let stopped = read(Position::default()).unwrap_err();
    assert_eq!(stopped.position, position(30, 21, 0));
    let step = read(stopped.position).unwrap();
    assert_eq!(places(&step.events), [position(30, 22, 0)]);
}

#[test]
fn changes_of_undescribed_tables_are_unreadable() {
    let source = source();
    let timelines = Timelines::parse(1, "").unwrap();
    let mut assembler = Assembler::new(&source, EPOCH, timelines, Position::default());
    assembler.read_message(Lsn(20), begin(30)).unwrap();
    assert!(assembler.read_message(Lsn(20), insert(9, b'1')).is_err());
}

/// A fixed sequence, so that a failure comes again.
struct Random(u64);

impl Random {
    fn below(&mut self, bound: usize) -> usize {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        (self.0 % bound as u64) as usize
    }
}

/// Streams whose messages are changed, left out, repeated or out of order.
#[test]
fn mutated_streams_are_read_or_refused_and_never_panic() {
    let mut random = Random(0x2545_f491_4f6c_dd1d);
    let source = source();
    let (mut read, mut refused) = (0, 0);
    for _ in 0..10_000 {
        let timelines = Timelines::parse(1, "").unwrap();
        let mut assembler = Assembler::new(&source, EPOCH, timelines, Position::default());
        for _ in 0..20 {
            let message = match random.below(8) {
                0 => begin(9),
                1 => commit(9),
                2 => table(1, "public"),
                3 => truncate(&[1, 1, 2]),
                4 => mark("posthaste.mark", "m"),
                _ => insert(1 + u32::from(random.below(9) == 0), b'7'),
            };
            let mut message = message.to_vec();
            while random.below(3) == 0 && !message.is_empty() {
                let at = random.below(message.len());
                match random.below(3) {
                    0 => message[at] = random.below(256) as u8,
                    1 => message.truncate(at),
                    _ => message.insert(at, random.below(256) as u8),
                }
            }
            match assembler.read_message(Lsn(random.below(20) as u64), message.into()) {
                Ok(_) => read += 1,
                Err(_) => refused += 1,
            }
        }
    }
    assert!(read > 10_000 && refused > 10_000, "{read} {refused}");
}

fn mark(prefix: &str, content: &str) -> Bytes {
    let mut message = BytesMut::from(&b"M\x01"[..]);
    message.put_u64(0);
    message.put_slice(prefix.as_bytes());
    message.put_u8(0);
    message.put_u32(content.len() as u32);
    message.put_slice(content.as_bytes());
    message.freeze()
}

#[test]
fn delivers_marks_of_copies_and_changes_of_the_copied_table() {
    let source = source();
    let timelines = Timelines::parse(1, "").unwrap();
    let mut assembler = Assembler::new(&source, EPOCH, timelines, Position::default());
    let column = Column {
        name: "id".into(),
        kind: 23,
        is_key: true,
    };
    let copied = CopiedTable {
        relation: Relation {
            oid: 1,
            schema: "public".into(),
            name: "t".into(),
            identity: ReplicaIdentity::Key,
            columns: vec![column],
        },
        keys: vec!["id".into()],
    };
    let mut take = |record, message| assembler.read_message(Lsn(record), message).unwrap();
    take(1, begin(9));
    take(1, table(1, "public"));
    assert!(
        take(2, insert(1, b'5')).touched.is_empty(),
        "none is copied"
    );
    assembler.watch_table(Some(&copied));
    let mut take = |record, message| assembler.read_message(Lsn(record), message).unwrap();
    let touched = take(3, insert(1, b'6')).touched;
    assert_eq!(touched, [TouchedRows::Rows(vec![vec!["6".to_owned()]])]);
    assert_eq!(take(4, truncate(&[1])).touched, [TouchedRows::All]);
    assert_eq!(take(5, mark("other", "a")).mark, None);
    let (content, place) = take(6, mark("posthaste.mark", "a")).mark.unwrap();
    assert_eq!((&*content, place.record), ("a", Lsn(6)));
    let rows = ["7", "8"].map(|id| vec![Value::Text(id.into())]);
    let read = assembler.events_of_rows(&copied.relation, rows.to_vec(), place);
    let read: Vec<Event> = read.collect::<Result<_, _>>().unwrap();
    assert_eq!(read.len(), 2);
    assert!(read[0].position < read[1].position && read[0].id != read[1].id);
    let body = String::from_utf8(read[1].body.to_vec()).unwrap();
    assert!(body.starts_with(r#"{"operation":"read""#), "{body}");
}
