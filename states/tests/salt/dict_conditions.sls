# Functions as conditions.
exists:
  test.nop: [{onlyif: [{fun: file.file_exists, path: /etc/hostname}]}]
missing:
  test.nop: [{onlyif: [{fun: file.file_exists, path: /nowhere}]}]
args:
  test.nop: [{onlyif: [{fun: file.file_exists, args: [/nowhere]}]}]
directory:
  test.nop: [{unless: [{fun: file.directory_exists, path: /etc}]}]
user:
  test.nop: [{onlyif: [{fun: user.info, name: nosuchuser}]}]
mixed_unless:
  test.nop: [{unless: [{fun: file.file_exists, path: /etc/hostname}, {fun: file.file_exists, path: /nowhere}]}]
mixed_onlyif:
  test.nop: [{onlyif: [{fun: file.file_exists, path: /etc/hostname}, "true"]}]
holds:
  test.nop: [{onlyif: [{fun: test.true}]}]
holds_not:
  test.nop: [{onlyif: [{fun: test.false}]}]
root:
  test.nop: [{onlyif: [{fun: user.info, name: root}]}]
