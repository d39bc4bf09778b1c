//! `ctl certs csr` and `ctl certs import`: the next CA of a name, which its rotation takes
//! (docs/decisions/0103).

use halite_api::{CaRequest, PreparedCa, PreparedState};
use halite_core::ca::GivenCa;
use halite_core::declared::Declarations;
use halite_core::refusal::Refusal;
use halite_proto::v1::ImportCaRequest;
use halite_store::Millis;

use super::certificates;

/// The most characters of a name in the audit: the request may contain any text.
const NAME_MAX: usize = 80;

/// The note about a CA that cannot sign the one after it.
const PATH_LENGTH: &str = "its path length is 0, so it cannot sign the CA that comes after it: in the rotation after this one, \
                           clients that know only this CA are refused from the second stage on";

/// The name of a CA in the audit.
#[must_use]
pub fn short(name: &str) -> String {
    name.chars().take(NAME_MAX).collect()
}

/// An import as the audit shows it.
#[must_use]
pub fn words(request: &ImportCaRequest) -> String {
    let kind = match (request.discard, request.key_pem.is_empty()) {
        (true, _) => "discard",
        (false, true) => "for a request",
        (false, false) => "with its key",
    };
    format!("{} ({kind})", short(&request.name))
}

/// The request for the certificate of the next CA of a name.
///
/// # Errors
/// The cluster cannot have this CA, or a file cannot be written.
pub async fn request(declarations: &Declarations, name: &str) -> Result<CaRequest, Refusal> {
    let request = declarations.request_ca(name).await?;
    Ok(CaRequest {
        name: name.to_owned(),
        request,
    })
}

/// Records the next CA of a name, or removes it.
///
/// # Errors
/// The request contradicts itself, the CA has problems, or a file cannot be written.
pub async fn import(
    declarations: &Declarations,
    now: Millis,
    request: ImportCaRequest,
) -> Result<PreparedCa, Refusal> {
    let name = request.name;
    if request.discard {
        let is_empty = request.certificate_pem.is_empty() && request.key_pem.is_empty();
        if !is_empty {
            return Err(Refusal::invalid(format!(
                "cannot import the CA {name:?} and discard it: give either --discard or --cert"
            )));
        }
        if !declarations.discard_ca(&name).await? {
            return Err(Refusal::not_found(format!(
                "cannot discard the next CA {name}: none was requested or imported; `ctl certs list` shows those"
            )));
        }
        tracing::info!(ca = name, "the next CA was discarded");
        return Ok(PreparedCa {
            name,
            state: PreparedState::Discarded,
            subject: None,
            expires: None,
            days_left: None,
            note: None,
        });
    }
    let given = GivenCa::new(request.certificate_pem, request.key_pem, request.chain_pem);
    let imported = declarations.import_ca(&name, given).await?;
    tracing::info!(ca = name, "the next CA was imported");
    let certificate = Some(imported.certificate.as_str());
    let mut prepared = certificates::prepared_ca(&name, certificate, now)?;
    prepared.note = (imported.path_length == Some(0)).then(|| PATH_LENGTH.to_owned());
    Ok(prepared)
}
