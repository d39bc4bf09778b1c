//! The kubelet's flags, and its package that is kept while another one replaces it.

use halite_states::compile;
use halite_states::compile::Compiled;
use serde_json::{Value, json};

use crate::script_host::ScriptHost;
use crate::support::{by_id, contents, fixture, highstate, sure, with};

/// The flags of the worker whose node document has these labels.
fn flags(labels: &Value) -> String {
    let (mut pillar, grains) = fixture("worker");
    pillar["halite"]["node"]["labels"] = labels.clone();
    let compiled = highstate(&pillar, &grains);
    contents(&compiled, "/var/lib/kubelet/kubeadm-flags.env").to_owned()
}

/// With any other label of Kubernetes a kubelet does not start, and the API server refuses its
/// node.
#[test]
fn a_node_registers_with_the_labels_that_a_kubelet_may_set() {
    assert!(!flags(&json!({})).contains("node-labels"));
    let text = flags(&json!({
        "disk": "ssd",
        "example.com/empty": "",
        "topology.kubernetes.io/zone": "a",
        "node.kubernetes.io/instance-type": "big",
        "site.node.kubernetes.io/rack": "7",
        "kubelet.kubernetes.io/x": "y",
        "kubernetes.io/role": "no",
        "node-restriction.kubernetes.io/tier": "no",
        "example.k8s.io/x": "no",
    }));
    let wanted = "--node-labels=disk=ssd,example.com/empty=,kubelet.kubernetes.io/x=y,\
                  node.kubernetes.io/instance-type=big,site.node.kubernetes.io/rack=7,\
                  topology.kubernetes.io/zone=a\"";
    assert!(text.trim_end().ends_with(wanted), "{text}");
}

#[test]
fn declared_flags_of_the_kubelet_follow_its_own() {
    let (mut pillar, grains) = fixture("worker");
    pillar["halite"]["kubelet"]["extraArgs"] = json!({
        "image-credential-provider-config": "/etc/providers.yaml",
        "allowed-unsafe-sysctls": ["net.core.somaxconn", "kernel.shm*"],
    });
    let compiled = highstate(&pillar, &grains);
    let text = contents(&compiled, "/var/lib/kubelet/kubeadm-flags.env");
    let wanted = " --allowed-unsafe-sysctls=net.core.somaxconn --allowed-unsafe-sysctls=kernel.shm* \
                  --image-credential-provider-config=/etc/providers.yaml\"";
    assert!(
        text.contains("--node-ip=") && text.trim_end().ends_with(wanted),
        "{text}"
    );
}

/// The worker, whose bundle has this version of the kubelet.
fn worker(version: &str) -> Compiled {
    let (mut pillar, grains) = fixture("worker");
    pillar["halite"]["packages"]["kubelet"] = json!(version);
    highstate(&pillar, &grains)
}

const KEPT: &str = "/var/lib/halite/kubelet";

/// A host with this version of the kubelet, of which only some versions start.
fn machine(installed: &str, starts: &str) -> ScriptHost {
    let starts = format!("grep -Eq '^installed kubelet=({starts})$' $S/installed");
    let programs = [
        // Downloads `NAME=VERSION` unless the repository is gone, and installs such a file.
        (
            "apt-get",
            "for word; do case $word in -*) ;; install) test -e $S/refuses && exit 100;; kubelet=*) test -e $S/gone && exit 100; echo \"installed $word\" >k.deb;; \
             *.deb) cp $word $S/installed;; esac; done"
                .to_owned(),
        ),
        ("systemctl", "exit 0".to_owned()),
        ("timeout", format!("{starts} && echo 'HTTP/1.0 200 OK'")),
        ("dpkg", "exit 0".to_owned()),
        ("journalctl", "echo unknown flag".to_owned()),
    ];
    let host = ScriptHost::new("", "/var/lib/kubelet", KEPT, &programs);
    install(&host, installed);
    for file in ["config.yaml", "kubeadm-flags.env"] {
        host.write(&format!("/var/lib/kubelet/{file}"), "old\n");
    }
    host
}

fn install(host: &ScriptHost, version: &str) {
    host.write("/installed", &format!("installed kubelet={version}\n"));
}

