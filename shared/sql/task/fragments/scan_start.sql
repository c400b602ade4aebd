-- Only rows like the last one claimed that came after it, past all that was claimed before and is still in the index.
AND t."max" = :last_max::int AND t.priority = :last_priority::int AND t.id > :last_id::bigint
