//! The packages of a container runtime that are kept while others replace them, and put back if
//! those do not serve.

use halite_states::compile::Compiled;
use serde_json::{Value, json};

use crate::script_host::ScriptHost;
use crate::support::{by_id, fixture, highstate};

/// The worker, with a bundle that makes these packages, and has a runc of that version.
fn worker(made: &[(&str, &str)], runc: &str) -> Compiled {
    let (mut pillar, grains) = fixture("worker");
    pillar["halite"]["packages"]["runc"] = json!(runc);
    for (name, version) in made {
        pillar["halite"]["packages"][*name] = json!(version);
        pillar["halite"]["components"][*name] = json!(version);
    }
    highstate(&pillar, &grains)
}

/// The worker, with a bundle that makes both packages.
fn newer() -> Compiled {
    worker(&BUNDLE, "2-1")
}

const KEPT: &str = "/var/lib/halite/runtime";

/// A host with these packages, whose runtime serves with containerd 1 only.
fn machine(installed: &str) -> ScriptHost {
    let serves = "grep -q '^installed containerd=1$' $S/installed";
    let programs = [
        // Downloads `NAME=VERSION` unless the repository is gone, and installs such files unless it
        // refuses.
        (
            "apt-get",
            "for word; do case $word in -*) ;; download) test -e $S/gone && exit 100;; install) test -e $S/refuses && exit 100;; \
             *.deb) cat $word;; runc=*) test -e $S/no-runc && exit 100; echo \"installed $word\" >runc.deb;; containerd=*) echo \"installed $word\" >containerd.deb;; esac; done >$S/said; \
             case \"$*\" in *install*) mv $S/said $S/installed;; esac"
                .to_owned(),
        ),
        (
            "systemctl",
            format!(
                "case \"$*\" in *is-active*) if test -e $S/active; then echo active; else echo failed; exit 3; fi;; restart*) if {serves}; then : >$S/active; else rm -f \
                 $S/active; exit 1; fi;; esac"
            ),
        ),
        (
            "ctr",
            format!("{serves} && echo 'io.containerd.grpc.v1    cri    -    ok    '"),
        ),
        ("dpkg", "echo \"$*\" >>$S/dpkg".to_owned()),
        ("journalctl", "echo bad ELF".to_owned()),
    ];
    let host = ScriptHost::new(installed, "/etc/containerd", KEPT, &programs);
    host.write("/etc/containerd/config.toml", "old\n");
    host.write("/active", "");
    host
}

const OLD: &str = "installed containerd=1\ninstalled runc=1.1+ds1\n";
const NEW: &str = "installed containerd=2\ninstalled runc=2-1\n";
const BUNDLE: [(&str, &str); 2] = [("containerd", "2"), ("runc", "2-1")];

#[test]
fn a_distributions_runc_is_not_pinned_and_one_that_the_bundle_makes_is() {
    let runc = |compiled: &Compiled| {
        let packages = &by_id(compiled, "host-packages").1.args["pkgs"];
        let mut packages = packages.as_array().unwrap().iter();
        let is_runc = |entry: &&Value| **entry == json!("runc") || entry.get("runc").is_some();
        packages.find(is_runc).cloned()
    };
    let distributions = worker(&[("containerd", "2")], "1.1.5+ds1-1+deb12u1");
    assert_eq!(runc(&distributions), Some(json!("runc")));
    assert_eq!(runc(&newer()), Some(json!({"runc": "2-1"})));
}

