use super::*;

fn list(ports: &[&str]) -> Vec<String> {
    ports.iter().map(|port| (*port).to_owned()).collect()
}

#[test]
fn ports_are_merged_and_bad_ones_refused() {
    let found = ports(&list(&[
        "90/udp",
        "80-80/tcp",
        "82-90/tcp",
        "85/tcp",
        "0053/udp",
    ]));
    assert_eq!(found.unwrap(), ["80/tcp", "82-90/tcp", "53/udp", "90/udp"]);
    assert_eq!(
        ports(&list(&["80-81/tcp", "82/tcp"])).unwrap(),
        ["80-82/tcp"]
    );
    for bad in [
        "80",
        "80/TCP",
        "80/icmp",
        "90-80/tcp",
        "70000/tcp",
        "ssh/tcp",
        "+1/tcp",
        "/tcp",
    ] {
        assert!(ports(&list(&[bad])).is_err(), "{bad}");
    }
}

#[test]
fn sources_have_one_spelling() {
    for (text, wanted) in [
        ("10.0.0.1/8", "10.0.0.0/8"),
        ("10.0.0.1/255.0.0.0", "10.0.0.0/8"),
        ("10.0.0.1/32", "10.0.0.1"),
        ("0.0.0.0/0", "0.0.0.0/0"),
        ("FD00:0::1/64", "fd00::/64"),
        ("::/0", "::/0"),
        ("aa:bb:cc:00:11:22", "AA:BB:CC:00:11:22"),
        ("ipset:halite-nodes", "ipset:halite-nodes"),
    ] {
        assert_eq!(source(text).unwrap(), wanted, "{text}");
    }
    for bad in [
        "10.0.0/8",
        "10.0.0.1/33",
        "10.0.0.1/255.0.255.0",
        "::/129",
        "host",
        "ipset:",
        "",
    ] {
        assert!(source(bad).is_err(), "{bad}");
    }
}

#[test]
fn rules_have_one_spelling() {
    for (text, wanted) in [
        (
            "rule family='ipv4'  source address=\"10.0.0.1/8\" accept",
            "rule family=ipv4 source address=10.0.0.0/8 accept",
        ),
        (
            "rule accept service name=ssh source not ipset=a family=ipv6 priority=010",
            "rule priority=10 family=ipv6 source NOT ipset=a service name=ssh accept",
        ),
        (
            "rule priority=0 port protocol=tcp port=80-80 log limit value=3/minute prefix='a b' level=info drop",
            "rule port port=80 protocol=tcp log prefix=\"a b\" level=info limit value=3/m drop",
        ),
        (
            "rule protocol value=\"vrrp\" accept limit burst=0 value=1/s",
            "rule protocol value=vrrp accept limit value=1/s",
        ),
    ] {
        let found = rich_rule(text).unwrap();
        assert_eq!(found, wanted, "{text}");
        assert_eq!(rich_rule(&found).unwrap(), wanted);
    }
    for bad in [
        "family=ipv4 accept",
        "rule family=ip accept",
        "rule accept drop",
        "rule source address=10.0.0/8 accept",
        "rule port port=80 protocol=TCP accept",
        "rule acept",
        "rule service name=\"ssh accept",
        "rule name=ssh",
        "rule accept limit value=3/week",
    ] {
        assert!(rich_rule(bad).is_err(), "{bad}");
    }
}
