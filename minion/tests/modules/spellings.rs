//! The law of a second run, for spellings: what one spelling of the arguments has made is complete
//! for every other spelling that means the same; and a spelling that means nothing here is refused.

use halite_minion_fake::FakeHost;
use halite_states::compile::{Input, sls};
use halite_states::low::Chunk;
use halite_states::tree::MemoryTree;
use serde_json::{Value, json};

use super::support::{Case, build, carry_out};
use super::{block_on, checked};

/// A case without arguments.
fn case(function: &str, name: &str, host: &Value) -> Case {
    let value = json!({"name": name, "host": host, "expect": {"noop": true}});
    let mut case: Case = serde_json::from_value(value).unwrap();
    let (state, fun) = function.split_once('.').unwrap();
    (case.state, case.fun) = (state.to_owned(), fun.to_owned());
    case
}

/// The call with arguments in YAML, in flow style.
fn compiled(case: &Case, arguments: &str) -> Result<Chunk, String> {
    let name = json!(case.name);
    let arguments = arguments.split("; ").map(|one| format!("    - {one}\n"));
    let source = format!(
        "case:\n  {}.{}:\n    - name: {name}\n{}",
        case.state,
        case.fun,
        arguments.collect::<String>()
    );
    let tree = MemoryTree::new().with("a.sls", source.as_str());
    let (pillar, grains) = (json!({}), json!({}));
    let input = Input {
        tree: &tree,
        minion: "m",
        pillar: &pillar,
        grains: &grains,
        bundle: &|_| None,
    };
    let compiled = sls(&input, &["a".to_owned()]);
    let compiled = compiled.map_err(|problems| problems[0].to_string())?;
    Ok(compiled.low.chunks[0].clone())
}

async fn second_run(case: &Case, first: &Chunk, second: &Chunk) -> anyhow::Result<Value> {
    let host: FakeHost = build(case).await?;
    carry_out(&host, &checked(&host, case, first).await?).await?;
    let plan = checked(&host, case, second).await?;
    anyhow::ensure!(plan.effects.is_empty() == plan.changes.is_empty());
    Ok(Value::Object(plan.changes))
}

