//! `needs` and `missing`: everything that a bundle's clusters can request from it.

use std::path::Path;

use halite_builder::completeness::{Inventory, compile};
use halite_cli::output;
use halite_manifest::manifest;
use halite_terminal::Screen;
use serde_json::{Value, json};

use super::coverage;
use crate::FAILED;

/// Runs `halite-builder needs`.
///
/// # Errors
/// The bundle cannot be read.
pub fn needs(directory: &Path, screen: &mut Screen) -> anyhow::Result<u8> {
    let manifest = manifest::load(directory)?;
    screen.progress("compiling the state tree for every set of options");
    let stock = Inventory::read(directory, &manifest)?;
    let needs = compile::needs(directory, &manifest, coverage()?)?;
    let missing = needs.missing(&stock);
    let without = compile::without_each(directory, &manifest, &needs, &stock)?;
    let spare: Vec<_> = without
        .iter()
        .filter(|(_, said)| said.is_empty())
        .map(|(spare, _)| spare)
        .collect();
    let asked = needs.artifacts().iter().map(|(artifact, places)| {
        let places: Vec<Value> = places
            .iter()
            .map(|(place, uses)| json!({"place": place.to_string(), "with": uses.to_string()}))
            .collect();
        json!({"artifact": artifact, "places": places})
    });
    let missed: Vec<Value> = missing
        .iter()
        .map(|missing| json!({"artifact": missing.artifact, "message": missing.to_string()}))
        .collect();
    let document = json!({"renderings": needs.renderings(), "needs": asked.collect::<Vec<_>>(),
        "missing": missed, "excused": manifest.not_images, "spare": spare, "without": without.iter()
            .map(|(artifact, said)| json!({"artifact": artifact, "said": said})).collect::<Vec<_>>()});
    screen.answer(&document, |paint| {
        let mut text: String = missing
            .iter()
            .map(|missing| format!("{} {missing}\n", paint.bad("✗")))
            .collect();
        for (artifact, places) in needs.artifacts() {
            text.push_str(&format!("{artifact}\n"));
            text.extend(
                places
                    .iter()
                    .map(|(place, uses)| format!("    {place} ({uses})\n")),
            );
        }
        let excused = manifest.not_images.iter();
        text.extend(excused.map(|(text, why)| format!("not an image: {text}: {why}\n")));
        text.extend(
            spare
                .iter()
                .map(|artifact| format!("nothing requests {artifact}\n")),
        );
        text
    })?;
    Ok(if missing.is_empty() { 0 } else { FAILED })
}

/// Runs `halite-builder missing`.
///
/// # Errors
/// The bundle cannot be read.
pub fn missing(directory: &Path) -> anyhow::Result<u8> {
    let manifest = manifest::load(directory)?;
    let requirements = compile::needs(directory, &manifest, coverage()?)?;
    let missing = requirements.missing(&Inventory::read(directory, &manifest)?);
    let texts: Vec<String> = missing.iter().map(ToString::to_string).collect();
    output::print(&serde_json::to_string(&texts)?)?;
    Ok(0)
}
