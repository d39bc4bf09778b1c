{#- A control-plane host's relation to the master: the address for its `ctl`, and whether it is a
    standby. The master's host has further states (halite.services.master). -#}
{%- from 'halite/map.jinja' import has_master, is_standby with context %}
include:
  - halite.services.operator
{%- if is_standby %}
  - halite.services.standby
{%- elif not has_master %}
  - halite.services.master.absent
{%- endif %}
