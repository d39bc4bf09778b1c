include: [sls_mutual]
b1:
  test.nop:
    - require:
        - sls: sls_mutual
