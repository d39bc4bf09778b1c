{#- The pod network. `none` leaves it to the operator. -#}
{%- if pillar.cni.plugin == 'flannel' %}
include:
  - base.network.flannel
{%- else %}
{}
{%- endif %}
