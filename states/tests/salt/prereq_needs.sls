# Requirements of the target run before the target is checked.
before_file:
  test.nop:
    - prereq: [{file: "@LAB@/pout/pre/a"}]
"@LAB@/pout/pre/a":
  file.managed:
    - contents: one
    - require: [{file: "@LAB@/pout/pre"}]
"@LAB@/pout/pre":
  file.directory: []
before_condition:
  test.nop:
    - prereq: [{test: conditional}]
conditional:
  test.succeed_with_changes:
    - onlyif: "false"
before_two:
  test.nop:
    - prereq: [{test: quiet3}, {test: loud3}]
quiet3:
  test.succeed_without_changes: []
loud3:
  test.succeed_with_changes: []
two_before_a:
  test.nop:
    - prereq: [{test: shared}]
two_before_b:
  test.nop:
    - prereq: [{test: shared}]
shared:
  test.succeed_with_changes: []
