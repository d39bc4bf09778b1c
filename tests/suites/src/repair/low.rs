//! The low state of the whole cluster: the objects that can be damaged, and the triggers of their
//! changes.

use std::collections::BTreeSet;

use anyhow::Result;
use halite_api::RenderedLow;
use halite_lab::cluster::{BOOTSTRAP, Cluster, WORKER};
use halite_states::low::{Chunk, Requisites};
use serde_json::{Map, Value};

use crate::ctl_answer;

/// The target whose states are Kubernetes objects.
pub const MASTER: &str = "master";

/// The name of a state of one minion: `worker-1: file.managed /etc/x [its id]`.
pub type Tag = String;

/// One state of one minion.
#[derive(Debug, Clone)]
pub struct LowStateEntry {
    /// Id of the minion.
    pub minion: String,
    /// Position in its low state.
    pub index: usize,
    /// `file.managed`
    pub function: String,
    /// The object's name.
    pub name: String,
    /// Arguments.
    pub args: Map<String, Value>,
    /// Name of the state in answers.
    pub tag: Tag,
    /// Indexes of the states whose change triggers this one: `watch`, `onchanges`, `listen`.
    follows: Vec<usize>,
    /// Set if it only acts when triggered.
    pub only_follows: bool,
}

impl LowStateEntry {
    /// A text argument.
    pub fn text(&self, key: &str) -> Option<&str> {
        self.args.get(key).and_then(Value::as_str)
    }

    /// A boolean argument; `false` if it is missing.
    pub fn flag(&self, key: &str) -> bool {
        self.args.get(key).and_then(Value::as_bool).unwrap_or(false)
    }
}

/// The tag of a state from its parts.
pub fn tag(minion: &str, function: &str, name: &str, id: &str) -> Tag {
    format!("{minion}: {function} {name} [{id}]")
}

/// The states of all minions.
#[derive(Debug, Clone)]
pub struct Low(pub Vec<LowStateEntry>);

impl Low {
    /// Reads the low state of every minion from the master.
    pub fn read(cluster: &Cluster) -> Result<Self> {
        let mut states = Vec::new();
        for minion in [BOOTSTRAP, WORKER, MASTER] {
            let words = ["render", minion, "--low"];
            let rendered: RenderedLow = ctl_answer::of(&cluster.bootstrap, &words)?;
            states.extend(
                rendered
                    .low
                    .chunks
                    .into_iter()
                    .enumerate()
                    .map(|(index, chunk)| state(minion, index, chunk)),
            );
        }
        Ok(Self(states))
    }

    /// The states of one minion.
    pub fn of<'a>(&'a self, minion: &'a str) -> impl Iterator<Item = &'a LowStateEntry> {
        self.0.iter().filter(move |state| state.minion == minion)
    }

    /// The states in `changed`, and all that a change of one may trigger, directly or indirectly.
    pub fn followers(&self, changed: &BTreeSet<Tag>) -> BTreeSet<Tag> {
        let mut all = changed.clone();
        loop {
            let before = all.len();
            for state in &self.0 {
                let leads = |index: &usize| {
                    self.of(&state.minion)
                        .any(|s| s.index == *index && all.contains(&s.tag))
                };
                if state.follows.iter().any(leads) {
                    all.insert(state.tag.clone());
                }
            }
            if all.len() == before {
                return all;
            }
        }
    }
}

fn state(minion: &str, index: usize, chunk: Chunk) -> LowStateEntry {
    let Requisites {
        watch,
        watch_any,
        onchanges,
        onchanges_any,
        listen,
        ..
    } = chunk.requisites.clone();
    let only_follows = !onchanges.is_empty() || !onchanges_any.is_empty();
    LowStateEntry {
        minion: minion.to_owned(),
        index,
        tag: tag(minion, &chunk.function(), &chunk.name, &chunk.id),
        function: chunk.function(),
        name: chunk.name,
        args: chunk.args,
        follows: [watch, watch_any, onchanges, onchanges_any, listen].concat(),
        only_follows,
    }
}
