//! Enrolment and renewal, that is, certificates for keys with a proof of possession.
//!
//! Requests may be repeated: the same key gets the same answer and uses up nothing, so that a
//! minion or master that was killed at any point just asks again.

use halite_api::{EventData, KeyAction, KeyChanged};
use halite_core::app::App;
use halite_core::ca;
use halite_core::ca::{HALITE, Issued, Profile};
use halite_core::refusal::Refusal;
use halite_errors::chain;
use halite_proto::identity::{Identity, IdentityKind};
use halite_proto::ids::MinionId;
use halite_proto::pki::Inspected;
use halite_store::{Certificate, KeyState, Millis, Revocation, StoredKey, Token};

use super::declared_roles::check_roles;
use super::token::TokenText;
use super::{host_facts, pending};

/// Size limit of a stored certificate request: one with an RSA key of 4096 bits has 2 KB.
const REQUEST_MAX: usize = 4096;

/// A request for enrolment.
#[derive(Debug, Clone, Default)]
pub struct EnrolmentRequest {
    /// The id that the host requests.
    pub id: String,
    /// Certificate request, PEM.
    pub csr_pem: String,
    /// The token's text; if empty, an operator must decide.
    pub token: String,
    /// Grains, JSON.
    pub grains_json: String,
    /// The owner of the requesting address, for limits.
    pub source: String,
}

/// The result of a request.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum EnrolAnswer {
    /// The host is accepted.
    Accepted {
        /// The certificate, PEM.
        certificate_pem: String,
        /// Fingerprint of the key.
        fingerprint: String,
        /// `true` if this request accepted the key, `false` if it already was accepted.
        new: bool,
    },
    /// An operator must compare this fingerprint.
    Pending {
        /// Fingerprint of the key.
        fingerprint: String,
        /// `true` if this request stored the key, `false` if it was already pending.
        new: bool,
    },
    /// The host is refused.
    Rejected {
        /// Fingerprint of the key.
        fingerprint: String,
        /// The reason and the remedy.
        reason: String,
    },
}

/// Decides a request for enrolment.
///
/// # Errors
/// The request is malformed or its token is invalid; nothing was stored.
pub async fn enrol(app: &App, newcomer: &EnrolmentRequest) -> Result<EnrolAnswer, Refusal> {
    let id = &MinionId::for_host(&newcomer.id)?;
    if newcomer.csr_pem.len() > REQUEST_MAX {
        return Err(Refusal::invalid(format!(
            "the certificate request has more than {REQUEST_MAX} bytes"
        )));
    }
    let fingerprint = ca::request_fingerprint(&newcomer.csr_pem)
        .map_err(|error| Refusal::invalid(chain(&error)))?;
    let host = host_facts::brief(&newcomer.grains_json, &newcomer.source)?;
    // One at a time: two requests for one id must not both find it free.
    let _turn = app.enrolling.lock().await;
    let now = app.clock.now();
    let known = app.store.key(id).await?;
    let accepted =
        |key: &&StoredKey| key.fingerprint == fingerprint && key.state == KeyState::Accepted;
    if let Some(key) = known.as_ref().filter(accepted) {
        return accepted_before(app, key, now).await;
    }
    let rejected =
        |key: &StoredKey| key.fingerprint == fingerprint && key.state == KeyState::Rejected;
    let token = match newcomer.token.as_str() {
        "" => None,
        text => match valid_token(app, text, id, now).await {
            Ok(token) => Some(token),
            // Its token was revoked with it; the rejection is the better answer.
            Err(_) if known.as_ref().is_some_and(rejected) => None,
            Err(error) => return Err(error),
        },
    };
    // A token from before the rejection does not override it.
    let is_later = match &token {
        Some(token) => app.store.is_token_newer(&token.id, id).await?,
        None => false,
    };
    if let Some(reason) = refusal(known.as_ref(), &fingerprint, token.as_ref(), is_later) {
        // Not stored: a stranger can cause any number of these events.
        let refused = KeyChanged {
            minion: id.clone(),
            action: KeyAction::Refused,
            fingerprint: Some(fingerprint.clone()),
            token: None,
            reason: Some(reason.clone()),
        };
        app.events.announce(&EventData::KeyChanged(refused), None);
        return Ok(EnrolAnswer::Rejected {
            fingerprint,
            reason,
        });
    }
    let mut key = StoredKey {
        id: id.clone(),
        state: KeyState::Pending,
        fingerprint: fingerprint.clone(),
        csr_pem: newcomer.csr_pem.clone(),
        serial: None,
        certificate_pem: None,
        roles: Vec::new(),
        grains_json: host,
        token: None,
        created: known.as_ref().map_or(now, |key| key.created),
        changed: now,
    };
    let Some(token) = token else {
        let waits = pending::wait_for_operator(app, key, known.as_ref(), &newcomer.source);
        let new = waits.await?;
        return Ok(EnrolAnswer::Pending { fingerprint, new });
    };
    check_roles(app, id, &token)?;
    let issued = issue(app, &key, now).await?;
    key.state = KeyState::Accepted;
    key.serial = Some(issued.serial.clone());
    key.certificate_pem = Some(issued.certificate_pem.clone());
    key.roles.clone_from(&token.roles);
    key.token = Some(token.id.clone());
    if !app.store.put_key_with_token(&key, &token.id, now).await? {
        return Err(bad_token());
    }
    if let Some(old) = known.filter(|old| old.fingerprint != fingerprint) {
        revoke_certificate(app, &old, "replaced with a token bound to the id", now).await?;
    }
    app.gate.open(id, &fingerprint);
    tracing::info!(
        minion = %id,
        fingerprint,
        token = token.id,
        "minion enrolled"
    );
    app.events
        .publish(&EventData::KeyChanged(KeyChanged {
            minion: id.clone(),
            action: KeyAction::Accepted,
            fingerprint: Some(fingerprint.clone()),
            token: Some(token.id.clone()),
            reason: None,
        }))
        .await?;
    Ok(EnrolAnswer::Accepted {
        certificate_pem: issued.certificate_pem,
        fingerprint,
        new: true,
    })
}

