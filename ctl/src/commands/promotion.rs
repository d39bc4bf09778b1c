//! `ctl master promote`, and the promotion that precedes the replacement or removal of the master's
//! lost host, or the recovery of etcd without it.

use std::path::{Path, PathBuf};
use std::process::Stdio;
use std::time::Duration;

use anyhow::{Context as _, bail};
use halite_api::{KeyState, NodeStatus};
use halite_pillar::declaration::Declaration;
use halite_pillar::load::{Texts, load};
use halite_pillar::masters::{STANDBY_OF, WAS_STANDBY_OF};
use halite_pillar::validate::Context;
use halite_proto::v1;
use halite_states::shipped;
use tokio::process::Command;

use crate::bootstrap::daemon::MASTER;
use crate::cli::{Global, MasterPromote};
use crate::orchestration_watch::{FinishedRun, print_outcome, run_orchestration};
use crate::output::Screen;
use crate::paths::STATE_DIR;
use crate::waiting::Waiting;
use crate::{FAILED, client, masters};

/// The master of this host.
const OWN: &str = "127.0.0.1:4550";
/// The longest wait for the master of this host: it reads a damaged store completely first.
const START: Duration = Duration::from_secs(300);
/// The longest wait for minions: they notice a silent master within half a minute.
const CALLS: Duration = Duration::from_secs(90);
/// The time after which the minion restarts of the last step have started.
const RESTARTS: Duration = Duration::from_secs(4);
/// Polling interval while waiting for the master to serve.
const PAUSE: Duration = Duration::from_millis(500);

/// Runs `ctl master promote`: makes this host the master's, and brings the others to it. With
/// `--test` it only shows what would happen.
///
/// # Errors
/// The master of this host does not serve, or cannot be queried.
pub async fn promote(
    global: &Global,
    args: &MasterPromote,
    screen: &mut Screen,
) -> anyhow::Result<u8> {
    let before = first(Path::new(STATE_DIR));
    if !make_master(args, screen).await? {
        return Ok(FAILED);
    }
    if args.no_wait || args.test {
        return Ok(0);
    }
    let done = bring(&own(global), before.as_deref(), screen).await?;
    let success = "this host has the master, and serves the bundles";
    print_outcome(&done, success, "ctl master promote", screen)
}

/// The address of the master that this host follows as a standby, or followed before an interrupted
/// promotion.
fn first(directory: &Path) -> Option<String> {
    let names = [STANDBY_OF, WAS_STANDBY_OF];
    names
        .iter()
        .find_map(|name| masters::host_in(&directory.join(name)))
}

/// Makes this host the master's with the master's program, which checks the copy and reports
/// problems. With `--test` the program changes nothing.
async fn make_master(args: &MasterPromote, screen: &Screen) -> anyhow::Result<bool> {
    let mut command = Command::new(MASTER.program);
    command.arg("promote").stdin(Stdio::null());
    if !screen.is_for_people() {
        // Standard output contains only the document.
        command.stdout(std::io::stderr());
    }
    if args.force {
        command.arg("--force");
    }
    if let Some(cluster) = &args.cluster {
        command.args(["--cluster", cluster]);
    }
    if args.test {
        command.arg("--test");
    }
    let status = command.status().await;
    let status = status.with_context(|| {
        format!(
            "cannot start {}: is this host a standby (`ctl master list`)?",
            MASTER.program
        )
    })?;
    Ok(status.success())
}

/// The options for the master of this host.
fn own(global: &Global) -> Global {
    global.with_master(Some(OWN.to_owned()))
}

/// Moves the hosts to the master that the options name, which has replaced another one. `before` is
/// the address of the previous master's host, if that host is lost.
///
/// # Errors
/// The master does not serve.
pub async fn bring(
    own: &Global,
    before: Option<&str>,
    screen: &mut Screen,
) -> anyhow::Result<FinishedRun> {
    wait_for_master(own, screen).await?;
    wait_for_minions(own, before, screen).await?;
    let request = v1::OrchestrateRequest {
        sls: shipped::PROMOTED.to_owned(),
        ..v1::OrchestrateRequest::default()
    };
    let done = run_orchestration(own, request, "master", screen).await?;
    if done.retcode == 0 {
        // The last step schedules the restart of the minions for a moment later.
        screen.note("waiting for the minions to restart");
        tokio::time::sleep(RESTARTS).await;
        wait_for_minions(own, before, screen).await?;
    }
    Ok(done)
}

