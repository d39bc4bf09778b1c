//! `ctl bootstrap`: makes a bare host the first one of a cluster, from a bundle.
//!
//! At first it changes nothing: it checks documents, host and bundle in one report, and makes the
//! plan from the bundle. Then it writes the declaration, installs master and minion, and enrols the
//! minion. The rest is an ordinary orchestration, as for any other node. Every step may be
//! repeated: the same command resumes an interrupted bootstrap, and repairs a finished host.

mod authority;
mod bundle;
mod clock;
pub mod daemon;
mod declaration;
mod install;
mod local_states;
mod restore;
mod scratch;

use std::path::{Path, PathBuf};
use std::time::Instant;

use anyhow::bail;
use halite_api::{BootstrapPlan, PlannedStates, to_value};
use halite_manifest::Manifest;
use halite_pillar::bundle_facts::SiteBundle;
use halite_pillar::masters::STANDBY_OF;
use halite_proto::v1;
use halite_secret_file::SecretFile;
use halite_states::low::RunReturn;
use serde_json::Value;

use self::bundle::BootstrapBundle;
use self::declaration::{Declared, InitialDocuments};
use self::local_states::apply;
use self::restore::Restore;
use crate::cli::{Bootstrap, Global};
use crate::confirm::confirmed;
use crate::minion::Minion;
use crate::orchestration_watch::{FinishedRun, print_outcome, run_orchestration};
use crate::output::returns::View;
use crate::output::{Screen, returns};
use crate::paths::{CONFIG, STATE_DIR};
use crate::preflight::HostRequirements;
use crate::site::Site;
use crate::{FAILED, masters, preflight};

/// The orchestration that makes the first host a control plane.
pub const ORCHESTRATION: &str = halite_states::shipped::BOOTSTRAP;

/// The input of all steps.
struct Preparation {
    /// The directory in which the bundle can be read now.
    bundle: PathBuf,
    /// The directory in which it will be installed.
    site: PathBuf,
    manifest: Manifest,
    /// The bundles that are installed on this site.
    others: Vec<SiteBundle>,
    minion: Minion,
    grains: Value,
    name: String,
}

