//! The declared receivers of notifications, with the secrets that their requests need.

use halite_secrets::SecretText;
use url::Url;

use crate::cluster::Cluster;
use crate::formats;
use crate::notify::{NoticeSeverity, NotifySink, SinkForm};

/// The time between two repetitions, if none is declared.
const REPEAT: &str = "12h";

/// A sink with the secrets that its requests need.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SinkTarget {
    /// The sink's name.
    pub name: String,
    /// The form of the requests.
    pub form: SinkForm,
    /// The address. It may contain a key.
    pub url: SecretText,
    /// The only authorities (PEM) that may have signed the server's certificate.
    pub ca: Option<String>,
    /// The name of a header, and its value.
    pub header: Option<(String, SecretText)>,
    /// The time after which a finding is sent again, in milliseconds.
    pub repeat: i64,
    /// The least severity of the findings that are sent.
    pub severity: NoticeSeverity,
}

impl SinkTarget {
    /// Scheme, host and port of the address: its path may be a key.
    #[must_use]
    pub fn origin(&self) -> String {
        let url = Url::parse(self.url.reveal());
        url.map(|url| url.origin().ascii_serialization())
            .unwrap_or_default()
    }
}

impl Cluster {
    /// The declared sinks, in the order of their names, without those whose secret is missing
    /// or unknown.
    #[must_use]
    pub fn sink_targets(&self) -> Vec<SinkTarget> {
        let sinks = self.notify.sinks.iter();
        sinks
            .filter_map(|(name, sink)| self.sink_target(name, sink))
            .collect()
    }

    fn sink_target(&self, name: &str, sink: &NotifySink) -> Option<SinkTarget> {
        let secret = |name: &String| self.secrets.get(name)?.value.clone();
        let url = match (&sink.url, &sink.url_secret) {
            (Some(url), _) => SecretText::new(url),
            (None, name) => secret(name.as_ref()?)?,
        };
        let header = match &sink.header {
            Some(header) => Some((header.name.clone(), secret(&header.secret)?)),
            None => None,
        };
        let repeat = sink.repeat.as_deref().unwrap_or(REPEAT);
        Some(SinkTarget {
            name: name.to_owned(),
            form: sink.form,
            url,
            ca: sink.ca.clone(),
            header,
            repeat: formats::interval(repeat)?,
            severity: sink.severity,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn target(url: &str) -> SinkTarget {
        SinkTarget {
            name: "ops".to_owned(),
            form: SinkForm::Plain,
            url: SecretText::new(url),
            ca: None,
            header: None,
            repeat: 1,
            severity: NoticeSeverity::Warning,
        }
    }

    #[test]
    fn the_origin_of_an_address_contains_no_key() {
        for (url, origin) in [
            ("https://chat.corp/hooks/key?k=key", "https://chat.corp"),
            ("http://10.0.0.9:8080/key", "http://10.0.0.9:8080"),
            ("key", ""),
        ] {
            assert_eq!(target(url).origin(), origin);
            assert!(!format!("{:?}", target(url)).contains("key"));
        }
    }

    #[test]
    fn a_finding_is_repeated_twice_a_day_by_default() {
        assert_eq!(formats::interval(REPEAT), Some(12 * 60 * 60 * 1000));
    }
}
