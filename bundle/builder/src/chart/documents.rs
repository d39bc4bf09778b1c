//! The documents of a rendered chart. Their text stays as Helm wrote it, except for the namespace:
//! the program that applies it decides the meaning of a number, an octal number or a `yes`.

use serde_json::Value;

use super::scope::Scopes;
use crate::recipe::Chart;

/// Namespaces that exist in every cluster.
const THERE: &[&str] = &["default", "kube-node-lease", "kube-public", "kube-system"];

/// Hooks that belong to an installation.
const INSTALL: &[&str] = &["pre-install", "post-install", "crd-install"];

/// One document of a text with several documents.
#[derive(Debug, Clone, PartialEq)]
pub struct Document {
    /// Its file in the chart, according to Helm.
    pub source: Option<String>,
    /// The line in the whole text at which it begins, from 1.
    pub line: u32,
    /// Its text.
    pub text: String,
}

/// Splits a text into its documents; empty documents are omitted.
pub fn split(text: &str) -> Vec<Document> {
    let mut found = Vec::new();
    let mut current = Document {
        source: None,
        line: 1,
        text: String::new(),
    };
    for (line, number) in text.lines().zip(1..) {
        if line == "---" || line.starts_with("--- ") {
            let next = Document {
                source: None,
                line: number + 1,
                text: String::new(),
            };
            found.push(std::mem::replace(&mut current, next));
            continue;
        }
        if let Some(source) = line.strip_prefix("# Source: ") {
            current.source = Some(source.trim().to_owned());
        }
        current.text.push_str(line);
        current.text.push('\n');
    }
    found.push(current);
    let content = |line: &str| !line.trim().is_empty() && !line.trim_start().starts_with('#');
    found.retain(|document| document.text.lines().any(content));
    found
}

/// Each `Secret` with contents among the objects of a chart, except those that the recipe declares
/// public: name and keys.
pub fn secrets(text: &str, public: &[String]) -> Vec<(String, Vec<String>)> {
    let mut objects: Vec<Value> = split(text)
        .iter()
        .filter_map(|document| serde_saphyr::from_str(&document.text).ok())
        .collect();
    let mut found = Vec::new();
    while let Some(object) = objects.pop() {
        objects.extend(object["items"].as_array().into_iter().flatten().cloned());
        if object["kind"] != "Secret" || object["apiVersion"] != "v1" {
            continue;
        }
        let name = object["metadata"]["name"].as_str().unwrap_or_default();
        let contents = ["data", "stringData"]
            .into_iter()
            .filter_map(|field| object[field].as_object());
        let filled = contents
            .flatten()
            .filter(|(_, value)| !value.is_null() && *value != "");
        let keys: Vec<String> = filled.map(|(key, _)| key.clone()).collect();
        if !keys.is_empty() && !public.iter().any(|public| public == name) {
            found.push((name.to_owned(), keys));
        }
    }
    found.sort_unstable();
    found
}

/// Converts Helm's output to the objects that a site applies.
///
/// # Errors
/// Every document that is not an object, and every object that cannot be given its namespace.
pub fn arrange(text: &str, chart: &Chart) -> Result<String, Vec<String>> {
    let (mut objects, mut problems, mut scopes) = (Vec::new(), Vec::new(), Scopes::default());
    for document in split(text) {
        let place = document
            .source
            .clone()
            .unwrap_or_else(|| format!("line {}", document.line));
        match serde_saphyr::from_str::<Value>(&document.text) {
            Ok(Value::Null) => {}
            Ok(object) if object["kind"].is_string() && object["apiVersion"].is_string() => {
                scopes.learn(&object);
                if is_for_an_installation(&object) {
                    objects.push((place, document, object));
                }
            }
            Ok(_) => problems.push(format!("{place}: it does not render a Kubernetes object")),
            Err(error) => problems.push(format!("{place}: it does not render YAML: {error}")),
        }
    }
    let namespace = &chart.namespace;
    let defines = |(_, _, object): &(String, Document, Value)| {
        object["kind"] == "Namespace" && object["metadata"]["name"] == namespace.as_str()
    };
    let mut out = format!(
        "# The chart {}, rendered for the namespace {namespace}.\n",
        chart.name
    );
    if !THERE.contains(&namespace.as_str()) && !objects.iter().any(defines) {
        out.push_str(&format!(
            "---\napiVersion: v1\nkind: Namespace\nmetadata:\n  name: {namespace}\n"
        ));
    }
    for (place, document, object) in &objects {
        match placed(&document.text, object, namespace, &scopes) {
            Ok(text) => out.push_str(&format!("---\n{text}")),
            Err(why) => problems.push(format!("{place}: {why}")),
        }
    }
    if problems.is_empty() {
        Ok(out)
    } else {
        Err(problems)
    }
}

