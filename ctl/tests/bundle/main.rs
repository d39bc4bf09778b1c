//! The real `ctl` makes and checks bundles where something goes wrong: no room, another one at
//! work, killed in the middle. The modules are marked as tests for the lints that tests are free
//! of.

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
mod signatures;
#[cfg(test)]
mod work;
