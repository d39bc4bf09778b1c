use std::cell::Cell;
use std::fs;
use std::time::Duration;

use anyhow::bail;
use halite_testkit::process::make_program;

use super::*;
use crate::output::Format;

/// A program in place of `ssh`. It counts the calls that run at the same time; 10.0.0.7 does not
/// answer, and the key of 10.0.0.8 is not known until the operator accepts it.
const FAKE: &str = r#"
all=$*
while [ $# -gt 2 ]; do shift; done
case $1 in
  10.0.0.7)
    echo 'ssh: connect to host 10.0.0.7 port 22: Connection timed out' >&2
    exit 255 ;;
  10.0.0.8)
    case $all in *StrictHostKeyChecking=ask*) touch known ;; esac
    [ -e known ] || { echo 'Host key verification failed.' >&2; exit 255; } ;;
esac
touch "running.$$"
ls running.* | wc -l >> counts
input=$(cat)
case $input in
  *command-of-*)
    echo "$1 $(echo "$input" | head -n 1)" >> joined
    echo halite-joined ;;
  *) echo halite-ready ;;
esac
sleep 0.1
rm "running.$$"
"#;

struct Fake {
    directory: tempfile::TempDir,
    ssh: Ssh,
}

impl Fake {
    fn new() -> Self {
        let directory = tempfile::tempdir().unwrap();
        let program = directory.path().join("ssh");
        let here = directory.path().display();
        make_program(&program, &format!("#!/bin/sh\ncd {here}{FAKE}"));
        let ssh = Ssh::with_program(program, "root".parse().unwrap());
        Self { directory, ssh }
    }

    fn lines(&self, name: &str) -> Vec<String> {
        let text = fs::read_to_string(self.directory.path().join(name)).unwrap_or_default();
        text.lines().map(str::to_owned).collect()
    }
}

fn hosts(count: u8) -> Vec<SshHost> {
    let host = |number: u8| SshHost {
        name: format!("worker-{number}"),
        destination: format!("10.0.0.{number}"),
        is_connected: number == 2,
    };
    (1..=count).map(host).collect()
}

async fn declared(names: &BTreeSet<&str>, _: &mut Screen) -> anyhow::Result<Vec<v1::AddedNode>> {
    let node = |name: &&str| v1::AddedNode {
        name: (*name).to_owned(),
        token: "id.secret.ca".to_owned(),
        command: format!("command-of-{name}"),
    };
    Ok(names.iter().map(node).collect())
}

fn said(outcome: &anyhow::Result<FinishedRun>) -> String {
    outcome
        .as_ref()
        .err()
        .map_or_else(String::new, |error| format!("{error:#}"))
}

#[tokio::test]
async fn one_host_that_does_not_answer_stops_no_other() {
    let fake = Fake::new();
    let hosts = hosts(10);
    let screen = &mut Screen::new(Format::Json);
    let run = async |name: &str, _: &RefCell<&mut Screen>| {
        if name == "worker-5" {
            bail!("the preflight found a problem");
        }
        Ok(FinishedRun::default())
    };
    let outcomes = add_hosts(&fake.ssh, &hosts, false, declared, run, screen)
        .await
        .unwrap();
    let names: Vec<&str> = outcomes.iter().map(|(name, _)| name.as_str()).collect();
    let expected: Vec<&str> = hosts.iter().map(|host| host.name.as_str()).collect();
    assert_eq!(names, expected);
    for (name, outcome) in &outcomes {
        let words = match name.as_str() {
            "worker-7" => "Connection timed out; `ssh root@10.0.0.7` must work",
            "worker-8" => "is in no known_hosts file",
            "worker-5" => "the preflight found a problem",
            _ => "",
        };
        assert!(said(outcome).contains(words), "{name}: {}", said(outcome));
        assert_eq!(outcome.is_ok(), words.is_empty(), "{name}");
    }
    // Not worker-2, which has enrolled before.
    let mut joined = fake.lines("joined");
    joined.sort();
    let expected = [1, 10, 3, 4, 5, 6, 9].map(|n| format!("10.0.0.{n} command-of-worker-{n}"));
    assert_eq!(joined, expected);
    let counts = fake.lines("counts");
    let most = counts
        .iter()
        .map(|count| count.trim().parse::<usize>().unwrap());
    let most = most.max().unwrap();
    assert!((2..=AT_ONCE).contains(&most), "{counts:?}");
}