/// Waits until the minions have noticed that the previous master is gone, and call this one.
async fn wait_for_minions(
    own: &Global,
    before: Option<&str>,
    screen: &mut Screen,
) -> anyhow::Result<()> {
    let mut waiting = Waiting::new(
        String::new(),
        CALLS,
        "`systemctl status halite-minion` there shows its state; a host that is off may stay off: a highstate moves it to this \
         master later",
    );
    let mut said = Vec::new();
    loop {
        let status = client::status(own).await?;
        let missing = missing(&status.nodes, before);
        if missing.is_empty() {
            return Ok(());
        }
        if waiting.is_over() {
            screen.note(format!(
                "not connected: {}; a highstate moves them to this master once they are",
                missing.join(", ")
            ));
            return Ok(());
        }
        if missing != said {
            screen.note(format!(
                "waiting for minions to call this master, for at most {} s: {}",
                CALLS.as_secs(),
                missing.join(", ")
            ));
            waiting.until(format!(
                "{} is connected to this master",
                missing.join(", ")
            ));
            said = missing;
        }
        waiting.say(screen);
        tokio::time::sleep(PAUSE).await;
    }
}

/// The enrolled hosts that are not connected, except the previous master's host.
fn missing(nodes: &[NodeStatus], before: Option<&str>) -> Vec<String> {
    let nodes = nodes.iter().filter(|node| {
        let is_before = before.is_some() && node.address.as_deref() == before;
        node.key == Some(KeyState::Accepted) && !node.connected && !is_before
    });
    nodes.map(|node| node.name.to_string()).collect()
}

async fn wait_for_master(own: &Global, screen: &mut Screen) -> anyhow::Result<()> {
    let mut waiting = Waiting::new(
        "the next master serves",
        START,
        "`journalctl -u halite-master` on its host shows what it does: it reads a damaged store completely first",
    );
    let mut said = false;
    loop {
        match client::operator(own).await {
            Ok(_) => return Ok(()),
            Err(error) if waiting.is_over() => {
                return Err(error.context(
                    "the host that has the master now does not serve: see its halite-master.service",
                ));
            }
            Err(_) => {}
        }
        if !said {
            screen.note("waiting for the next master to serve");
            said = true;
        }
        waiting.say(screen);
        tokio::time::sleep(PAUSE).await;
    }
}

/// Promotes this host first, if it is a standby whose master does not answer and was on the lost
/// host that the command replaces or removes. `cluster` confirms that. With `test` it promotes
/// nothing.
///
/// # Errors
/// No master answers, and it was on another host, or this host cannot be promoted, or `test` is
/// set.
pub async fn in_place_of(
    global: &Global,
    lost: &str,
    cluster: &str,
    test: bool,
    screen: &mut Screen,
) -> anyhow::Result<()> {
    let refuse = |declaration: &Declaration| other(declaration, lost, cluster);
    first_promoted(global, refuse, test, screen).await
}

/// Promotes this host first, if it is a standby whose master does not answer and was not on the
/// host whose member of etcd survives. `cluster` confirms that. With `test` it promotes nothing.
///
/// # Errors
/// No master answers, and it was on the surviving host, or this host cannot be promoted, or `test`
/// is set.
pub async fn for_recovery(
    global: &Global,
    left: &str,
    cluster: &str,
    test: bool,
    screen: &mut Screen,
) -> anyhow::Result<()> {
    let refuse = |declaration: &Declaration| not_lost(declaration, left, cluster);
    first_promoted(global, refuse, test, screen).await
}

/// Promotes this host, if it is a standby whose master does not answer, and nothing forbids it.
async fn first_promoted(
    global: &Global,
    refuse: impl Fn(&Declaration) -> Option<String>,
    test: bool,
    screen: &mut Screen,
) -> anyhow::Result<()> {
    let access = global.access()?;
    let Err(error) = client::operator(global).await else {
        return Ok(());
    };
    let directory = Path::new(STATE_DIR);
    let announcement = match Way::on(directory).filter(|_| access.master.is_none()) {
        None => return Err(error),
        Some(Way::Resume) => {
            "the promotion of this host was interrupted: it is resumed first".to_owned()
        }
        Some(Way::Begin) => {
            let declaration = copied(directory).with_context(|| {
                format!("no master answers, and the copy of this standby cannot be used: {error:#}")
            })?;
            if let Some(reason) = refuse(&declaration) {
                bail!("{error:#}\n{reason}");
            }
            let node = declaration.master_node();
            let host = node.map_or("another host", |node| node.metadata.name.as_str());
            format!(
                "the master was on {host} and does not answer: this standby takes its place first"
            )
        }
    };
    if test {
        bail!(
            "{error:#}\n{announcement}, but not with --test; `ctl master promote --test` shows the promotion"
        );
    }
    screen.note(announcement);
    let before = first(directory);
    let args = MasterPromote {
        force: false,
        cluster: None,
        no_wait: false,
        test: false,
    };
    if !make_master(&args, screen).await? {
        bail!("cannot continue without a master");
    }
    let done = bring(&own(global), before.as_deref(), screen).await?;
    if done.retcode != 0 {
        bail!(
            "this host has the master, but its promotion is incomplete: {}; `ctl master promote` repeats what failed",
            done.failures.join("; ")
        );
    }
    Ok(())
}

