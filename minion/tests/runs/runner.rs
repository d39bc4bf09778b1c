//! The runner over a host in memory: a chunk's output, its changes, and its conditions.

use std::sync::Arc;

use halite_minion::host::effect::{Command, Effect, Meta, Output};
use halite_minion::host::overlay::KNOWN_AFTER_APPLY;
use halite_minion::host::{FileKind, Host, HostFuture, Stop};
use halite_minion::modules::{Function, Plan};
use halite_minion::runner::{REDACTED, Runner};
use halite_minion_fake::FakeHost;
use halite_minion_fake::disk::Node;
use halite_states::engine::{Failure, Modules as _};
use halite_states::low::Chunk;
use serde_json::{Map, Value, json};

/// An alias of systemd-logind.
const LOGIN: &str = "dbus-org.freedesktop.login1";

fn write(host: &dyn Host, chunk: &Chunk) -> HostFuture<'static, Result<Plan, Failure>> {
    let _ = host;
    let content = chunk.args["contents"]
        .as_str()
        .unwrap_or_default()
        .to_owned();
    let path = chunk.name.clone();
    Box::pin(async move {
        Ok(Plan {
            changes: Map::from_iter([("diff".to_owned(), json!(format!("+{content}")))]),
            comment: format!("{path} gets {content}"),
            done: String::new(),
            effects: vec![Effect::Write {
                path,
                content: content.into_bytes(),
                meta: Meta::default(),
            }],
        })
    })
}

fn run(_: &dyn Host, chunk: &Chunk) -> HostFuture<'static, Result<Plan, Failure>> {
    let argv = vec!["/bin/sh".to_owned(), "-c".to_owned(), chunk.name.clone()];
    Box::pin(async move {
        Ok(Plan {
            changes: Map::from_iter([("cmd".to_owned(), json!("run"))]),
            done: String::new(),
            effects: vec![Effect::Run(Command {
                argv,
                ..Command::default()
            })],
            ..Plan::default()
        })
    })
}

static FUNCTIONS: &[Function] = &[
    Function {
        name: ("file", "managed"),
        check: |h, c| write(h, c),
        watch: None,
    },
    Function {
        name: ("cmd", "run"),
        check: |h, c| run(h, c),
        watch: Some(|h, c| run(h, c)),
    },
];

fn chunk(function: &str, name: &str, args: Value) -> Chunk {
    let (state, fun) = function.split_once('.').unwrap();
    serde_json::from_value(json!({
        "state": state, "fun": fun, "id": name, "name": name, "sls": "test",
        "source": {"file": "test.sls", "line": 1, "column": 1}, "args": args,
    }))
    .unwrap()
}

#[tokio::test]
async fn a_sensitive_chunk_shows_nothing_of_its_values() {
    let host = FakeHost::new();
    let runner = Runner::with_functions(&host, FUNCTIONS);
    let mut secret = chunk(
        "file.managed",
        "/etc/key",
        json!({"contents": "correct horse\nbattery staple\n"}),
    );
    secret.sensitive = true;
    let found = runner.check(&secret).await.unwrap();
    let output = format!(
        "{}{}",
        found.comment,
        serde_json::to_string(&found.changes).unwrap()
    );
    assert!(
        !output.contains("horse") && !output.contains("battery"),
        "{output}"
    );
    assert_eq!(found.changes["diff"], json!(REDACTED));
    runner.apply(&secret, &found.diff).await.unwrap();
    assert_eq!(
        host.text("/etc/key").unwrap(),
        "correct horse\nbattery staple\n"
    );
    host.crash_after(0);
    let failure = runner.apply(&secret, &found.diff).await.unwrap_err();
    assert!(!failure.to_string().contains("horse"), "{failure}");
}

#[tokio::test]
async fn a_command_reports_its_exit_code_and_output() {
    let host = FakeHost::new();
    let runner = Runner::with_functions(&host, FUNCTIONS);
    let good = chunk("cmd.run", "echo hello", json!({}));
    let found = runner.check(&good).await.unwrap();
    let applied = runner.apply(&good, &found.diff).await.unwrap();
    assert_eq!(
        Value::Object(applied.changes),
        json!({"retcode": 0, "stdout": "hello", "stderr": ""})
    );
    let bad = chunk("cmd.run", "exit 3", json!({}));
    let found = runner.check(&bad).await.unwrap();
    let failure = runner.apply(&bad, &found.diff).await.unwrap_err();
    assert!(
        failure
            .to_string()
            .starts_with("`exit 3` ended with exit code 3"),
        "{failure}"
    );
    assert!(runner.watch(&bad).await.is_some());
}

