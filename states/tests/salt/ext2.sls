include: [ext2_base]
fails:
  test.fail_without_changes: []
extend:
  a:
    test:
      - require_in: [{test: c}]
  v:
    test:
      - use: [{test: u2}]
  w:
    test:
      - onchanges_in: [{test: z}]
  fails_too:
    test:
      - require_in: [{test: z}]
fails_too:
  test.fail_without_changes:
    - require_in: [{test: y}]
