//! The documents of a bundle: the list of its components, the texts of licences, the documentation.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::process::Command;

use halite_builder::{Error, release_sbom};
use halite_bundle::verify;
use halite_errors::chain;
use halite_manifest::{Manifest, manifest};
use halite_testkit::{Site, hex, layout_of, put};
use serde_json::{Value, json};

use crate::shared::built;

/// SPDX's own schema (<https://github.com/spdx/spdx-spec/blob/v2.3/schemas/spdx-schema.json>).
const SCHEMA: &str = include_str!("fixtures/spdx-2.3.schema.json");

/// Validates against a schema (draft 7), as far as SPDX's schema uses it.
fn against(schema: &Value, value: &Value, path: &str, wrong: &mut Vec<String>) {
    let right = match schema["type"].as_str() {
        Some("object") => value.is_object(),
        Some("array") => value.is_array(),
        Some("string") => value.is_string(),
        Some("boolean") => value.is_boolean(),
        Some("integer") => value.is_i64(),
        Some(other) => panic!("the schema's type {other} is not supported here"),
        None => true,
    };
    if !right {
        wrong.push(format!("{path}: must be of type {}", schema["type"]));
    }
    if let Some(allowed) = schema["enum"]
        .as_array()
        .filter(|allowed| !allowed.contains(value))
    {
        wrong.push(format!("{path}: {value} is none of {allowed:?}"));
    }
    for name in schema["required"]
        .as_array()
        .into_iter()
        .flatten()
        .filter_map(Value::as_str)
    {
        if value.get(name).is_none() {
            wrong.push(format!("{path}: {name} is missing"));
        }
    }
    for (name, value) in value.as_object().into_iter().flatten() {
        match schema["properties"].get(name) {
            Some(schema) => against(schema, value, &format!("{path}.{name}"), wrong),
            None if schema["additionalProperties"] == false => {
                wrong.push(format!("{path}.{name}: is not known"))
            }
            None => {}
        }
    }
    let items = value.as_array();
    if let Some((least, items)) = schema["minItems"].as_u64().zip(items)
        && (items.len() as u64) < least
    {
        wrong.push(format!("{path}: is too short"));
    }
    for (index, item) in items.into_iter().flatten().enumerate() {
        against(&schema["items"], item, &format!("{path}[{index}]"), wrong);
    }
}

/// A static Go program with build information.
fn go_program(dir: &std::path::Path) -> Vec<u8> {
    put(&dir.join("go.mod"), b"module example.org/tool\n\ngo 1.21\n");
    put(&dir.join("main.go"), b"package main\n\nfunc main() {}\n");
    let built = Command::new("go")
        .current_dir(dir)
        .envs([
            ("GOFLAGS", "-mod=mod -buildvcs=false"),
            ("GOWORK", "off"),
            ("CGO_ENABLED", "0"),
        ])
        .envs([
            ("GOTOOLCHAIN", "local"),
            ("GOOS", "linux"),
            ("GOARCH", "amd64"),
            ("GOPROXY", "off"),
        ])
        .args(["build", "-trimpath", "-ldflags", "-s -w", "-o", "tool", "."])
        .output()
        .expect("Go 1.26 has to be installed");
    assert!(
        built.status.success(),
        "{}",
        String::from_utf8_lossy(&built.stderr)
    );
    fs::read(dir.join("tool")).unwrap()
}

