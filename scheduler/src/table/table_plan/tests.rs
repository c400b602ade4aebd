//! Found shapes and the steps that follow from them.

use super::*;
use crate::table::shape::{Index, Trigger};

fn queue() -> Queue {
    Queue { schema: "public".into(), table: "task".into() }
}

fn column(name: &str, base: &str) -> TableColumn {
    let category = match base {
        "text" | "character varying" => "S",
        "public.state" => "E",
        _ => "X",
    };
    let labels = if category == "E" { LABELS.map(str::to_owned).to_vec() } else { Vec::new() };
    TableColumn {
        name: name.into(),
        type_name: base.into(),
        base: base.into(),
        category: category.into(),
        labels,
        ..TableColumn::default()
    }
}

/// The table as we make it, as far as the planner looks.
fn ours() -> Shape {
    let columns = TASK_COLUMNS.iter().map(|ours| {
        let base = match ours.kind {
            ColumnKind::Integer => "integer",
            ColumnKind::State => "public.state",
            ColumnKind::Moment => "timestamp with time zone",
            ColumnKind::Interval => "interval",
            ColumnKind::Boolean => "boolean",
            ColumnKind::Text | ColumnKind::Own => "text",
        };
        let checked = ours.check.map(|_| true);
        TableColumn { commented: true, checked, generated: ours.is_generated(), ..column(ours.name, base) }
    });
    let triggers = OUR_TRIGGERS.map(|name| Trigger { name: name.into(), ..Trigger::default() });
    let indexes = INDEXES.iter().map(|place| Index {
        name: place.name.into(),
        valid: true,
        predicate: match place.name {
            "running" => "(state = ANY (ARRAY['TAKE'::public.state, 'WORK'::public.state]))",
            "held" => "((state = 'PLAN'::public.state) AND held AND (job IS NULL))",
            "job" => "(job IS NOT NULL)",
            "run" => "(run IS NOT NULL)",
            _ => "((state = 'PLAN'::public.state) AND (NOT held))",
        }
        .into(),
        columns: place.columns.iter().map(|column| (*column).to_owned()).collect(),
        uses: {
            let keys = place.columns.iter().map(|column| column.split(' ').next().unwrap_or(column));
            keys.chain(place.beside.iter().copied()).map(str::to_owned).collect()
        },
    });
    Shape {
        unique_id: true,
        columns: columns.collect(),
        triggers: triggers.to_vec(),
        indexes: indexes.collect(),
        ..Shape::default()
    }
}

fn planned(shape: &Shape) -> TablePlan {
    plan(shape, &queue(), &ColumnDefaults::default()).expect("not refused")
}

fn refused(shape: &Shape) -> String {
    plan(shape, &queue(), &ColumnDefaults::default()).expect_err("refused").0.join("; ")
}

fn without(names: &[&str]) -> Shape {
    let mut shape = ours();
    shape.columns.retain(|column| !names.contains(&column.name.as_str()));
    shape
}

#[test]
fn a_table_of_ours_needs_nothing() {
    assert_eq!(planned(&ours()), TablePlan { state_type: "public.state".into(), ..TablePlan::default() });
}

#[test]
fn a_missing_column_is_added_as_it_would_be_made_but_for_its_check() {
    let plan = planned(&without(&["active", "job"]));
    let active =
        "interval NOT NULL DEFAULT COALESCE(NULLIF(current_setting('pg_task.active', true), ''), '1 hour')::interval";
    let add = |name: &str, definition: &str| Reshape::AddColumn { name: name.into(), definition: definition.into() };
    assert_eq!(plan.reshape, [add("active", active), add("job", "int")]);
    assert!(plan.repairs.contains(&Repair::Check { column: "active", condition: "> '0'", there: false }));
}

