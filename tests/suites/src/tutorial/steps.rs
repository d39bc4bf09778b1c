//! The steps of the tutorial: what the lab provides before each block, and the outcome that the
//! page promises.

use std::fs;
use std::time::Duration;

use anyhow::{Context as _, Result, ensure};
use halite_lab::cluster::CLUSTER;
use halite_lab::wait;
use serde::Deserialize;

use super::{Tutorial, WORK};
use crate::builder_root::RecipeImage;
use crate::image_layout;

/// Part of the application's answer.
const ANSWER: &str = "<title>Welcome to nginx!</title>";
/// Directory of the application's image, beside the recipe.
const LAYOUT: &str = "application";
/// The damaged file, and the line of it that is changed.
const DAMAGED: &str = "/var/lib/kubelet/config.yaml";
const DAMAGE: &str = "rotateCertificates: false";
const REPAIRED: &str = "rotateCertificates: true";
/// Limit for a highstate to find nothing to do: other parts of the cluster may still settle.
const QUIET: Duration = Duration::from_secs(60);

/// The images of a recipe.
#[derive(Deserialize)]
struct OwnRecipe {
    images: Vec<RecipeImage>,
}

/// A block of the page.
pub(super) struct Step {
    /// Part of the block.
    pub(super) part: &'static str,
    /// Names of the hosts that run a command that the block prints.
    pub(super) joins: &'static [&'static str],
    /// Called once before the block.
    pub(super) prepare: fn(&Tutorial) -> Result<()>,
    /// Checks the outcome, with the block's output.
    pub(super) check: fn(&Tutorial, &str) -> Result<()>,
}

/// A step that succeeds when its commands do.
const fn step(part: &'static str) -> Step {
    checked(part, |_, _| Ok(()))
}

const fn checked(part: &'static str, check: fn(&Tutorial, &str) -> Result<()>) -> Step {
    Step {
        part,
        joins: &[],
        prepare: |_| Ok(()),
        check,
    }
}

/// All blocks after that of the variables and that of a new shell.
pub(super) const STEPS: &[Step] = &[
    checked("ssh-keygen -Y verify", |_, said| {
        has(said, &["Good \"halite-release\" signature", ".deb: OK"])
    }),
    step("apt-get install"),
    checked("ctl bundle init", |tutorial, _| tutorial.mirror()),
    step("ctl bundle build"),
    step("scp site.env"),
    checked("./ctl bundle verify", |_, said| {
        has(
            said,
            &["all unchanged since they were sealed; signed by builder"],
        )
    }),
    checked("./ctl config wizard", |tutorial, _| tutorial.settings()),
    checked("./ctl bootstrap", |tutorial, _| tutorial.ready(&["cp-1"])),
    Step {
        joins: &["worker-1", "worker-2"],
        ..step("ctl node add")
    },
    checked("kubectl get nodes", |tutorial, _| tutorial.ready(ALL)),
    checked("kubectl apply", |_, said| has(said, &[ANSWER])),
    checked("curl", |_, said| has(said, &[ANSWER])),
    checked("ctl highstate --test", |tutorial, said| {
        has(said, &[&format!("-{DAMAGE}"), &format!("+{REPAIRED}")])?;
        tutorial.line(DAMAGE)
    }),
    checked("ctl highstate\n", |tutorial, _| tutorial.repaired()),
    Step {
        joins: &["worker-2"],
        prepare: Tutorial::lose,
        ..step("ctl node replace")
    },
    checked("ctl health", |tutorial, said| {
        has(said, &[ANSWER])?;
        tutorial.ready(ALL)
    }),
];

/// The nodes of the finished cluster.
const ALL: &[&str] = &["cp-1", "worker-1", "worker-2"];

fn has(said: &str, parts: &[&str]) -> Result<()> {
    for part in parts {
        ensure!(said.contains(part), "{part:?} is missing");
    }
    Ok(())
}

impl Tutorial {
    /// Puts the mirror's recipe in the place of the one with public servers. It has the image that
    /// the page adds: that of the lab's test pods, with the application's answer.
    fn mirror(&self) -> Result<()> {
        let work = self.builder.path(WORK);
        let text = fs::read_to_string(work.join("recipe.yaml"))?;
        let own: OwnRecipe = serde_saphyr::from_str(&text)?;
        let mut added = own.images.into_iter();
        let mut image = added
            .find(|image| image.reference == self.image)
            .context("the image is not added")?;
        let base = fs::read_to_string(work.join("base-status"))?;
        ensure!(
            base.contains("Package: openssh-server"),
            "base-status is not that of cp-1"
        );
        self.builder.use_the_mirror(WORK, |images| {
            let test_pods = images
                .iter()
                .find(|image| image.component.as_deref() == Some("lab-pod"))
                .and_then(|image| image.layout.as_deref())
                .context("the mirror has no image of test pods")?;
            image_layout::copy(test_pods, &work.join(LAYOUT), |settings| {
                settings.cmd = ["serve", "--http-port=80"].map(str::to_owned).to_vec();
                settings.env.push(format!("ANSWER={ANSWER}"));
            })?;
            image.layout = Some(LAYOUT.into());
            images.push(image);
            Ok(())
        })
    }

