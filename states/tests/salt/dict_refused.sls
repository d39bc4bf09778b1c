# Functions and arguments of conditions that are not there.
access_read:
  test.nop: [{onlyif: [{fun: file.access, path: /etc/hostname, mode: r}]}]
glob:
  test.nop: [{onlyif: [{fun: file.path_exists_glob, path: "/etc/host*"}]}]
returned:
  test.nop: [{onlyif: [{fun: user.info, name: root, get_return: shell}]}]
retcode_true:
  test.nop: [{onlyif: [{fun: cmd.retcode, cmd: "true"}]}]
retcode_unless_true:
  test.nop: [{unless: [{fun: cmd.retcode, cmd: "true"}]}]
