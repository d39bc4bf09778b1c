//! The power switches of a lab's hosts.

use anyhow::{Result, bail, ensure};

use crate::host::{Host, cut_power};
use crate::{Lab, capacity};

impl Lab {
    /// Cuts the power of hosts at the same moment: every process is gone at once, nothing is shut
    /// down. With `destroy` their disks are gone too; name, addresses and read-only directories
    /// remain. A host that is already off may still lose its disks.
    pub fn power_off(&self, names: &[String], destroy: bool) -> Result<()> {
        let hosts = self.named(names)?;
        for host in &hosts {
            if host.init().is_some() || destroy && host.has_disks() {
                continue;
            }
            let name = &host.spec.name;
            let state = if destroy {
                "is off already and has no disks"
            } else {
                "is off already"
            };
            bail!(
                "{name} {state}; cargo lab power-on {name} --lab {} boots it",
                self.name
            );
        }
        cut_power(&hosts)?;
        if destroy {
            for host in &hosts {
                host.destroy_disks()?;
            }
        }
        Ok(())
    }

    /// Boots hosts that are off, one after the other: with their disks unchanged, or bare if these
    /// were destroyed. Refused if the machine has no room for one of them.
    pub fn power_on(&self, names: &[String]) -> Result<()> {
        let hosts = self.named(names)?;
        for host in &hosts {
            let name = &host.spec.name;
            ensure!(
                host.init().is_none(),
                "{name} is on already; cargo lab power-off {name} --lab {} cuts its power",
                self.name
            );
            for (source, target) in &host.spec.read_only {
                ensure!(
                    source.exists(),
                    "cannot boot {name}: its read-only directory {} was {}, which is gone; cargo lab demo makes it \
                     again, with new hosts",
                    target.display(),
                    source.display()
                );
            }
        }
        for host in &hosts {
            capacity::for_a_host(&host.spec.name, host.spec.inotify, &super::running()?)?;
            self.router.up()?;
            host.boot(&self.router)?;
        }
        Ok(())
    }

    fn named(&self, names: &[String]) -> Result<Vec<Host>> {
        names.iter().map(|name| self.host(name)).collect()
    }
}