#[tokio::test]
async fn predicted_effects_are_seen_but_not_made() {
    let host = FakeHost::new();
    let runner = Runner::with_functions(&host, FUNCTIONS);
    let file = chunk("file.managed", "/etc/new", json!({"contents": "x"}));
    let found = runner.check(&file).await.unwrap();
    runner.predict(&file, &found.diff).await;
    assert!(runner.exists("/etc/new").await);
    assert_eq!(host.writes(), 0);
}

#[tokio::test]
async fn what_follows_from_a_query_before_predicted_effects_is_known_after_apply() {
    let host = FakeHost::new();
    let runner = Runner::with_functions(&host, FUNCTIONS);
    let file = chunk("file.managed", "/etc/new", json!({"contents": "x"}));
    let reload = chunk("cmd.run", "reload", json!({}));
    let other = chunk("cmd.run", "other", json!({}));
    let query = json!({"fun": "http.query", "url": "https://a/"});
    let is_open = async |chunk: &Chunk| {
        let found = runner.check(chunk).await.unwrap();
        found.comment.contains(KNOWN_AFTER_APPLY)
    };
    assert!(!runner.condition(&reload, &query).await.unwrap());
    assert!(!is_open(&reload).await);

    let found = runner.check(&file).await.unwrap();
    runner.predict(&file, &found.diff).await;
    assert!(!runner.condition(&reload, &query).await.unwrap());
    // A chunk that is left out leaves nothing to the next one.
    assert!(!is_open(&other).await);
    assert!(is_open(&reload).await);
}

#[tokio::test]
async fn only_a_start_makes_the_restart_of_a_changed_service_needless() {
    let host = FakeHost::new();
    host.state().put_unit("running.service", true, false);
    host.state().put_unit("stopped.service", false, false);
    let runner = Runner::new(&host);
    for (unit, includes) in [("running", false), ("stopped", true)] {
        let service = chunk("service.running", unit, json!({"enable": true}));
        let checked = runner.check(&service).await.unwrap();
        assert!(!checked.changes.is_empty(), "{unit}");
        assert_eq!(
            runner.includes_watch(&service, &checked.diff),
            includes,
            "{unit}"
        );
    }
    let file = chunk("file.managed", "/tmp/a", json!({"contents": "x"}));
    let checked = runner.check(&file).await.unwrap();
    assert!(runner.includes_watch(&file, &checked.diff));
}

