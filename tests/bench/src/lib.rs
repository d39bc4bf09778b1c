//! `cargo lab bench`: Halite's cost, compared with a plain shell script around kubeadm on an
//! identical host, and by itself.
//!
//! Machines differ and are shared, so times count as ratios within one run: the two installations
//! alternate, each on new hosts.

mod bundle;
mod ha;
mod inputs;
mod measure;
mod peer;
mod pings;
mod scale;

use std::collections::BTreeMap;
use std::fs;
use std::path::Path;
use std::time::Duration;

use anyhow::{Context as _, Result, bail, ensure};
use halite_lab::cluster::{CLUSTER, Cluster};
use halite_lab::progress::Board;
use halite_lab::{Lab, build, cluster};
use halite_upstream::prepare;
use halite_upstream::versions::SHIPPED;
use inputs::Inputs;

pub use bundle::bench as bundle;
pub use ha::bench as ha;
pub use pings::bench as pings;

/// Name of the bench's own lab.
pub const BENCH: &str = "bench";

/// A part that can be measured by itself.
#[derive(Debug, Clone, Copy, PartialEq, Eq, clap::ValueEnum)]
pub enum BenchPart {
    /// Making, checking and adding bundles, and the composition of the lab's bundle; boots no host.
    Bundle,
    /// A hundred minions pinged at once, compared with one; boots no host.
    Pings,
    /// Three control planes and a worker: losses, and hosts that join and leave.
    Ha,
}

/// Number of rounds of each of the two installations.
const ROUNDS: usize = 2;
/// The aims of the project, as in `docs/performance.md`.
const RATIO: f64 = 1.5;
const HIGHSTATE: Duration = Duration::from_secs(1);
const PING: Duration = Duration::from_millis(20);
/// Memory of idle daemons, in KiB.
const MINION_KIB: u64 = 7680;
const MASTER_KIB: u64 = 24 * 1024;

/// Builds missing parts, measures, and prints the table. Leaves nothing running.
///
/// # Errors
/// Something could not be measured, or the measurement missed an aim.
pub fn bench(name: &str, progress: &mut dyn FnMut(&str)) -> Result<()> {
    let bundle = prepare::bundle_of(&SHIPPED, &Board::plain())?;
    let iso_directory = prepare::iso_directory_of(&SHIPPED, &Board::plain())?;
    let inputs = Inputs::new(&bundle, progress)?;
    let lab = Lab::new(name, &halite_lab::cache().join("base-root"))?;
    lab.down()?;
    warm(&bundle)?;
    warm(&iso_directory)?;
    let (mut ours, mut theirs) = (Vec::new(), Vec::new());
    let mut table = Table::default();
    for round in 1..=ROUNDS {
        progress(&format!(
            "round {round} of {ROUNDS}: shell script and kubeadm"
        ));
        lab.down()?;
        let host = cluster::boot_peer(&lab, &bundle)?;
        let phases = peer::run(&host, &inputs)?;
        let total = phases.iter().map(|(_, time)| *time).sum();
        table.row(
            &format!("bootstrap {round}, script"),
            &seconds(total),
            &shown(&phases),
        );
        theirs.push(total);
        let packages = measure::packages(&host)?;

        progress(&format!("round {round} of {ROUNDS}: Halite"));
        lab.down()?;
        let host = cluster::boot_bootstrap(&lab, &iso_directory)?;
        let time = cluster::bootstrap(&host, CLUSTER)?;
        table.row(&format!("bootstrap {round}, Halite"), &seconds(time), "");
        ours.push(time);
        same_packages(&packages, &measure::packages(&host)?)?;
    }
    let ratio = median(&ours).as_secs_f64() / median(&theirs).as_secs_f64();
    table.aim(
        "bootstrap, ratio of medians",
        &format!("{ratio:.2}"),
        &format!("≤ {RATIO}"),
        ratio <= RATIO,
    );

    progress("adding the worker");
    cluster::boot_worker(&lab)?;
    let cluster = Cluster::attach(lab.clone())?;
    table.row(
        "node add",
        &seconds(cluster.add_worker()?),
        "packages included",
    );
    cluster.wait_for_pods(Duration::from_secs(180))?;
    measure::settled(&cluster)?;
    let times = measure::times(&cluster.bootstrap, 5, "ctl highstate")?;
    let time = median(&times);
    table.aim(
        "ctl highstate, nothing to do, two hosts",
        &seconds(time),
        "< 1 s",
        time < HIGHSTATE,
    );
    let times = measure::times(&cluster.bootstrap, 10, "ctl ping worker-1")?;
    let time = median(&times);
    table.aim(
        "ctl ping of one minion",
        &format!("{:.1} ms", 1000.0 * time.as_secs_f64()),
        "< 20 ms",
        time < PING,
    );
    scale::memory(&cluster, &mut table, "idle", [MINION_KIB, MASTER_KIB])?;
    scale::rows(&cluster, &mut table)?;
    pings::rows(&mut table, progress)?;
    sizes(&bundle, &mut table)?;
    cluster.nothing_tried_to_leave()?;
    lab.down()?;
    print!("\n{}", table.text);
    table.missed_none()
}

