//! Golden cases of the compiler. A case file has sections `==> tree/PATH`, `==> pillar`, `==>
//! grains`, `==> apply` and `==> expected`. HALITE_UPDATE_GOLDENS=1 rewrites the last; review the
//! difference.
#![expect(clippy::unwrap_used, reason = "a test's panic is its report")]

use std::fmt::Write as _;
use std::path::{Path, PathBuf};
use std::rc::Rc;

use halite_document::Problem;
use halite_states::compile::{Call, Compiled, Compiler, Input, highstate, sls};
use halite_states::low::{Chunk, FORMAT, LowState, Requisites};
use halite_states::tree::{MemoryTree, sha256};
use proptest::prelude::*;
use serde_json::{Value, json};

struct Case {
    path: PathBuf,
    sections: Vec<(String, String)>,
}

impl Case {
    fn read(path: PathBuf) -> Self {
        let text = std::fs::read_to_string(&path).unwrap();
        let mut sections: Vec<(String, String)> = Vec::new();
        for line in text.lines() {
            match line.strip_prefix("==> ") {
                Some(name) => sections.push((name.to_owned(), String::new())),
                None => {
                    let body = &mut sections.last_mut().unwrap().1;
                    body.push_str(line);
                    body.push('\n');
                }
            }
        }
        Self { path, sections }
    }

    fn section(&self, name: &str) -> &str {
        self.sections
            .iter()
            .find(|(known, _)| known == name)
            .map_or("", |(_, body)| body)
    }

    fn json(&self, name: &str) -> Value {
        match halite_secrets::yaml::parse(name, self.section(name))
            .unwrap()
            .to_json()
        {
            Value::Null => json!({}),
            value => value,
        }
    }

    fn all() -> Vec<Self> {
        let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/cases");
        let mut paths: Vec<PathBuf> = std::fs::read_dir(folder)
            .unwrap()
            .map(|entry| entry.unwrap().path())
            .collect();
        paths.sort();
        paths.into_iter().map(Self::read).collect()
    }

    fn tree(&self) -> MemoryTree {
        self.sections
            .iter()
            .filter_map(|(name, body)| Some((name.strip_prefix("tree/")?, body)))
            .fold(MemoryTree::new(), |tree, (path, body)| {
                tree.with(path, body.as_str())
            })
    }

    /// The SLS files that it applies; `None` for a highstate.
    fn names(&self) -> Option<Vec<String>> {
        let names: Vec<String> = self
            .section("apply")
            .split_whitespace()
            .map(str::to_owned)
            .collect();
        (!names.is_empty()).then_some(names)
    }

    fn compile(&self) -> Result<Compiled, Vec<Problem>> {
        compile(
            self,
            &self.tree(),
            &("web-1", self.json("pillar"), self.json("grains")),
        )
    }

    fn outcome(&self) -> String {
        match self.compile() {
            Ok(compiled) => show(&compiled),
            Err(problems) => problems.iter().fold(String::new(), |mut text, problem| {
                let _ = writeln!(text, "{problem}");
                text
            }),
        }
    }
}

