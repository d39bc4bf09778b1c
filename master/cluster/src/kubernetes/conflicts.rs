//! Fields that a server-side apply takes over from other managers, for the result of a state: a
//! controller and a manifest that set the same field would change it in turns.

use std::collections::{BTreeMap, BTreeSet};

use super::FieldConflict;

/// The most fields that are named for one manager.
const NAMED: usize = 3;

/// Reads conflicts from the causes of the server's refusal: its message and the field. The message
/// is `conflict with "MANAGER" using VERSION`, or more words after it.
pub(super) fn from_causes(causes: impl Iterator<Item = (String, String)>) -> Vec<FieldConflict> {
    let conflict = |(message, field): (String, String)| {
        let manager = message.split('"').nth(1)?.to_owned();
        Some(FieldConflict { manager, field })
    };
    let found: BTreeSet<FieldConflict> = causes.filter_map(conflict).collect();
    found.into_iter().collect()
}

/// Formats conflicts: `takes .spec.replicas from kubectl-edit`; `None` without any.
pub(super) fn sentence(conflicts: &[FieldConflict]) -> Option<String> {
    let mut fields: BTreeMap<&str, Vec<&str>> = BTreeMap::new();
    for FieldConflict { manager, field } in conflicts {
        fields.entry(manager).or_default().push(field);
    }
    let parts = fields.into_iter().map(|(manager, fields)| {
        let named = fields.iter().take(NAMED).copied().collect::<Vec<_>>();
        let more = match fields.len().saturating_sub(NAMED) {
            0 => String::new(),
            more => format!(" and {more} more"),
        };
        format!("{}{more} from {manager}", named.join(", "))
    });
    let parts: Vec<String> = parts.collect();
    (!parts.is_empty()).then(|| format!("takes {}", parts.join("; ")))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn managers_and_their_fields_are_named() {
        let cause = |manager: &str, field: &str| {
            let message = format!("conflict with \"{manager}\" using apps/v1");
            (message, field.to_owned())
        };
        let causes = [
            cause("kubectl-edit", ".spec.replicas"),
            cause("helm", ".data.a"),
            cause("helm", ".data.b"),
            cause("helm", ".data.c"),
            cause("helm", ".data.d"),
            ("a webhook".to_owned(), String::new()),
        ];
        let found = from_causes(causes.into_iter());
        assert_eq!(
            sentence(&found).unwrap(),
            "takes .data.a, .data.b, .data.c and 1 more from helm; .spec.replicas from kubectl-edit"
        );
        assert_eq!(sentence(&[]), None);
    }
}
