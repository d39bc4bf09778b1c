a:
  test.succeed_with_changes: []
b:
  cmd.run: [{name: 'true'}, {listen: [{test: a}]}]
c:
  test.fail_without_changes: [{failhard: True}]
d:
  test.nop: []
