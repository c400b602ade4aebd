-- Many results.
SELECT * FROM unnest(:ids::bigint[], :attempts::int[], :failures::bool[], :outputs::text[], :errors::text[],
       :reasons::text[], :begins::bigint[], :ends::bigint[]) AS e (id, attempt, failed, output, error, reason, began, ended)
