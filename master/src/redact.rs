//! The last protection against secrets in records: modules and engine already keep the values of
//! sensitive states out of their returns, and the master removes any secret that a return still
//! contains before it is stored or displayed.

pub use halite_secrets::Redactor;
