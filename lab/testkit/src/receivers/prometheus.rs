//! Prometheus and its Alertmanager, with every interval set to one second.

use std::fs;
use std::ops::Deref;
use std::path::Path;

use super::Receiver;
use super::service::{Service, retry_on_free_ports};
use crate::account::Account;
use crate::{ports, ran};

/// A private Alertmanager, which posts firing and resolved alerts to a webhook.
#[derive(Debug)]
pub struct Alertmanager {
    port: u16,
    service: Service,
}

impl Alertmanager {
    /// Starts an Alertmanager that posts to this URL.
    pub fn start(webhook: &str) -> anyhow::Result<Self> {
        let started = retry_on_free_ports(|| Self::start_once(webhook))?;
        ran::note(Receiver::Alertmanager.name());
        Ok(started)
    }

    fn start_once(webhook: &str) -> anyhow::Result<Self> {
        let program = Receiver::Alertmanager.find()?;
        let account = Account::for_servers()?;
        let folder = Service::folder(account)?;
        let port = ports::free()?;
        let (config, data) = (folder.path().join("config.yml"), folder.path().join("data"));
        let text = format!(
            "route: {{receiver: test, group_by: ['...'], group_wait: 1s, group_interval: 1s, \
             repeat_interval: 1h}}\n\
             receivers: [{{name: test, webhook_configs: [{{url: '{webhook}', \
             send_resolved: true}}]}}]\n"
        );
        write(account, &config, &text)?;
        let service = Service::start("Alertmanager", folder, "Listening on", move || {
            let mut command = account.command(&program);
            command
                .arg(format!("--web.listen-address=127.0.0.1:{port}"))
                .arg("--cluster.listen-address=")
                .arg(format!("--config.file={}", config.display()))
                .arg(format!("--storage.path={}", data.display()));
            command
        })?;
        Ok(Self { port, service })
    }

    /// The address for Prometheus: `host:port`.
    pub fn address(&self) -> String {
        format!("127.0.0.1:{}", self.port)
    }
}

impl Deref for Alertmanager {
    type Target = Service;

    fn deref(&self) -> &Service {
        &self.service
    }
}

/// A private Prometheus, which scrapes and evaluates its rules every second.
#[derive(Debug)]
pub struct Prometheus {
    port: u16,
    service: Service,
}

impl Prometheus {
    /// Starts a Prometheus that scrapes each `host:port`, evaluates these rules and notifies that
    /// Alertmanager.
    pub fn start(
        rules: &str,
        targets: &[&str],
        alertmanager: &Alertmanager,
    ) -> anyhow::Result<Self> {
        let started = retry_on_free_ports(|| Self::start_once(rules, targets, alertmanager))?;
        ran::note(Receiver::Prometheus.name());
        Ok(started)
    }

    fn start_once(rules: &str, targets: &[&str], alerts: &Alertmanager) -> anyhow::Result<Self> {
        let program = Receiver::Prometheus.find()?;
        let account = Account::for_servers()?;
        let folder = Service::folder(account)?;
        let port = ports::free()?;
        let (config, data) = (folder.path().join("config.yml"), folder.path().join("data"));
        // A copy, because the account of servers may not be able to read the original.
        write(account, &folder.path().join("rules.yml"), rules)?;
        let text = format!(
            "global: {{scrape_interval: 1s, scrape_timeout: 1s, evaluation_interval: 1s}}\n\
             rule_files: [rules.yml]\n\
             alerting: {{alertmanagers: [{{static_configs: [{{targets: ['{}']}}]}}]}}\n\
             scrape_configs: [{{job_name: test, static_configs: [{{targets: ['{}']}}]}}]\n",
            alerts.address(),
            targets.join("', '")
        );
        write(account, &config, &text)?;
        let service = Service::start("Prometheus", folder, "Server is ready", move || {
            let mut command = account.command(&program);
            command
                .arg(format!("--web.listen-address=127.0.0.1:{port}"))
                .arg("--rules.alert.resend-delay=1s")
                .arg(format!("--config.file={}", config.display()))
                .arg(format!("--storage.tsdb.path={}", data.display()));
            command
        })?;
        Ok(Self { port, service })
    }

    /// The URL for queries.
    pub fn url(&self) -> String {
        format!("http://127.0.0.1:{}", self.port)
    }
}

impl Deref for Prometheus {
    type Target = Service;

    fn deref(&self) -> &Service {
        &self.service
    }
}

fn write(account: Account, file: &Path, text: &str) -> anyhow::Result<()> {
    fs::write(file, text)?;
    Ok(account.make_owner_of(file)?)
}
