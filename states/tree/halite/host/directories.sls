{#- Halite's own directories. nginx, apt and the site registry read below them as users of their
    own, so the mode does not depend on the umask of the program that made them. -#}
{%- for path in ['/etc/halite', '/var/lib/halite'] %}

{{ path }}:
  file.directory:
    - user: root
    - group: root
    - mode: '0755'
{%- endfor %}
