//! Comparison with real Salt: every template under `states/tests/templates` was rendered by Salt
//! 3008.3. Halite renders the same text or refuses the template as Salt does, or the table in
//! `docs/coming-from-salt.md` lists the difference; and every row of that table occurs.

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};

use serde_json::Value as Json;

use super::differences::{Difference, compare_with_table};
use super::{Purpose, Renderer};
use crate::tree::MemoryTree;

/// Group and case.
type Name = (String, String);

fn folder() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/templates")
}

fn read(path: &Path) -> Json {
    serde_json::from_str(&std::fs::read_to_string(path).unwrap()).unwrap()
}

/// The probes by group and case.
fn probes() -> BTreeMap<Name, Json> {
    let mut probes = BTreeMap::new();
    for entry in std::fs::read_dir(folder()).unwrap() {
        let path = entry.unwrap().path();
        let group = path.file_stem().unwrap().to_str().unwrap().to_owned();
        if group == "world" {
            continue;
        }
        for (case, probe) in read(&path).as_object().unwrap() {
            probes.insert((group.clone(), case.clone()), probe.clone());
        }
    }
    probes
}

/// The renderer of a probe, whose grains are added to those of the world, its first file, and the
/// purpose of that.
fn renderer(probe: &Json, world: &Json) -> (Renderer, String, Purpose) {
    let mut tree = MemoryTree::new();
    let mut first = "a.sls";
    if let Some(files) = probe["files"].as_object() {
        first = files.keys().next().unwrap();
        for (path, text) in files {
            tree = tree.with(path, text.as_str().unwrap());
        }
    } else {
        tree = tree.with(first, probe["template"].as_str().unwrap());
    }
    let purpose = if first.ends_with(".sls") {
        Purpose::Sls
    } else {
        Purpose::File
    };
    let mut grains = world["grains"].clone();
    for (name, value) in probe["grains"].as_object().into_iter().flatten() {
        grains[name.as_str()] = value.clone();
    }
    let mut renderer = Renderer::new(&tree);
    renderer.set_minion("web-1", &world["pillar"], &grains);
    (renderer, first.to_owned(), purpose)
}

/// The rendered text, or the problem.
fn render(probe: &Json, world: &Json) -> Result<String, String> {
    let (renderer, first, purpose) = renderer(probe, world);
    let rendered = renderer.render(purpose, &first, &BTreeMap::new());
    rendered
        .map(|rendered| rendered.text.clone())
        .map_err(|problem| {
            assert!(problem.line > 0, "a problem without a place: {problem}");
            problem.to_string()
        })
}

/// The kind of the difference, if there is one: `refused`, `accepted` or `text`.
fn difference(probe: &Json, ours: &Result<String, String>) -> Option<&'static str> {
    match (probe["salt"].as_str(), ours) {
        (Some(theirs), Ok(ours)) if theirs == ours => None,
        (Some(_), Ok(_)) => Some("text"),
        (Some(_), Err(_)) => Some("refused"),
        (None, Ok(_)) => Some("accepted"),
        (None, Err(_)) => None,
    }
}

#[test]
fn templates_agree_with_salt_or_are_in_the_table() {
    let world = read(&folder().join("world.json"));
    let probes = probes();
    assert!(probes.len() >= 350, "{}", probes.len());
    let mut found: BTreeSet<Difference<3>> = BTreeSet::new();
    for (name, probe) in &probes {
        let ours = render(probe, &world);
        if let Some(aspect) = difference(probe, &ours) {
            eprintln!("{name:?} {aspect}: {} {ours:?}", probe["salt"]);
            let (group, case) = name.clone();
            found.insert([group, case, aspect.to_owned()]);
        }
    }
    compare_with_table("differences of templates", &found);
}

#[test]
fn guards_around_operands_change_no_text() {
    let world = read(&folder().join("world.json"));
    for (name, probe) in probes() {
        if render(&probe, &world).is_err() {
            continue;
        }
        let (renderer, first, purpose) = renderer(&probe, &world);
        let environments = match purpose {
            Purpose::Sls => &renderer.sls,
            Purpose::File => &renderer.file,
        };
        let texts = [&environments.plain, &environments.guarded].map(|environment| {
            let template = environment.get_template(&first).unwrap();
            let text = template.render(super::context(&first, &BTreeMap::new()));
            text.map_err(|error| format!("{error:#}"))
        });
        assert_eq!(texts[0], texts[1], "{name:?}");
    }
}
