# Targets that their own requisites keep from running.
before_onchanges:
  test.nop:
    - prereq: [{test: runs_on_changes}]
runs_on_changes:
  test.succeed_with_changes:
    - onchanges: [{test: quiet}]
quiet:
  test.succeed_without_changes: []
before_onfail:
  test.nop:
    - prereq: [{test: runs_on_failure}]
runs_on_failure:
  test.succeed_with_changes:
    - onfail: [{test: quiet2}]
quiet2:
  test.succeed_without_changes: []
