//! The package repository of a site, used by the real apt on its hosts: it installs packages that
//! the builder signed, and refuses changed ones. (The test of the yum repository with the real dnf
//! is `bundle/builder/tests/recipe/dnf.rs`.)

use anyhow::{Result, ensure};
use halite_lab::cluster::Cluster;

use crate::test::{Counts, Test};

pub(super) const TESTS: &[Test<Cluster>] = &[
    Test {
        name: "repository: apt installs from the site's repository",
        run: installs,
    },
    Test {
        name: "repository: apt refuses a changed index and a changed package",
        run: refuses,
    },
];

/// apt's options for using only the site's own repository: the lab's hosts reach no other.
const OURS: &str = "-o Dir::Etc::sourcelist=/etc/apt/sources.list.d/halite.list -o Dir::Etc::sourceparts=- \
                    -o APT::Get::List-Cleanup=0 -o APT::Update::Error-Mode=any";

/// Installs kubectl, which a worker lacks and the repository has.
fn installs(cluster: &Cluster) -> Result<Counts> {
    let worker = &cluster.worker;
    let list = worker.sh("cat /etc/apt/sources.list.d/halite.list")?;
    ensure!(
        list.contains("signed-by=") && !list.contains("trusted="),
        "signatures are not required: {list}"
    );
    worker.sh(&format!("apt-get {OURS} -q update"))?;
    worker.sh("DEBIAN_FRONTEND=noninteractive apt-get -q -y install kubectl")?;
    let said = worker.sh("kubectl version --client && dpkg --verify kubectl")?;
    worker.sh("DEBIAN_FRONTEND=noninteractive apt-get -q -y purge kubectl")?;
    ensure!(said.contains("Client Version"), "kubectl prints {said}");
    Ok(Counts::ONE)
}

/// Serves a copy of the repository from a temporary nginx on the host, and makes a separate
/// directory for apt's state.
const SERVE: &str = r#"
set -e
rm -rf /root/packages && mkdir -p /root/packages/lists/partial /root/packages/archives/partial /root/packages/nginx
from=$(sed -n 's/.* file:\([^ ]*\) .*/\1/p' /etc/apt/sources.list.d/halite.list)
cp -r "$from" /root/packages/apt
cat > /root/packages/nginx.conf <<END
pid /root/packages/nginx/pid; error_log /root/packages/nginx/error.log; user root; events {}
http { access_log off; client_body_temp_path /root/packages/nginx/b; proxy_temp_path /root/packages/nginx/p;
fastcgi_temp_path /root/packages/nginx/f; uwsgi_temp_path /root/packages/nginx/u; scgi_temp_path /root/packages/nginx/s;
server { listen 127.0.0.1:4599; root /root/packages/apt; } }
END
echo 'deb [signed-by=/etc/apt/keyrings/halite.gpg] http://127.0.0.1:4599 stable main' > /root/packages/list
nginx -c /root/packages/nginx.conf
"#;

/// Defines apt with only that repository.
const ASK: &str = r#"
apt() {
    apt-get -q -y -o Dir::Etc::sourcelist=/root/packages/list -o Dir::Etc::sourceparts=- \
        -o Dir::State::lists=/root/packages/lists -o Dir::Cache::archives=/root/packages/archives \
        -o APT::Update::Error-Mode=any -o APT::Sandbox::User=root "$@"
}
fresh() { rm -rf /root/packages/lists/* /root/packages/archives/*; mkdir -p /root/packages/lists/partial /root/packages/archives/partial; }
flip() { # one bit in the middle of a file
    size=$(stat -c %s "$1"); at=$((size / 2))
    old=$(od -An -tu1 -j$at -N1 "$1"); printf "\\$(printf %o $((old ^ 1)))" | dd of="$1" bs=1 seek=$at conv=notrunc status=none
}
"#;

fn refuses(cluster: &Cluster) -> Result<Counts> {
    let host = &cluster.bootstrap;
    host.sh(SERVE)?;
    let tried = (|| {
        let ask = |line: &str| host.sh(&format!("{ASK}\n{line}"));
        ask("fresh; apt update && apt --reinstall --download-only install kubectl")?;
        let refused = |what: &str, line: &str, why: &str| -> Result<()> {
            let said = ask(&format!(
                "fresh; if {{ {line}; }} 2>&1; then echo TAKEN; fi"
            ))?;
            ensure!(
                !said.contains("TAKEN") && said.contains(why),
                "{what}: apt prints {said}"
            );
            Ok(())
        };
        let package = "/root/packages/apt/pool/kubectl_*.deb";
        ask(&format!("flip {package}"))?;
        let download = "apt update && apt --reinstall --download-only install kubectl";
        refused("a changed package", download, "Hash Sum mismatch")?;
        ask(&format!(
            "flip {package}; flip /root/packages/apt/dists/stable/InRelease"
        ))?;
        refused("a changed index", "apt update", "signature")?;
        ask(
            "rm /root/packages/apt/dists/stable/InRelease /root/packages/apt/dists/stable/Release.gpg",
        )?;
        refused(
            "an index without a signature",
            "apt update",
            "is not signed",
        )
    })();
    host.sh("nginx -c /root/packages/nginx.conf -s stop; rm -rf /root/packages")?;
    tried.map(|()| Counts::ONE)
}