/// The kind of promotion that leads to a master on this host.
#[derive(Debug, PartialEq, Eq)]
enum Way {
    /// The host is a standby.
    Begin,
    /// Its promotion was interrupted when the host was no longer a standby; the copy may be gone.
    /// The loss of the old master was confirmed when the promotion started.
    Resume,
}

impl Way {
    /// The kind of promotion for a host with this master directory; `None` if it cannot be
    /// promoted.
    fn on(directory: &Path) -> Option<Self> {
        if directory.join(STANDBY_OF).exists() {
            // Even with the record of a promotion: it may be older than the host's time as a
            // standby.
            return Some(Self::Begin);
        }
        directory
            .join("promotion.json")
            .exists()
            .then_some(Self::Resume)
    }
}

/// The reason why this name does not confirm the command; `None` if it is the cluster's name.
fn not_confirmed(declaration: &Declaration, cluster: &str) -> Option<String> {
    let own = declaration.cluster.metadata.name.to_string();
    (own != cluster).then(|| format!("--cluster {cluster} is not this cluster, which is {own}"))
}

/// The reason why the master is not lost with the lost hosts: it was on the surviving one.
fn not_lost(declaration: &Declaration, left: &str, cluster: &str) -> Option<String> {
    if let Some(reason) = not_confirmed(declaration, cluster) {
        return Some(reason);
    }
    let host = declaration.master_node()?.metadata.name.to_string();
    (host == left).then(|| {
        format!(
            "the master was on {host}, which survives: start it there (`systemctl start halite-master`), then repeat this; \
             `journalctl -u halite-master` shows why it does not serve"
        )
    })
}

/// The reason why the loss of this host does not justify a promotion.
fn other(declaration: &Declaration, lost: &str, cluster: &str) -> Option<String> {
    if let Some(reason) = not_confirmed(declaration, cluster) {
        return Some(reason);
    }
    let host = declaration.master_node()?.metadata.name.to_string();
    (host != lost).then(|| {
        format!(
            "the master was on {host}, and not on {lost}: if {host} is dead, `ctl master promote` makes this host the \
             master's; then repeat this"
        )
    })
}

/// The declaration in the newest complete copy of this standby.
fn copied(directory: &Path) -> anyhow::Result<Declaration> {
    let copies = directory.join("standby");
    let newest = newest(&copies)?
        .with_context(|| format!("there is no complete copy in {}", copies.display()))?;
    let texts = Texts::from_dir(&newest.join("files/config"));
    let declaration = texts.and_then(|texts| load(&texts, &Context::default()));
    declaration.map_err(|problems| {
        let texts: Vec<String> = problems.iter().map(ToString::to_string).collect();
        anyhow::anyhow!(texts.join("\n"))
    })
}

/// The directory of the newest complete copy.
fn newest(copies: &Path) -> anyhow::Result<Option<PathBuf>> {
    let cannot = || format!("cannot read {}", copies.display());
    let mut found: Option<(u64, PathBuf)> = None;
    for entry in std::fs::read_dir(copies).with_context(cannot)? {
        let path = entry.with_context(cannot)?.path();
        let name = path.file_name().and_then(|name| name.to_str());
        let number = name.and_then(|name| name.strip_prefix("copy-")?.parse().ok());
        let Some(number) = number.filter(|_| path.join("copy.json").exists()) else {
            continue;
        };
        if found.as_ref().is_none_or(|(newest, _)| number > *newest) {
            found = Some((number, path));
        }
    }
    Ok(found.map(|(_, path)| path))
}

#[cfg(test)]
mod tests {
    use halite_pillar::node::Node;
    use halite_pillar::role::{BOOTSTRAP_ROLES, Role};

    use super::*;
    use crate::commands::node_list::tests::node;

    const CLUSTER: &str = "apiVersion: halite/v1\nkind: Cluster\nmetadata: {name: prod}\n\
        networks:\n  controlPlane: {cidrs: [10.0.0.0/24]}\nkubernetes: {version: \"1.36\"}\n";

