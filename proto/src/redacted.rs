//! `Debug` of messages that contain a secret.

use std::fmt;

use crate::v1::ImportCaRequest;

impl fmt::Debug for ImportCaRequest {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ImportCaRequest")
            .field("name", &self.name)
            .field("certificate_pem", &self.certificate_pem)
            .field("chain_pem", &self.chain_pem)
            .field("discard", &self.discard)
            .finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn debug_output_of_an_import_has_no_key() {
        let request = ImportCaRequest {
            name: "etcd".to_owned(),
            key_pem: "canary".to_owned(),
            ..ImportCaRequest::default()
        };
        let shown = format!("{request:?}");
        assert!(
            shown.contains("etcd") && !shown.contains("canary"),
            "{shown}"
        );
    }
}
