//! `ctl key` and `ctl token`.

use anyhow::Context as _;
use halite_api::{KeyChange, KeyList, MinionKey, NewToken, TokenList, TokenRevocation, to_value};
use halite_proto::v1;

use crate::cli::{Destroy, Global, KeyCommand, Token};
use crate::client;
use crate::client::{document, refused};
use crate::output::{Screen, list, or_dash, table, yes_no};

/// Runs `ctl key`.
///
/// # Errors
/// The master does not answer or refuses.
pub async fn key(global: &Global, command: KeyCommand, screen: &mut Screen) -> anyhow::Result<u8> {
    let mut operator = client::operator(global).await?;
    let request = match command {
        KeyCommand::List => {
            let keys: KeyList = document(operator.list_keys(v1::ListKeysRequest {}).await)?;
            screen.answer(&to_value(&keys), |_| key_table(&keys))?;
            return Ok(0);
        }
        KeyCommand::Accept {
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
        KeyCommand::Reject(order) => destroy("reject", order),
        KeyCommand::Delete(order) => destroy("delete", order),
    };
    let changed: KeyChange = document(operator.change_key(request).await)?;
    screen.answer(&to_value(&changed), |_| change(&changed))?;
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

/// Formats keys as a table.
pub fn key_table(keys: &KeyList) -> String {
    let heading = [
        "minion",
        "state",
        "connected",
        "roles",
        "host",
        "os",
        "fingerprint",
    ];
    let row = |key: &MinionKey| {
        vec![
            key.minion.to_string(),
            key.state.to_string(),
            yes_no(key.connected),
            list(&key.roles),
            or_dash(key.host.as_ref()),
            or_dash(key.os.as_ref()),
            key.fingerprint.clone(),
        ]
    };
    table::rows(&heading, keys.keys.iter().map(row))
}

/// Formats a change of a key.
pub fn change(change: &KeyChange) -> String {
    let KeyChange {
        minion,
        state,
        revoked_tokens,
    } = change;
    let tokens = match revoked_tokens.as_slice() {
        [] => String::new(),
        tokens => format!("revoked tokens: {}\n", tokens.join(", ")),
    };
    format!("the key of {minion} is {state}\n{tokens}")
}

/// Formats tokens as a table.
pub fn token_table(tokens: &TokenList) -> String {
    let heading = [
        "token",
        "state",
        "expires",
        "uses left",
        "roles",
        "minion",
        "created",
        "operator",
    ];
    let row = |token: &halite_api::Token| {
        vec![
            token.token.clone(),
            token.state.to_string(),
            token.expires.to_string(),
            token.uses_left.to_string(),
            list(&token.roles),
            or_dash(token.minion.as_ref()),
            token.created.to_string(),
            token.operator.clone(),
        ]
    };
    table::rows(&heading, tokens.tokens.iter().map(row))
}

/// The new token in the master's reply.
///
/// # Errors
/// Its end is not a time.
pub fn created_token(reply: v1::CreateTokenReply) -> anyhow::Result<NewToken> {
    Ok(NewToken {
        token: reply.token,
        expires: client::time(&reply.expires)?,
    })
}

/// Runs `ctl token`.
///
/// # Errors
/// The master does not answer or refuses.
pub async fn token(global: &Global, command: Token, screen: &mut Screen) -> anyhow::Result<u8> {
    match command {
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
            let made = created_token(reply)?;
            screen.answer(&to_value(&made), |_| new_token(&made))?;
        }
        Token::List => {
            let mut operator = client::operator(global).await?;
            let tokens: TokenList = document(operator.list_tokens(v1::ListTokensRequest {}).await)?;
            screen.answer(&to_value(&tokens), |_| token_table(&tokens))?;
        }
        Token::Revoke { token } => {
            let mut operator = client::operator(global).await?;
            let request = v1::RevokeTokenRequest { token_id: token };
            let revoked: TokenRevocation = document(operator.revoke_token(request).await)?;
            screen.answer(&to_value(&revoked), |_| revocation(&revoked))?;
        }
    }
    Ok(0)
}

/// Formats a new token.
pub fn new_token(made: &NewToken) -> String {
    let fields = [
        ("token", made.token.clone()),
        ("expires", made.expires.to_string()),
    ];
    table::fields(&fields)
}

/// Formats the revocation of a token.
pub fn revocation(revoked: &TokenRevocation) -> String {
    format!("the token {} is {}\n", revoked.token, revoked.state)
}
