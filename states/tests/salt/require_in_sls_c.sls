third:
  test.nop: []
