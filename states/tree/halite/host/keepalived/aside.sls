{#- Moves the virtual address to another host, if this one has it, and lets it compete again: it does
    not take the address back while another host has it (`nopreempt`). For the step
    halite.vip_moved_off, which has made sure that another host can take it. -#}
{%- from 'halite/map.jinja' import runs_keepalived with context %}
{%- if runs_keepalived %}
{%-   set api = pillar.halite.apiServer %}
{%-   set vip = api.vip %}
# keepalived says good-bye to its peers when it stops, so that another host takes the address at once.
# Without this host, the address is reached only where another one has it. The certificates have the
# name, not the address.
vip-elsewhere:
  cmd.run:
    - name: >-
        systemctl stop keepalived;
        for _ in $(seq 50); do
        if curl --silent --fail --output /dev/null --max-time 1 --noproxy '*' --cacert /etc/kubernetes/pki/ca.crt
        --resolve {{ api.endpoint }}:{{ api.port }}:{{ vip }} https://{{ api.endpoint }}:{{ api.port }}/readyz;
        then systemctl start keepalived; exit 0; fi;
        sleep 0.2; done;
        systemctl start keepalived; echo "no other host serves the API at {{ vip }}" >&2; exit 1
    - onlyif: ip -4 -o address show to {{ vip }} | grep -q .

keepalived:
  service.running:
    - require:
        - cmd: vip-elsewhere
{%- endif %}
