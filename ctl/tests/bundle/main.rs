//! The real `ctl` makes and checks bundles under failures: full disks, concurrent commands, kills.
//! The modules are marked as tests for the lints that do not apply to tests.

#[cfg(test)]
mod added;
#[cfg(test)]
mod builder;
#[cfg(test)]
mod busy;
#[cfg(test)]
mod killed;
#[cfg(test)]
mod room;
#[cfg(test)]
mod several;
#[cfg(test)]
#[cfg(test)]
mod signatures;
#[cfg(test)]
mod work;