/// A site with a Go program in an image and in a package, an Alpine package record, crates,
/// licences and documentation.
fn site() -> (Site, String) {
    let mut site = Site::new();
    let work = tempfile::tempdir().unwrap();
    let program = go_program(work.path());
    put(&site.path("bin/kubelet"), &program);
    let record = b"P:musl\nV:1.2.5-r0\nA:x86_64\nL:MIT\n\n";
    layout_of(
        &site.path("images/etcd"),
        "registry.k8s.io/etcd:3.6.8-0",
        &[
            ("usr/local/bin/etcd", &program),
            ("lib/apk/db/installed", record),
        ],
    );
    let digest = |name: &str| hex(&fs::read(site.path("bin").join(name)).unwrap());
    let program_of = |name: &str| {
        json!({"sha256": digest(name), "version": "0.1.0", "licence": "Apache-2.0", "compiler": "rustc 1.95.0",
            "crates": ["serde 1.0.229", "halite-bundle 0.1.0"]})
    };
    let inputs = json!({
        "format": 1,
        "programs": {"ctl": program_of("ctl"), "halite-master": program_of("halite-master"),
            "halite-minion": program_of("halite-minion")},
        "crates": {"serde 1.0.229": {"licence": "MIT/Apache-2.0", "sha256": hex(b"serde")},
            "halite-bundle 0.1.0": {"licence": "Apache-2.0"}},
    });
    put(&site.path("inputs.json"), inputs.to_string().as_bytes());
    put(
        &site.path("texts/cargo/serde@1.0.229/LICENSE-MIT"),
        b"Permission is hereby granted",
    );
    put(&site.path("texts/common/Apache-2.0"), b"Apache");
    let start = b"<p><a href=\"guide/more.html\">more</a></p>";
    put(&site.path("docs/index.html"), start);
    put(&site.path("docs/guide/more.html"), b"<p>more</p>");
    for (key, value) in [
        ("sbom-inputs", "inputs.json"),
        ("licences", "texts"),
        ("docs", "docs"),
    ] {
        site.recipe[key] = json!(value);
    }
    (site, hex(&program))
}

fn document(site: &Site, bundle: &str) -> Value {
    serde_json::from_slice(&fs::read(site.path(bundle).join("sbom.spdx.json")).unwrap()).unwrap()
}

fn packages(document: &Value) -> &Vec<Value> {
    document["packages"].as_array().unwrap()
}

fn named<'a>(document: &'a Value, name: &str) -> &'a Value {
    let found = packages(document)
        .iter()
        .find(|package| package["name"] == name);
    found.unwrap_or_else(|| panic!("{name} is not there"))
}

/// The names of the elements to which an element has a relationship of that kind.
fn related(document: &Value, one: &Value, kind: &str) -> BTreeSet<String> {
    let all = document["relationships"].as_array().unwrap().iter();
    let ids = all
        .filter(|r| r["spdxElementId"] == one["SPDXID"] && r["relationshipType"] == kind)
        .map(|r| r["relatedSpdxElement"].as_str().unwrap());
    let name = |id: &str| {
        packages(document)
            .iter()
            .find(|package| package["SPDXID"] == id)
            .map(|package| package["name"].clone())
    };
    ids.filter_map(|id| Some(name(id)?.as_str()?.to_owned()))
        .collect()
}

#[test]
fn the_list_of_a_bundle_is_spdx_and_says_what_is_in_what() {
    let (site, program) = site();
    let made = site.build("bundle").unwrap();
    assert!(
        verify(&site.path("bundle"), &mut |_| ())
            .unwrap()
            .is_sound()
    );
    let document = document(&site, "bundle");
    let mut wrong = Vec::new();
    against(
        &serde_json::from_str(SCHEMA).unwrap(),
        &document,
        "$",
        &mut wrong,
    );
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
    // Rules that are not in the schema: ids are unique, and every relationship is between existing
    // elements.
    let ids: Vec<&str> = packages(&document)
        .iter()
        .chain(document["files"].as_array().unwrap())
        .map(|thing| thing["SPDXID"].as_str().unwrap())
        .chain(["SPDXRef-DOCUMENT"])
        .collect();
    let once: BTreeSet<&str> = ids.iter().copied().collect();
    assert_eq!(once.len(), ids.len());
    assert!(once.iter().all(|id| {
        id.chars()
            .all(|c| c.is_ascii_alphanumeric() || c == '.' || c == '-')
    }));
    for relation in document["relationships"].as_array().unwrap() {
        for end in ["spdxElementId", "relatedSpdxElement"] {
            assert!(once.contains(relation[end].as_str().unwrap()), "{relation}");
        }
    }
    assert_eq!(document["creationInfo"]["created"], made.built);

    let bundle = named(&document, "halite-bundle");
    let inside = related(&document, bundle, "CONTAINS");
    for wanted in ["etcd", "pause", "kubelet", "ctl", "halite-minion"] {
        assert!(inside.contains(wanted), "{wanted}: {inside:?}");
    }
    let etcd = named(&document, "etcd");
    // The program in the image is the package's program, which was added first.
    assert_eq!(
        related(&document, etcd, "CONTAINS"),
        ["kubelet".to_owned(), "musl".to_owned()].into()
    );
    let purl = etcd["externalRefs"][0]["referenceLocator"]
        .as_str()
        .unwrap();
    assert!(
        purl.starts_with("pkg:oci/etcd@sha256%3A") && purl.ends_with("&tag=3.6.8-0"),
        "{purl}"
    );
    // The same program in an image and in a package is one element, and its library another.
    let tool: Vec<&Value> = packages(&document)
        .iter()
        .filter(|package| package["checksums"][0]["checksumValue"] == program)
        .collect();
    assert_eq!(tool.len(), 1);
    assert_eq!(
        related(&document, tool[0], "DEPENDS_ON"),
        ["stdlib".to_owned()].into()
    );
    let ctl = named(&document, "ctl");
    assert_eq!(
        related(&document, ctl, "DEPENDS_ON"),
        ["serde".to_owned(), "halite-bundle".to_owned()].into()
    );
    assert_eq!(
        named(&document, "serde")["licenseDeclared"],
        "MIT OR Apache-2.0"
    );
    let deb = packages(&document).iter().find(|package| {
        package["packageFileName"]
            .as_str()
            .is_some_and(|name| name.ends_with("kubectl_1.2.3-1_amd64.deb"))
    });
    assert_eq!(deb.unwrap()["licenseDeclared"], "Apache-2.0");
    assert_eq!(
        deb.unwrap()["externalRefs"][0]["referenceLocator"],
        "pkg:deb/halite/kubectl@1.2.3-1?arch=amd64"
    );
}

