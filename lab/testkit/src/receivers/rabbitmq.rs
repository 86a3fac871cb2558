//! RabbitMQ, with a separate Erlang port mapper.

use std::ops::Deref;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::OnceLock;

use anyhow::{Context, ensure};
use serde_json::{Value, json};

use super::Receiver;
use super::service::{Service, retry_on_free_ports};
use crate::account::Account;
use crate::child::Child;
use crate::shared::{read_port, server_of_run};
use crate::{ports, ran};

const BIN_VARIABLE: &str = "POSTHASTE_RABBITMQ_BIN";
const MAX_MESSAGE_BYTES: usize = (1 << 20) - 20;
/// The virtual host that the server creates itself, because its tools take long to start.
const FIRST_VHOST: &str = "relay";
const USUAL_BIN: &str = "/usr/lib/rabbitmq/bin";

/// A private RabbitMQ. It takes seconds to start, so tests share one, each with a separate virtual
/// host or separate names.
#[derive(Debug)]
pub struct RabbitMq {
    port: u16,
    environment: Environment,
    service: Service,
    // Started here, because a mapper that the server started would outlive it.
    _mapper: Option<Child>,
}

impl RabbitMq {
    /// Returns the server that all tests of the run share, or else all of this process.
    pub fn shared() -> anyhow::Result<&'static Self> {
        static SHARED: OnceLock<Result<RabbitMq, String>> = OnceLock::new();
        SHARED
            .get_or_init(|| server_of_run("rabbitmq", Self::attach, Self::start))
            .as_ref()
            .map_err(|error| anyhow::anyhow!("{error}"))
    }

    /// Starts a private server for a test that stops or kills it, or raises its alarms.
    pub fn start() -> anyhow::Result<Self> {
        let rabbitmq = retry_on_free_ports(Self::start_once)?;
        ran::note(Receiver::RabbitMq.name());
        Ok(rabbitmq)
    }

    fn start_once() -> anyhow::Result<Self> {
        Receiver::RabbitMq.find()?;
        let account = Account::for_servers()?;
        let folder = Service::folder(account)?;
        let port = ports::free()?;
        // A job of the largest size is slightly too large, so that a refusal can be tested.
        let settings = format!(
            "listeners.tcp.1 = 127.0.0.1:{port}\nlog.console = true\n\
             max_message_size = {MAX_MESSAGE_BYTES}\ndefault_vhost = {FIRST_VHOST}\n"
        );
        for (file, text) in [("rabbitmq.conf", &*settings), ("plugins", "[].\n")] {
            let file = folder.path().join(file);
            std::fs::write(&file, text)?;
            account.make_owner_of(&file)?;
        }
        let environment = Environment::new(account, folder.path())?;
        let mapper = Child::spawn(
            account
                .command(super::program("epmd")?)
                .args(["-address", "127.0.0.1", "-port"])
                .arg(environment.mapper.to_string()),
        )?;
        let (program, starting) = (program("rabbitmq-server")?, environment.clone());
        let service = Service::start("RabbitMQ", folder, "Server startup complete", move || {
            starting.command(&program)
        })?;
        Ok(Self {
            port,
            environment,
            service,
            _mapper: Some(mapper),
        })
    }

    /// The description by which other processes find this server.
    pub(crate) fn description(&self) -> Value {
        let Environment {
            folder,
            mapper,
            distribution,
            ..
        } = &self.environment;
        json!({"port": self.port, "folder": folder, "mapper": mapper, "distribution": distribution})
    }

    fn attach(found: &Value) -> anyhow::Result<Self> {
        let folder = PathBuf::from(found["folder"].as_str().context("no folder")?);
        Ok(Self {
            port: read_port(found, "port")?,
            environment: Environment {
                account: Account::for_servers()?,
                folder: folder.clone(),
                mapper: read_port(found, "mapper")?,
                distribution: read_port(found, "distribution")?,
            },
            service: Service::of_the_run("RabbitMQ", folder),
            _mapper: None,
        })
    }

    /// The URL of a virtual host; all but `relay` are created by the first call.
    pub fn url(&self, vhost: &str) -> anyhow::Result<String> {
        ensure!(
            vhost.chars().all(|c| c.is_ascii_alphanumeric() || c == '-'),
            "letters, digits and dashes make a name: {vhost:?}"
        );
        if vhost != FIRST_VHOST {
            self.control(&[
                "eval",
                &format!(
                    "rabbit_vhost:exists(<<\"{vhost}\">>) orelse \
                     rabbit_vhost:add(<<\"{vhost}\">>, <<\"kit\">>), \
                     rabbit_auth_backend_internal:set_permissions(<<\"guest\">>, \
                     <<\"{vhost}\">>, <<\".*\">>, <<\".*\">>, <<\".*\">>, <<\"kit\">>)."
                ),
            ])?;
        }
        Ok(format!(
            "amqp://guest:guest@127.0.0.1:{}/{vhost}",
            self.port
        ))
    }

    /// The port where it listens, also while it is stopped.
    pub fn port(&self) -> u16 {
        self.port
    }

    /// Blocks all publishers by the disk alarm, or unblocks them.
    pub fn set_disk_alarm(&self, raised: bool) -> anyhow::Result<()> {
        // No disk has as much as the first free, and every disk has the second.
        let limit = if raised { "1000000GB" } else { "1kB" };
        self.control(&["set_disk_free_limit", limit]).map(|_| ())
    }

    /// Makes the server write declarations from its log into its tables, before a kill: twice, a
    /// durable queue that had just been declared was gone after one (see decision 21 in
    /// docs/why/decisions.md).
    pub fn keep_declarations(&self) -> anyhow::Result<()> {
        self.control(&["eval", "dumped = mnesia:dump_log()."])
            .map(|_| ())
    }

    /// Runs rabbitmqctl and returns its output.
    pub fn control(&self, arguments: &[&str]) -> anyhow::Result<String> {
        let mut command = self.environment.command(&program("rabbitmqctl")?);
        let output = command.arg("--quiet").args(arguments).output()?;
        ensure!(output.status.success(), "{arguments:?}: {output:?}");
        Ok(String::from_utf8(output.stdout)?)
    }
}

