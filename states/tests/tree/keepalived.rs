//! The move of the virtual address to another host.

use std::fs;
use std::time::{Duration, Instant};

use halite_states::compile;

use crate::support::{fixture, make_program, sure, with};

/// The longest time without keepalived where no other host takes the address: ten seconds, and the start of
/// a few programs.
const LIMIT: Duration = Duration::from_secs(20);

/// Runs the command that moves the address; answers with its success, the calls of systemctl and the time.
/// `curl` is the script in place of curl.
fn moved(curl: &str) -> (bool, String, Duration) {
    let (pillar, grains) = fixture("bootstrap");
    let sls = ["halite.host.keepalived.aside".to_owned()];
    let compiled = sure(with(&pillar, &grains, |input| compile::sls(input, &sls)));
    let mut chunks = compiled.low.chunks.iter();
    let command = chunks.find(|chunk| chunk.id == "vip-elsewhere").unwrap();
    let programs = tempfile::tempdir().unwrap();
    let calls = programs.path().join("calls");
    let systemctl = format!("#!/bin/sh\necho \"$1\" >> '{}'\n", calls.display());
    make_program(&programs.path().join("systemctl"), &systemctl);
    make_program(
        &programs.path().join("curl"),
        &format!("#!/bin/sh\n{curl}\n"),
    );
    let path = format!("{}:/usr/bin:/bin", programs.path().display());
    let begin = Instant::now();
    let status = std::process::Command::new("/bin/sh")
        .args(["-c", &command.name])
        .env("PATH", path)
        .status()
        .unwrap();
    let calls = fs::read_to_string(calls).unwrap();
    (status.success(), calls, begin.elapsed())
}

/// To an address that no host has, curl uses the whole of its second.
#[test]
fn keepalived_is_started_again_soon_where_no_other_host_takes_the_address() {
    let (success, calls, lasted) = moved("sleep 1; exit 28");
    assert!(!success);
    assert_eq!(calls, "stop\nstart\n");
    assert!(lasted < LIMIT, "{lasted:?}");
}

#[test]
fn keepalived_competes_again_once_another_host_has_the_address() {
    let (success, calls, lasted) = moved("exit 0");
    assert!(success);
    assert_eq!(calls, "stop\nstart\n");
    assert!(lasted < LIMIT, "{lasted:?}");
}
