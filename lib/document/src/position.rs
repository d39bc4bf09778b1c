//! A place in a file.

use serde::{Deserialize, Serialize};

/// A place in a source file; lines and columns count from 1.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Position {
    /// The file as its reader names it: a path in the state tree, or a path on disk.
    pub file: String,
    /// Line in the source file, even if the text was rendered from a template.
    pub line: u32,
    /// Column; 0 if only the line is known.
    pub column: u32,
}
