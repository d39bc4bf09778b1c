use halite_errors::chain;
use proptest::prelude::*;
use serde_json::json;

use super::*;

fn check(kind: &str, expression: &str) -> Result<bool, TargetError> {
    let grains = json!({
        "os": "Debian", "roles": ["web", "db"], "ipv4": ["127.0.0.1", "10.0.0.5"], "kernel": {"name": "Linux"},
        "num_cpus": 4, "virtual": true, "path": "a:b",
    });
    let pillar = json!({
        "node": {"roles": ["etcd", "control-plane"]}, "tier": "prod", "mode": "halite-secret::mode::",
    });
    matches(
        kind,
        expression,
        &Candidate {
            id: "web-1",
            grains: &grains,
            pillar: &pillar,
        },
    )
}

#[test]
fn a_secret_is_not_compared() {
    for (kind, expression) in [
        ("pillar", "mode:strict"),
        ("pillar_exact", "mode:strict"),
        ("pillar_pcre", "mode:s.*"),
        ("compound", "db* or I@mode:strict"),
    ] {
        let error = check(kind, expression).unwrap_err();
        assert!(matches!(error, TargetError::Secret(_)), "{kind}: {error}");
    }
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
        ("pillar", "mode:*", true),
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
        assert_eq!(
            check(kind, expression).unwrap(),
            wanted,
            "{kind} {expression}"
        );
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
        let error = chain(&check(kind, expression).unwrap_err());
        assert!(error.contains(part), "{kind} {expression}: {error}");
    }
}

proptest! {
    #[test]
    fn no_expression_panics(text in ".{0,40}") {
        for kind in KINDS {
            let _ = check(kind, &text);
        }
    }
}
