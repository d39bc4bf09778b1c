//! Signatures of `halite.*`: steps of orchestrations.

use crate::signature::{Arg, ArgumentKind, COUNT, RunsOn, Signature, arg, required};

pub(super) const fn step(fun: &'static str, doc: &'static str, args: &'static [Arg]) -> Signature {
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
    ArgumentKind::Text,
    "Target minions; `master` is the master itself (Kubernetes objects).",
);
const TGT_TYPE: Arg = arg(
    "tgt_type",
    ArgumentKind::Text,
    "Kind of `tgt`: `glob` (default), `list`, `pcre`, `grain`, `pillar`, `ipcidr` or `compound`.",
);
pub(super) const TIMEOUT: Arg = arg(
    "timeout",
    COUNT,
    "Seconds until the step fails (default 900).",
);
const OFFLINE: Arg = arg(
    "offline",
    ArgumentKind::Text,
    "Handling of targets that are not connected: `fail` (default), or `skip`, which leaves them out and reports them.",
);
const UNMATCHED: Arg = arg(
    "unmatched",
    ArgumentKind::Text,
    "Handling of a target that matches no accepted minion: `fail` (default), or `skip`, with which the step does nothing.",
);
const BARE: Arg = arg(
    "bare",
    ArgumentKind::Text,
    "Handling of targets on which no run of their own has installed packages yet: `apply` (default) treats them like any other, `skip` leaves them out.",
);
const NODE: Arg = required("node", ArgumentKind::Text, "The node's name.");
const NODE_OFFLINE: Arg = arg(
    "offline",
    ArgumentKind::Text,
    "Handling of a host whose minion is not connected: `fail` (default) treats it like any other, `skip` leaves it out.",
);
const MAINTENANCE: Arg = arg(
    "maintenance",
    ArgumentKind::Boolean,
    "Only if a drain with `maintenance` has cordoned it (default false).",
);
const BACK: Arg = arg(
    "back",
    ArgumentKind::Boolean,
    "`bundle` is the one that the minions had before an upgrade that has not ended, and to which they return (default false).",
);
const MEMBER: Arg = required("node", ArgumentKind::Text, "The host's name.");

