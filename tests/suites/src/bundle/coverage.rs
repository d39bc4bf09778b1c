//! The lab's bundles are checked with a covering array of the options, an operator's with every
//! pair of options. Both must find the same.

use std::process::Command;

use anyhow::{Result, ensure};
use halite_lab::build::{OPTION_SETS, Programs, with_builder};
use halite_lab::progress::Board;
use halite_upstream::{prepare, versions};
use serde_json::Value;

use super::{needs, report};
use crate::test::Counts;

pub(super) fn need_the_same((): &()) -> Result<Counts> {
    let bundle = prepare::bundle_of(&versions::FULL, &Board::silent())?;
    let mut ctl = Command::new(bundle.join("bin/ctl"));
    let ctl = with_builder(&mut ctl, Programs::Dev)?.env_remove(OPTION_SETS);
    let (pairs, covering) = (report(ctl, &bundle)?, needs(&bundle)?);
    let renderings = [&pairs, &covering].map(|report| report["renderings"].as_u64());
    ensure!(
        renderings[0] > renderings[1],
        "as many renderings with pairs as with the covering array: {renderings:?}"
    );
    let (pairs, covering) = (without_sets(&pairs), without_sets(&covering));
    ensure!(
        pairs == covering,
        "only pairs of options need {:#}, and only the covering array needs {:#}",
        more(&pairs, &covering),
        more(&covering, &pairs)
    );
    Ok(Counts::ONE)
}

/// A report without the names of sets of options, and without the numbers of renderings.
fn without_sets(report: &Value) -> Value {
    match report {
        Value::Object(map) => map
            .iter()
            .filter(|(key, _)| !["renderings", "with"].contains(&key.as_str()))
            .map(|(key, value)| (key.clone(), without_sets(value)))
            .collect(),
        Value::Array(items) => items.iter().map(without_sets).collect(),
        // `    needed by PLACE (SET; 12 more)`
        Value::String(text) => {
            let place = |line: &'_ str| match line.rsplit_once(" (") {
                Some((place, _)) if line.starts_with("    needed by ") => place.to_owned(),
                _ => line.to_owned(),
            };
            let lines: Vec<String> = text.lines().map(place).collect();
            lines.join("\n").into()
        }
        other => other.clone(),
    }
}

/// The entries of a report's lists that another report lacks.
fn more(report: &Value, other: &Value) -> Value {
    let lists = report.as_object().into_iter().flatten();
    let entries = lists.flat_map(|(name, list)| {
        let there = other[name].as_array().map_or(&[][..], Vec::as_slice);
        let entries = list.as_array().into_iter().flatten();
        entries.filter(|entry| !there.contains(entry))
    });
    entries.cloned().collect()
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn reports_differ_only_in_requirements() {
        let report = |set: &str, artifact: &str| {
            json!({"renderings": set.len(), "needs": [{"artifact": artifact, "places": [{"place": "a.sls:1 (b)", "with": set}]}],
                "missing": [{"message": format!("the image {artifact}: it (c)\n    needed by a.sls:1 (b) ({set}; 3 more)")}]})
        };
        let one = without_sets(&report("defaults", "x"));
        assert_eq!(one, without_sets(&report("cni.plugin: none", "x")));
        let other = without_sets(&report("defaults", "y"));
        assert_eq!(
            more(&one, &other),
            json!([one["needs"][0], one["missing"][0]])
        );
    }
}
