//! The declared way in which certificates are renewed.

use halite_pillar::certificates::Renewal;
use halite_pillar::load::{Text, Texts, load};
use halite_pillar::validate::Context;

const CLUSTER: &str = "apiVersion: halite/v1
kind: Cluster
metadata: {name: prod}
networks:
  controlPlane: {cidrs: [10.0.0.0/24]}
kubernetes: {version: \"1.36\"}
";

#[test]
fn the_master_renews_certificates_unless_another_way_is_declared() {
    for (written, renews) in [
        ("", Renewal::Automatic),
        ("certificates: {}\n", Renewal::Automatic),
        ("certificates: {renew: automatic}\n", Renewal::Automatic),
        ("certificates: {renew: report}\n", Renewal::Report),
    ] {
        let texts = Texts {
            cluster: Text {
                file: "cluster.yaml".to_owned(),
                text: format!("{CLUSTER}{written}"),
            },
            ..Texts::default()
        };
        let declaration = load(&texts, &Context::default()).unwrap();
        assert_eq!(declaration.cluster.certificates.renew, renews, "{written}");
    }
}
