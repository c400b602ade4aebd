-- One result.
SELECT :ids::bigint AS id, :attempts::int AS attempt, :failures::bool AS failed, :outputs::text AS output,
       :errors::text AS error, :reasons::text AS reason, :begins::bigint AS began, :ends::bigint AS ended
