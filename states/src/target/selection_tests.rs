//! Compound expressions with every kind of matcher select the same minions as a second, independent
//! evaluation of the expression.

use proptest::prelude::*;
use serde_json::{Value, json};

use super::{Candidate, Needs, matches, needs};

const IDS: [&str; 6] = ["web-1", "web-2", "web-10", "db-1", "db-2", "worker"];
const SYSTEMS: [&str; 3] = ["Debian", "Ubuntu", "Rocky"];
const ROLES: [&str; 3] = ["etcd", "control-plane", "worker"];
const TIERS: [&str; 2] = ["prod", "test"];

/// The facts of a minion that the leaves test.
#[derive(Debug, Clone)]
struct Minion {
    id: &'static str,
    system: &'static str,
    roles: Vec<&'static str>,
    tier: &'static str,
    address: [u8; 4],
}

impl Minion {
    fn grains(&self) -> Value {
        let [a, b, c, d] = self.address;
        json!({"os": self.system, "ipv4": ["127.0.0.1", format!("{a}.{b}.{c}.{d}")]})
    }

    fn pillar(&self) -> Value {
        json!({"node": {"roles": self.roles}, "tier": self.tier})
    }
}

/// A matcher as Salt writes it in a compound expression, and the same in Rust.
struct Leaf {
    text: &'static str,
    selects: fn(&Minion) -> bool,
}

const LEAVES: &[Leaf] = &[
    Leaf {
        text: "web*",
        selects: |minion| minion.id.starts_with("web"),
    },
    Leaf {
        text: "*-?",
        selects: |minion| minion.id.len() > 2 && minion.id.find('-') == Some(minion.id.len() - 2),
    },
    Leaf {
        text: "db-2",
        selects: |minion| minion.id == "db-2",
    },
    Leaf {
        text: "L@web-1,worker,absent",
        selects: |minion| ["web-1", "worker"].contains(&minion.id),
    },
    Leaf {
        // As in Salt, the expression matches from the start of the id, and need not reach its end.
        text: "E@(web|db)-1",
        selects: |minion| ["web-1", "web-10", "db-1"].contains(&minion.id),
    },
    Leaf {
        text: "G@os:Deb*",
        selects: |minion| minion.system == "Debian",
    },
    Leaf {
        text: "P@os:(Debian|Ubuntu)",
        selects: |minion| minion.system != "Rocky",
    },
    Leaf {
        text: "I@node:roles:etcd",
        selects: |minion| minion.roles.contains(&"etcd"),
    },
    Leaf {
        text: "I@tier:p*",
        selects: |minion| minion.tier == "prod",
    },
    Leaf {
        text: "J@node:roles:(control-plane|worker)",
        selects: |minion| minion.roles.iter().any(|role| *role != "etcd"),
    },
    Leaf {
        text: "S@10.0.1.0/24",
        selects: |minion| minion.address[2] == 1,
    },
    Leaf {
        text: "S@10.0.0.7",
        selects: |minion| minion.address == [10, 0, 0, 7],
    },
];

/// A boolean expression, printed with as few or as many parentheses as drawn.
#[derive(Debug, Clone)]
enum Tree {
    Leaf(usize),
    Not(Box<Tree>),
    And(Vec<Tree>),
    Or(Vec<Tree>),
}

impl Tree {
    fn selects(&self, minion: &Minion) -> bool {
        match self {
            Tree::Leaf(number) => (LEAVES[*number].selects)(minion),
            Tree::Not(inner) => !inner.selects(minion),
            Tree::And(parts) => parts.iter().all(|part| part.selects(minion)),
            Tree::Or(parts) => parts.iter().any(|part| part.selects(minion)),
        }
    }

    fn print(&self, binding: u8, spaced: bool) -> String {
        let (own, text) = match self {
            Tree::Leaf(number) => (3, LEAVES[*number].text.to_owned()),
            Tree::Not(inner) => (2, format!("not {}", inner.print(2, spaced))),
            Tree::And(parts) => (1, joined(parts, " and ", 1, spaced)),
            Tree::Or(parts) => (0, joined(parts, " or ", 0, spaced)),
        };
        match (own < binding, spaced) {
            (true, true) => format!("( {text} )"),
            (true, false) => format!("({text})"),
            (false, _) => text,
        }
    }
}

fn joined(parts: &[Tree], word: &str, binding: u8, spaced: bool) -> String {
    parts
        .iter()
        .map(|part| part.print(binding + 1, spaced))
        .collect::<Vec<_>>()
        .join(word)
}

