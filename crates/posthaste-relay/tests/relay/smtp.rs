//! SMTP: the claims of the suite that hold without the detection of duplicates, on a real mail
//! server, and mails whose outcome is unknown.

use std::sync::Arc;
use std::time::Duration;

use posthaste::{Backoff, Config, NewJob};
use posthaste_relay::{Destination, Mapping, OnAmbiguous, Relay, RelayBuilder, Smtp, Template};
use posthaste_testkit::receivers::{Effect, Receiver, Smtp as Server, are_here};
use posthaste_testkit::{PgVersion, Proxy, Sql as _, TestDb, eventually};
use serde_json::{Value, json};
use tokio_postgres::Client;

use super::conformance::{Received, Subject, conformance};
use crate::support::{SOON, all_done, count, database, quick, unfinished, worker};

struct Mails {
    server: Server,
    proxy: Proxy,
}

impl Subject for Mails {
    const DEDUPLICATES: bool = false;
    // Each mail needs four round trips.
    const TIME_LIMIT: Duration = Duration::from_secs(4);

    async fn start() -> Option<Self> {
        if !are_here("smtp", &[Receiver::Smtp]) {
            return None;
        }
        let server = Server::start().unwrap();
        let target = ([127, 0, 0, 1], server.port()).into();
        let proxy = Proxy::start_raw(target).await.unwrap();
        Some(Self { server, proxy })
    }

    async fn destination(&self) -> Arc<dyn Destination> {
        let smtp = Smtp::new(&format!("smtp://{}", self.proxy.address())).unwrap();
        Arc::new(smtp.from("us@example.com").to("them@example.com"))
    }

    fn proxy(&self) -> &Proxy {
        &self.proxy
    }

    async fn received(&self) -> Vec<Received> {
        let mails = self.server.effects().unwrap().into_iter();
        mails
            .map(|mail| Received {
                payload: serde_json::from_str(mail.all["text"].as_str().unwrap()).unwrap(),
                id: id(&mail),
            })
            .collect()
    }

    fn unacceptable(&self) -> Option<NewJob> {
        // Its name would be the subject.
        let name = "hello\r\nBcc: eve@example.com";
        Some(NewJob::new(name, &json!({})).unwrap())
    }

    async fn refuse_for_now(&self, refuse: bool) -> bool {
        let orders = match refuse {
            true => json!({ "data": "451 try again" }),
            false => json!({}),
        };
        self.server.set_behaviour(&orders).unwrap();
        true
    }
}

// A lost answer, and a stop in the middle of a mail, count attempts here: the tests below show it.
conformance!(Mails:
    messages_arrive_as_they_were_enqueued,
    duplicates_have_the_same_id_and_are_accepted,
    a_permanently_rejected_message_does_not_affect_others,
    temporary_rejections_lose_nothing,
    an_unreachable_destination_counts_no_attempt,
    slow_or_silent_destinations_lose_nothing,
    messages_of_an_ordered_relay_arrive_in_order,
    jobs_of_one_key_arrive_in_order,
);

/// Returns the delivery id in a mail's `Message-ID`.
fn id(mail: &Effect) -> String {
    let id = mail.id.strip_prefix('<').unwrap();
    id.split_once('@').unwrap().0.to_owned()
}

struct Setup {
    server: Server,
    db: TestDb,
    client: Client,
}

impl Setup {
    async fn new(test: &str) -> Option<Self> {
        if !are_here(test, &[Receiver::Smtp]) {
            return None;
        }
        let server = Server::start().unwrap();
        let db = database(PgVersion::any()).await;
        let client = db.client().await.unwrap();
        Some(Self { server, db, client })
    }

    fn relay(&self) -> RelayBuilder {
        let to = Template::parse("{kwargs.to}").unwrap();
        let quick = Duration::from_millis(50);
        let smtp = Smtp::new(&self.server.url()).unwrap();
        Relay::to(smtp.from("us@example.com"))
            .mapping(Mapping::default().header("to", to))
            .backoff(Backoff {
                base: quick,
                cap: quick,
            })
    }

    async fn work(&self, relay: RelayBuilder) -> posthaste::WorkerHandle {
        let relay = relay.start().await.unwrap();
        let config = Config {
            shutdown_grace: Duration::from_millis(100),
            ..quick()
        };
        let worker = worker(&self.db.pool(2).unwrap()).config(config);
        worker.consumer("mail", relay).start().await.unwrap()
    }

    async fn enqueue(&self, kwargs: &[Value]) {
        for kwargs in kwargs {
            let job = NewJob::new("welcome", kwargs).unwrap().queue("mail");
            posthaste::enqueue(&self.client, &job).await.unwrap();
        }
    }

