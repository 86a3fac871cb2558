//! The proof: compares the table with the output of `sha256sum -z` for the listed files.
//!
//! Our code computes no digest here: names go NUL-separated to `xargs -0 sha256sum -z`, whose `-z`
//! also ends its lines by NUL and escapes nothing.

use std::collections::HashMap;
use std::fs;
use std::os::unix::ffi::OsStrExt as _;
use std::path::Path;
use std::process::Stdio;

use anyhow::{Context as _, bail};
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::process::Command;
use tokio_postgres::types::Type;
use tokio_postgres::{Client, Row};

use super::digest;
use crate::progress::Progress;

const PAGE_ROWS: i64 = 4_096;
const MAX_SHOWN_DIFFERENCES: usize = 10;

/// The result of the comparison.
#[derive(Debug, Default)]
pub(crate) struct Proof {
    pub(crate) same: u64,
    /// Recorded as unreadable, and unreadable for sha256sum too.
    pub(crate) unreadable: u64,
    pub(crate) differing: u64,
    /// The first differences, each with its kind.
    pub(crate) examples: Vec<String>,
}

impl Proof {
    fn add_difference(&mut self, path: &Path, how: &str) {
        self.differing += 1;
        if self.examples.len() < MAX_SHOWN_DIFFERENCES {
            self.examples.push(format!("{}: {how}", escape_path(path)));
        }
    }
}

/// Compares all files of run `run`.
pub(crate) async fn verify(
    client: &Client,
    run: i64,
    progress: &Progress,
) -> anyhow::Result<Proof> {
    let mut proof = Proof::default();
    let mut last: i64 = 0;
    loop {
        let rows = client
            .query_typed(
                include_str!("proof_page.sql"),
                &[
                    (&run, Type::INT8),
                    (&last, Type::INT8),
                    (&PAGE_ROWS, Type::INT8),
                ],
            )
            .await?;
        let Some(row) = rows.last() else { break };
        last = row.try_get("n")?;
        let claims = rows
            .iter()
            .map(RecordedFile::from_row)
            .collect::<Result<Vec<_>, _>>()?;
        let sums = sha256sum(&claims).await?;
        for claim in &claims {
            compare(
                claim,
                sums.get(claim.path.as_os_str().as_bytes()),
                &mut proof,
            );
        }
        progress.set(proof.same + proof.unreadable + proof.differing);
    }
    let extra: i64 = client
        .query_typed_one(include_str!("proof_extra.sql"), &[(&run, Type::INT8)])
        .await?
        .try_get(0)?;
    if extra > 0 {
        proof.differing += extra.unsigned_abs();
        proof
            .examples
            .push(format!("{extra} rows of files that are not listed"));
    }
    Ok(proof)
}

/// The table's content for a listed file.
struct RecordedFile {
    path: std::path::PathBuf,
    present: bool,
    worked: bool,
    size: Option<i64>,
    sha256: Option<Vec<u8>>,
    problem: Option<String>,
}

impl RecordedFile {
    fn from_row(row: &Row) -> Result<Self, tokio_postgres::Error> {
        Ok(Self {
            path: digest::path_from_bytes(row.try_get("path")?),
            present: row.try_get("present")?,
            worked: row.try_get("worked")?,
            size: row.try_get("size")?,
            sha256: row.try_get("sha256")?,
            problem: row.try_get("problem")?,
        })
    }
}

/// The present content of a file.
#[derive(Clone, Debug)]
struct ActualFile {
    size: u64,
    sha256: Vec<u8>,
}

fn compare(claim: &RecordedFile, truth: Option<&ActualFile>, proof: &mut Proof) {
    let path = &claim.path;
    if !claim.present {
        return proof.add_difference(path, "listed, but not in the table");
    }
    if !claim.worked {
        return proof.add_difference(path, "committed, but never processed");
    }
    match (&claim.sha256, &claim.problem, truth) {
        (Some(sha256), _, Some(truth)) if *sha256 == truth.sha256 => {
            if claim.size == i64::try_from(truth.size).ok() {
                proof.same += 1;
            } else {
                proof.add_difference(path, "the size differs");
            }
        }
        (Some(_), _, Some(_)) => proof.add_difference(path, "the digest differs"),
        (Some(_), _, None) => proof.add_difference(path, "was read, but sha256sum cannot read it"),
        (None, Some(_), None) => proof.unreadable += 1,
        (None, problem, Some(_)) => {
            let problem = problem.as_deref().unwrap_or("no digest");
            proof.add_difference(path, &format!("{problem}, but sha256sum can read it"));
        }
        (None, None, None) => {
            proof.add_difference(path, "processed, but without a digest or a problem")
        }
    }
}

/// Runs sha256sum on those files that exist.
async fn sha256sum(claims: &[RecordedFile]) -> anyhow::Result<HashMap<Vec<u8>, ActualFile>> {
    let mut sizes = HashMap::new();
    let mut list = Vec::new();
    for claim in claims {
        // Only regular files are passed: sha256sum would block without end on a pipe.
        let Ok(metadata) = fs::symlink_metadata(&claim.path) else {
            continue;
        };
        if metadata.is_file() {
            let name = claim.path.as_os_str().as_bytes();
            list.extend_from_slice(name);
            list.push(0);
            sizes.insert(name, metadata.len());
        }
    }
    if list.is_empty() {
        return Ok(HashMap::new());
    }
    let output = run_xargs(list).await?;
    let mut truths = HashMap::new();
    for line in output
        .split(|byte| *byte == 0)
        .filter(|line| !line.is_empty())
    {
        let (sha256, name) =
            parse_digest_line(line).context("sha256sum printed a line that is not a digest")?;
        let size = sizes
            .get(name)
            .copied()
            .context("sha256sum printed a file that is not listed")?;
        truths.insert(name.to_vec(), ActualFile { size, sha256 });
    }
    Ok(truths)
}