#[tokio::test]
async fn conditions() {
    let host = FakeHost::new();
    host.state().put_unit("nginx.service", true, true);
    host.state()
        .put_unit(&format!("{LOGIN}.service"), true, true);
    host.state()
        .http
        .insert("https://a/".to_owned(), [Some((401, String::new()))].into());
    host.state().http.insert(
        "https://own/".to_owned(),
        [Some((200, String::new()))].into(),
    );
    host.state().untrusted.insert("https://own/".to_owned());
    {
        let disk = &mut host.state().disk;
        disk.put("/d", Node::directory());
        disk.put("/f", Node::file(b""));
        disk.symlink("/l", "d").unwrap();
        disk.symlink("/lf", "/f").unwrap();
        let pipe = Node {
            kind: FileKind::Other,
            ..Node::file(b"")
        };
        disk.put("/pipe", pipe);
    }
    let runner = Runner::with_functions(&host, FUNCTIONS);
    let any = chunk("cmd.run", "true", json!({}));
    for (path, is_file, is_directory) in [
        ("/nowhere", false, false),
        ("/d", false, true),
        ("/l", false, true),
        ("/f", true, false),
        ("/lf", true, false),
        ("/pipe", false, false),
    ] {
        for (fun, wanted) in [("file_exists", is_file), ("directory_exists", is_directory)] {
            let condition = json!({"fun": format!("file.{fun}"), "path": path});
            assert_eq!(
                runner.condition(&any, &condition).await,
                Ok(wanted),
                "{condition}"
            );
        }
    }
    for (condition, wanted) in [
        (json!("true"), true),
        (json!("false"), false),
        (json!({"fun": "service.status", "name": "nginx"}), true),
        // An alias whose last part is not a suffix of units.
        (json!({"fun": "service.status", "name": LOGIN}), true),
        (json!({"fun": "service.enabled", "args": [LOGIN]}), true),
        (json!({"fun": "service.available", "name": LOGIN}), true),
        (
            json!({"fun": "service.status", "name": format!("{LOGIN}.service")}),
            true,
        ),
        (
            json!({"fun": "service.status", "name": format!("{LOGIN}.socket")}),
            false,
        ),
        (
            json!({"fun": "file.file_exists", "args": ["/nowhere"]}),
            false,
        ),
        (
            json!({"fun": "http.query", "url": "https://a/", "status": 401}),
            true,
        ),
        (json!({"fun": "http.query", "url": "https://a/"}), false),
        (
            json!({"fun": "http.query", "url": "https://a/", "status": 401, "ca": "/nowhere"}),
            false,
        ),
        (json!({"fun": "http.query", "args": ["https://b/"]}), false),
        (json!({"fun": "http.query", "url": "https://own/"}), false),
        (
            json!({"fun": "http.query", "url": "https://own/", "verify_ssl": false}),
            true,
        ),
    ] {
        assert_eq!(
            runner.condition(&any, &condition).await,
            Ok(wanted),
            "{condition}"
        );
    }
    let failure = runner
        .condition(&any, &json!({"fun": "network.ip"}))
        .await
        .unwrap_err();
    assert!(
        failure.to_string().contains("`network.ip` is not known"),
        "{failure}"
    );
}

#[tokio::test]
async fn conditions_of_a_command_run_as_it_does() {
    let host = FakeHost::new();
    {
        let mut state = host.state();
        state.put_user("app", "/home/app");
        state.disk.put("/home/app", Node::directory());
        state.hook = Some(|state, command| {
            state.asked.push(command.clone());
            (command.argv[2] == "three").then(|| Output {
                code: 3,
                ..Output::default()
            })
        });
    }
    let runner = Runner::new(&host);
    let mut own = chunk(
        "cmd.run",
        "make",
        json!({
            "cwd": "/opt/x", "env": {"A": "1"}, "prepend_path": "/opt/bin", "umask": 0o027,
            "timeout": 7, "shell": "/bin/bash", "success_retcodes": 3,
        }),
    );
    own.controls.runas = Some("app".to_owned());
    assert_eq!(runner.condition(&own, &json!("three")).await, Ok(true));
    let found = runner.check(&own).await.unwrap();
    runner.apply(&own, &found.diff).await.ok();
    let (condition, command) = {
        let state = host.state();
        (state.asked[0].clone(), state.ran[0].clone())
    };
    assert_eq!(condition.argv, ["/bin/bash", "-c", "three"]);
    assert_eq!(command.argv, ["/bin/bash", "-c", "make"]);
    let surroundings = |command: &Command| Command {
        argv: Vec::new(),
        ..command.clone()
    };
    assert_eq!(surroundings(&condition), surroundings(&command));
    assert_eq!(condition.cwd.as_deref(), Some("/opt/x"));
    assert_eq!(condition.env["HOME"], "/home/app");
    assert!(condition.env["PATH"].starts_with("/opt/bin:/usr/local/sbin:"));
    assert_eq!((condition.timeout, condition.umask), (Some(7), Some(0o027)));
}

