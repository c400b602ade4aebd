//! The file itself: opening it within limits, who else may read it, and where the control socket goes.
//!
//! Called by `mod.rs` and `read.rs`. What can go wrong: no such file, no right to read it, a file too large, bytes
//! that are not UTF-8, a socket path longer than the system takes; each becomes a mistake, none a panic.

use super::{Config, Environment, Mistake, read};
use crate::limits::{CONFIG_BYTES_MAX, SOCKET_PATH_BYTES_MAX};
use std::fs::File;
use std::io::Read;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};

const SOCKET_NAME: &str = "mill.sock";
const GROUP_AND_OTHERS_READ: u32 = 0o044;

pub(super) fn read(path: &Path, environment: Environment) -> Result<Config, Vec<Mistake>> {
    let mistake = |text: String| vec![Mistake { place: path.display().to_string(), text }];
    let (bytes, mode) = read_bytes(path).map_err(|error| mistake(format!("cannot be read: {error}")))?;
    if bytes.len() as u64 > CONFIG_BYTES_MAX {
        return Err(mistake(format!("has more than {} MiB", CONFIG_BYTES_MAX >> 20)));
    }
    let text = String::from_utf8(bytes).map_err(|error| {
        mistake(format!("is not UTF-8 text: bad byte at offset {}", error.utf8_error().valid_up_to()))
    })?;
    let absolute = std::path::absolute(path).map_err(|error| mistake(format!("cannot find its folder: {error}")))?;
    let folder = absolute.parent().unwrap_or(Path::new("/"));
    let mut config = read::read(&text, folder, environment)?;
    if mode & GROUP_AND_OTHERS_READ != 0 && config.has_password() {
        config
            .warnings
            .push(format!("{} contains a password, and other users may read it; chmod 600 it", path.display()));
    }
    Ok(config)
}

/// At most one byte more than allowed, so that an endless file ends here; with the rights of what was opened.
fn read_bytes(path: &Path) -> std::io::Result<(Vec<u8>, u32)> {
    let file = File::open(path)?;
    let mode = file.metadata()?.permissions().mode();
    let mut bytes = Vec::new();
    file.take(CONFIG_BYTES_MAX + 1).read_to_end(&mut bytes)?;
    Ok((bytes, mode))
}

/// Where the socket goes if the file does not say: systemd's folder, else beside the config file.
pub(super) fn default_control(folder: &Path, environment: Environment) -> PathBuf {
    runtime_folder("RUNTIME_DIRECTORY", environment).unwrap_or_else(|| folder.to_owned()).join(SOCKET_NAME)
}

/// Without a config file: systemd's folder, else the session's, else /tmp with the user's number in the name.
pub(super) fn control_without_file(environment: Environment) -> PathBuf {
    runtime_folder("RUNTIME_DIRECTORY", environment)
        .or_else(|| runtime_folder("XDG_RUNTIME_DIR", environment))
        .map(|folder| folder.join(SOCKET_NAME))
        .unwrap_or_else(|| PathBuf::from(format!("/tmp/mill-{}.sock", nix::unistd::geteuid())))
}

/// systemd may name several folders, parted by colons: the first is ours.
fn runtime_folder(variable: &str, environment: Environment) -> Option<PathBuf> {
    let value = environment(variable)?;
    let first = Path::new(value.split(':').next()?);
    first.is_absolute().then(|| first.to_owned())
}

