{#- only: orchestration -#}
# Releases the virtual address permanently: keepalived does not start again on this host.
keepalived:
  service.dead:
    - enable: False
    - onlyif: test -e /etc/keepalived/check-apiserver
