use std::time::Duration;

use bytes::{BufMut as _, BytesMut};
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _, DuplexStream, duplex};
use tokio::time::Instant;

use super::{DISCONNECT_AFTER, Feed, Frame, KEEP_ALIVE_INTERVAL};
use crate::confirmation::Confirmation;
use crate::lsn::Lsn;

fn feed() -> (Feed, DuplexStream) {
    let (ours, theirs) = duplex(1 << 16);
    let now = std::time::Instant::now();
    let feed = Feed {
        stream: Box::new(ours),
        read: BytesMut::new(),
        write: BytesMut::new(),
        last_received: now,
        reply_requested: false,
        last_sent: now,
        keep_alive: KEEP_ALIVE_INTERVAL,
        confirmation: Confirmation::default(),
    };
    (feed, theirs)
}

fn data(record: u64, content: &[u8]) -> BytesMut {
    let mut frame = BytesMut::from(&b"d"[..]);
    frame.put_u32(4 + 25 + content.len() as u32);
    frame.put_u8(b'w');
    frame.put_u64(record);
    frame.put_u64(0);
    frame.put_u64(0);
    frame.put_slice(content);
    frame
}

#[tokio::test]
async fn dropped_reads_lose_no_bytes() {
    let (mut feed, mut server) = feed();
    let bytes: Vec<u8> = (1..=3_u8)
        .flat_map(|n| data(u64::from(n), &[n; 9]).to_vec())
        .collect();
    let mut frames = Vec::new();
    for byte in bytes {
        server.write_all(&[byte]).await.unwrap();
        let next = tokio::time::timeout(Duration::from_micros(50), feed.next_frame()).await;
        frames.extend(next.ok().map(|frame| frame.unwrap()));
    }
    while frames.len() < 3 {
        frames.push(feed.next_frame().await.unwrap());
    }
    for (frame, n) in frames.into_iter().zip(1..=3_u8) {
        let record = Lsn(u64::from(n));
        let message = bytes::Bytes::from(vec![n; 9]);
        assert_eq!(frame, Frame::Data { record, message });
    }
}

#[tokio::test]
async fn frames_that_are_cut_short_or_unknown_end_the_connection() {
    for content in [&b"w123"[..], b"k", b"", b"x12345678901234567890123456"] {
        let (mut feed, mut server) = feed();
        let mut frame = BytesMut::from(&b"d"[..]);
        frame.put_u32(4 + content.len() as u32);
        frame.put_slice(content);
        server.write_all(&frame).await.unwrap();
        assert!(feed.next_frame().await.is_err(), "{content:?}");
    }
}

#[tokio::test]
async fn sends_status_messages_and_disconnects_from_silent_servers() {
    let (mut feed, mut server) = feed();
    feed.keep_alive_every(Duration::from_millis(90));
    let begun = Instant::now();
    let last_received = async {
        let mut status = [0; 39];
        server.read_exact(&mut status).await.unwrap();
        server.read_exact(&mut status).await.unwrap();
        status
    };
    let status = tokio::select! {
        status = last_received => status,
        frame = feed.next_frame() => panic!("{frame:?}"),
    };
    assert!(begun.elapsed() >= Duration::from_millis(50));
    assert_eq!((status[0], status[5], status[38]), (b'd', b'r', 0));
    // Silent for longer than it may be: asked first, and given up if that is not answered.
    let past = DISCONNECT_AFTER + Duration::from_secs(1);
    feed.last_received = std::time::Instant::now().checked_sub(past).unwrap();
    feed.check_liveness().await.unwrap();
    let mut status = [0; 39];
    loop {
        server.read_exact(&mut status).await.unwrap();
        if status[38] == 1 {
            break;
        }
    }
    let error = feed.next_frame().await.unwrap_err();
    assert!(error.to_string().contains("silent"), "{error}");
}
