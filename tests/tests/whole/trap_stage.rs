//! The stage of the stories of traps: one database, `public.task` of an application, `evil.task` of a role that arms it, and
//! a record of who ran the code of that role.
//!
//! Every function of evil that is a trap calls `evil.n(what)`. It inserts (what, current_user, session_user) into
//! `evil.caught`, and logs the same, because the row goes when the statement is rolled back.

use std::time::Duration;

use postgres::Client;
use serde_json::json;
use tests::database::quote_ident;
use tests::{Cluster, Database, Supervisor};

use crate::queries::{all, one};

/// Whose the catalog is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum CatalogOf {
    Superuser,
    Application,
}

#[derive(Debug)]
pub struct Stage {
    pub database: Database,
    /// Owns `evil.task` and is the user of that queue.
    pub evil: String,
    /// May use the catalog and insert into both tables.
    pub member: String,
}

const RECORDER: &str = "
    CREATE TABLE evil.caught (what text, cu name, su name);
    CREATE TABLE evil.ran (job text);
    GRANT INSERT ON evil.caught TO PUBLIC;
    CREATE FUNCTION evil.n(what text) RETURNS bool LANGUAGE plpgsql AS $$
    BEGIN
        IF current_user <> 'ROLE' OR session_user <> 'ROLE' THEN
            RAISE LOG 'caught in %: % ran as %, logged in as %', current_database(), what, current_user, session_user;
        END IF;
        BEGIN
            INSERT INTO evil.caught VALUES (what, current_user, session_user);
        EXCEPTION WHEN OTHERS THEN
            RETURN true;
        END;
        RETURN true;
    END $$;
    CREATE FUNCTION evil.ni(what text) RETURNS bool LANGUAGE plpgsql IMMUTABLE AS 'BEGIN RETURN evil.n(what); END';
    CREATE FUNCTION evil.tg() RETURNS trigger LANGUAGE plpgsql AS
        'BEGIN PERFORM evil.n(TG_NAME); RETURN COALESCE(NEW, OLD); END'";

/// A row of `evil.task` that names a job and a run of somebody else, brought to an end step by step. What the server refuses
/// on the way is left out. RELATION, JOB, RUN and END are replaced.
const FORGED_END: &str = "DO $do$
    DECLARE
        hung name;
        names text := '';
        given text := '';
        made bigint;
        step text;
    BEGIN
        SET CONSTRAINTS ALL IMMEDIATE;
        FOR hung IN SELECT t.tgname FROM pg_trigger t WHERE t.tgrelid = 'RELATION'::regclass AND NOT t.tgisinternal
                       AND t.tgname ~ '^mill_' LOOP
            EXECUTE format('ALTER TABLE RELATION DISABLE TRIGGER %I', hung);
        END LOOP;
        SELECT string_agg(', ' || quote_ident(a.attname), ''), string_agg(CASE a.attname
                   WHEN 'job' THEN ', JOB' WHEN 'run' THEN ', RUN' WHEN 'run_of' THEN ', 0' WHEN 'at' THEN ', now()' ELSE ', NULL' END, '')
          INTO names, given FROM pg_attribute a
         WHERE a.attrelid = 'RELATION'::regclass AND NOT a.attisdropped AND a.attname IN ('job', 'run', 'run_of', 'at', 'epoch');
        EXECUTE format('INSERT INTO RELATION (input, plan%s) VALUES (''SELECT 1'', now() + interval ''1 day''%s) RETURNING id', names, given)
           INTO made;
        FOR hung IN SELECT t.tgname FROM pg_trigger t WHERE t.tgrelid = 'RELATION'::regclass AND NOT t.tgisinternal
                       AND t.tgname ~ '^mill_' LOOP
            EXECUTE format('ALTER TABLE RELATION ENABLE TRIGGER %I', hung);
        END LOOP;
        FOREACH step IN ARRAY ARRAY['state = ''TAKE''', 'state = ''WORK'', start = now(), pid = pg_backend_pid()',
                                    'state = ''END'', stop = now(), error = ''forged''', 'state = ''PLAN''', 'state = ''END'''] LOOP
            BEGIN
                EXECUTE format('UPDATE RELATION SET %s WHERE id = %s', step, made);
            EXCEPTION WHEN OTHERS THEN
                RAISE NOTICE 'refused: %: %', step, SQLERRM;
            END;
        END LOOP;
        EXECUTE format('DELETE FROM RELATION WHERE id = %s', made);
    END $do$";

