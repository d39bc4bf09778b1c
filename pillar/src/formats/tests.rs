use proptest::prelude::*;

use super::*;

/// Every format.
const FORMATS: [&str; 23] = [
    "ipv4-network",
    "ipv4-address",
    "dns-subdomain",
    "certificate-name",
    "kubernetes-version",
    "flag-name",
    "label-key",
    "label-value",
    "sysctl-key",
    "module-name",
    "package-name",
    "secret-name",
    "user-name",
    "certificates-name",
    "registry-host",
    "no-proxy",
    "time-server",
    "absolute-path",
    "time-of-day",
    "day-of-week",
    "weekly",
    "percent",
    "batch",
];

/// The value that a hint tells the operator to write.
fn named_in(hint: &str) -> Option<String> {
    let value = hint
        .strip_prefix("write it as `")
        .and_then(|rest| rest.strip_suffix(": VALUE`"))
        .or_else(|| hint.strip_prefix("the network that contains it is "))
        .or_else(|| {
            hint.strip_prefix("write ")
                .filter(|rest| !rest.contains(' '))
        });
    value.map(str::to_owned)
}

proptest! {
    #[test]
    fn what_a_hint_says_to_write_has_the_format(
        text in "[-a-cA-C0-9_./= :é]{0,12}|[A-C][a-c_.]{1,6}(/[A-C]{1,3})?|--?[aA_]{1,3}(=1)?|[0-9.]{7,11}/[0-9]{1,2}",
    ) {
        for format in FORMATS {
            if let Err(misfit) = check(format, &text) {
                let named = named_in(&misfit.hint);
                prop_assert_eq!(&named, &misfit.suggestion, "{}: {:?}: {}", format, text, misfit.hint);
                if let Some(named) = named {
                    prop_assert_eq!(check(format, &named), Ok(()), "{}: {:?}", format, text);
                }
            }
        }
    }
}

#[test]
fn a_suggestion_is_made_where_one_is_accepted() {
    for (format, text, hint) in [
        ("dns-subdomain", "Prod_1", "write prod-1"),
        ("dns-subdomain", "Prod", "write prod"),
        (
            "dns-subdomain",
            "Prod_",
            "use lower-case letters, digits and `-` (RFC 1123)",
        ),
        ("label-key", "Example.com/role", "write example.com/role"),
        ("flag-name", "--v=1", "write it as `v: VALUE`"),
        ("flag-name", "--Audit", "write audit"),
        (
            "flag-name",
            "--_",
            "lower-case letters, digits and `-`, for example audit-log-maxage",
        ),
    ] {
        let misfit = check(format, text).unwrap_err();
        assert_eq!(misfit.hint, hint, "{format}: {text}");
    }
}

#[test]
fn good_and_bad_texts() {
    let table: [(&str, &[&str], &[&str]); 20] = [
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
        (
            "weekly",
            &["Mon 00:00", "Sun 23:59", "03:30", "never"],
            &[
                "",
                "Sun",
                "sun 03:30",
                "Sunday 03:30",
                "Sun  03:30",
                "Sun 3:30",
                "Sun 24:00",
                "Mon,Tue 03:30",
                "daily 03:30",
                "00/6:00",
                "weekly",
            ],
        ),
        (
            "percent",
            &["1%", "45%", "99%"],
            &[
                "", "%", "45", "0%", "100%", "045%", "4.5%", "+5%", "45 %", "45%%", "999%",
            ],
        ),
        (
            "batch",
            &["1", "3", "65535", "1%", "25%", "100%"],
            &[
                "", "%", "0", "0%", "101%", "-1", "+1", "03", "2.5%", "3 %", "65536", "half",
            ],
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
