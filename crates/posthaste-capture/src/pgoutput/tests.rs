use std::time::{Duration, Instant};

use bytes::Bytes;

use super::{OldRow, ReplicaIdentity, StreamMessage, Value, parse_message};
use crate::lsn::Lsn;

/// As a server sent them.
const REAL: [&[u8]; 8] = [
    b"B\0\0\0\0\x01\xd9\x41\x68\0\x02\xa0\0\0\0\0\0\0\0\x02\xe6",
    b"C\0\0\0\0\0\x01\xd9\x41\x68\0\0\0\0\x01\xd9\x41\x98\0\x02\xa0\0\0\0\0\0",
    b"R\0\0\x40\x01public\0t\0d\0\x02\x01id\0\0\0\0\x17\xff\xff\xff\xff\
      \0a\0\0\0\0\x19\xff\xff\xff\xff",
    b"I\0\0\x40\x01N\0\x02t\0\0\0\x011n",
    b"U\0\0\x40\x01K\0\x02t\0\0\0\x011nN\0\x02t\0\0\0\x012u",
    b"D\0\0\x40\x01O\0\x02t\0\0\0\x011t\0\0\0\x02\xc3\xbc",
    b"T\0\0\0\x01\0\0\0\x40\x01",
    b"M\x01\0\0\0\0\x01\xd9\x41\x68order\0\0\0\0\x02{}",
];

fn text(text: &str) -> Value {
    Value::Text(text.into())
}

#[test]
fn reads_every_kind_of_message() {
    let parts = REAL.map(|message| parse_message(Bytes::from_static(message)).unwrap());
    let [
        begin,
        commit,
        relation,
        insert,
        update,
        delete,
        truncate,
        message,
    ] = parts;
    let at = Lsn(0x01d9_4168);
    assert_eq!(
        begin,
        StreamMessage::Begin {
            commit: at,
            at: 0x2_a000_0000_0000,
            xid: 742
        }
    );
    assert_eq!(
        commit,
        StreamMessage::Commit {
            end: Lsn(0x01d9_4198)
        }
    );
    let StreamMessage::Relation(relation) = relation else {
        panic!("{relation:?}")
    };
    assert_eq!((&*relation.schema, &*relation.name), ("public", "t"));
    assert_eq!(relation.identity, ReplicaIdentity::Key);
    let keys: Vec<bool> = relation.columns.iter().map(|one| one.is_key).collect();
    assert_eq!(keys, [true, false]);
    let oid = 0x4001;
    let new = vec![text("1"), Value::Null];
    assert_eq!(insert, StreamMessage::Insert { oid, new });
    let old = Some(OldRow::Key(vec![text("1"), Value::Null]));
    let new = vec![text("2"), Value::Unchanged];
    assert_eq!(update, StreamMessage::Update { oid, old, new });
    let old = OldRow::Full(vec![text("1"), text("ü")]);
    assert_eq!(delete, StreamMessage::Delete { oid, old });
    assert_eq!(truncate, StreamMessage::Truncate { oids: vec![oid] });
    let StreamMessage::Message {
        prefix, content, ..
    } = message
    else {
        panic!("{message:?}")
    };
    assert_eq!((&*prefix, &*content), ("order", &b"{}"[..]));
}

#[test]
fn truncated_and_overlong_messages_are_errors() {
    for message in REAL {
        for length in 0..message.len() {
            assert!(parse_message(Bytes::from_static(&message[..length])).is_err());
        }
        let longer: Vec<u8> = message.iter().copied().chain([0]).collect();
        assert!(parse_message(longer.into()).is_err());
    }
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

#[test]
fn mutated_messages_are_read_or_refused_and_never_panic() {
    let mut random = Random(0x2545_f491_4f6c_dd1d);
    let (mut read_well, mut refused) = (0_u32, 0_u32);
    let end = Instant::now() + Duration::from_secs(5);
    for _ in 0..500_000 {
        let mut message = REAL[random.below(REAL.len())].to_vec();
        for _ in 0..=random.below(3) {
            let at = random.below(message.len().max(1));
            match random.below(3) {
                0 if !message.is_empty() => message[at] = random.below(256) as u8,
                1 => message.truncate(at),
                _ => message.insert(at.min(message.len()), random.below(256) as u8),
            }
        }
        match parse_message(message.into()) {
            Ok(_) => read_well += 1,
            Err(_) => refused += 1,
        }
        if Instant::now() > end {
            break;
        }
    }
    assert!(read_well > 100 && refused > 1000, "{read_well} {refused}");
}
