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
            let ttl_seconds = u32::try_from(ttl.as_secs())
                .context("cannot make a token that is valid for so long")?;
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
