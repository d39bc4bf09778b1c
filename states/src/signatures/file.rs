//! `file.*`

use super::{arg, on_minion, required};
use crate::signature::{Arg, Kind, Signature};

const USER: Arg = arg(
    "user",
    Kind::Text,
    "Owner; what is there keeps its owner, what is made belongs to root.",
);
const GROUP: Arg = arg(
    "group",
    Kind::Text,
    "Group; what is there keeps its group, what is made belongs to root.",
);
const MAKEDIRS: Arg = arg(
    "makedirs",
    Kind::Boolean,
    "Make missing parent directories (default false).",
);
const TEMPLATE: Arg = arg(
    "template",
    Kind::Text,
    "`jinja`: render the source as a template.",
);
const CONTEXT: Arg = arg("context", Kind::Mapping, "Variables of the template.");
const DEFAULTS: Arg = arg(
    "defaults",
    Kind::Mapping,
    "Variables of the template, where `context` has none.",
);
const SHOW: Arg = arg(
    "show_changes",
    Kind::Boolean,
    "Show the difference in the changes (default true).",
);
const EXCLUDE: Arg = arg(
    "exclude_pat",
    Kind::TextList,
    "Shell patterns (`*`, `?`) of relative paths that `clean` leaves alone, with all below them.",
);

pub(super) const SIGNATURES: &[Signature] = &[
    on_minion(
        "file",
        "managed",
        "A file with the given content, owner and mode.",
        &[
            arg(
                "source",
                Kind::Text,
                "Where the content comes from: `salt://path` (state tree), `bundle://path`, or an absolute path on the host.",
            ),
            arg("contents", Kind::Text, "The content itself."),
            arg(
                "contents_newline",
                Kind::Boolean,
                "End `contents` with a newline where it has none (default true).",
            ),
            TEMPLATE,
            CONTEXT,
            DEFAULTS,
            USER,
            GROUP,
            arg(
                "mode",
                Kind::Mode,
                "Permission bits; what is there keeps its own, a new file gets 0644.",
            ),
            MAKEDIRS,
            arg(
                "dir_mode",
                Kind::Mode,
                "Permission bits of directories that `makedirs` makes (default 0755).",
            ),
            arg(
                "replace",
                Kind::Boolean,
                "false: keep the content of a file that is already there (default true).",
            ),
            arg(
                "create",
                Kind::Boolean,
                "false: do not make a file that is not there (default true).",
            ),
            SHOW,
            arg(
                "check_cmd",
                Kind::Text,
                "Shell command that judges the new content before it is put in place; the path of a temporary file is appended.",
            ),
        ],
    ),
    on_minion(
        "file",
        "directory",
        "A directory with the given owner and mode.",
        &[
            USER,
            GROUP,
            arg("mode", Kind::Mode, "The same as `dir_mode`."),
            arg(
                "dir_mode",
                Kind::Mode,
                "Permission bits of the directory (a new one: 0755), with `recurse: [mode]` of all below.",
            ),
            arg(
                "file_mode",
                Kind::Mode,
                "Permission bits of the files below, with `recurse: [mode]`.",
            ),
            arg(
                "recurse",
                Kind::TextList,
                "What to enforce on all below: `user`, `group`, `mode`.",
            ),
            MAKEDIRS,
            arg(
                "clean",
                Kind::Boolean,
                "Remove everything in it that `exclude_pat` does not name, and that is not mounted there (default false).",
            ),
            EXCLUDE,
        ],
    ),
    on_minion(
        "file",
        "symlink",
        "A symbolic link.",
        &[
            required("target", Kind::Text, "What it points at."),
            arg(
                "force",
                Kind::Boolean,
                "Replace a file or directory that is there (default false).",
            ),
            MAKEDIRS,
        ],
    ),
    on_minion(
        "file",
        "absent",
        "No file, link or directory tree at that path. Refused as long as a file system is mounted in it.",
        &[],
    ),
    on_minion(
        "file",
        "recurse",
        "A directory with a copy of a tree of files.",
        &[
            required(
                "source",
                Kind::Text,
                "Directory in the state tree (`salt://path`).",
            ),
            arg(
                "files",
                Kind::Mapping,
                "Set by the compiler: relative path to `contents` or `blob`, and `mode`.",
            ),
            TEMPLATE,
            CONTEXT,
            DEFAULTS,
            USER,
            GROUP,
            arg(
                "dir_mode",
                Kind::Mode,
                "Permission bits of the directories; made ones get 0755 without it.",
            ),
            arg(
                "file_mode",
                Kind::Mode,
                "Permission bits of the files; made ones get 0644 without it.",
            ),
            arg(
                "clean",
                Kind::Boolean,
                "Remove what the source does not have, and what is not mounted there (default false).",
            ),
            EXCLUDE,
            SHOW,
        ],
    ),
    on_minion(
        "file",
        "append",
        "A file that holds the given texts, the missing ones appended.",
        &[
            required("text", Kind::TextList, "Texts, each of one line or more."),
            MAKEDIRS,
            arg(
                "ignore_whitespace",
                Kind::Boolean,
                "Compare with runs of blanks taken as one (default true).",
            ),
            SHOW,
        ],
    ),
    on_minion(
        "file",
        "line",
        "One line of a file.",
        &[
            arg(
                "content",
                Kind::Text,
                "The line, without newline; not needed for `mode: delete` with `match`.",
            ),
            arg(
                "match",
                Kind::Text,
                "Text that the line to replace or delete contains (default: `content`).",
            ),
            required(
                "mode",
                Kind::Text,
                "`ensure` (there, between `after` and `before`), `replace`, `insert` (there, at the place told) or `delete`.",
            ),
            arg(
                "before",
                Kind::Text,
                "Text in the line before which it goes.",
            ),
            arg("after", Kind::Text, "Text in the line after which it goes."),
            arg(
                "location",
                Kind::Text,
                "`start` or `end` of the file, for `insert`.",
            ),
            arg(
                "indent",
                Kind::Boolean,
                "Take over the indentation of the neighbouring line (default true).",
            ),
            arg(
                "create",
                Kind::Boolean,
                "Make the file when it is missing (default false).",
            ),
            SHOW,
        ],
    ),
    on_minion(
        "file",
        "blockreplace",
        "A block of text between two marker lines.",
        &[
            required(
                "marker_start",
                Kind::Text,
                "Text in the line that begins the block.",
            ),
            required(
                "marker_end",
                Kind::Text,
                "Text in the line that ends the block.",
            ),
            arg(
                "content",
                Kind::Text,
                "What stands between the markers (default: nothing).",
            ),
            arg(
                "append_if_not_found",
                Kind::Boolean,
                "Without markers, append markers and content (default false).",
            ),
            arg(
                "prepend_if_not_found",
                Kind::Boolean,
                "Without markers, put markers and content first (default false).",
            ),
            SHOW,
        ],
    ),
];
