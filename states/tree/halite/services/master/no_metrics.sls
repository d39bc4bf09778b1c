{#- A host that serves no metrics of the master, or no longer does. -#}
{%- for name in ['metrics.crt', 'metrics.key', 'metrics-clients.pem'] %}

/etc/halite/pki/{{ name }}:
  file.absent: []
{%- endfor %}