/// Runs `ctl bootstrap` and returns the exit code.
///
/// # Errors
/// A step failed.
pub async fn run(global: &Global, args: &Bootstrap, screen: &mut Screen) -> anyhow::Result<u8> {
    let started = Instant::now();
    let document = Path::new(CONFIG).join("cluster.yaml");
    if let Some(reason) = unreadable(&document, std::fs::File::open(&document).map(drop)) {
        bail!(reason);
    }
    if let Some(master) = masters::host_in(&Path::new(STATE_DIR).join(STANDBY_OF)) {
        bail!(
            "cannot bootstrap this host: it is a standby of the master at {master}; `ctl highstate` repairs the cluster, and \
             `ctl master promote` brings the master here"
        );
    }
    let here = Site::here();
    let mut restore = Restore::open(args, screen)?;
    let checked = match BootstrapBundle::open(&here, args, screen)? {
        Ok(checked) => checked,
        Err(problems) => return damaged(args, restore.as_ref(), problems, screen).await,
    };
    let (bundle, site) = (checked.bundle.clone(), checked.site.clone());
    let manifest = halite_manifest::manifest::load(&bundle)?;
    let minion = Minion::find(Some(&bundle.join("bin/halite-minion")));
    let grains = minion.grains().await?;
    let name = name(args);
    let mut preparation = Preparation {
        bundle,
        site,
        manifest,
        others: here.others(),
        minion,
        grains,
        name,
    };

    let given = args.config.as_deref();
    let initial = documents(given, &preparation.name, restore.as_ref())?;
    let declared = initial.load(&preparation);
    let mut findings = findings(&preparation, &initial, &declared, restore.as_ref()).await;
    preflight::ignore(&mut findings, &args.ignore_preflight);
    let declared = match declared {
        Ok(declared) if preflight::passed(&findings) => declared,
        _ => return refuse(&findings, screen),
    };
    let paint = screen.paint();
    screen.line(preflight::report(&findings, paint));
    if let Some(restore) = &restore {
        restore.refuse_living(&declared, &preparation.name)?;
        screen.line(restore.summary());
    }

    let changes = declared.changes(|name| match &restore {
        Some(restore) => restore.document(name),
        None => std::fs::read_to_string(Path::new(CONFIG).join(name)).ok(),
    });
    let plan = plan(&preparation, &declared, screen).await?;
    let summary = format!(
        "plan         {}: {} states, {} to change",
        preparation.name,
        plan.states.len(),
        plan.changed()
    );
    if args.test || !plan.succeeded() {
        let code = if plan.succeeded() { 0 } else { FAILED };
        let view = View {
            test: true,
            verbose: false,
        };
        let document = BootstrapPlan {
            preflight: preflight::document(&findings),
            changed: false,
            plan: Some(PlannedStates {
                states: plan.states.clone(),
                changed: plan.changed(),
                failed: plan.failed(),
            }),
        };
        screen.answer(&to_value(&document), |paint| {
            format!(
                "{changes}{}{summary}\nNothing was changed.\n",
                returns::run(&preparation.name, &plan, view, paint)
            )
        })?;
        return Ok(code);
    }
    screen.line(&summary);
    if !changes.is_empty() {
        screen.line(changes.trim_end());
    }
    if !confirmed(&question(&declared, &preparation.name), args.yes, screen)? {
        return Ok(FAILED);
    }

    checked.install(&here, screen)?;
    preparation.bundle.clone_from(&preparation.site);
    let time = clock::set(&declared, screen).await?;
    if let Some(restore) = &mut restore {
        restore.place(&preparation, &declared, time, screen)?;
    }
    declared.write(Path::new(CONFIG))?;
    if let Some(restore) = &mut restore {
        restore.placed()?;
    }
    install::install(global, &preparation, &declared, screen).await?;
    let request = v1::OrchestrateRequest {
        sls: ORCHESTRATION.to_owned(),
        ..v1::OrchestrateRequest::default()
    };
    let done = run_orchestration(global, request, &preparation.name, screen).await?;
    if let Some(restore) = restore.filter(|_| done.retcode == 0) {
        restore.finish()?;
    }
    // The duration of the whole bootstrap, not only of the orchestration.
    let done = FinishedRun {
        seconds: started.elapsed().as_secs_f64(),
        ..done
    };
    let good = "Ready. kubectl works on this host; `ctl status` shows the cluster";
    let again = std::env::args().collect::<Vec<_>>().join(" ");
    print_outcome(&done, good, &again, screen)
}

