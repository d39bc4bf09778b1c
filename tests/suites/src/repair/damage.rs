//! One damage: a shell line that makes it, and one that prints the part of the object that Halite
//! manages.

use std::collections::BTreeMap;
use std::thread;

use anyhow::{Context, Result, anyhow, ensure};
use halite_lab::cluster::{BOOTSTRAP, Cluster};
use halite_lab::host::Host;

use super::low::{LowStateEntry, Tag};

/// One object, damaged in its own way.
#[derive(Debug, Clone)]
pub struct ObjectDamage {
    /// The state that must detect and repair it.
    pub tag: Tag,
    /// Description of the damage, for messages.
    pub what: &'static str,
    /// Name of the host.
    pub host: String,
    /// Makes the damage.
    pub line: String,
    /// Prints the object; the same output as before the damage means that it is repaired.
    pub probe: String,
}

impl ObjectDamage {
    /// Creates a damage of the object that a host's state declares.
    pub fn new(
        state: &LowStateEntry,
        what: &'static str,
        line: impl Into<String>,
        probe: impl Into<String>,
    ) -> Self {
        Self {
            tag: state.tag.clone(),
            what,
            host: state.minion.clone(),
            line: line.into(),
            probe: probe.into(),
        }
    }

    /// Text for messages.
    pub fn label(&self) -> String {
        format!("{}: {}", self.tag, self.what)
    }
}

/// An object that Halite does not manage, and that must be unchanged after a repair.
#[derive(Debug, Clone)]
pub struct Foreign {
    /// Name of the host.
    pub host: String,
    /// Description, for messages.
    pub what: &'static str,
    /// Adds the object.
    pub add: String,
    /// Prints the object.
    pub probe: String,
    /// Removes the object.
    pub remove: String,
}

/// Quotes a text as one word for the shell.
pub fn quote(text: &str) -> String {
    format!("'{}'", text.replace('\'', r"'\''"))
}

/// The host with that name.
pub fn host<'a>(cluster: &'a Cluster, name: &str) -> &'a Host {
    if name == BOOTSTRAP {
        &cluster.bootstrap
    } else {
        &cluster.worker
    }
}

/// Runs many lines on a host, each in a separate shell, and returns the output of each. They are
/// sent as one script: entering a host for each would take most of the time. The output of a failed
/// line shows the failure; with `errors` it includes the messages.
pub fn lines(host: &Host, all: &[&str], errors: bool) -> Result<Vec<String>> {
    let mut script = String::new();
    for (number, line) in all.iter().enumerate() {
        let stderr = if errors { "2>&1" } else { "2>/dev/null" };
        script.push_str(&format!(
            "echo '@@@ {number}'\n(\n{line}\n) {stderr} || echo \"@@@ exit $?\"\n"
        ));
    }
    let path = "/root/halite-test-lines.sh";
    std::fs::write(host.root().join(path.trim_start_matches('/')), script)?;
    let printed = host.run(&["sh", path])?;
    let mut parts: Vec<String> = Vec::new();
    for line in printed.lines() {
        if line == format!("@@@ {}", parts.len()) {
            parts.push(String::new());
        } else if let Some(part) = parts.last_mut() {
            part.push_str(line);
            part.push('\n');
        }
    }
    ensure!(
        parts.len() == all.len(),
        "{} answers to {} lines: {printed}",
        parts.len(),
        all.len()
    );
    Ok(parts)
}

/// The output of each item's `line` on its host, under the item's label. Both hosts run in
/// parallel.
fn each<'a, T: 'a>(
    cluster: &Cluster,
    items: impl Iterator<Item = &'a T> + Clone,
    errors: bool,
    place: impl Fn(&T) -> (String, String, String),
) -> Result<BTreeMap<String, String>> {
    let here = |host: &Host| -> Vec<(String, String)> {
        let placed = items
            .clone()
            .map(&place)
            .filter(|(name, ..)| *name == host.spec.name);
        placed.map(|(_, label, line)| (label, line)).collect()
    };
    let ask = |host: &Host, here: Vec<(String, String)>| -> Result<Vec<(String, String)>> {
        let script: Vec<&str> = here.iter().map(|(_, line)| line.as_str()).collect();
        let answers = lines(host, &script, errors)?;
        Ok(here
            .into_iter()
            .zip(answers)
            .map(|((label, _), answer)| (label, answer))
            .collect())
    };
    let (first, second) = (here(&cluster.bootstrap), here(&cluster.worker));
    let (first, second) = thread::scope(|scope| {
        let other = scope.spawn(|| ask(&cluster.worker, second));
        (ask(&cluster.bootstrap, first), other.join())
    });
    let second =
        second.map_err(|_| anyhow!("the thread for {} panicked", cluster.worker.spec.name))?;
    Ok(first?.into_iter().chain(second?).collect())
}

/// Makes all damages.
pub fn make(cluster: &Cluster, damages: &[ObjectDamage]) -> Result<()> {
    let printed = each(cluster, damages.iter(), true, |d| {
        (d.host.clone(), d.label(), d.line.clone())
    })?;
    succeeded(&printed).context("a damage could not be made")
}

/// The objects in their current state.
pub fn read(cluster: &Cluster, damages: &[ObjectDamage]) -> Result<BTreeMap<String, String>> {
    each(cluster, damages.iter(), false, |d| {
        (d.host.clone(), d.label(), d.probe.clone())
    })
}

/// Adds the foreign objects, and returns their printed form.
pub fn add(cluster: &Cluster, foreign: &[Foreign]) -> Result<BTreeMap<String, String>> {
    let label = |f: &Foreign| format!("{}: {}", f.host, f.what);
    let printed = each(cluster, foreign.iter(), true, |f| {
        (f.host.clone(), label(f), f.add.clone())
    })?;
    succeeded(&printed).context("a foreign object could not be added")?;
    let there = read_foreign(cluster, foreign)?;
    succeeded(&there).context("a foreign object does not exist")?;
    Ok(there)
}

/// The foreign objects in their current state.
pub fn read_foreign(cluster: &Cluster, foreign: &[Foreign]) -> Result<BTreeMap<String, String>> {
    each(cluster, foreign.iter(), true, |f| {
        (
            f.host.clone(),
            format!("{}: {}", f.host, f.what),
            f.probe.clone(),
        )
    })
}

/// Removes the foreign objects.
pub fn remove(cluster: &Cluster, foreign: &[Foreign]) -> Result<()> {
    let printed = each(cluster, foreign.iter(), true, |f| {
        (
            f.host.clone(),
            format!("{}: {}", f.host, f.what),
            f.remove.clone(),
        )
    })?;
    succeeded(&printed).context("a foreign object could not be removed")
}

fn succeeded(printed: &BTreeMap<String, String>) -> Result<()> {
    let failed: Vec<String> = printed
        .iter()
        .filter(|(_, text)| text.contains("@@@ exit"))
        .map(|(label, text)| format!("{label}: {}", text.trim()))
        .collect();
    ensure!(failed.is_empty(), "{}", failed.join("\n"));
    Ok(())
}
