use super::*;

#[test]
fn good_and_bad_texts() {
    let table: [(&str, &[&str], &[&str]); 17] = [
        (
            "ipv4-network",
            &["10.0.0.0/8", "0.0.0.0/0", "10.0.0.1/32"],
            &["10.0.0.1/8", "10.0.0.0", "10.0.0.0/33", "fd00::/64", ""],
        ),
        (
            "ipv4-address",
            &["10.0.0.1"],
            &[
                "10.0.0.0/8",
                "10.0.0",
                "127.0.0.1",
                "0.0.0.0",
                "::1",
                "224.0.0.1",
            ],
        ),
        (
            "dns-subdomain",
            &["a", "worker-1", "a.b-c.d"],
            &["A", "-a", "a-", "a..b", "", "a_b", "é"],
        ),
        (
            "certificate-name",
            &["*.a.b", "::1", "10.0.0.1", "a"],
            &["a:6443", "https://a", "a*", ""],
        ),
        (
            "kubernetes-version",
            &["1.36", "v1.36.3"],
            &["1", "latest", "1.36.x", "1.2.3.4", ""],
        ),
        (
            "flag-name",
            &["audit-log-maxage", "v"],
            &["--v", "v=1", "Audit", ""],
        ),
        (
            "label-key",
            &["a", "example.com/a_b"],
            &["/a", "a/", "A B", "a/b/c d"],
        ),
        (
            "user-name",
            &["ci", "a.b-c_D1"],
            &["", "a b", "a:b", "-a", "é"],
        ),
        (
            "absolute-path",
            &["/srv/b-1/x_y.z"],
            &["", "/", "//a", "a", "/a/../b", "/a b", "/%i", "/a\nb"],
        ),
        (
            "time-of-day",
            &["00:00", "23:59"],
            &["", "24:00", "1:00", "00:60", "+1:00", "02:30:00"],
        ),
        (
            "day-of-week",
            &["Mon", "Sun", "daily", "never"],
            &["", "sun", "Sunday", "Mon,Tue", "weekly", "*"],
        ),
        ("label-value", &["", "a.B_c-1"], &["-a", "a b", "a-"]),
        (
            "certificates-name",
            &["corp", "a-b_C1"],
            &["", "a.b", "a/b", "-a", "a b", "é"],
        ),
        (
            "registry-host",
            &[
                "docker.io",
                "registry.corp:5000",
                "10.0.0.1:80",
                "localhost",
            ],
            &[
                "",
                "_default",
                "a/b",
                "https://a",
                "a:",
                "a:0",
                "a:+1",
                "a:b",
                "A.io",
                "a:1:2",
                "*",
                "a b",
            ],
        ),
        (
            "no-proxy",
            &[
                "a",
                ".corp",
                "*.corp",
                "a.corp:443",
                "10.0.0.0/8",
                "10.0.0.1",
                "::1",
                "fd00::/8",
            ],
            &[
                "",
                "*",
                "a,b",
                "a b",
                "https://a",
                "10.0.0.0/33",
                "a/b",
                "a\"b",
                ".",
                "a:0",
            ],
        ),
        (
            "time-server",
            &["ntp.corp", "10.0.0.1", "fd00::1"],
            &["", "a b", "a:123", "*.corp", "A"],
        ),
        (
            "sysctl-key",
            &["net.ipv4.ip_forward", "net/ipv4/conf/eth0.1/x"],
            &["", "a b", "a=1", "../x"],
        ),
    ];
    for (format, good, bad) in table {
        for text in good {
            assert_eq!(check(format, text), Ok(()), "{format}: {text}");
        }
        for text in bad {
            assert!(check(format, text).is_err(), "{format}: {text}");
        }
    }
}
