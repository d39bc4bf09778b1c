//! `ctl bootstrap`: from a bare host and a bundle to a control plane.
//!
//! Until everything is known to be good it only looks: documents, host and bundle are checked in
//! one report, and the whole plan is made from the bundle. Then the declaration is written, master
//! and minion are installed, and the minion enrols. All that follows is ordinary orchestration, the
//! same code as for any other node. Every step may be repeated: the same command goes on where it
//! was cut off, and on a finished host it repairs.

mod authority;
mod daemon;
mod declare;
mod install;
mod medium;

use std::io::{BufRead as _, IsTerminal as _, Write as _};
use std::path::{Path, PathBuf};
use std::time::Instant;

use anyhow::{Context as _, bail};
use halite_document::Problem;
use halite_manifest::Manifest;
use halite_pillar::bundle_facts::SiteBundle;
use halite_proto::v1;
use halite_states::low::RunReturn;
use halite_states::tree::DirTree;
use serde_json::{Value, json};

use self::declare::{Declared, Given};
use self::medium::Medium;
use crate::cli::{Bootstrap, Global};
use crate::commands::finish;
use crate::compile::{Source, report};
use crate::minion::Minion;
use crate::output::returns::View;
use crate::output::{Screen, returns};
use crate::site::{CONFIG, Site};
use crate::{FAILED, follow, preflight};

pub use self::declare::CLUSTER_MODE;

/// The orchestration that makes a control plane of the first host.
pub const ORCHESTRATION: &str = halite_states::shipped::BOOTSTRAP;

/// What every step works with.
struct Ground {
    /// Where the bundle can be read.
    bundle: PathBuf,
    /// Where it will stand.
    site: PathBuf,
    manifest: Manifest,
    /// The bundles that stand on this site already.
    others: Vec<SiteBundle>,
    minion: Minion,
    grains: Value,
    name: String,
}

/// Carries it out; answers with the exit code.
///
/// # Errors
/// What went wrong, for people.
pub async fn run(global: &Global, args: &Bootstrap, screen: &mut Screen) -> anyhow::Result<u8> {
    let started = Instant::now();
    let document = Path::new(CONFIG).join("cluster.yaml");
    if let Some(reason) = closed(&document, std::fs::File::open(&document).map(drop)) {
        bail!(reason);
    }
    let here = Site::here();
    let medium = match Medium::open(&here, args, screen)? {
        Ok(medium) => medium,
        Err(problems) => return damaged(args, problems, screen).await,
    };
    let (bundle, site) = (medium.bundle.clone(), medium.site.clone());
    let manifest = halite_manifest::manifest::load(&bundle)?;
    let minion = Minion::find(Some(&bundle.join("bin/halite-minion")));
    let grains = minion.grains().await?;
    let name = name(args);
    let mut ground = Ground {
        bundle,
        site,
        manifest,
        others: here.others(),
        minion,
        grains,
        name,
    };

    let given = Given::read(Path::new(CONFIG), args.config.as_deref(), &ground.name)?;
    let declared = given.load(&ground);
    let findings = findings(&ground, &given, &declared).await;
    let declared = match declared {
        Ok(declared) if preflight::passed(&findings) => declared,
        _ => return refuse(&findings, screen),
    };
    let paint = screen.paint();
    screen.line(preflight::report(&findings, paint));

    let plan = plan(&ground, &declared, screen).await?;
    let summary = format!(
        "plan         {}: {} states, {} to change",
        ground.name,
        plan.states.len(),
        plan.changed()
    );
    if args.test || !plan.succeeded() {
        let code = if plan.succeeded() { 0 } else { FAILED };
        let view = View {
            test: true,
            verbose: false,
        };
        let document = json!({"preflight": preflight::document(&findings), "changed": false,
            "plan": {"states": plan.states, "changed": plan.changed(), "failed": plan.failed()}});
        screen.answer(&document, |paint| {
            let changes = declared.changes(Path::new(CONFIG));
            format!(
                "{changes}{}{summary}\nNothing was changed.\n",
                returns::run(&ground.name, &plan, view, paint)
            )
        })?;
        return Ok(code);
    }
    screen.line(&summary);
    let changes = declared.changes(Path::new(CONFIG));
    if !changes.is_empty() {
        screen.line(changes.trim_end());
    }
    if !args.yes && !confirmed(&declared, &ground.name, screen)? {
        screen.note("Nothing was changed.");
        return Ok(FAILED);
    }

    medium.settle(&here, screen)?;
    ground.bundle.clone_from(&ground.site);
    declared.write(Path::new(CONFIG))?;
    install::install(global, &ground, &declared, screen).await?;
    let request = v1::OrchestrateRequest {
        sls: ORCHESTRATION.to_owned(),
        ..v1::OrchestrateRequest::default()
    };
    let done = follow::orchestration(global, request, &ground.name, screen).await?;
    // From the first look at the host on, not only the orchestration.
    let done = follow::RunDone {
        seconds: started.elapsed().as_secs_f64(),
        ..done
    };
    let good = "Ready. kubectl works on this host; `ctl status` shows the cluster";
    let again = std::env::args().collect::<Vec<_>>().join(" ");
    finish(&done, good, &again, screen)
}

