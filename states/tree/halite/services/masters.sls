{#- What a control-plane host is to the master: where its `ctl` finds it, and whether it is a standby. The
    host of the master has further states (halite.services.master). -#}
{%- from 'halite/map.jinja' import has_master, is_standby with context %}
include:
  - halite.services.operator
{%- if is_standby %}
  - halite.services.standby
{%- elif not has_master %}
  - halite.services.master.absent
{%- endif %}
