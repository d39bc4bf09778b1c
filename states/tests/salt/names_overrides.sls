first:
  test.succeed_with_changes: []
second:
  test.succeed_without_changes: []
many:
  test.succeed_with_changes:
    - onchanges: [{test: second}]
    - names:
      - own:
        - onchanges: [{test: first}]
      - plain
      - commented:
        - comment: said
        - order: 1
