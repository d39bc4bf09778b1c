a:
  test.nop: [{onlyif: [{fun: file.file_exists, pth: /etc/hostname}]}]
