last:
  test.nop:
    - order: last
    - require: [{test: for_last}]
from_end:
  test.nop:
    - order: -1
    - require: [{test: for_from_end}]
first:
  test.nop:
    - order: first
    - require: [{test: for_first}]
plain:
  test.nop: []
low:
  test.nop:
    - order: 5
    - require: [{test: for_low}]
named:
  test.nop:
    - names: [n1, n2]
    - require: [{test: for_named}]
between:
  test.nop: []
several:
  test.nop:
    - names: [z, y, x]
some:
  test.nop:
    - require: [{test: x}]
two_kinds_a:
  test.nop:
    - order: 20000
    - watch: [{test: target}]
two_kinds_b:
  test.nop:
    - order: 100
    - require: [{test: target}]
two_kinds_c:
  test.nop:
    - order: 200
    - onfail: [{test: target2}]
two_kinds_d:
  test.nop:
    - order: 300
    - require: [{test: target2}]
two_kinds_e:
  test.nop:
    - order: 400
    - require: [{test: target2}]
for_last:
  test.nop: []
for_from_end:
  test.nop: []
for_first:
  test.nop: []
for_low:
  test.nop: []
for_named:
  test.nop: []
target:
  test.nop: []
target2:
  test.nop: []