#[test]
fn the_running_packages_are_kept_before_the_repository_changes() {
    let compiled = newer();
    let (place, kept) = by_id(&compiled, "containerd-kept");
    let (repository, _) = by_id(&compiled, "halite-repository");
    let (packages, _) = by_id(&compiled, "host-packages");
    assert!(place < repository && repository < packages);

    for installed in ["", "installed runc=1\n", NEW] {
        let machine = self::machine(installed);
        assert!(
            machine.run(kept).is_none(),
            "{installed:?}: nothing is replaced"
        );
    }
    let machine = self::machine(OLD);
    assert!(machine.run(kept).unwrap().status.success());
    assert_eq!(
        machine.read(&format!("{KEPT}/packages")),
        "containerd=1\nrunc=1.1+ds1\n"
    );
    assert_eq!(machine.read(&format!("{KEPT}/config.toml")), "old\n");
    // The repository is the new one by now, and has no old package any more.
    machine.write("/gone", "");
    assert!(machine.run(kept).is_none(), "they are there");
}

#[test]
fn a_host_whose_old_bundle_is_gone_keeps_nothing_and_continues() {
    let compiled = newer();
    let machine = self::machine(OLD);
    machine.write("/gone", "");
    let said = machine.run(by_id(&compiled, "containerd-kept").1).unwrap();
    assert!(said.status.success());
    let said = String::from_utf8_lossy(&said.stdout).into_owned();
    assert!(said.contains("cannot keep the packages"), "{said}");
    let restored = by_id(&compiled, "containerd-restored").1;
    assert!(machine.run(restored).is_none(), "nothing is there");
}

/// A bundle has no package of a distribution's runc that was updated since.
#[test]
fn a_runc_that_cannot_be_downloaded_does_not_keep_containerd_from_it() {
    let machine = self::machine(OLD);
    machine.write("/no-runc", "");
    machine.run(by_id(&newer(), "containerd-kept").1).unwrap();
    assert_eq!(
        machine.read(&format!("{KEPT}/packages")),
        "containerd=1\n",
        "the record has what is there"
    );
}

/// Each is what a host may find after its power failed while packages were replaced. The repository
/// may have any of these packages.
#[test]
fn an_interrupted_transaction_does_not_change_what_is_kept() {
    let compiled = newer();
    let kept = by_id(&compiled, "containerd-kept").1;
    for mixture in [
        "",
        "installed containerd=1\n",
        "installed containerd=1\ninstalled runc=2-1\n",
        "installed containerd=2\ninstalled runc=1.1+ds1\n",
        "installed containerd=1\ninstalled containerd=2\ninstalled runc=2-1\n",
    ] {
        let machine = self::machine(OLD);
        machine.run(kept).unwrap();
        machine.write("/installed", mixture);
        assert!(machine.run(kept).is_none(), "{mixture:?}");
    }
    // Two versions of one package: neither is known to serve.
    let two = "installed containerd=1\ninstalled containerd=2\n";
    assert!(self::machine(two).run(kept).is_none());
}

#[test]
fn a_runtime_that_does_not_serve_gets_its_packages_and_configuration_back() {
    let compiled = newer();
    let machine = self::machine(OLD);
    machine.run(by_id(&compiled, "containerd-kept").1).unwrap();
    let (place, restored) = by_id(&compiled, "containerd-restored");
    assert!(machine.run(restored).is_none(), "the runtime serves");
    for id in ["containerd", "containerd-program", "containerd-answers"] {
        let (target, _) = by_id(&compiled, id);
        assert!(restored.requisites.onfail.contains(&target) && target < place);
    }
    machine.write("/installed", NEW);
    machine.write("/etc/containerd/config.toml", "new\n");
    machine.remove("/active");

    let said = machine.run(restored).unwrap();
    assert_eq!(said.status.code(), Some(1), "the run fails in any case");
    let said = String::from_utf8_lossy(&said.stderr).into_owned();
    for part in [
        "(containerd=1 runc=1.1+ds1)",
        "are back, and serve",
        "bad ELF",
    ] {
        assert!(said.contains(part), "{part:?} is not in {said}");
    }
    assert_eq!(machine.read("/installed"), OLD);
    assert_eq!(machine.read("/etc/containerd/config.toml"), "old\n");
    assert!(machine.exists("/active"));
    let finished = machine.read("/dpkg");
    assert!(finished.contains("--configure -a"), "{finished}");
}

