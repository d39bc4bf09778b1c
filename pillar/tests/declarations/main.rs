//! Declarations: problems of documents, choices of the master, and what each host sees. All are one
//! program, because each program is linked with the whole crate. The modules are marked as tests,
//! so that the lints that do not apply to tests ignore them.

#[cfg(test)]
mod addresses;
#[cfg(test)]
mod certificates;
#[cfg(test)]
mod control_plane;
#[cfg(test)]
mod dedicated_etcd;
#[cfg(test)]
mod documents;
#[cfg(test)]
mod external_etcd;
#[cfg(test)]
mod masters;
#[cfg(test)]
mod targets;
#[cfg(test)]
mod view;
