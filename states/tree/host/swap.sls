{#- The kubelet refuses to run with swap on. -#}
{%- if pillar.host.manageSwap %}
no-swap:
  swap.absent:
    - name: all
{%- else %}
{}
{%- endif %}
