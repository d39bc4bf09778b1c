# Targets that only `mod_watch` would change.
changed:
  test.succeed_with_changes: []
unchanged:
  test.succeed_without_changes: []
before_restart:
  test.nop:
    - prereq: [{test: restarted}]
restarted:
  test.succeed_without_changes:
    - watch: [{test: changed}]
before_quiet:
  test.nop:
    - prereq: [{test: quiet}]
quiet:
  test.succeed_without_changes:
    - watch: [{test: unchanged}]
# The same, the target declared before.
restarted_early:
  test.succeed_without_changes:
    - watch: [{test: changed}]
before_restart_late:
  test.nop:
    - prereq: [{test: restarted_early}]
# What the target watches is declared last.
before_restart2:
  test.nop:
    - prereq: [{test: restarted2}]
restarted2:
  test.succeed_without_changes:
    - watch: [{test: changed_last}]
changed_last:
  test.succeed_with_changes: []
