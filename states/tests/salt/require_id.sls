needs:
  test.nop:
    - require: [{id: a}]
changed:
  test.nop:
    - onchanges: [{id: c}]
a:
  test.nop: []
b:
  test.nop: [{name: a}]
c:
  test.succeed_with_changes: []
used:
  test.configurable_test_state:
    - use: [{id: model}]
    - changes: False
model:
  test.configurable_test_state:
    - comment: of the model
    - changes: False
