use clap::CommandFactory as _;

use super::*;

#[test]
fn the_command_line_is_consistent() {
    Cli::command().debug_assert();
}

#[test]
fn options_that_no_example_has_are_valid_together() {
    for line in [
        "ctl bootstrap --config cluster.yaml --yes --bundle /media/halite",
        "ctl node add worker-1 --address 10.10.1.12 --roles worker --no-wait -o json",
        "ctl master retire cp-1 --force --cluster prod --packages --wipe-data --timeout 5m -o json",
        "ctl node remove worker-1 -y --packages --delete-emptydir-data --timeout 5m",
        "ctl node remove cp-2 --dead --force --cluster prod --wipe-data",
        "ctl node drain worker-1 --ignore-daemonsets --delete-emptydir-data --force --grace-period 0s --timeout 5m --test",
        "ctl destroy --force --cluster prod --packages --skip-offline --wipe-data",
        "ctl etcd defrag cp-2 --test -o json",
        "ctl kubeconfig --ttl 8760h --force",
        "ctl highstate -C web-* --timeout 5m",
        "ctl apply worker-* custom.motd --batch 1",
        "ctl certs renew --batch 2 --yes",
        "ctl bundle remove 0.1.0 --force --yes",
        "ctl registry backup --data /srv/registry --out /mnt/backup --keep 30 -o json",
        "ctl registry backup --out /srv/registry-backup --report /var/lib/halite/reports/registry-backup.json",
        "ctl registry verify /srv/registry-backup --report /var/lib/halite/reports/registry-verify.json",
        "ctl registry restore /srv/registry-backup --yes",
    ] {
        Cli::try_parse_from(line.split(' ')).unwrap_or_else(|error| panic!("{line}: {error}"));
    }
}

#[test]
fn force_needs_the_name_of_the_cluster() {
    assert!(Cli::try_parse_from(["ctl", "key", "delete", "a", "--force"]).is_err());
    assert!(Cli::try_parse_from(["ctl", "highstate", "--exit-code"]).is_err());
    assert!(Cli::try_parse_from(["ctl", "cmd", "a"]).is_err());
    for bad in [
        "ctl node remove a --force",
        "ctl node remove a --wipe-data",
        "ctl node replace a",
        "ctl etcd recover cp-3",
        "ctl etcd recover --force --cluster prod",
        "ctl destroy",
        "ctl destroy --force",
        "ctl destroy --cluster prod",
        "ctl node replace a --force",
        "ctl orchestrate",
        "ctl orchestrate --test",
        "ctl orchestrate cancel",
        "ctl orchestrate cancel worker-1",
        "ctl certs csr halite",
        "ctl certs import site --cert a.crt",
        "ctl certs import etcd",
        "ctl certs import etcd --key a.key",
        "ctl certs import etcd --cert a.crt --discard",
        "ctl certs import etcd --cert a.crt --yes",
        "ctl bootstrap --ignore-preflight all",
        "ctl bootstrap --ignore-preflight documents",
        "ctl bootstrap --ignore-preflight etcd-disk",
        "ctl highstate --batch 0",
        "ctl local apply motd --tree . --batch 1",
        "ctl local apply motd --tree . --timeout 5m",
        "ctl local render motd --tree . --test",
        "ctl local render motd --tree . -v",
        "ctl kubeconfig --force list",
        "ctl kubeconfig --ttl 8",
        "ctl kubeconfig --ttl -1h",
        "ctl kubeconfig --ttl soon",
        "ctl operator create alice --role owner --out a",
        "ctl operator create alice --out a",
        "ctl operator create alice --role viewer",
        "ctl operator create alice --role viewer --ttl 366d --out a",
    ] {
        assert!(Cli::try_parse_from(bad.split(' ')).is_err(), "{bad}");
    }
    assert!(
        Cli::try_parse_from(["ctl", "registry", "backup", "--out", "b", "--keep", "0"]).is_err()
    );
}

#[test]
fn a_name_that_nothing_can_have_is_refused_before_any_call() {
    for line in [
        "ctl pillar ../worker-1",
        "ctl render Worker-1",
        "ctl key accept a/b --force",
        "ctl key delete -",
        "ctl token create --id master",
        "ctl node add master",
        "ctl node add worker_1",
        "ctl bundle use ..",
        "ctl bundle remove ../etc",
    ] {
        let error = Cli::try_parse_from(line.split(' ')).unwrap_err();
        assert_eq!(
            error.kind(),
            clap::error::ErrorKind::ValueValidation,
            "{line}"
        );
    }
    for line in ["ctl pillar master", "ctl render worker-1.example"] {
        assert!(Cli::try_parse_from(line.split(' ')).is_ok(), "{line}");
    }
}
