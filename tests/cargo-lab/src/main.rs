//! `cargo lab`: the demonstration, the suites, and commands to inspect the lab.

mod demo;
mod write_loop;

use std::path::PathBuf;
use std::process::ExitCode;
use std::time::Duration;

use anyhow::{Context as _, Result};
use clap::{Parser, Subcommand};
use halite_lab::host::Host;
use halite_lab::progress::Board;
use halite_lab::{Lab, capacity, layout, resolver, scan};
use halite_upstream::prepare;
use halite_upstream::versions::{FULL, NEWEST, RELEASES, Release};

/// Real hosts on one machine: the demonstration and the tests of Halite. A master and a minion
/// without hosts: `cargo lab try`.
#[derive(Parser)]
#[command(name = "cargo lab")]
struct Arguments {
    #[command(subcommand)]
    verb: Verb,
}

#[derive(Subcommand)]
enum Verb {
    /// Build everything, boot two bare hosts, bootstrap one from the bundle, add the other, and
    /// leave them running. Replaces the lab's existing hosts.
    Demo {
        /// The lab; several can run in parallel.
        #[arg(long, default_value = demo::DEMO)]
        lab: String,
        /// Boot cp-1, cp-2, cp-3 and worker-1; bootstrap cp-1, and add cp-2 and cp-3 as control
        /// planes, then worker-1. The machine has room for it only while no other cluster runs.
        #[arg(long)]
        ha: bool,
        /// The minor version of Kubernetes. With the older one, the control planes also have the
        /// ISO of the newest one, and the end names the commands that upgrade the cluster to it.
        #[arg(long, value_name = "MINOR", default_value = NEWEST.minor(), value_parser = demo::DemoBundles::of)]
        kubernetes: demo::DemoBundles,
    },
    /// Run the fixed list of tests that each change must pass: format, lint, unit and protocol
    /// tests, and suites on two clusters of real hosts.
    Test {
        /// All tests instead, which takes many hours; see --part.
        #[arg(long)]
        full: bool,
        /// Keep the cluster of the suites running afterwards, and reuse a running one.
        #[arg(long)]
        keep: bool,
        /// Only print the names of the tests.
        #[arg(long)]
        list: bool,
        /// Only the remaining tests of part N of M, recorded in a ledger in the lab's cache.
        /// Another run of the part continues where this one ended. Exit code 3: nothing failed, and
        /// there is more to run.
        #[arg(long, value_name = "N/M", requires = "full", conflicts_with = "keep")]
        part: Option<halite_suites::TestPart>,
        /// Minutes after which no further test of the part starts.
        #[arg(long, value_name = "N", requires = "part", default_value_t = halite_suites::PART_MINUTES)]
        minutes: u64,
        /// Only tests whose name contains one of these.
        filter: Vec<String>,
    },
    /// Print each test of --full with its last outcome for this source tree, and what has not run
    /// yet. Succeeds if all have passed.
    Ledger {
        /// Write the times of the tests that have passed to docs/dev/test-times.tsv.
        #[arg(long)]
        write: bool,
        /// Also count results from this commit and later ones, and print the files that have
        /// changed since.
        #[arg(long, value_name = "COMMIT")]
        since: Option<String>,
    },
    /// Measure speed and size, bootstrap against a shell script around kubeadm, and print a table.
    Bench {
        /// Only this part.
        what: Option<halite_bench::BenchPart>,
        /// The lab.
        #[arg(long, default_value = halite_bench::BENCH)]
        lab: String,
    },
    /// Stop a lab and remove its files.
    Down {
        /// The lab.
        #[arg(long, default_value = demo::DEMO)]
        lab: String,
    },
    /// Cut the power of hosts, of all at the same moment: every process is killed, nothing is shut
    /// down.
    PowerOff {
        /// The lab.
        #[arg(long, default_value = demo::DEMO)]
        lab: String,
        /// The hosts.
        #[arg(required = true, value_name = "HOST")]
        hosts: Vec<String>,
        /// Destroy their disks too: power-on boots bare hosts of the same names and addresses.
        #[arg(long)]
        destroy: bool,
    },
    /// Boot hosts whose power was cut, in this order.
    PowerOn {
        /// The lab.
        #[arg(long, default_value = demo::DEMO)]
        lab: String,
        /// The hosts.
        #[arg(required = true, value_name = "HOST")]
        hosts: Vec<String>,
    },
    /// Cut the link between two hosts.
    LinkOff(Link),
    /// Restore the link between two hosts.
    LinkOn(Link),
    /// Run a command in a host.
    Sh {
        /// The lab.
        #[arg(long, default_value = demo::DEMO)]
        lab: String,
        /// The host.
        host: String,
        /// The command; a shell by default.
        #[arg(last = true)]
        command: Vec<String>,
    },
    /// Show the hosts of a lab and the findings of the detectors.
    Status {
        /// The lab.
        #[arg(long, default_value = demo::DEMO)]
        lab: String,
    },
    /// Build Halite, the upstream and the bundle, and print the bundle's path.
    Bundle(Wanted),
    /// Build Halite, the upstream and the bundle, seal and sign it as an ISO, and print its path.
    Iso(Wanted),
    /// Make the files of a release: archives, Debian packages, the documentation, checksums and
    /// their signature. An earlier release in the same directory is replaced.
    Release {
        /// The new directory; default: target/halite-VERSION.
        #[arg(long)]
        out: Option<PathBuf>,
        /// The key that signs: an OpenSSH private key, or a public key whose private half is in
        /// ssh-agent. Default: a key of the lab, which no user trusts.
        #[arg(long, value_name = "FILE")]
        key: Option<PathBuf>,
    },
    /// The lab's name server; runs in the router's namespace.
    #[command(hide = true)]
    Resolver {
        /// File in which to record the queried names.
        log: PathBuf,
    },
    /// Write to an API every 50 ms from the namespace in which this runs, until standard input
    /// ends; prints JSON.
    #[command(hide = true)]
    WriteLoop(write_loop::Arguments),
    /// Scan TCP ports of an address from the namespace in which this runs; prints JSON.
    #[command(hide = true)]
    Scan {
        /// `10.10.0.11`, `fe80::1%eth0`
        address: String,
        /// The TCP ports to probe; all by default.
        #[arg(long)]
        only: Vec<u16>,
        /// UDP ports that get one packet each.
        #[arg(long)]
        udp: Vec<u16>,
        /// TCP ports to probe once more if they do not answer.
        #[arg(long)]
        again: Vec<u16>,
    },
}

