//! What a kubeconfig says: servers, users, contexts, and the certificates in it instead of their bytes.

use anyhow::{Context as _, Result};
use base64::{Engine as _, engine::general_purpose::STANDARD};
use serde_json::{Value, json};

use super::certificate::{self, Authorities};

/// Describes the text of a kubeconfig. An embedded authority is named by the file that holds the same one.
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

fn items<'a>(config: &'a mut Value, list: &str) -> impl Iterator<Item = &'a mut Value> {
    config.get_mut(list).and_then(Value::as_array_mut).into_iter().flatten()
}

/// Takes a base64 field out of a mapping and decodes it.
fn taken(mapping: &mut Value, field: &str) -> Result<Option<String>> {
    let Some(encoded) = mapping.as_object_mut().and_then(|mapping| mapping.remove(field)) else {
        return Ok(None);
    };
    let encoded = encoded.as_str().with_context(|| format!("{field} is no text"))?;
    let bytes = STANDARD.decode(encoded).with_context(|| format!("{field} is not base64"))?;
    Ok(Some(String::from_utf8(bytes).with_context(|| format!("{field} is not PEM"))?))
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
    fn one_without_users_is_fine() {
        let text = "clusters:\n- cluster: {server: s}\n  name: ''\nusers: null\n";
        assert_eq!(describe(text, &Authorities::default()).unwrap()["users"], Value::Null);
    }
}
