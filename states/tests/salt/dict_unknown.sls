a:
  test.nop: [{onlyif: [{fun: nosuch.function, path: /etc/hostname}]}]