impl Stage {
    /// Roles, both task tables and the catalog; nobody serves them yet.
    pub fn new(catalog: CatalogOf) -> Stage {
        let database = Cluster::shared().database();
        let (evil, member) = (format!("{}_evil", database.owner()), format!("{}_member", database.owner()));
        let stage = Stage { database, evil, member };
        let (app, evil, member) = stage.idents();
        let name = quote_ident(stage.database.name());
        stage.database.run(&format!(
            "CREATE ROLE {evil} LOGIN; CREATE ROLE {member} LOGIN; GRANT {evil} TO {}; \
             GRANT CONNECT ON DATABASE {name} TO {evil}, {member}; CREATE SCHEMA evil AUTHORIZATION {evil}",
            quote_ident(stage.database.login())
        ));
        stage.say(
            &stage.evil,
            &format!("GRANT USAGE ON SCHEMA evil TO PUBLIC; {}", RECORDER.replace("ROLE", &stage.evil)),
        );
        stage.say(
            stage.database.owner(),
            &format!("CREATE TABLE ran (job text); GRANT INSERT, SELECT ON ran TO {member}"),
        );
        let text = format!("BEGIN; {}; COMMIT", shared::db::catalog::text(shared::VERSION));
        match catalog {
            CatalogOf::Superuser => {
                stage.database.run(&text);
                stage.admit_keeper(stage.database.owner());
            }
            CatalogOf::Application => stage.say(stage.database.owner(), &text),
        }
        let catalogs_owner: String =
            one(&stage.database, "SELECT pg_get_userbyid(nspowner)::text FROM pg_namespace WHERE nspname = 'mill'");
        let mut grant = format!("SELECT mill.admit('{}')", stage.evil);
        for role in [stage.database.owner(), &stage.evil, &stage.member] {
            grant += &format!("; SELECT mill.grant('{role}', 'use')");
        }
        stage.say(&catalogs_owner, &grant);
        {
            let mill = stage.launch();
            mill.wait("both task tables are made").within(Duration::from_secs(30)).until(|| {
                one::<bool>(
                    &stage.database,
                    "SELECT to_regclass('public.task') IS NOT NULL AND to_regclass('evil.task') IS NOT NULL",
                )
            });
        }
        // An ANALYZE of the server's own evaluates index expressions as the table's owner, in a worker whose login is a superuser.
        stage.say(&stage.evil, "ALTER TABLE evil.task SET (autovacuum_enabled = false)");
        // Whoever may insert tasks may have jobs there; a catalog is used with the consent of the queue.
        stage.say(&stage.evil, &format!("GRANT SELECT, INSERT ON evil.task TO {app}, {member}; GRANT USAGE ON ALL SEQUENCES IN SCHEMA evil TO {app}, {member}"));
        stage.say(stage.database.owner(), &format!("GRANT SELECT, INSERT ON public.task TO {member}"));
        stage
    }

    /// The application, evil and the member, quoted.
    pub fn idents(&self) -> (String, String, String) {
        (quote_ident(self.database.owner()), quote_ident(&self.evil), quote_ident(&self.member))
    }

