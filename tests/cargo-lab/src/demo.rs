//! `cargo lab demo`: from nothing to a Ready cluster, on real hosts.

use anyhow::{Result, bail};
use halite_lab::Lab;
use halite_lab::cluster::NEWER;
use halite_lab::layout::Layout;
use halite_lab::progress::Board;
use halite_upstream::versions::{NEWEST, Release, UPGRADE_FROM, UPGRADE_TO};
use halite_upstream::{ISO, prepare};

/// The steps before the first boot, with the time that each usually takes on two processors: the
/// first time, and later. Halite's and Kubernetes' programs are built in parallel.
const BUILD: [(&str, &str, &str); 5] = [
    ("prerequisites", "10 s", "at once"),
    ("base root of the hosts", "40 s", "at once"),
    (
        "programs of Halite, Kubernetes",
        "12 min",
        "1 min after a change",
    ),
    ("images", "20 s", "at once"),
    ("bundle and signed ISO", "40 s", "30 s after a change"),
];

/// Name of the demonstration's lab.
pub(crate) const DEMO: &str = "demo";

/// The bundles of a demonstration.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct DemoBundles {
    /// That of the cluster.
    pub(crate) release: Release,
    /// A newer one, whose ISO its control planes also have.
    newer: Option<Release>,
}

impl DemoBundles {
    /// Those for a minor version of Kubernetes. The older one comes with the newest, to upgrade to.
    pub(crate) fn of(minor: &str) -> Result<Self> {
        let made = |release, newer| Self { release, newer };
        match minor.trim_start_matches('v') {
            known if known == NEWEST.minor() => Ok(made(NEWEST, None)),
            known if known == UPGRADE_FROM.minor() => Ok(made(UPGRADE_FROM, Some(UPGRADE_TO))),
            other => bail!(
                "the lab has no Kubernetes {other}, but {} and {}",
                NEWEST.minor(),
                UPGRADE_FROM.minor()
            ),
        }
    }
}

/// Prints its plan, makes the cluster, and leaves it running.
pub(crate) fn demo(lab: &Lab, layout: &Layout, bundles: &DemoBundles) -> Result<()> {
    print!("{}", plan(layout));
    let old: Vec<String> = lab.hosts()?.into_iter().map(|h| h.spec.name).collect();
    if let Some(notice) = replaced(&lab.name, &old) {
        println!("{notice}");
    }
    let (release, newer) = (&bundles.release, bundles.newer.as_ref());
    let board = Board::for_terminal();
    let cluster = prepare::cluster_beside(&lab.name, layout, release, newer, &board)?;
    println!("{}", cluster.kubectl(&["get", "nodes", "-o", "wide"])?);
    println!("{}", cluster.kubectl(&["get", "pods", "-A", "-o", "wide"])?);
    cluster.nothing_tried_to_leave()?;
    print!("{}", end(&lab.name, layout, bundles));
    Ok(())
}

/// The steps as a table.
fn plan(layout: &Layout) -> String {
    let mut text = format!("{:<32}{:<12}{}\n", "step", "first time", "later");
    let mut row = |step: &str, first: &str, later: &str| {
        text.push_str(&format!("{step:<32}{first:<12}{later}\n"));
    };
    for (step, first, later) in BUILD {
        row(step, first, later);
    }
    row(
        &format!("boot of {} bare hosts", layout.hosts.len()),
        "5 s",
        "5 s",
    );
    let names = layout.names();
    let first = names.first().copied().unwrap_or_default();
    row(&format!("bootstrap of {first}"), "30 s", "30 s");
    for group in layout.joins {
        row(&format!("node add of {}", group.join(", ")), "20 s", "20 s");
    }
    text.push('\n');
    text
}

/// The notice about the hosts that are removed before the new ones boot, if there are any.
fn replaced(lab: &str, old: &[String]) -> Option<String> {
    (!old.is_empty()).then(|| {
        format!(
            "The lab {lab} has {}: removed, with all files, before the new hosts boot.\n",
            old.join(", ")
        )
    })
}

/// The last lines: suggested next commands.
fn end(lab: &str, layout: &Layout, bundles: &DemoBundles) -> String {
    let names = layout.names();
    let first = names.first().copied().unwrap_or_default();
    let last = names.last().copied().unwrap_or_default();
    let option = if lab == DEMO {
        String::new()
    } else {
        format!(" --lab {lab}")
    };
    let mut text = "Nothing tried to leave. The hosts keep running.\n".to_owned();
    for command in [
        format!("sh{option} {first} -- ctl status"),
        format!("sh{option} {first} -- kubectl get pods -A"),
        format!("power-off{option} {last}"),
        format!("power-on{option} {last}"),
        format!("down{option}"),
    ] {
        text.push_str(&format!("  cargo lab {command}\n"));
    }
    if let Some(newer) = &bundles.newer {
        let (old, new) = (bundles.release.bundle(), newer.bundle());
        text.push_str(&format!(
            "To upgrade from Kubernetes {} to {} (docs/guide/upgrade.md):\n",
            bundles.release.kubernetes, newer.kubernetes
        ));
        for command in [
            format!("bundle add {NEWER}/{ISO}"),
            format!("upgrade {new} --test"),
            format!("upgrade {new}"),
            "status".to_owned(),
            format!("bundle remove {old}"),
        ] {
            text.push_str(&format!(
                "  cargo lab sh{option} {first} -- ctl {command}\n"
            ));
        }
    }
    text
}

#[cfg(test)]
mod tests {
    use halite_lab::layout::{HA, TWO};

    use super::*;

    #[test]
    fn the_plan_names_the_hosts_of_the_layout() {
        let two = plan(&TWO);
        for step in [
            "boot of 2 bare hosts ",
            "bootstrap of bootstrap-1 ",
            "node add of worker-1 ",
        ] {
            assert!(two.contains(step), "no {step:?} in:\n{two}");
        }
        assert!(plan(&HA).contains("boot of 4 bare hosts "));
    }

    #[test]
    fn the_end_names_commands_for_this_lab() {
        let newest = DemoBundles::of(NEWEST.minor()).unwrap();
        let text = end(DEMO, &HA, &newest);
        assert!(
            text.contains("  cargo lab sh cp-1 -- ctl status\n"),
            "{text}"
        );
        let two = end("other", &TWO, &newest);
        assert!(two.ends_with("  cargo lab down --lab other\n"), "{two}");
    }

    #[test]
    fn the_end_of_the_older_release_names_the_commands_that_upgrade_it() {
        let older = DemoBundles::of("v1.35").unwrap();
        assert_eq!(older.release.kubernetes, UPGRADE_FROM.kubernetes);
        let text = end("other", &HA, &older);
        let commands =
            "  cargo lab sh --lab other cp-1 -- ctl bundle add /media/newer/halite.iso\n";
        assert!(text.contains(commands), "{text}");
        let upgrade = format!("cp-1 -- ctl upgrade {} --test\n", UPGRADE_TO.bundle());
        assert!(text.contains(&upgrade), "{text}");
        let error = DemoBundles::of("1.3").unwrap_err().to_string();
        assert!(
            error.contains("no Kubernetes 1.3, but 1.36 and 1.35"),
            "{error}"
        );
    }

    #[test]
    fn hosts_that_go_are_named() {
        let old = ["bootstrap-1".to_owned(), "worker-1".to_owned()];
        let notice = replaced(DEMO, &old).unwrap();
        assert!(notice.contains("The lab demo has bootstrap-1, worker-1: removed"));
        assert_eq!(replaced(DEMO, &[]), None);
    }
}
