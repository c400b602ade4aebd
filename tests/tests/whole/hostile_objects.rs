//! Tables, catalogs, types and triggers that a stranger made first, or that an owner changed. They are not served, are not believed,
//! or harm their own queue alone.

use std::fs;
use std::time::Duration;

use serde_json::json;
use tests::{Cluster, Database, Supervisor, steadily};

use crate::asking::all;
use crate::security::{forget, stranger};

#[test]
fn a_table_that_a_stranger_made_first_is_not_served() {
    let database = Cluster::shared().database();
    let name = stranger(&database);
    let mut hostile = database.server().try_connect(&name, database.name()).expect("a stranger");
    hostile
        .batch_execute(
            "CREATE TABLE public.task (id bigserial PRIMARY KEY, input text); \
             CREATE TABLE public.caught (who text); GRANT ALL ON public.task, public.caught TO PUBLIC; \
             GRANT ALL ON SEQUENCE public.task_id_seq TO PUBLIC; \
             CREATE FUNCTION public.trap() RETURNS trigger LANGUAGE plpgsql AS \
             'BEGIN INSERT INTO public.caught VALUES (current_user); RETURN NEW; END'; \
             CREATE TRIGGER trap BEFORE INSERT OR UPDATE ON public.task FOR EACH ROW EXECUTE FUNCTION public.trap(); \
             INSERT INTO public.task (input) VALUES ('INSERT INTO public.caught VALUES (session_user)'); \
             TRUNCATE public.caught",
        )
        .expect("a trap");
    let mill = Supervisor::of(&database).start();
    mill.eventually("it says whose the table is", || {
        let status = mill.status()?;
        status["databases"][0]["why"].as_str()?.contains("who could run anything").then_some(())
    });
    steadily("the trap catches nobody", Duration::from_millis(500), || {
        assert_eq!(all::<String>(&database, "SELECT who FROM public.caught"), Vec::<String>::new());
        true
    });
    drop(mill);
    forget(&database, &name);
}

#[test]
fn a_catalog_that_a_stranger_made_first_is_not_believed() {
    let database = Cluster::shared().database();
    let name = stranger(&database);
    let mut hostile = database.server().try_connect(&name, database.name()).expect("a stranger");
    hostile
        .batch_execute(
            "CREATE TABLE public.caught (who text); GRANT ALL ON public.caught TO PUBLIC; \
             CREATE SCHEMA mill; GRANT ALL ON SCHEMA mill TO PUBLIC; \
             CREATE SCHEMA mill_private; GRANT ALL ON SCHEMA mill_private TO PUBLIC; \
             CREATE TABLE mill.meta (version text); INSERT INTO mill.meta VALUES ('../../../../tmp/evil'); \
             CREATE TABLE mill.queue (relid oid, schema name, name name, owner name); GRANT ALL ON ALL TABLES IN SCHEMA mill TO PUBLIC; \
             CREATE FUNCTION mill.s_version() RETURNS text LANGUAGE sql AS \
             'INSERT INTO public.caught VALUES (current_user); SELECT ''../../tmp/evil''::text'; \
             CREATE FUNCTION mill_private.s_register(oid) RETURNS void LANGUAGE sql AS \
             'INSERT INTO public.caught VALUES (current_user)'; \
             CREATE FUNCTION mill_private.s_clock() RETURNS interval LANGUAGE sql AS \
             'INSERT INTO public.caught VALUES (current_user); SELECT interval ''1 year'''",
        )
        .expect("a trap");
    let mill = Supervisor::of(&database).start();
    let id = database.insert("SELECT 1");
    assert_eq!(mill.finished(&database, id)["state"], "DONE");
    assert_eq!(all::<String>(&database, "SELECT who FROM public.caught"), Vec::<String>::new());
    drop(mill);
    forget(&database, &name);
}

