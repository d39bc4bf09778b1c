include: [order_included_b]
mine:
  test.nop: [{watch: [{test: first}]}]
between:
  test.nop: []
first:
  test.nop: []
