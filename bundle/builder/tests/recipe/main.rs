//! Builds from recipes, with everything from servers on this machine: a real registry with TLS and
//! logins, a web server, an apt repository, charts. The modules are marked as tests, so that the
//! lints that do not apply to tests ignore them.

#[cfg(test)]
mod charts;
#[cfg(test)]
mod closure;
#[cfg(test)]
mod dnf;
#[cfg(test)]
mod images;
#[cfg(test)]
mod packages;
#[cfg(test)]
mod programs;
#[cfg(test)]
mod rpm;
#[cfg(test)]
mod rsa_key;
