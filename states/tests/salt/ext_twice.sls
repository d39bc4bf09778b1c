include: [ext_twice_b]
extend:
  x:
    test:
      - comment: of the including file
      - require: [{test: late}]
late:
  test.nop: []
watcher:
  test.nop:
    - onchanges: [{test: x}]
