//! The questions on a terminal, one line for each answer.

use std::collections::BTreeSet;

use anyhow::bail;
use halite_document::Problem;
use halite_document::schema::prose::first_sentence;
use halite_pillar::suggest::connected;

use super::draft::{Draft, below};
use super::first_host::FirstHost;
use super::suggestion::suggested;
use crate::confirm::answered;
use crate::output::Screen;

/// The first lines.
const INTRODUCTION: &str = "Enter takes the value in brackets, - leaves a field out, ? explains it, < goes back. \
     Ctrl-C ends this without a change: nothing is written before the last answer.";
/// The indentation of texts below a field's path.
const INDENT: usize = 2;

/// The next question.
#[derive(PartialEq)]
enum Direction {
    Forward,
    Back,
}

/// Asks all questions whose conditions hold, until each has a valid answer.
///
/// # Errors
/// The input ends before the last answer, or cannot be read.
pub fn run(draft: &mut Draft, host: &FirstHost, screen: &mut Screen) -> anyhow::Result<()> {
    screen.paragraph(INTRODUCTION, 0);
    if let Some(facts) = &host.facts {
        screen.note("");
        let name = host.name.as_deref().unwrap_or("the first host");
        screen.note(format!("{name} has:"));
        for one in connected(facts) {
            let network = one.network.map(|network| format!(" in {network}"));
            let route = if one.has_default_route {
                ", default route"
            } else {
                ""
            };
            let line = format!(
                "{}: {}{}{route}",
                one.interface,
                one.address,
                network.unwrap_or_default()
            );
            screen.paragraph(&line, INDENT);
        }
    }
    let mut interview = Interview {
        host,
        screen,
        explained: BTreeSet::new(),
    };
    let mut asked = Vec::new();
    let mut at = 0;
    while at < draft.questions.len() {
        if !draft.is_asked(at) {
            draft.set(at, None);
            at += 1;
        } else if interview.ask(draft, at)? == Direction::Forward {
            asked.push(at);
            at += 1;
        } else if let Some(previous) = asked.pop() {
            at = previous;
        } else {
            interview.say("This is the first question.");
        }
    }
    interview.screen.note("");
    Ok(())
}

struct Interview<'a> {
    host: &'a FirstHost,
    screen: &'a mut Screen,
    /// The mappings whose descriptions were printed.
    explained: BTreeSet<String>,
}

impl Interview<'_> {
    fn say(&mut self, text: &str) {
        self.screen.paragraph(text, INDENT);
    }

    /// Asks one question until its answer is valid.
    fn ask(&mut self, draft: &mut Draft, at: usize) -> anyhow::Result<Direction> {
        self.introduce(draft, at);
        let suggestion = suggested(draft, self.host, at);
        if let Some(reason) = &suggestion.reason {
            self.say(reason);
        }
        let field = draft.questions[at].field.clone();
        let default = match &suggestion.value {
            Some(value) => format!("[{}] ", field.line(value)),
            None if field.is_required => String::new(),
            None => "[none] ".to_owned(),
        };
        loop {
            let Some(line) = answered(&format!("{default}> "), self.screen)? else {
                self.screen.note("");
                bail!("cannot ask the other questions: the input has ended; nothing was written");
            };
            let answer = match line.trim() {
                "?" => {
                    self.explain(draft, at);
                    continue;
                }
                "<" => return Ok(Direction::Back),
                "" => suggestion.value.clone(),
                "-" if !field.is_required => None,
                text => Some(field.value(text)),
            };
            if answer.is_none() && field.is_required {
                self.say("This field is required: type a value, or ? for its meaning.");
                continue;
            }
            let before = draft.answer(at).cloned();
            draft.set(at, answer);
            let problems = draft.problems(|other| other > at);
            if problems.is_empty() {
                return Ok(Direction::Forward);
            }
            self.report(draft, at, &problems);
            draft.set(at, before);
        }
    }

    /// Prints the field's path, and the first sentences of the mappings around it that are new, and
    /// of the field.
    fn introduce(&mut self, draft: &Draft, at: usize) {
        let question = &draft.questions[at];
        self.screen.note("");
        let around = question.field.around.iter();
        let new: Vec<&str> = around
            .filter(|outer| {
                let key = format!("{:?} {}", question.document, outer.path);
                self.explained.insert(key) && !outer.description.is_empty()
            })
            .map(|outer| first_sentence(&outer.description))
            .collect();
        self.screen.note(&question.id);
        for sentence in new {
            self.say(sentence);
        }
        let own = question.field.description();
        self.say(first_sentence(&own));
    }

    /// Prints everything that the schema says about a field.
    fn explain(&mut self, draft: &Draft, at: usize) {
        let field = &draft.questions[at].field;
        let around = field.around.iter().map(|outer| outer.description.clone());
        // The description of the whole document says nothing about the field.
        let texts: Vec<String> = around.skip(1).chain([field.description()]).collect();
        for text in texts {
            self.say(&text);
        }
        self.say(&format!("Takes: {}.", field.takes()));
        if let Some(default) = field.default() {
            self.say(&format!("Default: {}.", field.line(&default)));
        }
        if !field.is_required {
            self.say("Optional.");
        }
    }

    fn report(&mut self, draft: &Draft, at: usize, problems: &[Problem]) {
        let question = &draft.questions[at];
        let own = draft.path(question.document).display().to_string();
        let mark = self.screen.paint().bad("✗");
        for problem in problems {
            let is_own = problem.file == own;
            let place = match (is_own, below(&problem.path, &question.field.path)) {
                (true, true) => String::new(),
                (true, false) => format!("{}: ", problem.path),
                (false, _) if problem.path.is_empty() => format!("{}: ", problem.file),
                (false, _) => format!("{}: {}: ", problem.file, problem.path),
            };
            self.say(&format!("{mark} {place}{}", problem.message));
            if !problem.hint.is_empty() {
                self.screen.paragraph(&problem.hint, 2 * INDENT);
            }
        }
        if self.host.is_here && draft.problems_anywhere(|other| other > at).is_empty() {
            self.say(
                "If the first host is another one, run this command there, or with --other-host.",
            );
        }
    }
}
