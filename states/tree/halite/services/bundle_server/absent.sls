{#- A host that does not serve bundles, or no longer: it has none. -#}
include:
  - halite.services.bundle_server.stopped

/var/lib/halite/bundles:
  file.absent:
    - require:
        - file: /etc/nginx/conf.d/halite.conf
