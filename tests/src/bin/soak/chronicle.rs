//! What happened when, for whoever has to find out why: each fault with its moment, and the logs of all launchers, also of
//! those that were killed. Kept only where a folder was named.

use std::fs::{self, OpenOptions};
use std::io::Write;
use std::path::PathBuf;
use std::sync::atomic::{AtomicUsize, Ordering::SeqCst};
use std::time::SystemTime;

use tests::{Database, Supervisor};

#[derive(Debug, Default)]
pub struct Chronicle {
    folder: Option<PathBuf>,
    launchers: AtomicUsize,
}

impl Chronicle {
    pub fn in_folder(folder: Option<PathBuf>) -> Chronicle {
        if let Some(folder) = &folder {
            fs::create_dir_all(folder).expect("make the folder of the logs");
        }
        Chronicle { folder, launchers: AtomicUsize::new(0) }
    }

    pub fn note(&self, text: &str) {
        let Some(folder) = &self.folder else { return };
        let file = OpenOptions::new().create(true).append(true).open(folder.join("faults.log"));
        let at = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).unwrap_or_default();
        let written = file.and_then(|mut file| writeln!(file, "{:.3} {text}", at.as_secs_f64()));
        written.expect("write the list of faults");
    }

    /// The log of a launcher that has come to its end.
    pub fn keep(&self, launcher: &Supervisor<'_>) {
        let Some(folder) = &self.folder else { return };
        let number = self.launchers.fetch_add(1, SeqCst);
        let path = folder.join(format!("launcher-{number:04}-{}.log", launcher.pid()));
        fs::write(path, launcher.log().lines().join("\n")).expect("write a log");
    }

    /// Every task of a database that is still there, jobs first, and every run.
    pub fn keep_runs(&self, database: &Database) {
        let Some(folder) = &self.folder else { return };
        let sql = "SELECT concat_ws(' ', t.id, coalesce(j.name || ' ' || t.at, 'max ' || t.max), t.state, 'attempt', t.attempt, 'of', t.run_of, 'plan', t.plan, 'start', t.start, \
             'stop', t.stop, t.reason, left(t.error, 60)) FROM public.task t LEFT JOIN mill.job j ON j.id = t.job ORDER BY j.name, t.id";
        let runs = "SELECT concat_ws(' ', 'run', r.id, j.name, r.at, coalesce(r.outcome, 'open'), 'attempt', r.attempt, 'of', r.activation, 'due', r.due, \
             CASE WHEN r.ordered THEN 'ordered' END, CASE WHEN r.held THEN 'held' END, r.recall, 'task', r.task, 'start', r.start, 'stop', r.stop, \
             r.reason, left(r.error, 60)) FROM mill_private.run r LEFT JOIN mill.job j ON j.id = r.job ORDER BY j.name, r.id";
        let rows = [sql, runs].map(|sql| database.query(sql, &[]).unwrap_or_default());
        let lines: Vec<String> = rows.iter().flatten().map(|row| row.get::<_, String>(0).replace('\n', " ")).collect();
        fs::write(folder.join(format!("runs-{}.log", database.name())), lines.join("\n")).expect("write the runs");
    }
}
