a:
  test.configurable_test_state:
    - comment: __slot__:salt:test.echo(hello)
