{#- The kubelet refuses to run with swap on. -#}
{%- if pillar.halite.host.manageSwap %}
no-swap:
  swap.absent:
    - name: all

# At boot, systemd starts swap units, partitions of the type swap and devices of zram-generator through
# this target. The link masks it.
/etc/systemd/system/swap.target:
  file.symlink:
    - target: /dev/null
    - force: True
{%- else %}
{}
{%- endif %}
