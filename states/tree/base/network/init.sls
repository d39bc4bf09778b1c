{#- The pod network. `none` leaves it to the operator. The one before, a chart of the bundle for example, goes first: its
    objects may be called as these are. -#}
include:
  - addons.owned
{%- if pillar.cni.plugin == 'flannel' %}
  - base.network.flannel
{%- endif %}
