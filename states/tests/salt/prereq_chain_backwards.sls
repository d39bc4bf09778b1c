# Chains of which the middle is declared before the state that checks it.
u4:
  test.succeed_without_changes: []
t4:
  test.succeed_with_changes:
    - prereq: [{test: u4}]
x4:
  test.nop:
    - prereq: [{test: t4}]
# Declared in the middle first.
t6:
  test.succeed_with_changes:
    - prereq: [{test: u6}]
x6:
  test.nop:
    - prereq: [{test: t6}]
u6:
  test.succeed_without_changes: []