/// Reads the whole bundle once, so that the first installation does not start colder than the
/// second.
fn warm(bundle: &Path) -> Result<u64> {
    let mut read = 0;
    for entry in
        fs::read_dir(bundle).with_context(|| format!("cannot read {}", bundle.display()))?
    {
        let entry = entry?;
        if entry.file_type()?.is_dir() {
            read += warm(&entry.path())?;
        } else {
            read += std::io::copy(&mut fs::File::open(entry.path())?, &mut std::io::sink())?;
        }
    }
    Ok(read)
}

/// Both installations must have the same packages; otherwise the comparison is meaningless.
fn same_packages(
    script: &BTreeMap<String, String>,
    halite: &BTreeMap<String, String>,
) -> Result<()> {
    if script == halite {
        return Ok(());
    }
    let only = |a: &BTreeMap<String, String>, b: &BTreeMap<String, String>| -> Vec<String> {
        a.iter()
            .filter(|(n, v)| b.get(*n) != Some(v))
            .map(|(n, v)| format!("{n} {v}"))
            .collect()
    };
    bail!(
        "the hosts do not have the same packages: only the script's {:?}, only Halite's {:?}",
        only(script, halite),
        only(halite, script)
    )
}

fn sizes(bundle: &Path, table: &mut Table) -> Result<()> {
    let programs = build::source_root().join("target/x86_64-unknown-linux-gnu/shipped");
    for program in ["halite-minion", "halite-master", "ctl"] {
        let size = fs::metadata(programs.join(program))?.len();
        table.row(
            &format!("{program}, size"),
            &format!("{:.1} MiB", mib(size)),
            "static, stripped",
        );
    }
    table.row(
        "bundle, size",
        &format!("{:.0} MiB", mib(warm(bundle)?)),
        "images, packages, programs, states",
    );
    Ok(())
}

#[expect(clippy::cast_precision_loss, reason = "displayed with one digit")]
fn mib(bytes: u64) -> f64 {
    bytes as f64 / f64::from(1 << 20)
}

/// The median; for an even number, the mean of the two in the middle.
fn median(times: &[Duration]) -> Duration {
    let mut sorted = times.to_vec();
    sorted.sort();
    let middle = sorted.len() / 2;
    match (sorted.get(middle.wrapping_sub(1)), sorted.get(middle)) {
        (Some(low), Some(high)) if sorted.len().is_multiple_of(2) => (*low + *high) / 2,
        (_, Some(high)) => *high,
        _ => Duration::ZERO,
    }
}

fn seconds(time: Duration) -> String {
    format!("{:.2} s", time.as_secs_f64())
}

fn shown(phases: &[(String, Duration)]) -> String {
    phases
        .iter()
        .map(|(name, time)| format!("{name} {}", seconds(*time)))
        .collect::<Vec<_>>()
        .join(", ")
}

/// The result, a Markdown table that can be copied to `docs/performance.md` unchanged.
struct Table {
    text: String,
    /// The aims that were missed.
    missed: Vec<String>,
}

impl Default for Table {
    fn default() -> Self {
        Self {
            text: "| what | measured | aim, notes |\n|---|---|---|\n".to_owned(),
            missed: Vec::new(),
        }
    }
}

impl Table {
    fn row(&mut self, what: &str, value: &str, note: &str) {
        // Also printed at once: a later part may fail.
        println!("  {what}: {value} {note}");
        self.text
            .push_str(&format!("| {what} | {value} | {note} |\n"));
    }

    fn aim(&mut self, what: &str, value: &str, aim: &str, reached: bool) {
        let judged = if reached {
            aim.to_owned()
        } else {
            self.missed
                .push(format!("{what} is {value}, the aim is {aim}"));
            format!("{aim}: **missed**")
        };
        self.row(what, value, &judged);
    }

    /// The error that names the missed aims, if there are any.
    fn missed_none(self) -> Result<()> {
        ensure!(
            self.missed.is_empty(),
            "aims were missed: {}",
            self.missed.join("; ")
        );
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_median_of_even_and_odd_numbers() {
        let of = |list: &[u64]| {
            median(
                &list
                    .iter()
                    .map(|s| Duration::from_secs(*s))
                    .collect::<Vec<_>>(),
            )
        };
        assert_eq!(of(&[3, 1, 2]), Duration::from_secs(2));
        assert_eq!(of(&[4, 1]), Duration::from_millis(2500));
        assert_eq!(of(&[]), Duration::ZERO);
    }

    #[test]
    fn a_missed_aim_fails_the_run_after_the_table() {
        let mut table = Table::default();
        table.row("size", "5", "not an aim");
        table.aim("x", "2", "≤ 1", false);
        table.aim("y", "1", "≤ 1", true);
        assert!(
            table
                .text
                .ends_with("| x | 2 | ≤ 1: **missed** |\n| y | 1 | ≤ 1 |\n")
        );
        let error = table.missed_none().unwrap_err().to_string();
        assert_eq!(error, "aims were missed: x is 2, the aim is ≤ 1");
    }

    #[test]
    fn a_run_that_reaches_its_aims_succeeds() {
        let mut table = Table::default();
        table.aim("x", "1", "≤ 1", true);
        table.missed_none().unwrap();
    }
}
