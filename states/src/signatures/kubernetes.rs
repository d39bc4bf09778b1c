//! `kubernetes.*`: objects, compared and applied by the master.

use super::{arg, required};
use crate::signature::{Arg, Kind, RunsOn, Signature};

const fn on_master(fun: &'static str, doc: &'static str, args: &'static [Arg]) -> Signature {
    Signature {
        state: "kubernetes",
        fun,
        doc,
        args,
        runs_on: RunsOn::Master,
    }
}

const WHOLE: Arg = arg(
    "whole",
    Kind::Boolean,
    "Compare the whole object, and remove what others added; otherwise only the given fields (default false).",
);

pub(super) const SIGNATURES: &[Signature] = &[
    on_master(
        "manifest",
        "All objects of a manifest file, by server-side apply.",
        &[
            arg(
                "source",
                Kind::Text,
                "`salt://path` of a YAML file with one document or more.",
            ),
            arg(
                "documents",
                Kind::Any,
                "The objects themselves, a list; set by the compiler from `source`.",
            ),
            arg(
                "template",
                Kind::Text,
                "`jinja`: render the source as a template.",
            ),
            arg("context", Kind::Mapping, "Variables of the template."),
            arg(
                "defaults",
                Kind::Mapping,
                "Variables of the template, where `context` has none.",
            ),
            WHOLE,
            arg(
                "set",
                Kind::Text,
                "Name of the set that the objects are: they are labelled with it, and what has the label and is not among them is removed.",
            ),
        ],
    ),
    on_master(
        "object",
        "One object, by server-side apply.",
        &[required("manifest", Kind::Mapping, "The object."), WHOLE],
    ),
    on_master(
        "owned",
        "No object of some sets (see `kubernetes.manifest`) but of those that stay; other sets, and what is of none, are left alone. Refused when data would go with one: volumes, others' objects of a definition or in a namespace.",
        &[
            required("sets", Kind::TextList, "The sets that stay."),
            required(
                "among",
                Kind::TextList,
                "The names of the sets that go unless they stay; a `*` at the end stands for anything.",
            ),
        ],
    ),
    on_master(
        "absent",
        "No such object.",
        &[
            required("api_version", Kind::Text, "For example `apps/v1`."),
            required("kind", Kind::Text, "For example `DaemonSet`."),
            arg(
                "object",
                Kind::Text,
                "The object's name (default: the state's name).",
            ),
            arg(
                "namespace",
                Kind::Text,
                "The object's namespace, if it lives in one.",
            ),
        ],
    ),
    on_master(
        "api_ready",
        "Waits until the API server says that it is ready.",
        &[arg(
            "timeout",
            Kind::Integer,
            "Seconds after which it has failed (default 300).",
        )],
    ),
    on_master(
        "node",
        "Labels, annotations and taints of a node.",
        &[
            arg(
                "object",
                Kind::Text,
                "The node's name (default: the state's name).",
            ),
            arg("labels", Kind::Mapping, "Labels; null removes one."),
            arg(
                "annotations",
                Kind::Mapping,
                "Annotations; null removes one.",
            ),
            arg(
                "taints",
                Kind::Any,
                "The taints, a list of `{key, value, effect}`; those of Kubernetes itself are left alone.",
            ),
        ],
    ),
];
