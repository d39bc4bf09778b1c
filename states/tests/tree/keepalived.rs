//! The move of the virtual address to another host.

use std::fs;

use halite_states::compile;
use serde_json::{Value, json};

use crate::support::{contents, fixture, highstate, make_program, sure, with};

/// The calls: this host answers at the address on lo until another host has had time to take it.
const MOVED: &str = "ip address replace 10.10.0.100/32 dev lo valid_lft 3 preferred_lft 3\nstop\n\
    ip address delete 10.10.0.100/32 dev lo\ntimeout 10\n\
    ip address delete 10.10.0.100/32 dev lo\nstart\n";

/// Runs the command that moves the address; returns its success, and the calls of systemctl, ip and
/// timeout. `curl` is the script that replaces curl, and `seconds` the time that timeout allows
/// whatever it was given.
fn moved(curl: &str, seconds: &str) -> (bool, String) {
    let (pillar, grains) = fixture("bootstrap");
    let sls = ["halite.host.keepalived.aside".to_owned()];
    let compiled = sure(with(&pillar, &grains, |input| compile::step(input, &sls)));
    let mut chunks = compiled.low.chunks.iter();
    let command = chunks.find(|chunk| chunk.id == "vip-elsewhere").unwrap();
    let programs = tempfile::tempdir().unwrap();
    let calls = programs.path().join("calls");
    let systemctl = format!("#!/bin/sh\necho \"$1\" >> '{}'\n", calls.display());
    make_program(&programs.path().join("systemctl"), &systemctl);
    let timeout = format!(
        "#!/bin/sh\necho \"timeout $2\" >> '{}'\nshift 2\nexec /usr/bin/timeout --foreground {seconds} \"$@\"\n",
        calls.display()
    );
    make_program(&programs.path().join("timeout"), &timeout);
    let ip = format!("#!/bin/sh\necho \"ip $*\" >> '{}'\n", calls.display());
    make_program(&programs.path().join("ip"), &ip);
    make_program(
        &programs.path().join("curl"),
        &format!("#!/bin/sh\n{curl}\n"),
    );
    let path = format!("{}:/usr/bin:/bin", programs.path().display());
    let status = std::process::Command::new("/bin/sh")
        .args(["-c", &command.name])
        .env("PATH", path)
        .status()
        .unwrap();
    let calls = fs::read_to_string(calls).unwrap();
    (status.success(), calls)
}

#[test]
fn keepalived_is_restarted_after_ten_seconds_if_no_other_host_takes_the_address() {
    let (success, calls) = moved("exit 28", "0.1");
    assert!(!success);
    assert_eq!(calls, MOVED);
}

#[test]
fn keepalived_competes_again_once_another_host_has_the_address() {
    let (success, calls) = moved("exit 0", "60");
    assert!(success);
    assert_eq!(calls, MOVED);
}

#[test]
fn only_a_host_with_peers_gives_the_address_up_when_its_api_server_is_not_ready() {
    let (mut pillar, grains) = fixture("bootstrap");
    let tracks = |pillar: &Value| {
        let compiled = highstate(pillar, &grains);
        contents(&compiled, "/etc/keepalived/keepalived.conf").contains("track_script")
    };
    assert!(!tracks(&pillar));
    pillar["halite"]["nodes"]["worker-1"]["roles"] = json!(["control-plane"]);
    assert!(tracks(&pillar));
}
