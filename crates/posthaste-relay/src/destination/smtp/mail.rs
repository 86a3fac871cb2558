//! The format of a mail. It is made of a message without IO, so that a mail that cannot be sent is
//! rejected before the server is contacted.

use std::time::SystemTime;

use lettre::message::header::{ContentTransferEncoding, ContentType, HeaderName, HeaderValue};
use lettre::message::{Body, Mailbox, Mailboxes, SinglePart};
use lettre::{Address, Message as Email};
use url::Host;

use super::fold::fold_headers;
use crate::message::Message;

/// A mail in the form in which it is sent.
pub(super) struct Mail {
    pub(super) sender: Address,
    pub(super) recipients: Vec<Address>,
    /// Whether the route sets the sender, not the message.
    pub(super) has_our_sender: bool,
    pub(super) text: Vec<u8>,
}

/// Headers about the sender, identity, date or encoding of a mail: a route may set only those in
/// [`INTERPRETED_HEADERS`].
const RESERVED_HEADERS: [&str; 8] = [
    "bcc",
    "content-transfer-encoding",
    "date",
    "message-id",
    "mime-version",
    "received",
    "return-path",
    "sender",
];
/// Headers that the destination interprets.
const INTERPRETED_HEADERS: [&str; 7] = [
    "bcc",
    "cc",
    "content-type",
    "from",
    "reply-to",
    "subject",
    "to",
];
/// Headers for receivers of webhooks; readers of a mail do not need them.
const OMITTED_HEADERS: [&str; 2] = ["traceparent", "tracestate"];

impl Mail {
    /// Returns whether the server must support SMTPUTF8.
    pub(super) fn has_utf8_addresses(&self) -> bool {
        let mut all = self.recipients.iter().chain([&self.sender]);
        all.any(|address| !address.to_string().is_ascii())
    }

    /// Makes a mail of a message; the error is the reason if it cannot.
    pub(super) fn from_message(
        message: &Message,
        from: Option<&str>,
        to: Option<&str>,
    ) -> Result<Self, String> {
        let headers = Headers::read(message)?;
        let own = headers.get("from");
        let from = own.or(from).ok_or("the mail has no sender")?;
        let from: Mailbox = parse_mailbox("from", from)?;
        // It is the same at each attempt, so that mail programs can detect duplicates.
        let id = format!("<{}@{}>", message.id, from.email.domain());
        let mut mail = Email::builder()
            .message_id(Some(id))
            .date(SystemTime::from(message.job.enqueued_at))
            .subject(headers.get("subject").unwrap_or(&message.kind))
            .from(from);
        for to in parse_mailboxes("to", headers.get("to").or(to))? {
            mail = mail.to(to);
        }
        for cc in parse_mailboxes("cc", headers.get("cc"))? {
            mail = mail.cc(cc);
        }
        for bcc in parse_mailboxes("bcc", headers.get("bcc"))? {
            mail = mail.bcc(bcc);
        }
        for reply_to in parse_mailboxes("reply-to", headers.get("reply-to"))? {
            mail = mail.reply_to(reply_to);
        }
        let kind = headers.get("content-type");
        let is_text = message.binary_body().is_none();
        let kind = ContentType::parse(kind.unwrap_or(match is_text {
            true => "text/plain; charset=utf-8",
            false => "application/octet-stream",
        }));
        let kind = kind.map_err(|_| "the header content-type cannot be read")?;
        for (name, value) in headers.others() {
            let known = HeaderName::new_from_ascii(name.to_owned());
            let known = known.map_err(|_| format!("the header {name:?} cannot be sent"))?;
            mail = mail.raw_header(HeaderValue::new(known, value.to_owned()));
        }
        let text = SinglePart::builder().header(kind);
        let mail = mail.singlepart(match message.binary_body() {
            Some(bytes) => text.body(base64_body(bytes)),
            None => text.body(normalize_line_ends(message.payload())),
        });
        let mail = mail.map_err(|_| "the mail has no recipient")?;
        Ok(Self {
            sender: mail
                .envelope()
                .from()
                .cloned()
                .ok_or("the mail has no sender")?,
            recipients: mail.envelope().to().to_vec(),
            has_our_sender: own.is_none(),
            text: fold_headers(&without_final_line_breaks(mail.formatted()))?,
        })
    }
}

