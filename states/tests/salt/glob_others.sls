# A pattern that does not match the state itself.
first:
  test.succeed_with_changes: []
second:
  test.nop:
    - require:
        - test: 'f*'