#[test]
fn a_superuser_uses_neither_table_nor_catalog_of_somebody_who_is_none() {
    let cluster = Cluster::start();
    let database = cluster.database();
    // made as the row's user of a careful operator; then somebody serves the same as the superuser
    let careful = Supervisor::of(&database).start();
    careful.eventually("table and catalog are made", || {
        database.look("SELECT FROM mill.queue, public.task", &[]).is_some()
    });
    drop(careful);
    let connect = cluster.server().conninfo("postgres");
    let row = json!({"data": database.name(), "user": "postgres"});
    let mill = Supervisor::bare().key("connect", json!(connect)).row(row).start();
    mill.eventually("it says whose the table is", || {
        let status = mill.status()?;
        status["databases"][0]["why"].as_str()?.contains("who could run anything").then_some(())
    });
    database.run("ALTER TABLE public.task OWNER TO postgres");
    mill.wait("the table is served, without the catalog").within(Duration::from_secs(30)).until(|| {
        mill.log_contains("who could run anything through it")
            && mill.log_contains("tasks of this queue run as a superuser")
    });
}

#[test]
fn an_enum_a_domain_or_a_table_named_state_is_no_state_of_ours() {
    for made in [
        "CREATE TYPE public.state AS ENUM ('EVIL')",
        "CREATE DOMAIN public.state AS text CHECK (VALUE <> 'PLAN')",
        "CREATE TABLE public.state (x int)",
    ] {
        let database = Cluster::shared().database();
        database.run(made);
        let mill = Supervisor::of(&database).start();
        mill.eventually("the row says what is in the way", || {
            let status = mill.status()?;
            status["databases"][0]["why"].as_str().filter(|why| why.contains("state")).map(|_| ())
        });
        assert_eq!(mill.schedulers().len(), 1, "{made}");
    }
}

#[test]
fn triggers_of_the_tables_owner_that_refuse_swallow_or_change_our_updates_harm_that_queue_alone() {
    let cluster = Cluster::shared();
    let (healthy, database) = (cluster.database(), cluster.database());
    let mill = Supervisor::of(&healthy).and(&database).row_key("sleep", 50).start();
    let probe = |database: &Database| {
        let id = database.insert_with("SELECT 1", "active = '1 day'");
        mill.wait("it is done").within(Duration::from_secs(40)).until(|| database.finished(id))
    };
    probe(&healthy);
    probe(&database);
    let scheduler = mill.schedulers().len();
    for body in [
        "RAISE EXCEPTION 'no'",
        "RETURN NULL",
        "NEW.attempt = -1; RETURN NEW",
        "NEW.state = 'PLAN'; RETURN NEW",
        "NEW.pid = 1; NEW.start = '-infinity'; RETURN NEW",
        "DELETE FROM public.task WHERE id = OLD.id; RETURN NEW",
        "PERFORM pg_notify('mill_' || TG_RELID, ''); RETURN NEW",
    ] {
        database
            .connect()
            .batch_execute(&format!(
                "CREATE FUNCTION public.meddle() RETURNS trigger LANGUAGE plpgsql AS $$BEGIN {body}; END$$; \
             CREATE TRIGGER meddle BEFORE UPDATE ON public.task FOR EACH ROW EXECUTE FUNCTION public.meddle()"
            ))
            .expect("the owner may");
        database.insert_with("SELECT 1", "active = '1 day'");
        let before = cpu(&mill);
        let began = std::time::Instant::now();
        while began.elapsed() < Duration::from_millis(1500) {
            probe(&healthy);
        }
        let spent = cpu(&mill) - before;
        eprintln!("{body}: schedulers spent {spent} ms of CPU in {:?}", began.elapsed());
        database.run("DROP FUNCTION public.meddle() CASCADE");
        assert_eq!(mill.schedulers().len(), scheduler, "{body}");
        // what the owner's trigger has spoilt is the owner's; the next task runs
        probe(&database);
    }
}

/// CPU time of the schedulers so far, in ms.
fn cpu(mill: &Supervisor<'_>) -> u64 {
    let ticks = |pid: i32| -> u64 {
        let stat = fs::read_to_string(format!("/proc/{pid}/stat")).unwrap_or_default();
        let fields: Vec<&str> = stat.rsplit(')').next().unwrap_or_default().split_whitespace().collect();
        fields.get(11..13).unwrap_or_default().iter().filter_map(|field| field.parse::<u64>().ok()).sum()
    };
    mill.schedulers().iter().map(|one| ticks(one.pid) * 10).sum()
}
