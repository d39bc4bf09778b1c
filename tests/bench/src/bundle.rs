//! `cargo lab bench bundle`: the times to check, pack, build and add the lab's bundle, compared
//! with standard tools on the same bytes, and the composition of the bundle.
//!
//! Everything is in the page cache beforehand, and the commands run in turn, so that other work on
//! the machine affects all of them.

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use anyhow::{Context as _, Result, ensure};
use halite_lab::build::{OPTION_SETS, Programs, with_builder};
use halite_lab::progress::Board;
use halite_upstream::prepare;
use halite_upstream::versions::SHIPPED;
use serde_json::Value;

use super::{Table, median, mib, seconds, warm};

/// Number of rounds of each step; the median counts.
const ROUNDS: usize = 3;

/// The aim for a check with both processors, relative to `sha256sum`.
const VERIFY: f64 = 1.0;

/// A command to measure: its name, the command, and the path that it writes, which is removed
/// before each run.
struct Step {
    name: &'static str,
    command: Vec<String>,
    writes: Option<PathBuf>,
}

/// Measures, and prints the tables.
///
/// # Errors
/// Something could not be measured, or the measurement missed an aim.
pub fn bench(progress: &mut dyn FnMut(&str)) -> Result<()> {
    let (bundle, iso_directory) = (
        prepare::bundle_of(&SHIPPED, &Board::plain())?,
        prepare::iso_directory_of(&SHIPPED, &Board::plain())?,
    );
    let work = std::path::absolute(halite_lab::cache())?.join("bench-bundle");
    remove(&work)?;
    fs::create_dir_all(&work)?;
    let result = measure(&bundle, &iso_directory, &work, progress);
    remove(&work)?;
    let (times, sizes) = result?;
    print!("\n{}\n{}", times.text, sizes.text);
    times.missed_none()
}

fn measure(
    bundle: &Path,
    iso_directory: &Path,
    work: &Path,
    progress: &mut dyn FnMut(&str),
) -> Result<(Table, Table)> {
    warm(bundle)?;
    warm(iso_directory)?;
    let steps = steps(bundle, iso_directory, work)?;
    let mut times: BTreeMap<&str, Vec<Duration>> = BTreeMap::new();
    for round in 1..=ROUNDS {
        progress(&format!("round {round} of {ROUNDS}"));
        for step in &steps {
            times.entry(step.name).or_default().push(timed(step)?);
        }
    }
    let taken = |name: &str| {
        times
            .get(name)
            .map(|times| median(times))
            .unwrap_or_default()
    };
    let mut table = Table::default();
    let size = mib(fs::metadata(iso_directory.join(halite_upstream::ISO))?.len());
    for Step { name, writes, .. } in &steps {
        let time = taken(name);
        // Compared with the tool that does nothing else with the same bytes.
        let beside = if writes.is_some() { COPY } else { SHA256SUM };
        let ratio = time.as_secs_f64() / taken(beside).as_secs_f64();
        let speed = size / time.as_secs_f64();
        let note = format!("{speed:.0} MiB/s, {ratio:.2} of {beside}");
        if *name == VERIFY_TWO {
            table.aim(
                name,
                &seconds(time),
                &format!("{note}, aim: at most {VERIFY}"),
                ratio <= VERIFY,
            );
        } else {
            table.row(name, &seconds(time), &note);
        }
    }
    Ok((table, made_of(bundle, size)?))
}

const SHA256SUM: &str = "`sha256sum` of the ISO";
const COPY: &str = "`cp -r` of the bundle";
const VERIFY_TWO: &str = "`ctl bundle verify` of the ISO, two processors";

fn steps(bundle: &Path, iso_directory: &Path, work: &Path) -> Result<Vec<Step>> {
    let text = |path: &Path| path.to_string_lossy().into_owned();
    let (ctl, iso, public) = (
        iso_directory.join("ctl"),
        iso_directory.join(halite_upstream::ISO),
        iso_directory.join("builder.pub"),
    );
    let key = std::path::absolute(halite_lab::cache())?.join("bundle/builder.key");
    let recipe = halite_suites::recipe_of(bundle)?;
    let (ctl, iso, public, key) = (text(&ctl), text(&iso), text(&public), text(&key));
    let words = |all: &[&str]| {
        all.iter()
            .map(|word| (*word).to_owned())
            .collect::<Vec<_>>()
    };
    let reads = |name, all: &[&str]| Step {
        name,
        command: words(all),
        writes: None,
    };
    let writes = |name, file: &str, all: &[&str]| {
        let out = work.join(file);
        let command = all
            .iter()
            .map(|word| word.replace("OUT", &text(&out)))
            .collect();
        Step {
            name,
            command,
            writes: Some(out),
        }
    };
    let verify = [ctl.as_str(), "bundle", "verify", "--trust", &public, &iso];
    let on_one = ["taskset", "--cpu-list", "0"];
    // The copy must be on the disk, like ctl's output.
    let copied = "cp -r \"$1\" OUT && sync --file-system OUT";
    let (directory, recipe) = (text(bundle), text(&recipe));
    Ok(vec![
        reads("`cat` of the ISO", &["cat", &iso]),
        reads(SHA256SUM, &["sha256sum", &iso]),
        reads(
            "`openssl dgst -sha256` of the ISO",
            &["openssl", "dgst", "-sha256", &iso],
        ),
        reads(
            "`ctl bundle verify` of the ISO, one processor",
            &[&on_one[..], &verify].concat(),
        ),
        reads(VERIFY_TWO, &verify),
        reads(
            "`ctl bundle verify` of the directory, completeness too",
            &[&ctl, "bundle", "verify", "--allow-unsigned", &directory],
        ),
        writes(COPY, "copy", &["sh", "-c", copied, "sh", &directory]),
        writes(
            "`ctl bundle pack`",
            "packed.iso",
            &[
                &ctl, "bundle", "pack", &directory, "--out", "OUT", "--key", &key,
            ],
        ),
        writes(
            "`ctl bundle build` of an ISO, everything in the cache",
            "built.iso",
            &[
                &ctl, "bundle", "build", "--recipe", &recipe, "--out", "OUT", "--key", &key,
            ],
        ),
        writes(
            "`ctl bundle add` of the ISO: checked and extracted",
            "site",
            &[
                "unshare", "--mount", "sh", "-ec", ADD, "sh", "OUT", &ctl, &iso, &public,
            ],
        ),
        writes(
            "`7z x` of the ISO",
            "7z",
            &[
                "sh",
                "-c",
                "7z x -bd -y -oOUT \"$1\" && sync --file-system OUT",
                "sh",
                &iso,
            ],
        ),
    ])
}