/// On a host that has a cluster document only root can read it: without it nothing else can be
/// checked. On a bare host the preflight says that root is needed, together with all else.
fn closed(document: &Path, opened: std::io::Result<()>) -> Option<String> {
    let denied = opened.is_err_and(|error| error.kind() == std::io::ErrorKind::PermissionDenied);
    denied.then(|| {
        format!(
            "this host has a cluster already, and what is declared for it ({}) can only be read by root: run the same \
             command as root, for example with sudo. Nothing was changed.",
            document.display()
        )
    })
}

fn name(args: &Bootstrap) -> String {
    let host = || {
        rustix::system::uname()
            .nodename()
            .to_string_lossy()
            .into_owned()
    };
    args.name.clone().unwrap_or_else(host)
}

/// Nothing of a damaged bundle is used, not even its program that looks at the host. What can be
/// found out without it is told all the same.
async fn damaged(
    args: &Bootstrap,
    problems: Vec<String>,
    screen: &mut Screen,
) -> anyhow::Result<u8> {
    let name = name(args);
    let given = Given::read(Path::new(CONFIG), args.config.as_deref(), &name)?;
    let mut facts =
        preflight::Facts::gather(given.wanted(), jiff::Timestamp::now().as_second()).await;
    facts.bundle = problems;
    facts.documents = given.problems();
    facts.name = name;
    facts.installed = given.installed();
    refuse(&preflight::run(&facts), screen)
}

/// Shows what is wrong; nothing was changed.
fn refuse(findings: &[preflight::Finding], screen: &mut Screen) -> anyhow::Result<u8> {
    let document = json!({"preflight": preflight::document(findings), "changed": false});
    screen.answer(&document, |paint| {
        format!(
            "{}\nNothing was changed.\n",
            preflight::report(findings, *paint)
        )
    })?;
    Ok(FAILED)
}

fn temporary() -> anyhow::Result<tempfile::TempDir> {
    tempfile::tempdir().context("there is no room for temporary files")
}

fn bundle_problems(
    bundle: &Path,
    sha256: &str,
    screen: &mut Screen,
) -> anyhow::Result<Vec<String>> {
    let mut told = |text: &str| screen.progress(&format!("bundle: {text}"));
    let report = halite_bundle::verify_same(bundle, sha256, &mut told)?;
    Ok(report.problems.iter().map(ToString::to_string).collect())
}

/// Documents, host and bundle: everything that is wrong, in one list.
async fn findings(
    ground: &Ground,
    given: &Given,
    declared: &Result<Declared, Vec<halite_document::Problem>>,
) -> Vec<preflight::Finding> {
    let wanted = declared
        .as_ref()
        .map_or_else(|_| given.wanted(), Declared::wanted);
    let mut facts = preflight::Facts::gather(wanted, jiff::Timestamp::now().as_second()).await;
    if let Err(problems) = declared {
        facts.documents = problems.iter().map(ToString::to_string).collect();
    }
    facts.name.clone_from(&ground.name);
    facts.built = ground
        .manifest
        .built
        .parse::<jiff::Timestamp>()
        .ok()
        .map(jiff::Timestamp::as_second);
    facts.installed = given.installed();
    let host = halite_pillar::host_facts::HostFacts::from_grains(&ground.name, &ground.grains);
    facts.addresses = host.addresses.values().flatten().copied().collect();
    preflight::run(&facts)
}

/// The bundle's state tree with the operator's own states laid over it.
fn tree(bundle: &Path) -> DirTree {
    DirTree::new()
        .mount("custom", Path::new(CONFIG).join("custom"))
        .bundle(bundle)
}

