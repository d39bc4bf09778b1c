//! The rendered charts of a recipe.

use std::collections::BTreeMap;
use std::fs;
use std::path::PathBuf;

use halite_durable::Digest;
use halite_durable::digest::InvalidDigest;
use halite_fetch::oci::{ImageRequest, Platform, Puller};
use halite_fetch::{Artifact, ImageRef};

use super::{Gather, Mode, Settled};
use crate::chart;
use crate::chart::Helm;
use crate::error::Error;
use crate::lock::{ChartItem, Lock};
use crate::recipe::{Chart, ChartSource};

/// The media type of an image layer that is a chart (<https://helm.sh/docs/topics/registries>).
const CONTENT: &str = "application/vnd.cncf.helm.chart.content.v1.tar+gzip";

/// The maximum size of a chart's archive, in bytes.
const ARCHIVE: u64 = 256 << 20;

/// The objects of a chart.
#[derive(Debug, Clone)]
pub struct Rendered {
    /// The chart's name.
    pub name: String,
    /// The chart's version.
    pub version: String,
    /// The file with its objects.
    pub path: PathBuf,
}

/// A chart on this machine.
struct There {
    path: PathBuf,
    sha256: String,
    size: u64,
}

impl Gather<'_> {
    /// Resolves and renders each chart.
    pub(super) fn settle_charts(
        &self,
        recorded: Option<&Lock>,
        mode: Mode,
        unrecorded: &mut Vec<String>,
        errors: &mut Vec<Error>,
    ) -> BTreeMap<String, ChartItem> {
        let mut items = BTreeMap::new();
        for chart in &self.recipe.charts {
            match self.settle_chart(chart, recorded, mode) {
                Ok(Some(item)) => drop(items.insert(chart.name.clone(), item)),
                Ok(None) => unrecorded.push(format!(
                    "the chart {}, as requested by the recipe",
                    chart.name
                )),
                Err(error) => errors.push(error),
            }
        }
        items
    }

    /// Resolves and renders one chart; `None` if it must be recorded first.
    fn settle_chart(
        &self,
        chart: &Chart,
        recorded: Option<&Lock>,
        mode: Mode,
    ) -> Result<Option<ChartItem>, Error> {
        let request = chart::request(chart, &self.source(chart), &self.recipe.kubernetes)?;
        let known = recorded.and_then(|lock| lock.charts.get(&chart.name));
        let declared = match &chart.source {
            ChartSource::Archive(_, declared) => declared.as_ref(),
            _ => None,
        };
        let same = |known: &&ChartItem| {
            known.request == request && declared.is_none_or(|digest| digest.hex() == known.sha256)
        };
        if let Some(known) = known.filter(same) {
            let mut item = known.clone();
            item.licence = chart.licence.clone().or(item.licence);
            if let ChartSource::Local(path) = &chart.source {
                (item.sha256, item.size) = chart::digest(path)?;
            }
            return Ok(Some(item));
        }
        if mode == Mode::Exact && chart.is_remote() {
            return Ok(None);
        }
        let there = self.obtain(chart, None)?;
        let helm = Helm::new(self.recipe.helm.as_deref());
        let about = helm.about(&there.path, &chart.name)?;
        if let Some(wanted) = chart
            .version
            .as_ref()
            .filter(|wanted| **wanted != about.version)
        {
            let message = format!(
                "the chart has version {}, but the recipe requires {wanted}",
                about.version
            );
            return Err(Error::content(self.source(chart), message));
        }
        let text = helm.render(&there.path, chart, &self.recipe.kubernetes)?;
        chart::check_secrets(&text, chart)?;
        let rendered = self.fetcher.cache().put(text.as_bytes())?;
        Ok(Some(ChartItem {
            version: about.version,
            sha256: there.sha256,
            size: there.size,
            source: self.source(chart),
            request,
            rendered: rendered.digest.hex().to_owned(),
            licence: chart.licence.clone().or(about.licence),
            why: "asked for".to_owned(),
        }))
    }

    /// Returns the objects of all charts: stored from an earlier rendering, or rendered again from
    /// exactly the charts that the lock names.
    pub(super) fn fetch_charts(&self, settled: &Settled) -> Result<Vec<Rendered>, Error> {
        let (mut found, mut errors) = (Vec::new(), Vec::new());
        for chart in &self.recipe.charts {
            match self.fetch_chart(chart, settled) {
                Ok(rendered) => found.push(rendered),
                Err(error) => errors.push(error),
            }
        }
        Error::all(errors)?;
        Ok(found)
    }

    fn fetch_chart(&self, chart: &Chart, settled: &Settled) -> Result<Rendered, Error> {
        let item = settled.lock.charts.get(&chart.name);
        let item = item.ok_or_else(|| Error::content(&chart.name, "it is not resolved"))?;
        let digest = self.recorded(chart, &item.rendered)?;
        let cache = self.fetcher.cache();
        let kept = cache.read(&digest)?;
        let text = match &kept {
            Some(kept) => String::from_utf8_lossy(kept).into_owned(),
            None => self.render_again(chart, item, &digest)?,
        };
        // A lock made by an earlier version may have been recorded without this check.
        chart::check_secrets(&text, chart)?;
        let (name, version) = (chart.name.clone(), item.version.clone());
        Ok(Rendered {
            name,
            version,
            path: cache.path(&digest),
        })
    }

    /// Renders a chart again; the result must match the lock.
    fn render_again(
        &self,
        chart: &Chart,
        item: &ChartItem,
        digest: &Digest,
    ) -> Result<String, Error> {
        let source = self.recorded(chart, &item.sha256)?;
        let there = self.obtain(chart, Some((&source, item.size)))?;
        let text = Helm::new(self.recipe.helm.as_deref()).render(
            &there.path,
            chart,
            &self.recipe.kubernetes,
        )?;
        if self.fetcher.cache().put(text.as_bytes())?.digest == *digest {
            return Ok(text);
        }
        let message = "its rendered objects differ from the recorded ones: Helm has another version, or the chart generates \
                       values each time. Passwords and keys are made at the site, and `values` name their Secret; set all \
                       other generated values in `values`";
        Err(Error::Lock {
            lock: self.lock_file(),
            differences: vec![format!("the chart {}: {message}", chart.name)],
        })
    }

    /// The digest that the lock records for a chart.
    fn recorded(&self, chart: &Chart, sha256: &str) -> Result<Digest, Error> {
        sha256.parse().map_err(|invalid: InvalidDigest| {
            Error::content(self.lock_file(), format!("chart {}: {invalid}", chart.name))
        })
    }

    /// Obtains a chart; if its digest is known, the chart with exactly this digest.
    fn obtain(&self, chart: &Chart, known: Option<(&Digest, u64)>) -> Result<There, Error> {
        match &chart.source {
            ChartSource::Local(path) => {
                let (sha256, size) = chart::digest(path)?;
                Ok(There {
                    path: path.clone(),
                    sha256,
                    size,
                })
            }
            ChartSource::Archive(url, declared) => {
                let digest = known
                    .map(|(digest, _)| digest)
                    .or(declared.as_ref())
                    .cloned();
                let (name, size) = (format!("chart {}", chart.name), known.map(|(_, size)| size));
                let artifact = Artifact {
                    name,
                    url: url.clone(),
                    digest,
                    size,
                    limit: Some(ARCHIVE),
                };
                let entry = self.fetcher.files(&[artifact])?.remove(0);
                Ok(There {
                    path: entry.path,
                    sha256: entry.digest.hex().to_owned(),
                    size: entry.size,
                })
            }
            ChartSource::Registry(reference) => {
                self.pull(reference, known.map(|(digest, _)| digest))
            }
        }
    }

    fn pull(&self, reference: &ImageRef, digest: Option<&Digest>) -> Result<There, Error> {
        let puller = Puller::new(&self.fetcher, &self.registries);
        let (reference, platform) = (reference.clone(), Platform::default());
        let wanted = [ImageRequest {
            reference,
            platform,
            digest: digest.cloned(),
        }];
        let pulled = puller.pull(&wanted)?.remove(0);
        let size = pulled.manifest.size + pulled.parts.iter().map(|part| part.size).sum::<u64>();
        let layer = pulled.parts.iter().find(|part| part.media_type == CONTENT);
        let layer: Digest = layer
            .and_then(|layer| layer.hex()?.parse().ok())
            .ok_or_else(|| {
                Error::content(
                    pulled.reference.to_string(),
                    "it is not a chart: perhaps it is an image",
                )
            })?;
        let cache = self.fetcher.cache();
        if cache.sound(&layer, None)?.is_none() {
            // The puller compares only name and size, so a damaged layer must be removed first.
            let damaged = cache.path(&layer);
            fs::remove_file(&damaged).map_err(Error::file("remove", &damaged))?;
            puller.pull(&wanted)?;
        }
        let sha256 = pulled.manifest.hex().unwrap_or_default().to_owned();
        Ok(There {
            path: cache.path(&layer),
            sha256,
            size,
        })
    }

    fn source(&self, chart: &Chart) -> String {
        match &chart.source {
            ChartSource::Local(path) => self.shown(path),
            ChartSource::Archive(url, _) => url.clone(),
            ChartSource::Registry(reference) => format!("oci://{reference}"),
        }
    }
}