/// The reason to refuse a request, whatever else it contains. `is_later` is `true` if its token was
/// made after the last change of the known key.
fn refusal(
    known: Option<&StoredKey>,
    fingerprint: &str,
    token: Option<&Token>,
    is_later: bool,
) -> Option<String> {
    let known = known?;
    let same = known.fingerprint == fingerprint;
    let bound = token.is_some_and(|token| token.bound_id.is_some());
    match known.state {
        KeyState::Rejected if same && !(bound && is_later) => Some(rejection(&known.id)),
        // An operator who binds a token to an id confirms that this id may enrol, also again,
        // whatever its history.
        _ if bound => None,
        KeyState::Pending if same || token.is_some() => None,
        KeyState::Pending => Some(format!(
            "another key with the id {:?} is pending; use a token, or delete it: ctl key delete {0}",
            known.id
        )),
        KeyState::Accepted | KeyState::Rejected => Some(format!(
            "the id {:?} belongs to another key; if this host replaces the old one: ctl key delete {0}, or use a token bound to \
             the id: ctl token create --id {0}",
            known.id
        )),
    }
}

fn rejection(id: &str) -> String {
    format!(
        "an operator rejected this key; to accept it after all: ctl key accept {id} --fingerprint FINGERPRINT"
    )
}

/// Returns whether a key was cut off by an order that the store had no space to record.
pub(super) fn is_cut_off(app: &App, key: &StoredKey) -> bool {
    let serial = key.serial.as_ref();
    serial.is_some_and(|serial| app.gate.is_revoked(serial))
}

async fn accepted_before(app: &App, key: &StoredKey, now: Millis) -> Result<EnrolAnswer, Refusal> {
    let fingerprint = key.fingerprint.clone();
    if is_cut_off(app, key) {
        return Ok(EnrolAnswer::Rejected {
            fingerprint,
            reason: rejection(&key.id),
        });
    }
    let is_good = |pem: &&String| fresh(pem, now) && app.cas.has_signed_identity(pem);
    let certificate_pem = match key.certificate_pem.as_ref().filter(is_good) {
        Some(pem) => pem.clone(),
        None => reissue(app, key.clone(), now).await?,
    };
    // The process may have ended between the store and the gate.
    app.gate.open(&key.id, &fingerprint);
    Ok(EnrolAnswer::Accepted {
        certificate_pem,
        fingerprint,
        new: false,
    })
}

