//! The nginx locations, which are the same for all bundles.

use super::KINDS;

/// The nginx locations. The `http {}` around them defines the maps from `$halite_version` to
/// `$halite_bundle`, the directory of a bundle, and from version, registry and path to
/// `$halite_manifest`, `$halite_list` and `$halite_next`.
///
/// `default_type` takes no variable, so each media type has a location. The body of an error is the
/// one required by the specification.
#[must_use]
pub fn locations() -> String {
    let manifests: String = KINDS
        .iter()
        .map(|(kind, media)| manifest(kind, media))
        .collect();
    let errors: String = ERRORS.iter().map(|error| error.location()).collect();
    format!("{BEGIN}{manifests}{REST}{errors}")
}

const BEGIN: &str = r#"# Serves the bundles of a site; made by `ctl bundle build`.
location ~ "^/bundles/(?<halite_version>[^/]+)/v2/$" {
    if ($request_method !~ "^(GET|HEAD)$") { return 405; }
    if ($halite_bundle = "") { return 404; }
    error_page 404 = @halite_name_unknown;
    error_page 405 = @halite_unsupported;
    default_type application/json;
    add_header Docker-Distribution-Api-Version registry/2.0 always;
    return 200 "{}";
}

location ~ "^/bundles/(?<halite_version>[^/]+)(?<halite_path>/v2/.+/manifests/[^/]+)$" {
    if ($request_method !~ "^(GET|HEAD)$") { return 405; }
    if ($halite_bundle = "") { return 404; }
    if ($halite_manifest = "") { return 404; }
    error_page 404 = @halite_manifest_unknown;
    error_page 405 = @halite_unsupported;
    rewrite ^ /.halite/manifest/$halite_manifest last;
}

"#;

fn manifest(kind: &str, media: &str) -> String {
    format!(
        r#"location ~ "^/\.halite/manifest/{kind}/(?<halite_digest>[0-9a-f]{{64}})$" {{
    internal;
    error_page 404 = @halite_manifest_unknown;
    types {{ }}
    default_type {media};
    add_header Docker-Content-Digest sha256:$halite_digest;
    add_header Docker-Distribution-Api-Version registry/2.0;
    alias $halite_bundle/images/blobs/sha256/$halite_digest;
}}

"#
    )
}

/// The locations of files and lists. `n` and `last` select a page of a list; `$halite_page` is the
/// size of the page, or `wrong` if `n` is not a number.
const REST: &str = r#"location ~ "^/bundles/(?<halite_version>[^/]+)/v2/.+/blobs/sha256:(?<halite_digest>[0-9a-f]{64})$" {
    if ($request_method !~ "^(GET|HEAD)$") { return 405; }
    if ($halite_bundle = "") { return 404; }
    error_page 404 = @halite_blob_unknown;
    error_page 405 = @halite_unsupported;
    types { }
    default_type application/octet-stream;
    add_header Docker-Content-Digest sha256:$halite_digest;
    add_header Docker-Distribution-Api-Version registry/2.0;
    alias $halite_bundle/images/blobs/sha256/$halite_digest;
}

location ~ "^/bundles/(?<halite_version>[^/]+)(?<halite_path>/v2/(.+/tags/list|_catalog))$" {
    if ($request_method !~ "^(GET|HEAD)$") { return 405; }
    if ($halite_bundle = "") { return 404; }
    if ($halite_page = "wrong") { return 400; }
    if ($halite_list = "") { return 404; }
    error_page 400 = @halite_number_invalid;
    error_page 404 = @halite_name_unknown;
    error_page 405 = @halite_unsupported;
    default_type application/json;
    add_header Docker-Distribution-Api-Version registry/2.0;
    # A header without a value is not sent.
    add_header Link $halite_link;
    return 200 $halite_list;
}

location ~ "^/bundles/[^/]+/v2(/|$)" {
    if ($request_method !~ "^(GET|HEAD)$") { return 405; }
    error_page 404 = @halite_name_unknown;
    error_page 405 = @halite_unsupported;
    return 404;
}

# Everything else of a bundle is plain files.
location ~ "^/bundles/(?<halite_version>[^/]+)/(?<halite_file>.+)$" {
    if ($request_method !~ "^(GET|HEAD)$") { return 405; }
    if ($halite_bundle = "") { return 404; }
    default_type application/octet-stream;
    alias $halite_bundle/$halite_file;
}

"#;

/// An error response.
struct Refusal {
    location: &'static str,
    status: u16,
    /// An error code of the specification; the code for a wrong `n` is from the distribution
    /// project.
    code: &'static str,
    message: &'static str,
}

const ERRORS: [Refusal; 5] = [
    Refusal {
        location: "manifest_unknown",
        status: 404,
        code: "MANIFEST_UNKNOWN",
        message: "this bundle has no such image",
    },
    Refusal {
        location: "blob_unknown",
        status: 404,
        code: "BLOB_UNKNOWN",
        message: "this bundle has no such blob",
    },
    Refusal {
        location: "name_unknown",
        status: 404,
        code: "NAME_UNKNOWN",
        message: "this bundle has no such image",
    },
    Refusal {
        location: "number_invalid",
        status: 400,
        code: "PAGINATION_NUMBER_INVALID",
        message: "n is not a number",
    },
    Refusal {
        location: "unsupported",
        status: 405,
        code: "UNSUPPORTED",
        message: "images of a bundle can only be pulled",
    },
];

impl Refusal {
    fn location(&self) -> String {
        let Self {
            location,
            status,
            code,
            message,
        } = self;
        format!(
            "location @halite_{location} {{\n    default_type application/json;\n    \
             return {status} '{{\"errors\":[{{\"code\":\"{code}\",\"message\":\"{message}\"}}]}}';\n}}\n\n"
        )
    }
}
