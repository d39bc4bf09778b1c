b1:
  test.nop:
    - require:
        - sls: sls_includer
b2:
  test.nop: []
