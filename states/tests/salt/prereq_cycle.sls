x:
  test.nop:
    - prereq: [{test: t}]
r:
  test.nop:
    - require: [{test: x}]
t:
  test.succeed_with_changes:
    - require: [{test: r}]
