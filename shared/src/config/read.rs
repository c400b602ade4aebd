//! The walk over the tree: from JSON to a `Config`, or to the list of all its mistakes.
//!
//! Called by `mod.rs` and `file.rs`. The walk never stops at a mistake: it notes it with its place and goes on, so
//! that one run of `check` tells everything. General keys are read before the queues, wherever they stand, because
//! queues build on `connect` and `defaults`. What can go wrong is what a `Mistake` says; nothing panics.

use super::json::Json;
use super::key::Key;
use super::{ColumnDefaults, Config, EVERY, Environment, Mistake, QueueConfig, Settings, file, key, value};
use crate::config::nearest::nearest;
use crate::conninfo::Conninfo;
use crate::conninfo::untrusted::{self, Remote};
use crate::limits::{CONFIG_BYTES_MAX, MISTAKES_MAX, POLL_MS_MAX, QUEUES_MAX};
use std::collections::{HashMap, HashSet};
use std::path::Path;

/// What `data` and `user` mean when nothing says otherwise.
const POSTGRES: &str = "postgres";

pub(super) fn read(text: &str, folder: &Path, environment: Environment) -> Result<Config, Vec<Mistake>> {
    let text = text.strip_prefix('\u{feff}').unwrap_or(text);
    if text.len() as u64 > CONFIG_BYTES_MAX {
        let text = format!("has more than {} MiB", CONFIG_BYTES_MAX >> 20);
        return Err(vec![Mistake { place: "file".to_owned(), text }]);
    }
    let tree = Json::parse(text).map_err(|error| {
        let place = format!("line {} column {}", error.line, error.column);
        vec![Mistake { place, text: error.text }]
    })?;
    let mut walk = Walk::new(environment);
    walk.config.control = file::default_control(folder, environment);
    match &tree {
        Json::Array(queues) => {
            walk.general_connect();
            walk.queues(queues);
        }
        Json::Object(_) => walk.general(&tree, folder),
        other => walk.note("file", value::wrong_kind(other, "an array of queues or an object")),
    }
    walk.finish()
}

pub(super) fn without_file(environment: Environment) -> Result<Config, Vec<Mistake>> {
    let mut walk = Walk::new(environment);
    walk.config.control = file::control_without_file(environment);
    walk.general_connect();
    walk.only_queue();
    walk.finish()
}

struct Walk<'a> {
    environment: Environment<'a>,
    config: Config,
    settings: Settings,
    defaults: ColumnDefaults,
    mistakes: Vec<Mistake>,
    untold: usize,
    /// False once the general `connect` is known to be wrong: queues then do not repeat that mistake.
    connect_is_fine: bool,
}

