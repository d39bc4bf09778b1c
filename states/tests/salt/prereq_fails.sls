# A target that is going to fail, by itself, by its requirement, by a chain.
before:
  test.nop:
    - prereq: [{test: target}]
target:
  test.fail_without_changes: []
after_before:
  test.nop:
    - require: [{test: before}]
bad:
  test.fail_without_changes: []
x:
  test.nop:
    - prereq: [{test: t}]
t:
  test.succeed_with_changes:
    - require: [{test: bad}]
after_x:
  test.nop:
    - require: [{test: x}]
w:
  test.nop:
    - prereq: [{test: v}]
v:
  test.succeed_with_changes:
    - prereq: [{test: u}]
u:
  test.fail_without_changes: []