/// Compiles the named SLS files, or the highstate, and gives them to the bundle's minion program.
async fn local(
    ground: &Ground,
    declared: &Declared,
    sls: &[&str],
    test: bool,
) -> anyhow::Result<RunReturn> {
    let authority = authority::Authority::read(Path::new(authority::DIRECTORY));
    let pillar = declared.view(&authority.pki(), &ground.name)?;
    let tree = tree(&ground.bundle);
    let source = Source {
        tree: &tree,
        minion: &ground.name,
        pillar: &pillar,
        grains: &ground.grains,
        bundle: Some((&ground.bundle, &ground.manifest)),
    };
    let names: Vec<String> = sls.iter().map(ToString::to_string).collect();
    let mut compiled = source
        .compile(&names)
        .map_err(|problems| not_compiled(&tree, problems))?;
    let blobs = temporary()?;
    source.lay_out(&compiled, blobs.path())?;
    authority.fill(&mut compiled.low, declared, &ground.name)?;
    ground.minion.apply(&compiled.low, blobs.path(), test).await
}

/// Says whose states do not compile: only the operator can mend his own, and only he cannot mend
/// the bundle's.
fn not_compiled(tree: &DirTree, problems: Vec<Problem>) -> anyhow::Error {
    let own = |problem: &Problem| tree.mounted(&problem.file).is_some();
    let whose = match problems.iter().filter(|problem| own(problem)).count() {
        0 => "the states of the bundle do not compile for this host".to_owned(),
        count if count == problems.len() => {
            format!(
                "your own states ({CONFIG}/custom) do not compile for this host; nothing was changed"
            )
        }
        _ => format!(
            "states of the bundle and your own ({CONFIG}/custom) do not compile for this host"
        ),
    };
    anyhow::anyhow!("{}", report(&tree.placed(problems))).context(whose)
}

async fn plan(
    ground: &Ground,
    declared: &Declared,
    screen: &mut Screen,
) -> anyhow::Result<RunReturn> {
    screen.progress("plan: comparing this host with what is declared");
    local(ground, declared, &[], true).await
}

