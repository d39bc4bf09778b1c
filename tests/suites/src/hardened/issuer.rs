//! An issuer of tokens (OIDC) in the lab: an HTTPS server on the first host, which only that host
//! reaches. The API server accepts its tokens, as declared.

use std::fs;
use std::time::{SystemTime, UNIX_EPOCH};

use anyhow::{Context as _, Result, bail, ensure};
use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use halite_lab::cluster::{CTL, Cluster, DOCUMENT};
use halite_lab::host::Host;
use halite_lab::wait;
use serde_json::{Value, json};

use crate::cluster::PODS;
use crate::test::Counts;

/// The URL of the issuer, and the address of its server.
const URL: &str = "https://127.0.0.1:4599";
const ADDRESS: &str = "127.0.0.1:4599";
/// The directory of its files.
const DIRECTORY: &str = "/root/issuer";
/// The audience of the cluster.
const AUDIENCE: &str = "lab";
/// The key that signs tokens, and one that the issuer does not know.
const KEY: &str = "token";
const OTHER_KEY: &str = "other";
/// The name of the first one in tokens.
const KEY_ID: &str = "first";
/// The subject and a group of the tokens, and their prefix in the cluster.
const SUBJECT: &str = "alice";
const GROUP: &str = "builders";
const PREFIX: &str = "lab:";
/// The time for which a token is valid, in seconds.
const LIFETIME: u64 = 3600;

/// The section of the document that gets the issuer.
const SECTION: &str = "  authentication:\n";

/// Makes the keys and the certificate of the server, which is its own CA.
const MAKE: &str = r#"set -e
mkdir -p /root/issuer/.well-known
cd /root/issuer
openssl req -x509 -newkey ec -pkeyopt ec_paramgen_curve:prime256v1 -nodes -days 30 -subj /CN=issuer \
  -addext subjectAltName=IP:127.0.0.1 -keyout server.key -out server.crt 2>/dev/null
for name in token other; do openssl genrsa -out $name.key 2048 2>/dev/null; done
"#;

/// A token of an issuer that is declared on the running cluster gives its subject and groups; one
/// for another audience, and one that another key has signed, are refused.
///
/// # Errors
/// One of this does not hold.
pub(super) fn is_trusted(cluster: &Cluster) -> Result<Counts> {
    let host = &cluster.bootstrap;
    host.sh(MAKE)?;
    serve(host)?;
    let authority = host.run(&["cat", &format!("{DIRECTORY}/server.crt")])?;
    let document = host.file(DOCUMENT);
    let text = with_issuer(&fs::read_to_string(&document)?, &authority)?;
    fs::write(&document, text)?;
    host.run(&[CTL, "highstate"])?;
    accepts(host)?;
    Ok(Counts::ONE)
}

/// Starts the server, with the metadata of the issuer and its public key.
fn serve(host: &Host) -> Result<()> {
    let modulus = host.sh(&format!(
        "openssl rsa -in {DIRECTORY}/{KEY}.key -noout -modulus"
    ))?;
    let modulus = modulus.trim().strip_prefix("Modulus=");
    let modulus = bytes(modulus.context("openssl shows no modulus")?)?;
    let key = json!({
        "kty": "RSA", "use": "sig", "alg": "RS256", "kid": KEY_ID, "e": "AQAB",
        "n": URL_SAFE_NO_PAD.encode(modulus),
    });
    let metadata = json!({
        "issuer": URL,
        "jwks_uri": format!("{URL}/keys"),
        "response_types_supported": ["id_token"],
        "subject_types_supported": ["public"],
        "id_token_signing_alg_values_supported": ["RS256"],
    });
    for (name, content) in [
        (".well-known/openid-configuration", metadata),
        ("keys", json!({"keys": [key]})),
    ] {
        // The server sends a file as the whole answer.
        let answer = format!("HTTP/1.0 200 OK\r\nContent-Type: application/json\r\n\r\n{content}");
        fs::write(host.file(&format!("{DIRECTORY}/{name}")), answer)?;
    }
    host.sh(&format!(
        "systemd-run --quiet --collect --unit=lab-issuer --property=Restart=always \
         --property=WorkingDirectory={DIRECTORY} \
         openssl s_server -quiet -accept {ADDRESS} -cert server.crt -key server.key -HTTP"
    ))?;
    wait::until("the issuer to serve", PODS, || {
        let metadata = format!("{URL}/.well-known/openid-configuration");
        host.sh(&format!(
            "curl --silent --show-error --fail --noproxy '*' --cacert {DIRECTORY}/server.crt {metadata}"
        ))
        .map(drop)
    })
}

/// The bytes of a hexadecimal number.
fn bytes(hexadecimal: &str) -> Result<Vec<u8>> {
    let digits = hexadecimal.as_bytes().chunks(2);
    let bytes = digits.map(|two| Ok(u8::from_str_radix(std::str::from_utf8(two)?, 16)?));
    bytes.collect()
}

