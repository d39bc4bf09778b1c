//! Arguments of `salt['module.function'](…)`, by place and by name as in Python.

use minijinja::value::ValueKind;
use minijinja::{Error, ErrorKind, Value};

use super::super::error::invalid;
use super::super::values::holds_secret;

/// The arguments of one call, by parameter.
pub(super) struct Arguments {
    function: String,
    values: Vec<(&'static str, Value)>,
}

impl Arguments {
    /// Gives each argument to its parameter.
    ///
    /// # Errors
    /// An argument is undefined, given twice, or matches no parameter.
    pub(super) fn bind(
        function: &str,
        parameters: &[&'static str],
        args: &[Value],
    ) -> Result<Self, Error> {
        Self::bind_keywords(function, parameters, &[], args)
    }

    /// As [`Self::bind`], with parameters that take arguments by name only.
    ///
    /// # Errors
    /// As for [`Self::bind`].
    pub(super) fn bind_keywords(
        function: &str,
        parameters: &[&'static str],
        keywords: &[&'static str],
        args: &[Value],
    ) -> Result<Self, Error> {
        let mut bound = Self {
            function: function.to_owned(),
            values: Vec::new(),
        };
        let (named, placed) = match args.split_last() {
            Some((last, placed)) if last.is_kwargs() => (Some(last), placed),
            _ => (None, args),
        };
        if placed.len() > parameters.len() {
            return Err(invalid(format!(
                "salt['{function}'] takes {} arguments, not {}",
                parameters.len(),
                placed.len()
            )));
        }
        for (parameter, value) in parameters.iter().zip(placed) {
            bound.add(parameter, value.clone())?;
        }
        if let Some(named) = named {
            let known = [parameters, keywords].concat();
            for key in named.try_iter()? {
                let name = key.to_string();
                let Some(parameter) = known.iter().find(|known| **known == name) else {
                    return Err(unknown(function, &name, &known));
                };
                bound.add(parameter, named.get_item(&key)?)?;
            }
        }
        Ok(bound)
    }

    fn add(&mut self, parameter: &'static str, value: Value) -> Result<(), Error> {
        let function = &self.function;
        // Python fails where the function uses it, which may be nowhere.
        if value.is_undefined() {
            return Err(Error::new(
                ErrorKind::UndefinedError,
                format!("`{parameter}` of salt['{function}'] is undefined"),
            ));
        }
        if self.optional(parameter).is_some() {
            return Err(invalid(format!(
                "`{parameter}` of salt['{function}'] is given twice"
            )));
        }
        self.values.push((parameter, value));
        Ok(())
    }

    /// The same arguments.
    ///
    /// # Errors
    /// One of them is a secret, or has one in it.
    pub(super) fn without_secrets(self) -> Result<Self, Error> {
        if self.values.iter().any(|(_, value)| holds_secret(value)) {
            return Err(has_secret(&self.function));
        }
        Ok(self)
    }

    /// An optional argument.
    pub(super) fn optional(&self, parameter: &str) -> Option<Value> {
        let found = self.values.iter().find(|(name, _)| *name == parameter);
        found.map(|(_, value)| value.clone())
    }

    /// A required argument.
    pub(super) fn required(&self, parameter: &str) -> Result<Value, Error> {
        self.optional(parameter)
            .ok_or_else(|| invalid(format!("salt['{}'] needs `{parameter}`", self.function)))
    }

    /// A text that may be missing or `None`.
    pub(super) fn text(&self, parameter: &str) -> Result<Option<String>, Error> {
        let Some(value) = self.optional(parameter).filter(|value| !value.is_none()) else {
            return Ok(None);
        };
        if value.kind() != ValueKind::String {
            return Err(invalid(format!(
                "`{parameter}` of salt['{}'] takes a text, not a {}",
                self.function,
                value.kind()
            )));
        }
        Ok(Some(value.to_string()))
    }

    /// A required text.
    pub(super) fn required_text(&self, parameter: &str) -> Result<String, Error> {
        self.required(parameter)?;
        self.text(parameter)?.ok_or_else(|| {
            invalid(format!(
                "`{parameter}` of salt['{}'] takes a text, not None",
                self.function
            ))
        })
    }

    /// A switch; any value is true or false, as in Python.
    pub(super) fn switch(&self, parameter: &str, default: bool) -> bool {
        self.optional(parameter)
            .map_or(default, |value| value.is_true())
    }
}

fn unknown(function: &str, name: &str, parameters: &[&'static str]) -> Error {
    let hint = match halite_document::did_you_mean(name, parameters.iter().copied()) {
        Some(near) => format!("did you mean `{near}`?"),
        None => format!("there are {}", parameters.join(", ")),
    };
    invalid(format!(
        "salt['{function}'] has no argument `{name}`: {hint}"
    ))
}

/// The error of a function that would read a secret.
pub(super) fn has_secret(function: &str) -> Error {
    invalid(format!(
        "salt['{function}'] cannot be used on a secret: a template sees only a reference to it, so the result would be wrong"
    ))
}