pub(super) fn check_control(path: &Path) -> Result<(), String> {
    let length = path.as_os_str().as_bytes().len();
    if length > SOCKET_PATH_BYTES_MAX {
        return Err(format!(
            "the socket path {} has {length} bytes, more than the system's {SOCKET_PATH_BYTES_MAX}",
            path.display()
        ));
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::{CONFIG_BYTES_MAX, control_without_file, default_control, read};
    use crate::config::{Config, Mistake};
    use std::fs;
    use std::os::unix::fs::PermissionsExt;
    use std::path::{Path, PathBuf};

    /// A folder of its own per test, gone afterwards.
    struct Folder(PathBuf);

    impl Folder {
        fn new(name: &str) -> Folder {
            let path = std::env::temp_dir().join(format!("mill-config-{}-{name}", std::process::id()));
            fs::create_dir_all(&path).unwrap();
            Folder(path)
        }

        fn read(&self, bytes: &[u8], mode: u32) -> Result<Config, Vec<Mistake>> {
            let path = self.0.join("mill.json");
            fs::write(&path, bytes).unwrap();
            fs::set_permissions(&path, fs::Permissions::from_mode(mode)).unwrap();
            read(&path, &|_| None)
        }
    }

    impl Drop for Folder {
        fn drop(&mut self) {
            let _ = fs::remove_dir_all(&self.0);
        }
    }

    #[test]
    fn a_missing_file_and_a_folder_are_mistakes_with_their_path() {
        let missing = read(Path::new("/nonexistent/mill.json"), &|_| None).unwrap_err();
        assert_eq!(missing[0].place, "/nonexistent/mill.json");
        assert!(missing[0].text.contains("cannot be read"), "{missing:?}");
        assert!(read(Path::new("/"), &|_| None).is_err());
    }

    #[test]
    fn bytes_that_are_no_text_are_a_mistake() {
        let mistakes = Folder::new("utf8").read(b"[{\"data\":\"\xff\"}]", 0o600).unwrap_err();
        assert!(mistakes[0].text.contains("not UTF-8 text: bad byte at offset 10"), "{mistakes:?}");
    }

    #[test]
    fn a_file_over_16_mib_and_an_endless_one_are_refused() {
        let huge = vec![b' '; CONFIG_BYTES_MAX as usize + 1];
        let mistakes = Folder::new("huge").read(&huge, 0o600).unwrap_err();
        assert!(mistakes[0].text.contains("more than 16 MiB"), "{mistakes:?}");
        assert!(read(Path::new("/dev/zero"), &|_| None).is_err());
    }

    #[test]
    fn the_socket_stands_beside_the_file_unless_systemd_has_a_folder() {
        let folder = Folder::new("socket");
        assert_eq!(folder.read(b"[]", 0o600).unwrap().control, folder.0.join("mill.sock"));
        let systemd = |name: &str| (name == "RUNTIME_DIRECTORY").then(|| "/run/a:/run/b".to_owned());
        assert_eq!(default_control(&folder.0, &systemd), Path::new("/run/a/mill.sock"));
        assert_eq!(default_control(Path::new("/x"), &|_| Some("relative".into())), Path::new("/x/mill.sock"));
    }

    #[test]
    fn without_a_file_the_socket_stands_in_a_runtime_folder_or_in_tmp() {
        let session = |name: &str| (name == "XDG_RUNTIME_DIR").then(|| "/run/user/7".to_owned());
        assert_eq!(control_without_file(&session), Path::new("/run/user/7/mill.sock"));
        let uid = nix::unistd::geteuid();
        assert_eq!(control_without_file(&|_| None), Path::new(&format!("/tmp/mill-{uid}.sock")));
    }

    #[test]
    fn a_password_that_others_may_read_is_warned_about() {
        let folder = Folder::new("rights");
        let general = br#"{"connect":"host=/tmp password=s3cret"}"#;
        let in_a_queue = br#"[{"data":"a","connect":"password=s3cret"}]"#;
        for (bytes, mode, warned) in [
            (&general[..], 0o600, false),
            (&general[..], 0o640, true),
            (&in_a_queue[..], 0o604, true),
            (&br#"[{"data":"a"}]"#[..], 0o644, false),
        ] {
            let warnings = folder.read(bytes, mode).unwrap().warnings;
            assert_eq!(warnings.iter().any(|line| line.contains("chmod 600")), warned, "{warnings:?}");
            assert!(!warnings.concat().contains("s3cret"));
        }
    }
}
