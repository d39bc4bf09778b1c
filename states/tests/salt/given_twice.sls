one:
  test.nop: []
two:
  test.nop: []
last:
  test.configurable_test_state:
    - comment: first
    - comment: last
    - changes: True
    - changes: False
      result: True
    - require: [{test: missing}]
    - require: [{test: two}]
both:
  test.configurable_test_state:
    - changes: False
    - result: False
    - require_in: [{test: one}]
    - require_in: [{test: after}]
after:
  test.nop: []
named:
  test.nop:
    - names: [x, y]
    - names: [y, z]
conditions:
  test.nop:
    - onlyif: 'true'
    - onlyif: 'false'
used:
  test.configurable_test_state:
    - name: used
    - use: [{test: model}]
    - use: [{test: model2}]
model:
  test.configurable_test_state:
    - comment: of model
    - comment: of model again
    - result: True
    - changes: False
model2:
  test.configurable_test_state:
    - comment: of model2
    - changes: True
    - result: True