fn is_for_an_installation(object: &Value) -> bool {
    let hooks = object["metadata"]["annotations"]["helm.sh/hook"].as_str();
    hooks.is_none_or(|hooks| hooks.split(',').any(|hook| INSTALL.contains(&hook.trim())))
}

/// The reason why an object cannot get its namespace.
#[derive(Debug, thiserror::Error)]
enum NoNamespace {
    #[error("the items of a List need their own namespace: set it in the chart")]
    Items,
    #[error("its namespace {0} cannot be inserted: set metadata.namespace in the chart")]
    Layout(String),
}

/// Returns the text of an object, with its namespace added if it lacks one.
fn placed(
    text: &str,
    object: &Value,
    namespace: &str,
    scopes: &Scopes,
) -> Result<String, NoNamespace> {
    let lacks =
        |object: &Value| scopes.is_namespaced(object) && object["metadata"]["namespace"].is_null();
    if let Some(items) = object["items"]
        .as_array()
        .filter(|_| object["kind"] == "List")
    {
        if items.iter().any(lacks) {
            return Err(NoNamespace::Items);
        }
        return Ok(text.to_owned());
    }
    if !lacks(object) {
        return Ok(text.to_owned());
    }
    let mut wanted = object.clone();
    wanted["metadata"]["namespace"] = Value::String(namespace.to_owned());
    let out = insert(text, namespace).unwrap_or_default();
    if serde_saphyr::from_str::<Value>(&out).ok().as_ref() == Some(&wanted) {
        return Ok(out);
    }
    // JSON has no layout to preserve.
    if text.trim_start().starts_with('{') {
        return Ok(format!("{wanted}\n"));
    }
    Err(NoNamespace::Layout(namespace.to_owned()))
}