/// Adds a bundle on a host that has a cluster as far as files are concerned: the output is on the
/// disk, in a directory of ours.
const ADD: &str = r#"
for place in etc var/lib; do
    mkdir -p "$1/$place/upper" "$1/$place/work"
    mount -t overlay -o "lowerdir=/$place,upperdir=$1/$place/upper,workdir=$1/$place/work" none "/$place"
done
mkdir -p /etc/halite
echo '{}' > /etc/halite/cluster.yaml
exec "$2" bundle add "$3" --trust "$4"
"#;

fn timed(step: &Step) -> Result<Duration> {
    if let Some(out) = &step.writes {
        remove(out)?;
        // Writes that the previous step left pending must not count for this one.
        rustix::fs::sync();
    }
    let (program, args) = step
        .command
        .split_first()
        .context("a step without a command")?;
    let mut command = Command::new(program);
    // An operator's command checks all pairs of options.
    with_builder(&mut command, Programs::Shipped)?.env_remove(OPTION_SETS);
    let start = Instant::now();
    let output = command
        .args(args)
        .stdin(Stdio::null())
        .stdout(Stdio::null())
        .stderr(Stdio::piped())
        .output()
        .with_context(|| format!("cannot start {program}"))?;
    let time = start.elapsed();
    let said = String::from_utf8_lossy(&output.stderr);
    ensure!(
        output.status.success(),
        "{} ended with {}: {said}",
        step.name,
        output.status
    );
    Ok(time)
}

fn remove(path: &Path) -> Result<()> {
    let removed = if path.is_dir() {
        fs::remove_dir_all(path)
    } else {
        fs::remove_file(path)
    };
    match removed {
        Err(error) if error.kind() != std::io::ErrorKind::NotFound => {
            Err(error).with_context(|| format!("cannot remove {}", path.display()))
        }
        _ => Ok(()),
    }
}

/// Sizes by kind, from the bundle's own manifest.
fn made_of(bundle: &Path, iso: f64) -> Result<Table> {
    let manifest: Value = serde_json::from_slice(&fs::read(bundle.join("manifest.json"))?)?;
    let mut kinds: BTreeMap<&str, (usize, u64)> = BTreeMap::new();
    for (path, entry) in manifest["files"]
        .as_object()
        .context("the manifest lists no files")?
    {
        let kind = path
            .split_once('/')
            .map_or("others", |(directory, _)| match directory {
                "images" => "images",
                "apt" | "rpm" => "packages",
                "bin" => "programs",
                "states" | "charts" => "states and charts",
                "docs" | "licences" => "documents",
                _ => "others",
            });
        let (files, size) = kinds.entry(kind).or_default();
        *files += 1;
        *size += entry["size"].as_u64().unwrap_or_default();
    }
    let mut table = Table::default();
    for (kind, (files, size)) in kinds {
        let mut note = format!("{files} files");
        if kind == "images" {
            let (images, pulled) = pulled(bundle)?;
            note = format!(
                "{note}; {images} images, {:.1} MiB if each had its layers for itself",
                mib(pulled)
            );
        }
        table.row(
            &format!("bundle: {kind}"),
            &format!("{:.1} MiB", mib(size)),
            &note,
        );
    }
    table.row("the ISO", &format!("{iso:.1} MiB"), "");
    Ok(table)
}

/// The number of images, and the total size of the contents that each of them names.
fn pulled(bundle: &Path) -> Result<(usize, u64)> {
    let read = |path: &Path| -> Result<Value> { Ok(serde_json::from_slice(&fs::read(path)?)?) };
    let index = read(&bundle.join("images/index.json"))?;
    let images = index["manifests"]
        .as_array()
        .context("images/index.json names no image")?;
    let mut size = 0;
    for image in images {
        let digest = image["digest"]
            .as_str()
            .unwrap_or_default()
            .replace(':', "/");
        let manifest = read(&bundle.join("images/blobs").join(digest))?;
        let layers = manifest["layers"].as_array().into_iter().flatten();
        let parts = layers.chain([image, &manifest["config"]]);
        size += parts.filter_map(|part| part["size"].as_u64()).sum::<u64>();
    }
    Ok((images.len(), size))
}
