//! SLS that only a shipped orchestration may apply: every other use is refused before any job is
//! sent.

use halite_core::refusal::RefusalKind;
use halite_proto::v1;
use serde_json::json;

use super::fixture::{TREE, applied, orchestrate, request};
use crate::backend::fixture::{Life, ScriptedMinion, Site};

const REFUSED: &str = "cannot apply `halite.leave.data`: only orchestrations of Halite apply it";

/// The shipped states, and custom ones that try to use them.
fn site() -> Site {
    let own = [
        ("custom/init.sls", "include: [halite.leave.data]\n"),
        ("custom/wipe.sls", "include: ['halite.leave.d*']\n"),
        (
            "custom/roll.sls",
            "roll:\n  halite.state:\n    - tgt: worker-1\n    - sls: [halite.leave.data]\n",
        ),
        (
            "custom/leave.sls",
            "leave:\n  halite.hosts_leave:\n    - nodes: [worker-1]\n    - sls: [halite.leave.data]\n",
        ),
        ("top.sls", "base:\n  '*': [custom]\n"),
    ];
    Site::new(&[TREE, &own].concat())
}

/// The refusal of a job.
fn refused(life: &Life, function: &str, sls: &[&str], test: bool) -> String {
    let request = v1::RunRequest {
        function: function.to_owned(),
        target: "worker-1".to_owned(),
        args_json: json!({"sls": sls}).to_string(),
        test,
        ..v1::RunRequest::default()
    };
    let answer = life.runtime.block_on(life.backend.run("root", request));
    let refusal = answer.map(drop).unwrap_err();
    assert_eq!(refusal.kind, RefusalKind::Invalid, "{}", refusal.message);
    refusal.message
}

#[test]
fn no_operator_applies_what_only_an_orchestration_may() {
    let (site, worker) = (site(), ScriptedMinion::new("worker-1"));
    let life = site.live();
    life.connect(&worker);
    for sls in [
        "halite.leave.data",
        "halite.leave.*",
        "custom",
        "custom.wipe",
    ] {
        for function in ["state.apply", "state.sls"] {
            for test in [false, true] {
                let message = refused(&life, function, &[sls], test);
                assert!(message.contains(REFUSED), "{function} {sls}: {message}");
            }
        }
    }
    // Assigned by the operator's own part of `top.sls`.
    let message = refused(&life, "state.highstate", &[], false);
    assert!(message.contains(REFUSED), "{message}");
    assert_eq!(applied(&worker), [""; 0]);
}

#[test]
fn no_orchestration_of_the_operator_applies_what_only_a_shipped_one_may() {
    let (site, worker) = (site(), ScriptedMinion::new("worker-1"));
    let life = site.live();
    life.connect(&worker);
    for own in ["custom.roll", "custom.leave"] {
        let (retcode, text) = orchestrate(&life, request(own, &json!({})));
        assert_eq!(retcode, 1, "{text}");
        assert!(text.contains(REFUSED), "{text}");
    }
    assert_eq!(applied(&worker), [""; 0]);
}
