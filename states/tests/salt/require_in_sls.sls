include:
  - require_in_sls_b
first:
  test.configurable_test_state:
    - result: False
    - changes: False
    - require_in:
      - sls: require_in_sls_b
