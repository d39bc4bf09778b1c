{#- The kubelet refuses to run with swap on. -#}
{%- if pillar.halite.host.manageSwap %}
no-swap:
  swap.absent:
    - name: all
{%- else %}
{}
{%- endif %}
