//! The pictures of the guides, which show this console.

use std::path::{Path, PathBuf};

use posthaste_console::Settings;
use posthaste_testkit::{PgServer, PgVersion, Sql as _};

use super::kit::Window;
use super::seeds::Store;
use crate::support::{console_with, named, operator};

/// The largest picture, in bytes: readers of a guide wait for it.
const MOST: u64 = 150 * 1024;

fn folder() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs/pictures")
}

/// Returns the pictures of the console that a guide shows.
fn shown() -> Vec<String> {
    let guide = folder().join("../operate/console.md");
    let guide = std::fs::read_to_string(guide).unwrap();
    let parts = guide.split("](../pictures/").skip(1);
    parts
        .map(|rest| rest.split(')').next().unwrap().to_owned())
        .collect()
}

#[test]
fn the_guides_pictures_exist_and_are_small() {
    let shown = shown();
    assert!(shown.len() > 3, "{shown:?}");
    for name in shown {
        let picture = std::fs::read(folder().join(&name)).unwrap_or_default();
        assert!(picture.starts_with(b"\x89PNG"), "{name} is not a picture");
        assert!(
            u64::try_from(picture.len()).unwrap() <= MOST,
            "{name} is too large"
        );
    }
}

/// `POSTHASTE_WRITE=1 cargo test -p posthaste-console --test main -- browser::pictures` takes the
/// pictures again.
#[tokio::test]
async fn the_pictures_of_the_guide_can_be_taken() {
    let server = PgServer::start(PgVersion::any(), &[]).unwrap();
    let store = Store::of(named(&server, "shop").await).await;
    let client = store.database.client().await.unwrap();
    let samples = include_str!("samples.sql");
    client.run(samples).await.unwrap();
    let settings = Settings {
        name: "production".to_owned(),
        ..operator()
    };
    let console = console_with(&store.database, settings).await;
    let test = "pictures of the console";
    let Some(window) = Window::open(&console, test).await else {
        return;
    };
    let job = format!("/jobs/{}", store.retrying);
    let of = [
        ("console-overview.png", "/", (1_280, 960), false),
        ("console-jobs.png", "/jobs", (1_280, 800), false),
        ("console-job.png", &job, (1_280, 680), false),
        ("console-dead.png", "/dead", (1_280, 700), true),
        (
            "console-bulk.png",
            "/bulk?do=redrive&filter=state%3Adead",
            (1_280, 420),
            false,
        ),
        ("console-phone.png", "/", (375, 812), false),
    ];
    let mut names = Vec::new();
    for (name, path, (width, height), dark) in of {
        window.is_wide(width, height).await;
        window.is_dark(dark).await;
        window.go(path).await;
        let picture = window.picture().await;
        assert!(picture.starts_with(b"\x89PNG"), "{name}");
        if std::env::var_os("POSTHASTE_WRITE").is_some() {
            std::fs::write(folder().join(name), picture).unwrap();
        }
        names.push(name);
    }
    assert!(
        shown().iter().all(|name| names.contains(&name.as_str())),
        "{names:?}"
    );
    window.close().await;
    store.end().await;
}
