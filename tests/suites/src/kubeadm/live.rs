//! The state of a running cluster: the files of its first host, and its objects as the API server
//! returns them.

use std::io::Write as _;
use std::process::Stdio;

use anyhow::{Context as _, Result, ensure};
use halite_lab::cluster::{BOOTSTRAP, Cluster};
use halite_lab::host::Host;
use serde_json::{Value, json};

use super::certificate::Authorities;
use super::difference::Picture;
use super::files::File;
use super::reference::Reference;
use super::{files, objects};

/// The files of Kubernetes on a host; private keys without their content.
pub(super) fn files(host: &Host) -> Result<Vec<File>> {
    files::parse(&host.sh(&format!("{}{}", files::DUMP, files::OF_HOST))?)
}

/// Adds kubeadm's objects to its picture and the cluster's to ours.
///
/// The API server itself completes kubeadm's objects (a server-side dry run that replaces the
/// existing ones), so that both have its defaults, and all remaining differences are real.
pub(super) fn add_objects(
    cluster: &Cluster,
    reference: &Reference,
    theirs: (&mut Picture, &Authorities),
    ours: (&mut Picture, &Authorities),
) -> Result<()> {
    let live = kubectl(
        &cluster.bootstrap,
        &["get", "--ignore-not-found"],
        &reference.objects,
    )?;
    let mut places = Vec::new();
    for object in &live {
        places.push(objects::place(object)?);
    }
    let (mut there, mut missing) = (Vec::new(), Vec::new());
    for object in &reference.objects {
        let list = if places.contains(&objects::place(object)?) {
            &mut there
        } else {
            &mut missing
        };
        list.push(unversioned(object.clone()));
    }
    let defaulted = kubectl(&cluster.bootstrap, &["replace", "--dry-run=server"], &there)?;
    ensure!(
        defaulted.len() == there.len(),
        "the server answered {} of {} objects",
        defaulted.len(),
        there.len()
    );
    objects::add(theirs.0, &defaulted, theirs.1)?;
    objects::add(theirs.0, &missing, theirs.1)?;
    objects::add_node(theirs.0, BOOTSTRAP, &reference.labels, &reference.taints);
    objects::add(ours.0, &live, ours.1)?;
    let node: Value =
        serde_json::from_str(&cluster.kubectl(&["get", "node", BOOTSTRAP, "-o", "json"])?)?;
    objects::add_node(
        ours.0,
        BOOTSTRAP,
        &node["metadata"]["labels"],
        &node["spec"]["taints"],
    );
    Ok(())
}

/// Cuts the digest off every `image` that has one: kubeadm names images by their tags alone.
pub(super) fn cut_digests(picture: &mut Picture) {
    picture.values_mut().for_each(cut_digest);
}

fn cut_digest(value: &mut Value) {
    match value {
        Value::Object(map) => {
            if let Some(Value::String(image)) = map.get_mut("image")
                && let Some(at) = image.find("@sha256:")
            {
                image.truncate(at);
            }
            map.values_mut().for_each(cut_digest);
        }
        Value::Array(list) => list.iter_mut().for_each(cut_digest),
        _ => {}
    }
}

/// Removes the resource version, which a dry run's objects have from its own store.
fn unversioned(mut object: Value) -> Value {
    files::without_server_fields(&mut object);
    object
}

/// Runs a verb of kubectl on objects and returns those that it prints.
fn kubectl(host: &Host, verb: &[&str], objects: &[Value]) -> Result<Vec<Value>> {
    let list = json!({"apiVersion": "v1", "kind": "List", "items": objects});
    let mut args = vec!["kubectl"];
    args.extend(verb);
    args.extend(["-f", "-", "-o", "json"]);
    let mut child = host
        .command(&args)?
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .context("cannot start nsenter")?;
    // kubectl reads everything before it prints anything.
    child
        .stdin
        .take()
        .context("no standard input")?
        .write_all(list.to_string().as_bytes())?;
    let output = child.wait_with_output()?;
    let errors = String::from_utf8_lossy(&output.stderr);
    ensure!(
        output.status.success(),
        "{}: {}",
        args.join(" "),
        errors.trim()
    );
    documents(&String::from_utf8_lossy(&output.stdout))
}

/// The objects in kubectl's JSON: separate documents, a list of objects, or nothing.
fn documents(text: &str) -> Result<Vec<Value>> {
    let mut found = Vec::new();
    for document in serde_json::Deserializer::from_str(text).into_iter::<Value>() {
        let mut document = document.context("kubectl did not print JSON")?;
        match document.get_mut("items").and_then(Value::as_array_mut) {
            Some(items) => found.append(items),
            None => found.push(document),
        }
    }
    Ok(found)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_the_digests_of_images_are_cut_off() {
        let digest = format!("sha256:{}", "1".repeat(64));
        let pod = |image: &str| {
            json!({"spec": {"containers": [{"image": image, "args": [format!("a@{digest}")]}]},
                "annotations": {"hash": digest}})
        };
        let name = "registry.k8s.io/etcd:3.6.8-0";
        let pinned = pod(&format!("{name}@{digest}"));
        let mut picture = Picture::from([("static-pod/etcd".to_owned(), pinned)]);
        cut_digests(&mut picture);
        assert_eq!(picture["static-pod/etcd"], pod(name));
    }

    #[test]
    fn kubectl_prints_objects_in_three_forms() {
        assert_eq!(documents("").unwrap(), [] as [Value; 0]);
        let two = [json!({"kind": "A"}), json!({"kind": "B"})];
        assert_eq!(documents(r#"{"kind":"A"} {"kind":"B"}"#).unwrap(), two);
        assert_eq!(
            documents(r#"{"kind":"List","items":[{"kind":"A"},{"kind":"B"}]}"#).unwrap(),
            two
        );
        assert!(documents("error").is_err());
    }
}
