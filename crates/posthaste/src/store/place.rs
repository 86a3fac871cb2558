//! The servers that a pool connects to, for errors and for sites.

use deadpool_postgres::Pool;

/// Returns hosts, ports and database. A pool exposes them only by its `Debug`, which omits the
/// password.
pub(crate) fn server_location(pool: &Pool) -> Option<String> {
    parse_debug(&format!("{:?}", pool.manager()))
}

/// Returns the same as comparable addresses of servers, one for each host.
pub(crate) fn addresses(pool: &Pool) -> Vec<String> {
    let manager = format!("{:?}", pool.manager());
    let Some((places, database)) = parse_hosts(&manager) else {
        return Vec::new();
    };
    let database = database.map_or_else(String::new, |name| format!("/{name}"));
    let database = match pooler_tenant(&manager) {
        Some(tenant) => format!("{database} of {tenant}"),
        None => database,
    };
    let places = places
        .iter()
        .map(|(host, port)| comparable_address(host, port));
    let mut addresses: Vec<String> = places.map(|place| place + &database).collect();
    addresses.sort();
    addresses.dedup();
    addresses
}

/// Returns the server that is selected at a shared pooler, which serves many at one address: by an
/// option, or by the end of the user's name, which has twenty small letters at Supabase.
fn pooler_tenant(manager: &str) -> Option<String> {
    let field = |name: &str| {
        let value = manager.split_once(&format!(" {name}: Some(\""))?.1;
        Some(value.split_once("\")")?.0)
    };
    let options = field("options").unwrap_or_default();
    let options = options.split([' ', '&']).find_map(|option| {
        let (name, value) = option.trim_start_matches("-c").split_once('=')?;
        ["endpoint", "project", "reference"]
            .contains(&name.trim())
            .then_some(value)
    });
    let user = field("user").and_then(|user| Some(user.rsplit_once('.')?.1));
    let user = user.filter(|end| end.len() == 20 && end.bytes().all(|b| b.is_ascii_lowercase()));
    options.or(user).map(str::to_owned)
}

/// Normalizes an address. Loopback addresses and usual socket directories are the same server.
fn comparable_address(host: &str, port: &str) -> String {
    let host = host.trim_end_matches('.').to_ascii_lowercase();
    let is_loopback = match host.parse::<std::net::IpAddr>() {
        Ok(address) => address.to_canonical().is_loopback(),
        Err(_) => {
            let usual = [
                "localhost",
                "/tmp",
                "/run/postgresql",
                "/var/run/postgresql",
            ];
            usual.contains(&host.as_str())
        }
    };
    match is_loopback {
        true => format!("localhost:{port}"),
        false if host.contains(':') => format!("[{host}]:{port}"),
        false => format!("{host}:{port}"),
    }
}

fn parse_debug(manager: &str) -> Option<String> {
    let (places, database) = parse_hosts(manager)?;
    let places = places.iter().map(|(host, port)| match host.contains(':') {
        true => format!("[{host}]:{port}"),
        false => format!("{host}:{port}"),
    });
    let database = database.map_or_else(String::new, |name| format!(", database \"{name}\""));
    Some(places.collect::<Vec<_>>().join(", ") + &database)
}

/// Hosts with their ports, and the database.
type HostsAndDatabase = (Vec<(String, String)>, Option<String>);

fn parse_hosts(manager: &str) -> Option<HostsAndDatabase> {
    let after = |name: &str| Some(manager.split_once(&format!(" {name}: "))?.1);
    let list = |name: &str| Some(after(name)?.strip_prefix('[')?.split_once(']')?.0);
    let quoted = |text: &str| -> Vec<String> {
        let parts = text.split('"').skip(1).step_by(2);
        parts.map(str::to_owned).collect()
    };
    let ports: Vec<&str> = list("port")?
        .split(", ")
        .filter(|port| !port.is_empty())
        .collect();
    let mut hosts = quoted(list("host")?);
    if hosts.is_empty() {
        let numbers = list("hostaddr")?.split(", ");
        let numbers = numbers.filter(|number| !number.is_empty());
        hosts = numbers.map(str::to_owned).collect();
    }
    let hosts = hosts.into_iter().enumerate();
    let places: Vec<(String, String)> = hosts
        .map(|(at, host)| {
            let port = ports.get(at).or(ports.first()).unwrap_or(&"5432");
            (host, (*port).to_owned())
        })
        .collect();
    let database = after("dbname")?.strip_prefix("Some(").map(quoted);
    let database = database.and_then(|names| names.into_iter().next());
    (!places.is_empty()).then_some((places, database))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_pool_shows_its_server_without_the_password() {
        for (url, parse_debug) in [
            ("postgres://ann:geheim@db/app", "db:5432, database \"app\""),
            ("host=a,b port=1,2 user=u", "a:1, b:2"),
            ("host=::1 port=7 dbname=x", "[::1]:7, database \"x\""),
        ] {
            let config: tokio_postgres::Config = url.parse().expect("an address");
            let manager = deadpool_postgres::Manager::new(config, tokio_postgres::NoTls);
            let pool = Pool::builder(manager).build().expect("a pool");
            assert_eq!(server_location(&pool).as_deref(), Some(parse_debug));
        }
    }

    #[test]
    fn names_of_one_address_are_the_same_and_other_servers_are_not() {
        let addresses = |url: &str| {
            let config: tokio_postgres::Config = url.parse().expect("an address");
            let manager = deadpool_postgres::Manager::new(config, tokio_postgres::NoTls);
            let pool = Pool::builder(manager).build().expect("a pool");
            super::addresses(&pool)
        };
        for local in [
            "localhost",
            "127.0.0.1",
            "127.0.1.1",
            "::1",
            "/run/postgresql",
            "/tmp",
        ] {
            let url = format!("host={local} dbname=app");
            assert_eq!(addresses(&url), ["localhost:5432/app"], "{local}");
        }
        for (url, addresses_of_it) in [
            (
                "postgres://ann:geheim@DB.example.org./app",
                vec!["db.example.org:5432/app"],
            ),
            ("host=b,a port=1,2 user=u", vec!["a:2", "b:1"]),
            ("host=/srv/copy dbname=app port=7", vec!["/srv/copy:7/app"]),
            (
                "host=2001:DB8::1 dbname=app",
                vec!["[2001:db8::1]:5432/app"],
            ),
            ("host=db hostaddr=10.0.0.7 dbname=app", vec!["db:5432/app"]),
            (
                "hostaddr=10.0.0.7,::1 port=5,6 dbname=app",
                vec!["10.0.0.7:5/app", "localhost:6/app"],
            ),
            (
                "host=pooler user=postgres.abcdefghijklmnopqrst dbname=app",
                vec!["pooler:5432/app of abcdefghijklmnopqrst"],
            ),
            (
                "host=pooler user=ann.smith dbname=app options='endpoint=ep-cool-1'",
                vec!["pooler:5432/app of ep-cool-1"],
            ),
            (
                "host=db user=ann.smith dbname=app options='-c jit=off'",
                vec!["db:5432/app"],
            ),
        ] {
            assert_eq!(addresses(url), addresses_of_it);
        }
    }
}