    /// Returns the states, attempts and errors of the remaining jobs, ordered by id.
    async fn left(&self) -> Vec<(String, i32, String)> {
        let left = "SELECT state, attempt, coalesce(last_error, '') FROM posthaste.job ORDER BY id";
        self.client.rows(left).await.unwrap()
    }

    fn mails(&self) -> Vec<Effect> {
        self.server.effects().unwrap()
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_lost_answer_resends_or_discards_the_mail_as_configured() {
    let Some(setup) = Setup::new("a_mail_whose_answer_is_lost").await else {
        return;
    };
    setup.server.set_behaviour(&json!({ "cut": true })).unwrap();
    setup.enqueue(&[json!({ "to": "a@example.com" })]).await;
    let worker = setup
        .work(setup.relay().on_ambiguous(OnAmbiguous::Discard))
        .await;
    let is_kept = async || Ok(count(&setup.client, "discarded").await == 1);
    eventually(SOON, "the job is discarded", is_kept)
        .await
        .unwrap();
    let (_, _, error) = setup.left().await.remove(0);
    assert!(
        error.starts_with("ambiguous: no answer to the text"),
        "{error}"
    );
    assert_eq!(setup.mails().len(), 1);
    worker.stop().await.unwrap();

    setup.enqueue(&[json!({ "to": "b@example.com" })]).await;
    let worker = setup.work(setup.relay()).await;
    let twice = async || Ok(setup.mails().len() > 2);
    eventually(SOON, "it is sent again", twice).await.unwrap();
    assert!(setup.left().await[1].1 > 0, "an attempt is counted");
    setup.server.set_behaviour(&json!({})).unwrap();
    let done = async || Ok(unfinished(&setup.client).await == 1);
    eventually(SOON, "it is sent", done).await.unwrap();
    let mails = setup.mails();
    assert!(mails[1..].iter().all(|mail| mail.id == mails[1].id));
    assert_ne!(mails[0].id, mails[1].id);
    worker.stop().await.unwrap();
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn only_the_interrupted_mail_is_ambiguous() {
    let Some(setup) = Setup::new("a_stop_in_the_middle_of_a_mail").await else {
        return;
    };
    let to = |n: usize| json!({ "to": format!("n{n}@example.com") });
    // The server accepts each mail at once and answers too late.
    setup
        .server
        .set_behaviour(&json!({ "delay": 3600 }))
        .unwrap();
    setup.enqueue(&[to(0), to(1)]).await;
    let relay = || {
        setup
            .relay()
            .on_ambiguous(OnAmbiguous::Discard)
            .ordered(true)
    };
    let worker = setup.work(relay()).await;
    let taken = async || Ok(setup.mails().len() == 1);
    eventually(SOON, "it has the first", taken).await.unwrap();
    worker.stop().await.unwrap();
    let left = setup.left().await;
    assert_eq!(
        (left[0].0.as_str(), left[1].1),
        ("discarded", 0),
        "{left:?}"
    );
    assert!(
        left[0].2.starts_with("ambiguous: the connection broke"),
        "{left:?}"
    );

    let limit = Duration::from_millis(500);
    let worker = setup.work(relay().time_limit(limit)).await;
    let is_kept = async || Ok(count(&setup.client, "discarded").await == 2);
    eventually(SOON, "so is the second", is_kept).await.unwrap();
    assert_eq!(setup.mails().len(), 2);
    worker.stop().await.unwrap();
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_mail_is_ambiguous_after_its_relay_died() {
    let Some(setup) = Setup::new("a_mail_is_ambiguous_after_its_relay_died").await else {
        return;
    };
    setup.enqueue(&[json!({ "to": "a@example.com" })]).await;
    for step in [
        "INSERT INTO posthaste.worker (name) VALUES ('dying')",
        "SELECT posthaste.claim('mail', '{0}', max(id), gen_random_uuid(), 10, 1000000) \
         FROM posthaste.worker",
        "SELECT posthaste.rescue(min(id), 0) FROM posthaste.worker",
    ] {
        setup.client.run(step).await.unwrap();
    }
    let worker = setup
        .work(setup.relay().on_ambiguous(OnAmbiguous::Discard))
        .await;
    let is_kept = async || Ok(count(&setup.client, "discarded").await == 1);
    eventually(SOON, "the job is discarded", is_kept)
        .await
        .unwrap();
    let (_, _, error) = setup.left().await.remove(0);
    assert_eq!(error, "ambiguous: a relay died while it held the job");
    worker.stop().await.unwrap();
    assert_eq!(setup.mails().len(), 0);
    // An operator's redrive overrides the policy.
    let again = "SELECT posthaste.redrive()";
    setup.client.run(again).await.unwrap();
    let worker = setup
        .work(setup.relay().on_ambiguous(OnAmbiguous::Discard))
        .await;
    all_done(&setup.client).await;
    assert_eq!(setup.mails().len(), 1);
    worker.stop().await.unwrap();
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn refused_recipients_reject_the_mail_and_deferred_ones_wait() {
    let Some(setup) = Setup::new("a_recipient_that_is_refused").await else {
        return;
    };
    let refusal = json!({ "rcpt": "550 5.1.1 <a@example.com> is nobody" });
    setup.server.set_behaviour(&refusal).unwrap();
    setup.enqueue(&[json!({ "to": "a@example.com" })]).await;
    let worker = setup.work(setup.relay()).await;
    let refused = async || Ok(count(&setup.client, "discarded").await == 1);
    eventually(SOON, "it is refused", refused).await.unwrap();
    let (_, _, error) = setup.left().await.remove(0);
    assert_eq!(error, "the answer to RCPT was 550: 5.1.1 <…> is nobody");

    setup
        .server
        .set_behaviour(&json!({ "rcpt": "451 greylisted" }))
        .unwrap();
    setup.enqueue(&[json!({ "to": "b@example.com" })]).await;
    let counted = async || {
        Ok(setup
            .left()
            .await
            .get(1)
            .is_some_and(|(_, counted, _)| *counted > 0))
    };
    eventually(SOON, "it is put off", counted).await.unwrap();
    setup.server.set_behaviour(&json!({})).unwrap();
    let taken = async || Ok(setup.mails().len() == 1);
    eventually(SOON, "it is taken", taken).await.unwrap();
    worker.stop().await.unwrap();
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn mails_arrive_with_leading_dots_and_unicode_intact() {
    let Some(setup) = Setup::new("a_mail_arrives_as_its_route_writes_it").await else {
        return;
    };
    let text = "Dear Ægir,\n.\n..\n.hidden\nthe end 🚀\n";
    let mapping = Mapping::default()
        .header(
            "to",
            Template::parse("{kwargs.name} <{kwargs.to}>").unwrap(),
        )
        .header("bcc", Template::text("archive@example.com"))
        .header("subject", Template::parse("Grüße, {kwargs.name}").unwrap())
        .header("x-campaign", Template::text("autumn"))
        .payload(Template::parse("{kwargs.text}").unwrap());
    let kwargs = json!({ "name": "Ægir", "to": "ægir@exämple.com", "text": text });
    setup.enqueue(&[kwargs]).await;
    let worker = setup.work(setup.relay().mapping(mapping)).await;
    all_done(&setup.client).await;
    let mail = setup.mails().remove(0);
    assert_eq!(
        mail.all["text"].as_str().unwrap().replace("\r\n", "\n"),
        text
    );
    assert_eq!(mail.all["subject"], "Grüße, Ægir");
    assert_eq!(mail.all["headers"]["x-campaign"], "autumn");
    assert_eq!(mail.name, "us@example.com");
    assert_eq!(
        mail.args,
        json!(["ægir@exämple.com", "archive@example.com"])
    );
    assert!(!mail.all["raw"].as_str().unwrap().contains("archive@"));
    worker.stop().await.unwrap();
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_restarted_mail_server_is_reconnected() {
    let Some(setup) = Setup::new("a_server_that_was_restarted").await else {
        return;
    };
    let relay = setup.relay().start().await.unwrap();
    let worker = worker(&setup.db.pool(2).unwrap()).consumer("mail", relay.clone());
    let worker = worker.start().await.unwrap();
    for n in 0..3 {
        setup.enqueue(&[json!({ "to": "a@example.com" })]).await;
        let taken = async || Ok(setup.mails().len() == n + 1);
        eventually(SOON, "it is taken", taken).await.unwrap();
        all_done(&setup.client).await;
        match n {
            0 => setup.server.restart().unwrap(),
            _ => setup
                .server
                .kill9()
                .and_then(|()| setup.server.restart())
                .unwrap(),
        }
    }
    // An idle connection that the server closed does not count as an outage.
    assert_eq!(relay.status().unavailable, 0);
    worker.stop().await.unwrap();
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn international_domains_reach_any_server() {
    let test = "international_domains_reach_any_server";
    let Some(setup) = Setup::new(test).await else {
        return;
    };
    let many: Vec<String> = (0..60).map(|n| format!("user{n}@example.com")).collect();
    let all = [&many[..], &["Jörg <info@müller.example>".to_owned()]].concat();
    setup.enqueue(&[json!({ "to": all.join(", ") })]).await;
    let worker = setup.work(setup.relay()).await;
    all_done(&setup.client).await;
    let mail = setup.mails().remove(0);
    let mut expected = json!(many);
    let last = json!("info@xn--mller-kva.example");
    expected.as_array_mut().unwrap().push(last);
    assert_eq!(mail.args, expected);
    let raw = mail.all["raw"].as_str().unwrap();
    assert!(raw.lines().all(|line| line.len() <= 78), "{raw}");
    worker.stop().await.unwrap();
}
