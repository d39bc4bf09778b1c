# Two files, one state of each of which requires the whole other file.
include: [sls_mutual_free_b]
a1:
  test.nop:
    - require:
        - sls: sls_mutual_free_b
a2:
  test.nop: []
