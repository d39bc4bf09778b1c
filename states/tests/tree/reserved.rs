//! SLS files that remove something from a host: each says what may apply it, and nothing else can.

use std::collections::BTreeSet;

use halite_states::compile;
use halite_states::compile::Input;
use halite_states::tree::{DirTree, MemoryTree, Tree as _};
use serde_json::json;

use super::support::{bundle, fixture, here, with};

const ORCHESTRATION: &str = "{#- only: orchestration -#}\n";
const HIGHSTATE: &str = "{#- only: highstate, orchestration -#}\n";

/// The dotted names of the SLS that begin with this line.
fn reserved(line: &str) -> BTreeSet<String> {
    let tree = DirTree::new().root(here().join("tree"));
    let begins = |path: &String| tree.read(path).unwrap().starts_with(line.as_bytes());
    let found = tree.list().into_iter().filter(begins);
    found
        .map(|path| path.strip_suffix(".sls").unwrap().replace('/', "."))
        .collect()
}

fn leaving() -> impl Iterator<Item = String> {
    let tree = DirTree::new().root(here().join("tree"));
    let all = tree.list().into_iter();
    all.filter_map(|path| Some(path.strip_suffix(".sls")?.replace('/', ".")))
        .filter(|name| name.starts_with("halite.leave."))
}

/// Listed by hand: an SLS that is added here needs a reason why nothing else may apply it.
#[test]
fn states_that_remove_something_from_a_host_are_reserved() {
    let mut wanted: BTreeSet<String> = leaving().collect();
    assert!(wanted.len() > 10, "{wanted:?}");
    let others = [
        "halite.base.control_plane.aside",
        "halite.base.etcd.alone",
        "halite.base.etcd.earlier",
    ];
    wanted.extend(others.map(str::to_owned));
    assert_eq!(reserved(ORCHESTRATION), wanted);
    let in_highstates = [
        "halite.services.backup.absent",
        "halite.services.bundle_server.absent",
        "halite.services.bundle_server.stopped",
        "halite.services.master.absent",
        "halite.services.site_registry.absent",
    ];
    assert_eq!(reserved(HIGHSTATE), in_highstates.map(str::to_owned).into());
}

#[test]
fn a_reserved_sls_is_refused_on_every_host() {
    let all: Vec<String> = reserved(ORCHESTRATION)
        .into_iter()
        .chain(reserved(HIGHSTATE))
        .collect();
    for host in ["bootstrap", "worker"] {
        let (pillar, grains) = fixture(host);
        for name in &all {
            let names = [name.clone()];
            let problems = with(&pillar, &grains, |input| compile::sls(input, &names)).unwrap_err();
            let wanted = format!("cannot apply `{name}`: only ");
            assert!(
                problems[0].message.starts_with(&wanted),
                "{host}: {problems:?}"
            );
        }
    }
}

#[test]
fn own_states_and_top_include_no_reserved_sls() {
    let (pillar, grains) = (json!({}), json!({}));
    let reserved = |line: &str| format!("{line}gone:\n  test.nop: []\n");
    let tree = MemoryTree::new()
        .with("halite/leave/data.sls", reserved(ORCHESTRATION))
        .with("halite/absent.sls", reserved(HIGHSTATE))
        .with("halite/odd.sls", reserved("{#- only: orchestrations -#}\n"))
        .with("halite/shipped.sls", "include: [halite.absent]\n")
        .with("custom/a.sls", "include:\n  - halite.leave.data\n")
        .with("custom/b.sls", "include:\n  - halite.*\n")
        .with("custom/c.sls", "include:\n  - custom.d\n")
        .with("custom/d.sls", "include:\n  - halite.absent\n")
        .with("custom/e.sls", "include:\n  - halite.shipped\n");
    let input = Input {
        tree: &tree,
        minion: "m",
        pillar: &pillar,
        grains: &grains,
        bundle: &bundle,
    };
    for (name, place) in [
        ("custom.a", "custom/a.sls:2:"),
        ("custom.b", "custom/b.sls:2:"),
        ("custom.c", "custom/d.sls:2:"),
        ("halite.odd", "its first line is not understood"),
        ("halite.*", "cannot apply"),
    ] {
        let problems = compile::sls(&input, &[name.to_owned()]).unwrap_err();
        let text = problems[0].to_string();
        assert!(
            text.contains(place) && text.contains("cannot apply"),
            "{name}: {text}"
        );
    }
    // A shipped SLS decides for which hosts it includes one.
    let included = compile::sls(&input, &["custom.e".to_owned()]).unwrap();
    assert_eq!(included.low.chunks[0].id, "gone");
    // An operator's SLS cannot bypass this through a shipped step.
    assert!(compile::step(&input, &["custom.a".to_owned()]).is_err());
    assert!(compile::step(&input, &["halite.leave.data".to_owned()]).is_ok());

    let top = |sls: &str| {
        let tree = tree
            .clone()
            .with("top.sls", format!("base:\n  '*': [{sls}]\n"));
        compile::highstate(&Input {
            tree: &tree,
            ..input
        })
    };
    assert!(top("halite.absent").is_ok());
    for sls in ["halite.leave.data", "custom.a", "custom.d"] {
        let problems = top(sls).unwrap_err();
        assert!(
            problems[0].message.starts_with("cannot apply"),
            "{problems:?}"
        );
    }
}
