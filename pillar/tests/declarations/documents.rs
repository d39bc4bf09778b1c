//! Bad documents with their reported problems, good ones with warnings, and good ones without
//! either.
//!
//! A folder holds `cluster.yaml`, `nodes/*.yaml`, `pillar.yaml` (the custom one), `secrets.yaml`
//! (the decrypted file of secrets), and `facts.json`
//! (`host`, `bundle`) where they matter. `HALITE_UPDATE_GOLDENS=1` rewrites `expected.txt`.

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};

use halite_document::Problem;
use halite_pillar::bundle_facts::BundleFacts;
use halite_pillar::host_facts::HostFacts;
use halite_pillar::load::{Text, Texts, load};
use halite_pillar::sealed::SealedSecrets;
use halite_pillar::validate::{Context, warnings};
use halite_secrets::SecretText;

fn folders(kind: &str) -> Vec<PathBuf> {
    let dir = Path::new(env!("CARGO_MANIFEST_DIR"))
        .join("tests")
        .join(kind);
    let mut found: Vec<PathBuf> = std::fs::read_dir(dir)
        .unwrap()
        .map(|entry| entry.unwrap().path())
        .collect();
    let number = |path: &PathBuf| {
        let name = path.file_name().unwrap().to_string_lossy().into_owned();
        (name.split('-').next().unwrap().parse::<u32>().ok(), name)
    };
    found.sort_by_key(number);
    found
}

fn texts(dir: &Path) -> Texts {
    let read = |name: &str| Text {
        file: name.to_owned(),
        text: std::fs::read_to_string(dir.join(name)).unwrap(),
    };
    let mut nodes: Vec<String> = std::fs::read_dir(dir.join("nodes"))
        .into_iter()
        .flatten()
        .map(|entry| {
            format!(
                "nodes/{}",
                entry.unwrap().file_name().into_string().unwrap()
            )
        })
        .collect();
    nodes.sort();
    Texts {
        cluster: read("cluster.yaml"),
        nodes: nodes.iter().map(|name| read(name)).collect(),
        custom: dir
            .join("pillar.yaml")
            .exists()
            .then(|| read("pillar.yaml")),
        sealed: dir.join("secrets.yaml").exists().then(|| SealedSecrets {
            file: "secrets.yaml.age".to_owned(),
            bytes: Vec::new(),
            plain: Some(SecretText::new(read("secrets.yaml").text)),
        }),
    }
}

/// The problems of a folder's documents, or the warnings about valid ones.
fn found(dir: &Path) -> Result<String, String> {
    let facts: serde_json::Value = std::fs::read_to_string(dir.join("facts.json"))
        .map_or(serde_json::Value::Null, |text| {
            serde_json::from_str(&text).unwrap()
        });
    let host: Option<HostFacts> = facts
        .get("host")
        .map(|value| serde_json::from_value(value.clone()).unwrap());
    let bundle: Option<BundleFacts> = facts
        .get("bundle")
        .map(|value| serde_json::from_value(value.clone()).unwrap());
    let context = Context {
        bundle: bundle.as_ref(),
        host: host.as_ref(),
    };
    let lines = |problems: &[Problem]| {
        problems
            .iter()
            .map(|problem| format!("{problem}\n"))
            .collect()
    };
    match load(&texts(dir), &context) {
        Ok(declaration) => Ok(lines(&warnings(&declaration))),
        Err(problems) => Err(lines(&problems)),
    }
}

#[test]
fn bad_documents_are_explained() {
    assert!(folders("bad").len() >= 40, "fixtures are missing");
    explained("bad", |dir| found(dir).expect_err("no problem was found"));
}

#[test]
fn documents_with_warnings_are_good() {
    explained("warned", |dir| found(dir).expect("it is refused"));
}

/// Compares the messages about each folder of a kind with its golden.
fn explained(kind: &str, said: impl Fn(&Path) -> String) {
    let update = std::env::var_os("HALITE_UPDATE_GOLDENS").is_some();
    let folders = folders(kind);
    let mut wrong = Vec::new();
    let mut numbers = BTreeSet::new();
    for dir in &folders {
        let name = dir.file_name().unwrap().to_str().unwrap();
        let number: u32 = name.split('-').next().unwrap().parse().unwrap();
        assert!(numbers.insert(number), "{name}: the number is there twice");
        let found = said(dir);
        assert!(!found.is_empty(), "{name}: nothing was said");
        let golden = dir.join("expected.txt");
        if update {
            std::fs::write(&golden, &found).unwrap();
        } else if std::fs::read_to_string(&golden).unwrap_or_default() != found {
            wrong.push(format!("{name}:\n{found}"));
        }
    }
    assert!(
        wrong.is_empty(),
        "{}\nHALITE_UPDATE_GOLDENS=1 accepts this",
        wrong.join("\n")
    );
}

#[test]
fn good_documents_pass() {
    for dir in folders("good") {
        assert_eq!(found(&dir), Ok(String::new()), "{}", dir.display());
    }
}

#[test]
fn the_example_is_good_also_with_everything_uncommented() {
    let text = |text: String| Texts {
        cluster: Text {
            file: "cluster.yaml".to_owned(),
            text,
        },
        ..Texts::default()
    };
    let example = halite_pillar::example::CLUSTER;
    assert!(load(&text(example.to_owned()), &Context::default()).is_ok());
    // A commented key begins with `# ` and a lower-case word, or is indented further below one.
    let mut live = String::new();
    for line in example.lines() {
        let bare = line
            .trim_start()
            .strip_prefix("# ")
            .unwrap_or(line.trim_start());
        let key = bare.trim_start().split(':').next().unwrap_or_default();
        let is_key =
            bare.contains(':') && key.chars().all(|c| c.is_ascii_alphanumeric()) && !key.is_empty();
        let indent = &line[..line.len() - line.trim_start().len()];
        match (line.trim_start().starts_with('#'), is_key) {
            (true, true) => live.push_str(&format!("{indent}{bare}\n")),
            (true, false) => {}
            (false, _) => live.push_str(&format!("{line}\n")),
        }
    }
    assert!(
        live.contains("\n  workloadPlane:") && live.contains("\nsecrets:"),
        "{live}"
    );
    if let Err(problems) = load(&text(live), &Context::default()) {
        panic!(
            "{}",
            problems
                .iter()
                .map(ToString::to_string)
                .collect::<Vec<_>>()
                .join("\n")
        );
    }
}

#[test]
fn no_problem_repeats_a_value_of_the_encrypted_file() {
    for dir in folders("bad") {
        if dir.join("secrets.yaml").exists() {
            let text = found(&dir).unwrap_err();
            assert!(!text.contains("hunter2"), "{}: {text}", dir.display());
        }
    }
}