/// Returns why a route may not set a header of this name.
pub(super) fn header_objection(name: &str) -> Option<String> {
    let is = |list: &[&str]| list.iter().any(|one| name.eq_ignore_ascii_case(one));
    (is(&RESERVED_HEADERS) && !is(&INTERPRETED_HEADERS)).then(|| "cannot be set by a route".into())
}

/// The headers of the route. None contains a line break.
struct Headers<'a>(Vec<(&'a str, &'a str)>);

impl<'a> Headers<'a> {
    fn read(message: &'a Message) -> Result<Self, String> {
        let given = message.headers.iter();
        let given: Vec<(&str, &str)> = given
            .map(|(name, value)| (name.as_str(), value.as_str()))
            .collect();
        for (name, value) in given.iter().chain([&("subject", message.kind.as_str())]) {
            if [name, value]
                .iter()
                .any(|text| text.contains(['\r', '\n', '\0']))
            {
                return Err(format!("the header {name:?} contains a line break or NUL"));
            }
        }
        let problem = given
            .iter()
            .find_map(|(name, _)| Some((name, header_objection(name)?)));
        match problem {
            Some((name, why)) => Err(format!("the header {name:?} {why}")),
            None => Ok(Self(given)),
        }
    }

    fn get(&self, wanted: &str) -> Option<&'a str> {
        let mut given = self.0.iter();
        let found = given.find(|(name, _)| name.eq_ignore_ascii_case(wanted));
        found.map(|(_, value)| *value)
    }

    fn others(&self) -> impl Iterator<Item = (&'a str, &'a str)> {
        let is = |name: &str, list: &[&str]| list.iter().any(|one| name.eq_ignore_ascii_case(one));
        let all = self.0.iter().copied();
        all.filter(move |(name, _)| !is(name, &INTERPRETED_HEADERS) && !is(name, &OMITTED_HEADERS))
    }
}

fn parse_mailbox(name: &str, text: &str) -> Result<Mailbox, String> {
    let mut all = parse_mailboxes(name, Some(text))?;
    match (all.pop(), all.is_empty()) {
        (Some(one), true) => Ok(one),
        _ => Err(format!("the header {name:?} must be one address")),
    }
}

/// Parses addresses, such as `Ada <ada@example.com>, bob@example.com`; an empty text has none.
fn parse_mailboxes(name: &str, text: Option<&str>) -> Result<Vec<Mailbox>, String> {
    let text = text.unwrap_or("").trim();
    if text.is_empty() {
        return Ok(Vec::new());
    }
    // The address may be a secret: the error does not repeat it.
    let wrong = || format!("the header {name:?} contains no addresses");
    if text.contains(['\r', '\n', '\0']) {
        return Err(wrong());
    }
    let all: Mailboxes = text.parse().map_err(|_| wrong())?;
    Ok(all.into_iter().map(to_ascii_domain).collect())
}

/// Converts a domain in other letters to its ASCII form, which every server accepts (RFC 5890). An
/// address with other letters before the @ needs SMTPUTF8 anyway.
fn to_ascii_domain(mailbox: Mailbox) -> Mailbox {
    let (user, domain) = (mailbox.email.user(), mailbox.email.domain());
    let ascii = match user.is_ascii() && !domain.is_ascii() {
        true => Host::parse(domain).ok(),
        false => None,
    };
    match ascii.and_then(|ascii| Address::new(user, ascii.to_string()).ok()) {
        Some(email) => Mailbox { email, ..mailbox },
        None => mailbox,
    }
}

