//! The tutorial of the guide, word for word: each block of commands on its machine, in order, and a
//! second time where the page allows it. Only the addresses are those of the lab, and its mirror
//! takes the place of the internet.

mod page;
mod steps;

use std::fs;

use anyhow::{Context as _, Result, ensure};
use halite_lab::cluster::{self, Cluster};
use halite_lab::host::Host;
use halite_lab::layout::THREE;
use halite_lab::{Lab, net};

use self::page::{Block, TutorialMachine};
use self::steps::{STEPS, Step};
use crate::builder_root::BuilderRoot;
use crate::site::switch_off;
use crate::test::{Counts, Test};

/// Tests of `--full`: they need a release.
pub(super) const FULL: &[Test<()>] = &[Test {
    name: "tutorial: its commands lead from a release to three nodes, an application, a repaired and a replaced host",
    run: is_followed,
}];

/// The lab of the three hosts.
const LAB: &str = "tutorial";

/// The directory of the page, on both machines.
const WORK: &str = "/root/halite";

/// Packages for SSH, downloaded in the builder's root, which lacks the same ones as the hosts.
const SSH_PACKAGES: &str =
    "apt-get install -qq --yes --no-install-recommends --download-only openssh-server";

/// Installs them on a host.
const INSTALL_SSH: &str = "DEBIAN_FRONTEND=noninteractive dpkg --install /root/ssh/*.deb > /root/ssh.log 2>&1 || \
                           { cat /root/ssh.log; exit 1; }; rm -r /root/ssh";

/// The builder's key for SSH.
const KEY: &str = "apt-get install -qq --yes openssh-client && mkdir -p -m 700 /root/.ssh && \
                   ssh-keygen -q -t ed25519 -N '' -f /root/.ssh/id_ed25519";

/// A reader's machines.
struct Tutorial {
    builder: BuilderRoot,
    cluster: Cluster,
    /// The block that begins each shell.
    enter: String,
    /// The application's image.
    image: String,
}

fn is_followed((): &()) -> Result<Counts> {
    let blocks = page::blocks()?;
    let followed = follow(&blocks);
    // The next test has the whole machine; the disks and logs remain.
    if followed.is_err()
        && let Err(error) = switch_off(LAB)
    {
        println!("  cannot switch off the hosts of the tutorial: {error:#}");
    }
    followed.map(|()| Counts::ONE)
}

fn follow(blocks: &[Block]) -> Result<()> {
    let [variables, enter, others @ ..] = blocks else {
        anyhow::bail!("the tutorial has no commands");
    };
    ensure!(others.len() == STEPS.len(), "{} steps", others.len());
    let lab = Lab::new(LAB, &halite_lab::cache().join("base-root"))?;
    lab.room_for(&THREE)?;
    let builder = BuilderRoot::new(WORK)?;
    lab.down()?;
    let cluster = cluster::boot_hosts(lab, &THREE, &[])?;
    connect(&builder, &cluster.bootstrap)?;
    let tutorial = Tutorial {
        builder,
        enter: enter.script.clone(),
        image: variables.value("IMAGE")?.to_owned(),
        cluster,
    };
    tutorial
        .builder
        .shell(&variables.with_values(&tutorial.values()?)?)?;
    for (block, step) in others.iter().zip(STEPS) {
        println!("  tutorial: {}", step.part.trim());
        tutorial
            .take(block, step)
            .with_context(|| format!("the block of the tutorial with {:?}", step.part))?;
    }
    tutorial.cluster.nothing_tried_to_leave()?;
    tutorial.cluster.lab.down()
}

/// Gives the builder a login to the first host, whose key it knows.
fn connect(builder: &BuilderRoot, first: &Host) -> Result<()> {
    builder.shell(SSH_PACKAGES)?;
    fs::create_dir(first.file("/root/ssh"))?;
    for archive in fs::read_dir(builder.path("/var/cache/apt/archives"))? {
        let archive = archive?.path();
        if let Some(name) = archive.file_name()
            && archive.extension().is_some_and(|end| end == "deb")
        {
            fs::copy(&archive, first.file("/root/ssh").join(name))?;
        }
    }
    first.sh(INSTALL_SSH)?;
    builder.shell(KEY)?;
    first.sh("mkdir -p -m 700 /root/.ssh")?;
    fs::copy(
        builder.path("/root/.ssh/id_ed25519.pub"),
        first.file("/root/.ssh/authorized_keys"),
    )?;
    let key = fs::read_to_string(first.file("/etc/ssh/ssh_host_ed25519_key.pub"))?;
    let known = format!("{} {key}", first.control_plane_address());
    fs::write(builder.path("/root/.ssh/known_hosts"), known).map_err(Into::into)
}

impl Tutorial {
    /// The values of the page's variables in the lab.
    fn values(&self) -> Result<Vec<(&'static str, String)>> {
        let address =
            |name: &str| -> Result<String> { Ok(self.cluster.host(name)?.control_plane_address()) };
        let network = net::Network::ControlPlane0.prefix();
        Ok(vec![
            ("NETWORK", format!("{network}.0/24")),
            ("CP_1", address("cp-1")?),
            ("WORKER_1", address("worker-1")?),
            ("WORKER_2", address("worker-2")?),
        ])
    }

    /// Runs a block, again if the page allows that, and checks each outcome.
    fn take(&self, block: &Block, step: &Step) -> Result<()> {
        (step.prepare)(self)?;
        let ran = |joins: &[&str]| -> Result<()> {
            let said = self.run(block, joins)?;
            (step.check)(self, &said).with_context(|| format!("it printed:\n{said}"))
        };
        ran(step.joins)?;
        if block.is_repeatable {
            // A host that has joined does not run the command that is printed again.
            ran(&[])?;
        }
        Ok(())
    }

    /// Runs a block in a new shell on its machine, and each command that it prints for a host of
    /// `joins` there; returns its output.
    fn run(&self, block: &Block, joins: &[&str]) -> Result<String> {
        let script = format!("{}{}", self.enter, block.script);
        let first = &self.cluster.bootstrap;
        match block.machine {
            // The builder's network is the internet, or the site, which the lab keeps apart.
            TutorialMachine::Builder if block.script.contains("$CP_1") => {
                let site = &self.cluster.lab.router.namespace;
                self.builder.shell_in(site, &script)
            }
            TutorialMachine::Builder => self.builder.shell(&script),
            TutorialMachine::First => {
                let words = ["sh", "-ec", &script];
                self.cluster.enrol_while(first, &words, joins, |_| Ok(()))
            }
            TutorialMachine::Either => anyhow::bail!("a block for both machines is not a step"),
        }
    }
}
