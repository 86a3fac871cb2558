//! Sections that are read, and errors that name a key.

use super::{File, NeededSections, url_password};

fn parse(text: &str) -> anyhow::Result<File> {
    super::parse_sections(text, NeededSections::All)
}

#[test]
fn passwords_in_addresses_are_detected() {
    let password = url_password("sidekiq+rediss://u:p@w@h:1/0?a=b:c@d");
    assert_eq!(password, Some("p@w"));
    assert_eq!(url_password("redis://h:1/0"), None);
    assert_eq!(url_password("stdout:"), None);
}

#[test]
fn reads_all_routes_of_a_file() {
    let routes = parse(
        "[sync.s]\nindex = \"postgres:\"\n[route.a]\nto = \"stdout:\"\n[route.b]\n\
         queue = \"q\"\nto = \"stdout:\"\nheaders = {x = \"{name}\"}\n",
    );
    let routes = routes.unwrap().routes;
    let names: Vec<_> = routes.iter().map(|one| (one.name(), one.queue())).collect();
    assert_eq!(names, [("a", "a"), ("b", "q")]);
}

#[test]
fn invalid_or_missing_unrelated_tables_are_ignored() {
    let file = "[route.a]\nto = 'stdout:'\n[route.b]\nto = '${POSTHASTE_IS_NOT_THERE}'\n\
                [sync.s]\nindex = 'postgres:'\napi_key = '${POSTHASTE_IS_NOT_THERE}'";
    let of = |wanted: NeededSections<'_>| super::parse_sections(file, wanted);
    let a = of(NeededSections::Routes(&["a".to_owned()])).unwrap();
    assert_eq!((a.routes.len(), a.tables.len()), (1, 0));
    for wanted in [
        NeededSections::All,
        NeededSections::Tables,
        NeededSections::Routes(&[]),
    ] {
        let error = format!("{:#}", of(wanted).unwrap_err());
        assert!(error.contains("POSTHASTE_IS_NOT_THERE"), "{error}");
    }
    let error = of(NeededSections::Routes(&["c".to_owned()])).unwrap_err();
    assert_eq!(error.to_string(), "no route is named c; the file has a, b");
    let only = super::parse_sections(
        "[route.b]\nto = '${NOT}'\n[sync.s]\nindex = 'postgres:'",
        NeededSections::Tables,
    );
    assert_eq!(only.unwrap().tables.len(), 1);
}

#[test]
fn webhooks_are_signed_and_respect_the_address_policy() {
    let _ = rustls::crypto::ring::default_provider().install_default();
    let route = |more: &str| parse(&format!("[route.a]\nto = 'https://h.example/x'\n{more}"));
    let more = "secrets = ['whsec_AAECAwQFBgcICQoLDA0ODxAREhMUFRYXGBkaGxwdHh8=']\n\
                networks = ['10.0.0.0/8']\nrequest_time_limit = '5s'\nrequests = 9\n\
                again_on_client_errors = true";
    assert_eq!(route(more).unwrap().routes[0].name(), "a");
    let error = format!("{:#}", route("secrets = ['geheim']").unwrap_err());
    assert!(error.contains("route a: secrets: each must be"), "{error}");
    assert!(!error.contains("geheim"), "{error}");
}

#[test]
fn rejects_two_syncs_of_one_index_in_any_spelling() {
    let both = |a: &str, b: &str| {
        let file = format!("[sync.a]\nindex = '{a}'\n[sync.b]\nindex = '{b}'");
        parse(&file).map(|file| file.tables.len())
    };
    let mut apart = vec![
        ("postgres:", "postgres:"),
        ("postgres:", "postgres:c"),
        ("postgres://h/search", "postgres://h/search"),
        ("postgres:b", "postgres://h/b"),
        ("https://h:9200", "https://h:9200"),
        ("https://h:9200/c", "https://h:9201/c"),
        ("http://h:9200/c", "http://i:9200/c"),
    ];
    let mut same = vec![
        ("postgres:", "postgres:a"),
        ("postgres:b", "postgres:"),
        ("postgres:c", "postgres:c"),
        ("https://h", "https://h/a"),
        ("https://h/c", "https://h:443/c/"),
        ("https://one:geheim@h/c", "https://other:geheim@H/c"),
    ];
    if cfg!(feature = "tantivy") {
        apart.push(("tantivy:c", "tantivy:d"));
        same.push(("tantivy:///c", "tantivy:/c/"));
    }
    for (a, b) in apart {
        assert_eq!(both(a, b).unwrap(), 2, "{a} {b}");
    }
    for (a, b) in same {
        let error = format!("{:#}", both(a, b).unwrap_err());
        let part = "syncs a and b have the same index";
        assert!(error.contains(part) && !error.contains("geheim"), "{error}");
    }
}

#[test]
fn file_errors_name_the_key_and_quote_no_value() {
    for (text, expected) in [
        ("[routes.a]", "routes: is not a section"),
        ("route = 'geheim'", "route: must be tables"),
        ("sync = 'geheim'", "sync: must be tables"),
        ("[sync]\na = 'geheim'", "sync.a: must be a table"),
        (
            "[sync.a]\nindex = 'redis://:geheim@h'",
            "sync a: index: must begin with",
        ),
        (
            "[sync.a]\nindex = 'postgres:'\ncolour = 'geheim'",
            "sync a: colour: is not a setting of a synced table in Postgres",
        ),
        ("[route]\na = 'geheim'", "route.a: must be a table"),
        ("[route.a]\nto = 'geheim", "line 2: "),
        ("[route.a]\nto = 'geheim'", "route a: to: must begin with"),
        (
            "[route.a]\nto = 'stdout:'\nx = 'geheim'",
            "route a: x: is not a setting",
        ),
        (
            "[route.a]\nto = 'stdout:'\n[route.b]\nto = 'stdout:'\nqueue = 'a'",
            "routes a and b both relay the queue a",
        ),
        ("[route.a]\nto = '${POSTHASTE_IS_NOT_THERE}'", "route a: to"),
        ("[route.a]\nto=1979-05-27", "route a: to: must be a string"),
    ] {
        let error = format!("{:#}", parse(text).unwrap_err());
        assert!(error.contains(expected), "{text}: {error}");
        assert!(!error.contains("geheim"), "{error}");
    }
}