#[test]
fn a_missing_hash_is_generated_in_a_small_table_and_kept_by_a_trigger_in_a_large_one() {
    let mut shape = without(&["hash"]);
    shape.bytes = SMALL_BYTES;
    let small = planned(&shape);
    assert!(matches!(&small.reshape[..], [Reshape::AddColumn { definition, .. }] if definition.contains("STORED")));
    assert!(!small.repairs.contains(&Repair::FillHash));
    shape.bytes += 1;
    let large = planned(&shape);
    let add = Reshape::AddColumn { name: "hash".into(), definition: "int".into() };
    assert_eq!(large.reshape, [add, Reshape::MakeHashTrigger]);
    assert!(large.repairs.contains(&Repair::FillHash));
}

#[test]
fn the_hash_comes_after_what_it_is_made_from() {
    let plan = planned(&without(&["hash", "group", "remote"]));
    let added: Vec<&str> = plan
        .reshape
        .iter()
        .filter_map(|step| match step {
            Reshape::AddColumn { name, .. } => Some(name.as_str()),
            _ => None,
        })
        .collect();
    assert_eq!(added, ["group", "remote", "hash"]);
}

#[test]
fn labels_that_the_enum_lacks_are_added() {
    let mut shape = ours();
    let state = shape.columns.iter_mut().find(|column| column.name == "state").expect("there");
    state.labels = ["PLAN", "TAKE", "WORK", "DONE", "STOP"].map(str::to_owned).to_vec();
    assert_eq!(planned(&shape).labels, ["FAIL", "GONE"]);
}

#[test]
fn defaults_of_the_extension_are_replaced_and_those_of_users_are_not() {
    for (column, expression) in [
        ("max", "(current_setting('pg_task.max'::text))::integer"),
        ("max", "(current_setting('pg_task.default_max'::text, false))::integer"),
        ("group", "current_setting('pg_task.group'::text)"),
        ("delimiter", "(current_setting('pg_task.delimiter'::text))::\"char\""),
        ("parent", "NULLIF((current_setting('pg_task.id'::text))::bigint, 0)"),
        ("parent", "(current_setting('pg_task.id'::text, true))::bigint"),
    ] {
        assert!(is_upstreams(column, expression), "{expression}");
        let mut shape = ours();
        let found = shape.columns.iter_mut().find(|found| found.name == column).expect("there");
        found.expression = Some(expression.into());
        let plan = planned(&shape);
        assert!(
            matches!(&plan.reshape[..], [Reshape::SetDefault { name, expression }]
                if name == column && expression.contains("true), '')")),
            "{plan:?}"
        );
    }
    for (column, expression) in [
        ("max", "7"),
        ("max", "((current_setting('pg_task.max'::text))::integer + 1)"),
        ("max", "(current_setting('app.max'::text))::integer"),
        ("max", "(current_setting('pg_task.count'::text))::integer"),
        ("plan", "CURRENT_TIMESTAMP"),
        ("max", "(COALESCE(NULLIF(current_setting('pg_task.max'::text, true), ''::text), '0'::text))::integer"),
    ] {
        assert!(!is_upstreams(column, expression), "{expression}");
    }
}

#[test]
fn triggers_of_the_extension_go_and_those_of_users_stay() {
    let wake_up =
        "BEGIN PERFORM pg_catalog.pg_cancel_backend(pid) FROM pg_locks WHERE locktype = 'userlock'; RETURN NULL; END";
    let trigger = |name: &str, function: &str, source: &str| Trigger {
        name: name.into(),
        schema: "public".into(),
        function: function.into(),
        source: source.into(),
        shared: false,
    };
    let mut shape = ours();
    shape.triggers.extend([
        trigger("wake_up", "task_wake_up", wake_up),
        trigger("task_state", "task_state", "RAISE EXCEPTION 'invalid state transition'"),
        trigger("audit", "audit", "INSERT INTO log"),
        trigger("stop_them", "canceller", wake_up),
    ]);
    let drop = |name: &str, function: &str| Reshape::DropTrigger {
        name: name.into(),
        function: Some(format!("\"public\".\"{function}\"")),
    };
    assert_eq!(planned(&shape).reshape, [drop("wake_up", "task_wake_up"), drop("task_state", "task_state")]);
}

