# Two files that require each other as a whole.
include: [sls_mutual_b]
a1:
  test.nop:
    - require:
        - sls: sls_mutual_b
