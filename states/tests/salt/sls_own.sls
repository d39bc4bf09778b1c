# A state that requires its own file.
a1:
  test.nop: []
a2:
  test.nop:
    - require:
        - sls: sls_own
