//! The container file: its contents, and in `make test-full` an image that is built without a
//! daemon and run until it is ready.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context as _, ensure};
use posthaste_testkit::{Child, eventually, number, ran};
use serde_json::Value;

use crate::exporter::served;
use crate::stage::{self, BOUND, Stage};

fn root() -> PathBuf {
    PathBuf::from(concat!(env!("CARGO_MANIFEST_DIR"), "/../.."))
}

/// Returns the instructions of the container file, each on one line.
fn instructions() -> anyhow::Result<Vec<(String, String)>> {
    let text = fs::read_to_string(root().join("Containerfile"))?;
    let lines = text.lines().filter(|line| !line.starts_with('#'));
    let text: Vec<&str> = lines.collect();
    let text = text.join("\n").replace("\\\n", " ");
    let lines = text.lines().filter_map(|line| line.split_once(' '));
    Ok(lines
        .map(|(one, rest)| (one.to_owned(), rest.to_owned()))
        .collect())
}

/// Returns the image in which the program runs: that of the last FROM.
fn base() -> anyhow::Result<String> {
    let all = instructions()?;
    let last = all.iter().rev().find(|(name, _)| name == "FROM");
    Ok(last.context("no FROM")?.1.clone())
}

#[test]
fn the_image_contains_only_the_program_without_root_or_secrets() -> anyhow::Result<()> {
    let all = instructions()?;
    let begin = all
        .iter()
        .rposition(|(name, _)| name == "FROM")
        .context("no FROM")?;
    let (built, runs) = all.split_at(begin);
    let of = |name: &str| {
        let found = runs.iter().filter(|(one, _)| one == name);
        found.map(|(_, rest)| rest.as_str()).collect::<Vec<_>>()
    };
    assert_eq!(
        of("COPY"),
        ["--from=build /built/posthaste /usr/local/bin/posthaste"]
    );
    assert_eq!(of("USER"), ["10001:10001"]);
    assert_eq!(of("ENTRYPOINT"), [r#"["posthaste"]"#]);
    assert_eq!(of("STOPSIGNAL"), ["SIGTERM"]);
    let asks = format!("127.0.0.1:{}/ready", of("EXPOSE").concat());
    assert!(of("HEALTHCHECK").concat().contains(&asks), "{asks}");
    assert!(
        !all.iter()
            .any(|(name, _)| ["ARG", "ENV", "ADD"].contains(&&**name)),
        "{all:?}"
    );
    // Of the sources only those are copied that the ignore file allows; it begins by excluding all.
    assert!(built.contains(&("COPY".into(), ". .".into())), "{built:?}");
    let ignored = fs::read_to_string(root().join(".containerignore"))?;
    let lines: Vec<&str> = ignored
        .lines()
        .filter(|line| !line.starts_with('#'))
        .collect();
    assert_eq!(
        lines,
        ["*", "!Cargo.toml", "!Cargo.lock", "!crates", "!lab"]
    );
    let manifest = fs::read_to_string(root().join("Cargo.toml"))?;
    assert!(
        manifest.contains(r#"members = ["crates/*", "lab/*"]"#),
        "{manifest}"
    );
    let minor = format!("docker.io/library/rust:{} AS build", {
        let (_, rest) = manifest
            .split_once("rust-version = \"")
            .context("no version")?;
        format!("{}-bookworm", rest.split('"').next().unwrap_or_default())
    });
    assert_eq!(built[0].1, minor);
    Ok(())
}

/// A storage of images that is removed with the test.
struct Buildah<'a>(&'a Stage);

impl Buildah<'_> {
    fn command(&self, arguments: &[&str]) -> Command {
        let mut buildah = Command::new("buildah");
        let place = |name: &str| self.0.folder.join(name);
        buildah
            .arg("--root")
            .arg(place("images"))
            .arg("--runroot")
            .arg(place("run"))
            .args(["--storage-driver", "vfs"])
            .args(arguments);
        buildah
    }

    fn good(&self, arguments: &[&str]) -> anyhow::Result<String> {
        good(&mut self.command(arguments))
    }

    /// Runs a command in the container as the container would, with its user and its files.
    fn run(&self, container: &str, database: &str, words: &[&str]) -> Command {
        let database = format!("DATABASE_URL={database}");
        let begin = [
            "run",
            "--isolation",
            "chroot",
            "--env",
            &database,
            container,
            "--",
        ];
        self.command(&[&begin, words].concat())
    }
}

fn good(command: &mut Command) -> anyhow::Result<String> {
    let output = command.output()?;
    let stderr = String::from_utf8_lossy(&output.stderr);
    ensure!(output.status.success(), "{command:?}: {stderr}");
    Ok(String::from_utf8(output.stdout)?.trim().to_owned())
}

/// Returns the process that this program started with these words among its arguments.
fn process(words: &str) -> anyhow::Result<u32> {
    for one in fs::read_dir("/proc")? {
        let path = one?.path();
        let Some(pid) = path
            .file_name()
            .and_then(|name| name.to_str()?.parse().ok())
        else {
            continue;
        };
        let line = fs::read_to_string(path.join("cmdline")).unwrap_or_default();
        let program = line.split('\0').next().unwrap_or_default();
        if program.ends_with("posthaste") && line.contains(words) {
            return Ok(pid);
        }
    }
    anyhow::bail!("no process with {words:?}")
}

/// The stage that compiles is replaced by the program of the tests. The rest is built as it is, on
/// a root file system of Debian instead of its image.
#[tokio::test(flavor = "multi_thread")]
async fn the_container_image_builds_and_becomes_ready() -> anyhow::Result<()> {
    let test = "the container file is built and run";
    let lacks = |program: &str| Command::new(program).arg("--version").output().is_err();
    if !rustix::process::geteuid().is_root() || lacks("buildah") || lacks("mmdebstrap") {
        ran::not_run(test, "it needs root, buildah and mmdebstrap");
        return Ok(());
    }
    let (stage, database) = (Stage::new()?, stage::database().await?);
    let base = base()?;
    let suite = base.split(':').nth(1).and_then(|tag| tag.split('-').next());
    let tar = stage.folder.join("base.tar");
    let mut bootstrap = Command::new("mmdebstrap");
    good(
        bootstrap
            .args(["--quiet", "--variant=minbase", suite.context("no suite")?])
            .arg(&tar),
    )?;
    let buildah = Buildah(&stage);
    let empty = buildah.good(&["from", "scratch"])?;
    buildah.good(&["add", "-q", &empty, path(&tar)?, "/"])?;
    buildah.good(&["commit", "-q", "--rm", &empty, &base])?;
    fs::remove_file(&tar)?;

    let built = stage.folder.join("stage/built");
    fs::create_dir_all(&built)?;
    good(
        Command::new("install")
            .arg("-s")
            .arg(stage.program())
            .arg(&built),
    )?;
    let context = format!("build={}", path(&stage.folder.join("stage"))?);
    let file = root().join("Containerfile");
    let build = [
        "bud",
        "--isolation",
        "chroot",
        "--format",
        "docker",
        "--pull-never",
    ];
    let build = [&build[..], &["--build-context", &context, "-t", "it", "-f"]].concat();
    good(buildah.command(&build).arg(&file).arg(root()))?;
    let container = buildah.good(&["from", "--pull-never", "localhost/it"])?;
    let image = buildah.good(&["inspect", "--type", "image", "localhost/it"])?;
    let image: Value = serde_json::from_str(&image)?;
    let config = &image["Docker"]["config"];
    assert_eq!(config["User"], "10001:10001");
    assert_eq!(config["Entrypoint"], serde_json::json!(["posthaste"]));

    // Identifies the process in the list of all processes.
    let queue = format!("of-the-container-{}", std::process::id());
    let work = ["posthaste", "work", "--queue", &queue, "--exec", "ok=true"];
    let work = [&work[..], &["--listen", "127.0.0.1:0"]].concat();
    let mut worker = Child::spawn(&mut buildah.run(&container, database.url(), &work))?;
    let address = served(&mut worker).await?;
    let probe = config["Healthcheck"]["Test"]
        .as_array()
        .context("no probe")?;
    let probe: Vec<&str> = probe.iter().filter_map(Value::as_str).collect();
    let at = "http://127.0.0.1:9187";
    let probe: Vec<String> = probe[1..]
        .iter()
        .map(|word| word.replace(at, &address))
        .collect();
    let probe: Vec<&str> = probe.iter().map(String::as_str).collect();
    assert!(probe.concat().contains(&address), "{probe:?}");
    eventually(BOUND, "its own probe finds it ready", async || {
        Ok(good(&mut buildah.run(&container, "", &probe)).is_ok_and(|text| text == "ready"))
    })
    .await?;
    let client = database.client().await?;
    client
        .execute(
            "SELECT posthaste.enqueue('ok', queue => $1::text)",
            &[&queue],
        )
        .await?;
    let left = "SELECT count(*) FROM posthaste.job WHERE state <> 'completed'";
    eventually(BOUND, "its job is done", async || {
        Ok(number(&client, left).await? == 0)
    })
    .await?;
    let pid = process(&queue)?;
    let status = fs::read_to_string(format!("/proc/{pid}/status"))?;
    assert!(status.contains("\nUid:\t10001\t10001\t"), "{status}");
    good(Command::new("kill").args(["-TERM", &pid.to_string()]))?;
    let status = worker.exit(BOUND).await?;
    assert!(status.success(), "{status:?} {:?}", worker.stderr());
    ran::note("container");
    Ok(())
}

fn path(path: &Path) -> anyhow::Result<&str> {
    path.to_str().context("an odd path")
}
