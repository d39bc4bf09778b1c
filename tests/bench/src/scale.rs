//! Cost of a state run by its number of states, and the memory that is in use after a run of a
//! thousand.

use std::fs;
use std::time::Duration;

use anyhow::{Result, ensure};
use halite_lab::cluster::{Cluster, DOCUMENT, WORKER};

use super::{Table, measure, median, seconds};

/// States of the small and of the large run.
const FEW: u32 = 100;
const MANY: u32 = 1000;

/// The aim: a run of ten times as many states takes at most this many times as long.
const RATIO: f64 = 12.0;

/// Memory after the large run, at most.
const MINION_KIB: u64 = 9 * 1024;
const MASTER_KIB: u64 = 28 * 1024;

/// Metrics for the hosts themselves, and a sink that nothing needs.
const METRICS: &str = "master:\n  metrics: {from: [10.10.0.0/24]}\n\
                       notify: {sinks: {none: {url: \"http://127.0.0.1:9/\"}}}\n";

/// Scrapes for longer than the master's round of checks, a minute.
const SCRAPES: &str = "for scrape in {1..15}; do curl --silent --show-error --fail --retry 9 --retry-all-errors --output /dev/null \
                       --cacert /etc/halite/pki/site-ca.crt https://bootstrap-1:4553/metrics; sleep 5; done";

/// States that manage this many files, in a separate directory for each of the two runs.
fn states(count: u32) -> String {
    format!(
        "{{% for n in range({count}) %}}\n/root/halite-bench-{count}/{{{{ n }}}}:\n  file.managed:\n    \
         - contents: file {{{{ n }}}}\n    - mode: '0644'\n    - makedirs: True\n{{% endfor %}}\n"
    )
}

/// Times a run with nothing to do of both sizes, and measures the daemons after it.
pub(super) fn rows(cluster: &Cluster, table: &mut Table) -> Result<()> {
    let custom = cluster.bootstrap.root().join("etc/halite/custom");
    ensure!(!custom.exists(), "{} already exists", custom.display());
    fs::create_dir_all(&custom)?;
    let mut times = Vec::new();
    for count in [FEW, MANY] {
        fs::write(custom.join(format!("files{count}.sls")), states(count))?;
        let command = format!("ctl apply {WORKER} custom.files{count}");
        measure::times(&cluster.bootstrap, 1, &command)?;
        let time = median(&measure::times(&cluster.bootstrap, 5, &command)?);
        table.row(
            &format!("{count} managed files, nothing to do, one host"),
            &seconds(time),
            "",
        );
        times.push(time);
    }
    if let [few, many] = times.as_slice() {
        let ratio = many.as_secs_f64() / few.max(&Duration::from_micros(1)).as_secs_f64();
        table.aim(
            &format!("{MANY} files against {FEW}"),
            &format!("{ratio:.1}"),
            &format!("≤ {RATIO}"),
            ratio <= RATIO,
        );
    }
    memory(
        cluster,
        table,
        &format!("after {MANY} states"),
        [MINION_KIB, MASTER_KIB],
    )?;
    fs::remove_dir_all(&custom)?;
    let document = cluster.bootstrap.file(DOCUMENT);
    let declared = fs::read_to_string(&document)? + METRICS;
    fs::write(&document, declared)?;
    cluster.bootstrap.sh("ctl highstate")?;
    cluster.bootstrap.sh(SCRAPES)?;
    memory(
        cluster,
        table,
        "after a minute of metrics",
        [MINION_KIB, MASTER_KIB],
    )
}

/// Memory of the worker's minion and of the master, against their limits.
pub(super) fn memory(
    cluster: &Cluster,
    table: &mut Table,
    when: &str,
    [minion, master]: [u64; 2],
) -> Result<()> {
    for (host, unit, limit) in [
        (&cluster.worker, "halite-minion", minion),
        (&cluster.bootstrap, "halite-minion", minion),
        (&cluster.bootstrap, "halite-master", master),
    ] {
        let pss = measure::pss(host, unit)?;
        let value = format!(
            "{} KiB (file {}, anonymous {})",
            pss.total, pss.file, pss.anonymous
        );
        table.aim(
            &format!("{unit} on {}, PSS {when}", host.spec.name),
            &value,
            &format!("≤ {limit} KiB"),
            pss.total <= limit,
        );
    }
    Ok(())
}