fn insert(text: &str, namespace: &str) -> Option<String> {
    let mut lines = text.lines();
    let at = lines
        .by_ref()
        .position(|line| line.starts_with("metadata:"))?;
    let line = text.lines().nth(at)?;
    let mut out: Vec<String> = text.lines().map(str::to_owned).collect();
    if let Some((before, after)) = line.split_once('{') {
        let comma = if after.trim_start().starts_with('}') {
            ""
        } else {
            ", "
        };
        out[at] = format!("{before}{{namespace: {namespace}{comma}{after}");
    } else {
        let first =
            lines.find(|line| !line.trim().is_empty() && !line.trim_start().starts_with('#'))?;
        let indent: String = first.chars().take_while(|c| *c == ' ').collect();
        out.insert(at + 1, format!("{indent}namespace: {namespace}"));
    }
    Some(out.join("\n") + "\n")
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::recipe::ChartSource;

    fn chart(namespace: &str) -> Chart {
        Chart {
            name: "web".into(),
            source: ChartSource::Local("x".into()),
            version: None,
            namespace: namespace.into(),
            values: Vec::new(),
            public_secrets: Vec::new(),
            licence: None,
        }
    }

    #[test]
    fn namespaces_are_given_to_those_that_have_one() {
        let text = "---\n# Source: web/crds/x.yaml\napiVersion: apiextensions.k8s.io/v1\nkind: CustomResourceDefinition\n\
                    metadata:\n  name: ws\nspec:\n  group: e.org\n  scope: Cluster\n  names: {kind: W}\n---\n\
                    apiVersion: v1\nkind: ConfigMap\nmetadata:\n    # its name\n    name: a\ndata: {mode: 0644, on: \"yes\"}\n\
                    ---\napiVersion: v1\nkind: Secret\nmetadata: {name: b, namespace: other}\n---\n\
                    apiVersion: v1\nkind: Secret\nmetadata: {name: c}\n---\napiVersion: e.org/v1\nkind: W\nmetadata:\n  name: d\n\
                    ---\n{\"apiVersion\": \"v1\", \"kind\": \"Secret\", \"metadata\": {\"name\": \"e\"}}\n---\n# nothing\n---\n\
                    apiVersion: rbac.authorization.k8s.io/v1\nkind: ClusterRole\nmetadata:\n  name: f\n";
        let out = arrange(text, &chart("web-ns")).unwrap();
        let documents = split(&out);
        let value = |index: usize| serde_saphyr::from_str::<Value>(&documents[index].text).unwrap();
        assert_eq!(documents.len(), 8, "{out}");
        assert_eq!(
            (&value(0)["kind"], &value(0)["metadata"]["name"]),
            (&"Namespace".into(), &"web-ns".into())
        );
        let namespaces: Vec<_> = (1..8)
            .map(|index| value(index)["metadata"]["namespace"].clone())
            .collect();
        let namespaces: Vec<_> = namespaces
            .iter()
            .map(|value| value.as_str().unwrap_or("-"))
            .collect();
        assert_eq!(
            namespaces,
            ["-", "web-ns", "other", "web-ns", "-", "web-ns", "-"]
        );
        // The text is unchanged.
        assert!(
            documents[2]
                .text
                .contains("data: {mode: 0644, on: \"yes\"}"),
            "{}",
            documents[2].text
        );
        assert_eq!(documents[1].source.as_deref(), Some("web/crds/x.yaml"));
        assert!(
            out.lines()
                .nth(documents[2].line as usize - 1)
                .unwrap()
                .starts_with("apiVersion: v1")
        );
        assert!(
            !arrange(text, &chart("kube-system"))
                .unwrap()
                .contains("kind: Namespace")
        );
    }

    #[test]
    fn secrets_with_contents_are_found_wherever_they_are() {
        let secret = |name: &str, rest: &str| {
            format!("---\napiVersion: v1\nkind: Secret\nmetadata: {{name: {name}}}\n{rest}\n")
        };
        let text = secret("a", "data: {password: cGFzcw==, user: \"\"}")
            + &secret("b", "stringData: {token: x}")
            + &secret("c", "data: {}")
            + &secret("d", "type: kubernetes.io/service-account-token")
            + &secret("e", "data: {password: \"\"}")
            + &secret("open", "stringData: {greeting: hello}")
            + "---\napiVersion: v1\nkind: List\nitems:\n- {apiVersion: v1, kind: Secret, metadata: {name: f}, data: \
               {k: eA==}}\n---\napiVersion: bitnami.com/v1alpha1\nkind: SealedSecret\nmetadata: {name: g}\ndata: {k: \
               x}\n---\napiVersion: e.org/v1\nkind: Secret\nmetadata: {name: h}\ndata: {k: x}\n";
        let found = secrets(&text, &["open".to_owned()]);
        let found: Vec<_> = found
            .iter()
            .map(|(name, keys)| (name.as_str(), keys.join(" ")))
            .collect();
        let keys = |keys: &str| keys.to_owned();
        assert_eq!(
            found,
            [
                ("a", keys("password")),
                ("b", keys("token")),
                ("f", keys("k"))
            ]
        );
    }

    #[test]
    fn hooks_of_an_installation_stay_and_no_others() {
        let hook = |name: &str, hooks: &str| {
            format!(
                "---\napiVersion: batch/v1\nkind: Job\nmetadata:\n  name: {name}\n  annotations:\n    \"helm.sh/hook\": \
                 {hooks}\n"
            )
        };
        let text =
            hook("a", "pre-install,pre-upgrade") + &hook("b", "post-delete") + &hook("c", "test");
        let out = arrange(&(text + &hook("d", "post-install")), &chart("default")).unwrap();
        let names: Vec<_> = out
            .lines()
            .filter_map(|line| line.strip_prefix("  name: "))
            .collect();
        assert_eq!(names, ["a", "d"]);
    }

    #[test]
    fn an_invalid_object_is_reported_with_its_template() {
        let text = "---\n# Source: web/templates/a.yaml\n- 1\n---\n# Source: web/templates/b.yaml\na: [\n---\n\
                    # Source: web/templates/c.yaml\napiVersion: v1\nkind: List\nitems:\n- {apiVersion: v1, kind: Secret, \
                    metadata: {name: x}}\n";
        let problems = arrange(text, &chart("n")).unwrap_err();
        assert_eq!(problems.len(), 3, "{problems:?}");
        for (problem, start) in problems.iter().zip([
            "web/templates/a.yaml: it does not render a Kubernetes object",
            "web/templates/b.yaml: it does not render YAML",
            "web/templates/c.yaml: the items of a List",
        ]) {
            assert!(problem.starts_with(start), "{problem}");
        }
    }
}
