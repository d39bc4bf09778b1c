//! Signatures of `file.*`.

use crate::signature::{Arg, ArgumentKind, COUNT, Signature, arg, on_minion, required};

const USER: Arg = arg(
    "user",
    ArgumentKind::Text,
    "Owner (default: unchanged for an existing file, root for a new one).",
);
const GROUP: Arg = arg(
    "group",
    ArgumentKind::Text,
    "Group (default: unchanged for an existing file, root for a new one).",
);
const MAKEDIRS: Arg = arg(
    "makedirs",
    ArgumentKind::Boolean,
    "Create missing parent directories (default false).",
);
const TEMPLATE: Arg = arg(
    "template",
    ArgumentKind::Text,
    "`jinja`: render the source, or the contents, as a template.",
);
const CONTEXT: Arg = arg(
    "context",
    ArgumentKind::Mapping,
    "Variables of the template.",
);
const DEFAULTS: Arg = arg(
    "defaults",
    ArgumentKind::Mapping,
    "Default variables of the template; `context` takes precedence.",
);
const SHOW: Arg = arg(
    "show_changes",
    ArgumentKind::Boolean,
    "Show the difference in the changes (default true).",
);
const EXCLUDE: Arg = arg(
    "exclude_pat",
    ArgumentKind::PathPatterns,
    "Relative paths that `clean` keeps, with everything below them: shell patterns (`*`, `?`, `[ab]`, `[!ab]`; `*` also matches slashes), or regular expressions after `E@`.",
);

