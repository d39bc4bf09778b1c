changed:
  test.succeed_with_changes: []
directory:
  file.directory:
    - name: "@LAB@/pout"
    - listen: [{test: changed}]
