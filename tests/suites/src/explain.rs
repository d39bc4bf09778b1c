//! The state of a cluster's hosts, printed after a failed test: a reader of the report may be
//! unable to inspect them.

use halite_lab::cluster::Cluster;

/// Queries to each host that is on; answers are cut after [`LINES`] lines.
const QUESTIONS: &[(&str, &str)] = &[
    (
        "units that failed",
        "systemctl --failed --no-legend --plain",
    ),
    ("memory", "free -m | sed -n 2p"),
    (
        "containers",
        "timeout 5 ctr -n k8s.io containers ls | awk 'NR>1 {print $1, $2}'; \
         timeout 5 ctr -n k8s.io tasks ls",
    ),
    (
        "errors of the last minutes",
        "journalctl --since -5min -p err -n 15 --no-pager -o short",
    ),
    (
        "halite",
        "journalctl --since -5min -u 'halite-*' -n 15 --no-pager -o short",
    ),
];

/// Queries to the cluster on its first host.
const CLUSTER: &[(&str, &str)] = &[
    ("ctl health", "timeout 30 ctl health"),
    (
        "pods that are not running",
        "timeout 10 kubectl get pods -A -o wide | awk '$4 != \"Running\"'",
    ),
];

/// Maximum length of an answer.
const LINES: usize = 40;

/// Prints the state of the hosts.
pub(crate) fn state(cluster: &Cluster) {
    for host in cluster.hosts() {
        let mut questions = QUESTIONS.to_vec();
        if host.spec.name == cluster.bootstrap.spec.name {
            questions.extend(CLUSTER);
        }
        let name = &host.spec.name;
        if host.init().is_none() {
            println!("    {name}: off");
            continue;
        }
        for (what, line) in questions {
            match host.sh(&format!("{{ {line}; }} 2>&1 || true")) {
                Ok(text) => print(name, what, &text),
                Err(error) => println!("    {name}: {what}: no answer: {error:#}"),
            }
        }
    }
}

fn print(host: &str, what: &str, text: &str) {
    let lines: Vec<&str> = text.lines().collect();
    if lines.is_empty() {
        return;
    }
    println!("    {host}: {what}:");
    for line in &lines[lines.len().saturating_sub(LINES)..] {
        println!("      {line}");
    }
}
