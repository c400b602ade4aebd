//! The service file: named sets of keywords, `[name]` and then `key=value` lines.
//!
//! Read by `resolve` when a service is named: first the user's file (PGSERVICEFILE, else ~/.pg_service.conf), then
//! the system's (pg_service.conf in PGSYSCONFDIR). What it says stands below what is written and above the
//! environment. What can go wrong: no such service, no such file, a line that is none; told with file and line.

use super::keyword;
use super::{Conninfo, ConninfoError};
use std::fs;
use std::path::{Path, PathBuf};

/// Where Debian's libpq looks for the system's file.
const SYSTEM_FOLDER: &str = "/etc/postgresql-common";

/// The pairs of a service. `given` is the file that was named by hand, which must be there.
pub(super) fn find(
    name: &str,
    given: Option<String>,
    home: Option<&Path>,
    system: Option<String>,
) -> Result<Conninfo, ConninfoError> {
    let users = match given {
        Some(file) => Some((PathBuf::from(file), true)),
        None => home.map(|home| (home.join(".pg_service.conf"), false)),
    };
    let folder = system.unwrap_or_else(|| SYSTEM_FOLDER.to_owned());
    let systems = Some((Path::new(&folder).join("pg_service.conf"), false));
    for (file, must_be) in [users, systems].into_iter().flatten() {
        let text = match fs::read_to_string(&file) {
            Ok(text) => text,
            Err(_) if !must_be => continue,
            Err(error) => {
                return Err(ConninfoError::Service(format!("service file {}: {error}", file.display())));
            }
        };
        if let Some(pairs) = pairs_of(name, &text, &file)? {
            return Ok(pairs);
        }
    }
    // What is no name may be a password that slipped.
    let named = name.chars().all(|c| c.is_alphanumeric() || "_.- ".contains(c));
    let shown = if named { format!(" \"{name}\"") } else { String::new() };
    Err(ConninfoError::Service(format!("definition of service{shown} not found")))
}

/// None if the file has no such section. The first section of that name counts, and in it the first of each key.
fn pairs_of(name: &str, text: &str, file: &Path) -> Result<Option<Conninfo>, ConninfoError> {
    let mut pairs: Option<Conninfo> = None;
    for (index, line) in text.lines().enumerate() {
        let wrong = |what: &str| {
            Err(ConninfoError::Service(format!("service file {} line {}: {what}", file.display(), index + 1)))
        };
        let line = line.trim();
        if line.is_empty() || line.starts_with('#') {
            continue;
        }
        if let Some(section) = line.strip_prefix('[') {
            if pairs.is_some() {
                break;
            }
            let named = section.strip_prefix(name).is_some_and(|rest| rest.starts_with(']'));
            pairs = named.then(Conninfo::default);
            continue;
        }
        let Some(pairs) = &mut pairs else { continue };
        let Some((key, value)) = line.split_once('=') else { return wrong("want key=value") };
        if key == "service" || key == "servicefile" {
            return wrong("a service cannot name another service");
        }
        if key.starts_with("ldap") || keyword::find(key).is_none() {
            return wrong("unknown keyword");
        }
        if pairs.get(key).is_none() {
            pairs.set(key, value);
        }
    }
    Ok(pairs)
}

#[cfg(test)]
mod tests {
    use super::{find, pairs_of};
    use std::path::Path;

    fn read(name: &str, text: &str) -> Result<Option<String>, String> {
        let pairs = pairs_of(name, text, Path::new("/f")).map_err(|error| error.to_string())?;
        Ok(pairs.map(|pairs| pairs.to_string()))
    }

    #[test]
    fn the_named_section_is_taken_and_nothing_else() {
        let text = "host=lost\n# note\n[a]\nhost=one\n  port=1 \nhost=two\n\n[b]\nhost=three\n[a]\nuser=x\n";
        assert_eq!(read("a", text), Ok(Some("host=one port=1".into())));
        assert_eq!(read("b", text), Ok(Some("host=three".into())));
        assert_eq!(read("c", text), Ok(None));
        assert_eq!(read("e", "[e]"), Ok(Some(String::new())));
    }

    #[test]
    fn a_bad_line_is_named_by_file_and_line_and_never_shown() {
        for text in ["[a]\npassword s3cret", "[a]\ns3cret=1", "[a]\nservice=s3cret", "[a]\nldap://s3cret=1"] {
            let error = read("a", text).unwrap_err();
            assert!(error.contains("/f line 2") && !error.contains("s3cret"), "{error}");
        }
        assert_eq!(read("b", "[a]\nnonsense\n[b]\nhost=x"), Ok(Some("host=x".into())));
    }

    #[test]
    fn the_users_file_comes_first_and_a_file_named_by_hand_must_be_there() {
        let folder = std::env::temp_dir().join(format!("mill-service-{}", std::process::id()));
        std::fs::create_dir_all(folder.join("system")).unwrap();
        std::fs::write(folder.join(".pg_service.conf"), "[a]\nhost=users").unwrap();
        std::fs::write(folder.join("system/pg_service.conf"), "[a]\nhost=systems\n[b]\nhost=systems").unwrap();
        let system = Some(folder.join("system").display().to_string());
        let host = |name: &str, given: Option<&str>| {
            let found = find(name, given.map(str::to_owned), Some(&folder), system.clone());
            found.map(|pairs| pairs.get("host").unwrap_or_default().to_owned()).map_err(|error| error.to_string())
        };
        assert_eq!(host("a", None).unwrap(), "users");
        assert_eq!(host("b", None).unwrap(), "systems");
        assert!(host("c", None).unwrap_err().contains("service \"c\" not found"));
        assert!(host("a", Some("/nowhere/file")).unwrap_err().contains("/nowhere/file"));
        std::fs::remove_dir_all(&folder).unwrap();
    }
}
