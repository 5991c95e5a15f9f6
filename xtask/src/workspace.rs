//! What cargo knows about the workspace.

use std::path::{Path, PathBuf};

use anyhow::{Context, Result};
use serde_json::Value;

use crate::shell;

/// Where the workspace lies.
pub(crate) fn root() -> &'static Path {
    Path::new(env!("CARGO_MANIFEST_DIR")).parent().unwrap_or(Path::new("."))
}

fn metadata() -> Result<Value> {
    let text = shell::output(&mut shell::cargo(["metadata", "--no-deps", "--format-version", "1"]))?;
    Ok(serde_json::from_str(&text)?)
}

fn package<'a>(metadata: &'a Value, name: &str) -> Option<&'a Value> {
    metadata["packages"].as_array()?.iter().find(|package| package["name"] == name)
}

/// What cargo knows about a package.
pub(crate) fn package_data(name: &str) -> Result<Value> {
    package(&metadata()?, name).cloned().with_context(|| format!("there is no package {name}"))
}

/// Where cargo builds.
pub(crate) fn target_dir() -> Result<PathBuf> {
    let metadata = metadata()?;
    Ok(metadata["target_directory"].as_str().context("cargo names no target directory")?.into())
}

/// The features of the library: each engine is one, so that a new engine is checked alone without anybody's doing.
pub(crate) fn library_features() -> Result<Vec<String>> {
    let metadata = metadata()?;
    let library = package(&metadata, "lockline").context("there is no package lockline")?;
    let features = library["features"].as_object().context("lockline has no features")?;
    Ok(features.keys().filter(|name| *name != "default").cloned().collect())
}
