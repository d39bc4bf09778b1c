//! Signatures of `kubernetes.*`: objects that the master compares and applies.

use crate::signature::{Arg, Kind, RunsOn, Signature, arg, required};

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
    "Compare the whole object, and remove fields that others added; otherwise only the given fields (default false).",
);

pub(super) const SIGNATURES: &[Signature] = &[
    on_master(
        "manifest",
        "All objects of a Kubernetes manifest, by server-side apply.",
        &[
            arg(
                "source",
                Kind::Text,
                "`salt://path` of a YAML file with one or more documents.",
            ),
            arg(
                "documents",
                Kind::Any,
                "The objects themselves, as a list; the compiler reads them from `source`.",
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
                "Default variables of the template; `context` takes precedence.",
            ),
            WHOLE,
            arg(
                "set",
                Kind::Text,
                "Name of the set of these objects: they are labelled with it, and other objects with the label are removed.",
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
        "Removes the objects of sets (see `kubernetes.manifest`) that match `among` and are not in `sets`; all other objects are kept. Refused when data would be lost: volumes, other owners' objects of a definition or in a namespace.",
        &[
            required("sets", Kind::TextList, "Sets to keep."),
            required(
                "among",
                Kind::TextList,
                "Names of sets to remove unless kept; a `*` at the end matches any ending.",
            ),
        ],
    ),
    on_master(
        "absent",
        "No object with that kind and name.",
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
                "The object's namespace, if its kind has one.",
            ),
        ],
    ),
    on_master(
        "api_ready",
        "Waits until the API server reports that it is ready.",
        &[arg(
            "timeout",
            Kind::Integer,
            "Seconds until it fails (default 300).",
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
                "The taints, a list of `{key, value, effect}`; Kubernetes' own taints are kept.",
            ),
            arg(
                "record",
                Kind::Text,
                "Annotation in which the keys of `labels` are recorded: a recorded label that is no longer listed is removed.",
            ),
        ],
    ),
];