/// Encodes bytes so that no server mistakes them for lines.
fn base64_body(bytes: &[u8]) -> Body {
    let base64 = ContentTransferEncoding::Base64;
    let body = Body::new_with_encoding(bytes.to_vec(), base64);
    body.unwrap_or_else(Body::new)
}

/// Converts the line ends of a text to those of a mail. A lone carriage return counts as one,
/// because some servers treat it so.
fn normalize_line_ends(text: &str) -> String {
    text.replace("\r\n", "\n").replace('\r', "\n")
}

/// Removes the last line breaks: one comes with the mark that ends the mail, and lettre adds the
/// other.
fn without_final_line_breaks(mut text: Vec<u8>) -> Vec<u8> {
    for _ in 0..2 {
        let end = text.strip_suffix(b"\r\n").map_or(text.len(), <[u8]>::len);
        text.truncate(end);
    }
    text
}

#[cfg(test)]
mod tests {
    use super::Mail;
    use crate::message::mapping::Mapping;
    use crate::message::template::Template;
    use crate::message::tests::{ID, job};

    /// Returns the mail of a job with these headers, and its text.
    fn mail(headers: &[(&str, &str)]) -> Result<(Mail, String), String> {
        let mut mapping = Mapping::default();
        for (name, value) in headers {
            mapping = mapping.header(*name, Template::text(*value));
        }
        let message = mapping.message(job("welcome", "{}"), ID).unwrap();
        let mail = Mail::from_message(&message, Some("us@example.com"), Some("ops@example.com"))?;
        let text = String::from_utf8(mail.text.clone()).unwrap();
        Ok((mail, text))
    }

    fn recipients(mail: &Mail) -> Vec<String> {
        mail.recipients.iter().map(ToString::to_string).collect()
    }

    #[test]
    fn a_mail_combines_the_job_and_the_route_headers() {
        let (plain, text) = mail(&[]).unwrap();
        assert_eq!(plain.sender.to_string(), "us@example.com");
        assert_eq!(recipients(&plain), ["ops@example.com"]);
        for line in [
            "Message-ID: <01900000-0000-7000-8000-00000000002a@example.com>\r\n",
            "Date: Sat, 21 Nov 2026 10:00:00 +0000\r\n",
            "Subject: welcome\r\n",
            "From: us@example.com\r\n",
            "To: ops@example.com\r\n",
        ] {
            assert!(text.contains(line), "{line:?} in {text}");
        }
        let (mail, text) = mail(&[
            ("From", "Ada L. <ada@example.org>"),
            ("to", "Bob <bob@example.com>, eve@example.com"),
            ("cc", "cc@example.com"),
            ("bcc", "secret@example.com"),
            ("reply-to", ""),
            ("subject", "Grüße"),
            ("content-type", "text/html; charset=utf-8"),
            ("List-Unsubscribe", "<https://example.com/u>"),
            ("traceparent", "00-1-2-3"),
        ])
        .unwrap();
        assert_eq!(mail.sender.to_string(), "ada@example.org");
        assert_eq!(
            recipients(&mail),
            [
                "bob@example.com",
                "eve@example.com",
                "cc@example.com",
                "secret@example.com"
            ]
        );
        assert!(
            text.contains("List-Unsubscribe: <https://example.com/u>\r\n"),
            "{text}"
        );
        assert!(
            text.contains("text/html") && text.contains("=?utf-8?"),
            "{text}"
        );
        for left_out in ["secret@", "traceparent", "Reply-To"] {
            assert!(!text.contains(left_out), "{left_out} in {text}");
        }
        assert!(!mail.has_utf8_addresses());
    }

