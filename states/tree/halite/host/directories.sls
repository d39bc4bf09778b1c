{#- Whoever made them, and with whichever umask: nginx, apt and the registry have to come through. -#}
{%- for path in ['/etc/halite', '/var/lib/halite'] %}

{{ path }}:
  file.directory:
    - user: root
    - group: root
    - mode: '0755'
{%- endfor %}
