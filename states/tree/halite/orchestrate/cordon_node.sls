{#- Marks a node unschedulable; `pillar.node` is its name (`ctl node cordon`). -#}
cordoned:
  halite.cordon:
    - node: {{ pillar.node | json }}
    - timeout: 60
