//! The meaning of a kubeconfig: servers, users, contexts, and the meaning of its certificates
//! instead of their bytes.

use anyhow::{Context as _, Result, bail, ensure};
use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use serde_json::{Value, json};

use super::certificate;
use super::certificate::Authorities;

/// Describes the text of a kubeconfig. An embedded authority is described by the path of the file
/// with the same certificate.
pub(super) fn describe(text: &str, authorities: &Authorities) -> Result<Value> {
    let mut config: Value = serde_saphyr::from_str(text)?;
    for cluster in items(&mut config, "clusters") {
        let cluster = &mut cluster["cluster"];
        if let Some(pem) = taken(cluster, "certificate-authority-data")? {
            cluster["authority"] = json!(authorities.name(&pem));
        }
    }
    for user in items(&mut config, "users") {
        let user = &mut user["user"];
        if let Some(pem) = taken(user, "client-certificate-data")? {
            user["certificate"] = certificate::describe(&pem, authorities)?;
        }
        if taken(user, "client-key-data")?.is_some() {
            user["key"] = json!("embedded");
        }
    }
    Ok(config)
}

/// The settings of a kubeconfig that has exactly one of each part: the server, the user and the
/// namespace, and, in a separate field, the names that only link these parts.
pub(super) fn in_use(config: &Value) -> Result<Value> {
    let only = |list: &str| -> Result<Value> {
        match config[list].as_array().map(Vec::as_slice) {
            Some([one]) => Ok(one.clone()),
            other => bail!(
                "{list} has {} items instead of one",
                other.map_or(0, <[Value]>::len)
            ),
        }
    };
    let (cluster, context, user) = (only("clusters")?, only("contexts")?, only("users")?);
    let names =
        json!({"cluster": cluster["name"], "context": context["name"], "user": user["name"]});
    let tied = json!({
        "cluster": context["context"]["cluster"],
        "context": config["current-context"],
        "user": context["context"]["user"],
    });
    ensure!(
        names == tied,
        "the context in use does not name the existing parts: {config}"
    );
    Ok(json!({
        "cluster": cluster["cluster"],
        "user": user["user"],
        "namespace": context["context"]["namespace"],
        "names": names,
    }))
}

fn items<'a>(config: &'a mut Value, list: &str) -> impl Iterator<Item = &'a mut Value> {
    config
        .get_mut(list)
        .and_then(Value::as_array_mut)
        .into_iter()
        .flatten()
}

/// Removes a base64 field from a mapping and decodes it.
fn taken(mapping: &mut Value, field: &str) -> Result<Option<String>> {
    let Some(encoded) = mapping
        .as_object_mut()
        .and_then(|mapping| mapping.remove(field))
    else {
        return Ok(None);
    };
    let encoded = encoded
        .as_str()
        .with_context(|| format!("{field} is not text"))?;
    let bytes = STANDARD
        .decode(encoded)
        .with_context(|| format!("{field} is not base64"))?;
    Ok(Some(
        String::from_utf8(bytes).with_context(|| format!("{field} is not PEM"))?,
    ))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn secrets_and_bytes_are_left_out() {
        let text = "clusters:\n- name: a\n  cluster: {server: 'https://a', certificate-authority-data: QQ==}\n\
                    users:\n- name: u\n  user: {client-key-data: QQ==}\n";
        assert_eq!(
            describe(text, &Authorities::default()).unwrap(),
            json!({
                "clusters": [{"name": "a", "cluster": {"server": "https://a", "authority": "not one of this cluster"}}],
                "users": [{"name": "u", "user": {"key": "embedded"}}],
            })
        );
        let wrong = "users:\n- user: {client-key-data: '!'}\n";
        assert!(describe(wrong, &Authorities::default()).is_err());
    }

    #[test]
    fn names_are_distinguished_from_the_linked_parts() {
        let mut config = json!({
            "clusters": [{"name": "c", "cluster": {"server": "https://a"}}],
            "contexts": [{"name": "x", "context": {"cluster": "c", "user": "u"}}],
            "current-context": "x",
            "users": [{"name": "u", "user": {"client-key": "k"}}],
        });
        assert_eq!(
            in_use(&config).unwrap(),
            json!({
                "cluster": {"server": "https://a"},
                "user": {"client-key": "k"},
                "namespace": null,
                "names": {"cluster": "c", "context": "x", "user": "u"},
            })
        );
        config["current-context"] = json!("y");
        assert!(in_use(&config).is_err());
        config["users"] = json!([]);
        assert!(
            in_use(&config)
                .unwrap_err()
                .to_string()
                .contains("users has 0 items")
        );
    }

    #[test]
    fn one_without_users_is_fine() {
        let text = "clusters:\n- cluster: {server: s}\n  name: ''\nusers: null\n";
        assert_eq!(
            describe(text, &Authorities::default()).unwrap()["users"],
            Value::Null
        );
    }
}
