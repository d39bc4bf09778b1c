include:
  - halite.base.pki.stages

# The CA that every node trusts.
/etc/kubernetes/pki:
  file.directory:
    - user: root
    - group: root
    - mode: '0755'
    - makedirs: True

/etc/kubernetes/pki/ca.crt:
  file.managed:
    - contents: {{ pillar.halite.pki.kubernetes.cert | json }}
    - user: root
    - group: root
    - mode: '0644'
    - force: True
    - require:
        - file: /etc/kubernetes/pki