pub(super) const SIGNATURES: &[Signature] = &[
    on_minion(
        "file",
        "managed",
        "A file with the given content, owner and mode.",
        &[
            arg(
                "source",
                ArgumentKind::Sources,
                "Source of the content: `salt://path` (state tree), `bundle://path`, or an absolute path on the host. Of a list, the first that the state tree or the bundle has.",
            ),
            arg("contents", ArgumentKind::Text, "The content itself."),
            arg(
                "contents_pillar",
                ArgumentKind::TextList,
                "Place of the content in the pillar (`a:b`); of a list, the contents are joined by newlines.",
            ),
            arg(
                "contents_delimiter",
                ArgumentKind::Text,
                "Sign between the keys of `contents_pillar` (default `:`).",
            ),
            arg(
                "contents_newline",
                ArgumentKind::Boolean,
                "End `contents` with a newline if it has none (default true).",
            ),
            TEMPLATE,
            CONTEXT,
            DEFAULTS,
            USER,
            GROUP,
            arg(
                "mode",
                ArgumentKind::Mode,
                "Permission bits (default: unchanged for an existing file, 0644 for a new one).",
            ),
            MAKEDIRS,
            arg(
                "dir_mode",
                ArgumentKind::Mode,
                "Permission bits of directories that `makedirs` creates (default 0755).",
            ),
            arg(
                "replace",
                ArgumentKind::Boolean,
                "false: keep the content of an existing file (default true).",
            ),
            arg(
                "create",
                ArgumentKind::Boolean,
                "false: do not create a missing file (default true).",
            ),
            SHOW,
            arg(
                "force",
                ArgumentKind::Boolean,
                "Replace a directory, link, pipe, socket or device at that path (default false: a link is followed, the others are an error).",
            ),
            arg(
                "check_cmd",
                ArgumentKind::Text,
                "Shell command that verifies the new content before it is put in place; the path of a temporary file is appended.",
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
            arg("mode", ArgumentKind::Mode, "The same as `dir_mode`."),
            arg(
                "dir_mode",
                ArgumentKind::Mode,
                "Permission bits of the directory (default for a new one: 0755); with `recurse: [mode]` also of all directories below.",
            ),
            arg(
                "file_mode",
                ArgumentKind::Mode,
                "Permission bits of the files below, with `recurse: [mode]`.",
            ),
            arg(
                "recurse",
                ArgumentKind::Words(&["user", "group", "mode"]),
                "Attributes to enforce on everything below: `user`, `group`, `mode`.",
            ),
            MAKEDIRS,
            arg(
                "force",
                ArgumentKind::Boolean,
                "Replace a file, pipe, socket, device, or link that leads to no directory (default false: an error).",
            ),
            arg(
                "clean",
                ArgumentKind::Boolean,
                "Remove everything in it, except what matches `exclude_pat`, what states that this one requires or watches manage below, and mounted file systems (default false).",
            ),
            EXCLUDE,
        ],
    ),
    on_minion(
        "file",
        "symlink",
        "A symbolic link.",
        &[
            required(
                "target",
                ArgumentKind::Text,
                "Path to which the link points.",
            ),
            arg(
                "force",
                ArgumentKind::Boolean,
                "Replace an existing file or directory (default false).",
            ),
            MAKEDIRS,
        ],
    ),
    on_minion(
        "file",
        "absent",
        "No file, link or directory tree at that path. Refused while a file system is mounted in it.",
        &[],
    ),
    on_minion(
        "file",
        "recurse",
        "A directory with a copy of a tree of files.",
        &[
            required(
                "source",
                ArgumentKind::Sources,
                "Directory in the state tree (`salt://path`); of a list, the first that exists.",
            ),
            TEMPLATE,
            CONTEXT,
            DEFAULTS,
            USER,
            GROUP,
            arg(
                "dir_mode",
                ArgumentKind::Mode,
                "Permission bits of the directories (default: unchanged, 0755 for new ones).",
            ),
            arg(
                "file_mode",
                ArgumentKind::Mode,
                "Permission bits of the files (default: unchanged, 0644 for new ones).",
            ),
            arg(
                "clean",
                ArgumentKind::Boolean,
                "Remove everything that the source does not have, except what matches `exclude_pat`, what states that this one requires or watches manage below, and mounted file systems (default false).",
            ),
            arg(
                "exclude_pat",
                ArgumentKind::PathPatterns,
                "Relative paths that are not copied, and that `clean` keeps with everything below them: shell patterns (`*`, `?`, `[ab]`, `[!ab]`; `*` also matches slashes), or regular expressions after `E@`.",
            ),
            SHOW,
        ],
    ),
    on_minion(
        "file",
        "append",
        "A file that contains the given texts; missing ones are appended.",
        &[
            required(
                "text",
                ArgumentKind::TextList,
                "Texts, each of one line or more.",
            ),
            MAKEDIRS,
            arg(
                "ignore_whitespace",
                ArgumentKind::Boolean,
                "Treat runs of blanks as one in comparisons (default true).",
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
                ArgumentKind::Text,
                "The line, without newline; not required for `mode: delete` with `match`.",
            ),
            arg(
                "match",
                ArgumentKind::LinePattern,
                "The line to replace or delete: the first that matches this regular expression or contains this text (default: `content`).",
            ),
            required(
                "mode",
                ArgumentKind::Text,
                "`ensure` (directly after `after` or before `before`; between both, the only line), `replace`, `insert` (the same, but other lines may be between both, or at `location`) or `delete`.",
            ),
            arg(
                "before",
                ArgumentKind::LinePattern,
                "The one line before which to insert: a regular expression, or text in the line.",
            ),
            arg(
                "after",
                ArgumentKind::LinePattern,
                "The one line after which to insert: a regular expression, or text in the line.",
            ),
            arg(
                "location",
                ArgumentKind::Text,
                "`start` or `end` of the file, for `insert`.",
            ),
            arg(
                "indent",
                ArgumentKind::Boolean,
                "Use the indentation of the neighbouring line (default true).",
            ),
            arg(
                "create",
                ArgumentKind::Boolean,
                "Create the file if it is missing (default false).",
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
                ArgumentKind::Text,
                "Text in the line that begins the block.",
            ),
            required(
                "marker_end",
                ArgumentKind::Text,
                "Text in the line that ends the block.",
            ),
            arg(
                "content",
                ArgumentKind::Text,
                "Text between the markers (default: empty).",
            ),
            arg(
                "append_if_not_found",
                ArgumentKind::Boolean,
                "If the markers are missing, append markers and content (default false).",
            ),
            arg(
                "prepend_if_not_found",
                ArgumentKind::Boolean,
                "If the markers are missing, insert markers and content at the start (default false).",
            ),
            SHOW,
        ],
    ),
    on_minion(
        "file",
        "replace",
        "A file in which a regular expression is replaced. A replacement that would change the file again in each run is an error.",
        &[
            required(
                "pattern",
                ArgumentKind::Text,
                "Regular expression; `^` and `$` match at each line.",
            ),
            required(
                "repl",
                ArgumentKind::Text,
                "Text for each match; `\\1` and `\\g<name>` are groups of the expression.",
            ),
            arg("count", COUNT, "Most matches to replace (default 0: all)."),
            arg(
                "flags",
                ArgumentKind::Any,
                "Flags of the expression: a list of IGNORECASE, MULTILINE and DOTALL, or the sum of Python's numbers (default 8: MULTILINE).",
            ),
            arg(
                "append_if_not_found",
                ArgumentKind::Boolean,
                "If the expression matches nowhere, append the text as a line (default false).",
            ),
            arg(
                "prepend_if_not_found",
                ArgumentKind::Boolean,
                "If the expression matches nowhere, insert the text as the first line (default false).",
            ),
            arg(
                "not_found_content",
                ArgumentKind::Text,
                "The text of both (default: `repl`).",
            ),
            arg(
                "ignore_if_missing",
                ArgumentKind::Boolean,
                "A missing file is not an error (default false).",
            ),
            arg(
                "backslash_literal",
                ArgumentKind::Boolean,
                "Backslashes in `repl` are backslashes (default false).",
            ),
            NO_BACKUP,
            SHOW,
        ],
    ),
    on_minion(
        "file",
        "comment",
        "A file whose lines that match are comments.",
        &[
            REGEX,
            CHAR,
            arg(
                "ignore_missing",
                ArgumentKind::Boolean,
                "It is not an error if no line matches (default false).",
            ),
            NO_BACKUP,
            SHOW,
        ],
    ),
    on_minion(
        "file",
        "serialize",
        "A file with data, as Salt writes them; keys are sorted.",
        &[
            arg("dataset", ArgumentKind::Any, "The data."),
            arg(
                "dataset_pillar",
                ArgumentKind::Text,
                "Place of the data in the pillar (`a:b`).",
            ),
            arg(
                "serializer",
                ArgumentKind::Text,
                "Form of the text: `yaml` (default) or `json`.",
            ),
            arg("formatter", ArgumentKind::Text, "The same as `serializer`."),
            USER,
            GROUP,
            arg(
                "mode",
                ArgumentKind::Mode,
                "Permission bits (default: unchanged for an existing file, 0644 for a new one).",
            ),
            MAKEDIRS,
            arg(
                "create",
                ArgumentKind::Boolean,
                "false: do not create a missing file (default true).",
            ),
            arg(
                "check_cmd",
                ArgumentKind::Text,
                "Shell command that verifies the new content before it is put in place; the path of a temporary file is appended.",
            ),
            SHOW,
        ],
    ),
    on_minion(
        "file",
        "uncomment",
        "A file whose lines that match are not comments.",
        &[REGEX, CHAR, NO_BACKUP, SHOW],
    ),
    on_minion(
        "file",
        "copy",
        "A copy of a file of the host; an existing file is kept unless `force` is set.",
        &[
            required(
                "source",
                ArgumentKind::Path,
                "Absolute path of the file to copy.",
            ),
            arg(
                "force",
                ArgumentKind::Boolean,
                "Replace an existing file with another content (default false).",
            ),
            arg(
                "preserve",
                ArgumentKind::Boolean,
                "A new copy has the owner, group and mode of the source (default false).",
            ),
            arg(
                "subdir",
                ArgumentKind::Boolean,
                "If there is a directory at that path, the copy is in it, under the name of the source (default false).",
            ),
            USER,
            GROUP,
            arg(
                "mode",
                ArgumentKind::Mode,
                "Permission bits (default: those of the source).",
            ),
            MAKEDIRS,
        ],
    ),
];

const REGEX: Arg = required(
    "regex",
    ArgumentKind::Text,
    "Regular expression for the start of the line.",
);
const CHAR: Arg = arg(
    "char",
    ArgumentKind::Text,
    "Sign of a comment (default `#`).",
);
const NO_BACKUP: Arg = arg(
    "backup",
    ArgumentKind::Any,
    "Only `False` or `.bak`, Salt's default: neither leaves a copy of the file, because the return has the difference.",
);
