use std::fs;

use halite_testkit::process::make_program;

use super::*;

/// A program in place of `ssh`, which records its arguments and input and then runs a script.
/// `$host` is the destination.
fn fake(user: &str, script: &str) -> (tempfile::TempDir, Ssh) {
    let directory = tempfile::tempdir().unwrap();
    let here = directory.path().display();
    let text = format!(
        "#!/bin/sh\ncd {here}\nprintf '%s\\n' \"$*\" >> arguments\n\
         echo \"$SSH_ASKPASS_REQUIRE $SSH_ASKPASS\" >> askpass\nwhile [ $# -gt 2 ]; do shift; done\nhost=$1\n\
         cat >> input\n{script}\n"
    );
    let program = directory.path().join("ssh");
    make_program(&program, &text);
    let ssh = Ssh::with_program(program, user.parse().unwrap());
    (directory, ssh)
}

#[test]
fn a_user_cannot_be_an_option() {
    for good in ["root", "core", "a.b", "DOMAIN\\a", "a@b"] {
        assert!(good.parse::<SshUser>().is_ok(), "{good}");
    }
    for bad in ["", "-oProxyCommand=x", "a b", "a\nb"] {
        assert_eq!(bad.parse::<SshUser>(), Err(InvalidUser), "{bad}");
    }
}

#[tokio::test]
async fn the_command_goes_to_standard_input_and_no_key_is_trusted_blindly() {
    for (user, shell) in [("root", "sh"), ("admin", "sudo -n sh")] {
        let (directory, ssh) = fake(user, "echo halite-joined");
        let read = |name: &str| fs::read_to_string(directory.path().join(name)).unwrap();
        ssh.join("10.0.0.12", "(true) <<E\nid.secret\nE", "secret")
            .await
            .unwrap();
        let arguments = read("arguments");
        let input = "(true) <<E\nid.secret\nE\n[ $? -eq 0 ] && echo halite-joined\n";
        assert_eq!(read("input"), input);
        assert!(!arguments.contains("secret"), "{arguments}");
        for option in ["BatchMode=yes", "StrictHostKeyChecking=yes"] {
            assert!(arguments.contains(option), "{arguments}");
        }
        let end = format!("-l {user} 10.0.0.12 {shell}\n");
        assert!(arguments.ends_with(&end), "{arguments}");
    }
}

#[tokio::test]
async fn each_failure_has_its_cause_and_remedy() {
    let key = "echo 'Host key verification failed.' >&2; exit 255";
    let changed = format!("echo '@ WARNING: REMOTE HOST IDENTIFICATION HAS CHANGED! @' >&2; {key}");
    let silent = "echo 'ssh: connect to host 10.0.0.12 port 22: No route to host' >&2; exit 255";
    for (script, words) in [
        (key, "accept it with `ssh admin@10.0.0.12`"),
        (changed.as_str(), "ssh-keygen -R 10.0.0.12"),
        (silent, "No route to host; `ssh admin@10.0.0.12` must work"),
        (
            "echo 'sudo: a password is required' >&2; exit 1",
            "cannot use sudo without a password on admin@10.0.0.12: sudo: a password is required",
        ),
        ("exit 3", "it said nothing"),
        // A forced command, which runs no shell.
        (
            "echo 'Please login as the user debian'",
            "cannot use sudo without a password on admin@10.0.0.12: Please login as the user debian",
        ),
        ("exit 0", "it said nothing"),
    ] {
        let (_directory, ssh) = fake("admin", script);
        let said = ssh.check("10.0.0.12").await.unwrap_err().to_string();
        assert!(said.contains(words), "{words}: {said}");
    }
    let missing = Ssh::with_program("/nowhere/ssh".into(), "root".parse().unwrap());
    let error = missing.check("10.0.0.12").await.unwrap_err();
    assert!(matches!(error, SshError::Program(_)), "{error}");
}

#[tokio::test]
async fn a_host_that_repeats_the_token_does_not_bring_it_into_the_error() {
    for script in [
        "echo \"sh: id.secret: not found\" >&2; exit 127",
        "echo \"sh: id.secret: not found\"",
    ] {
        let (_directory, ssh) = fake("root", script);
        let error = ssh.join("a", "x", "secret").await.unwrap_err().to_string();
        assert!(error.contains("sh: id.…: not found"), "{error}");
    }
}

#[tokio::test]
async fn a_host_has_joined_only_if_its_command_succeeds() {
    // The fake runs the script, as the shell of a host does.
    let (_directory, ssh) = fake("root", "sh < input");
    ssh.join("a", "(cat >/dev/null) <<E\nid.secret\nE", "secret")
        .await
        .unwrap();
    let (_directory, ssh) = fake("root", "sh < input");
    let error = ssh.join("a", "(echo no >&2; false)", "secret").await;
    let error = error.unwrap_err().to_string();
    assert_eq!(error, "cannot enrol the host on root@a: no");
}

#[tokio::test]
async fn a_host_that_does_not_finish_may_still_run() {
    let (_directory, ssh) = fake("root", "exec sleep 60");
    let script = Script {
        what: "enrol the host",
        text: "",
        proof: None,
        secret: "",
        limit: Some((Duration::from_millis(50), "check the ports")),
    };
    let error = ssh.run("a", &script).await.unwrap_err().to_string();
    let rest = "it did not finish within 0 s, and may still run there; check the ports";
    assert!(error.ends_with(rest), "{error}");
}

#[tokio::test]
async fn only_a_call_that_may_ask_leaves_the_terminal_to_the_ssh_of_a_jump_host() {
    let (directory, ssh) = fake("root", "echo halite-ready");
    ssh.check("a").await.unwrap();
    ssh.ask("a").await.unwrap();
    let askpass = fs::read_to_string(directory.path().join("askpass")).unwrap();
    let lines: Vec<&str> = askpass.lines().collect();
    assert_eq!(lines[0], "force /bin/false");
    assert_ne!(lines[1], lines[0]);
}
