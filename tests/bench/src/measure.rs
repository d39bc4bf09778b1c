//! Times of whole commands, memory of daemons, and other measurements on a host.

use std::collections::BTreeMap;
use std::fs;
use std::time::Duration;

use anyhow::{Context as _, Error, Result, bail, ensure};
use halite_lab::cluster::Cluster;
use halite_lab::host::Host;
use halite_lab::wait;

/// Memory of a process in KiB, each shared page divided by the number of its users.
pub(super) struct Pss {
    /// The total.
    pub total: u64,
    /// Pages of files: the program itself.
    pub file: u64,
    /// Heap, stacks, and pages of the program that were written to.
    pub anonymous: u64,
}

/// Memory of a unit's main process.
pub(super) fn pss(host: &Host, unit: &str) -> Result<Pss> {
    let pid = host.run(&["systemctl", "show", "--property=MainPID", "--value", unit])?;
    let text = host.run(&["cat", &format!("/proc/{}/smaps_rollup", pid.trim())])?;
    let field =
        |name: &str| field(&text, name).with_context(|| format!("smaps_rollup has no {name}"));
    Ok(Pss {
        total: field("Pss")?,
        file: field("Pss_File")?,
        anonymous: field("Pss_Anon")?,
    })
}

fn field(text: &str, name: &str) -> Option<u64> {
    let line = text
        .lines()
        .find_map(|line| line.strip_prefix(name)?.strip_prefix(':'))?;
    line.split_whitespace().next()?.parse().ok()
}

/// Times of a command inside the host, `count` times, by bash's own clock: no other command is
/// started in between.
pub(super) fn times(host: &Host, count: usize, command: &str) -> Result<Vec<Duration>> {
    let line = format!(
        "set -e; for n in $(seq {count}); do a=$EPOCHREALTIME; {command} >/dev/null; b=$EPOCHREALTIME; \
         echo $(( ${{b/./}} - ${{a/./}} )); done"
    );
    let text = host.run(&["bash", "-c", &line])?;
    let micros: Result<Vec<u64>, _> = text.lines().map(str::parse).collect();
    let times: Vec<Duration> = micros
        .context("not microseconds")?
        .into_iter()
        .map(Duration::from_micros)
        .collect();
    ensure!(
        times.len() == count,
        "{} of {count} runs were timed",
        times.len()
    );
    Ok(times)
}

/// The processor time of the whole machine while a function runs, and its result. Commands that the
/// lab runs in a host are not in the host's control group.
pub(super) fn processors<T>(run: impl FnOnce() -> Result<T>) -> Result<(Duration, T)> {
    let now = || busy(&fs::read_to_string("/proc/stat")?);
    let before = now()?;
    let value = run()?;
    Ok((now()?.saturating_sub(before), value))
}

/// The time that processors were neither idle nor waiting for disks, in `/proc/stat`, whose unit is
/// USER_HZ, 100 a second on all of Linux's architectures.
fn busy(stat: &str) -> Result<Duration> {
    let line = stat.lines().next().context("/proc/stat is empty")?;
    let fields: Result<Vec<u64>, _> = line.split_whitespace().skip(1).map(str::parse).collect();
    let fields = fields.with_context(|| format!("/proc/stat has {line:?}"))?;
    // user, nice, system, idle, iowait, irq, softirq
    let [user, nice, system, _, _, irq, softirq, ..] = fields[..] else {
        bail!("/proc/stat has {line:?}");
    };
    Ok(Duration::from_millis(
        10 * (user + nice + system + irq + softirq),
    ))
}

/// Applies the highstate until there are no changes left; otherwise a certificate or link that
/// Kubernetes rotates in its first minute would count as work.
pub(super) fn settled(cluster: &Cluster) -> Result<()> {
    wait::until(
        "a highstate with nothing to do",
        Duration::from_secs(120),
        || {
            let run = |args: &[&str]| cluster.bootstrap.output(args);
            run(&["ctl", "highstate"])?;
            let plan = run(&["ctl", "highstate", "--test", "--exit-code"])?;
            if plan.status.success() {
                Ok(())
            } else {
                Err(Error::msg(
                    String::from_utf8_lossy(&plan.stdout).into_owned(),
                ))
            }
        },
    )
}

/// Installed packages and their versions.
pub(super) fn packages(host: &Host) -> Result<BTreeMap<String, String>> {
    let text = host.run(&[
        "dpkg-query",
        "-W",
        "-f=${db:Status-Abbrev}\t${Package}\t${Version}\n",
    ])?;
    let fields = text.lines().filter_map(|line| {
        let mut fields = line.strip_prefix("ii")?.split('\t').skip(1);
        Some((fields.next()?.to_owned(), fields.next()?.to_owned()))
    });
    Ok(fields.collect())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn idle_processors_are_not_busy() {
        let stat = "cpu  100 10 20 9000 500 1 2 0 0 0\ncpu0 1 1 1 1 1 1 1\n";
        assert_eq!(busy(stat).unwrap(), Duration::from_millis(1330));
        assert!(busy("cpu 1 2 3\n").is_err());
    }

    #[test]
    fn fields_of_smaps_rollup() {
        let text = "Rss:  1 kB\nPss:                8728 kB\nPss_File:           7048 kB\n";
        assert_eq!(field(text, "Pss"), Some(8728));
        assert_eq!(field(text, "Pss_File"), Some(7048));
        assert_eq!(field(text, "Pss_Anon"), None);
    }
}
