-- Many results, but for those of rows that are locked, or have consequences by now.
SELECT e.* FROM {queue} t, ({end_many}) AS e
 WHERE t.id = ANY (:ids::bigint[]) AND t.id = e.id AND t.attempt = e.attempt AND {still_working}
   AND (t.repeat > interval '0' OR t."max" < 0) IS NOT TRUE FOR UPDATE OF t SKIP LOCKED
