//! `halite.*`: steps of orchestrations.

use super::{arg, required};
use crate::signature::{Arg, Kind, RunsOn, Signature};

const fn step(fun: &'static str, doc: &'static str, args: &'static [Arg]) -> Signature {
    Signature {
        state: "halite",
        fun,
        doc,
        args,
        runs_on: RunsOn::Orchestration,
    }
}

const TGT: Arg = required(
    "tgt",
    Kind::Text,
    "Minions to address; `master` is the master itself (Kubernetes objects).",
);
const TGT_TYPE: Arg = arg(
    "tgt_type",
    Kind::Text,
    "How `tgt` is read: `glob` (default), `list`, `pcre`, `grain`, `pillar`, `ipcidr` or `compound`.",
);
const TIMEOUT: Arg = arg(
    "timeout",
    Kind::Integer,
    "Seconds after which the step has failed (default 900).",
);

pub(super) const SIGNATURES: &[Signature] = &[
    step(
        "state",
        "Applies SLS files, or the highstate, on minions.",
        &[
            TGT,
            TGT_TYPE,
            arg("sls", Kind::TextList, "SLS files to apply."),
            arg(
                "highstate",
                Kind::Boolean,
                "Apply everything that `top.sls` assigns (default false).",
            ),
            TIMEOUT,
            arg(
                "batch",
                Kind::Text,
                "How many minions at a time: a number or a percentage (default: all).",
            ),
            arg(
                "offline",
                Kind::Text,
                "Targets that are not connected: `fail` (default), or `skip`, which leaves them out and says so.",
            ),
        ],
    ),
    step(
        "function",
        "Runs one function on minions.",
        &[
            TGT,
            TGT_TYPE,
            required("fun", Kind::Text, "Function, for example `test.ping`."),
            arg("arg", Kind::Any, "Its arguments, a list."),
            TIMEOUT,
        ],
    ),
    step(
        "wait_for_minion",
        "Waits until a minion is accepted and connected.",
        &[required("id", Kind::Text, "The minion's id."), TIMEOUT],
    ),
    step(
        "wait_for_node",
        "Waits until a Kubernetes node is Ready.",
        &[required("node", Kind::Text, "The node's name."), TIMEOUT],
    ),
];
