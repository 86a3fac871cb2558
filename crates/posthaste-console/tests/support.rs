//! The shared parts of the tests: a migrated database, its console, and a client that behaves like
//! a browser.

use std::net::SocketAddr;
use std::sync::Mutex;
use std::time::Duration;

use posthaste_console::{Role, Settings, router};
use posthaste_testkit::{PgServer, PgVersion, Sql as _, TestDb, TestResult, connect};
use reqwest::header::{HeaderMap, HeaderValue, ORIGIN};
use reqwest::{Response, StatusCode};
use tokio_postgres::Client;

/// The query of a starting worker, which refuses a copy in which jobs have run before.
const GREETING: &str = "SELECT posthaste.check_identity()";

/// The longest time that a test waits for something that should happen soon.
pub const SOON: Duration = Duration::from_secs(60);

/// Creates a migrated database on the shared server.
pub async fn database() -> TestDb {
    let server = PgServer::shared(PgVersion::any()).expect("a shared server");
    migrated(server).await
}

/// Creates a migrated database on the shared server, and connects to it.
pub async fn connected() -> TestResult<(TestDb, Client)> {
    let database = database().await;
    let client = database.client().await?;
    Ok((database, client))
}

/// Creates a migrated database of this name on a server of one test.
pub async fn named(server: &PgServer, name: &str) -> TestDb {
    let admin = connect(&server.url("postgres")).await.expect("the server");
    let create = format!("CREATE DATABASE {name}");
    admin.run(&create).await.expect("a database");
    let database = TestDb::of(server, name);
    let mut client = connect(database.url()).await.expect("the database");
    posthaste::migrate(&mut client).await.expect("a schema");
    database.with_first_statement(GREETING)
}

/// Creates a migrated database on this server.
pub async fn migrated(server: &PgServer) -> TestDb {
    let template = "posthaste_console";
    let migrate = async |url: String| {
        let mut client = connect(&url).await?;
        posthaste::migrate(&mut client).await?;
        Ok(())
    };
    let copy = TestDb::from_template(server, template, migrate).await;
    copy.expect("a migrated database")
        .with_first_statement(GREETING)
}

/// A console, and its client.
pub struct Console {
    pub base: String,
    pub http: reqwest::Client,
    /// The cookie for the next page, which a browser would send with it.
    notice: Mutex<Option<String>>,
}

/// Returns the settings of an operator.
pub fn operator() -> Settings {
    Settings {
        role: Role::Operator,
        ..Settings::default()
    }
}

/// Starts the console of a database, for operators.
pub async fn console(database: &TestDb) -> Console {
    console_with(database, operator()).await
}

pub async fn console_with(database: &TestDb, settings: Settings) -> Console {
    console_of(database.pool(4).expect("a pool"), settings).await
}

pub async fn console_of(pool: deadpool_postgres::Pool, settings: Settings) -> Console {
    let listener = tokio::net::TcpListener::bind("127.0.0.1:0")
        .await
        .expect("a port");
    let base = format!("http://{}", listener.local_addr().expect("an address"));
    let service = router(pool, settings).into_make_service_with_connect_info::<SocketAddr>();
    tokio::spawn(async move { axum::serve(listener, service).await });
    let _ = rustls::crypto::ring::default_provider().install_default();
    let http = reqwest::Client::builder()
        .redirect(reqwest::redirect::Policy::none())
        .build()
        .expect("a client");
    Console::at(base, http)
}

impl Console {
    /// Returns the console at this address, with this client.
    pub fn at(base: String, http: reqwest::Client) -> Self {
        Self {
            base,
            http,
            notice: Mutex::default(),
        }
    }

    pub async fn get(&self, path: &str) -> Response {
        let mut request = self.http.get(format!("{}{path}", self.base));
        if let Some(notice) = self.notice.lock().unwrap().take() {
            request = request.header("cookie", notice);
        }
        request.send().await.expect("an answer")
    }

    /// Returns a page, which must exist.
    pub async fn page(&self, path: &str) -> String {
        let answer = self.get(path).await;
        assert_eq!(answer.status(), StatusCode::OK, "{path}");
        answer.text().await.expect("a page")
    }

    /// Sends a form as the console's own pages do.
    pub async fn post(&self, path: &str, fields: &[(&str, &str)]) -> Response {
        let mut headers = HeaderMap::new();
        let origin = HeaderValue::from_str(&self.base).expect("an origin");
        headers.insert(ORIGIN, origin);
        self.post_with(path, fields, headers).await
    }

    pub async fn post_with(
        &self,
        path: &str,
        fields: &[(&str, &str)],
        headers: HeaderMap,
    ) -> Response {
        let mut form = url::form_urlencoded::Serializer::new(String::new());
        let body = form.extend_pairs(fields).finish();
        let request = self
            .http
            .post(format!("{}{path}", self.base))
            .headers(headers);
        let request = request.header("content-type", "application/x-www-form-urlencoded");
        request.body(body).send().await.expect("an answer")
    }

    /// Sends an action that redirects to a page, and returns the address of that page, followed by
    /// `#` and its notice.
    pub async fn act(&self, path: &str, fields: &[(&str, &str)]) -> String {
        let answer = self.post(path, fields).await;
        let status = answer.status();
        let to = answer
            .headers()
            .get("location")
            .map(|to| to.to_str().unwrap().to_owned());
        let cookie = answer.headers().get("set-cookie");
        let cookie = cookie.and_then(|one| one.to_str().ok()?.split(';').next());
        let notice = cookie.map(str::to_owned);
        let body = answer.text().await.unwrap_or_default();
        assert_eq!(status, StatusCode::SEE_OTHER, "{path}: {body}");
        let to = to.expect("somewhere to go");
        let did = notice
            .as_deref()
            .and_then(|one| one.strip_prefix("posthaste_notice="));
        let to = did.map_or_else(|| to.clone(), |did| format!("{to}#{did}"));
        *self.notice.lock().unwrap() = notice;
        to
    }
}

/// Makes a worker that does not exist the leader, so that no maintenance is done.
pub async fn lead(client: &Client) {
    let sql = "INSERT INTO posthaste.leader (worker, until)
               VALUES (0, clock_timestamp() + interval '1 h')";
    client.run(sql).await.unwrap();
}

/// Enqueues a job, and returns its id.
pub async fn enqueue(client: &Client, name: &str, queue: &str, kwargs: &str) -> i64 {
    let sql = "SELECT posthaste.enqueue($1, $2::text::jsonb, queue => $3)";
    client
        .one_with(sql, &[&name, &kwargs, &queue])
        .await
        .expect("a job")
}

/// Inserts a job that was given up in this state, and returns its id.
pub async fn given_up(client: &Client, state: &str, name: &str, error: &str) -> i64 {
    let sql = "INSERT INTO posthaste.dead (id, enqueued_at, scheduled_at, expires_at, priority, \
                 attempt, max_attempts, kwargs_bytes, crashes, state, queue, name, tag, \
                 last_error, \
                 kwargs) \
               VALUES (nextval('posthaste.job_id'), now(), now(), now() + interval '1 day', 0, \
                 1, 1, \
                 2, 0, $1, 'mail', $2, '', $3, '{}') RETURNING id";
    client
        .one_with(sql, &[&state, &name, &error])
        .await
        .expect("a given-up job")
}

/// Returns the state of a job.
pub async fn state(client: &Client, id: i64) -> String {
    let sql = "SELECT state FROM posthaste.find($1)";
    client.one_with(sql, &[&id]).await.expect("a job")
}
