//! `ctl kubeconfig`: access to the Kubernetes API from the operator's own machine. The key is
//! created here, and the master signs a short-lived certificate for it.

use std::fs;
use std::io::{ErrorKind, Read as _};
use std::path::{Path, PathBuf};

use anyhow::{Context as _, bail};
use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use halite_api::{KubeconfigFile, KubeconfigList, to_value};
use halite_proto::pki::PrivateKey;
use halite_proto::v1;
use serde_json::{Value, json};

use crate::cli::{Global, IssuedKubeconfigs, Kubeconfig};
use crate::client::refused;
use crate::output::{Screen, path_text, table, yaml};
use crate::{client, files};

/// The first line of a file that this command may replace.
const MARK: &str = "# Written by `ctl kubeconfig`, which replaces it.\n";

/// Runs `ctl kubeconfig`.
///
/// # Errors
/// The master does not answer or refuses, or the file was not written by this command or cannot be
/// written.
pub async fn run(global: &Global, args: &Kubeconfig, screen: &mut Screen) -> anyhow::Result<u8> {
    if let Some(IssuedKubeconfigs::List) = args.issued {
        return list(global, screen).await;
    }
    // Before the call: a certificate that cannot be written would be valid nevertheless.
    let file = args.out.as_deref().map(own_file).transpose()?;
    let key = PrivateKey::generate().context("cannot make a key")?;
    let csr_pem = key
        .request("kubeconfig")
        .context("cannot make a certificate request")?;
    let request = v1::KubeconfigRequest {
        csr_pem,
        ttl_seconds: args.ttl.as_secs(),
        server: args.server.clone().unwrap_or_default(),
        force: args.force,
    };
    let mut operator = client::operator(global).await?;
    let reply = operator.kubeconfig(request).await;
    let reply = reply.map_err(|status| refused(&status))?.into_inner();
    let kubeconfig = kubeconfig(&reply, &key.to_pem());
    let text = yaml(&kubeconfig)?;
    let Some(file) = file else {
        screen.answer(&kubeconfig, |_| text)?;
        return Ok(0);
    };
    files::write(&file, format!("{MARK}{text}").as_bytes(), 0o600)?;
    let written = written(&file, &reply)?;
    screen.answer(&to_value(&written), |_| written_text(&written))?;
    Ok(0)
}

/// The file that was written, with the master's reply.
///
/// # Errors
/// The end of its certificate is not a time.
pub fn written(file: &Path, reply: &v1::KubeconfigReply) -> anyhow::Result<KubeconfigFile> {
    Ok(KubeconfigFile {
        file: path_text(file),
        server: reply.server.clone(),
        user: reply.user.clone(),
        expires: client::time(&reply.expires)?,
    })
}

/// Formats what was written.
pub fn written_text(written: &KubeconfigFile) -> String {
    table::fields(&[
        ("file", written.file.clone()),
        ("server", written.server.clone()),
        ("user", written.user.clone()),
        ("expires", written.expires.to_string()),
    ])
}

/// Lists the kubeconfigs that have not expired.
async fn list(global: &Global, screen: &mut Screen) -> anyhow::Result<u8> {
    let issued: KubeconfigList = client::show(global, "kubeconfigs", "", Vec::new()).await?;
    screen.answer(&to_value(&issued), |_| issued_table(&issued))?;
    Ok(0)
}

/// Formats kubeconfigs as a table.
pub fn issued_table(issued: &KubeconfigList) -> String {
    let heading = ["operator", "created", "expires", "serial"];
    let row = |issued: &halite_api::Kubeconfig| {
        vec![
            issued.operator.clone(),
            issued.created.to_string(),
            issued.expires.to_string(),
            issued.serial.clone(),
        ]
    };
    table::rows(&heading, issued.kubeconfigs.iter().map(row))
}