#[tokio::test]
async fn other_conditions_run_in_the_home_of_their_user() {
    let host = FakeHost::new();
    {
        let mut state = host.state();
        state.put_user("app", "/home/app");
        state.put_user("homeless", "/nonexistent");
        state.disk.put("/home/app", Node::directory());
        state.hook = Some(|state, command| {
            state.asked.push(command.clone());
            Some(Output::default())
        });
    }
    let runner = Runner::new(&host);
    // A `shell` that does not belong to a command.
    let mut other = chunk("user.present", "app", json!({"shell": "/bin/false"}));
    for (runas, cwd, home) in [
        (None, Some("/root"), "/root"),
        (Some("app"), Some("/home/app"), "/home/app"),
        (Some("homeless"), None, "/nonexistent"),
    ] {
        other.controls.runas = runas.map(str::to_owned);
        assert_eq!(runner.condition(&other, &json!("true")).await, Ok(true));
        let asked = host.state().asked.pop().unwrap();
        assert_eq!(asked.argv[0], "/bin/sh");
        assert_eq!(asked.cwd.as_deref(), cwd);
        assert_eq!(asked.env["HOME"], home);
    }
    other.controls.runas = Some("nobody-here".to_owned());
    let failure = runner.condition(&other, &json!("true")).await.unwrap_err();
    assert_eq!(failure.text(), "User nobody-here is not available");
}

#[tokio::test]
async fn an_identity_is_current_until_two_thirds_of_its_life_are_over() {
    let host = FakeHost::new();
    let runner = Runner::new(&host);
    let ca = host.state().cas.certificate("halite").unwrap();
    let made = chunk(
        "x509.certificate",
        "/pki/a.crt",
        json!({"ca": "halite", "common_name": "a", "days": 90}),
    );
    let any = chunk("cmd.run", "true", json!({}));
    let condition = json!({"fun": "x509.current", "name": "/pki/a.crt", "ca": "/pki/ca.crt"});
    let write = |path: &str, text: &str| Effect::Write {
        path: path.to_owned(),
        content: text.as_bytes().to_vec(),
        meta: Meta::default(),
    };
    assert_eq!(
        runner.condition(&any, &condition).await,
        Ok(false),
        "nothing is there"
    );
    let found = runner.check(&made).await.unwrap();
    runner.apply(&made, &found.diff).await.unwrap();
    assert_eq!(
        runner.condition(&any, &condition).await,
        Ok(false),
        "the CA is not there"
    );
    host.perform(&write("/pki/ca.crt", &ca)).await.unwrap();
    assert_eq!(runner.condition(&any, &condition).await, Ok(true));
    host.sleep(59.0 * 86_400.0).await;
    assert_eq!(runner.condition(&any, &condition).await, Ok(true));
    host.sleep(2.0 * 86_400.0).await;
    assert_eq!(
        runner.condition(&any, &condition).await,
        Ok(false),
        "less than a third is left"
    );

    let found = runner.check(&made).await.unwrap();
    runner.apply(&made, &found.diff).await.unwrap();
    assert_eq!(
        runner.condition(&any, &condition).await,
        Ok(true),
        "renewed"
    );
    let other = host.state().cas.certificate("site").unwrap();
    host.perform(&write("/pki/other.crt", &other))
        .await
        .unwrap();
    let foreign = json!({"fun": "x509.current", "name": "/pki/a.crt", "ca": "/pki/other.crt"});
    assert_eq!(
        runner.condition(&any, &foreign).await,
        Ok(false),
        "another CA's"
    );
    host.perform(&write("/pki/a.key", "damaged")).await.unwrap();
    assert_eq!(
        runner.condition(&any, &condition).await,
        Ok(false),
        "not of its key"
    );
}

#[tokio::test]
async fn a_stopped_run_changes_nothing_more() {
    let host = FakeHost::new();
    let stop = Arc::new(Stop::default());
    let runner = Runner::with_functions(&host, FUNCTIONS).stoppable(Arc::clone(&stop));
    let file = chunk("file.managed", "/etc/new", json!({"contents": "x"}));
    let found = runner.check(&file).await.unwrap();
    stop.request("cancelled");
    stop.request("again");
    let failure = runner.apply(&file, &found.diff).await.unwrap_err();
    assert_eq!(failure.to_string(), "cancelled");
    assert!(runner.check(&file).await.is_err());
    assert_eq!(host.writes(), 0);
}

#[tokio::test]
async fn an_unknown_state_says_what_to_do() {
    let host = FakeHost::new();
    let runner = Runner::with_functions(&host, FUNCTIONS);
    let failure = runner
        .check(&chunk("zfs.present", "a", json!({})))
        .await
        .unwrap_err();
    assert!(
        failure.to_string().contains("`zfs.present`") && failure.to_string().contains("update"),
        "{failure}"
    );
}
