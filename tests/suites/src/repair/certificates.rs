//! Damages of certificates and keys.

use super::damage::{ObjectDamage, quote};
use super::files::kubeconfig;
use super::low::{Low, LowStateEntry};

/// Seconds for which a certificate must be valid after its repair.
const LEFT: u32 = 8_640_000;

/// Damages of every certificate, including those inside kubeconfigs, in one of several ways.
///
/// Certificates of the connections of a running control plane are only made to expire soon: the API
/// server and etcd reload theirs at once, and without the API a prediction would be blind to its
/// objects.
pub fn damages(low: &Low) -> Vec<ObjectDamage> {
    let mut damages = Vec::new();
    for (number, state) in low
        .0
        .iter()
        .filter(|s| s.function == "x509.certificate")
        .enumerate()
    {
        damages.push(certificate(state, number));
    }
    let embedded = low
        .0
        .iter()
        .filter(|s| s.function == "kubeconfig.managed" && s.text("common_name").is_some());
    for (number, state) in embedded.enumerate() {
        let path = quote(&state.name);
        let (what, expression) = match number % 2 {
            0 => (
                "its certificate truncated",
                "s/(client-certificate-data: .{200}).*/\\1/",
            ),
            _ => ("its key missing", "/client-key-data:/d"),
        };
        let line = format!("sed -E -i {} {path}", quote(expression));
        damages.push(ObjectDamage::new(
            state,
            what,
            line,
            kubeconfig(&state.name),
        ));
    }
    damages
}

fn certificate(state: &LowStateEntry, number: usize) -> ObjectDamage {
    let path = state.name.as_str();
    let combined = state.flag("combined");
    let key_path = if combined {
        path.to_owned()
    } else {
        path.replace(".crt", ".key")
    };
    let (cert, key) = (quote(path), quote(&key_path));
    let carries = [
        "/pki/apiserver.crt",
        "/etcd/server.crt",
        "/apiserver-etcd-client.crt",
    ];
    let (what, line) = if carries.iter().any(|end| path.ends_with(end)) {
        let ca = if state.text("ca") == Some("etcd") {
            "/etc/kubernetes/pki/etcd/ca"
        } else {
            "/etc/kubernetes/pki/ca"
        };
        let line = format!(
            "openssl x509 -x509toreq -in {cert} -signkey {key} -copy_extensions copy > /root/halite-test.csr \
             && openssl x509 -req -in /root/halite-test.csr -CA {ca}.crt -CAkey {ca}.key -days 2 -copy_extensions copy \
             -out /root/halite-test.crt 2>/dev/null && cat /root/halite-test.crt > {cert}"
        );
        ("ends soon", line)
    } else {
        match number % 4 {
            _ if combined => (
                "another's certificate",
                self_signed(
                    state,
                    &format!("cat /root/halite-test.crt /root/halite-test.key > {cert}"),
                ),
            ),
            0 => (
                "self-signed",
                self_signed(
                    state,
                    &format!(
                        "cat /root/halite-test.crt > {cert}; cat /root/halite-test.key > {key}"
                    ),
                ),
            ),
            1 => (
                "cut short",
                format!(
                    "head -c 300 {cert} > /root/halite-test.crt && cat /root/halite-test.crt > {cert}"
                ),
            ),
            2 => (
                "another key",
                self_signed(state, &format!("cat /root/halite-test.key > {key}")),
            ),
            _ => ("lost", format!("rm {cert} {key}")),
        }
    };
    ObjectDamage::new(state, what, line, probe(&cert, &key))
}

/// Makes a key and a self-signed certificate of the same name, then runs `then`.
fn self_signed(state: &LowStateEntry, then: &str) -> String {
    let subject = quote(&format!(
        "/CN={}",
        state.text("common_name").unwrap_or("unnamed")
    ));
    format!(
        "openssl req -x509 -newkey ec -pkeyopt ec_paramgen_curve:prime256v1 -nodes -days 400 -subj {subject} \
         -keyout /root/halite-test.key -out /root/halite-test.crt 2>/dev/null && {{ {then}; }}"
    )
}

/// Prints a certificate without its serial number and times, which are new each time, and whether
/// its key fits.
fn probe(cert: &str, key: &str) -> String {
    format!(
        "stat -c '%a %U %G' {cert} {key}\n\
         openssl x509 -in {cert} -noout -subject -issuer -ext subjectAltName,extendedKeyUsage,authorityKeyIdentifier -checkend {LEFT}\n\
         public=$(openssl pkey -in {key} -pubout) && test \"$(openssl x509 -in {cert} -noout -pubkey)\" = \"$public\" && echo key fits"
    )
}
