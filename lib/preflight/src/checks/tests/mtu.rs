//! The MTUs of the planes.

use super::*;

/// The planes are two networks: 10.0.0.0/24 of the control plane, 10.1.0.0/24 of the workload.
#[test]
fn the_mtu_is_compared_in_each_plane() {
    let warning = |own: (u32, u32), theirs: (u32, u32)| {
        let mut facts = good_added();
        facts.mtus = [([10, 0, 0, 2].into(), own.0), ([10, 1, 0, 2].into(), own.1)].into();
        let ClusterPart::Added(added) = &mut facts.part else {
            unreachable!()
        };
        added.addresses = Planes {
            control: Some([10, 0, 0, 2].into()),
            workload: Some([10, 1, 0, 2].into()),
        };
        let interface = |network: u8, mtu: u32| {
            let address = [10, network, 0, 1].into();
            Some(Interface { address, mtu })
        };
        added.others[0].interfaces = Planes {
            control: interface(0, theirs.0),
            workload: interface(1, theirs.1),
        };
        let found = run(&facts).into_iter().find(|found| found.name == "mtu");
        match found.unwrap().verdict {
            Verdict::Good => String::new(),
            verdict => format!("{verdict:?}"),
        }
    };
    assert_eq!(warning((1500, 1500), (1500, 1500)), "");
    assert_eq!(warning((9000, 1400), (9000, 1400)), "", "each has its own");
    let text = warning((1500, 1400), (1500, 1500));
    let words =
        "the MTU in the workload plane is 1400 at 10.1.0.2, and 1500 at 10.1.0.1 of bootstrap-1";
    assert!(text.contains(words), "{text}");
    let text = warning((1500, 1500), (1400, 1500));
    assert!(text.contains("in the control plane is 1500"), "{text}");
    let swapped = warning((1400, 1500), (1500, 1400));
    assert!(
        swapped.contains("in the control plane is 1400"),
        "{swapped}"
    );
}

#[test]
fn a_host_whose_mtu_is_not_known_is_not_compared() {
    let mut facts = good_added();
    facts.mtus = [([10, 0, 0, 2].into(), 9000)].into();
    let ClusterPart::Added(added) = &mut facts.part else {
        unreachable!()
    };
    added.others[0].interfaces = Planes::UNKNOWN;
    assert_eq!(warned(&facts), [""; 0]);
}
