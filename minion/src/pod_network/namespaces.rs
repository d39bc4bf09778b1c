//! The network namespaces of the pods on this host, which the container runtime binds to files in
//! `/run/netns`.

use std::net::Ipv4Addr;
use std::path::{Path, PathBuf};

use halite_host_reports::pod_network::Question;
use rustix::fs::{Mode, OFlags};
use rustix::thread::{LinkNameSpaceType, move_into_link_name_space};
use tokio::sync::oneshot;

use crate::grains;
use crate::host::linux::files;

/// The directory of the namespaces.
const DIRECTORY: &str = "/run/netns";
/// The maximum number of namespaces that are inspected: more than a node has pods.
const MOST: usize = 512;

/// Runs a task in the network namespace of a pod of this host: the first existing one that the
/// query names, or the host itself if no pod is suitable. Also returns the pod's address.
pub(super) async fn from_a_pod<T: Default + Send + 'static>(
    question: Question,
    task: fn(&Question) -> T,
) -> (Option<Ipv4Addr>, T) {
    let inside = question.clone();
    let found = in_a_thread(move || {
        let source = enter_one(Path::new(DIRECTORY), &inside)?;
        Some((source, task(&inside)))
    });
    if let Some(Some((source, done))) = found.await {
        return (Some(source), done);
    }
    let done = in_a_thread(move || task(&question)).await;
    (None, done.unwrap_or_default())
}

/// Runs a task in a thread that ends with it: a thread that has entered a namespace is of no other
/// use.
async fn in_a_thread<T: Send + 'static>(task: impl FnOnce() -> T + Send + 'static) -> Option<T> {
    let (sender, done) = oneshot::channel();
    let started = std::thread::Builder::new().spawn(move || {
        // A caller that has gone away needs no answer.
        let _ = sender.send(task());
    });
    started.ok()?;
    done.await.ok()
}

/// Enters the namespace of a pod; returns the pod's address. If it returns `None`, the thread may
/// be in any namespace.
fn enter_one(directory: &Path, question: &Question) -> Option<Ipv4Addr> {
    let mut pods = Vec::new();
    for name in files::utf8_names(directory)
        .unwrap_or_default()
        .into_iter()
        .take(MOST)
    {
        let path = directory.join(name);
        // A pod may end at any time.
        if enter(&path).is_ok() {
            let addresses = grains::addresses_of_this_thread();
            let own = addresses
                .into_iter()
                .find(|address| is_pod(&question.pods, *address));
            pods.extend(own.map(|address| (address, path)));
        }
    }
    let (address, path) = choose(question, pods)?;
    enter(&path).ok()?;
    Some(address)
}

/// Chooses the pod to probe from.
fn choose(question: &Question, pods: Vec<(Ipv4Addr, PathBuf)>) -> Option<(Ipv4Addr, PathBuf)> {
    let rank = |address: &Ipv4Addr| {
        let named = question.sources.iter().position(|source| source == address);
        named.or_else(|| question.any.then_some(usize::MAX))
    };
    let usable = pods
        .into_iter()
        .filter(|(address, _)| rank(address).is_some());
    usable.min_by_key(|(address, _)| (rank(address), *address))
}

/// Moves this thread into a namespace.
fn enter(path: &Path) -> rustix::io::Result<()> {
    let namespace = rustix::fs::open(path, OFlags::RDONLY | OFlags::CLOEXEC, Mode::empty())?;
    move_into_link_name_space(
        std::os::fd::AsFd::as_fd(&namespace),
        Some(LinkNameSpaceType::Network),
    )
}

/// Returns whether an address is in a network such as `10.233.0.0/16`.
fn is_pod(network: &str, address: Ipv4Addr) -> bool {
    let parsed = network.split_once('/').and_then(|(first, length)| {
        let first: Ipv4Addr = first.parse().ok()?;
        let length: u32 = length.parse().ok()?;
        Some((first, length))
    });
    let Some((first, length)) = parsed.filter(|(_, length)| *length <= 32) else {
        return false;
    };
    let mask = u32::MAX.checked_shl(32 - length).unwrap_or_default();
    u32::from(first) & mask == u32::from(address) & mask
}

#[cfg(test)]
#[expect(
    clippy::disallowed_methods,
    reason = "the test makes another process with a network of its own"
)]
mod tests {
    use std::process::{Command, Stdio};

    use super::*;

    #[test]
    fn a_named_pod_comes_before_any_other() {
        let pod = |last: u8| (Ipv4Addr::new(10, 233, 0, last), PathBuf::from("x"));
        let pods = || vec![pod(3), pod(2), pod(1)];
        let chosen = |sources: &[u8], any: bool| {
            let sources = sources.iter().map(|last| pod(*last).0).collect();
            let question = Question {
                sources,
                any,
                ..Question::default()
            };
            choose(&question, pods()).map(|(address, _)| address.octets()[3])
        };
        assert_eq!(chosen(&[9, 2, 3], false), Some(2));
        assert_eq!(chosen(&[9], true), Some(1));
        assert_eq!(chosen(&[9], false), None, "its network may limit it");
    }

    #[test]
    fn pods_are_known_by_their_network() {
        let of = |network: &str, address: [u8; 4]| is_pod(network, address.into());
        assert!(of("10.233.0.0/16", [10, 233, 7, 1]) && !of("10.233.0.0/16", [10, 244, 0, 2]));
        assert!(of("0.0.0.0/0", [10, 244, 0, 2]) && of("10.0.0.1/32", [10, 0, 0, 1]));
        assert!(!of("", [10, 0, 0, 1]) && !of("10.0.0.0/33", [10, 0, 0, 1]));
    }

    /// Runs as root, like the minion.
    #[tokio::test]
    async fn a_thread_enters_the_network_of_another_process_and_the_others_stay() {
        if !rustix::process::geteuid().is_root() {
            return;
        }
        // It signals that it has its namespace, with a pod's address.
        let script =
            "ip link set lo up && ip addr add 192.0.2.7/32 dev lo && echo there && exec cat";
        let mut pod = Command::new("unshare")
            .args(["--net", "sh", "-ec", script])
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .unwrap();
        let mut said = String::new();
        let output = pod.stdout.take().unwrap();
        std::io::BufRead::read_line(&mut std::io::BufReader::new(output), &mut said).unwrap();
        assert_eq!(said, "there\n");
        let directory = tempfile::tempdir().unwrap();
        let target = format!("/proc/{}/ns/net", pod.id());
        std::os::unix::fs::symlink(target, directory.path().join("cni-1")).unwrap();
        let own = grains::addresses_of_this_thread();
        let question = Question {
            pods: "192.0.2.0/24".to_owned(),
            any: true,
            ..Question::default()
        };
        let entered = in_a_thread(move || {
            let entered = enter_one(directory.path(), &question);
            (entered, grains::addresses_of_this_thread())
        });
        let (entered, inside) = entered.await.unwrap();
        assert_eq!(entered, Some([192, 0, 2, 7].into()));
        assert!(inside.contains(&[192, 0, 2, 7].into()) && inside != own);
        assert_eq!(grains::addresses_of_this_thread(), own);
        drop(pod.stdin.take());
        assert!(pod.wait().unwrap().success());
    }
}
