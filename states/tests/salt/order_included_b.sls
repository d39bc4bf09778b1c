first_b:
  test.nop: [{require: [{test: first}]}]
second_b:
  test.nop: []