async fn run_xargs(list: Vec<u8>) -> anyhow::Result<Vec<u8>> {
    let mut child = Command::new("xargs")
        .args(["-0", "sha256sum", "-z", "--"])
        .env("LC_ALL", "C")
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::null())
        .process_group(0)
        .kill_on_drop(true)
        .spawn()
        .context("cannot run xargs. Install findutils and coreutils, which the comparison needs")?;
    let mut stdin = child.stdin.take().context("xargs has no input")?;
    let mut stdout = child.stdout.take().context("xargs has no output")?;
    // Writes and reads concurrently: xargs stops reading while its output is not read.
    let write = async move {
        stdin.write_all(&list).await?;
        stdin.shutdown().await
    };
    let mut output = Vec::new();
    let (written, read) = tokio::join!(write, stdout.read_to_end(&mut output));
    let status = child.wait().await?;
    match status.code() {
        // 123: sha256sum could not read a file. The missing line is the result.
        Some(0 | 123) => {}
        Some(126 | 127) => {
            bail!("sha256sum is not installed. Install coreutils, which the comparison needs.")
        }
        _ => bail!("sha256sum failed ({status}). Run the command again."),
    }
    written.context("xargs did not accept the list of files")?;
    read.context("cannot read the output of sha256sum")?;
    Ok(output)
}

/// Parses a line of `sha256sum -z`: the digest, a space, a space or an asterisk, the name.
fn parse_digest_line(line: &[u8]) -> Option<(Vec<u8>, &[u8])> {
    let (digest, rest) = line.split_at_checked(64)?;
    let name = rest
        .strip_prefix(b"  ")
        .or_else(|| rest.strip_prefix(b" *"))?;
    let bytes = digest.chunks(2).map(|pair| {
        let pair = std::str::from_utf8(pair).ok()?;
        u8::from_str_radix(pair, 16).ok()
    });
    Some((bytes.collect::<Option<Vec<u8>>>()?, name))
}

/// Escapes a name so that it fits in one line of a terminal.
fn escape_path(path: &Path) -> String {
    match path.to_str() {
        Some(text) => text.escape_debug().to_string(),
        None => path.as_os_str().as_bytes().escape_ascii().to_string(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn file_names_may_contain_newlines_backslashes_and_any_bytes() {
        let line = [&[b'0'; 64][..], b"  /a\\b\n\xff  c"].concat();
        let parsed = parse_digest_line(&line);
        assert_eq!(parsed, Some((vec![0; 32], &b"/a\\b\n\xff  c"[..])));
        assert_eq!(parse_digest_line(b"sha256sum: x"), None);
        assert_eq!(parse_digest_line(&[b'g'; 70]), None);
    }

    fn claim(sha256: Option<&[u8]>, problem: Option<&str>) -> RecordedFile {
        RecordedFile {
            path: "/a\nb".into(),
            present: true,
            worked: true,
            size: sha256.map(|_| 3),
            sha256: sha256.map(<[u8]>::to_vec),
            problem: problem.map(str::to_owned),
        }
    }

    fn verdict(claim: &RecordedFile, truth: Option<&ActualFile>) -> (u64, u64, u64) {
        let mut proof = Proof::default();
        compare(claim, truth, &mut proof);
        (proof.same, proof.unreadable, proof.differing)
    }

    #[test]
    fn only_equal_digests_match() {
        let truth = ActualFile {
            size: 3,
            sha256: vec![7; 32],
        };
        let longer = ActualFile {
            size: 4,
            ..truth.clone()
        };
        let right = claim(Some(&[7; 32]), None);
        assert_eq!(verdict(&right, Some(&truth)), (1, 0, 0));
        assert_eq!(verdict(&right, Some(&longer)), (0, 0, 1));
        assert_eq!(verdict(&right, None), (0, 0, 1));
        assert_eq!(
            verdict(&claim(Some(&[8; 32]), None), Some(&truth)),
            (0, 0, 1)
        );
    }

    #[test]
    fn a_vanished_file_counts_only_if_sha256sum_cannot_read_it_either() {
        let truth = ActualFile {
            size: 3,
            sha256: vec![7; 32],
        };
        let vanished = claim(None, Some("vanished"));
        assert_eq!(verdict(&vanished, None), (0, 1, 0));
        assert_eq!(verdict(&vanished, Some(&truth)), (0, 0, 1));
    }

    #[test]
    fn missing_rows_and_unprocessed_rows_are_distinguished() {
        let lost = RecordedFile {
            present: false,
            ..claim(None, None)
        };
        let unworked = RecordedFile {
            worked: false,
            ..claim(None, None)
        };
        assert_eq!(verdict(&lost, None), (0, 0, 1));
        assert_eq!(verdict(&unworked, None), (0, 0, 1));
        assert_eq!(verdict(&claim(None, None), None), (0, 0, 1));
    }

    #[test]
    fn unusual_file_names_are_shown_on_one_line() {
        assert_eq!(escape_path(Path::new("/a\nb")), "/a\\nb");
    }
}