pub(super) const SIGNATURES: &[Signature] = &[
    step(
        "state",
        "Applies SLS files, or the highstate, on minions.",
        &[
            TGT,
            TGT_TYPE,
            arg("sls", ArgumentKind::TextList, "SLS files to apply."),
            arg(
                "highstate",
                ArgumentKind::Boolean,
                "Apply everything that `top.sls` assigns (default false).",
            ),
            TIMEOUT,
            arg(
                "bundle",
                ArgumentKind::Text,
                "Bundle of the site from which the minions' states are compiled (default: each minion's own). After a successful highstate, the minion is recorded as having this bundle.",
            ),
            BACK,
            arg(
                "batch",
                ArgumentKind::Text,
                "Number or percentage of minions at a time (default: all).",
            ),
            OFFLINE,
            UNMATCHED,
            BARE,
            arg(
                "but_done_by",
                ArgumentKind::Text,
                "Id of an earlier `halite.state` of the run: targets on which it has succeeded are left out.",
            ),
        ],
    ),
    step(
        "function",
        "Runs one function on minions.",
        &[
            TGT,
            TGT_TYPE,
            required(
                "fun",
                ArgumentKind::Text,
                "Function, for example `test.ping`.",
            ),
            arg("arg", ArgumentKind::Any, "Its arguments, a list."),
            TIMEOUT,
            OFFLINE,
            UNMATCHED,
        ],
    ),
    step(
        "wait_for_minion",
        "Waits until a minion is accepted and connected.",
        &[
            required("id", ArgumentKind::Text, "The minion's id."),
            TIMEOUT,
        ],
    ),
    step(
        "wait_for_node",
        "Waits until a Kubernetes node is Ready.",
        &[NODE, NODE_OFFLINE, TIMEOUT],
    ),
    step(
        "pod_network",
        "Starts a pod on a Kubernetes node, waits until it has an address of the pod network and reaches pods of other nodes, \
         the API's Service and the cluster's DNS, and removes it.",
        &[
            NODE,
            arg(
                "dns",
                ArgumentKind::Boolean,
                "Wait for a ready replica of the cluster's DNS (default false: DNS is queried only if there is one).",
            ),
            MAINTENANCE,
            NODE_OFFLINE,
            TIMEOUT,
        ],
    ),
    step(
        "cordon",
        "Marks a Kubernetes node unschedulable, like `kubectl cordon`.",
        &[NODE, TIMEOUT],
    ),
    step(
        "uncordon",
        "Marks a Kubernetes node schedulable again, like `kubectl uncordon`.",
        &[NODE, MAINTENANCE, NODE_OFFLINE, TIMEOUT],
    ),
    step(
        "drain",
        "Marks a Kubernetes node unschedulable and evicts its pods, like `kubectl drain`. Pods of DaemonSets and static \
         pods stay. Waits while a PodDisruptionBudget holds a pod.",
        &[
            NODE,
            arg(
                "delete_emptydir_data",
                ArgumentKind::Boolean,
                "Also evict pods with an emptyDir, whose content is lost (default false).",
            ),
            arg(
                "force",
                ArgumentKind::Boolean,
                "Also evict pods that no controller would recreate (default false).",
            ),
            arg(
                "grace_period",
                ArgumentKind::Integer,
                "Seconds to use instead of each pod's own grace period.",
            ),
            arg(
                "maintenance",
                ArgumentKind::Boolean,
                "Mark the cordon as one that ends with the work on the host, unless the node was already cordoned (default false).",
            ),
            arg(
                "cleaned",
                ArgumentKind::Boolean,
                "The host is cleaned next, which stops all its containers: while the node is not Ready, wait for pods no longer \
                 than 30 s after their grace period (default false).",
            ),
            arg(
                "required",
                ArgumentKind::Boolean,
                "The work on the host needs an empty node, so the messages do not offer to do without the drain (default false).",
            ),
            NODE_OFFLINE,
            TIMEOUT,
        ],
    ),
    step(
        "encryption_keys",
        "Takes the keys that encrypt objects in etcd one step further. A step that was taken before is not repeated. Fails \
         unless each control plane is connected and each standby of the master follows.",
        &[
            required(
                "stage",
                ArgumentKind::Text,
                "`check`: no change; `next`: a new key, with which API servers only decrypt; `write`: the newest key encrypts; \
                 `only`: the older key leaves; `end`: all have reached this stage.",
            ),
            required(
                "nodes",
                ArgumentKind::TextList,
                "The control planes. If others are declared by now, the step fails.",
            ),
            TIMEOUT,
        ],
    ),
    step(
        "encryption_rewrite",
        "Writes all Secrets and ConfigMaps again without a change, so that the API server stores them with its present key.",
        &[TIMEOUT],
    ),
    step(
        "rebalance",
        "Evicts pods of a Deployment from a node that has several, while another node that takes pods has none, one \
         after the other, and waits for the replacement of each. Pods that are not all ready are left alone.",
        &[
            required("namespace", ArgumentKind::Text, "The namespace."),
            required("deployment", ArgumentKind::Text, "The Deployment."),
            TIMEOUT,
        ],
    ),
    step(
        "vip_moved_off",
        "Moves the virtual address of the API off a host that holds it, and waits until another host holds it. Does \
         nothing where keepalived holds no address.",
        &[MEMBER, NODE_OFFLINE, TIMEOUT],
    ),
    step(
        "reboot",
        "Reboots a host, and waits until its minion and its kubelet are back.",
        &[MEMBER, TIMEOUT],
    ),
    step(
        "node_delete",
        "Removes a Kubernetes node from the API.",
        &[NODE, TIMEOUT],
    ),
    step(
        "node_roles",
        "Changes the roles of a host in its document. Its states follow in further steps.",
        &[
            NODE,
            required("roles", ArgumentKind::TextList, "All roles of the host."),
            arg(
                "left",
                ArgumentKind::Boolean,
                "The etcd member and the control plane that these roles no longer include have already left the host (default false).",
            ),
        ],
    ),
    step(
        "node_may_leave",
        "Refuses the removal of a host that the cluster cannot do without, or whose removal was not confirmed. With `roles` the \
         host stays, and its member of etcd or its control plane leaves.",
        &[
            NODE,
            arg(
                "roles",
                ArgumentKind::TextList,
                "All roles of a host that stays (default: it leaves the cluster).",
            ),
            arg(
                "dead",
                ArgumentKind::Boolean,
                "The host is lost; do not contact it (default false).",
            ),
            arg(
                "force",
                ArgumentKind::Boolean,
                "Data or a member of etcd may be lost (default false).",
            ),
            arg(
                "cluster",
                ArgumentKind::Text,
                "The cluster's name, to confirm `force`.",
            ),
            arg(
                "timeout",
                COUNT,
                "Seconds within which a dead host must be disconnected (default 900).",
            ),
        ],
    ),
    step(
        "destroy_allowed",
        "Refuses to destroy the cluster if this was not confirmed, or if hosts are not connected.",
        &[
            arg(
                "force",
                ArgumentKind::Boolean,
                "Everything that the cluster stores may be lost (default false).",
            ),
            arg(
                "cluster",
                ArgumentKind::Text,
                "The cluster's name, to confirm `force`.",
            ),
            OFFLINE,
        ],
    ),
    step(
        "hosts_leave",
        "Applies SLS files that remove from hosts what Halite installed there. A host without a key has already left and is skipped.",
        &[
            required("nodes", ArgumentKind::TextList, "The hosts' names."),
            required("sls", ArgumentKind::TextList, "SLS files to apply."),
            arg(
                "gone",
                ArgumentKind::Boolean,
                "These are the last states on the host; its key is deleted afterwards (default false).",
            ),
            OFFLINE,
            TIMEOUT,
        ],
    ),
    step(
        "control_plane_joined",
        "Records that the control plane of a host runs, if the host has no member of etcd whose record shows it.",
        &[NODE],
    ),
    step(
        "node_forget",
        "Removes the document of a node.",
        &[
            NODE,
            arg(
                "keep",
                ArgumentKind::Boolean,
                "Keep what the operator declared, and remove only what Halite recorded (default false).",
            ),
        ],
    ),
    step(
        "key_reject",
        "Rejects the key of a host, which cuts the host off.",
        &[NODE],
    ),
    step(
        "key_delete",
        "Deletes the key of a host, which cuts the host off; another host with that name may then enrol.",
        &[NODE],
    ),
    step(
        "lock",
        "Takes a lock for this run, which holds it until it ends. Waits while another run holds it.",
        &[
            required(
                "lock",
                ArgumentKind::Text,
                "The lock, for example `etcd-members`.",
            ),
            TIMEOUT,
        ],
    ),
    step(
        "upgrade_turn",
        "The start of the turn of hosts in an upgrade. Ends the run here if an operator has paused it. Otherwise computes the \
         states that these hosts have at the end of the upgrade, and fails if they differ from the plan in the pillar of the run.",
        &[
            required(
                "nodes",
                ArgumentKind::TextList,
                "The hosts whose turn it is.",
            ),
            required(
                "bundle",
                ArgumentKind::Text,
                "The version of the bundle that they get.",
            ),
            BACK,
        ],
    ),
    step(
        "pause",
        "Ends an upgrade here as paused; `ctl upgrade resume` continues it.",
        &[],
    ),
    step(
        "unlock",
        "Releases a lock of this run before the run has ended.",
        &[required(
            "lock",
            ArgumentKind::Text,
            "The lock, for example `etcd-members`.",
        )],
    ),
    step(
        "preflight",
        "Checks a host that is added, before anything changes there: all problems in one report.",
        &[
            MEMBER,
            arg(
                "roles",
                ArgumentKind::TextList,
                "All roles that a host of the cluster will get. It is checked before its document has them, and does not try to \
                 reach hosts that let it in only then (default: the roles of its document).",
            ),
            arg(
                "ignore",
                ArgumentKind::TextList,
                "Names of checks whose problems are only warnings.",
            ),
        ],
    ),
    step(
        "etcd_add_learner",
        "Makes a host a member of etcd without a vote, and records it in the node document.",
        &[
            MEMBER,
            arg(
                "bare",
                ArgumentKind::Boolean,
                "The host has no data of a member; a member that has already run is then refused (default false).",
            ),
            TIMEOUT,
        ],
    ),
    step(
        "etcd_promote",
        "Waits until a learner is in sync and promotes it to a voting member; removes one that is too late.",
        &[MEMBER, TIMEOUT],
    ),
    step(
        "etcd_remove",
        "Removes a member of etcd; another one becomes the leader first.",
        &[
            MEMBER,
            arg(
                "dead",
                ArgumentKind::Boolean,
                "The host is lost and need not answer (default false).",
            ),
            TIMEOUT,
        ],
    ),
    step(
        "etcd_quorum_allows",
        "Waits until etcd can do without the member of a host; does not wait if there are fewer than three members. A cluster \
         of three or more without quorum is refused: a highstate repairs it.",
        &[MEMBER, TIMEOUT],
    ),
    step(
        "etcd_leader_moved_off",
        "If a host's member of etcd is the leader, moves the leadership to the member on another host: the one with the virtual \
         address, or the one that takes it next, or else the one whose member has applied most. Does nothing if no other member \
         can lead.",
        &[MEMBER, TIMEOUT],
    ),
    step(
        "etcd_answers",
        "Asks each member of an external etcd, with the client's certificate of the cluster document, and refuses one with the data of another cluster.",
        &[TIMEOUT],
    ),
    step(
        "etcd_defragment",
        "Defragments the databases of etcd's members, one member at a time, the leader last. Also clears a NOSPACE alarm: \
         compacts the history first, and disarms the alarm.",
        &[
            arg("node", ArgumentKind::Text, "Only the member of this host."),
            arg(
                "above",
                ArgumentKind::Integer,
                "Only members with more than this percentage of their database free (default 0).",
            ),
            TIMEOUT,
        ],
    ),
    step(
        "etcd_may_be_alone",
        "Refuses to make a cluster of one member while etcd has a quorum or another member runs, or if this was not confirmed.",
        &[
            MEMBER,
            arg(
                "force",
                ArgumentKind::Boolean,
                "Data that only the other members had may be lost (default false).",
            ),
            arg(
                "cluster",
                ArgumentKind::Text,
                "The cluster's name, to confirm `force`.",
            ),
            TIMEOUT,
        ],
    ),
    step(
        "etcd_wait_alone",
        "Waits until the member of a host is the only one of etcd, and leads.",
        &[MEMBER, TIMEOUT],
    ),
];
