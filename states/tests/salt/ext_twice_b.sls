include: [ext_twice_c]
extend:
  x:
    test:
      - comment: of the included file
      - changes: False
      - require: [{test: later}]
later:
  test.nop: []
