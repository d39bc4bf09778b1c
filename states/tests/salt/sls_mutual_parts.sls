# Two files that require each other, but not the states that wait.
include: [sls_mutual_parts_b]
a1:
  test.nop:
    - require:
        - test: b2
a2:
  test.nop: []