/// The message about a cluster document that only root can read: without it, nothing can be
/// checked. On a bare host, the preflight reports the missing privilege together with all other
/// problems.
fn unreadable(document: &Path, opened: std::io::Result<()>) -> Option<String> {
    let denied = opened.is_err_and(|error| error.kind() == std::io::ErrorKind::PermissionDenied);
    denied.then(|| {
        format!(
            "cannot read {}, the document of this host's cluster: permission denied; run the same command as root, for example \
             with sudo. Nothing was changed.",
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

/// The documents of the host, or of the backup until the restore has put them on the host.
fn documents(
    given: Option<&Path>,
    name: &str,
    restore: Option<&Restore>,
) -> anyhow::Result<InitialDocuments> {
    let config = restore.map_or(CONFIG.into(), Restore::config);
    let mut initial = InitialDocuments::read(&config, given, name)?;
    let file = SecretFile::new(&config, Path::new(STATE_DIR));
    let opened = initial.open_secrets(&file, restore.map_or(&[], Restore::keys));
    // A restore without a key for them continues as far as it can, and says so.
    if restore.is_none() {
        opened?;
    }
    if restore.is_some_and(Restore::is_bare) {
        return initial.of_bare_host(&config, name);
    }
    Ok(initial)
}

/// Adds the facts about an existing cluster or Kubernetes on the host.
fn add_existing(
    facts: &mut preflight::NodeFacts,
    initial: &InitialDocuments,
    restore: Option<&Restore>,
) {
    facts.existing = initial.existing();
    if let Some(restore) = restore {
        facts.kubernetes = restore.foreign(std::mem::take(&mut facts.kubernetes));
    }
}

/// Reports a damaged bundle. Nothing in it is used, not even its minion program, so only the checks
/// that work without it are reported as well.
async fn damaged(
    args: &Bootstrap,
    restore: Option<&Restore>,
    problems: Vec<String>,
    screen: &mut Screen,
) -> anyhow::Result<u8> {
    let name = name(args);
    let initial = documents(args.config.as_deref(), &name, restore)?;
    let mut facts =
        preflight::NodeFacts::collect(initial.requirements(), jiff::Timestamp::now().as_second())
            .await;
    facts.bundle = problems;
    facts.documents = initial.problems();
    facts.name = name;
    add_existing(&mut facts, &initial, restore);
    refuse(&preflight::run(&facts), screen)
}

/// Prints the report of the checks, and that nothing was changed.
fn refuse(findings: &[preflight::Finding], screen: &mut Screen) -> anyhow::Result<u8> {
    let document = BootstrapPlan {
        preflight: preflight::document(findings),
        changed: false,
        plan: None,
    };
    screen.answer(&to_value(&document), |paint| {
        format!(
            "{}\nNothing was changed.\n",
            preflight::report(findings, *paint)
        )
    })?;
    Ok(FAILED)
}

fn bundle_problems(
    bundle: &Path,
    sha256: &str,
    screen: &mut Screen,
) -> anyhow::Result<Vec<String>> {
    let mut progress = |text: &str| screen.progress(&format!("bundle: {text}"));
    let report = halite_bundle::verify_same(bundle, sha256, &mut progress)?;
    Ok(report.problems.iter().map(ToString::to_string).collect())
}

/// Checks documents, host and bundle.
async fn findings(
    preparation: &Preparation,
    initial: &InitialDocuments,
    declared: &Result<Declared, Vec<halite_document::Problem>>,
    restore: Option<&Restore>,
) -> Vec<preflight::Finding> {
    let requirements = declared
        .as_ref()
        .map_or_else(|_| initial.requirements(), Declared::requirements);
    let packages = declared.as_ref().map_or_else(
        |_| preflight::packages_of_first_host(&preparation.manifest.packages),
        |declared| declared.packages(&preparation.name),
    );
    let requirements = HostRequirements {
        packages,
        ..requirements
    };
    let mut facts =
        preflight::NodeFacts::collect(requirements, jiff::Timestamp::now().as_second()).await;
    if let Err(problems) = declared {
        facts.documents = problems.iter().map(ToString::to_string).collect();
    }
    facts.name.clone_from(&preparation.name);
    facts.built = preparation
        .manifest
        .built
        .parse::<jiff::Timestamp>()
        .ok()
        .map(jiff::Timestamp::as_second);
    add_existing(&mut facts, initial, restore);
    let host =
        halite_pillar::host_facts::HostFacts::from_grains(&preparation.name, &preparation.grains);
    facts.addresses = host.addresses.values().flatten().copied().collect();
    preflight::run(&facts)
}

async fn plan(
    preparation: &Preparation,
    declared: &Declared,
    screen: &mut Screen,
) -> anyhow::Result<RunReturn> {
    screen.progress("plan: comparing this host with the declaration");
    apply(preparation, declared, &[], true).await
}

fn question(declared: &Declared, name: &str) -> String {
    let cluster = declared.cluster();
    match declared.is_first(name) {
        true => format!("Make {name} the first host of the cluster {cluster}?"),
        false => format!("Repair {name}, the master's host of the cluster {cluster}?"),
    }
}

#[cfg(test)]
mod tests;
