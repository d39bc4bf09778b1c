a:
  test.nop:
    - require_in: [{test: b}]
    - listen_in: [{test: l1}]
b:
  test.nop: []
c:
  test.nop: []
l1:
  test.nop: []
u1:
  test.configurable_test_state:
    - comment: one
u2:
  test.configurable_test_state:
    - comment: two
    - changes: False
v:
  test.configurable_test_state:
    - use: [{test: u1}]
w:
  test.succeed_with_changes:
    - require_in: [{test: x}]
    - onchanges_in: [{test: y}]
x:
  test.nop: []
y:
  test.nop: []
z:
  test.nop: []
