# Stands in for the operator's own states: /etc/halite/custom/init.sls, where it exists, is taken instead. See README.md.
{}