/// Returns whether more than a third of a certificate's life is left.
fn fresh(pem: &str, now: Millis) -> bool {
    Inspected::from_pem(pem).is_ok_and(|found| {
        let life = found.not_after - found.not_before;
        found.not_after - now / 1000 > life / 3
    })
}

fn bad_token() -> Refusal {
    // One text for all cases: a stranger must not learn which tokens exist.
    Refusal::denied(
        "the token is not valid: unknown, expired, used up, or not for this id; `ctl token create` makes one",
    )
}

async fn valid_token(app: &App, text: &str, id: &MinionId, now: Millis) -> Result<Token, Refusal> {
    let text = TokenText::parse(text)?;
    let token = app.store.token(&text.id).await?.ok_or_else(bad_token)?;
    let allowed = token.expires > now
        && token.uses_left > 0
        && token.bound_id.as_ref().is_none_or(|bound| bound == id)
        && text.matches(&token);
    if allowed { Ok(token) } else { Err(bad_token()) }
}

/// Signs a key's request as the identity of its minion, and records the certificate.
pub(super) async fn issue(app: &App, key: &StoredKey, now: Millis) -> Result<Issued, Refusal> {
    let internal = |e: &dyn std::fmt::Display| Refusal::internal(e.to_string());
    let identity = Identity::new(&app.config.cluster, IdentityKind::Minion, &key.id)
        .map_err(|e| internal(&e))?;
    let issued = app
        .cas
        .sign(HALITE, &key.csr_pem, &Profile::identity(&identity), now)
        .map_err(|e| internal(&e))?;
    app.store
        .put_certificate(&Certificate {
            serial: issued.serial.clone(),
            ca: HALITE.to_owned(),
            subject: issued.subject.clone(),
            owner: key.id.to_string(),
            job: None,
            tag: String::new(),
            created: now,
            not_after: issued.not_after.saturating_mul(1000),
            pem: issued.certificate_pem.clone(),
        })
        .await?;
    Ok(issued)
}

async fn reissue(app: &App, mut key: StoredKey, now: Millis) -> Result<String, Refusal> {
    let issued = issue(app, &key, now).await?;
    key.serial = Some(issued.serial);
    key.certificate_pem = Some(issued.certificate_pem.clone());
    key.changed = now;
    app.store.put_key(&key).await?;
    Ok(issued.certificate_pem)
}

/// Revokes the certificate of a deleted, rejected or replaced key.
pub(super) async fn revoke_certificate(
    app: &App,
    key: &StoredKey,
    why: &str,
    now: Millis,
) -> Result<(), Refusal> {
    let Some(serial) = &key.serial else {
        return Ok(());
    };
    // Memory first: a full disk must not keep a key admitted.
    app.gate.revoke(serial);
    let revocation = Revocation {
        serial: serial.clone(),
        owner: key.id.to_string(),
        when: now,
        reason: why.to_owned(),
    };
    app.store.revoke(&revocation).await?;
    Ok(())
}

/// Renews a minion's own certificate. The key stays the same: another key would have to enrol
/// again, because a minion has only one key at a time, and a crash between the two would lock it
/// out.
///
/// # Errors
/// The request is malformed or belongs to another key.
pub async fn renew(app: &App, minion: &MinionId, csr_pem: &str) -> Result<String, Refusal> {
    let fingerprint =
        ca::request_fingerprint(csr_pem).map_err(|error| Refusal::invalid(chain(&error)))?;
    let _turn = app.enrolling.lock().await;
    let mut key = app
        .store
        .key(minion)
        .await?
        .ok_or_else(|| Refusal::denied("the key is no longer accepted"))?;
    if key.state != KeyState::Accepted || key.fingerprint != fingerprint {
        return Err(Refusal::denied(
            "a certificate is renewed with its existing key; for a new key, delete the old one and enrol again",
        ));
    }
    csr_pem.clone_into(&mut key.csr_pem);
    reissue(app, key, app.clock.now()).await
}