/// The absolute path of a file that does not exist, or that this command wrote.
fn own_file(path: &Path) -> anyhow::Result<PathBuf> {
    let shown = path.display();
    let path = std::path::absolute(path).with_context(|| format!("cannot write {shown}"))?;
    let mut start = Vec::new();
    let read = fs::File::open(&path).and_then(|file| {
        let limit = u64::try_from(MARK.len()).unwrap_or(u64::MAX);
        file.take(limit).read_to_end(&mut start)
    });
    match read {
        Err(error) if error.kind() == ErrorKind::NotFound => Ok(path),
        Err(error) => Err(error).with_context(|| format!("cannot write {shown}")),
        Ok(_) if start == MARK.as_bytes() => Ok(path),
        Ok(_) => bail!(
            "cannot write {shown}: it was not written by ctl kubeconfig, and may have other clusters; name another file, and \
             use both with KUBECONFIG=FILE:FILE"
        ),
    }
}

/// The kubeconfig, as `kubectl` reads it.
pub fn kubeconfig(reply: &v1::KubeconfigReply, key_pem: &str) -> Value {
    let context = format!("{}@{}", reply.user, reply.cluster);
    let ca = STANDARD.encode(&reply.ca_pem);
    let cluster = if reply.tls_server_name.is_empty() {
        json!({"certificate-authority-data": ca, "server": reply.server})
    } else {
        json!({"certificate-authority-data": ca, "server": reply.server, "tls-server-name": reply.tls_server_name})
    };
    json!({
        "apiVersion": "v1",
        "kind": "Config",
        "clusters": [{"name": reply.cluster, "cluster": cluster}],
        "contexts": [{"name": context, "context": {"cluster": reply.cluster, "user": context}}],
        "current-context": context,
        "users": [{"name": context, "user": {
            "client-certificate-data": STANDARD.encode(&reply.certificate_pem),
            "client-key-data": STANDARD.encode(key_pem),
        }}],
    })
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::PermissionsExt as _;

    use super::*;

    fn reply() -> v1::KubeconfigReply {
        v1::KubeconfigReply {
            certificate_pem: "certificate".to_owned(),
            ca_pem: "ca".to_owned(),
            cluster: "prod".to_owned(),
            user: "alice".to_owned(),
            server: "https://10.0.0.100:6443".to_owned(),
            tls_server_name: "api.prod.internal".to_owned(),
            expires: "2026-11-25T18:00:00Z".to_owned(),
        }
    }

    #[test]
    fn the_certificate_is_of_the_name_that_the_server_has() {
        let found = kubeconfig(&reply(), "key");
        let (ca, key) = (STANDARD.encode("ca"), STANDARD.encode("key"));
        let wanted = json!({
            "apiVersion": "v1",
            "kind": "Config",
            "clusters": [{"name": "prod", "cluster": {
                "certificate-authority-data": ca,
                "server": "https://10.0.0.100:6443",
                "tls-server-name": "api.prod.internal",
            }}],
            "contexts": [{"name": "alice@prod", "context": {"cluster": "prod", "user": "alice@prod"}}],
            "current-context": "alice@prod",
            "users": [{"name": "alice@prod", "user": {
                "client-certificate-data": STANDARD.encode("certificate"), "client-key-data": key,
            }}],
        });
        assert_eq!(found, wanted);
        let by_name = v1::KubeconfigReply {
            tls_server_name: String::new(),
            ..reply()
        };
        let text = kubeconfig(&by_name, "key").to_string();
        assert!(!text.contains("tls-server-name"), "{text}");
    }

    #[test]
    fn only_a_file_of_this_command_is_replaced_and_only_its_owner_can_read_it() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("config");
        for text in ["first", "second"] {
            let file = own_file(&path).unwrap();
            files::write(&file, format!("{MARK}{text}").as_bytes(), 0o600).unwrap();
            let mode = fs::metadata(&path).unwrap().permissions().mode();
            assert_eq!(mode & 0o7777, 0o600);
        }
        for other in ["", "apiVersion: v1\n", "# Written by hand\n"] {
            fs::write(&path, other).unwrap();
            let error = own_file(&path).unwrap_err().to_string();
            assert!(error.contains("KUBECONFIG"), "{other:?}: {error}");
            assert_eq!(fs::read_to_string(&path).unwrap(), other);
        }
        let error = own_file(directory.path()).unwrap_err().to_string();
        assert!(error.starts_with("cannot write "), "{error}");
        // A bare name is a file in the current directory.
        assert!(own_file(Path::new("absent")).unwrap().is_absolute());
    }
}
