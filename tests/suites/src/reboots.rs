//! A reboot of a host: by `ctl`, and by a loss of power.

use std::thread;
use std::time::Duration;

use anyhow::{Context as _, Result, anyhow, ensure};
use halite_lab::cluster::Cluster;
use halite_lab::host::Host;
use halite_lab::wait;

/// Limit for the host to go down.
const LIMIT: Duration = Duration::from_secs(300);

/// Cuts the power of a host, and switches it on again.
pub(crate) fn lose_power(cluster: &Cluster, host: &Host) -> Result<()> {
    println!("  {} loses its power", host.spec.name);
    host.power_cut()?;
    host.boot(&cluster.lab.router)
}

/// Reboots a host with `ctl`, with this option for its drain. The lab's hosts do not start again by
/// themselves, so it switches them on.
pub(crate) fn reboot(cluster: &Cluster, host: &Host, drain: &str) -> Result<()> {
    let name = host.spec.name.clone();
    let words = ["ctl", "node", "reboot", &name, "--yes", drain];
    thread::scope(|scope| {
        let command = scope.spawn(|| cluster.bootstrap.run(&words));
        // A failed command leaves the host up.
        let off = wait::until("the host to go down", LIMIT, || match host.init() {
            None => Ok(true),
            Some(_) if command.is_finished() => Ok(false),
            Some(pid) => Err(anyhow!("its init is {pid}")),
        });
        if matches!(off, Ok(true)) {
            // Also removes the machine's resources for it.
            host.power_cut()?;
            cluster.lab.power_on(std::slice::from_ref(&name))?;
        }
        let said = command
            .join()
            .map_err(|_| anyhow!("the command panicked"))?;
        let said = said.context("ctl node reboot")?;
        ensure!(off?, "{name} did not go down: {said}");
        ensure!(said.contains(&format!("{name} has rebooted")), "{said}");
        Ok(())
    })
}
