//! `cargo lab demo`: from nothing to a Ready cluster, on real hosts.

use anyhow::Result;
use halite_lab::cluster::BOOTSTRAP;
use halite_lab::progress::Board;
use halite_upstream::prepare;

/// The steps, with the time that each usually takes on two processors: the first time, and later.
const STEPS: [(&str, &str, &str); 9] = [
    ("prerequisites", "1 min", "at once"),
    ("base root of the hosts", "1 min", "at once"),
    ("Halite's programs", "15 min", "3 min after a change"),
    ("Kubernetes programs", "20 min", "at once"),
    ("images", "1 min", "at once"),
    ("bundle and signed ISO", "1 min", "20 s after a change"),
    ("boot of two bare hosts", "5 s", "5 s"),
    ("bootstrap of the first host", "40 s", "40 s"),
    ("node add of the second", "20 s", "20 s"),
];

/// Name of the demonstration's lab.
pub(crate) const DEMO: &str = "demo";

/// Says what it will do, makes the cluster, and leaves it running.
pub(crate) fn demo(lab: &str) -> Result<()> {
    print!("{}", plan());
    let cluster = prepare::cluster(lab, &Board::for_terminal())?;
    println!("{}", cluster.kubectl(&["get", "nodes", "-o", "wide"])?);
    println!("{}", cluster.kubectl(&["get", "pods", "-A", "-o", "wide"])?);
    cluster.nothing_tried_to_leave()?;
    println!("Nothing tried to leave. The hosts go on running:");
    println!(
        "  cargo lab sh {BOOTSTRAP} -- ctl status      cargo lab sh {BOOTSTRAP} -- kubectl get pods -A"
    );
    println!("  cargo lab down");
    Ok(())
}

/// The steps as a table. Halite's and Kubernetes' programs are built at the same time.
fn plan() -> String {
    let mut text = format!("{:<30}{:<12}{}\n", "step", "first time", "later");
    for (step, first, later) in STEPS {
        text.push_str(&format!("{step:<30}{first:<12}{later}\n"));
    }
    text.push('\n');
    text
}