fn tree() -> impl Strategy<Value = Tree> {
    (0..LEAVES.len())
        .prop_map(Tree::Leaf)
        .prop_recursive(4, 24, 3, |inner| {
            prop_oneof![
                inner.clone().prop_map(|tree| Tree::Not(Box::new(tree))),
                prop::collection::vec(inner.clone(), 1..4).prop_map(Tree::And),
                prop::collection::vec(inner, 1..4).prop_map(Tree::Or),
            ]
        })
}

/// All ids, each with facts as drawn.
fn minions() -> impl Strategy<Value = Vec<Minion>> {
    let facts = (
        prop::sample::select(&SYSTEMS[..]),
        prop::sample::subsequence(&ROLES[..], 0..=ROLES.len()),
        prop::sample::select(&TIERS[..]),
        (0_u8..=1, 6_u8..=8),
    );
    prop::collection::vec(facts, IDS.len()).prop_map(|drawn| {
        IDS.into_iter()
            .zip(drawn)
            .map(|(id, (system, roles, tier, (net, host)))| Minion {
                id,
                system,
                roles,
                tier,
                address: [10, 0, net, host],
            })
            .collect()
    })
}

/// The ids that an expression selects. Facts that it does not need are withheld.
fn selected(expression: &str, minions: &[Minion]) -> Vec<&'static str> {
    let needs = needs("compound", expression).unwrap();
    let given = |needed: bool, facts: Value| if needed { facts } else { Value::Null };
    let is_selected = |minion: &&Minion| {
        let candidate = Candidate {
            id: minion.id,
            grains: &given(needs.grains, minion.grains()),
            pillar: &given(needs.pillar, minion.pillar()),
        };
        matches("compound", expression, &candidate).unwrap()
    };
    minions
        .iter()
        .filter(is_selected)
        .map(|minion| minion.id)
        .collect()
}

fn expected(tree: &Tree, minions: &[Minion]) -> Vec<&'static str> {
    minions
        .iter()
        .filter(|minion| tree.selects(minion))
        .map(|minion| minion.id)
        .collect()
}

proptest! {
    #[test]
    fn a_compound_expression_selects_the_minions_that_it_names(
        tree in tree(),
        minions in minions(),
        spaced: bool,
    ) {
        let text = tree.print(0, spaced);
        prop_assert_eq!(selected(&text, &minions), expected(&tree, &minions), "{}", text);
    }
}

#[test]
fn needs_are_the_facts_of_the_matchers() {
    let needs = |kind, expression| {
        let Needs { grains, pillar } = needs(kind, expression).unwrap();
        (grains, pillar)
    };
    for kind in ["glob", "list", "pcre"] {
        assert_eq!(needs(kind, "web-1"), (false, false), "{kind}");
    }
    assert_eq!(needs("grain", "os:Debian"), (true, false));
    assert_eq!(needs("ipcidr", "10.0.0.0/8"), (true, false));
    assert_eq!(needs("pillar_exact", "tier:prod"), (false, true));
    let compound = |text| needs("compound", text);
    assert_eq!(compound("web-1 or L@db-1,db-2"), (false, false));
    assert_eq!(compound("web-1 and not S@10.0.0.7"), (true, false));
    assert_eq!(compound("web-1 or ( I@tier:prod )"), (false, true));
    assert_eq!(compound("G@os:Debian or J@tier:p.*"), (true, true));
}

/// The property says little about a matcher that selects all minions, or none.
#[test]
fn every_matcher_selects_some_minions_and_not_all() {
    let minions: Vec<Minion> = IDS
        .into_iter()
        .enumerate()
        .map(|(number, id)| Minion {
            id,
            system: SYSTEMS[number % SYSTEMS.len()],
            roles: ROLES.into_iter().skip(number % 4).take(1).collect(),
            tier: TIERS[number % TIERS.len()],
            address: [10, 0, u8::from(number % 2 == 0), 6 + u8::from(number > 2)],
        })
        .collect();
    for (number, leaf) in LEAVES.iter().enumerate() {
        let found = selected(leaf.text, &minions);
        assert_eq!(
            found,
            expected(&Tree::Leaf(number), &minions),
            "{}",
            leaf.text
        );
        assert!(
            (1..IDS.len()).contains(&found.len()),
            "{}: {found:?}",
            leaf.text
        );
    }
}
