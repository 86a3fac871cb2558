//! Cuts the two byte streams of the Postgres protocol into messages. No I/O here.

/// A message with its header, ready to be forwarded.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Message {
    /// `None` for the messages that open a connection, which have no tag.
    pub(super) tag: Option<u8>,
    pub(super) bytes: Vec<u8>,
}

impl Message {
    /// The bytes after the tag and the length.
    pub(super) fn body(&self) -> &[u8] {
        let header = if self.tag.is_some() { 5 } else { 4 };
        self.bytes.get(header..).unwrap_or_default()
    }

    /// Whether this requests encryption, which is answered by a single byte.
    pub(super) fn asks_for_encryption(&self) -> bool {
        const SSL: u32 = 80_877_103;
        const GSS: u32 = 80_877_104;
        self.tag.is_none()
            && self
                .body()
                .first_chunk()
                .is_some_and(|code| [SSL, GSS].contains(&u32::from_be_bytes(*code)))
    }
}

/// The client's stream: untagged messages until the connection is open, tagged ones after that.
#[derive(Debug, Default)]
pub(super) struct ClientFrames {
    pending: Vec<u8>,
    open: bool,
}

impl ClientFrames {
    /// Adds received bytes.
    pub(super) fn push(&mut self, bytes: &[u8]) {
        self.pending.extend_from_slice(bytes);
    }

    pub(super) fn next(&mut self) -> Option<Message> {
        let message = take_message(&mut self.pending, self.open)?;
        self.open = self.open || !message.asks_for_encryption();
        Some(message)
    }
}

/// The server's stream: tagged messages, and bare bytes that answer requests for encryption.
#[derive(Debug, Default)]
pub(super) struct ServerFrames {
    pending: Vec<u8>,
}

impl ServerFrames {
    pub(super) fn push(&mut self, bytes: &[u8]) {
        self.pending.extend_from_slice(bytes);
    }

    /// Returns the next complete message; `bare_bytes` counts the single bytes that come before it.
    pub(super) fn next(&mut self, bare_bytes: &mut u32) -> Option<Message> {
        if *bare_bytes > 0 && !self.pending.is_empty() {
            *bare_bytes -= 1;
            return Some(Message {
                tag: None,
                bytes: self.pending.drain(..1).collect(),
            });
        }
        take_message(&mut self.pending, true)
    }
}

fn take_message(pending: &mut Vec<u8>, tagged: bool) -> Option<Message> {
    let tag_length = usize::from(tagged);
    let length = u32::from_be_bytes(*pending.get(tag_length..)?.first_chunk()?);
    // A length includes itself; a smaller one is not Postgres, and is forwarded as it is.
    let end = tag_length + (length as usize).max(4);
    if pending.len() < end {
        return None;
    }
    let bytes: Vec<u8> = pending.drain(..end).collect();
    let tag = if tagged { bytes.first().copied() } else { None };
    Some(Message { tag, bytes })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn message(tag: u8, body: &[u8]) -> Vec<u8> {
        let mut bytes = vec![tag];
        bytes.extend((u32::try_from(body.len()).unwrap() + 4).to_be_bytes());
        bytes.extend(body);
        bytes
    }

    #[test]
    fn messages_are_found_in_any_fragmentation() {
        let mut stream = Vec::new();
        stream.extend([0, 0, 0, 8, 4, 210, 22, 47]);
        stream.extend([0, 0, 0, 8, 0, 3, 0, 0]);
        stream.extend(message(b'Q', b"COMMIT\0"));
        stream.extend(message(b'S', b""));
        for size in 1..=stream.len() {
            let mut frames = ClientFrames::default();
            let mut found = Vec::new();
            for piece in stream.chunks(size) {
                frames.push(piece);
                while let Some(message) = frames.next() {
                    found.push(message);
                }
            }
            let tags: Vec<_> = found.iter().map(|message| message.tag).collect();
            assert_eq!(tags, [None, None, Some(b'Q'), Some(b'S')]);
            assert!(found[0].asks_for_encryption());
            assert_eq!(found[2].body(), b"COMMIT\0");
            assert_eq!(
                found
                    .into_iter()
                    .flat_map(|message| message.bytes)
                    .collect::<Vec<_>>(),
                stream
            );
        }
    }

    #[test]
    fn the_answer_about_encryption_is_not_a_message() {
        let mut frames = ServerFrames::default();
        let mut bare_bytes = 1;
        frames.push(b"N");
        frames.push(&message(b'Z', b"I"));
        assert_eq!(
            frames.next(&mut bare_bytes),
            Some(Message {
                tag: None,
                bytes: b"N".to_vec()
            })
        );
        assert_eq!(frames.next(&mut bare_bytes).unwrap().tag, Some(b'Z'));
    }
}
