# A requirement that is declared later runs at the place of its first dependent.
pkg:
  test.nop: []
conf:
  test.nop: []
repo:
  test.nop:
    - require_in: [{test: pkg}]
# Only the numbers of direct dependents count: `c` is pulled to the place of `b`, not of `a`.
a:
  test.nop:
    - require: [{test: b}]
between:
  test.nop: []
b:
  test.nop:
    - require: [{test: c}]
between2:
  test.nop: []
c:
  test.nop: []
# A requirement with two dependents; `listen` and `onfail` pull as well or not.
listener:
  test.nop:
    - listen: [{test: listened}]
watcher:
  test.nop:
    - watch: [{test: watched}]
after_watcher:
  test.nop: []
onch:
  test.nop:
    - onchanges: [{test: changed}]
after_onch:
  test.nop: []
handler:
  test.nop:
    - onfail: [{test: ok}]
after_handler:
  test.nop: []
late2:
  test.nop: []
listened:
  test.nop: []
ok:
  test.nop: []
watched:
  test.nop: []
changed:
  test.nop: []
