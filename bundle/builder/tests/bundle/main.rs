//! Tests of bundles: built, damaged, verified and served. The modules are marked as tests, so that
//! the lints that do not apply to tests ignore them.

#[cfg(test)]
mod build;
#[cfg(test)]
mod delta;
#[cfg(test)]
mod documents;
#[cfg(test)]
mod exchanged;
#[cfg(test)]
mod names;
#[cfg(test)]
mod pack;
#[cfg(test)]
mod recipe;
#[cfg(test)]
mod rpm;
#[cfg(test)]
mod serve;
#[cfg(test)]
mod several;
#[cfg(test)]
mod shared;
#[cfg(test)]
mod verify;