/// The document with the issuer, whose certificate has this CA.
fn with_issuer(document: &str, authority: &str) -> Result<String> {
    ensure!(
        document.contains(SECTION),
        "the document has no {SECTION:?}: {document}"
    );
    let issuers = json!([{
        "issuer": {"url": URL, "audiences": [AUDIENCE], "certificateAuthority": authority},
        "claimMappings": {
            "username": {"claim": "sub", "prefix": PREFIX},
            "groups": {"claim": "groups", "prefix": PREFIX},
        },
    }]);
    // JSON is valid YAML.
    let declared = format!("{SECTION}    jwt: {issuers}\n");
    Ok(document.replacen(SECTION, &declared, 1))
}

/// Waits until the API server accepts a token of the issuer, and fails if it accepts one that it
/// must refuse.
///
/// # Errors
/// It does not accept the one, or accepts another.
pub(super) fn accepts(host: &Host) -> Result<()> {
    let good = token(host, AUDIENCE, KEY)?;
    // The API server reads the issuer's keys some time after its start.
    let user = wait::until("the API server to accept the issuer", PODS, || {
        who_is(host, &good)
    })?;
    let groups = user["groups"].as_array().context("a user without groups")?;
    ensure!(
        user["username"] == format!("{PREFIX}{SUBJECT}")
            && groups.contains(&json!(format!("{PREFIX}{GROUP}"))),
        "the token is that of {user}"
    );
    for (audience, key) in [("another", KEY), (AUDIENCE, OTHER_KEY)] {
        let bad = token(host, audience, key)?;
        match who_is(host, &bad) {
            Ok(user) => bail!("a token for {audience}, signed by {key}, is that of {user}"),
            Err(error) => {
                let said = format!("{error:#}");
                ensure!(said.contains("Unauthorized"), "{said}");
            }
        }
    }
    Ok(())
}

/// A token for an audience, signed by a key.
fn token(host: &Host, audience: &str, key: &str) -> Result<String> {
    let now = SystemTime::now().duration_since(UNIX_EPOCH)?.as_secs();
    let header = json!({"alg": "RS256", "typ": "JWT", "kid": KEY_ID});
    let claims = json!({
        "iss": URL, "aud": audience, "sub": SUBJECT, "groups": [GROUP],
        "iat": now, "exp": now + LIFETIME,
    });
    let parts = [header, claims].map(|part| URL_SAFE_NO_PAD.encode(part.to_string()));
    let signed = parts.join(".");
    fs::write(host.file(&format!("{DIRECTORY}/signed")), &signed)?;
    host.sh(&format!(
        "cd {DIRECTORY} && openssl dgst -sha256 -sign {key}.key -out signature signed"
    ))?;
    let signature = fs::read(host.file(&format!("{DIRECTORY}/signature")))?;
    Ok(format!("{signed}.{}", URL_SAFE_NO_PAD.encode(signature)))
}

/// The user of a token, as the API server sees it.
fn who_is(host: &Host, token: &str) -> Result<Value> {
    let server = format!("https://{}:6443", host.control_plane_address());
    // Without a kubeconfig: its certificate would be used instead of the token.
    let words = ["kubectl", "--kubeconfig", "/dev/null", "--server", &server];
    let options = ["--certificate-authority", "/etc/kubernetes/pki/ca.crt"];
    let review = ["--token", token, "auth", "whoami", "-o", "json"];
    let said = host.run(&[&words[..], &options, &review].concat())?;
    let mut review: Value = serde_json::from_str(&said)?;
    Ok(review["status"]["userInfo"].take())
}

#[cfg(test)]
mod tests {
    use halite_lab::layout::TWO;

    use super::*;
    use crate::hardened::document;
    use crate::shipped_tree::declaration;

    #[test]
    fn the_document_with_the_issuer_is_valid() {
        let authority = "-----BEGIN CERTIFICATE-----\nAAAA\n-----END CERTIFICATE-----\n";
        let text = with_issuer(&document().unwrap(), authority).unwrap();
        let declared = declaration(&text, &TWO).unwrap();
        let authentication = declared.cluster.api_server.authentication.clone().unwrap();
        assert_eq!(
            authentication.jwt[0]["issuer"]["certificateAuthority"],
            authority
        );
        assert!(authentication.anonymous.is_some());
    }

    #[test]
    fn the_files_of_the_script_are_those_of_the_tests() {
        assert!(URL.ends_with(ADDRESS));
        assert!(MAKE.contains(DIRECTORY) && MAKE.contains(&format!("{KEY} {OTHER_KEY}")));
        assert_eq!(bytes("00FF10").unwrap(), [0, 255, 16]);
    }
}
