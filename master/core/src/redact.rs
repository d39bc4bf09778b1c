//! Redaction of returns. The state functions already keep the values of sensitive states out of
//! their returns; a text from a host that still contains one of its secrets loses it here, before
//! it is stored or shown.

pub use halite_secrets::Redactor;