/// Function, name, the host at the start, and spellings with one meaning.
type Row = (&'static str, &'static str, Value, Vec<&'static str>);

fn rows() -> Vec<Row> {
    let accounts = json!({
        "users": {"a": {"uid": 10, "home": "/home/a", "shell": "/bin/sh"}, "b": {"uid": 11}},
        "groups": {"web": {"gid": 20}, "log": {"gid": 21}, "adm": {"gid": 22}},
        "files": {"/etc/x": "x\n"},
    });
    let packages = json!({"offered": {"curl": "1:7.88.1-10"}});
    vec![
        (
            "firewalld.zone",
            "z",
            json!({}),
            vec![
                "ports: [80/tcp, 90/udp]",
                "ports: [90-90/udp, 80-80/tcp]",
                "ports: [90/udp, 80/tcp, 80/tcp]",
            ],
        ),
        (
            "firewalld.zone",
            "z",
            json!({}),
            vec![
                "ports: [80-82/tcp]",
                "ports: [80-81/tcp, 81-82/tcp]",
                "ports: [82/tcp, 81/tcp, 80/tcp]",
                "ports: 80-82/tcp",
            ],
        ),
        (
            "firewalld.zone",
            "z",
            json!({}),
            vec![
                "sources: [10.0.0.0/8, 'fd00::1', 'AA:BB:CC:00:11:22']",
                "sources: ['fd00:0:0::0001', 10.1.2.3/8, 'aa:bb:cc:00:11:22']",
                "sources: ['FD00::1/128', 10.0.0.0/255.0.0.0, 'aa:BB:cc:00:11:22']",
            ],
        ),
        (
            "firewalld.policy",
            "p",
            json!({}),
            vec![
                "ingress_zones: [ANY]; egress_zones: HOST; rich_rules: ['rule family=\"ipv4\" source address=\"10.0.0.0/8\" port port=\"22\" protocol=\"tcp\" log prefix=\"a b\" limit value=\"3/m\" accept']",
                "ingress_zones: ANY; egress_zones: [HOST]; rich_rules: ['rule accept log limit value=3/minute prefix=\"a b\" port protocol=tcp port=22-22 source address=10.9.9.9/8 family=ipv4 priority=0']",
            ],
        ),
        (
            "user.present",
            "a",
            accounts.clone(),
            vec![
                "groups: [web, log]; uid: 10",
                "groups: [log, web, log]; uid: '10'",
            ],
        ),
        (
            "user.present",
            "new",
            accounts.clone(),
            vec!["gid: web", "gid: 20", "gid: '20'"],
        ),
        (
            "group.present",
            "web",
            accounts.clone(),
            vec!["members: [a, b]; gid: 20", "members: [b, a, b]; gid: '20'"],
        ),
        (
            "group.present",
            "web",
            accounts.clone(),
            vec!["addusers: a", "addusers: [a]"],
        ),
        (
            "file.managed",
            "/etc/x",
            accounts.clone(),
            vec![
                "contents: x; mode: 0640; user: a; group: web",
                "contents: x; mode: '0640'; user: 10; group: 20",
                "contents: [x]; mode: 640; user: '10'; group: web",
                "contents: \"x\\n\"; mode: 0o640; user: a; group: '20'",
                "contents: x; mode: '640'; user: a; group: web",
            ],
        ),
        (
            "file.directory",
            "/srv/x",
            json!({"directories": {"/srv": {}}}),
            vec![
                "mode: 0750",
                "dir_mode: '750'",
                "mode: '0750'",
                "mode: 0o750",
            ],
        ),
        (
            "file.append",
            "/etc/x",
            json!({"files": {"/etc/x": "x\n"}}),
            vec![
                "text: 'a b'",
                "text: ['a b']",
                "text: ['a   b']",
                "text: \"a b\\n\"",
            ],
        ),
        (
            "sysctl.present",
            "net.ipv4.tcp_rmem",
            json!({"sysctls": {"net.ipv4.tcp_rmem": "1 2 3"}}),
            vec!["value: 4 5 6", "value: \"4\\t5\\t6\"", "value: ' 4  5 6'"],
        ),
        (
            "sysctl.present",
            "net.ipv4.ip_forward",
            json!({"sysctls": {"net.ipv4.ip_forward": "0"}}),
            vec!["value: 1", "value: '1'", "value: True", "value: 0x1"],
        ),
        (
            "host.present",
            "api",
            json!({"files": {"/etc/hosts": "127.0.0.1 localhost\n"}}),
            vec!["ip: ['fd00::1']", "ip: 'fd00::1'", "ip: 'FD00:0:0::0001'"],
        ),
        (
            "mount.mounted",
            "/data",
            json!({"directories": {"/data": {}}, "files": {"/etc/fstab": "# root\n"}}),
            vec![
                "device: /dev/vdb; fstype: ext4; opts: [noatime, nodev]",
                "device: /dev/vdb; fstype: ext4; opts: 'noatime,nodev'",
                "device: /dev/vdb; fstype: ext4; opts: [nodev, noatime]",
                "device: /dev/vdb; fstype: ext4; opts: 'noatime,nodev'; dump: '0'; pass_num: 0",
            ],
        ),
        (
            "pkg.installed",
            "curl",
            packages,
            vec![
                "version: 7.88.1-10",
                "version: '1:7.88.1-10'",
                "version: '7.88.*'",
                "version: '1:7.*'",
                "pkgs: [curl]",
                "pkgs: [{curl: 7.88.1-10}]",
                "pkgs: [{curl: '7.88.1-*'}]",
                "refresh: False",
            ],
        ),
        (
            "kmod.present",
            "br_netfilter",
            json!({"loadable": ["br_netfilter"]}),
            vec!["persist: True", "persist: 'yes'", "persist: yes"],
        ),
        (
            "pkgrepo.managed",
            "a",
            json!({}),
            vec![
                "uris: 'https://a.example'; components: [x]",
                "uris: ['https://a.example']; components: x",
            ],
        ),
        (
            "x509.certificate",
            "/etc/a.crt",
            json!({}),
            vec![
                "ca: site; common_name: a; sans_ip: ['fd00::1', 10.0.0.1]; sans_dns: [a.example, b]",
                "ca: site; common_name: a; sans_ip: [10.0.0.1, 'FD00:0::1']; sans_dns: [b, a.example]",
            ],
        ),
    ]
}

#[test]
fn what_one_spelling_made_is_complete_for_the_others() {
    let mut wrong = Vec::new();
    for (function, name, host, spellings) in rows() {
        let case = case(function, name, &host);
        let mut chunks = Vec::new();
        for spelling in spellings {
            match compiled(&case, spelling) {
                Ok(chunk) => chunks.push((spelling, chunk)),
                Err(problem) => wrong.push(format!("{function} `{spelling}`: {problem}")),
            }
        }
        for (one, first) in &chunks {
            for (other, second) in &chunks {
                match block_on(second_run(&case, first, second)) {
                    Ok(changes) if changes == json!({}) => {}
                    outcome => {
                        wrong.push(format!("{function} `{one}`, then `{other}`: {outcome:?}"))
                    }
                }
            }
        }
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}

#[test]
fn a_spelling_without_a_meaning_is_refused() {
    let mut accepted = Vec::new();
    for (function, arguments) in [
        ("firewalld.zone", "ports: [80/TCP]"),
        ("firewalld.zone", "ports: [80]"),
        ("firewalld.zone", "ports: [90-80/tcp]"),
        ("firewalld.zone", "ports: [ssh/tcp]"),
        ("firewalld.zone", "sources: [10.0.0/8]"),
        ("firewalld.zone", "target: accept"),
        ("firewalld.zone", "rich_rules: ['rule familly=ipv4 accept']"),
        ("firewalld.zone", "rich_rules: ['rule accept drop']"),
        ("user.present", "groups: 'web,log'"),
        ("user.present", "fullname: 'Doe, Jane'"),
        ("user.present", "uid: -1"),
        ("group.present", "members: [a, 'b,c']"),
        ("file.directory", "recurse: [ignore_files]"),
        ("file.managed", "mode: u=rw"),
        ("file.managed", "mode: 0888"),
        ("host.present", "ip: 10.0.0"),
        ("pkg.installed", "version: latest"),
        ("pkg.installed", "version: '>=1.2'"),
        ("pkg.installed", "version: '=1.2'"),
        ("pkg.installed", "version: ''"),
        ("pkg.installed", "pkgs: ['libc6:i386']"),
        ("pkg.installed", "pkgs: [{c: 3, d: 4}]"),
        ("pkg.installed", "version: 1.20"),
        ("http.wait_for_successful_query", "status: 7"),
        ("cmd.run", "timeout: 1.5"),
        ("cmd.run", "env: [A=b]"),
        ("cmd.run", "success_retcodes: [one]"),
        ("sysctl.present", "value: [1]"),
        (
            "x509.certificate",
            "ca: site; common_name: a; sans_ip: [10.0.0]",
        ),
        (
            "x509.certificate",
            "ca: site; common_name: a; algorithm: rsa",
        ),
        (
            "x509.certificate",
            "ca: site; common_name: a; days: 10; renew_days: 10",
        ),
    ] {
        let case = case(function, "/name", &json!({}));
        if compiled(&case, arguments).is_ok() {
            accepted.push(format!("{function}: {arguments}"));
        }
    }
    assert!(accepted.is_empty(), "accepted:\n{}", accepted.join("\n"));
}
