# Listeners: conditions count, commands run again.
changed:
  test.succeed_with_changes: []
unchanged:
  test.succeed_without_changes: []
skipped_unless:
  test.succeed_without_changes:
    - unless: "true"
    - listen: [{test: changed}]
skipped_onlyif:
  test.succeed_without_changes:
    - onlyif: "false"
    - listen: [{test: changed}]
skipped_creates:
  test.succeed_without_changes:
    - creates: /etc/hostname
    - listen: [{test: changed}]
met:
  test.succeed_without_changes:
    - onlyif: "true"
    - listen: [{test: changed}]
command:
  cmd.run:
    - name: echo ran
    - listen: [{test: changed}]
command_quiet:
  cmd.run:
    - name: echo quiet
    - listen: [{test: unchanged}]
command_unless:
  cmd.run:
    - name: echo skipped
    - unless: "true"
    - listen: [{test: changed}]
waiting:
  cmd.wait:
    - name: echo waited
    - listen: [{test: changed}]
checked:
  test.succeed_without_changes:
    - check_cmd: "false"
    - listen: [{test: changed}]
required_bad:
  test.fail_without_changes: []
blocked:
  test.succeed_without_changes:
    - require: [{test: required_bad}]
    - listen: [{test: changed}]
watching:
  cmd.run:
    - name: echo w
    - watch: [{test: changed}]
changer:
  test.succeed_with_changes:
    - listen_in: [{cmd: by_in}]
by_in:
  cmd.run:
    - name: echo in
