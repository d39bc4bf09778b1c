//! `ctl key` and `ctl token`.

use anyhow::Context as _;
use halite_proto::v1;
use serde_json::{Value, json};

use crate::cli::{Destroy, Global, Key, Token};
use crate::client;
use crate::client::{document, refused};
use crate::output::{Screen, table};

/// Runs `ctl key`.
///
/// # Errors
/// The master does not answer or refuses.
pub async fn key(global: &Global, command: Key, screen: &mut Screen) -> anyhow::Result<u8> {
    let mut operator = client::operator(global).await?;
    let request = match command {
        Key::List => {
            let keys = document(operator.list_keys(v1::ListKeysRequest {}).await)?;
            screen.answer(&keys, |_| list(&keys))?;
            return Ok(0);
        }
        Key::Accept {
            id,
            fingerprint,
            force,
        } => v1::ChangeKeyRequest {
            id: id.into(),
            fingerprint,
            action: "accept".into(),
            force,
            ..v1::ChangeKeyRequest::default()
        },
        Key::Reject(order) => destroy("reject", order),
        Key::Delete(order) => destroy("delete", order),
    };
    let answer = document(operator.change_key(request).await)?;
    screen.document(&answer)?;
    Ok(0)
}

fn destroy(action: &str, order: Destroy) -> v1::ChangeKeyRequest {
    v1::ChangeKeyRequest {
        id: order.id.into(),
        action: action.into(),
        force: order.force,
        cluster: order.cluster,
        ..v1::ChangeKeyRequest::default()
    }
}

fn list(keys: &Value) -> String {
    const COLUMNS: [&str; 7] = [
        "id",
        "state",
        "connected",
        "roles",
        "host",
        "os",
        "fingerprint",
    ];
    let each = |key: &Value| COLUMNS.map(|name| table::cell(&key[name])).to_vec();
    let keys = keys["keys"].as_array().cloned().unwrap_or_default();
    table::rows(&COLUMNS, keys.iter().map(each))
}

/// Runs `ctl token`.
///
/// # Errors
/// The master does not answer or refuses.
pub async fn token(global: &Global, command: Token, screen: &mut Screen) -> anyhow::Result<u8> {
    let answer = match command {
        Token::Create {
            ttl,
            uses,
            roles,
            id,
        } => {
            let ttl_seconds = ttl_seconds(&ttl)?;
            let mut operator = client::operator(global).await?;
            let request = v1::CreateTokenRequest {
                ttl_seconds,
                uses,
                roles,
                id: id.map(String::from).unwrap_or_default(),
            };
            let reply = operator
                .create_token(request)
                .await
                .map_err(|status| refused(&status))?
                .into_inner();
            json!({"token": reply.token, "expires": reply.expires})
        }
        Token::List => {
            let mut operator = client::operator(global).await?;
            document(operator.list_tokens(v1::ListTokensRequest {}).await)?
        }
        Token::Revoke { token } => {
            let mut operator = client::operator(global).await?;
            document(
                operator
                    .revoke_token(v1::RevokeTokenRequest { token_id: token })
                    .await,
            )?
        }
    };
    screen.document(&answer)?;
    Ok(0)
}

/// Parses a duration such as `30m`, `24h` or `1h30m`, in jiff's "friendly" format.
fn ttl_seconds(text: &str) -> anyhow::Result<u32> {
    let bad = || format!("--ttl {text}: give a time such as 30m or 24h");
    let duration: jiff::SignedDuration = text.parse().ok().with_context(bad)?;
    u32::try_from(duration.as_secs())
        .ok()
        .filter(|seconds| *seconds > 0)
        .with_context(bad)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times_are_friendly() {
        assert_eq!(ttl_seconds("30m").unwrap(), 1800);
        assert_eq!(ttl_seconds("24h").unwrap(), 86_400);
        assert_eq!(ttl_seconds("1h 30m").unwrap(), 5400);
        for bad in ["", "x", "-1h", "0s", "9000000h"] {
            assert!(ttl_seconds(bad).is_err(), "{bad}");
        }
    }
}
