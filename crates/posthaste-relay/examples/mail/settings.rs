//! The settings, from environment variables. All missing or invalid ones are reported at once,
//! without their values, which may contain a password.

use posthaste_relay::Smtp;

use super::queue::{LEASE, MAIL, Queue};

struct Setting {
    name: &'static str,
    /// The form of a value.
    form: &'static str,
    is_right: fn(&str) -> bool,
}

const SETTINGS: [Setting; 3] = [
    Setting {
        name: "DATABASE_URL",
        form: "postgres://user:password@host:port/database",
        is_right: |url| url.parse::<tokio_postgres::Config>().is_ok(),
    },
    Setting {
        name: "REDIS_URL",
        form: "redis://:password@host:port/database",
        is_right: |url| Queue::open(url, MAIL, LEASE).is_ok(),
    },
    Setting {
        name: "SMTP_URL",
        form: "smtp://host:port or smtps://user:password@host",
        is_right: |url| Smtp::new(url).is_ok(),
    },
];

/// Returns the values of these settings, which `of` reads.
pub fn read<const N: usize>(
    names: [&str; N],
    of: impl Fn(&str) -> Option<String>,
) -> Result<[String; N], String> {
    let mut wrong = Vec::new();
    let values = names.map(|name| {
        let value = of(name).unwrap_or_default();
        let known = SETTINGS.iter().find(|setting| setting.name == name);
        match known {
            _ if value.is_empty() => wrong.push(format!("{name} is not set")),
            Some(setting) if !(setting.is_right)(&value) => {
                wrong.push(format!("{name} must be {}", setting.form));
            }
            _ => {}
        }
        value
    });
    match wrong.is_empty() {
        true => Ok(values),
        false => Err(wrong.join("; ")),
    }
}
