# Chains: `x` before `t` before `u`; `u` changes or does not.
x1:
  test.nop:
    - prereq: [{test: t1}]
t1:
  test.succeed_with_changes:
    - prereq: [{test: u1}]
u1:
  test.succeed_without_changes: []
x2:
  test.nop:
    - prereq: [{test: t2}]
t2:
  test.succeed_with_changes:
    - prereq: [{test: u2}]
u2:
  test.succeed_with_changes: []
# The middle changes nothing itself.
x3:
  test.nop:
    - prereq: [{test: t3}]
t3:
  test.succeed_without_changes:
    - prereq: [{test: u3}]
u3:
  test.succeed_with_changes: []
# Three links, nothing changes at the end.
w5:
  test.nop:
    - prereq: [{test: x5}]
x5:
  test.succeed_with_changes:
    - prereq: [{test: t5}]
t5:
  test.succeed_with_changes:
    - prereq: [{test: u5}]
u5:
  test.succeed_without_changes: []