#[test]
fn what_has_no_text_is_in_the_index_and_every_text_is_linked() {
    let (site, _) = site();
    let made = site.build("bundle").unwrap();
    let index = fs::read_to_string(site.path("bundle/licences/index.html")).unwrap();
    assert!(
        index.contains("Without a text") && index.contains("Go module stdlib"),
        "{index}"
    );
    assert!(
        index.contains("Alpine package musl 1.2.5-r0") && index.contains("common/Apache-2.0.txt"),
        "{index}"
    );
    let linked: BTreeSet<String> = index
        .split("href=\"")
        .skip(1)
        .map(|rest| format!("licences/{}", rest.split('"').next().unwrap()))
        .collect();
    let there: BTreeSet<String> = made
        .files
        .keys()
        .filter(|path| path.starts_with("licences/") && !path.ends_with("index.html"))
        .cloned()
        .collect();
    assert_eq!(linked, there);
    assert!(made.files.contains_key("docs/guide/more.html"));
    let [from, to] = ["docs/index.html", "bundle/docs/index.html"].map(|path| site.path(path));
    assert_eq!(fs::read(from).unwrap(), fs::read(to).unwrap());
}

#[test]
fn the_list_of_a_release_has_its_programs_and_their_crates() {
    let (site, _) = site();
    let programs = |site: &Site| -> BTreeMap<String, String> {
        let digest = |name: &str| hex(&fs::read(site.path("bin").join(name)).unwrap());
        let names = ["ctl", "halite-master", "halite-minion"];
        names
            .map(|name| (name.to_owned(), digest(name)))
            .into_iter()
            .collect()
    };
    let inputs = site.path("inputs.json");
    let list = |programs: &BTreeMap<String, String>| {
        release_sbom("0.1.0", "2026-11-28T00:00:00Z", &inputs, programs)
    };
    let bytes = list(&programs(&site)).unwrap();
    assert_eq!(bytes, list(&programs(&site)).unwrap());
    let list_of: Value = serde_json::from_slice(&bytes).unwrap();
    let mut wrong = Vec::new();
    let schema: Value = serde_json::from_str(SCHEMA).unwrap();
    against(&schema, &list_of, "", &mut wrong);
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
    let serde = named(&list_of, "serde");
    assert_eq!(serde["licenseDeclared"], "MIT OR Apache-2.0");
    let ctl = &named(&list_of, "ctl")["SPDXID"];
    let relationships = list_of["relationships"].as_array().unwrap();
    let is_linked = |one: &Value| {
        one["spdxElementId"] == *ctl
            && one["relationshipType"] == "DEPENDS_ON"
            && one["relatedSpdxElement"] == serde["SPDXID"]
    };
    assert!(relationships.iter().any(is_linked));
    put(&site.path("bin/ctl"), b"another");
    let error = list(&programs(&site)).unwrap_err();
    let error = chain(&error);
    assert!(error.contains("it describes another ctl"), "{error}");
}

