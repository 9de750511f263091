//! What `dat conform` judges: a shared object that the user names, or that of an entry of dat.conf.

use std::path::{Path, PathBuf};

use dat_conformance::Api;
use dat_conformance::suite::Subject;
use dat_registry::catalog::{Catalog, Request};
use dat_registry::{library, search};

use crate::cli::Versions;
use crate::{Outcome, read};

/// Name of the IA of a shared object that no entry names.
const NAME: &str = "conform0";

/// Returns the provider for each version to test.
pub(super) fn find(
    name: &str,
    params: Option<&str>,
    versions: Option<Versions>,
) -> Outcome<Vec<Subject>> {
    if is_library(name) {
        return Ok(apis(versions.unwrap_or(Versions::V2_0))
            .iter()
            .map(|api| Subject {
                library: PathBuf::from(name),
                name: NAME.into(),
                params: params.unwrap_or_default().into(),
                api: *api,
            })
            .collect());
    }
    let own_path = read::own_path();
    let catalog = Catalog::read(own_path.as_deref())?;
    let request = |api: Api| Request::new(name, api.version());
    let asked: Vec<Api> = match versions {
        Some(versions) => apis(versions).to_vec(),
        // Without a request the version is the one that the name has; 2.0 if it has both.
        None => [Api::V2_0, Api::V1_2]
            .into_iter()
            .find(|api| catalog.find(&request(*api)).is_some())
            .into_iter()
            .collect(),
    };
    if asked.is_empty() {
        return Err(catalog.explain_missing(&request(Api::V2_0)).into());
    }
    let of_api = |api: Api| -> Outcome<Subject> {
        let request = request(api);
        let entry = catalog
            .find(&request)
            .ok_or_else(|| catalog.explain_missing(&request))?;
        let folders = search::library_folders(own_path.as_deref(), &entry.origin.path);
        // The dynamic loader's own message follows if there is no such file.
        let path = library::locate(&entry.library, &folders)
            .map_or_else(|_| PathBuf::from(&entry.library), |found| found.path);
        Ok(Subject {
            library: path,
            name: entry.name,
            params: params.map_or(entry.ia_params, str::to_owned),
            api,
        })
    };
    asked.into_iter().map(of_api).collect()
}

/// Returns true for the name of a file: one with a slash, `*.so`, or `*.so.N`.
fn is_library(name: &str) -> bool {
    let is_object = Path::new(name).extension().is_some_and(|e| e == "so");
    name.contains('/') || is_object || name.contains(".so.")
}

fn apis(versions: Versions) -> &'static [Api] {
    match versions {
        Versions::V1_2 => &[Api::V1_2],
        Versions::V2_0 => &[Api::V2_0],
        Versions::Both => &Api::ALL,
    }
}

#[cfg(test)]
mod tests {
    use super::is_library;

    #[test]
    fn files_and_names_of_ias_are_told_apart() {
        for file in ["./libx.so", "libdaplofa.so.2", "libx.so", "target/debug/x"] {
            assert!(is_library(file), "{file}");
        }
        for ia in ["softrxe-lo", "ofa-v2-mlx4_0-1", "my.so-called-ia"] {
            assert!(!is_library(ia), "{ia}");
        }
    }
}
