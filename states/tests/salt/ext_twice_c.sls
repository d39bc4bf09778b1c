x:
  test.configurable_test_state:
    - changes: True
    - result: True
    - comment: its own
