many:
  test.configurable_test_state:
    - names:
      - own: {comment: said}
      - plain
