# A pattern in a requisite that matches the state itself.
first:
  test.succeed_with_changes: []
fourth:
  test.nop:
    - require:
        - test: 'f*'
