//! Arguments that Salt ignores: those that its function does not have. Names are those of Salt
//! 3008.3.

/// The effect in Salt of an argument that its function does not have.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Surplus {
    /// None; Salt warns at most.
    Ignored,
    /// It is a variable of the file's template.
    Variable,
}

/// The effect in Salt of an argument that the function here does not have; `None` if Salt's
/// function has it, or if what it does with others is not known.
pub(crate) fn surplus(state: &str, fun: &str, argument: &str) -> Option<Surplus> {
    let function = format!("{state}.{fun}");
    if IGNORED.contains(&(function.as_str(), argument)) {
        return Some(Surplus::Ignored);
    }
    let (_, arguments) = ARGUMENTS.iter().find(|(known, _)| *known == function)?;
    let is_salts = arguments.split(' ').any(|known| known == argument);
    let is_template = matches!(function.as_str(), "file.managed" | "file.recurse");
    match is_salts || argument.starts_with("win_") {
        true => None,
        false if is_template => Some(Surplus::Variable),
        false => Some(Surplus::Ignored),
    }
}

/// Arguments that a function takes like all others and does not read.
const IGNORED: &[(&str, &str)] = &[
    ("archive.extracted", "official"),
    ("archive.extracted", "recurse"),
    ("archive.extracted", "uri"),
    ("file.recurse", "makedirs"),
    ("service.disabled", "enable"),
];

/// The arguments of Salt's functions that ignore all others.
#[rustfmt::skip]
const ARGUMENTS: &[(&str, &str)] = &[
    ("file.absent", ""),
    ("file.append", "text makedirs source source_hash template sources source_hashes defaults context ignore_whitespace show_changes"),
    ("file.blockreplace", "marker_start marker_end source source_hash template sources source_hashes defaults context content append_if_not_found prepend_if_not_found backup show_changes append_newline insert_before_match insert_after_match"),
    ("file.directory", "user group recurse max_depth dir_mode file_mode makedirs clean require exclude_pat follow_symlinks force backupname allow_symlink children_only mode owner"),
    ("file.line", "content match mode location before after show_changes backup quiet indent create user group file_mode"),
    ("file.managed", "source source_hash source_hash_name keep_source user group mode attrs template makedirs dir_mode context replace defaults backup show_changes create contents tmp_dir tmp_ext contents_pillar contents_grains contents_newline contents_delimiter encoding encoding_errors allow_empty follow_symlinks check_cmd skip_verify selinux verify_ssl use_etag signature source_hash_sig signed_by_any signed_by_all keyring gnupghome ignore_ordering ignore_whitespace ignore_comment_characters new_file_diff sig_backend env file_mode owner"),
    ("file.recurse", "source keep_source clean require user group dir_mode file_mode sym_mode template context replace defaults include_empty backup include_pat exclude_pat maxdepth keep_symlinks force_symlinks merge env owner mode"),
    ("file.symlink", "target force backupname makedirs user group mode atomic disallow_copy_and_unlink inherit_user_and_group follow_symlinks owner"),
    ("group.absent", "local"),
    ("group.present", "gid system addusers delusers members non_unique local"),
    ("host.absent", "ip"),
    ("host.present", "ip comment clean"),
    ("kmod.present", "persist mods"),
    ("mount.mounted", "device fstype mkmnt opts dump pass_num config persist mount user match_on device_name_regex extra_mount_invisible_options extra_mount_invisible_keys extra_mount_ignore_fs_keys extra_mount_translate_options hidden_opts bind_mount_copy_active_opts"),
    ("mount.unmounted", "device config persist user"),
    ("service.masked", "runtime"),
    ("sysctl.present", "value config"),
    ("test.nop", ""),
    ("test.show_notification", "text"),
    ("user.absent", "purge force local"),
    ("user.present", "uid gid usergroup groups optional_groups remove_groups home createhome persist_home password hash_password enforce_password empty_password shell unique system fullname roomnumber workphone homephone other loginclass date mindays maxdays inactdays warndays expire nologinit allow_uid_change allow_gid_change password_lock local"),
];

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_arguments_that_salt_does_not_have_are_ignored() {
        for (function, argument, wanted) in [
            ("absent", "contents", Some(Surplus::Ignored)),
            ("managed", "apache", Some(Surplus::Variable)),
            ("managed", "backup", None),
            ("managed", "source_hash", None),
            ("line", "quiet", None),
            ("line", "quite", Some(Surplus::Ignored)),
        ] {
            assert_eq!(surplus("file", function, argument), wanted, "{argument}");
        }
        assert_eq!(surplus("pkg", "installed", "hold"), None);
        assert_eq!(surplus("pkgrepo", "managed", "file"), None);
    }

    #[test]
    fn the_functions_exist() {
        for (function, _) in IGNORED.iter().chain(ARGUMENTS) {
            let (state, fun) = function.split_once('.').unwrap();
            assert!(crate::signatures::find(state, fun).is_some(), "{function}");
        }
    }
}
