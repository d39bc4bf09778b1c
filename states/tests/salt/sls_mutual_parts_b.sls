include: [sls_mutual_parts]
b1:
  test.nop:
    - require:
        - test: a2
b2:
  test.nop: []
