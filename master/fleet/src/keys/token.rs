//! Enrolment tokens: `ID.SECRET.CAHASH`. The id is public, only a hash of the secret is stored, and
//! the CA's hash lets a new host verify the master at first contact.

use std::fmt;

use halite_api::{Time, TokenList, TokenRevocation, TokenState};
use halite_core::app::App;
use halite_core::ca::HALITE;
use halite_core::refusal::Refusal;
use halite_errors::chain;
use halite_proto::ids::MinionId;
use halite_proto::pki;
use halite_store::{Millis, Token};

use super::declared_roles::declared_roles;

/// A day.
const DEFAULT_TTL_SECONDS: u32 = 24 * 60 * 60;
/// Thirty days: a token that is kept for longer is likely to leak.
const LONGEST_TTL_SECONDS: u32 = 30 * 24 * 60 * 60;
const MOST_USES: u32 = 1000;
/// Bytes of a secret: 128 random bits cannot be guessed, and an operator may have to
/// type them at a console.
const SECRET_BYTES: usize = 16;

/// A token's parts. `Debug` shows no secret.
#[derive(Clone, PartialEq, Eq)]
pub struct TokenText {
    /// Public id.
    pub id: String,
    /// The secret.
    secret: String,
    /// SHA-256 of the `halite` CA's DER, lower-case hex.
    pub ca_sha256: String,
}

impl fmt::Debug for TokenText {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("TokenText")
            .field("id", &self.id)
            .field("ca_sha256", &self.ca_sha256)
            .finish_non_exhaustive()
    }
}

impl TokenText {
    /// Parses a token's text.
    ///
    /// # Errors
    /// The text does not have three hexadecimal parts of the right lengths. The error does not
    /// repeat the text.
    pub fn parse(text: &str) -> Result<Self, Refusal> {
        let hex = |part: &str, length: usize| {
            part.len() == length
                && part
                    .bytes()
                    .all(|b| b.is_ascii_digit() || (b'a'..=b'f').contains(&b))
        };
        // A token of an earlier master has a secret of twice the length.
        let is_secret = |part: &str| [2, 4].iter().any(|per| hex(part, per * SECRET_BYTES));
        match text.split('.').collect::<Vec<_>>()[..] {
            [id, secret, ca] if hex(id, 16) && is_secret(secret) && hex(ca, 64) => Ok(Self {
                id: id.to_owned(),
                secret: secret.to_owned(),
                ca_sha256: ca.to_owned(),
            }),
            _ => Err(Refusal::invalid(
                "invalid token; it must have the form ID.SECRET.CAHASH, as `ctl token create` prints it",
            )),
        }
    }

    fn text(&self) -> String {
        format!("{}.{}.{}", self.id, self.secret, self.ca_sha256)
    }

    /// Returns whether the secret belongs to a stored token.
    #[must_use]
    pub fn matches(&self, token: &Token) -> bool {
        let found = pki::sha256_hex(self.secret.as_bytes());
        // Hashes are compared as a whole, so that the time reveals nothing.
        let same = found
            .bytes()
            .zip(token.secret_sha256.bytes())
            .fold(0, |differences, (a, b)| differences | (a ^ b));
        found.len() == token.secret_sha256.len() && same == 0
    }
}

/// The properties of a new token.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct TokenRequest {
    /// Validity in seconds; 0 for a day.
    pub ttl_seconds: u32,
    /// Number of enrolments; 0 for one.
    pub uses: u32,
    /// Roles that an enrolled node may have; if empty, the roles in the document of its id, and
    /// without an id any role that need not be named.
    pub roles: Vec<String>,
    /// The only id that may use it; empty for any.
    pub id: String,
}

/// Creates and stores a token; returns its text, which is never shown again, and its end.
///
/// # Errors
/// The limits are exceeded, the id is not a valid minion id, or the store fails.
pub async fn create_token(
    app: &App,
    operator: &str,
    wanted: TokenRequest,
) -> Result<(String, Millis), Refusal> {
    let ttl = if wanted.ttl_seconds == 0 {
        DEFAULT_TTL_SECONDS
    } else {
        wanted.ttl_seconds
    };
    let uses = wanted.uses.max(1);
    if ttl > LONGEST_TTL_SECONDS {
        return Err(Refusal::invalid(format!(
            "a token is valid for at most {LONGEST_TTL_SECONDS} seconds (30 days)"
        )));
    }
    if uses > MOST_USES {
        return Err(Refusal::invalid(format!(
            "a token allows at most {MOST_USES} enrolments"
        )));
    }
    let bound_id = if wanted.id.is_empty() {
        None
    } else {
        Some(MinionId::for_host(&wanted.id)?)
    };
    let roles = match &bound_id {
        Some(id) if wanted.roles.is_empty() => declared_roles(app, id)?,
        _ => wanted.roles,
    };
    let internal = |error: pki::PkiError| Refusal::internal(chain(&error));
    let text = TokenText {
        id: pki::hex(&pki::random::<8>().map_err(internal)?),
        secret: pki::hex(&pki::random::<SECRET_BYTES>().map_err(internal)?),
        ca_sha256: app
            .cas
            .certificate_sha256(HALITE)
            .map_err(|error| Refusal::internal(chain(&error)))?,
    };
    let now = app.clock.now();
    let token = Token {
        id: text.id.clone(),
        secret_sha256: pki::sha256_hex(text.secret.as_bytes()),
        expires: now + i64::from(ttl) * 1000,
        uses_left: uses,
        roles,
        bound_id,
        created: now,
        operator: operator.to_owned(),
    };
    app.store.put_token(&token).await?;
    Ok((text.text(), token.expires))
}

/// All tokens, without secrets.
///
/// # Errors
/// The store fails.
pub async fn list_tokens(app: &App) -> Result<TokenList, Refusal> {
    let now = app.clock.now();
    let tokens = app.store.tokens().await?;
    let shown = tokens.into_iter().map(|token| halite_api::Token {
        state: match token {
            Token { expires, .. } if expires <= now => TokenState::Expired,
            Token { uses_left: 0, .. } => TokenState::UsedUp,
            _ => TokenState::Valid,
        },
        token: token.id,
        expires: Time::from_millis(token.expires),
        uses_left: token.uses_left,
        roles: token.roles,
        minion: token.bound_id,
        created: Time::from_millis(token.created),
        operator: token.operator,
    });
    Ok(TokenList {
        tokens: shown.collect(),
    })
}

/// Revokes a token.
///
/// # Errors
/// The token does not exist, or the store fails.
pub async fn revoke_token(app: &App, id: &str) -> Result<TokenRevocation, Refusal> {
    if app.store.delete_token(id).await? {
        Ok(TokenRevocation {
            token: id.to_owned(),
            state: TokenState::Revoked,
        })
    } else {
        Err(Refusal::not_found(format!(
            "there is no token {id:?}; `ctl token list` shows them"
        )))
    }
}
