{#- A control plane without the master, or no longer. What the master had there stays: nothing removes
    CAs and a store by a mistake in a document. -#}
{%- for unit in ['halite-backup.timer', 'halite-backup-verify.timer', 'halite-master'] %}

{{ unit }}:
  service.dead:
    - enable: False
{%- endfor %}
