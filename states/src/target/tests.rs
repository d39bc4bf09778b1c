use halite_errors::chain;
use proptest::prelude::*;
use serde_json::json;

use super::*;

fn check(kind: &str, expression: &str) -> Result<bool, String> {
    let grains = json!({
        "os": "Debian", "roles": ["web", "db"], "ipv4": ["127.0.0.1", "10.0.0.5"], "kernel": {"name": "Linux"},
        "num_cpus": 4, "virtual": true, "path": "a:b",
    });
    let pillar = json!({"node": {"roles": ["etcd", "control-plane"]}, "tier": "prod"});
    matches(
        kind,
        expression,
        &Candidate {
            id: "web-1",
            grains: &grains,
            pillar: &pillar,
        },
    )
    .map_err(|error| chain(&error))
}

#[test]
fn matchers() {
    for (kind, expression, wanted) in [
        ("glob", "web*", true),
        ("glob", "*", true),
        ("glob", "", false),
        ("glob", "WEB*", false),
        ("list", "db-1, web-1", true),
        ("list", "", false),
        ("pcre", "web-\\d", true),
        ("pcre", "eb", false),
        ("grain", "os:Deb*", true),
        ("grain", "roles:db", true),
        ("grain", "kernel:name:Linux", true),
        ("grain", "kernel:name", true),
        ("grain", "num_cpus:4", true),
        ("grain", "virtual:True", true),
        ("grain", "path:a:b", true),
        ("grain", "nothing:x", false),
        ("grain_pcre", "os:(Debian|Ubuntu)", true),
        ("pillar", "node:roles:etcd", true),
        ("pillar", "node:roles:e*", true),
        ("pillar_exact", "node:roles:e*", false),
        ("ipcidr", "10.0.0.0/24", true),
        ("ipcidr", "10.0.0.6", false),
        ("compound", "web* and G@os:Debian", true),
        ("compound", "not web*", false),
        ("compound", "I@node:roles:worker or I@node:roles:etcd", true),
        ("compound", "( db* or web* ) and not L@web-2,web-3", true),
        ("compound", "(db* or web*) and E@web-(1|2)", true),
        ("compound", "db* or web* and db*", false),
        ("compound", "", false),
    ] {
        assert_eq!(check(kind, expression), Ok(wanted), "{kind} {expression}");
    }
}

#[test]
fn mistakes_are_errors_not_mismatches() {
    for (kind, expression, part) in [
        ("compound", "X@a", "no matcher `X@`"),
        ("compound", "web* db*", "`and` or `or` is missing"),
        ("compound", "web* and", "is missing"),
        ("compound", "( web*", "without `)`"),
        ("compound", "web* )", "without `(`"),
        ("compound", "db* and E@(", "not a regular expression"),
        ("grain", "os", "needs a key and a value"),
        ("ipcidr", "10.0.0", "neither an address nor a network"),
        ("gain", "os:x", "did you mean `grain`?"),
        ("nodegroup", "x", "there are glob"),
    ] {
        let error = check(kind, expression).unwrap_err();
        assert!(error.contains(part), "{kind} {expression}: {error}");
    }
}

/// A boolean expression with its value, printed with as few or as many parentheses as drawn.
#[derive(Debug, Clone)]
enum Tree {
    Leaf(bool),
    Not(Box<Tree>),
    And(Vec<Tree>),
    Or(Vec<Tree>),
}

impl Tree {
    fn value(&self) -> bool {
        match self {
            Tree::Leaf(value) => *value,
            Tree::Not(inner) => !inner.value(),
            Tree::And(parts) => parts.iter().all(Tree::value),
            Tree::Or(parts) => parts.iter().any(Tree::value),
        }
    }

    fn print(&self, binding: u8, spaced: bool) -> String {
        let (own, text) = match self {
            Tree::Leaf(true) => (3, "web*".to_owned()),
            Tree::Leaf(false) => (3, "L@other".to_owned()),
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
    any::<bool>()
        .prop_map(Tree::Leaf)
        .prop_recursive(4, 24, 3, |inner| {
            prop_oneof![
                inner.clone().prop_map(|tree| Tree::Not(Box::new(tree))),
                prop::collection::vec(inner.clone(), 1..4).prop_map(Tree::And),
                prop::collection::vec(inner, 1..4).prop_map(Tree::Or),
            ]
        })
}

proptest! {
    #[test]
    fn a_compound_expression_means_what_it_says(tree in tree(), spaced: bool) {
        let text = tree.print(0, spaced);
        prop_assert_eq!(check("compound", &text), Ok(tree.value()), "{}", text);
    }

    #[test]
    fn no_expression_panics(text in ".{0,40}") {
        for kind in KINDS {
            let _ = check(kind, &text);
        }
    }
}