    /// Adds the settings that this kernel needs, as in every cluster of the lab.
    fn settings(&self) -> Result<()> {
        let file = self.cluster.bootstrap.file(WORK).join("site/cluster.yaml");
        let text = fs::read_to_string(&file)?;
        fs::write(&file, with_settings(&text)?).map_err(Into::into)
    }

    /// Checks that exactly these nodes exist and are Ready.
    fn ready(&self, names: &[&str]) -> Result<()> {
        let text = self.cluster.kubectl(&["get", "nodes", "--no-headers"])?;
        let nodes = text.lines().map(|line| {
            let mut words = line.split_whitespace();
            (words.next(), words.next())
        });
        let expected = names.iter().map(|name| (Some(*name), Some("Ready")));
        ensure!(nodes.eq(expected), "the nodes are:\n{text}");
        Ok(())
    }

    /// Checks a line of the damaged file.
    fn line(&self, line: &str) -> Result<()> {
        let text = self.cluster.host("worker-1")?.run(&["cat", DAMAGED])?;
        ensure!(text.lines().any(|own| own == line), "{DAMAGED} is:\n{text}");
        Ok(())
    }

    fn repaired(&self) -> Result<()> {
        self.line(REPAIRED)?;
        wait::until("a highstate with nothing to do", QUIET, || {
            let plan = ["ctl", "highstate", "--test", "--exit-code"];
            self.cluster.bootstrap.run(&plan).map(drop)
        })
    }

    /// The third host loses its power and its disks, and boots bare.
    fn lose(&self) -> Result<()> {
        let name = ["worker-2".to_owned()];
        self.cluster.lab.power_off(&name, true)?;
        self.cluster.lab.power_on(&name)
    }
}

/// The cluster document of the wizard with the settings of the lab's own.
fn with_settings(document: &str) -> Result<String> {
    let (_, settings) = CLUSTER
        .split_once("\nkubelet:\n")
        .context("the lab's document has no kubelet")?;
    let (settings, host) = settings
        .split_once("\nhost:\n")
        .context("the lab's document has no host")?;
    let (before, after) = document
        .split_once("\nhost:\n")
        .context("the wizard's document has no host")?;
    Ok(format!(
        "{before}\nhost:\n{host}{after}\nkubelet:\n{settings}\n"
    ))
}

#[cfg(test)]
mod tests {
    use serde_json::Value;

    use super::*;
    use crate::guide;
    use crate::tutorial::page::{self, TutorialMachine};

    #[test]
    fn the_steps_are_the_blocks_of_the_page() {
        let blocks = page::blocks().unwrap();
        let (variables, others) = blocks.split_first().unwrap();
        assert_eq!(variables.machine, TutorialMachine::Builder);
        for name in [
            "CLUSTER", "NETWORK", "CP_1", "WORKER_1", "WORKER_2", "IMAGE",
        ] {
            variables.value(name).unwrap();
        }
        let (enter, others) = others.split_first().unwrap();
        assert_eq!(enter.machine, TutorialMachine::Either);
        assert_eq!(others.len(), STEPS.len());
        for (block, step) in others.iter().zip(STEPS) {
            assert!(block.script.contains(step.part), "{:?}", step.part);
            assert_ne!(block.machine, TutorialMachine::Either);
        }
        // A lost host is replaced once.
        assert!(!others[STEPS.len() - 2].is_repeatable);
    }

    #[test]
    fn the_release_is_verified_as_in_the_readme() {
        let readme = guide::block("../../README.md", "## Download", "ssh-keygen").unwrap();
        let own = &page::blocks().unwrap()[2].script;
        assert!(own.ends_with(&readme), "{own}");
    }

    #[test]
    fn the_settings_of_the_lab_are_added_to_the_document() {
        let wizard =
            "kind: Cluster\n\n# Hosts.\nhost:\n  # Installs chrony.\n  manageTime: false\n";
        let text = with_settings(wizard).unwrap();
        let of = |document: &str| serde_saphyr::from_str::<Value>(document).unwrap();
        let (_, settings) = CLUSTER.split_once("\nkubelet:\n").unwrap();
        let all = format!("kind: Cluster\nkubelet:\n{settings}  manageTime: false\n");
        assert_eq!(of(&text), of(&all));
    }
}