#[test]
fn a_list_that_leaves_something_out_is_found() {
    let (site, _) = site();
    site.build("bundle").unwrap();
    let bundle = site.path("bundle");
    let whole = document(&site, "bundle");
    let told = |change: &dyn Fn(&mut Value)| {
        let mut changed = whole.clone();
        change(&mut changed);
        let bytes = serde_json::to_vec(&changed).unwrap();
        put(&bundle.join("sbom.spdx.json"), &bytes);
        // The manifest matches the changed list; only the list is wrong.
        let mut made: Manifest =
            serde_json::from_slice(&fs::read(bundle.join(manifest::FILE)).unwrap()).unwrap();
        let entry = made.files.get_mut("sbom.spdx.json").unwrap();
        (entry.sha256, entry.size) = (hex(&bytes), bytes.len() as u64);
        let bytes = serde_json::to_vec(&made).unwrap();
        put(&bundle.join(manifest::FILE), &bytes);
        put(
            &bundle.join(manifest::CHECKSUM),
            format!("{}  {}\n", hex(&bytes), manifest::FILE).as_bytes(),
        );
        let problems = verify(&bundle, &mut |_| ()).unwrap().problems;
        problems
            .iter()
            .map(ToString::to_string)
            .collect::<Vec<_>>()
            .join("\n")
    };
    assert_eq!(told(&|_| ()), "");
    let without = |wanted: &dyn Fn(&Value) -> bool| {
        told(&|document: &mut Value| {
            document["packages"]
                .as_array_mut()
                .unwrap()
                .retain(|package| !wanted(package));
        })
    };
    let image = without(&|package| package["name"] == "pause");
    assert!(
        image.contains("does not name the image registry.k8s.io/pause:3.10.2 (pause, sha256:"),
        "{image}"
    );
    let deb =
        without(&|package| package["packageFileName"] == "apt/pool/kubectl_1.2.3-1_amd64.deb");
    assert!(
        deb.contains("does not name the package kubectl 1.2.3-1"),
        "{deb}"
    );
    let program = without(&|package| package["packageFileName"] == "bin/ctl");
    assert!(
        program.contains("does not name the file bin/ctl"),
        "{program}"
    );
    let file = told(&|document| {
        document["files"]
            .as_array_mut()
            .unwrap()
            .retain(|file| file["fileName"] != "./states/top.sls")
    });
    assert!(
        file.contains("does not name the file states/top.sls"),
        "{file}"
    );
}

#[test]
fn inputs_about_other_programs_and_stray_texts_are_refused() {
    let (site, _) = site();
    put(&site.path("bin/ctl"), b"#!/bin/sh\necho another\n");
    let error = site
        .build("bundle")
        .map_err(|error| chain(&error))
        .unwrap_err();
    assert!(
        error.contains("inputs.json") && error.contains("it describes another ctl"),
        "{error}"
    );
    assert!(!site.path("bundle").exists());
    let (site, _) = self::site();
    put(&site.path("texts/LICENSE"), b"?");
    let error = site
        .build("bundle")
        .map_err(|error| chain(&error))
        .unwrap_err();
    assert!(
        error.contains("whose licences are these? LICENSE"),
        "{error}"
    );
    let (mut site, _) = self::site();
    site.recipe["docs"] = json!("nowhere");
    site.recipe["sbom-inputs"] = json!("nothing.json");
    let Error::Recipe(problems) = site.build("bundle").unwrap_err() else {
        panic!()
    };
    assert_eq!(problems.len(), 2, "{problems:?}");
    // The sources of the documentation instead of the finished pages.
    put(&site.path("docs/index.md"), b"# Start\n");
    fs::remove_file(site.path("docs/index.html")).unwrap();
    site.recipe["docs"] = json!("docs");
    site.recipe["sbom-inputs"] = json!("inputs.json");
    let Error::Recipe(problems) = site.build("bundle").unwrap_err() else {
        panic!()
    };
    let problem = problems[0].to_string();
    assert!(problem.contains("docs/index.html"), "{problem}");
}

#[test]
fn a_layer_that_is_not_an_archive_is_reported() {
    let site = built();
    let document = document(&site, "bundle");
    let comment = named(&document, "pause")["comment"].as_str().unwrap();
    assert!(comment.contains("is not an archive"), "{comment}");
    assert!(
        named(&document, "ctl")["comment"]
            .as_str()
            .unwrap()
            .contains("does not say what it was built from")
    );
}