#[test]
fn the_running_kubelet_is_kept_before_the_repository_changes() {
    let (mut pillar, grains) = fixture("worker");
    pillar["halite"]["packages"]["kubelet"] = json!("2");
    // A host gets the next repository with the images, long before the rest of its next bundle.
    let ahead = sure(with(&pillar, &grains, |input| {
        compile::step(input, &["halite.images.ahead".to_owned()])
    }));
    for compiled in [&worker("2"), &ahead] {
        let (place, kept) = by_id(compiled, "kubelet-kept");
        assert!(place < by_id(compiled, "halite-repository").0);
        assert!(
            self::machine("2", "2").run(kept).is_none(),
            "nothing is replaced"
        );
        let machine = self::machine("1", "1");
        assert!(machine.run(kept).unwrap().status.success());
        assert_eq!(machine.read(&format!("{KEPT}/package")), "kubelet=1\n");
        assert!(machine.run(kept).is_none(), "it is there");
    }
    // The power failed while the package was replaced.
    let machine = self::machine("1", "1");
    let compiled = worker("3");
    machine.run(by_id(&compiled, "kubelet-kept").1).unwrap();
    for installed in ["", "installed kubelet=1\ninstalled kubelet=3\n"] {
        machine.write("/installed", installed);
        let again = machine.run(by_id(&compiled, "kubelet-kept").1);
        assert!(again.is_none(), "{installed:?}");
    }

    let machine = self::machine("1", "1");
    machine.write("/gone", "");
    let compiled = worker("2");
    let said = machine.run(by_id(&compiled, "kubelet-kept").1).unwrap();
    assert!(said.status.success());
    let said = String::from_utf8_lossy(&said.stdout).into_owned();
    assert!(said.contains("cannot keep the package"), "{said}");
    let starts = by_id(&compiled, "kubelet-starts").1;
    assert!(machine.run(starts).is_none(), "nothing is there");
}

#[test]
fn a_kubelet_that_does_not_start_gets_its_package_and_configuration_back() {
    let compiled = worker("2");
    let (place, starts) = by_id(&compiled, "kubelet-starts");
    assert!(by_id(&compiled, "kubelet-program").0 < place);
    let replaced = |works: &str| {
        let machine = self::machine("1", works);
        machine.run(by_id(&compiled, "kubelet-kept").1).unwrap();
        assert!(machine.run(starts).is_none(), "nothing was replaced");
        install(&machine, "2");
        machine.write("/var/lib/kubelet/config.yaml", "new\n");
        let said = machine.run(starts).unwrap();
        let text = String::from_utf8_lossy(&said.stderr).into_owned();
        (machine, said.status.code(), text)
    };
    let (machine, code, said) = replaced("1");
    assert_eq!(code, Some(1), "the run fails in any case");
    for part in ["(kubelet=1)", "are back, and it runs", "unknown flag"] {
        assert!(said.contains(part), "{part:?} is not in {said}");
    }
    assert_eq!(machine.read("/installed"), "installed kubelet=1\n");
    assert_eq!(machine.read("/var/lib/kubelet/config.yaml"), "old\n");

    let (machine, code, said) = replaced("2|1");
    assert_eq!(code, Some(0), "{said}");
    assert_eq!(machine.read("/installed"), "installed kubelet=2\n");
    // It is not needed any more; the old one serves until the new one is started.
    let chunks = &compiled.low.chunks;
    let removed = chunks
        .iter()
        .find(|chunk| chunk.function() == "file.absent" && chunk.name == KEPT);
    let needs = &removed.unwrap().requisites.require;
    assert_eq!(needs[..], [by_id(&compiled, "kubelet-program").0, place]);

    let (_, code, said) = replaced("3");
    assert_eq!(code, Some(1));
    assert!(said.contains("neither the new kubelet"), "{said}");

    let machine = self::machine("1", "3");
    machine.run(by_id(&compiled, "kubelet-kept").1).unwrap();
    install(&machine, "2");
    machine.write("/refuses", "");
    let said = machine.run(starts).unwrap();
    let said = String::from_utf8_lossy(&said.stderr).into_owned();
    assert!(
        said.contains("cannot be installed (exit code 100)"),
        "{said}"
    );
}
