//! Reads a compiled low state and checks that this minion may apply it.

use halite_proto::ids::MinionId;
use halite_states::low::{FORMAT, LowState};

/// A low state that this minion does not apply.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum LowStateError {
    /// Not a low state. serde's own message is left out: it quotes values, which may be secrets.
    #[error("cannot read the low state (line {line}, column {column})")]
    Malformed {
        /// The line, from 1.
        line: usize,
        /// The column, from 1.
        column: usize,
    },
    /// A newer master compiled it.
    #[error("the low state has format {0}, this minion knows up to {FORMAT}: update the minion")]
    Format(u32),
    /// It is for another minion.
    #[error("the low state is for {named}, this is {minion}")]
    OtherMinion {
        /// The minion that it names.
        named: String,
        /// This minion.
        minion: MinionId,
    },
    /// A requisite names a missing chunk.
    #[error("the low state has a requisite that points nowhere")]
    Requisite,
}

/// Reads a low state and refuses one that this version cannot read, or that is for another minion.
/// Without `minion`, a low state for any minion is accepted.
///
/// # Errors
/// Like [`LowStateError`].
pub fn parse(json: &str, minion: Option<&MinionId>) -> Result<LowState, LowStateError> {
    let low: LowState = serde_json::from_str(json).map_err(|e| LowStateError::Malformed {
        line: e.line(),
        column: e.column(),
    })?;
    if low.format > FORMAT {
        return Err(LowStateError::Format(low.format));
    }
    if let Some(minion) = minion.filter(|minion| low.minion != minion.as_str()) {
        return Err(LowStateError::OtherMinion {
            named: low.minion,
            minion: minion.clone(),
        });
    }
    let beyond = |i: &usize| *i >= low.chunks.len();
    let is_broken = low.chunks.iter().any(|c| {
        let r = &c.requisites;
        [
            &r.require,
            &r.require_any,
            &r.watch,
            &r.watch_any,
            &r.onchanges,
            &r.onchanges_any,
            &r.onfail,
            &r.onfail_any,
            &r.onfail_all,
            &r.prereq,
            &r.listen,
        ]
        .into_iter()
        .flatten()
        .any(beyond)
    });
    if is_broken {
        Err(LowStateError::Requisite)
    } else {
        Ok(low)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_malformed_low_state_is_not_quoted() {
        let error = parse(
            r#"{"format": "secret-value", "minion": "a", "chunks": []}"#,
            None,
        )
        .unwrap_err()
        .to_string();
        assert!(!error.contains("secret-value"), "{error}");
        let error = parse(r#"{"format":1,"minion":"a","chunks":[{"state":"t","fun":"f","id":"i","name":"n","sls":"s","source":{"file":"f","line":1,"column":1},"requisites":{"require":[7]}}]}"#, None).unwrap_err().to_string();
        assert!(error.contains("points nowhere"), "{error}");
    }
}