impl Deref for RabbitMq {
    type Target = Service;

    fn deref(&self) -> &Service {
        &self.service
    }
}

/// The settings that the server and its tools share.
#[derive(Clone, Debug)]
struct Environment {
    account: Account,
    folder: PathBuf,
    mapper: u16,
    distribution: u16,
}

impl Environment {
    fn new(account: Account, folder: &Path) -> anyhow::Result<Self> {
        Ok(Self {
            account,
            folder: folder.to_owned(),
            mapper: ports::free()?,
            distribution: ports::free()?,
        })
    }

    fn command(&self, program: &Path) -> Command {
        let mut command = self.account.command(program);
        for (name, part) in [
            ("HOME", ""),
            ("RABBITMQ_MNESIA_BASE", "mnesia"),
            ("RABBITMQ_LOG_BASE", "log"),
            ("RABBITMQ_CONFIG_FILE", "rabbitmq"),
            ("RABBITMQ_GENERATED_CONFIG_DIR", "generated"),
            ("RABBITMQ_ENABLED_PLUGINS_FILE", "plugins"),
            ("RABBITMQ_PID_FILE", "pid"),
            ("RABBITMQ_CONF_ENV_FILE", "no-such-file"),
        ] {
            command.env(name, self.folder.join(part));
        }
        command
            .env("RABBITMQ_NODENAME", "posthaste@localhost")
            .env("RABBITMQ_LOGS", "-")
            .env("RABBITMQ_DIST_PORT", self.distribution.to_string())
            .env("ERL_EPMD_PORT", self.mapper.to_string())
            .env("ERL_EPMD_ADDRESS", "127.0.0.1")
            // The script then executes the server, which receives the signals.
            .env("RUNNING_UNDER_SYSTEMD", "true")
            // Waiting threads must not take CPU time from the tests.
            .env(
                "RABBITMQ_SERVER_ADDITIONAL_ERL_ARGS",
                "+S 2:2 +sbwt none +sbwtdcpu none +sbwtdio none",
            );
        command
    }
}

/// Finds a program of RabbitMQ. Debian's in PATH is a wrapper that must run as root or as the user
/// rabbitmq.
pub(super) fn program(name: &str) -> anyhow::Result<PathBuf> {
    let folder = std::env::var_os(BIN_VARIABLE).map_or_else(|| USUAL_BIN.into(), PathBuf::from);
    let program = folder.join(name);
    program.is_file().then_some(program).with_context(|| {
        format!(
            "there is no {name} in {folder:?}: scripts/setup.sh receivers says why; \
             {BIN_VARIABLE} names another folder"
        )
    })
}