impl Walk<'_> {
    fn new(environment: Environment) -> Walk {
        let config = Config {
            connect: Conninfo::default(),
            max_workers: 0,
            connections: None,
            poll_ms: 0,
            control: Default::default(),
            name: String::new(),
            operators: None,
            probe_ms: 0,
            versions: None,
            remotes: untrusted::Entries::default(),
            queues: Vec::new(),
            warnings: Vec::new(),
        };
        let mut walk = Walk {
            environment,
            config,
            settings: Settings::default(),
            defaults: ColumnDefaults::default(),
            mistakes: Vec::new(),
            untold: 0,
            connect_is_fine: true,
        };
        for (name, value) in key::GENERAL.iter().filter_map(|key| Some((key.name, key.built_in()?))) {
            walk.general_key(name, name, &value, Path::new(""));
        }
        walk
    }

    fn finish(mut self) -> Result<Config, Vec<Mistake>> {
        let control = self.config.control.clone();
        let checked = file::check_control(&control);
        self.keep("control", checked);
        self.merge_duplicates();
        if self.untold > 0 {
            let text = format!("and {} more mistake{}", self.untold, if self.untold == 1 { "" } else { "s" });
            self.mistakes.push(Mistake { place: "file".to_owned(), text });
        }
        if self.mistakes.is_empty() { Ok(self.config) } else { Err(self.mistakes) }
    }

    fn note(&mut self, place: &str, text: String) {
        if self.mistakes.len() < MISTAKES_MAX {
            self.mistakes.push(Mistake { place: place.to_owned(), text });
        } else {
            self.untold += 1;
        }
    }

    /// The good value, or a noted mistake.
    fn keep<T>(&mut self, place: &str, read: Result<T, String>) -> Option<T> {
        read.map_err(|text| self.note(place, text)).ok()
    }

    /// The pairs of an object, each key once, with their places.
    fn pairs<'t>(&mut self, place: &str, json: &'t Json) -> Vec<(String, &'t str, &'t Json)> {
        let Json::Object(pairs) = json else {
            self.note(place, value::wrong_kind(json, "an object"));
            return Vec::new();
        };
        let mut seen = HashSet::new();
        let mut unique = Vec::new();
        for (key, json) in pairs {
            let shown = shown_key(key);
            let inner = if place.is_empty() { shown } else { format!("{place}.{shown}") };
            let name = key::current(key);
            if seen.insert(name) {
                unique.push((inner, name, json));
            } else if name == key {
                self.note(&inner, "appears twice".to_owned());
            } else {
                self.note(&inner, format!("appears twice: it is an older name of {name}"));
            }
        }
        unique
    }

    fn general(&mut self, tree: &Json, folder: &Path) {
        let mut queues = None;
        for (place, key, json) in self.pairs("", tree) {
            match key {
                "json" => queues = Some((place, json)),
                _ => self.general_key(&place, key, json, folder),
            }
        }
        self.general_connect();
        match queues {
            Some((_, Json::Array(queues))) => self.queues(queues),
            Some((place, other)) => self.note(&place, value::wrong_kind(other, "an array of queues")),
            None => self.only_queue(),
        }
    }

    fn general_key(&mut self, place: &str, key: &str, json: &Json, folder: &Path) {
        match key {
            "connect" => {
                self.config.connect = self.keep(place, value::conninfo(json)).unwrap_or_default();
            }
            "max_workers" => {
                let read = value::integer(json, 0..=4096);
                self.config.max_workers = self.keep(place, read).unwrap_or_default();
            }
            "connections" => {
                let read = value::integer(json, 2..=65_536);
                self.config.connections = self.keep(place, read);
            }
            "poll" => {
                let read = value::duration_ms(json, 10..=POLL_MS_MAX);
                self.config.poll_ms = self.keep(place, read).unwrap_or_default();
            }
            "probe" => {
                let read = value::duration_ms(json, 10..=POLL_MS_MAX);
                self.config.probe_ms = self.keep(place, read).unwrap_or_default();
            }
            "operators" => self.config.operators = self.keep(place, value::name(json)),
            "control" => match self.keep(place, value::text(json)) {
                Some("") => self.note(place, "is empty; want a path".to_owned()),
                Some(path) => self.config.control = folder.join(path),
                None => {}
            },
            "versions" => match self.keep(place, value::text(json)) {
                Some("") => self.note(place, "is empty; want a folder".to_owned()),
                Some(path) => self.config.versions = Some(folder.join(path)),
                None => {}
            },
            "name" => self.config.name = self.keep(place, value::name(json)).unwrap_or_default(),
            "defaults" => self.general_defaults(place, json),
            "remotes" => self.remotes(place, json),
            _ => self.note(place, unknown_key(key, key::GENERAL.iter().map(|own| own.name))),
        }
    }

    fn remotes(&mut self, place: &str, json: &Json) {
        for (place, name, json) in self.pairs(place, json) {
            let read = untrusted::check_name(name)
                .and_then(|()| value::text(json))
                .and_then(|text| Remote::of_entry(text).map(|_| text.to_owned()).map_err(|error| error.to_string()));
            if let Some(conninfo) = self.keep(&place, read) {
                self.config.remotes.add(name, &conninfo);
            }
        }
    }

    fn general_defaults(&mut self, place: &str, json: &Json) {
        let (mut settings, mut defaults) = (Settings::default(), ColumnDefaults::default());
        for (place, key, json) in self.pairs(place, json) {
            self.setting(&place, key, json, (&mut settings, &mut defaults), &[]);
        }
        (self.settings, self.defaults) = (settings, defaults);
    }

    fn setting(
        &mut self,
        place: &str,
        key: &str,
        json: &Json,
        (settings, defaults): (&mut Settings, &mut ColumnDefaults),
        beside: &[Key],
    ) {
        let taken = settings.set(key, json).and_then(|taken| Ok(taken || defaults.set(key, json)?));
        match taken {
            Ok(true) => {}
            Ok(false) => {
                let known = beside.iter().map(|own| own.name).chain(key::settings());
                self.note(place, unknown_key(key, known));
            }
            Err(text) => self.note(place, text),
        }
    }

    fn queues(&mut self, queues: &[Json]) {
        if queues.is_empty() {
            self.config.warnings.push("the config has no queues: nothing is served".to_owned());
        }
        if queues.len() > QUEUES_MAX {
            return self.note("json", format!("has {} queues, more than {QUEUES_MAX}", queues.len()));
        }
        for (index, json) in queues.iter().enumerate() {
            let queue = self.queue(&format!("json[{index}]"), json);
            self.config.queues.extend(queue);
        }
    }

    /// No queues given at all means database postgres, as in pg_task; served as whom `connect` or else PGUSER names.
    fn only_queue(&mut self) {
        let given = |user: &String| !user.is_empty();
        let written = self.config.connect.get("user").map(str::to_owned).filter(given);
        let user = written
            .or_else(|| (self.environment)("PGUSER").filter(given))
            .or_else(|| self.config.connect.user(self.environment))
            .unwrap_or_else(|| POSTGRES.to_owned());
        let pairs = [("data", POSTGRES.to_owned()), ("user", user)];
        self.queues(&[Json::Object(pairs.map(|(key, value)| (key.to_owned(), Json::Text(value))).into())]);
    }

    /// `None` if the queue does not say which queue it means; other mistakes are noted, and the queue goes on.
    fn queue(&mut self, place: &str, json: &Json) -> Option<QueueConfig> {
        let (mut settings, mut defaults) = (self.settings.clone(), self.defaults.clone());
        let (mut data, mut user, mut schema, mut table) = (None, None, None, None);
        let (mut connect, mut enabled, mut upgrade) = (None, false, false);
        let mut is_named = matches!(json, Json::Object(_));
        let built_in: Vec<_> = key::QUEUE.iter().filter_map(|key| Some((key.name, key.built_in()?))).collect();
        let built_in = built_in.iter().map(|(name, json)| ((*name).to_owned(), *name, json));
        for (place, key, json) in built_in.chain(self.pairs(place, json)) {
            let name = match key {
                "data" => &mut data,
                "user" => &mut user,
                "schema" => &mut schema,
                "table" => &mut table,
                "connect" => {
                    connect = self.keep(&place, value::conninfo(json)).map(|conninfo| (place, conninfo));
                    continue;
                }
                "enabled" => {
                    enabled = self.keep(&place, value::boolean(json)).unwrap_or_default();
                    continue;
                }
                "upgrade" => {
                    match self.keep(&place, value::text(json)) {
                        Some(text @ ("auto" | "never")) => upgrade = text == "auto",
                        Some(_) => self.note(&place, "want \"auto\" or \"never\"".to_owned()),
                        None => {}
                    }
                    continue;
                }
                _ => {
                    self.setting(&place, key, json, (&mut settings, &mut defaults), key::QUEUE);
                    continue;
                }
            };
            *name = self.keep(&place, value::name(json));
            is_named &= name.is_some();
        }
        let own = connect.as_ref().map(|(_, conninfo)| conninfo);
        let login = [own, Some(&self.config.connect)]
            .into_iter()
            .flatten()
            .find_map(|conninfo| conninfo.user(self.environment));
        let or_postgres = |name: Option<String>| name.unwrap_or_else(|| POSTGRES.to_owned());
        let every = data.as_deref() == Some(EVERY);
        let queue = QueueConfig {
            place: place.to_owned(),
            // Each queue of "*" is served as its table's owner, unless the queue says otherwise.
            user: if every {
                user.clone().or_else(|| own?.user(self.environment)).unwrap_or_default()
            } else {
                or_postgres(user.clone().or(login).or_else(|| data.clone()))
            },
            data: or_postgres(data.or(user)),
            schema: schema.unwrap_or_default(),
            table: table.unwrap_or_default(),
            connect: own.cloned(),
            enabled,
            upgrade,
            settings,
            defaults,
        };
        if let Some((place, own)) = &connect {
            self.queue_connect(place, own, &queue);
        }
        is_named.then_some(queue)
    }

    fn general_connect(&mut self) {
        let connect = self.config.connect.clone();
        self.connect_is_fine = self.check_connect("connect", &connect);
    }

    fn queue_connect(&mut self, place: &str, own: &Conninfo, queue: &QueueConfig) {
        for (keyword, key, value) in [("user", "user", &queue.user), ("dbname", "data", &queue.data)] {
            if queue.is_every() && keyword == "user" && value.is_empty() {
                continue;
            }
            if own.get(keyword).is_some_and(|written| !written.is_empty() && written != value) {
                self.note(place, format!("its {keyword} differs from the queue's {key}, {value:?}; leave it out"));
            }
        }
        let whole = match (self.connect_is_fine, queue.is_every()) {
            (true, false) => queue.conninfo(&self.config.connect),
            (true, true) => own.over(&self.config.connect),
            (false, _) => own.clone(),
        };
        self.check_connect(place, &whole);
    }

    /// Whether the launcher could use it: the same judgement as at the connect, without connecting.
    fn check_connect(&mut self, place: &str, conninfo: &Conninfo) -> bool {
        // the user is given, so that a system without a name for us is no mistake of the file
        let user = conninfo.get("user").unwrap_or(POSTGRES);
        let resolved = conninfo.with("user", user).resolve(self.environment);
        self.keep(place, resolved.map_err(|error| error.to_string())).is_some()
    }

    /// Equal queues become one; queues that disagree about one queue are mistakes, at both places.
    fn merge_duplicates(&mut self) {
        let mut first_of: HashMap<(String, String, String), usize> = HashMap::new();
        let mut kept: Vec<QueueConfig> = Vec::new();
        for queue in std::mem::take(&mut self.config.queues) {
            let identity = (queue.data.clone(), queue.schema.clone(), queue.table.clone());
            let Some(first) = first_of.get(&identity).and_then(|index| kept.get(*index)) else {
                first_of.insert(identity, kept.len());
                kept.push(queue);
                continue;
            };
            if first.is_same_as(&queue) {
                self.config.warnings.push(format!("{} repeats {}: the queue is served once", queue.place, first.place));
                continue;
            }
            let difference = if first.user == queue.user { "other settings" } else { "another user" };
            for (here, there) in [(first, &queue), (&queue, first)] {
                let name = format!("{}.{} in {}", queue.schema, queue.table, queue.data);
                let name = name.escape_debug();
                self.note(&here.place, format!("serves {name}, which {} serves with {difference}", there.place));
            }
        }
        self.config.queues = kept;
    }
}

/// A key as a place names it. What cannot be one may be a text with a password that slipped: it is only counted.
fn shown_key(key: &str) -> String {
    if key.chars().all(|c| c.is_alphanumeric() || "_.-".contains(c)) {
        key.chars().take(64).collect()
    } else {
        format!("(a key of {} characters)", key.chars().count())
    }
}

/// What to say of a key that has no meaning where it stands.
fn unknown_key<'k>(key: &str, known: impl Iterator<Item = &'k str>) -> String {
    let belongs = if key::is_setting(key) {
        "; it belongs in \"defaults\" or in a queue of \"json\""
    } else if key::is_of_queue(key) {
        "; it belongs in a queue of \"json\""
    } else if key::is_general(key) {
        "; it belongs beside \"json\", for all queues"
    } else if Conninfo::keywords().any(|keyword| keyword == key) {
        "; it belongs in the text of \"connect\""
    } else {
        let near = nearest(key, known);
        return near.map_or("unknown key".to_owned(), |near| format!("unknown key; did you mean \"{near}\"?"));
    };
    format!("unknown key{belongs}")
}
