{#- The pod network. `none` leaves it to the operator. The one before, a chart of the bundle for example, goes first: its
    objects may be called as these are. -#}
include:
  - halite.addons.owned
{%- if pillar.halite.cni.plugin == 'flannel' %}
  - halite.base.network.flannel
{%- endif %}
