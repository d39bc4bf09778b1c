# The same, of another requisite, and with a pattern of names.
first:
  test.succeed_with_changes: []
fourth:
  test.succeed_with_changes:
    - onchanges:
        - test: 'f[io]*'
