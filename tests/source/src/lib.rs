//! Tests of the source tree itself: the rules of `STYLE.md` and `ARCHITECTURE.md` that a program
//! can check.
//!
//! Input: the checkout that contains this crate. Each rule is one module. A finding names the file
//! and the line, and what to write instead. No file is ever changed.

#[cfg(test)]
mod architecture;
#[cfg(test)]
mod book;
#[cfg(test)]
mod circles;
#[cfg(test)]
mod columns;
#[cfg(test)]
mod contracts;
#[cfg(test)]
mod dates;
#[cfg(test)]
mod decisions;
#[cfg(test)]
mod documents;
#[cfg(test)]
mod findings;
#[cfg(test)]
mod imports;
#[cfg(test)]
mod links;
#[cfg(test)]
mod modules;
#[cfg(test)]
mod named_tests;
#[cfg(test)]
mod names;
#[cfg(test)]
mod output;
#[cfg(test)]
mod parsed;
#[cfg(test)]
mod phrases;
#[cfg(test)]
mod pictures;
#[cfg(test)]
mod profiles;
#[cfg(test)]
mod remedies;
#[cfg(test)]
mod rows;
#[cfg(test)]
mod security;
#[cfg(test)]
mod sizes;
#[cfg(test)]
mod tree;
#[cfg(test)]
mod words;
