{#- The kubelet refuses to run with swap on. -#}
{%- if pillar.halite.host.manageSwap %}
no-swap:
  swap.absent:
    - name: all

# A mark that the link below is Halite's. Without it, a link is the operator's and stays.
/var/lib/halite/swap-masked:
  file.managed:
    - contents: swap.target is masked by Halite.
    - user: root
    - group: root
    - mode: '0644'
    - force: True
    - makedirs: True

# At boot, systemd starts swap units, partitions of the type swap and devices of zram-generator through
# this target. The link masks it.
/etc/systemd/system/swap.target:
  file.symlink:
    - target: /dev/null
    - force: True
{%- else %}
/etc/systemd/system/swap.target:
  file.absent:
    - onlyif: test -e /var/lib/halite/swap-masked

/var/lib/halite/swap-masked:
  file.absent:
    - require:
        - file: /etc/systemd/system/swap.target
{%- endif %}
