//! A conninfo in the hands of psql and of pgmill's two clients: the same verdict, the same server?
//!
//! A [`ConninfoFiles`] is a folder with the files that conninfos name and an environment that is empty but for what a case
//! sets. The table-driven tests of the dialect and of TLS give it cases; it tells all that disagree at once.

use std::fs::{self, Permissions};
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Output};

use crate::guardian::Guardian;
use crate::server_programs::{ServerUser, bin};

/// Which server answers, encrypted or not, as whom, where, and what `options` has set.
pub const QUESTION: &str = "SELECT pg_catalog.concat_ws(' ', pg_catalog.current_setting('port'), \
     COALESCE((SELECT s.ssl FROM pg_catalog.pg_stat_ssl s WHERE s.pid = pg_catalog.pg_backend_pid()), false), \
     session_user, pg_catalog.current_database(), pg_catalog.current_setting('work_mem'), \
     pg_catalog.inet_server_addr())";

/// A conninfo and what stands around it.
#[derive(Debug, Clone)]
pub struct Case {
    pub conninfo: String,
    pub environment: Vec<(String, String)>,
    /// Whether it leads to a session: psql is held to it, too, so that a case means what its author thinks.
    pub leads: bool,
}

/// A case that leads to a session.
pub fn leads(conninfo: &str) -> Case {
    Case { conninfo: conninfo.to_owned(), environment: Vec::new(), leads: true }
}

/// A case that does not.
pub fn fails(conninfo: &str) -> Case {
    Case { leads: false, ..leads(conninfo) }
}

impl Case {
    pub fn env(mut self, name: &str, value: &str) -> Case {
        self.environment.push((name.to_owned(), value.to_owned()));
        self
    }
}

/// A folder, and words to be put into cases: `{dir}` is the folder.
#[derive(Debug)]
pub struct ConninfoFiles {
    guardian: Guardian,
    dial: PathBuf,
    words: Vec<(String, String)>,
}

impl ConninfoFiles {
    /// `dial` is the program of that name.
    pub fn new(dial: &str) -> ConninfoFiles {
        let guardian = Guardian::start(&ServerUser::own_self(), "");
        let folder = guardian.home().display().to_string();
        ConninfoFiles { guardian, dial: dial.into(), words: vec![("{dir}".into(), folder)] }
    }

    pub fn folder(&self) -> &Path {
        self.guardian.home()
    }

    /// `{name}` in cases and files.
    pub fn word(&mut self, name: &str, value: impl ToString) {
        self.words.push((format!("{{{name}}}"), value.to_string()));
    }

    /// A file in the folder, for its owner alone.
    pub fn file(&self, name: &str, text: &str) {
        self.file_with_mode(name, text, 0o600);
    }

    pub fn file_with_mode(&self, name: &str, text: &str, mode: u32) {
        let path = self.folder().join(name);
        if let Some(folder) = path.parent() {
            fs::create_dir_all(folder).expect("make a folder");
        }
        fs::write(&path, self.fill(text)).expect("write a file");
        fs::set_permissions(&path, Permissions::from_mode(mode)).expect("mode of a file");
    }

    /// Runs all cases and tells all that disagree.
    #[track_caller]
    pub fn compare(&self, cases: &[Case]) {
        let wrong: Vec<String> = cases.iter().filter_map(|case| self.disagreement(case)).collect();
        assert!(wrong.is_empty(), "{} of {} cases:\n{}", wrong.len(), cases.len(), wrong.join("\n"));
    }

    /// What pgmill's two clients say to a case.
    pub fn ours(&self, case: &Case) -> [String; 2] {
        let output = self.run(Command::new(&self.dial).arg(self.fill(&case.conninfo)), case);
        let text = String::from_utf8_lossy(&output.stdout).into_owned();
        ["link ", "worker "].map(|client| {
            let line = text.lines().find_map(|line| line.strip_prefix(client));
            line.map(str::to_owned).unwrap_or_else(|| format!("- {}", String::from_utf8_lossy(&output.stderr)))
        })
    }

    fn disagreement(&self, case: &Case) -> Option<String> {
        let mut psql = Command::new(bin().join("psql"));
        psql.args(["-XAtqw", "-v", "ON_ERROR_STOP=1", "-c", QUESTION, "-d"]).arg(self.fill(&case.conninfo));
        let output = self.run(&mut psql, case);
        let theirs = if output.status.success() {
            String::from_utf8_lossy(&output.stdout).trim().to_owned()
        } else {
            format!("- {}", String::from_utf8_lossy(&output.stderr).trim())
        };
        let ours = self.ours(case);
        let leads = |answer: &str| !answer.starts_with('-');
        let same = ours.iter().all(|answer| match (leads(&theirs), leads(answer)) {
            (true, true) => *answer == theirs,
            (one, other) => one == other,
        });
        let fine = same && leads(&theirs) == case.leads;
        (!fine).then(|| {
            let environment: String = case.environment.iter().map(|(name, value)| format!("{name}={value} ")).collect();
            let [link, worker] = ours;
            let asked = self.fill(&format!("{environment}\"{}\"", case.conninfo));
            format!("{asked} (wanted: {})\n  psql   {theirs}\n  link   {link}\n  worker {worker}", case.leads)
        })
    }

    fn run(&self, command: &mut Command, case: &Case) -> Output {
        command.env_clear().env("HOME", self.folder()).env("PGCONNECT_TIMEOUT", "5").current_dir(self.folder());
        command.envs(case.environment.iter().map(|(name, value)| (name, self.fill(value))));
        command.output().expect("run a client")
    }

    fn fill(&self, text: &str) -> String {
        self.words.iter().fold(text.to_owned(), |text, (name, value)| text.replace(name, value))
    }
}
