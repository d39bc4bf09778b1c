{#- The pod network. `none` leaves it to the operator. A previous network, a chart for example, is
    removed first: its objects may have the same names as the new ones. -#}
include:
  - halite.addons.owned
{%- if pillar.halite.cni.plugin == 'flannel' %}
  - halite.base.network.flannel
{%- endif %}
