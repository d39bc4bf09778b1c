# Placeholder: /etc/halite/custom/init.sls replaces this file where it exists. See README.md.
{}
