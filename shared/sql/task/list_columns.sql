-- Lists the columns that a repetition copies: all but those that pgmill or the server sets. Runs of jobs, which have an `at`
-- of their own, never repeat.
-- parameters: none
-- locks: none
-- caller: scheduler, and the worker of a repeating task
SELECT a.attname::text AS name FROM pg_catalog.pg_attribute a
 WHERE a.attrelid = {queue_text}::pg_catalog.regclass AND a.attnum > 0 AND NOT a.attisdropped
   AND a.attgenerated = '' AND a.attidentity <> 'a'
   AND a.attname <> ALL (ARRAY[{uncopied_columns}])
 ORDER BY a.attnum
