//! One round: damage, predict, repair, check.

use std::collections::{BTreeMap, BTreeSet};

use anyhow::{Context, Error, Result, ensure};
use halite_lab::cluster::Cluster;
use halite_lab::wait;

use super::answer::{HighstateAnswer, highstate};
use super::damage::{Foreign, ObjectDamage};
use super::low::{Low, Tag};
use super::objects::Objects;
use super::{damage, wait_ready};
use crate::test::Counts;

/// Limit for an object to be restored by a repair: a unit may still be starting.
const RESTORED: std::time::Duration = std::time::Duration::from_secs(90);

/// The damages that are made together, and the foreign objects that are added.
pub struct Round<'a> {
    /// The cluster.
    pub cluster: &'a Cluster,
    /// The low state of the cluster.
    pub low: &'a Low,
    /// Damages on hosts.
    pub damages: Vec<ObjectDamage>,
    /// Damages in the API.
    pub objects: Option<Objects>,
    /// Foreign objects to add.
    pub foreign: Vec<Foreign>,
}

impl Round<'_> {
    fn read(&self) -> Result<BTreeMap<String, String>> {
        let mut all = damage::read(self.cluster, &self.damages)?;
        if let Some(objects) = &self.objects {
            all.extend(objects.read(self.cluster)?);
        }
        Ok(all)
    }

    fn tags(&self) -> BTreeSet<Tag> {
        let mut tags: BTreeSet<Tag> = self.damages.iter().map(|d| d.tag.clone()).collect();
        tags.extend(self.objects.iter().flat_map(Objects::tags));
        tags
    }

    /// Runs the round. Returns the number of damages as passed tests.
    pub fn run(&self) -> Result<Counts> {
        let cluster = self.cluster;
        wait_ready::answering(cluster)?;
        let pods = wait_ready::pods(cluster)?;
        wait_ready::settled(cluster, pods)?;
        let clean = highstate(cluster, &["--test"])?;
        ensure!(
            clean.changed.is_empty(),
            "there was something to repair before any damage: {:#?}",
            clean.changed
        );
        let theirs = damage::add(cluster, &self.foreign)?;
        let before = self.read()?;
        damage::make(cluster, &self.damages)?;
        let labelled = self
            .objects
            .as_ref()
            .map(|objects| objects.damage(cluster))
            .transpose()?;
        let during = self.read()?;
        let untouched: Vec<&String> = before
            .keys()
            .filter(|k| before.get(*k) == during.get(*k))
            .collect();
        ensure!(
            untouched.is_empty(),
            "the damage did not reach: {untouched:#?}"
        );

        let predicted = highstate(cluster, &["--test"])?;
        let moved = differences(&during, &self.read()?);
        ensure!(
            moved.is_empty(),
            "`ctl highstate --test` changed something: {}",
            moved.join("\n")
        );
        self.expect_named(&predicted)?;
        let daemons = wait_ready::daemons(cluster)?;
        let repaired = highstate(cluster, &[])?;
        let surprises: Vec<&Tag> = repaired.changed.difference(&predicted.changed).collect();
        ensure!(
            surprises.is_empty(),
            "changed, but not named by --test: {surprises:#?}"
        );
        let idle: Vec<&Tag> = predicted
            .changed
            .difference(&repaired.changed)
            .filter(|tag| !predicted.open.contains(*tag))
            .collect();
        ensure!(
            idle.is_empty(),
            "definitely named by --test, but not changed: {idle:#?}"
        );

        wait_ready::daemons_restarted(cluster, &daemons, &repaired)?;
        wait::until("the objects to be restored", RESTORED, || {
            let after = self.read()?;
            let differ = differences(&before, &after);
            if differ.is_empty() {
                Ok(())
            } else {
                Err(Error::msg(differ.join("\n")))
            }
        })?;
        wait_ready::settled(cluster, pods)?;
        quiet(cluster).context("after the repair")?;
        ensure!(
            damage::read_foreign(cluster, &self.foreign)? == theirs,
            "a foreign object has changed"
        );
        damage::remove(cluster, &self.foreign)?;
        if let (Some(objects), Some(labelled)) = (&self.objects, &labelled) {
            objects.without_foreign(cluster, labelled)?;
        }
        Ok(Counts {
            passed: before.len(),
            failed: 0,
        })
    }

    /// Cleans up after a failure: removes foreign objects and repairs, so that the next round
    /// starts with a healthy cluster.
    pub fn clear(&self) -> Result<()> {
        // Some of them may not exist.
        let _ = damage::remove(self.cluster, &self.foreign);
        wait_ready::answering(self.cluster)?;
        highstate(self.cluster, &[])?;
        let left = highstate(self.cluster, &["--test"])?;
        ensure!(
            left.changed.is_empty(),
            "still to repair: {:#?}",
            left.changed
        );
        Ok(())
    }

    /// Checks that the prediction lists every damaged state, and otherwise only states that one of
    /// them triggers, or that cannot be predicted.
    fn expect_named(&self, predicted: &HighstateAnswer) -> Result<()> {
        let tags = self.tags();
        let missed: Vec<&Tag> = tags.difference(&predicted.changed).collect();
        ensure!(
            missed.is_empty(),
            "damaged, but not named by --test: {missed:#?}"
        );
        let mut expected = self.low.followers(&tags);
        expected.extend(predicted.open.iter().cloned());
        let others: Vec<&Tag> = predicted.changed.difference(&expected).collect();
        ensure!(
            others.is_empty(),
            "named by --test, but neither damaged nor following from a damage: {others:#?}"
        );
        Ok(())
    }
}

/// The differences between two records, as text for messages.
fn differences(was: &BTreeMap<String, String>, is: &BTreeMap<String, String>) -> Vec<String> {
    let differ = was
        .iter()
        .filter(|(label, text)| is.get(*label) != Some(text));
    differ
        .map(|(label, text)| {
            format!(
                "{label}:\nwas {text}\nis {}",
                is.get(label).map_or("", String::as_str)
            )
        })
        .collect()
}

/// Runs a highstate that must change nothing and restart nothing.
pub fn quiet(cluster: &Cluster) -> Result<()> {
    let before = wait_ready::running(cluster)?;
    let again = highstate(cluster, &[])?;
    ensure!(
        again.changed.is_empty(),
        "another highstate changed something: {:#?}",
        again.changed
    );
    wait_ready::still(cluster, &before)
}