    fn copy(directory: &Path, number: u32, whole: bool) {
        let copy = directory.join(format!("standby/copy-{number}"));
        let nodes = copy.join("files/config/nodes");
        std::fs::create_dir_all(&nodes).unwrap();
        std::fs::write(copy.join("files/config/cluster.yaml"), CLUSTER).unwrap();
        for (name, last, roles) in [
            ("cp-1", 11, &BOOTSTRAP_ROLES[..]),
            ("cp-2", 12, &[Role::ControlPlane, Role::Etcd]),
        ] {
            let text = Node::new(name, Some([10, 0, 0, last].into()), roles).to_text();
            std::fs::write(nodes.join(format!("{name}.yaml")), text).unwrap();
        }
        if whole {
            std::fs::write(copy.join("copy.json"), "{}").unwrap();
        }
    }

    #[test]
    fn an_interrupted_promotion_resumes_when_its_command_is_repeated() {
        let directory = tempfile::tempdir().unwrap();
        let directory = directory.path();
        let (mark, note) = (directory.join(STANDBY_OF), directory.join("promotion.json"));
        assert_eq!(Way::on(directory), None);
        std::fs::write(&mark, "10.0.0.11:4550\n").unwrap();
        assert_eq!(Way::on(directory), Some(Way::Begin));
        // Host and cluster are compared again: until the mark is removed, nothing is decided.
        std::fs::write(&note, "{\"epoch\":2}").unwrap();
        assert_eq!(Way::on(directory), Some(Way::Begin));
        // The copy is gone, and the unit is not started.
        std::fs::remove_file(&mark).unwrap();
        assert_eq!(Way::on(directory), Some(Way::Resume));
        std::fs::remove_file(&note).unwrap();
        assert_eq!(Way::on(directory), None);
    }

    #[test]
    fn ctl_does_not_wait_for_the_lost_host() {
        let directory = tempfile::tempdir().unwrap();
        assert_eq!(first(directory.path()), None);
        std::fs::write(directory.path().join(WAS_STANDBY_OF), "10.0.0.9:4550\n").unwrap();
        assert_eq!(first(directory.path()).as_deref(), Some("10.0.0.9"));
        let mark = "# Written by Halite.\n10.0.0.11:4550\n10.0.0.13:4550\n";
        std::fs::write(directory.path().join(STANDBY_OF), mark).unwrap();
        let before = first(directory.path());
        assert_eq!(before.as_deref(), Some("10.0.0.11"));
        let host = |name: &str, last: u8, is_enrolled: bool, connected: bool| NodeStatus {
            address: Some(format!("10.0.0.{last}")),
            key: is_enrolled.then_some(KeyState::Accepted),
            connected,
            ..node(name)
        };
        let nodes = [
            host("cp-1", 11, true, false),
            host("cp-2", 12, true, true),
            host("cp-3", 13, true, false),
            host("new", 14, false, false),
        ];
        assert_eq!(missing(&nodes, before.as_deref()), ["cp-3"]);
        assert_eq!(missing(&nodes, None), ["cp-1", "cp-3"]);
    }

    #[test]
    fn only_the_loss_of_the_masters_host_is_one_for_a_promotion() {
        let directory = tempfile::tempdir().unwrap();
        std::fs::create_dir(directory.path().join("standby")).unwrap();
        let error = copied(directory.path()).unwrap_err();
        assert!(error.to_string().contains("no complete copy"), "{error}");
        copy(directory.path(), 9, true);
        copy(directory.path(), 10, true);
        copy(directory.path(), 11, false);
        let newest = newest(&directory.path().join("standby")).unwrap().unwrap();
        assert!(newest.ends_with("copy-10"), "{newest:?}");
        let declaration = copied(directory.path()).unwrap();
        assert_eq!(other(&declaration, "cp-1", "prod"), None);
        let reason = other(&declaration, "cp-2", "prod").unwrap();
        assert!(reason.contains("the master was on cp-1"), "{reason}");
        let reason = other(&declaration, "cp-1", "test").unwrap();
        assert!(reason.contains("which is prod"), "{reason}");

        // A surviving member of etcd becomes a cluster: the master was on one of the lost hosts.
        assert_eq!(not_lost(&declaration, "cp-2", "prod"), None);
        let reason = not_lost(&declaration, "cp-1", "prod").unwrap();
        assert!(reason.contains("systemctl start halite-master"), "{reason}");
        let reason = not_lost(&declaration, "cp-2", "test").unwrap();
        assert!(reason.contains("which is prod"), "{reason}");
    }
}
