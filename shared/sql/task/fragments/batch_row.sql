-- The same of the rows of a batch: what is the same for all of them, its worker knows.
t.id, t.attempt, t.input, t.atomic, t.header, t.string, t.delimiter, t.escape, t.quote, t."null",
    CASE WHEN t.timeout > interval '0' THEN ceil(extract(epoch FROM t.timeout) * 1000)::bigint END, t."max",
    (t."max" >= 0 AND (t.count > 0 OR t.live > interval '0')), t.save, (t.repeat > interval '0' OR t."max" < 0), t.priority