    /// The launcher serves both queues, each as its own user.
    pub fn serve(&self) -> Supervisor<'_> {
        let mill = self.launch();
        let sql = "SELECT count(*) = 2 FROM mill.queue q WHERE q.relid IN (to_regclass('public.task'), to_regclass('evil.task'))";
        mill.wait("both queues are known to the catalog")
            .within(Duration::from_secs(30))
            .until(|| one::<bool>(&self.database, sql));
        mill
    }

    /// The same without waiting: a trap may keep its own queue from being served.
    pub fn launch(&self) -> Supervisor<'_> {
        let row = json!({"data": self.database.name(), "user": self.evil, "schema": "evil"});
        Supervisor::of(&self.database).queue(row).key("max_workers", 16).start()
    }

    /// A session in which no statement takes longer than 10 s, whatever code of evil keeps it.
    pub fn session(&self, role: &str) -> Client {
        let client = self.database.server().try_connect(role, self.database.name());
        let mut client = client.unwrap_or_else(|error| panic!("connect as {role}: {error:?}"));
        client.batch_execute("SET statement_timeout = '10s'").expect("SET");
        client
    }

    /// Runs statements as a role.
    #[track_caller]
    pub fn say(&self, role: &str, sql: &str) {
        if let Err(error) = self.session(role).batch_execute(sql) {
            panic!("{sql}: {:?}", error.as_db_error());
        }
    }

    /// Lets a role serve its queue and keep the graph, where these are two rights.
    pub fn admit_keeper(&self, role: &str) {
        self.database.run(&format!(
            "DO $do$ BEGIN PERFORM mill.admit('{role}', keeps => true); \
             EXCEPTION WHEN undefined_function THEN PERFORM mill.admit('{role}'); END $do$"
        ));
    }

    /// Evil inserts a row of its own that claims to be this run of that job, and ends it. What was refused.
    pub fn forge_end(&self, job: i32, run: i64, end: &str) -> Result<(), String> {
        let sql = FORGED_END
            .replace("RELATION", "evil.task")
            .replace("JOB", &job.to_string())
            .replace("RUN", &run.to_string())
            .replace("END'", &format!("{end}'"));
        self.session(&self.evil).batch_execute(&sql).map_err(|error| match error.as_db_error() {
            Some(said) => said.message().to_owned(),
            None => error.to_string(),
        })
    }

    /// Has code of evil run as anybody but evil, or has evil become more than it was? A sentence each.
    pub fn faults(&self) -> Vec<String> {
        let mut faults: Vec<String> = all(
            &self.database,
            &format!(
                "SELECT DISTINCT format('%s ran as %s, logged in as %s', what, cu, su) FROM evil.caught \
                  WHERE cu <> '{0}' OR su <> '{0}' ORDER BY 1",
                self.evil
            ),
        );
        let mark = format!("caught in {}: ", self.database.name());
        for line in Cluster::shared().log().lines() {
            if let Some((_, said)) = line.split_once(&mark) {
                faults.push(said.to_owned());
            }
        }
        faults.sort();
        faults.dedup();
        let gained: Vec<String> = all(
            &self.database,
            &format!(
                "SELECT 'evil has become a superuser' FROM pg_roles WHERE rolname = '{0}' AND (rolsuper OR rolcreaterole OR rolcreatedb) \
                 UNION ALL SELECT 'evil is a member of ' || m.roleid::regrole FROM pg_auth_members m WHERE m.member = '\"{0}\"'::regrole",
                self.evil
            ),
        );
        faults.extend(gained);
        faults
    }
}

impl Drop for Stage {
    fn drop(&mut self) {
        // The objects of these roles go with the database; a superuser's DROP OWNED runs no code of theirs.
        let (_, evil, member) = self.idents();
        let Ok(mut client) = self.database.server().try_connect("postgres", self.database.name()) else {
            return;
        };
        let others = "SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE datname = current_database() AND pid <> pg_backend_pid()";
        let _ = client.batch_execute(others);
        let _ = client.batch_execute("SET statement_timeout = '10s'");
        for role in [evil, member] {
            let _ = client.batch_execute(&format!("DROP OWNED BY {role} CASCADE"));
            let _ = client.batch_execute(&format!("DROP ROLE {role}"));
        }
    }
}