/// A bundle.
#[derive(clap::Args)]
struct Wanted {
    /// The minor version of Kubernetes.
    #[arg(long, value_name = "MINOR", default_value = NEWEST.minor(), value_parser = release)]
    kubernetes: Release,
    /// With addons, a chart and the site registry; the older Kubernetes always has them.
    #[arg(long)]
    full: bool,
}

impl Wanted {
    fn release(&self) -> &Release {
        if self.full && self.kubernetes == NEWEST {
            &FULL
        } else {
            &self.kubernetes
        }
    }
}

/// The link between two hosts.
#[derive(clap::Args)]
struct Link {
    /// The lab.
    #[arg(long, default_value = demo::DEMO)]
    lab: String,
    /// One host.
    from: String,
    /// The other.
    to: String,
    /// Only packets from the first to the other.
    #[arg(long)]
    one_way: bool,
}

impl Link {
    /// Does the work for each direction: sender, receiver.
    fn each(&self, work: fn(&Lab, &Host, &Host) -> Result<()>) -> Result<()> {
        let lab = open(&self.lab)?;
        let (from, to) = (lab.host(&self.from)?, lab.host(&self.to)?);
        for host in [&from, &to] {
            host.is_on()?;
        }
        work(&lab, &from, &to)?;
        if !self.one_way {
            work(&lab, &to, &from)?;
        }
        Ok(())
    }
}

fn main() -> ExitCode {
    match run(Arguments::parse().verb) {
        Ok(code) => code,
        Err(error) => {
            eprintln!("lab: {error:#}");
            ExitCode::FAILURE
        }
    }
}

/// A minor version on the command line.
fn release(minor: &str) -> Result<Release> {
    let known = RELEASES.map(|release| release.minor()).join(", ");
    Release::find(minor).with_context(|| format!("the lab has Kubernetes {known}"))
}

fn open(name: &str) -> Result<Lab> {
    Lab::new(name, &halite_lab::cache().join("base-root"))
}

/// The state of a host's power and disks.
fn power(host: &Host) -> String {
    match host.init() {
        Some(pid) => format!("up (init {pid})"),
        None if host.has_disks() => "off".to_owned(),
        None => "off, no disks".to_owned(),
    }
}

fn status(lab: &Lab) -> Result<()> {
    let hosts = lab.hosts()?;
    if hosts.is_empty() {
        println!("the lab {} has no hosts", lab.name);
        return Ok(());
    }
    for host in hosts {
        println!(
            "{:<14} {:<18} {}, {}",
            host.spec.name,
            power(&host),
            host.control_plane_address(),
            host.workload_address()
        );
    }
    match lab.nothing_tried_to_leave() {
        Ok(()) => println!("nothing tried to leave"),
        Err(error) => println!("{error:#}"),
    }
    Ok(())
}

