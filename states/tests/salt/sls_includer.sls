# A file that the state's own file requires, and that includes it.
include: [sls_includer_b]
a1:
  test.nop: []