    #[test]
    fn json_recipient_names_add_and_lose_no_recipient() {
        let to = Template::parse("{json:kwargs.name} <{kwargs.address}>").unwrap();
        let mapping = Mapping::default().header("to", to);
        for name in [
            "Ada",
            "Acme, Inc.",
            "Ann (Annie)",
            ".NET Shop",
            "ada@home",
            "eve@evil.example, Ada",
            "Zoë \"Z\" \\",
            "eve@evil.example> , <x",
            "",
        ] {
            let kwargs = serde_json::json!({"name": name, "address": "ada@example.com"});
            let job = job("welcome", &kwargs.to_string());
            let message = mapping.message(job, ID).unwrap();
            let mail = Mail::from_message(&message, Some("us@example.com"), None);
            let mail = mail.unwrap_or_else(|problem| panic!("{name:?}: {problem}"));
            assert_eq!(recipients(&mail), ["ada@example.com"], "{name:?}");
        }
    }

    #[test]
    fn job_text_cannot_inject_headers_or_commands() {
        for name in [
            "from",
            "to",
            "cc",
            "bcc",
            "reply-to",
            "subject",
            "x-any",
            "content-type",
        ] {
            for bad in [
                "a@example.com\r\nBcc: eve@example.com",
                "a\rb",
                "a\nb",
                "a\0b",
            ] {
                let refused = mail(&[(name, bad)]).err().unwrap();
                assert!(refused.contains("line break or NUL"), "{name}: {refused}");
                assert!(!refused.contains("example.com"), "{refused}");
            }
        }
        assert!(mail(&[("x\r\ny", "1")]).is_err() && mail(&[("x y", "1")]).is_err());
        for name in ["Message-ID", "date", "sender", "content-transfer-encoding"] {
            assert!(mail(&[(name, "1")]).is_err(), "{name}");
        }
    }

    #[test]
    fn invalid_mail_addresses_are_refused_without_leaking() {
        for (name, wrong) in [
            ("to", "nobody"),
            ("to", "a@example.com b@example.com"),
            ("to", "a@example.com, "),
            ("to", "a@example.com> RCPT TO:<b@example.com"),
            ("to", "<a@example.com> SIZE=1"),
            ("from", "a@example.com, b@example.com"),
            ("from", ""),
        ] {
            let refused = mail(&[(name, wrong)]).err();
            let refused = refused.unwrap_or_else(|| panic!("{name}: {wrong:?} is taken"));
            assert!(!refused.contains("example.com"), "{refused}");
        }
        let message = Mapping::default()
            .message(job("welcome", "{}"), ID)
            .unwrap();
        assert!(Mail::from_message(&message, Some("us@example.com"), None).is_err());
        assert!(Mail::from_message(&message, None, Some("us@example.com")).is_err());
    }

    #[test]
    fn non_ascii_addresses_require_smtputf8() {
        let (mail, text) = mail(&[("to", "jörg@exämple.com")]).unwrap();
        assert!(mail.has_utf8_addresses());
        assert_eq!(recipients(&mail), ["jörg@exämple.com"]);
        assert!(text.contains("To: jörg@exämple.com\r\n"), "{text}");
        let (mail, text) = self::mail(&[("to", "Jörg <info@müller.example>")]).unwrap();
        assert!(!mail.has_utf8_addresses() && text.is_ascii(), "{text}");
        assert_eq!(recipients(&mail), ["info@xn--mller-kva.example"]);
    }

    #[test]
    fn binary_mail_bodies_are_sent_unchanged() {
        for (hex, base64) in [("ff000d0a2e0d0a", "/wANCi4NCg=="), ("7b007d", "ewB9")] {
            let row = format!(r#"{{"posthaste.outbox": {{"id": "{ID}", "hex": "{hex}"}}}}"#);
            let message = Mapping::default().message(job("welcome", &row), ID);
            let mail = Mail::from_message(
                &message.unwrap(),
                Some("us@example.com"),
                Some("ops@example.com"),
            );
            let text = String::from_utf8(mail.unwrap().text).unwrap();
            for header in [
                "Content-Type: application/octet-stream\r\n",
                "Content-Transfer-Encoding: base64\r\n",
            ] {
                assert!(text.contains(header), "{text}");
            }
            assert!(text.ends_with(base64), "{text}");
        }
    }
}