fn make_release(out: Option<PathBuf>, key: Option<PathBuf>) -> Result<()> {
    let is_ours = key.is_none();
    let options = halite_release::Options { out, key };
    let made = halite_release::make(&options, &Board::for_terminal())?;
    println!("{}", made.display());
    println!(
        "verify it there, as its users do:\n\n{}",
        halite_release::VERIFY
    );
    if is_ours {
        println!(
            "a key of the lab has signed it; to publish a release, name your own key with --key"
        );
    }
    Ok(())
}

fn run(verb: Verb) -> Result<ExitCode> {
    let mut progress = |line: &str| println!("  {line}");
    let uses_a_running_lab = matches!(
        verb,
        Verb::Test { keep: true, .. } | Verb::Test { list: true, .. }
    );
    if matches!(
        verb,
        Verb::Demo { .. } | Verb::Test { .. } | Verb::Bench { .. } | Verb::Bundle(_) | Verb::Iso(_)
    ) && !uses_a_running_lab
    {
        capacity::for_a_run()?;
    }
    match verb {
        Verb::Demo {
            lab,
            ha,
            kubernetes,
        } => {
            let layout = if ha { &layout::HA } else { &layout::TWO };
            demo::demo(&open(&lab)?, layout, &kubernetes)?;
        }
        Verb::Test {
            full,
            keep,
            list,
            part,
            minutes,
            filter,
        } => {
            let options = halite_suites::Options {
                full,
                keep,
                part: part.map(|part| (part, Duration::from_secs(60 * minutes))),
                filter,
            };
            if !list {
                return halite_suites::main(options);
            }
            halite_suites::list(&options)?;
        }
        Verb::Ledger { write, since } => return halite_suites::ledger(write, since.as_deref()),
        Verb::Bench {
            what: Some(halite_bench::BenchPart::Bundle),
            ..
        } => halite_bench::bundle(&mut progress)?,
        Verb::Bench {
            what: Some(halite_bench::BenchPart::Pings),
            ..
        } => halite_bench::pings(&mut progress)?,
        Verb::Bench {
            what: Some(halite_bench::BenchPart::Ha),
            lab,
        } => halite_bench::ha(&lab, &mut progress)?,
        Verb::Bench { what: None, lab } => halite_bench::bench(&lab, &mut progress)?,
        Verb::Down { lab } => open(&lab)?.down()?,
        Verb::Sh { lab, host, command } => {
            let command = if command.is_empty() {
                vec!["bash".to_owned(), "-l".to_owned()]
            } else {
                command
            };
            let status = open(&lab)?.host(&host)?.command(&command)?.status()?;
            return Ok(u8::try_from(status.code().unwrap_or(255))
                .map_or(ExitCode::FAILURE, ExitCode::from));
        }
        Verb::PowerOff {
            lab,
            hosts,
            destroy,
        } => {
            open(&lab)?.power_off(&hosts, destroy)?;
            let state = if destroy {
                "off, its disks are destroyed"
            } else {
                "off"
            };
            for host in hosts {
                println!("{host}: {state}");
            }
        }
        Verb::PowerOn { lab, hosts } => {
            let lab = open(&lab)?;
            lab.power_on(&hosts)?;
            for host in hosts {
                println!("{host}: {}", power(&lab.host(&host)?));
            }
        }
        Verb::LinkOff(link) => link.each(Lab::cut_link)?,
        Verb::LinkOn(link) => link.each(Lab::restore_link)?,
        Verb::Status { lab } => status(&open(&lab)?)?,
        Verb::Bundle(wanted) => {
            let bundle = prepare::bundle_of(wanted.release(), &Board::for_terminal())?;
            println!("{}", bundle.display());
        }
        Verb::Iso(wanted) => {
            let directory = prepare::iso_directory_of(wanted.release(), &Board::for_terminal())?;
            println!("{}", directory.join(halite_upstream::ISO).display());
        }
        Verb::Release { out, key } => make_release(out, key)?,
        Verb::Resolver { log } => resolver::serve(&log)?,
        Verb::WriteLoop(arguments) => arguments.serve()?,
        Verb::Scan {
            address,
            only,
            udp,
            again,
        } => {
            println!(
                "{}",
                serde_json::to_string(&scan::scan(&address, &only, &udp, &again)?)?
            );
        }
    }
    Ok(ExitCode::SUCCESS)
}
