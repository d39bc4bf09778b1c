first:
  test.nop: []
before:
  test.nop:
    - prereq: [{test: change}]
between:
  test.nop: []
needed:
  test.nop: []
change:
  test.succeed_with_changes:
    - require: [{test: needed}, {test: needed_late}]
between2:
  test.nop: []
needed_late:
  test.nop: []
target_first:
  test.succeed_with_changes: []
between3:
  test.nop: []
prereq_late:
  test.nop:
    - prereq: [{test: target_first}]
