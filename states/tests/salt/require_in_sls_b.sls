include:
  - require_in_sls_c
second:
  test.nop: []