/// A minion: its id, pillar and grains.
type World = (&'static str, Value, Value);

fn bundled(path: &str) -> Option<String> {
    (path == "images/pause.tar").then(|| sha256(b"pause"))
}

fn compile(
    case: &Case,
    tree: &MemoryTree,
    (minion, pillar, grains): &World,
) -> Result<Compiled, Vec<Problem>> {
    let input = Input {
        tree,
        minion,
        pillar,
        grains,
        bundle: &bundled,
    };
    case.names()
        .map_or_else(|| highstate(&input), |names| sls(&input, &names))
}

fn show(compiled: &Compiled) -> String {
    let mut out = String::new();
    for (chunk, provenance) in compiled.low.chunks.iter().zip(&compiled.provenance) {
        let _ = write!(
            out,
            "{} {} ({}:{})",
            chunk.function(),
            chunk.id,
            chunk.source.file,
            chunk.source.line
        );
        if chunk.name != chunk.id {
            let _ = write!(out, " name={}", chunk.name);
        }
        if chunk.sensitive {
            out.push_str(" sensitive");
        }
        out.push('\n');
        for (label, value) in [
            ("args", json!(chunk.args)),
            ("controls", json!(chunk.controls)),
            ("requisites", requisites(chunk, compiled)),
        ] {
            if value.as_object().is_some_and(|map| !map.is_empty()) {
                let _ = writeln!(out, "    {label}: {value}");
            }
        }
        if provenance.files.len() > 1 || !provenance.pillar.is_empty() {
            let _ = writeln!(
                out,
                "    from: {} <- {}",
                provenance.files.join(" "),
                provenance.pillar.join(" ")
            );
        }
    }
    for (hash, content) in &compiled.blobs {
        let _ = writeln!(out, "blob {} {} bytes", &hash[..8], content.len());
    }
    for warning in &compiled.warnings {
        let _ = writeln!(out, "warning: {warning}");
    }
    out
}

/// Requisites by tag instead of position.
fn requisites(chunk: &Chunk, compiled: &Compiled) -> Value {
    let mut value = json!(chunk.requisites);
    for targets in value
        .as_object_mut()
        .into_iter()
        .flat_map(|map| map.values_mut())
    {
        for target in targets.as_array_mut().into_iter().flatten() {
            let named = &compiled.low.chunks[target.as_u64().unwrap() as usize];
            *target = json!(format!("{}:{}", named.state, named.name));
        }
    }
    value
}

#[test]
fn cases() {
    let mut wrong = Vec::new();
    for case in Case::all() {
        let outcome = case.outcome();
        if outcome == case.section("expected") {
            continue;
        }
        if std::env::var_os("HALITE_UPDATE_GOLDENS").is_some() {
            let mut text = String::new();
            for (name, body) in case.sections.iter().filter(|(name, _)| name != "expected") {
                let _ = write!(text, "==> {name}\n{body}");
            }
            let _ = write!(text, "==> expected\n{outcome}");
            std::fs::write(&case.path, text).unwrap();
        }
        wrong.push(format!("{}:\n{outcome}", case.path.display()));
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}

/// The same value with every text and number changed.
fn changed(value: &Value) -> Value {
    match value {
        Value::String(text) => json!(format!("{text}x")),
        Value::Number(number) => json!(number.as_i64().unwrap_or_default() + 1),
        Value::Bool(truth) => json!(!truth),
        Value::Array(items) => items.iter().map(changed).collect(),
        Value::Object(map) => map
            .iter()
            .map(|(key, value)| (key.clone(), changed(value)))
            .collect(),
        Value::Null => Value::Null,
    }
}

/// A shared compiler makes the same calls for a minion as one of its own, and does not make equal
/// calls again.
#[test]
fn calls_are_shared_exactly_where_they_are_the_same() {
    let (mut all, mut shared) = (0, 0);
    for case in Case::all() {
        let (pillar, grains) = (case.json("pillar"), case.json("grains"));
        let worlds: [World; 3] = [
            ("web-1", pillar.clone(), grains.clone()),
            ("web-1", changed(&pillar), grains.clone()),
            ("other", json!({}), changed(&grains)),
        ];
        let tree = case.tree();
        let mut compiler = Compiler::new(&tree);
        let mut first: Vec<Rc<Call>> = Vec::new();
        for at in [0, 1, 2, 1, 0] {
            let world = &worlds[at];
            let (minion, pillar, grains) = world;
            let input = Input {
                tree: &tree,
                minion,
                pillar,
                grains,
                bundle: &bundled,
            };
            let alone = compile(&case, &tree, world).map(|mut compiled| {
                for chunk in &mut compiled.low.chunks {
                    chunk.requisites = Requisites::default();
                    // Made from requisites.
                    chunk.args.remove("keep");
                }
                compiled.warnings.clear();
                compiled
            });
            let calls = compiler.calls(&input, case.names().as_deref());
            let together = calls.as_ref().map_err(Clone::clone).map(|calls| Compiled {
                low: LowState {
                    format: FORMAT,
                    minion: (*minion).to_owned(),
                    chunks: calls.iter().map(|call| call.chunk().clone()).collect(),
                },
                blobs: calls.iter().flat_map(|call| call.blobs().clone()).collect(),
                provenance: calls.iter().map(|call| call.provenance().clone()).collect(),
                warnings: Vec::new(),
            });
            assert_eq!(together, alone, "{}: {world:?}", case.path.display());
            let Ok(calls) = calls else { continue };
            if first.is_empty() {
                first = calls;
            } else if at == 0 {
                all += calls.len();
                shared += calls
                    .iter()
                    .zip(&first)
                    .filter(|(one, other)| Rc::ptr_eq(one, other))
                    .count();
            }
        }
    }
    assert!(
        shared < all && shared > all / 2,
        "{shared} of {all}: all but those that `extend` and the like change"
    );
}

/// An SLS of states that require, watch or are required by others, without a cycle.
fn acyclic() -> impl Strategy<Value = String> {
    let state = (
        any::<prop::sample::Index>(),
        0..4u8,
        prop::option::of(-3i64..20),
    );
    (prop::collection::vec(state, 1..25), any::<u64>()).prop_map(|(states, seed)| {
        let mut lines: Vec<String> = Vec::new();
        for (at, (other, kind, order)) in states.iter().enumerate() {
            let mut text = format!("s{at}:\n  test.nop:\n    - comment: x\n");
            if at > 0 {
                let other = other.index(at);
                let word = ["require", "watch", "onchanges", "require_any"][usize::from(*kind)];
                text.push_str(&format!("    - {word}: [{{test: s{other}}}]\n"));
            }
            if let Some(order) = order {
                text.push_str(&format!("    - order: {order}\n"));
            }
            lines.push(text);
        }
        // The order in the file must not matter for the law.
        let length = lines.len();
        for at in 0..length {
            lines.swap(
                at,
                (seed as usize).wrapping_mul(31).wrapping_add(at * 7) % length,
            );
        }
        lines.concat()
    })
}

#[test]
fn a_source_that_is_too_large_for_a_template_is_not_called_missing() {
    let state = "/a:\n  file.managed:\n    - source: salt://large\n    - template: jinja\n";
    let tree = MemoryTree::new()
        .with("a.sls", state)
        .with("large", vec![b'x'; 1024 * 1024 + 1]);
    let (pillar, grains) = (json!({}), json!({}));
    let input = Input {
        tree: &tree,
        minion: "m",
        pillar: &pillar,
        grains: &grains,
        bundle: &|_| None,
    };
    let problems = sls(&input, &["a".to_owned()]).map(drop).unwrap_err();
    let wanted = "cannot read `large`: it has 1048577 bytes, and a template may have 1048576";
    assert!(problems[0].message.contains(wanted), "{problems:?}");
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]

    #[test]
    fn every_state_comes_after_its_requisites(source in acyclic()) {
        let tree = MemoryTree::new().with("a.sls", source.as_str());
        let (pillar, grains) = (json!({}), json!({}));
        let input = Input { tree: &tree, minion: "m", pillar: &pillar, grains: &grains, bundle: &|_| None };
        let compiled = sls(&input, &["a".to_owned()]).unwrap();
        for (at, chunk) in compiled.low.chunks.iter().enumerate() {
            let requisites = &chunk.requisites;
            for needed in [&requisites.require, &requisites.watch, &requisites.onchanges, &requisites.require_any] {
                prop_assert!(needed.iter().all(|needed| *needed < at), "{source}");
            }
        }
    }

    #[test]
    fn no_text_makes_the_compiler_panic(source in "[a-c:{}% \n\\-\\[\\]'\"|.#&*]{0,80}") {
        let tree = MemoryTree::new().with("a.sls", source.as_str());
        let (pillar, grains) = (json!({}), json!({}));
        let input = Input { tree: &tree, minion: "m", pillar: &pillar, grains: &grains, bundle: &|_| None };
        let _ = sls(&input, &["a".to_owned()]);
    }
}
