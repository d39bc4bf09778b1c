//! The union of the artifacts that renderings name; renderings share most of their states.

use std::collections::{BTreeMap, HashMap};
use std::rc::Rc;

use super::walk::NamedArtifact;
use super::{Artifact, ArtifactLocation, CompiledState, Rendering, Requirements, Uses, walk};

/// Collects the artifacts that renderings name.
#[derive(Debug, Default)]
pub struct Collector {
    /// The index in `uses` of each need.
    numbers: BTreeMap<(Artifact, ArtifactLocation), usize>,
    uses: Vec<Uses>,
    /// The states seen so far. The key is the state's address, which is unique while `Seen` holds
    /// the state, and `true` for hosts of RPM distributions.
    states: HashMap<(*const CompiledState, bool), Seen>,
    /// The artifacts found in a state, by its JSON: most new states differ only in their line.
    found: HashMap<String, Vec<NamedArtifact>>,
    /// The last rendering that read a file, by the index of the use: a file counts only once per
    /// rendering.
    read: HashMap<usize, usize>,
    problems: BTreeMap<String, Uses>,
    renderings: usize,
}

/// A state seen before: its needs, and the files that were read for it, as indexes in `uses`.
#[derive(Debug, Clone)]
struct Seen {
    state: Rc<CompiledState>,
    needs: Rc<[usize]>,
    files: Rc<[usize]>,
}

impl Collector {
    /// Adds everything that a rendering names.
    pub fn add(&mut self, rendering: &Rendering) {
        self.renderings += 1;
        for problem in &rendering.problems {
            self.problems
                .entry(problem.clone())
                .or_default()
                .add(&rendering.options, 1);
        }
        for path in &rendering.files {
            let file = self.file(path);
            self.read(file, &rendering.options);
        }
        for state in &rendering.states {
            let seen = self.seen(state, rendering.rpm);
            for needed in &*seen.needs {
                self.uses[*needed].add(&rendering.options, 1);
            }
            for file in &*seen.files {
                self.read(*file, &rendering.options);
            }
        }
    }

    /// Returns `true` if all renderings compile.
    #[must_use]
    pub fn compiles(&self) -> bool {
        self.problems.is_empty()
    }

    /// The needs of all renderings together.
    #[must_use]
    pub fn needs(self) -> Requirements {
        let mut needs = Requirements {
            problems: self.problems,
            renderings: self.renderings,
            ..Requirements::default()
        };
        for ((artifact, place), number) in self.numbers {
            let Uses { first, renderings } = &self.uses[number];
            needs.need(artifact, place, first, *renderings);
        }
        needs
    }

    fn seen(&mut self, state: &Rc<CompiledState>, rpm: bool) -> Seen {
        if let Some(seen) = self.states.get(&(Rc::as_ptr(state), rpm)) {
            return seen.clone();
        }
        let found = self.found(state);
        let needs = found.into_iter().map(|found| {
            let place = ArtifactLocation {
                file: state.file.clone(),
                line: state.line,
                what: found.what,
            };
            let artifact = match found.artifact {
                Artifact::Package { name, version } if rpm => Artifact::Rpm { name, version },
                artifact => artifact,
            };
            self.number(artifact, place)
        });
        let needs = needs.collect();
        let files = state.files.iter().map(|path| self.file(path)).collect();
        let seen = Seen {
            state: state.clone(),
            needs,
            files,
        };
        self.states
            .insert((Rc::as_ptr(&seen.state), rpm), seen.clone());
        seen
    }

    fn found(&mut self, state: &CompiledState) -> Vec<NamedArtifact> {
        let args = serde_json::to_string(&state.args).unwrap_or_default();
        let key = format!("{}\n{}\n{args}", state.function, state.name);
        self.found
            .entry(key)
            .or_insert_with(|| walk::state(state))
            .clone()
    }

    fn file(&mut self, path: &str) -> usize {
        let place = ArtifactLocation {
            file: path.to_owned(),
            line: 0,
            what: "the state tree reads it".to_owned(),
        };
        self.number(
            Artifact::File {
                path: path.to_owned(),
            },
            place,
        )
    }

    fn read(&mut self, file: usize, options: &str) {
        if self.read.insert(file, self.renderings) != Some(self.renderings) {
            self.uses[file].add(options, 1);
        }
    }

    fn number(&mut self, artifact: Artifact, place: ArtifactLocation) -> usize {
        let uses = &mut self.uses;
        *self.numbers.entry((artifact, place)).or_insert_with(|| {
            uses.push(Uses::default());
            uses.len() - 1
        })
    }
}
