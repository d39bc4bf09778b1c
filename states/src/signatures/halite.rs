//! Signatures of `halite.*`: steps of orchestrations.

use crate::signature::{Arg, Kind, RunsOn, Signature, arg, required};

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
    "Target minions; `master` is the master itself (Kubernetes objects).",
);
const TGT_TYPE: Arg = arg(
    "tgt_type",
    Kind::Text,
    "Kind of `tgt`: `glob` (default), `list`, `pcre`, `grain`, `pillar`, `ipcidr` or `compound`.",
);
const TIMEOUT: Arg = arg(
    "timeout",
    Kind::Integer,
    "Seconds until the step fails (default 900).",
);
const OFFLINE: Arg = arg(
    "offline",
    Kind::Text,
    "Handling of targets that are not connected: `fail` (default), or `skip`, which leaves them out and reports them.",
);
const UNMATCHED: Arg = arg(
    "unmatched",
    Kind::Text,
    "Handling of a target that matches no accepted minion: `fail` (default), or `skip`, by which the step has nothing to do.",
);
const BARE: Arg = arg(
    "bare",
    Kind::Text,
    "Handling of targets on which no run of their own has installed packages yet: like any other (`apply`, the default), or `skip`, which leaves them out.",
);
const NODE: Arg = required("node", Kind::Text, "The node's name.");
const NODE_OFFLINE: Arg = arg(
    "offline",
    Kind::Text,
    "Handling of a host whose minion is not connected: like any other (`fail`, the default), or `skip`, which leaves it out.",
);
const MEMBER: Arg = required("node", Kind::Text, "The host's name.");

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
                "bundle",
                Kind::Text,
                "Bundle of the site that the minions are compiled from (default: the one that each has). A highstate that succeeds is recorded: the minion has this bundle from then on.",
            ),
            arg(
                "batch",
                Kind::Text,
                "Number or percentage of minions at a time (default: all).",
            ),
            OFFLINE,
            UNMATCHED,
            BARE,
            arg(
                "but_done_by",
                Kind::Text,
                "Id of an earlier `halite.state` of the run: targets on which that has succeeded are left out.",
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
            OFFLINE,
            UNMATCHED,
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
                Kind::Boolean,
                "Wait for a ready replica of the cluster's DNS (default false: it is asked only if there is one).",
            ),
            TIMEOUT,
        ],
    ),
    step(
        "cordon",
        "Lets a Kubernetes node take no new pods, as `kubectl cordon`.",
        &[NODE, TIMEOUT],
    ),
    step(
        "uncordon",
        "Lets a Kubernetes node take new pods again, as `kubectl uncordon`.",
        &[
            NODE,
            arg(
                "maintenance",
                Kind::Boolean,
                "Only if a drain with `maintenance` has cordoned it (default false).",
            ),
            NODE_OFFLINE,
            TIMEOUT,
        ],
    ),
    step(
        "drain",
        "Lets a Kubernetes node take no new pods and evicts its pods, as `kubectl drain`. Pods of DaemonSets and of the \
         kubelet's manifests stay. Waits while a PodDisruptionBudget holds a pod.",
        &[
            NODE,
            arg(
                "delete_emptydir_data",
                Kind::Boolean,
                "Evict pods with an emptyDir too, whose content is lost (default false).",
            ),
            arg(
                "force",
                Kind::Boolean,
                "Evict pods that no controller makes again, too (default false).",
            ),
            arg(
                "grace_period",
                Kind::Integer,
                "Seconds in place of each pod's own grace period.",
            ),
            arg(
                "maintenance",
                Kind::Boolean,
                "The cordon ends with the work on the host: it is marked, unless the node was cordoned before (default false).",
            ),
            arg(
                "cleaned",
                Kind::Boolean,
                "The host is cleaned next, which ends all its containers: while the node is not Ready, pods are not waited for \
                 longer than 30 s after their grace period (default false).",
            ),
            NODE_OFFLINE,
            TIMEOUT,
        ],
    ),
    step(
        "rebalance",
        "Evicts pods of a Deployment from a node that has several, while another node that takes pods has none, one \
         after the other, and waits for the successor of each. Pods that are not all ready are left alone.",
        &[
            required("namespace", Kind::Text, "The namespace."),
            required("deployment", Kind::Text, "The Deployment."),
            TIMEOUT,
        ],
    ),
    step(
        "vip_moved_off",
        "Moves the virtual address of the API off a host, if it has it, and waits until another host has it. Does nothing \
         where keepalived holds none.",
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
        "Gives a host other roles in its document. Its states follow in further steps.",
        &[
            NODE,
            required("roles", Kind::TextList, "All roles of the host."),
            arg(
                "left",
                Kind::Boolean,
                "Its member of etcd and its control plane have left the host, as far as these roles need none (default false).",
            ),
        ],
    ),
    step(
        "node_may_leave",
        "Refuses the departure of a host that the cluster cannot miss, or that was not confirmed. With `roles` the host stays, and \
         its member of etcd or its control plane leaves.",
        &[
            NODE,
            arg(
                "roles",
                Kind::TextList,
                "All roles of a host that stays (default: it leaves the cluster).",
            ),
            arg(
                "dead",
                Kind::Boolean,
                "The host is gone for good and is asked nothing (default false).",
            ),
            arg(
                "force",
                Kind::Boolean,
                "Data or a member of etcd may be lost (default false).",
            ),
            arg(
                "cluster",
                Kind::Text,
                "The cluster's name, to confirm `force`.",
            ),
            arg(
                "timeout",
                Kind::Integer,
                "Seconds in which a dead host has to be disconnected (default 900).",
            ),
        ],
    ),
    step(
        "destroy_allowed",
        "Refuses the end of the whole cluster if it was not confirmed, or hosts are not connected.",
        &[
            arg(
                "force",
                Kind::Boolean,
                "Everything that the cluster stores may be lost (default false).",
            ),
            arg(
                "cluster",
                Kind::Text,
                "The cluster's name, to confirm `force`.",
            ),
            OFFLINE,
        ],
    ),
    step(
        "hosts_leave",
        "Applies SLS files that take from hosts what Halite put there. A host without a key has left already and is left out.",
        &[
            required("nodes", Kind::TextList, "The hosts' names."),
            required("sls", Kind::TextList, "SLS files to apply."),
            arg(
                "gone",
                Kind::Boolean,
                "These are the last on the host, whose key is deleted then (default false).",
            ),
            OFFLINE,
            TIMEOUT,
        ],
    ),
    step(
        "control_plane_joined",
        "Records that the control plane of a host runs, where no member of etcd on the host says so.",
        &[NODE],
    ),
    step(
        "node_forget",
        "Removes the document of a node.",
        &[
            NODE,
            arg(
                "keep",
                Kind::Boolean,
                "Keep what the operator declared, and remove only what Halite recorded (default false).",
            ),
        ],
    ),
    step(
        "key_reject",
        "Rejects the key of a host, which is cut off.",
        &[NODE],
    ),
    step(
        "key_delete",
        "Deletes the key of a host, which is cut off; another host of that name may enrol.",
        &[NODE],
    ),
    step(
        "lock",
        "Takes a lock for this run, which holds it until it has ended. Waits while another run holds it.",
        &[
            required("lock", Kind::Text, "The lock, for example `etcd-members`."),
            TIMEOUT,
        ],
    ),
    step(
        "unlock",
        "Releases a lock of this run before the run has ended.",
        &[required(
            "lock",
            Kind::Text,
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
                Kind::TextList,
                "All roles that a host of the cluster is to get; it is checked before its document has them, and asked for no other \
                 host that lets it in only then (default: those of its document).",
            ),
            arg(
                "ignore",
                Kind::TextList,
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
                Kind::Boolean,
                "The host has no data of a member; one that has run is then refused (default false).",
            ),
            TIMEOUT,
        ],
    ),
    step(
        "etcd_promote",
        "Waits until a learner is in sync and gives it its vote; one that is not in time is removed.",
        &[MEMBER, TIMEOUT],
    ),
    step(
        "etcd_remove",
        "Removes a member of etcd; another one becomes the leader first.",
        &[
            MEMBER,
            arg(
                "dead",
                Kind::Boolean,
                "The host is gone for good and need not answer (default false).",
            ),
            TIMEOUT,
        ],
    ),
    step(
        "etcd_quorum_allows",
        "Waits until etcd can miss the member of a host; does not wait where there are fewer than three. A cluster of three or \
         more without quorum is refused: a highstate repairs it.",
        &[MEMBER, TIMEOUT],
    ),
    step(
        "etcd_leader_moved_off",
        "Makes another member of etcd the leader, if the host has it: that of the host with the virtual address, or else the one that \
         has applied most. Does nothing where no other member can lead.",
        &[MEMBER, TIMEOUT],
    ),
    step(
        "etcd_answers",
        "Asks each member of an external etcd, with the client's certificate of the cluster document, and refuses one with the data of another cluster.",
        &[TIMEOUT],
    ),
    step(
        "etcd_defragment",
        "Gives the free pages in the databases of etcd's members back, one member at a time, the leader last. A quota that was \
         reached is resolved: the past is removed first, and the alarm disarmed.",
        &[
            arg("node", Kind::Text, "Only the member of this host."),
            arg(
                "above",
                Kind::Integer,
                "Only members of whose database more than this part, in percent, is free (default 0).",
            ),
            TIMEOUT,
        ],
    ),
    step(
        "etcd_may_be_alone",
        "Refuses to make a cluster of one member while etcd has a quorum, or another member runs, or if it was not confirmed.",
        &[
            MEMBER,
            arg(
                "force",
                Kind::Boolean,
                "What only the other members had may be lost (default false).",
            ),
            arg(
                "cluster",
                Kind::Text,
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
