//! The file of an operator follows the rotation of the CA of identities. The master presents its
//! CAs with each connection, and signs another certificate for the same key.

use std::path::Path;
use std::time::Duration;

use anyhow::Context as _;
use halite_proto::pki;
use halite_proto::pki::{Inspected, PrivateKey};
use halite_proto::tonic::Code;
use halite_proto::transport::{Channel, ClientIdentity};
use halite_proto::v1::operator_client::OperatorClient;
use halite_proto::v1::{CreateOperatorReply, RenewOperatorRequest};

use crate::identity;
use crate::identity::OperatorIdentity;

/// Limit for the master to sign a certificate.
const ANSWER: Duration = Duration::from_secs(15);

/// Brings the file of an operator up to date, if the master that has answered trusts other CAs than
/// the file has, or another one signs. States write the directory of root on a host. A failure is
/// reported: the identity works until the old CA leaves.
pub async fn follow_ca(path: &Path, own: &OperatorIdentity, channel: &Channel) {
    if !path.is_file() || !is_behind(own, channel.authorities()) {
        return;
    }
    if let Err(error) = follow(path, own, channel).await {
        halite_cli::output::report(&format!(
            "ctl: cannot update the identity in {}, which will be refused when the rotation of the CA halite ends: {error:#}",
            path.display()
        ));
    }
}

/// Returns whether an identity differs from what a master presents (PEM).
fn is_behind(own: &OperatorIdentity, presented: &str) -> bool {
    let Ok(cas) = pki::certificates(presented) else {
        return false;
    };
    let trusts = pki::certificates(&own.ca_pem).is_ok_and(|own| own == cas);
    cas.len() > 1 || !trusts || !pki::is_of_signer(&own.client.certificate_pem, presented)
}

async fn follow(path: &Path, own: &OperatorIdentity, channel: &Channel) -> anyhow::Result<()> {
    let presented = channel.authorities();
    let mut client = own.client.clone();
    // During a rotation it always asks: a restored master does not know that it has signed this
    // one.
    let is_rotated = pki::certificates(presented)?.len() > 1;
    if is_rotated || !pki::is_of_signer(&client.certificate_pem, presented) {
        let name = Inspected::from_pem(&client.certificate_pem)?.identity()?;
        let csr_pem = PrivateKey::from_pem(&client.key_pem)?.request(name.id())?;
        let request = RenewOperatorRequest { csr_pem };
        let mut master = OperatorClient::new(channel.clone());
        let asked = tokio::time::timeout(ANSWER, master.renew_operator(request)).await;
        let asked = asked.context("the master did not answer in time")?;
        client = match asked {
            Ok(reply) => renewed(client, reply.into_inner()),
            // The connection was refused: the command itself reports it.
            Err(status) if status.code() == Code::Unavailable => return Ok(()),
            Err(status) => anyhow::bail!("{}", status.message()),
        };
    }
    let found = Inspected::from_pem(&client.certificate_pem)?;
    anyhow::ensure!(
        found.fingerprint == PrivateKey::from_pem(&client.key_pem)?.fingerprint(),
        "the master has signed another key"
    );
    let is_same =
        |one: &str, other: &str| pki::certificates(one).ok() == pki::certificates(other).ok();
    if is_same(&client.certificate_pem, &own.client.certificate_pem)
        && is_same(presented, &own.ca_pem)
    {
        return Ok(());
    }
    let ca_pem = presented.to_owned();
    identity::replace(path, &OperatorIdentity { client, ca_pem })
}

/// The identity with the certificate of the master's reply.
pub fn renewed(client: ClientIdentity, reply: CreateOperatorReply) -> ClientIdentity {
    ClientIdentity {
        certificate_pem: reply.certificate_pem,
        ..client
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::client::CERTIFICATE;

    /// The certificate has signed itself.
    #[test]
    fn an_identity_follows_the_cas_that_a_master_presents() {
        let own = OperatorIdentity {
            client: ClientIdentity {
                certificate_pem: CERTIFICATE.to_owned(),
                key_pem: String::new(),
            },
            ca_pem: CERTIFICATE.to_owned(),
        };
        assert!(!is_behind(&own, CERTIFICATE));
        assert!(is_behind(&own, &format!("{CERTIFICATE}{CERTIFICATE}")));
        // A master that presents none.
        assert!(!is_behind(&own, ""));
    }
}
