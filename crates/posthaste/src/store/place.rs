//! Where a pool connects to, for errors.

use deadpool_postgres::Pool;

/// Hosts, ports and database. A pool says so by its `Debug` alone, which leaves the password out.
pub(crate) fn place(pool: &Pool) -> Option<String> {
    told(&format!("{:?}", pool.manager()))
}

fn told(manager: &str) -> Option<String> {
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
    let hosts = quoted(list("host")?).into_iter().enumerate();
    let places: Vec<String> = hosts
        .map(|(at, host)| {
            let port = ports.get(at).or(ports.first()).unwrap_or(&"5432");
            match host.contains(':') {
                true => format!("[{host}]:{port}"),
                false => format!("{host}:{port}"),
            }
        })
        .collect();
    let database = after("dbname")?.strip_prefix("Some(").map(quoted);
    let database = database.and_then(|names| names.into_iter().next());
    let database = database.map_or_else(String::new, |name| format!(", database \"{name}\""));
    (!places.is_empty()).then(|| places.join(", ") + &database)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_pool_says_where_it_connects_to_and_no_password() {
        for (url, told) in [
            ("postgres://ann:geheim@db/app", "db:5432, database \"app\""),
            ("host=a,b port=1,2 user=u", "a:1, b:2"),
            ("host=::1 port=7 dbname=x", "[::1]:7, database \"x\""),
        ] {
            let config: tokio_postgres::Config = url.parse().expect("an address");
            let manager = deadpool_postgres::Manager::new(config, tokio_postgres::NoTls);
            let pool = Pool::builder(manager).build().expect("a pool");
            assert_eq!(place(&pool).as_deref(), Some(told));
        }
    }
}