#[test]
fn a_configuration_that_was_not_there_is_removed_again() {
    let compiled = newer();
    let machine = self::machine(OLD);
    let config = "/etc/containerd/config.toml";
    machine.remove(config);
    machine.run(by_id(&compiled, "containerd-kept").1).unwrap();
    machine.write("/installed", NEW);
    machine.write(config, "new\n");
    let restored = by_id(&compiled, "containerd-restored").1;
    let said = machine.run(restored).unwrap();
    let said = String::from_utf8_lossy(&said.stderr).into_owned();
    assert!(said.contains("are back, and serve"), "{said}");
    assert!(!machine.exists(config));
}

#[test]
fn packages_that_cannot_be_put_back_are_not_said_to_be() {
    let compiled = newer();
    let restored = by_id(&compiled, "containerd-restored").1;
    for (installed, part) in [
        (OLD, "but it serves with the previous configuration"),
        (NEW, "the new container runtime does not serve, and the"),
    ] {
        let machine = self::machine(OLD);
        machine.run(by_id(&compiled, "containerd-kept").1).unwrap();
        machine.write("/installed", installed);
        machine.write("/refuses", "");
        machine.remove("/active");
        let said = machine.run(restored).unwrap();
        assert_eq!(said.status.code(), Some(1));
        let said = String::from_utf8_lossy(&said.stderr).into_owned();
        for part in [part, "cannot be installed (exit code 100)", "bad ELF"] {
            assert!(said.contains(part), "{part:?} is not in {said}");
        }
        assert!(!said.contains("are back"), "{said}");
    }
}

#[test]
fn a_previous_runtime_that_does_not_serve_either_is_reported() {
    let compiled = newer();
    let machine = self::machine(&OLD.replace("containerd=1", "containerd=0"));
    machine.run(by_id(&compiled, "containerd-kept").1).unwrap();
    let said = machine.run(by_id(&compiled, "containerd-restored").1);
    let said = String::from_utf8_lossy(&said.unwrap().stderr).into_owned();
    assert!(said.contains("neither the new container runtime"), "{said}");
}

#[test]
fn nothing_is_kept_once_the_new_runtime_serves() {
    let compiled = newer();
    let chunks = &compiled.low.chunks;
    let removed = chunks
        .iter()
        .find(|chunk| chunk.function() == "file.absent" && chunk.name == KEPT);
    let (answers, _) = by_id(&compiled, "containerd-answers");
    assert_eq!(removed.unwrap().requisites.require, [answers]);
}

/// It pulls its images long before the rest of its new bundle. `ctl bootstrap` and `ctl node add`
/// of a newer bundle replace packages in their first step.
#[test]
fn a_host_that_gets_the_new_repository_first_keeps_its_packages_then() {
    use halite_states::compile;

    use crate::support::{sure, with};
    let (mut pillar, grains) = fixture("worker");
    pillar["halite"]["packages"]["containerd"] = json!("2");
    let mut steps = vec![vec!["halite.images.ahead".to_owned()]];
    let (mut master, here) = fixture("master");
    master["node"] = json!("worker-1");
    master["roles"] = json!(["worker"]);
    for orchestration in ["bootstrap", "add_node"] {
        let names = [format!("halite.orchestrate.{orchestration}")];
        let compiled = sure(with(&master, &here, |input| compile::step(input, &names)));
        let sls = by_id(&compiled, "host").1.args["sls"].clone();
        steps.push(serde_json::from_value(sls).unwrap());
    }
    for step in steps {
        let ahead = sure(with(&pillar, &grains, |input| compile::step(input, &step)));
        let (repository, _) = by_id(&ahead, "halite-repository");
        for id in ["containerd-kept", "kubelet-kept"] {
            assert!(by_id(&ahead, id).0 < repository, "{id} in {step:?}");
        }
    }
}