#[test]
fn wake_up_triggers_by_an_earlier_name_are_replaced() {
    let mut shape = ours();
    shape.triggers.retain(|trigger| !trigger.name.starts_with("mill_wakeup"));
    shape.triggers.push(Trigger { name: FORMER_TRIGGERS[0].into(), ..Trigger::default() });
    assert_eq!(planned(&shape).repairs, [Repair::MakeTriggers { former: vec![FORMER_TRIGGERS[0]] }]);
    shape.triggers.extend(OUR_TRIGGERS.map(|name| Trigger { name: name.into(), ..Trigger::default() }));
    assert_eq!(planned(&shape).repairs, [Repair::MakeTriggers { former: vec![FORMER_TRIGGERS[0]] }]);
}

#[test]
fn an_index_that_is_missing_or_broken_is_made() {
    let mut shape = ours();
    shape.indexes[0].valid = false;
    shape.indexes.remove(3);
    let broken = Repair::Index { place: &INDEXES[0], broken: Some("group".into()) };
    assert_eq!(planned(&shape).repairs, [broken, Repair::Index { place: &INDEXES[3], broken: None }]);
    assert_eq!(
        INDEXES[0].definition(),
        r#"("hash", "max" DESC, "priority" DESC, "id") WHERE state = 'PLAN' AND NOT held"#
    );
}

#[test]
fn an_index_that_leaves_out_more_rows_is_another_one() {
    let mut shape = ours();
    shape.indexes[2].uses.push("remote".into());
    shape.indexes[2].predicate += " AND (remote IS NULL)";
    assert_eq!(planned(&shape).repairs, [Repair::Index { place: &INDEXES[2], broken: None }]);
}

#[test]
fn all_that_is_wrong_is_said_at_once() {
    let mut shape = without(&["input"]);
    shape.unique_id = false;
    let max = shape.columns.iter_mut().find(|column| column.name == "max").expect("there");
    (max.base, max.type_name) = ("text".into(), "text".into());
    let text = refused(&shape);
    assert_eq!(text, "it lacks input; it lacks a primary key or unique index on id; max is text, not an integer");
}

#[test]
fn a_partition_key_must_never_change() {
    let mut shape = Shape { partitioned: true, partition_key: vec!["id".into(), "group".into()], ..ours() };
    assert_eq!(planned(&shape).reshape, []);
    shape.partition_key = vec!["id".into(), "plan".into()];
    assert!(refused(&shape).contains("partitioned by plan, which pgmill changes"), "{}", refused(&shape));
}

#[test]
fn domains_and_other_sizes_fit_and_other_kinds_do_not() {
    for (name, base, fit) in [
        ("id", "smallint", true),
        ("id", "numeric", false),
        ("group", "character varying", true),
        ("delimiter", "\"char\"", true),
        ("plan", "timestamp without time zone", false),
        ("state", "text", true),
        ("state", "integer", false),
    ] {
        assert_eq!(fits(&column(name, base), task_column(name).expect("known").kind), fit, "{name} {base}");
    }
    assert_eq!(task_column("data").map(|column| column.kind), Some(ColumnKind::Own));
}

#[test]
fn tasks_of_others_are_not_run_as_the_queues_user_unasked() {
    let mut shape = without(&["attempt"]);
    shape.columns.push(TableColumn { expression: Some("CURRENT_USER".into()), ..column("user", "name") });
    assert!(planned(&shape).reshape.contains(&Reshape::CommentUser));
    shape.writers = vec!["reporter".into()];
    assert!(refused(&shape).contains("reporter may write into it"), "{}", refused(&shape));
    shape.columns.push(column("attempt", "integer"));
    assert_eq!(planned(&shape).reshape, []);
}