fn confirmed(declared: &Declared, name: &str, screen: &mut Screen) -> anyhow::Result<bool> {
    if !std::io::stdin().is_terminal() {
        bail!("nobody can be asked here; with --yes nobody is");
    }
    screen.clear();
    eprint!(
        "Make {name} the first host of the cluster {}? [y/N] ",
        declared.cluster()
    );
    std::io::stderr().flush()?;
    let mut answer = String::new();
    std::io::stdin().lock().read_line(&mut answer)?;
    Ok(matches!(answer.trim(), "y" | "Y" | "yes"))
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::declare::tests::{CLUSTER, ground};
    use super::*;

    /// The tree as the bundle ships it, for a host that is still bare.
    fn compile(sls: &[&str]) -> halite_states::compile::Compiled {
        let dir = tempfile::tempdir().unwrap();
        let config = dir.path().join("cluster.yaml");
        let document = format!("{CLUSTER}apiServer: {{vip: 10.0.0.100}}\n");
        std::fs::write(&config, document).unwrap();
        let mut ground = ground("bootstrap-1");
        for file in [
            "bin/ctl",
            "bin/halite-master",
            "bin/halite-minion",
            "apt/halite.gpg",
        ] {
            let entry =
                serde_json::from_value(json!({"sha256": "0".repeat(64), "size": 1})).unwrap();
            ground.manifest.files.insert(file.to_owned(), entry);
        }
        for package in [
            "kubelet",
            "kubeadm",
            "kubectl",
            "containerd",
            "kubernetes-cni",
        ] {
            ground
                .manifest
                .packages
                .insert(package.to_owned(), "1-1".to_owned());
        }
        ground.grains["os"] = json!("Debian");
        ground.grains["os_family"] = json!("Debian");
        ground.grains["oscodename"] = json!("bookworm");
        let declared = Given::read(&dir.path().join("etc"), Some(&config), "bootstrap-1")
            .unwrap()
            .load(&ground);
        let declared = declared.unwrap_or_else(|problems| panic!("{problems:?}"));
        let pillar = declared
            .view(&authority::Authority::default().pki(), "bootstrap-1")
            .unwrap();
        let tree =
            DirTree::new().root(Path::new(env!("CARGO_MANIFEST_DIR")).join("../states/tree"));
        let source = Source {
            tree: &tree,
            minion: "bootstrap-1",
            pillar: &pillar,
            grains: &ground.grains,
            bundle: Some((&ground.bundle, &ground.manifest)),
        };
        let names: Vec<String> = sls.iter().map(ToString::to_string).collect();
        let mut compiled = source
            .compile(&names)
            .unwrap_or_else(|error| panic!("{}", report(&error)));
        authority::Authority::default()
            .fill(&mut compiled.low, &declared, "bootstrap-1")
            .unwrap();
        compiled
    }

    #[test]
    fn the_shipped_tree_compiles_for_a_bare_first_host() {
        let low = compile(&[]).low;
        assert!(low.chunks.len() > 50, "{}", low.chunks.len());
        let sls: BTreeSet<&str> = low.chunks.iter().map(|chunk| chunk.sls.as_str()).collect();
        for wanted in [
            "halite.base.etcd",
            "halite.base.control_plane",
            "halite.services.master",
            "halite.services.minion",
            "halite.host.keepalived",
        ] {
            assert!(sls.contains(wanted), "{wanted} is not in {sls:?}");
        }
        assert!(
            !serde_json::to_string(&low)
                .unwrap()
                .contains(halite_secrets::reference::PREFIX)
        );
    }

    #[test]
    fn the_tree_brings_both_daemons_and_restarts_each() {
        for daemon in [daemon::MASTER, daemon::MINION] {
            let chunks = compile(&[daemon.sls]).low.chunks;
            let asks = chunks.iter().find(|chunk| chunk.id == daemon.asks).unwrap();
            assert!(
                asks.name
                    .ends_with(&format!("systemctl restart {}", daemon.unit)),
                "{}",
                asks.name
            );
            assert!(
                chunks.iter().any(|chunk| chunk.function() == "file.managed" && chunk.name == daemon.program)
            );
            let restart = compile(&[daemon.restart]).low.chunks;
            let lines: Vec<&str> = restart.iter().map(|chunk| chunk.name.as_str()).collect();
            assert_eq!(
                lines,
                [format!(
                    "systemctl daemon-reload && systemctl restart {}",
                    daemon.unit
                )]
            );
        }
    }

    #[test]
    fn an_installed_host_says_that_root_is_needed() {
        let document = Path::new("/etc/halite/cluster.yaml");
        let opened = |kind: std::io::ErrorKind| closed(document, Err(kind.into()));
        let text = opened(std::io::ErrorKind::PermissionDenied).unwrap();
        assert!(
            text.contains("/etc/halite/cluster.yaml") && text.contains("sudo"),
            "{text}"
        );
        assert_eq!(
            opened(std::io::ErrorKind::NotFound),
            None,
            "a bare host: the preflight says it all"
        );
        assert_eq!(closed(document, Ok(())), None);
    }

    #[test]
    fn whose_states_do_not_compile_is_said() {
        let directory = tempfile::tempdir().unwrap();
        let (own, bundle) = (
            directory.path().join("own"),
            directory.path().join("bundle"),
        );
        for (directory, file) in [(&own, "mine.sls"), (&bundle, "x.sls")] {
            std::fs::create_dir(directory).unwrap();
            std::fs::write(directory.join(file), "y:\n  file.managde: []\n").unwrap();
        }
        let tree = DirTree::new().mount("custom", &own).root(&bundle);
        let none = json!({});
        let source = Source {
            tree: &tree,
            minion: "a",
            pillar: &none,
            grains: &none,
            bundle: None,
        };
        let said = |sls: &[&str]| {
            let names: Vec<String> = sls.iter().map(ToString::to_string).collect();
            format!(
                "{:#}",
                not_compiled(&tree, source.compile(&names).unwrap_err())
            )
        };
        let text = said(&["custom.mine"]);
        let file = own.join("mine.sls").canonicalize().unwrap();
        assert!(
            text.starts_with("your own states (/etc/halite/custom)"),
            "{text}"
        );
        assert!(
            text.contains(&format!("{}:2:3: ", file.display())),
            "{text}"
        );
        assert!(said(&["x"]).starts_with("the states of the bundle do not compile"));
        assert!(said(&["x", "custom.mine"]).starts_with("states of the bundle and your own"));
    }

    #[test]
    fn what_is_installed_before_the_master_runs_needs_no_authority() {
        for sls in ["halite.services.master", "halite.services.minion"] {
            let low = compile(&[sls]).low;
            assert!(
                !serde_json::to_string(&low)
                    .unwrap()
                    .contains(halite_pillar::view::UNKNOWN),
                "{sls}"
            );
            assert!(low.chunks.iter().all(|chunk| !chunk.sensitive), "{sls}");
        }
    }
}
