//! Deprecated API versions that clients have requested from an API server since it started, by its
//! metric `apiserver_requested_deprecated_apis`.

use super::{Api, ApiError};

/// The metric. Its samples are 1, and never 0 again until the server restarts.
const METRIC: &str = "apiserver_requested_deprecated_apis";

/// A deprecated API version in use.
#[derive(Debug, Clone, Default, PartialEq, Eq, PartialOrd, Ord)]
pub struct DeprecatedApi {
    /// `group/version`, or `v1`.
    pub api_version: String,
    /// The resource, for example `endpoints`, with its subresource if it has one.
    pub resource: String,
    /// The minor version of Kubernetes that no longer serves it, for example `1.38`; `None` if none
    /// is planned.
    pub removed: Option<String>,
}

/// The deprecated API versions that clients have requested from one API server.
///
/// # Errors
/// The API failed.
pub async fn requested(api: &dyn Api) -> Result<Vec<DeprecatedApi>, ApiError> {
    let lines = api.metric(METRIC).await?;
    let mut found: Vec<DeprecatedApi> = lines.iter().filter_map(|line| read(line)).collect();
    found.sort();
    found.dedup();
    Ok(found)
}

/// Reads a sample; `None` if nothing has been requested, or the line cannot be understood.
fn read(line: &str) -> Option<DeprecatedApi> {
    let (labels, value) = line.strip_prefix(METRIC)?.rsplit_once('}')?;
    if value.split_whitespace().next()?.parse::<f64>().ok()? <= 0.0 {
        return None;
    }
    // No value of these labels contains a quotation mark or a comma.
    let label = |name: &str| {
        let mut pairs = labels.trim_start_matches('{').split(',');
        let value = pairs.find_map(|pair| {
            let value = pair.trim().strip_prefix(name)?.strip_prefix('=')?;
            Some(value.trim_matches('"').to_owned())
        });
        value.unwrap_or_default()
    };
    let (group, subresource) = (label("group"), label("subresource"));
    let (version, resource) = (label("version"), label("resource"));
    Some(DeprecatedApi {
        api_version: match group.as_str() {
            "" => version,
            group => format!("{group}/{version}"),
        },
        resource: match subresource.as_str() {
            "" => resource,
            subresource => format!("{resource}/{subresource}"),
        },
        removed: Some(label("removed_release")).filter(|release| !release.is_empty()),
    })
}

#[cfg(test)]
mod tests {
    use super::super::fake::FakeApi;
    use super::*;

    fn deprecated(api_version: &str, resource: &str, removed: &str) -> DeprecatedApi {
        DeprecatedApi {
            api_version: api_version.to_owned(),
            resource: resource.to_owned(),
            removed: Some(removed.to_owned()).filter(|text| !text.is_empty()),
        }
    }

    #[tokio::test]
    async fn requested_versions_are_read_from_the_metric() {
        let api = FakeApi::default();
        *api.metrics.lock().unwrap() = [
            "# HELP apiserver_requested_deprecated_apis [STABLE] Gauge of deprecated APIs",
            "apiserver_requested_deprecated_apis{group=\"\",removed_release=\"\",resource=\"endpoints\",subresource=\"\",version=\"v1\"} 1",
            "apiserver_requested_deprecated_apis{group=\"flowcontrol.apiserver.k8s.io\",removed_release=\"1.36\",resource=\"flowschemas\",subresource=\"status\",version=\"v1beta3\"} 1",
            "apiserver_requested_deprecated_apis{group=\"batch\",removed_release=\"1.36\",resource=\"cronjobs\",subresource=\"\",version=\"v1beta1\"} 0",
            "apiserver_requested_deprecated_apis_other{group=\"batch\"} 1",
            "apiserver_requested_deprecated_apis 1",
        ]
        .map(str::to_owned)
        .into();
        let found = requested(&api).await.unwrap();
        let wanted = [
            deprecated(
                "flowcontrol.apiserver.k8s.io/v1beta3",
                "flowschemas/status",
                "1.36",
            ),
            deprecated("v1", "endpoints", ""),
        ];
        assert_eq!(found, wanted);
    }
}
