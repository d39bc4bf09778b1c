//! Kubernetes objects in the documents of a manifest: each has the fields by which it is found, so
//! that a mistake is reported with its line before anything is applied.

use halite_document::Problem;
use halite_document::yaml::Node;
use serde_json::Value as Json;

/// The objects of a text's documents, without the empty ones.
///
/// # Errors
/// A document is not an object: it is not a mapping, or has no `apiVersion`, `kind` or
/// `metadata.name`.
pub(super) fn objects(nodes: &[Node]) -> Result<Vec<Json>, Problem> {
    let mut objects = Vec::with_capacity(nodes.len());
    for node in nodes {
        let object = node.to_kubernetes_json();
        if object.is_null() {
            continue;
        }
        check(node, &object)?;
        objects.push(object);
    }
    Ok(objects)
}

fn check(node: &Node, object: &Json) -> Result<(), Problem> {
    if !object.is_object() {
        let message = format!("a Kubernetes object is a mapping, not {}", node.kind_name());
        return Err(Problem::at(&node.position, message));
    }
    let text = |pointer| object.pointer(pointer).and_then(Json::as_str).unwrap_or("");
    let kind = text("/kind");
    if let (Some(Json::Array(items)), true) = (object.get("items"), kind.ends_with("List")) {
        let nodes = node.get("items").map_or(&[][..], Node::items);
        return (nodes.iter().zip(items)).try_for_each(|(node, item)| check(node, item));
    }
    let fields = ["/apiVersion", "/kind", "/metadata/name"];
    let Some(missing) = fields.into_iter().find(|field| text(field).is_empty()) else {
        return Ok(());
    };
    let missing = missing[1..].replace('/', ".");
    let what = match kind {
        "" => "this Kubernetes object".to_owned(),
        kind => format!("this {kind}"),
    };
    let problem = Problem::at(&node.position, format!("{what} has no text as `{missing}`"));
    Err(match object.pointer("/metadata/generateName") {
        Some(_) => problem
            .hint("give it a fixed name in place of `generateName`, by which it is found again"),
        None => {
            problem.hint("each object of a manifest has `apiVersion`, `kind` and `metadata.name`")
        }
    })
}

#[cfg(test)]
mod tests {
    use halite_document::yaml::parse_all;

    use super::*;

    fn read(text: &str) -> Result<Vec<Json>, String> {
        let nodes = parse_all("m.yaml", text).unwrap();
        objects(&nodes).map_err(|problem| problem.to_string())
    }

    #[test]
    fn a_document_that_is_not_an_object_is_refused_with_its_line() {
        let good = "apiVersion: v1\nkind: Namespace\nmetadata: {name: web}\n";
        assert_eq!(
            read(&format!("---\n{good}---\n# empty\n---\n{good}"))
                .unwrap()
                .len(),
            2
        );
        for (text, wanted) in [
            (
                "apiVersion: v1\nmetadata: {name: a}\n",
                "m.yaml:5:1: this Kubernetes object has no text as `kind`",
            ),
            (
                "kind: Pod\nmetadata: {name: a}\n",
                "this Pod has no text as `apiVersion`",
            ),
            (
                "apiVersion: v1\nkind: Pod\nmetadata: {name: 80}\n",
                "this Pod has no text as `metadata.name`",
            ),
            (
                "apiVersion: v1\nkind: Pod\nmetadata: {generateName: a-}\n",
                "in place of `generateName`",
            ),
            ("- apiVersion: v1\n", "a mapping, not a list"),
            (
                "apiVersion: v1\nkind: List\nitems: [{kind: Pod}]\n",
                "m.yaml:7:9: this Pod",
            ),
        ] {
            let said = read(&format!("{good}---\n{text}")).unwrap_err();
            assert!(said.contains(wanted), "{said}");
        }
    }
}