#[tokio::test]
async fn the_same_command_again_completes_the_rest_once_a_key_is_accepted() {
    let fake = Fake::new();
    let hosts = hosts(8).split_off(7);
    let screen = &mut Screen::new(Format::Json);
    let run = async |_: &str, _: &RefCell<&mut Screen>| Ok(FinishedRun::default());
    let first = add_hosts(&fake.ssh, &hosts, false, declared, run, screen).await;
    assert!(first.unwrap()[0].1.is_err());
    assert_eq!(fake.lines("joined"), [""; 0]);
    let second = add_hosts(&fake.ssh, &hosts, true, declared, run, screen).await;
    assert!(second.unwrap()[0].1.is_ok());
    assert_eq!(fake.lines("joined"), ["10.0.0.8 command-of-worker-8"]);
}

#[tokio::test]
async fn hosts_that_do_not_answer_are_not_declared() {
    let fake = Fake::new();
    let screen = &mut Screen::new(Format::Json);
    let run = async |_: &str, _: &RefCell<&mut Screen>| Ok(FinishedRun::default());
    let names = RefCell::new(Vec::new());
    let declare = async |reached: &BTreeSet<&str>, screen: &mut Screen| {
        names
            .borrow_mut()
            .extend(reached.iter().map(|name| (*name).to_owned()));
        declared(reached, screen).await
    };
    add_hosts(&fake.ssh, &hosts(8), false, declare, run, screen)
        .await
        .unwrap();
    let expected = [1, 2, 3, 4, 5, 6].map(|number| format!("worker-{number}"));
    assert_eq!(*names.borrow(), expected);
    let only = hosts(7).split_off(6);
    let declare = async |_: &BTreeSet<&str>, _: &mut Screen| bail!("nothing is to be declared");
    let outcomes = add_hosts(&fake.ssh, &only, false, declare, run, screen).await;
    assert!(outcomes.unwrap()[0].1.is_err());
}

#[tokio::test]
async fn hosts_that_do_not_answer_are_named_although_the_others_are_refused() {
    let fake = Fake::new();
    let path = fake.directory.path().join("stderr");
    let out = fs::File::create(fake.directory.path().join("stdout")).unwrap();
    let screen = &mut Screen::on(Format::Json, out, fs::File::create(&path).unwrap());
    let declare = async |_: &BTreeSet<&str>, _: &mut Screen| bail!("the address is taken");
    let run = async |_: &str, _: &RefCell<&mut Screen>| Ok(FinishedRun::default());
    let error = add_hosts(&fake.ssh, &hosts(7), false, declare, run, screen).await;
    assert_eq!(error.unwrap_err().to_string(), "the address is taken");
    let said = fs::read_to_string(path).unwrap();
    assert!(said.contains("worker-7: cannot log in to"), "{said}");
}

#[tokio::test]
async fn runs_of_many_hosts_are_a_few_at_a_time_and_none_waits_for_a_slow_one() {
    let fake = Fake::new();
    let mut hosts = hosts(6);
    for host in &mut hosts {
        host.is_connected = true;
    }
    let (now, most, ended) = (Cell::new(0), Cell::new(0), Cell::new(0));
    let run = async |name: &str, _: &RefCell<&mut Screen>| {
        now.set(now.get() + 1);
        most.set(most.get().max(now.get()));
        if name == "worker-1" {
            while ended.get() < 5 {
                tokio::time::sleep(Duration::from_millis(1)).await;
            }
        }
        tokio::task::yield_now().await;
        now.set(now.get() - 1);
        ended.set(ended.get() + 1);
        Ok(FinishedRun::default())
    };
    let screen = &mut Screen::new(Format::Json);
    let outcomes = add_hosts(&fake.ssh, &hosts, false, declared, run, screen).await;
    assert!(outcomes.unwrap().iter().all(|(_, outcome)| outcome.is_ok()));
    assert_eq!((most.get(), ended.get()), (AT_ONCE, 6));
}

#[tokio::test]
async fn without_ssh_nothing_is_declared() {
    let ssh = Ssh::with_program("/nowhere/ssh".into(), "root".parse().unwrap());
    let screen = &mut Screen::new(Format::Json);
    let declare = async |_: &BTreeSet<&str>, _: &mut Screen| bail!("nothing is to be declared");
    let run = async |_: &str, _: &RefCell<&mut Screen>| Ok(FinishedRun::default());
    let error = add_hosts(&ssh, &hosts(1), false, declare, run, screen).await;
    let error = error.unwrap_err().to_string();
    assert!(error.contains("openssh-client"), "{error}");
}
