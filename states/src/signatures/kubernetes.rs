//! Signatures of `kubernetes.*`: objects that the master compares and applies.

use crate::signature::{Arg, ArgumentKind, COUNT, RunsOn, Signature, arg, required};

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
    ArgumentKind::Boolean,
    "Compare the whole object, and remove fields that others added; otherwise only the given fields (default false).",
);

pub(super) const SIGNATURES: &[Signature] = &[
    on_master(
        "manifest",
        "All objects of a Kubernetes manifest, by server-side apply.",
        &[
            arg(
                "source",
                ArgumentKind::Text,
                "`salt://path` of a YAML file with one or more documents.",
            ),
            arg(
                "documents",
                ArgumentKind::Any,
                "The objects themselves, as a list; the compiler reads them from `source`.",
            ),
            arg(
                "template",
                ArgumentKind::Text,
                "`jinja`: render the source as a template.",
            ),
            arg(
                "context",
                ArgumentKind::Mapping,
                "Variables of the template.",
            ),
            arg(
                "defaults",
                ArgumentKind::Mapping,
                "Default variables of the template; `context` takes precedence.",
            ),
            WHOLE,
            arg(
                "set",
                ArgumentKind::Text,
                "Name of the set of these objects: they are labelled with it, and other objects with the label are removed.",
            ),
        ],
    ),
    on_master(
        "object",
        "One object, by server-side apply.",
        &[
            required("manifest", ArgumentKind::Mapping, "The object."),
            WHOLE,
        ],
    ),
    on_master(
        "owned",
        "Removes the objects of sets (see `kubernetes.manifest`) that match `among` and are not in `sets`; all other objects are kept. Refused when data would be lost: volumes, other owners' objects of a definition or in a namespace.",
        &[
            required("sets", ArgumentKind::TextList, "Sets to keep."),
            required(
                "among",
                ArgumentKind::TextList,
                "Names of sets to remove unless kept; a `*` at the end matches any ending.",
            ),
        ],
    ),
    on_master(
        "absent",
        "No object with that kind and name.",
        &[
            required("api_version", ArgumentKind::Text, "For example `apps/v1`."),
            required("kind", ArgumentKind::Text, "For example `DaemonSet`."),
            arg(
                "object",
                ArgumentKind::Text,
                "The object's name (default: the state's name).",
            ),
            arg(
                "namespace",
                ArgumentKind::Text,
                "The object's namespace, if its kind has one.",
            ),
        ],
    ),
    on_master(
        "api_ready",
        "Waits until the API server reports that it is ready.",
        &[arg(
            "timeout",
            COUNT,
            "Seconds until it fails (default 300).",
        )],
    ),
    on_master(
        "node",
        "Labels, annotations and taints of a node.",
        &[
            arg(
                "object",
                ArgumentKind::Text,
                "The node's name (default: the state's name).",
            ),
            arg("labels", ArgumentKind::Mapping, "Labels; null removes one."),
            arg(
                "annotations",
                ArgumentKind::Mapping,
                "Annotations; null removes one.",
            ),
            arg(
                "taints",
                ArgumentKind::Mappings,
                "The taints, a list of `{key, value, effect}`; Kubernetes' own taints are kept.",
            ),
            arg(
                "record",
                ArgumentKind::Text,
                "Annotation in which the keys of `labels` are recorded: a recorded label that is no longer listed is removed.",
            ),
        ],
    ),
];
