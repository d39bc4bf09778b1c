//! The files of the ISO, as every program lists them and as extracting programs extract them.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;

use anyhow::{Context as _, Result, ensure};
use halite_lab::command::run;
use halite_upstream::store;
use serde_json::Value;

use super::{Work, places, verdict};
use crate::test::Counts;

type Names = BTreeSet<String>;

pub(super) fn all((): &()) -> Result<Counts> {
    let work = Work::new()?;
    let expected = expected(&work)?;
    let mut passed = 0;
    for (program, found) in listed(&work)? {
        same(program, &found, &expected)?;
        passed += 1;
    }
    for (program, found) in extracted(&work)? {
        same(program, &found, &expected)?;
        passed += 1;
    }
    Ok(Counts { passed, failed: 0 })
}

/// The files of the bundle, and the signature that sealing adds.
fn expected(work: &Work) -> Result<Names> {
    let manifest: Value = serde_json::from_slice(&fs::read(work.bundle.join("manifest.json"))?)?;
    let files = manifest["files"]
        .as_object()
        .context("the manifest lists no files")?;
    let mut names: Names = files.keys().cloned().collect();
    names.extend([
        "manifest.json".to_owned(),
        "manifest.json.sha256".to_owned(),
    ]);
    let sealed = places::files(&work.sealed)?;
    names.extend(sealed.into_keys().filter(|path| path.ends_with(".minisig")));
    Ok(names)
}

fn same(program: &str, found: &Names, expected: &Names) -> Result<()> {
    let only = |a: &Names, b: &Names| a.difference(b).take(5).cloned().collect::<Vec<_>>();
    ensure!(
        found == expected,
        "{program} finds {} files and there are {}: it alone has {:?}, and it lacks {:?}",
        found.len(),
        expected.len(),
        only(found, expected),
        only(expected, found)
    );
    Ok(())
}

fn listed(work: &Work) -> Result<Vec<(&'static str, Names)>> {
    let image = work.sealed.to_string_lossy();
    let xorriso = |view: &str| -> Result<Names> {
        let args = [
            "-read_fs", view, "-indev", &image, "-find", "/", "-type", "f", "-exec", "echo", "--",
        ];
        Ok(run("xorriso", &args)?
            .lines()
            .map(|line| plain(line.trim_matches('\'')))
            .collect())
    };
    // isoinfo lists directories like files: a path above other paths is a directory.
    let isoinfo = |view: &str| -> Result<Names> {
        let all = run("isoinfo", &["-i", &image, view, "-f"])?;
        let all: Names = all.lines().map(plain).collect();
        let above: Names = all.iter().flat_map(|path| ancestors(path)).collect();
        Ok(all
            .into_iter()
            .filter(|path| !above.contains(path))
            .collect())
    };
    // "Path = …" of each entry, and "Folder = -" of a file.
    let listed = run("7z", &["l", "-slt", &image])?;
    let entries = listed
        .split_once("----------\n")
        .map_or("", |(_, entries)| entries)
        .split("\n\n");
    let entry = |entry: &str| {
        let fields: BTreeMap<&str, &str> = entry
            .lines()
            .filter_map(|line| line.split_once(" = "))
            .collect();
        (fields.get("Folder") == Some(&"-"))
            .then(|| fields.get("Path").map(|path| plain(path)))
            .flatten()
    };
    Ok(vec![
        ("xorriso, Rock Ridge", xorriso("any")?),
        ("xorriso, Joliet", xorriso("norock")?),
        ("isoinfo, Rock Ridge", isoinfo("-R")?),
        ("isoinfo, Joliet", isoinfo("-J")?),
        ("7z", entries.filter_map(entry).collect()),
    ])
}

fn plain(path: &str) -> String {
    path.trim_start_matches('/').to_owned()
}

fn ancestors(path: &str) -> Vec<String> {
    path.match_indices('/')
        .map(|(at, _)| path[..at].to_owned())
        .collect()
}

/// Checks that the extracted files are the bundle, according to its own manifest.
fn extracted(work: &Work) -> Result<Vec<(&'static str, Names)>> {
    let image = work.sealed.to_string_lossy();
    let mut found = Vec::new();
    for (name, program, args) in [
        ("7z x", "7z", &["x", "-bd", "-y", "-oOUT", &image][..]),
        (
            "xorriso -extract",
            "xorriso",
            &["-indev", &image, "-osirrox", "on", "-extract", "/", "OUT"],
        ),
    ] {
        let out = work.dir.join("out");
        super::remove(&out)?;
        let args: Vec<String> = args
            .iter()
            .map(|arg| arg.replace("OUT", &out.to_string_lossy()))
            .collect();
        run(program, &args)?;
        let mut verify = work.ctl(&["bundle", "verify", "--trust"]);
        verdict(verify.arg(&work.public).arg(&out))?
            .accepts(&format!("the files that {name} extracted"))?;
        let mut names = Names::new();
        for file in store::files(&out)? {
            names.insert(file.strip_prefix(&out)?.to_string_lossy().into_owned());
        }
        found.push((name, names));
        super::remove(&out)?;
    }
    Ok(found)
}
