//! Redaction of returns. The state functions already keep the values of sensitive states out of
//! their returns; if a text from a host still contains one of its secrets, the secret is removed
//! here, before the text is stored or shown.

pub use halite_secrets::Redactor;
